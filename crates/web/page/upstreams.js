// Upstreams: state, restarts, the tail of stderr, and the latency of recent calls.
import { get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { command, empty, facts, head, reportErrors, state } from "./parts.js";
import { line, prose } from "./safe.js";
import { micros } from "./time.js";

/** Latencies as a line; the newest is at the right. */
function sparkline(recent) {
  const all = (recent ?? []).map(Number).filter((us) => Number.isFinite(us));
  if (all.length === 0) return h("p", { class: "dim" }, "no calls yet");
  const most = Math.max(...all, 1);
  const step = all.length === 1 ? 0 : 200 / (all.length - 1);
  const point = (us, at) => [at * step, 34 - (us / most) * 30];
  const points = all.map((us, at) => point(us, at).map((n) => n.toFixed(1)).join(",")).join(" ");
  const sorted = [...all].sort((one, other) => one - other);
  const of = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  const said = `median ${micros(of(0.5))}, slowest ${micros(most)} of the last ${all.length}`;
  return h("figure", { class: "spark" },
    svg("svg", { viewBox: "0 0 200 38", preserveAspectRatio: "none", role: "img", "aria-label": `Latency: ${said}` },
      all.length > 1 ? svg("polygon", { points: `0,36 ${points} 200,36`, class: "area" }) : null,
      all.length > 1 ? svg("polyline", { points, class: "line" }) : null),
    h("figcaption", null, said));
}

function card(one) {
  const info = one.server ?? {};
  const server = typeof info === "string" ? info : [info.title ?? info.name, info.version].filter(Boolean).join(" ");
  const tail = one.stderr_tail ?? "";
  return h("article", { class: "card upstream", "aria-label": `Upstream ${one.name}` },
    h("div", { class: "card-head" }, h("h2", null, line(one.name)), state(one.state)),
    one.why ? h("div", { class: "banner bad" }, line(one.why)) : null,
    sparkline(one.recent_us),
    facts([
      ["runs", one.runs ? h("span", { class: "mono" }, line(one.runs)) : null],
      ["tools", h("a", { href: `/tools?server=${encodeURIComponent(one.name)}` }, String(one.tools ?? 0))],
      ["withheld", one.withheld > 0 ? h("a", { class: "warn", href: `/tools?server=${encodeURIComponent(one.name)}&pin=new` }, String(one.withheld)) : null],
      ["restarts", String(one.restarts ?? 0)], ["server", server ? line(server) : null], ["protocol", one.protocol ? line(one.protocol) : null],
    ]),
    tail.trim() === "" ? null : h("details", { open: one.state === "down" }, h("summary", null, "Last output on stderr"), h("div", { class: "log" }, prose(tail))));
}

/** The view. */
export async function view() {
  const [list, troubles] = [h("div", { class: "cards" }), h("div")];
  const node = h("div", { class: "page" }, head("Upstreams", "MCP servers and commands behind the gateway"), troubles, list);
  const load = async () => {
    await reportErrors(troubles, async () => {
      const { upstreams } = await get("/upstreams");
      const open = new Set([...list.querySelectorAll("details[open]")].map((one) => one.closest("article").getAttribute("aria-label")));
      put(list, upstreams.length === 0 ? empty("No upstreams yet", "An upstream is an MCP server, or a set of commands, that agents reach through the gateway.", command("countersign upstreams add NAME --command npx -- -y SERVER"), command("countersign init")) : upstreams.map(card));
      for (const one of list.querySelectorAll("article")) if (open.has(one.getAttribute("aria-label"))) one.querySelector("details")?.setAttribute("open", "");
    });
  };
  await load();
  const timer = setInterval(load, 10_000);
  return { title: "Upstreams", node, heard: (kind) => kind.startsWith("upstream") && load(), leave: () => clearInterval(timer) };
}
