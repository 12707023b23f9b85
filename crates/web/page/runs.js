// Background runs of command tools: state, duration, live output, and a stop button.
import { get, post } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { act, cells, empty, facts, grid, head, notice, question, reportErrors, showTrouble, state, toolName } from "./parts.js";
import { block, line } from "./safe.js";
import { ago, full, now, span } from "./time.js";

const COLUMNS = ["Run", "State", "Started", "Took", "Exit"];
const isLive = (run) => run.state === "running" || run.state === "queued";
const pathOf = (id) => `/runs/${encodeURIComponent(id)}`;

function took(run) {
  if (!run.started_at) return "";
  return span((run.ended_at ? Date.parse(run.ended_at) : now()) - Date.parse(run.started_at));
}

function stopButton(run, reload) {
  if (!isLive(run)) return null;
  return act("Stop", { class: "danger" }, async () => {
    if (!(await question("Stop this run?", bundle(h("p", null, toolName(run.tool), " and every process it started will end. What it has already done is not undone.")), "Stop it", "primary danger"))) return;
    await post(`${pathOf(run.run_id)}/stop`);
    notice("", "Stopping ", toolName(run.tool));
    await reload();
  });
}

/** The list. */
export async function view() {
  const [list, troubles] = [h("div"), h("div")];
  const node = h("div", { class: "page" }, head("Runs", "Commands that run in the background"), troubles, list);
  const load = async () => {
    await reportErrors(troubles, async () => {
      const { runs } = await get("/runs");
      const row = (run) => cells(COLUMNS, [bundle(h("a", { href: pathOf(run.run_id) }, toolName(run.tool)), " ", stopButton(run, load), h("div", { class: "dim mono clamp" }, line(run.run_id))), state(run.state), run.started_at ? ago(run.started_at) : "", took(run), run.exit_code ?? ""]);
      put(list, runs.length === 0 ? empty("No runs yet", "A command tool with ", h("p", null, h("code", null, "background = true"), " answers the agent at once and keeps running. Its output is shown here live, and you can stop it.")) : grid("Runs", COLUMNS, runs.map(row)));
    });
  };
  await load();
  const timer = setInterval(load, 3000);
  return { title: "Runs", node, heard: (kind) => kind.startsWith("run") && load(), leave: () => clearInterval(timer) };
}

/** One run. */
export async function one(shell, id) {
  const [top, log, troubles] = [h("div"), h("pre", { class: "prose" }), h("div")];
  const box = h("div", { class: "log tall", tabindex: "0", role: "log", "aria-label": "Output" }, log);
  const node = h("div", { class: "page" }, h("nav", { class: "strip" }, h("a", { href: "/runs" }, "← Runs")), troubles, top, h("h2", null, "Output"), box);
  let run = null;
  const load = async () => {
    try {
      const answer = await get(pathOf(id));
      run = answer.run ?? answer;
      showTrouble(troubles, null);
    } catch (error) {
      if (error.code === undefined || run === null) throw error;
      return showTrouble(troubles, error);
    }
    put(top, h("div", { class: "plan-title" }, h("h1", null, toolName(run.tool)), h("p", { class: "badges" }, state(run.state), stopButton(run, load))),
      facts([["run", h("span", { class: "mono" }, line(run.run_id))], ["started", run.started_at ? full(run.started_at) : null], ["ended", run.ended_at ? full(run.ended_at) : null], ["took", took(run)], ["exit code", run.exit_code === undefined || run.exit_code === null ? null : String(run.exit_code)]]));
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
    const lines = run.log_tail ?? [];
    put(log, lines.length === 0 ? h("span", { class: "dim" }, "no output yet") : block(lines.join("\n")));
    if (atEnd) box.scrollTop = box.scrollHeight;
  };
  await load();
  const timer = setInterval(() => isLive(run) && load(), 1000);
  const shown = () => (box.scrollTop = box.scrollHeight);
  return { title: "Run", node, shown, heard: (kind) => kind.startsWith("run") && load(), leave: () => clearInterval(timer), keys: { u: () => shell.go("/runs") } };
}
