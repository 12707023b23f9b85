// Tools as the gateway governs them: effect, confirm, strength and the rule behind each; definitions that changed, compared
// and accepted exactly as shown.
import { get, post } from "./api.js";
import * as diff from "./diff.js";
import { bundle, h, put } from "./dom.js";
import { act, cells, command, effect, empty, facts, field, grid, head, notice, question, select, showTrouble, state, toolName } from "./parts.js";
import { hiddenBadge, line, prose } from "./safe.js";
import { ago } from "./time.js";
import { brief, spread, value } from "./value.js";

const COLUMNS = ["Tool", "Effect", "Confirm", "Strength", "Definition", "Decided by"];

const pathOf = (name) => `/tools/${encodeURIComponent(name)}`;

function row(tool) {
  const flags = (tool.flags ?? []).length;
  return cells(COLUMNS, [
    bundle(h("a", { href: pathOf(tool.name) }, toolName(tool.name)), flags > 0 ? h("span", { class: "badge warn" }, flags === 1 ? "1 flag" : `${flags} flags`) : null, tool.denied ? h("span", { class: "badge bad" }, "denied") : null, tool.role === "human" ? h("span", { class: "badge" }, "people only") : null, h("div", { class: "dim clamp" }, brief(tool.description ?? "", 110))),
    effect(tool.effect), bundle(tool.confirm, tool.conditional ? h("span", { class: "dim", title: "A rule with a condition may change that" }, " *") : null), tool.strength, state(tool.pin), h("span", { class: "dim" }, tool.rule ? line(tool.rule) : "usual for the effect"),
  ]);
}

/** The list. */
export async function view(shell, _, filters) {
  const [list, troubles] = [h("div"), h("div")];
  const q = h("input", { type: "search", name: "q", value: filters.get("q") ?? "", placeholder: "a few words, or a name" });
  const kind = select("effect", ["read", "write", "destructive"], filters.get("effect") ?? "", "any");
  const stands = select("pin", ["accepted", "new", "changed", "withheld"], filters.get("pin") ?? "", "any");
  const upstream = h("select", { name: "server" }, h("option", { value: "" }, "any"));
  const form = h("form", { class: "filters", role: "search", "aria-label": "Find tools", on: { submit: (event) => event.preventDefault() } }, h("div", { class: "fields" }, field("Find", q), field("Upstream", upstream), field("Effect", kind), field("Definition", stands)));
  const node = h("div", { class: "page" }, head("Tools", "What agents can call, and what each call needs"), form, troubles, list);
  let all = [];

  const draw = () => {
    const fits = (tool) => (kind.value === "" || tool.effect === kind.value) && (stands.value === "" || tool.pin === stands.value) && (upstream.value === "" || tool.server === upstream.value);
    const some = all.filter(fits);
    const waits = all.filter((tool) => tool.pin !== "accepted").length;
    put(list,
      waits > 0 && stands.value === "" ? h("div", { class: "banner warn" }, h("span", null, `${waits} ${waits === 1 ? "definition waits" : "definitions wait"} for you: agents can't use ${waits === 1 ? "it" : "them"} before you accept.`), h("button", { type: "button", on: { click: () => { stands.value = all.some((tool) => tool.pin === "changed") ? "changed" : "new"; draw(); } } }, "Show")) : null,
      some.length > 0 ? grid("Tools", COLUMNS, some.map(row)) : all.length > 0 || q.value !== "" ? empty("No tool fits", "Fewer words find more.") : empty("No tools yet", "Tools come from upstreams: MCP servers and commands written in the configuration.", command("countersign upstreams add NAME --command npx -- -y SERVER")));
  };
  const load = async () => {
    try {
      all = (await get("/tools", { q: q.value.trim() })).tools;
      const names = [...new Set(all.map((tool) => tool.server))].sort();
      if (upstream.options.length === 1) upstream.append(...names.map((name) => h("option", { value: name, selected: name === filters.get("server") }, name)));
      showTrouble(troubles, null);
      draw();
    } catch (error) {
      if (error.code === undefined) throw error;
      showTrouble(troubles, error);
    }
  };
  let timer;
  q.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  });
  [kind, stands, upstream].forEach((choice) => choice.addEventListener("change", draw));
  await load();
  return { title: "Tools", node, heard: (kind_) => kind_.startsWith("tool") && load(), keys: { "/": () => q.focus() } };
}

function decidedTable(decided) {
  if (!Array.isArray(decided) || decided.length === 0) return null;
  const columns = ["Field", "Value", "Decided by"];
  return h("section", null, h("h2", null, "What a call needs, and why"), grid("What a call needs", columns, decided.map((one) => cells(columns, [line(one.field), value(one.value), one.rule ? h("code", null, line(one.rule)) : h("span", { class: "dim" }, line(one.because ?? ""))]))));
}

function difference(pin) {
  if (!pin?.candidate) return null;
  const now = spread(pin.candidate.definition);
  const was = pin.accepted ? spread(pin.accepted.definition) : [];
  return h("section", null, h("h2", null, pin.accepted ? "What changed" : "A new definition"),
    h("p", { class: "about" }, pin.accepted ? "Accepted before, against what its upstream says now. Read descriptions as if they were instructions to your agent: they are." : "Nobody has accepted this tool yet. Read its description as if it were an instruction to your agent: it is."),
    diff.between(was, now, pin.accepted ? "accepted → now" : "new"));
}

/** One tool. */
export async function one(shell, name) {
  const node = h("div", { class: "page" });
  const load = async () => {
    const answer = await get(pathOf(name));
    const tool = answer.tool;
    let pin = null;
    if (tool.pin !== "accepted") {
      try {
        const found = await get(`${pathOf(name)}/diff`);
        pin = found.tool ?? found.diff ?? found;
      } catch (error) {
        if (error.code === undefined) throw error;
      }
    }
    const accept = pin?.candidate ? act("Accept this definition", { class: "primary" }, async () => {
      const sure = await question("Accept this definition?", bundle(h("p", null, "Agents will be able to call ", toolName(name), " as it is shown now, under the rules in force."), h("p", { class: "mono dim" }, pin.candidate.fingerprint)), "Accept");
      if (!sure) return;
      await post(`${pathOf(name)}/approve`, { fingerprint: pin.candidate.fingerprint });
      notice("good", "Accepted ", toolName(name));
      await load();
    }) : null;
    const description = tool.description ?? tool.definition?.description;
    put(node,
      h("nav", { class: "strip" }, h("a", { href: "/tools" }, "← Tools")),
      h("div", { class: "plan-title" }, h("h1", null, toolName(name)), h("p", { class: "badges" }, effect(tool.effect), state(tool.pin), tool.denied ? h("span", { class: "badge bad" }, "denied") : null, accept)),
      (tool.flags ?? []).map((flag) => h("div", { class: "banner warn" }, line(typeof flag === "string" ? flag : JSON.stringify(flag)))),
      tool.withheld ? h("div", { class: "banner bad" }, line(tool.withheld.why ?? tool.withheld)) : null,
      description ? h("figure", { class: "reason" }, h("blockquote", null, hiddenBadge(description), prose(description)), h("figcaption", null, "the upstream's own words")) : null,
      facts([
        ["confirm", bundle(tool.confirm, tool.conditional ? h("span", { class: "dim" }, "; a rule with a condition may change that") : null)], ["strength", tool.strength], ["call with", tool.call_with ? h("code", null, tool.call_with) : null],
        ["rule", tool.rule ? h("code", null, line(tool.rule)) : null], ["denied", tool.denied ? line(tool.denied) : null], ["only for", tool.role ? line(tool.role) : null],
        ["decided", pin?.decided_by ? bundle(line(pin.decided_by), pin.decided_at ? bundle(", ", ago(pin.decided_at)) : null) : null], ["definition", h("span", { class: "mono" }, line(tool.fingerprint ?? ""))],
      ]),
      difference(pin), decidedTable(answer.decided),
      h("section", { class: "definition" }, h("h2", null, "Definition"), value(tool.definition ?? {})),
      h("p", null, h("a", { href: `/activity?tool=${encodeURIComponent(name)}` }, "Its calls"), " · ", h("a", { href: `/policy?tool=${encodeURIComponent(name)}` }, "What if it were called?")));
  };
  await load();
  return { title: name, node, heard: (kind) => kind.startsWith("tool") && load().catch(() => {}), keys: { u: () => shell.go("/tools") } };
}
