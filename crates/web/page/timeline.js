// Rows of the audit log as a timeline, oldest first.
import { h } from "./dom.js";
import { facts, hostName, state, toolName } from "./parts.js";
import { line } from "./safe.js";
import { at, micros } from "./time.js";
import { value } from "./value.js";
import { CALL_SENTENCES, CODE_TONES } from "./vocabulary.js";

/** How a row ended, as a badge: a rejection is red, what expired grey, what was mistyped amber. */
export function rowState(row) {
  const action = typeof row.detail?.action === "string" ? row.detail.action : "";
  if (CODE_TONES[row.code] === "warn") return state("mistyped", "warn");
  if (row.kind === "approval" && row.code === undefined) return state({ approve: "approved", reject: "rejected" }[action] ?? row.status);
  if (row.kind === "decision" && /^expire/.test(action)) return state("expired");
  return state(row.status, row.status === "refused" ? CODE_TONES[row.code] : undefined);
}

/** The tool of a call; for other rows, the kind and the action. */
export function about(row) {
  const tool = row.upstream && row.tool ? `${row.upstream}:${row.tool}` : (row.tool ?? row.upstream ?? "");
  if (row.kind === "call") return toolName(tool);
  const action = typeof row.detail?.action === "string" ? row.detail.action : "";
  const decided = row.kind === "approval" ? { approve: "approved", reject: "rejected" }[action] : undefined;
  const words = decided ? [decided] : [row.kind, action].filter((word) => word !== "").map((word) => word.replaceAll("_", " "));
  return h("span", null, line(words.join(" · ")), tool === "" ? null : [" ", toolName(tool)]);
}

/** A row in words; null for a kind that has no sentence. */
export function words(row) {
  const how = row.approval;
  if (row.kind === "approval") {
    const word = row.status === "refused" || row.detail?.action === "reject" ? "rejected it" : "approved it";
    return how ? `${word} over ${how.rail}, strength ${how.strength}` : word;
  }
  if (row.kind === "decision" && row.status === "pending") return "a plan was created";
  if (row.kind !== "call") return null;
  const known = CALL_SENTENCES[row.status] ?? row.status;
  return how?.grant ? `${known}, by a grant` : known;
}

/** The timeline. `here` is the row that is shown in full. */
export function timeline(rows, here) {
  const one = (row) => {
    const said = words(row);
    return h("li", { class: row.id === here ? "here" : null, "aria-current": row.id === here ? "true" : null },
      h("span", { class: "when" }, at(row.time)),
      h("div", { class: "event" },
        h("p", null, rowState(row), h("a", { href: `/activity/${encodeURIComponent(row.id)}` }, about(row)), row.code ? h("code", { class: "code" }, line(row.code)) : null),
        h("p", { class: "dim" }, row.principal ? h("b", null, line(row.principal)) : null, row.principal && row.kind === "call" ? " · " : " ", said, row.duration_us ? ` in ${micros(Number(row.duration_us))}` : "", row.source ? ` · over ${row.source}` : "", hostName(row.host) === null ? null : [" · ", line(hostName(row.host))]),
        row.kind === "approval" && row.approval?.note ? h("p", { class: "note" }, "Note: ", line(row.approval.note)) : null,
        row.detail?.note ? h("p", { class: "note" }, "Note: ", line(row.detail.note)) : null));
  };
  return h("ol", { class: "timeline" }, rows.map(one));
}

/** Everything a row holds, in the order the gateway sends it. */
export function whole(row) {
  const left_out = ["arguments", "metadata", "duration_us", "v"];
  const shown = ([name, of]) => (typeof of === "object" ? value(of) : h("span", { class: /hash|digest|^id$|_id$/.test(name) ? "mono" : null }, line(of)));
  const members = Object.entries(row).filter(([name, of]) => !left_out.includes(name) && of !== null);
  return facts(members.map((member) => [member[0].replaceAll("_", " "), shown(member)]));
}
