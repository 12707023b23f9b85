// Similar plans on one page: shared parts once, differences in full, one decision for each plan.
import { get, post } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { typeLabel } from "./decide.js";
import { differing } from "./inbox.js";
import { announce, effect, empty, field, head, notice, reportErrors, showTrouble, toolName } from "./parts.js";
import { refresh, waiting, watch } from "./pending.js";
import { hasPreview, preview } from "./preview.js";
import { line, plural, prose } from "./safe.js";
import { left, now } from "./time.js";
import { same, table, value } from "./value.js";

const NO_VALUE = () => h("span", { class: "v null" }, "not given");

function choice(plan, chosen, changed) {
  const one = (word, label) => h("label", { class: `pick ${word}` }, h("input", { type: "radio", name: plan.plan_id, value: word, checked: (chosen.get(plan.plan_id)?.word ?? "leave") === word, on: { change: () => {
    chosen.set(plan.plan_id, { ...chosen.get(plan.plan_id), word });
    changed();
  } } }), label);
  return h("fieldset", { class: "picks" }, h("legend", { class: "unseen" }, `Decision on ${plan.plan_id}`), one("approve", "approve"), one("reject", "reject"), one("leave", "leave"));
}

function typing(plan, chosen, changed) {
  if (plan.confirm?.kind !== "type") return null;
  const text = h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: chosen.get(plan.plan_id)?.text ?? "", on: { input: (event) => {
    chosen.set(plan.plan_id, { ...chosen.get(plan.plan_id), text: event.target.value });
    changed();
  } } });
  return field(typeLabel(plan), text);
}

function card(plan, number, names, shared, chosen, changed) {
  const args = plan.arguments ?? {};
  const own = h("table", { class: "values" }, h("tbody", null, names.map((name) => h("tr", null, h("th", { scope: "row" }, line(name)), h("td", null, Object.hasOwn(args, name) ? value(args[name]) : NO_VALUE())))));
  return h("li", { class: "one", data: { plan: plan.plan_id } },
    h("div", { class: "one-head" }, h("span", { class: "number" }, number), h("a", { href: `/plans/${encodeURIComponent(plan.plan_id)}` }, line(plan.title)), left(plan.expires_at), h("span", { class: "grow" }), choice(plan, chosen, changed)),
    shared.reason || !plan.intent?.reason ? null : h("div", { class: "reason" }, prose(plan.intent.reason)),
    names.length === 0 ? h("p", { class: "dim" }, "The same arguments as the others.") : own,
    shared.preview ? null : preview(plan.preview, "h3"),
    typing(plan, chosen, changed));
}

/** The view. */
export async function view(shell, _, filters) {
  const { tool, principal } = (await get(`/plans/${encodeURIComponent(filters.get("plan") ?? "")}`)).plan;
  const chosen = new Map();
  const [body, troubles, bar] = [h("div"), h("div"), h("div", { class: "decide-bar" })];
  const note = h("input", { type: "text", maxlength: 1000 });
  const node = h("div", { class: "page" }, h("nav", { class: "strip" }, h("a", { href: "/" }, "← Inbox")), body, troubles, bar);
  const ours = () => waiting().filter((plan) => plan.tool === tool && plan.principal === principal && (plan.steps ?? []).length === 0);
  let [shown, displayed] = ["", []];

  const picked = () => displayed.filter((plan) => ours().some((one) => one.plan_id === plan.plan_id)).map((plan) => ({ plan, ...(chosen.get(plan.plan_id) ?? {}) })).filter((one) => one.word === "approve" || one.word === "reject");
  const drawBar = () => {
    const all = picked();
    const [yes, no] = [all.filter((one) => one.word === "approve").length, all.filter((one) => one.word === "reject").length];
    const untyped = all.some((one) => one.word === "approve" && one.plan.confirm?.kind === "type" && !one.text);
    const words = [yes > 0 ? `approve ${yes}` : null, no > 0 ? `reject ${no}` : null].filter(Boolean).join(", ");
    put(bar,
      h("div", { class: "quick" }, h("button", { type: "button", on: { click: () => setAll("approve") } }, "Approve all"), h("button", { type: "button", on: { click: () => setAll("reject") } }, "Reject all"), h("button", { type: "button", on: { click: () => setAll("leave") } }, "Leave all")),
      h("span", { class: "grow" }),
      h("button", { type: "button", class: "primary", disabled: all.length === 0 || untyped, on: { click: decide } }, words === "" ? "Nothing chosen" : untyped ? "Type the missing name" : words[0].toUpperCase() + words.slice(1)));
  };
  const setAll = (word) => {
    for (const plan of ours()) chosen.set(plan.plan_id, { ...chosen.get(plan.plan_id), word });
    draw(true);
  };
  const decide = async () => {
    const said = note.value.trim();
    const decisions = picked().map(({ plan, word, text }) => ({ plan_id: plan.plan_id, plan_hash: plan.plan_hash, expires_at: plan.expires_at, decision: word, ...(word === "approve" ? { run: !plan.call_waits_until } : {}), ...(word === "approve" && text ? { confirm_text: text } : {}), ...(said === "" ? {} : { note: said }) }));
    showTrouble(troubles, null);
    await reportErrors(troubles, async () => {
      const answer = await post("/plans/decide", { decisions });
      const failed = answer.results.filter((one) => !one.success);
      notice(failed.length === 0 ? "good" : "bad", `${decisions.length - failed.length} decided`, failed.length > 0 ? bundle(`, ${failed.length} not: `, line(failed[0].error?.message ?? "")) : null);
      announce(`${plural(decisions.length - failed.length, "plan")} decided`);
      await refresh();
      if (ours().length === 0) shell.go("/");
      else draw(true);
    });
  };
  const draw = (force) => {
    const plans = ours();
    const key = plans.map((plan) => plan.plan_id).join();
    // A decision is bound to the plan and the expiry as drawn. Redraw only when the set changed or an expiry passed.
    if (key === shown && !force && !displayed.some((plan) => Date.parse(plan.expires_at) <= now())) return;
    [shown, displayed] = [key, plans];
    if (plans.length === 0) {
      put(bar);
      return put(body, empty("None of these plans is pending any more", h("p", null, h("a", { href: "/" }, "Back to the inbox"))));
    }
    const names = differing(plans);
    const common = Object.fromEntries(Object.entries(plans[0].arguments ?? {}).filter(([name]) => !names.includes(name)));
    const first = plans[0];
    const shared = { reason: plans.every((plan) => plan.intent?.reason === first.intent?.reason), preview: plans.every((plan) => same(plan.preview?.shown ?? null, first.preview?.shown ?? null)) || plans.every((plan) => plan.preview?.source === "computed") };
    put(body,
      head(bundle(`${plural(plans.length, "plan")}: `, toolName(tool)), bundle("requested by ", h("b", null, line(principal)), ". Each plan gets its own decision; those whose agent no longer waits run at once. Anything not listed for a plan is shared by all.")),
      h("p", { class: "badges" }, effect(first.effect)),
      shared.reason && first.intent?.reason ? h("figure", { class: "reason" }, h("blockquote", null, prose(first.intent.reason)), h("figcaption", null, "the agent's own words, shared by all")) : null,
      Object.keys(common).length > 0 ? h("section", null, h("h2", null, "Shared by all"), table(common, "Shared by all")) : null,
      shared.preview && hasPreview(first.preview) ? preview(first.preview) : null,
      h("h2", null, "Each plan"),
      h("ol", { class: "ones" }, plans.map((plan, at) => card(plan, at + 1, names, shared, chosen, drawBar))),
      field("Note for all", note));
    drawBar();
  };
  const end = watch(() => draw(false));
  await refresh();
  draw(true);
  return { title: "Similar plans", node, leave: end, keys: { u: () => shell.go("/") } };
}
