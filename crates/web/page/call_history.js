// The history of one call: the request, the decision, the approval, the result, and its row of the audit log.
import { get } from "./api.js";
import { bundle, h } from "./dom.js";
import { command, effect, facts, hostName } from "./parts.js";
import { hasPreview, preview, result } from "./preview.js";
import { line, prose } from "./safe.js";
import { about, rowState, timeline, whole, words } from "./timeline.js";
import { ago, full, micros } from "./time.js";
import { table } from "./value.js";

async function planOf(id) {
  if (!id) return null;
  try {
    return (await get(`/plans/${encodeURIComponent(id)}`)).plan;
  } catch (error) {
    if (error.code === undefined) throw error;
    return null;
  }
}

async function relatives(row) {
  if (!row.plan_id) return [row];
  const { activities } = await get("/activity", { plan_id: row.plan_id, limit: 500 });
  const all = activities.some((one) => one.id === row.id) ? activities : [...activities, row];
  return [...all].sort((one, other) => (one.id < other.id ? -1 : 1));
}

/** The view. */
export async function view(shell, id) {
  const answer = await get(`/activity/${encodeURIComponent(id)}`);
  const row = answer.activity ?? answer;
  const [plan, rows] = await Promise.all([planOf(row.plan_id), relatives(row)]);
  const args = plan?.arguments ?? row.arguments;
  const node = h("div", { class: "page history-page" },
    h("nav", { class: "strip" }, h("a", { href: "/activity" }, "← Activity"), row.plan_id ? h("a", { href: `/plans/${encodeURIComponent(row.plan_id)}` }, "The plan") : null),
    h("div", { class: "plan-title" }, h("h1", null, about(row)), h("p", { class: "badges" }, row.effect ? effect(row.effect) : null, rowState(row), row.code ? h("code", { class: "code" }, line(row.code)) : null)),
    facts([
      ["who", row.principal ? bundle(h("b", null, line(row.principal)), row.role ? `, ${row.role}` : "", row.source ? ` over ${row.source}` : "", hostName(row.host) === null ? null : bundle(", ", line(hostName(row.host)))) : null],
      ["when", bundle(full(row.time), h("span", { class: "dim" }, " ", ago(row.time)))],
      ["what", words(row)],
      ["mode", row.mode],
      ["intent", row.intent ? bundle(row.intent.operation_type, row.intent.data_sensitivity ? `, ${row.intent.data_sensitivity} data` : "") : null],
      ["took", row.duration_us ? micros(Number(row.duration_us)) : null],
    ]),
    row.intent?.reason ? h("figure", { class: "reason" }, h("blockquote", null, prose(row.intent.reason)), h("figcaption", null, "the agent's own words")) : null,
    rows.length > 1 ? h("section", { class: "history" }, h("h2", null, "History"), timeline(rows, row.id)) : null,
    plan && hasPreview(plan.preview) ? preview(plan.preview) : null,
    args && Object.keys(args).length > 0 ? h("section", null, h("h2", null, "Arguments"), table(args, "Arguments")) : null,
    plan?.result !== undefined && plan?.result !== null ? h("section", { class: "outcome" }, h("h2", null, "Result"), result(plan.result)) : null,
    h("details", { class: "record" }, h("summary", null, "Full record"), whole(row), h("p", { class: "about" }, "Each row holds the hash of the row before it. To check that no row was changed, removed or moved:"), command("countersign activity verify")));
  return { title: "History of a call", node, keys: { u: () => shell.go("/activity") } };
}
