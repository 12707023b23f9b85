// Rows of the ledger as a story, oldest first: what happened, by whom, and how it ended.
import { h } from "./dom.js";
import { facts, state, toolName } from "./parts.js";
import { line } from "./safe.js";
import { at, micros } from "./time.js";
import { value } from "./value.js";

/** The tool of a call; of anything else, what it is and what was done. */
export function about(row) {
  const tool = row.upstream && row.tool ? `${row.upstream}:${row.tool}` : (row.tool ?? row.upstream ?? "");
  if (row.kind === "call") return toolName(tool);
  const action = typeof row.detail?.action === "string" ? row.detail.action : "";
  const decided = row.kind === "approval" ? { approve: "approved", reject: "rejected" }[action] : undefined;
  const words = decided ? [decided] : [row.kind, action].filter((word) => word !== "").map((word) => word.replaceAll("_", " "));
  return h("span", null, line(words.join(" · ")), tool === "" ? null : [" ", toolName(tool)]);
}

const SAID = {
  "call pending": "asked, and waits for a person",
  "call refused": "asked, and was refused",
  "call allowed": "was sent to the upstream",
  "call success": "ran",
  "call error": "ran and failed",
  "decision pending": "a plan was drafted",
};

/** What a row says, in words. */
export function words(row) {
  const how = row.approval;
  if (row.kind === "approval") {
    const word = row.status === "refused" || row.detail?.action === "reject" ? "rejected it" : "approved it";
    return how ? `${word} over ${how.rail}, strength ${how.strength}` : word;
  }
  const known = SAID[`${row.kind} ${row.status}`];
  if (known === undefined) return null;
  return how?.grant ? `${known}, by a grant` : known;
}

/** The story. `here`: the row that is being looked at. */
export function timeline(rows, here) {
  const one = (row) => {
    const said = words(row);
    return h("li", { class: row.id === here ? "here" : null, "aria-current": row.id === here ? "true" : null },
      h("span", { class: "when" }, at(row.time)),
      h("div", { class: "event" },
        h("p", null, state(row.status), h("a", { href: `/activity/${encodeURIComponent(row.id)}` }, about(row)), row.code ? h("code", { class: "code" }, line(row.code)) : null),
        h("p", { class: "dim" }, row.principal ? h("b", null, line(row.principal)) : null, " ", said, row.duration_us ? ` in ${micros(Number(row.duration_us))}` : "", row.source ? ` · over ${row.source}` : ""),
        row.kind === "approval" && row.approval?.note ? h("p", { class: "note" }, "Note: ", line(row.approval.note)) : null,
        row.detail?.note ? h("p", { class: "note" }, "Note: ", line(row.detail.note)) : null));
  };
  return h("ol", { class: "timeline" }, rows.map(one));
}

/** Everything a row holds. */
export function whole(row) {
  const shown = ["id", "time", "kind", "status", "principal", "role", "session", "source", "upstream", "tool", "variant", "effect", "mode", "code", "plan_id", "plan_hash", "arguments_digest", "result_digest", "writer", "sequence", "prev_hash", "hash"];
  const text = (name) => (row[name] === undefined || row[name] === null ? null : h("span", { class: /hash|digest|^id$|_id$/.test(name) ? "mono" : null }, line(row[name])));
  const rest = Object.entries(row).filter(([name, of]) => !shown.includes(name) && of !== null && !["arguments", "metadata", "duration_us", "v"].includes(name));
  return facts([...shown.map((name) => [name.replaceAll("_", " "), text(name)]), ...rest.map(([name, of]) => [name.replaceAll("_", " "), value(of)])]);
}
