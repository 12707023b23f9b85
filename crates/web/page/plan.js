// One plan: its title in words, the change, who asks and why, and everything else folded: arguments, facts, the last approval.
import { get } from "./api.js";
import { decision } from "./decide.js";
import * as diff from "./diff.js";
import { bundle, h, put } from "./dom.js";
import { effect, facts, hostName, state, toolName } from "./parts.js";
import { waiting, watch } from "./pending.js";
import { hasPreview, preview, replacements, result } from "./preview.js";
import { foldedIn, hiddenBadge, hiddenIn, line, plural, prose, unfoldAll } from "./safe.js";
import { timeline } from "./timeline.js";
import { ago, full, left, now } from "./time.js";
import { compact, isNested, same, spread, table, value } from "./value.js";
import { APPROVERS, CONFIRM_STEPS } from "./vocabulary.js";

/** How often a plan whose call is held open is read: the agent may leave at any time. */
const LOOK_AGAIN = 3000;

function needs(plan) {
  const { kind, strength } = plan.confirm ?? {};
  return bundle(`${CONFIRM_STEPS[kind] ?? kind}, by ${APPROVERS[strength] ?? strength}`, h("span", { class: "dim" }, ` (confirm ${kind}, strength ${strength})`));
}

function because(plan) {
  if (plan.rule) return bundle("the rule ", h("code", null, line(plan.rule)), " requires it");
  return `the default for a ${plan.effect} tool; no rule sets it`;
}

function intent(of) {
  if (!of) return null;
  return bundle(of.operation_type, of.data_sensitivity ? `, ${of.data_sensitivity} data` : "");
}

/** Who asks and why, in one line; the reason is marked as the agent's own words. */
function whoAndWhy(plan) {
  const said = plan.intent?.reason ?? plan.preview?.shown?.reason ?? "";
  const host = hostName(plan.host);
  return h("div", { class: "who-why" }, h("p", null, h("b", null, line(plan.principal)), host === null ? null : bundle(" · ", line(host))), reason(said));
}

function reason(text) {
  if (!text) return null;
  return h("blockquote", { class: "reason", "aria-label": "The agent's own words" }, hiddenBadge(text), prose(text));
}

function about(plan) {
  return facts([
    ["requested by", bundle(h("b", null, line(plan.principal)), h("span", { class: "dim" }, " in session ", h("span", { class: "mono" }, line(plan.session ?? ""))))],
    ["host", hostName(plan.host)],
    ["intent", intent(plan.intent)],
    ["needs", needs(plan)],
    ["because", because(plan)],
    ["created", bundle(full(plan.created_at), h("span", { class: "dim" }, " ", ago(plan.created_at)))],
    ["decided", decided(plan)],
    ["note", plan.approval?.note || plan.note ? line(plan.approval?.note ?? plan.note) : null],
    ["code", plan.code ? h("code", { class: "code" }, line(plan.code)) : null],
    ["ended", plan.ended_at ? full(plan.ended_at) : null],
    ["continued by", plan.result?.next_plan_id ? bundle(h("a", { href: `/plans/${encodeURIComponent(plan.result.next_plan_id)}` }, line(plan.result.next_plan_id))) : null],
    ["continues", plan.preview?.shown?.continues ? h("a", { href: `/plans/${encodeURIComponent(plan.preview.shown.continues)}` }, line(plan.preview.shown.continues)) : null],
  ]);
}

function decided(plan) {
  const how = plan.approval;
  if (how) {
    const grant = how.grant ? bundle(", by the grant ", h("a", { href: "/grants" }, line(how.grant))) : null;
    return bundle("approved by ", h("b", null, line(how.by)), ` over ${how.rail}, strength ${how.strength}`, grant, how.at ? bundle(", ", full(how.at)) : null);
  }
  return plan.decided_at ? full(plan.decided_at) : null;
}

function lines(of) {
  return typeof of === "string" ? of.split("\n") : spread(of);
}

/** Compares the arguments with those of the last approved call about the same target by the same agent. */
function sinceLast(plan) {
  const last = plan.previous_approval;
  if (!last || !isNested(last.arguments)) return null;
  const [was, is] = [last.arguments, plan.arguments ?? {}];
  const names = [...new Set([...Object.keys(is), ...Object.keys(was)])];
  const different = names.filter((name) => Object.hasOwn(was, name) !== Object.hasOwn(is, name) || !same(was[name], is[name]));
  const side = (of, name) => (Object.hasOwn(of, name) ? value(of[name]) : h("span", { class: "v null" }, "not given"));
  const one = (name) => {
    const long = [was[name], is[name]].every((of) => isNested(of) || (typeof of === "string" && of.includes("\n")));
    if (long) return h("tr", null, h("th", { scope: "row" }, line(name)), h("td", { colspan: 3 }, diff.between(lines(was[name]), lines(is[name]), "last time → now")));
    return h("tr", null, h("th", { scope: "row" }, line(name)), h("td", null, side(was, name)), h("td", { class: "arrow", "aria-hidden": "true" }, "→"), h("td", null, side(is, name)));
  };
  const link = last.plan_id ? h("a", { href: `/plans/${encodeURIComponent(last.plan_id)}` }, "that plan") : "that plan";
  const body = () => [
    h("p", { class: "about" }, "Approved ", ago(last.approved_at), " by ", line(last.by), "; see ", link, "."),
    different.length === 0 ? null : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Since the last approval" }, h("table", { class: "changes calm" }, h("tbody", null, different.map(one)))),
  ];
  const place = h("div");
  const box = h("details", { class: "since" }, h("summary", null, "Since the last approval", h("span", { class: "from" }, different.length === 0 ? " the same arguments" : ` ${different.length} of ${plural(names.length, "argument")} ${different.length === 1 ? "differs" : "differ"}`)), place);
  // Comparing long texts takes time that most decisions do not need.
  box.addEventListener("toggle", () => put(place, body()), { once: true });
  return box;
}

/** A part that is folded, unless something in it can't be seen. */
function folded(title, count, members, body) {
  const hidden = hiddenIn(compact(members)) > 0;
  return h("details", { class: "arguments", open: hidden }, h("summary", null, title, h("span", { class: "from" }, ` ${count}`), hidden ? h("span", { class: "badge warn" }, "hidden characters, shown as escapes") : null), body);
}

/** Arguments as people read them. Those that say nothing new are folded. */
function argumentTable(members, defaults, title) {
  const entries = Object.entries(members);
  const telling = Object.fromEntries(entries.filter(([name]) => !defaults.includes(name)));
  const silent = Object.fromEntries(entries.filter(([name]) => defaults.includes(name)));
  const names = Object.keys(silent);
  return bundle(
    Object.keys(telling).length > 0 ? table(telling, title) : null,
    names.length > 0 ? h("details", { class: "silent" }, h("summary", null, `${plural(names.length, "argument")} left at ${names.length === 1 ? "its default" : "their defaults"}`), table(silent, "Defaults")) : null);
}

function argumentsOf(of, isChange) {
  const [members, defaults] = [of.arguments ?? {}, of.defaults ?? []];
  const count = Object.keys(members).length;
  if (!isChange) return count === 0 ? null : folded("Arguments", count, members, argumentTable(members, defaults, "Arguments"));
  const hidden = hiddenIn(compact(members)) > 0;
  return h("section", { class: "arguments" },
    hidden ? h("p", null, h("span", { class: "badge warn" }, "hidden characters, shown as escapes")) : null,
    count === 0 ? h("p", { class: "about" }, "It has no arguments.") : argumentTable(members, defaults, "Arguments"));
}

/** What would change: the preview; without one, what the call itself says. */
function change(of, level) {
  if (hasPreview(of.preview)) return preview(of.preview, level);
  const edits = replacements(of.arguments);
  return h("section", { class: "change" }, edits, edits === null ? argumentsOf(of, true) : null, preview(of.preview));
}

/** Arguments below a change that already shows them are folded. */
function restOfArguments(of) {
  return hasPreview(of.preview) || replacements(of.arguments) !== null ? argumentsOf(of, false) : null;
}

function outcomeOf(plan, number) {
  const told = plan.result?.steps?.[number];
  return told === undefined ? null : bundle(state(told.state), told.result === undefined ? null : h("details", null, h("summary", null, "Result"), result(told.result)));
}

/** The steps of a plan with several; `removed` holds the numbers of those to remove. */
function steps(plan, removed, changed) {
  const can = plan.state === "pending" && plan.steps.length > 1;
  return h("section", { class: "steps" }, h("h2", null, "Steps", h("span", { class: "from" }, ` ${plan.steps.length}, in this order`)),
    h("ol", null, plan.steps.map((step, number) => {
      const name = `Step ${number + 1}`;
      const box = h("li", { class: "step" },
        h("div", { class: "step-head" }, h("span", { class: "number" }, number + 1), h("h3", null, line(step.title)), h("span", { class: "dim" }, toolName(step.tool)),
          can ? h("label", { class: "keep" }, h("input", { type: "checkbox", checked: !removed.has(number), "aria-label": `Keep ${name}`, on: { change: (event) => {
            if (event.target.checked) removed.delete(number);
            else removed.add(number);
            box.classList.toggle("out", !event.target.checked);
            changed();
          } } }), "keep") : null),
        change(step, "h4"), reason(step.intent?.reason), restOfArguments(step), outcomeOf(plan, number));
      return box;
    })));
}

function fine(plan) {
  return h("p", { class: "fine" }, "plan ", h("span", { class: "mono" }, line(plan.plan_id)), h("br"), "hash ", h("span", { class: "mono" }, line(plan.plan_hash ?? "")), plan.fingerprint ? [h("br"), "definition ", h("span", { class: "mono" }, line(plan.fingerprint))] : null);
}

function content(plan, removed, changed) {
  const several = (plan.steps ?? []).length > 0;
  const done = plan.result !== undefined && plan.result !== null && !several;
  return bundle(
    several ? steps(plan, removed, changed) : change(plan, "h2"),
    whoAndWhy(plan),
    done ? h("section", { class: "outcome" }, h("h2", null, "Result"), result(plan.result)) : null,
    h("div", { class: "folded" },
      // What is sent besides the arguments is rare, and nothing else on the page shows it.
      isNested(plan.meta) ? h("section", { class: "arguments" }, h("h2", null, "Sent with the call (_meta)"), table(plan.meta, "_meta")) : null,
      several ? null : bundle(restOfArguments(plan), sinceLast(plan)),
      h("details", { class: "about-plan" }, h("summary", null, "About this plan"), about(plan), fine(plan))));
}

/** Which pending plan is before and after this one. */
function neighbours(id) {
  const all = waiting();
  const at = all.findIndex((plan) => plan.plan_id === id);
  if (at < 0) return { before: null, after: all.find((plan) => plan.plan_id !== id)?.plan_id ?? null, place: all.length === 0 ? "" : `${all.length} waiting` };
  return { before: all[at - 1]?.plan_id ?? null, after: all[at + 1]?.plan_id ?? null, place: `${at + 1} of ${all.length}` };
}

function strip(id) {
  const { before, after, place } = neighbours(id);
  const to = (other, label, key) => (other ? h("a", { class: "button", href: `/plans/${encodeURIComponent(other)}`, "aria-keyshortcuts": key }, label) : null);
  return h("nav", { class: "strip", "aria-label": "Plans" }, h("a", { href: "/" }, "← Inbox"), h("span", { class: "dim" }, place), h("span", { class: "grow" }), to(before, "Previous", "k"), to(after, "Next", "j"));
}

function title(plan) {
  const several = (plan.steps ?? []).length > 0;
  return h("div", { class: "plan-title" },
    h("h1", null, line(plan.title)),
    h("p", { class: "badges" }, effect(plan.effect), state(plan.state), several ? null : h("span", { class: "dim" }, toolName(plan.tool)), plan.state === "pending" || plan.state === "approved" ? h("span", { class: "deadline" }, "expires in ", left(plan.expires_at)) : null));
}

function drawHistory(place, rows) {
  const isOpen = place.querySelector("details")?.open ?? false;
  put(place, rows.length === 0 ? null : h("details", { open: isOpen }, h("summary", null, "History", h("span", { class: "from" }, ` ${plural(rows.length, "row")}`)), timeline(rows)));
}

/** The view. */
export async function view(shell, id) {
  const read = () => get(`/plans/${encodeURIComponent(id)}`);
  const first = await read();
  let plan = first.plan;
  const removed = new Set();
  const [top, body, past] = [h("div"), h("div", { class: "plan-body" }), h("section", { class: "history" })];
  const folds = h("p", { class: "folds" });
  let panel = null;
  const aside = h("aside", { class: "decide", "aria-label": "Decision" });
  const node = h("div", { class: "page plan" }, top, h("div", { class: "columns" }, h("article", null, body, past), h("div", { class: "side" }, aside)));

  const count = () => {
    const closed = foldedIn(body);
    put(folds, closed === 0 ? null : [`${closed} long ${closed === 1 ? "value is" : "values are"} folded. `, h("button", { type: "button", class: "quiet", on: { click: () => unfoldAll(body) } }, "Unfold all")]);
  };
  const draw = () => {
    put(top, strip(plan.plan_id), title(plan));
    put(body, content(plan, removed, () => panel?.stepsChanged?.()));
    panel = decision(plan, { removed, folds, reload, after: () => neighbours(plan.plan_id).after });
    put(aside, panel.node);
    node.classList.toggle("open", plan.state === "pending");
    count();
  };
  const reload = async () => {
    const { plan: fresh, story: rows } = await read();
    const moved = fresh.state !== plan.state || fresh.plan_hash !== plan.plan_hash || Date.parse(plan.expires_at) <= now() || (fresh.steps ?? []).length !== (plan.steps ?? []).length;
    // The decision stays bound to the expiry on the screen, even if the plan was given more time, until the panel is redrawn.
    plan = moved ? fresh : { ...fresh, expires_at: plan.expires_at };
    if (moved) {
      removed.clear();
      draw();
    } else {
      put(top, strip(plan.plan_id), title(plan));
      panel?.held?.(Boolean(plan.call_waits_until));
    }
    drawHistory(past, rows);
  };
  body.addEventListener("fold", count);
  top.addEventListener("ended", () => setTimeout(() => reload().catch(() => {}), 1200));
  draw();
  drawHistory(past, first.story);
  const stop = watch(() => put(top, strip(plan.plan_id), title(plan)));
  const timer = setInterval(() => plan.state === "pending" && plan.call_waits_until && reload().catch(() => {}), LOOK_AGAIN);
  const end = () => {
    stop();
    clearInterval(timer);
  };
  const go = (other) => other && shell.go(`/plans/${encodeURIComponent(other)}`);
  return {
    title: `${plan.title} · plan`,
    node,
    leave: end,
    shown: () => {
      if (location.hash === "#approve") panel?.approve();
      if (location.hash === "#reject") panel?.reject();
    },
    heard: (kind, data) => {
      if (!kind.startsWith("plan")) return;
      if (data.plan_id === undefined || data.plan_id === plan.plan_id) reload().catch(() => {});
      else put(top, strip(plan.plan_id), title(plan));
    },
    keys: {
      j: () => go(neighbours(plan.plan_id).after), k: () => go(neighbours(plan.plan_id).before), u: () => shell.go("/"),
      a: () => panel?.approve(), r: () => panel?.reject(),
    },
  };
}
