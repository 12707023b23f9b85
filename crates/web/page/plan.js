// One plan in full: who asks for what and why, every argument, the preview, what differs from the last approval, the time left.
import { get } from "./api.js";
import { decision } from "./decide.js";
import * as diff from "./diff.js";
import { bundle, h, put } from "./dom.js";
import { effect, facts, state, toolName } from "./parts.js";
import { waiting, watch } from "./pending.js";
import { preview, result } from "./preview.js";
import { foldedIn, hiddenBadge, hiddenIn, line, plural, prose, unfoldAll } from "./safe.js";
import { timeline } from "./timeline.js";
import { ago, full, left, now } from "./time.js";
import { compact, isNested, same, spread, table, value } from "./value.js";
import { APPROVERS, CONFIRM_STEPS } from "./vocabulary.js";

function needs(plan) {
  const { kind, strength } = plan.confirm ?? {};
  return bundle(`${CONFIRM_STEPS[kind] ?? kind}, by ${APPROVERS[strength] ?? strength}`, h("span", { class: "dim" }, ` (confirm ${kind}, strength ${strength})`));
}

function because(plan) {
  if (plan.rule) return bundle("the rule ", h("code", null, line(plan.rule)), " requires it");
  return `the default for a ${plan.effect} tool; no rule sets it`;
}

function host(plan) {
  const of = plan.host;
  if (of === undefined || of === null) return null;
  if (typeof of === "string") return line(of);
  return bundle(line([of.title ?? of.program, of.version].filter(Boolean).join(" ")));
}

function intent(of) {
  if (!of) return null;
  return bundle(of.operation_type, of.data_sensitivity ? `, ${of.data_sensitivity} data` : "");
}

/** The agent's reason, marked as its own words. */
function reason(text) {
  if (!text) return null;
  return h("figure", { class: "reason" }, h("blockquote", null, hiddenBadge(text), prose(text)), h("figcaption", null, "the agent's own words"));
}

function about(plan) {
  return facts([
    ["requested by", bundle(h("b", null, line(plan.principal)), h("span", { class: "dim" }, " in session ", h("span", { class: "mono" }, line(plan.session ?? ""))))],
    ["host", host(plan)],
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

/** Compares the arguments with those of the last approved call of the same tool. */
function sinceLast(plan) {
  const last = plan.previous_approval;
  if (!last || !isNested(last.arguments)) return null;
  const [was, is] = [last.arguments, plan.arguments ?? {}];
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])];
  const kind = (name) => (!Object.hasOwn(was, name) ? "added" : !Object.hasOwn(is, name) ? "gone" : same(was[name], is[name]) ? "same" : "changed");
  const different = names.filter((name) => kind(name) !== "same");
  const unchanged = names.filter((name) => kind(name) === "same");
  const link = last.plan_id ? h("a", { href: `/plans/${encodeURIComponent(last.plan_id)}` }, "last approval") : "last approval";
  const one = (name) => {
    const long = [was[name], is[name]].some((side) => isNested(side) || (typeof side === "string" && side.includes("\n")));
    if (kind(name) === "changed" && long) {
      return h("tr", null, h("th", { scope: "row" }, line(name)), h("td", { colspan: 3 }, diff.between(lines(was[name]), lines(is[name]), "last time → now")));
    }
    const side = (of) => (Object.hasOwn(of, name) ? value(of[name]) : h("span", { class: "v null" }, "not given"));
    return h("tr", null, h("th", { scope: "row" }, line(name)), h("td", { class: "old" }, side(was)), h("td", { class: "arrow", "aria-hidden": "true" }, "→"), h("td", { class: "new" }, side(is)));
  };
  return h("section", { class: "since" }, h("h2", null, "Since the ", link),
    h("p", { class: "about" }, ago(last.approved_at), " by ", line(last.by), ". ",
      different.length === 0 ? "Every argument is the same." : bundle(`${different.length} of ${plural(names.length, "argument")} ${different.length === 1 ? "differs" : "differ"}`, unchanged.length > 0 && unchanged.length <= 12 ? bundle("; the same: ", unchanged.map((name, at) => bundle(at > 0 ? ", " : "", h("code", null, line(name))))) : null, ".")),
    different.length === 0 ? null : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Since the last approval" }, h("table", { class: "changes" }, h("tbody", null, different.map(one)))));
}

/** Arguments in full; those that differ from the last approval are marked. */
function argumentsOf(of, last, level = "h2", title = "Arguments") {
  const members = of ?? {};
  const names = Object.keys(members);
  const marks = new Map();
  if (isNested(last)) {
    for (const name of names) {
      if (!Object.hasOwn(last, name)) marks.set(name, h("span", { class: "mark" }, "new"));
      else if (!same(last[name], members[name])) marks.set(name, h("span", { class: "mark" }, "changed"));
    }
  }
  const hidden = hiddenIn(compact(members)) > 0;
  return h("section", { class: "arguments" },
    h(level, null, title, h("span", { class: "from" }, names.length === 0 ? " none" : ` ${names.length}`), hidden ? h("span", { class: "badge warn" }, "hidden characters, shown as escapes") : null),
    names.length === 0 ? null : table(members, title, marks));
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
        h("div", { class: "step-head" }, h("span", { class: "number" }, number + 1), h("h3", null, toolName(step.tool)), effect(step.effect),
          can ? h("label", { class: "keep" }, h("input", { type: "checkbox", checked: !removed.has(number), "aria-label": `Keep ${name}`, on: { change: (event) => {
            if (event.target.checked) removed.delete(number);
            else removed.add(number);
            box.classList.toggle("out", !event.target.checked);
            changed();
          } } }), "keep") : null),
        reason(step.intent?.reason), argumentsOf(step.arguments, null, "h4"), preview(step.preview, "h4"), outcomeOf(plan, number));
      return box;
    })));
}

function content(plan, removed, changed) {
  const several = (plan.steps ?? []).length > 0;
  const last = plan.previous_approval?.arguments;
  const done = plan.result !== undefined && plan.result !== null && !several;
  return bundle(
    reason(plan.intent?.reason ?? (several ? plan.preview?.shown?.reason : null)),
    about(plan),
    several ? null : sinceLast(plan),
    several ? steps(plan, removed, changed) : bundle(preview(plan.preview), argumentsOf(plan.arguments, last),
      isNested(plan.meta) ? argumentsOf(plan.meta, null, "h2", "Sent with the call (_meta)") : null),
    done ? h("section", { class: "outcome" }, h("h2", null, "Result"), result(plan.result)) : null);
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
    h("h1", null, several ? line(plan.arguments?.title ?? "Several steps") : toolName(plan.tool)),
    h("p", { class: "badges" }, effect(plan.effect), state(plan.state), plan.state === "pending" || plan.state === "approved" ? h("span", { class: "deadline" }, "expires in ", left(plan.expires_at)) : null));
}

function drawHistory(place, rows) {
  put(place, rows.length === 0 ? null : [h("h2", null, "History"), timeline(rows)]);
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
  // On a narrow screen the decision is below the plan; this button scrolls to it.
  const jump = h("button", { type: "button", class: "jump primary", on: { click: () => aside.scrollIntoView({ block: "start" }) } }, "Decide");
  const node = h("div", { class: "page plan" }, top, h("div", { class: "columns" }, h("article", null, body, past), h("div", { class: "side" }, aside)), jump);

  const count = () => {
    const closed = foldedIn(body);
    put(folds, closed === 0 ? null : [`${closed} long ${closed === 1 ? "value is" : "values are"} folded. `, h("button", { type: "button", class: "quiet", on: { click: () => unfoldAll(body) } }, "Unfold all")]);
  };
  const draw = () => {
    put(top, strip(plan.plan_id), title(plan));
    put(body, content(plan, removed, () => panel?.stepsChanged?.()), h("p", { class: "fine" }, "plan ", h("span", { class: "mono" }, line(plan.plan_id)), h("br"), "hash ", h("span", { class: "mono" }, line(plan.plan_hash ?? "")), plan.fingerprint ? [h("br"), "definition ", h("span", { class: "mono" }, line(plan.fingerprint))] : null));
    panel = decision(plan, { removed, folds, reload, after: () => neighbours(plan.plan_id).after });
    put(aside, panel.node);
    jump.hidden = plan.state !== "pending";
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
    }
    drawHistory(past, rows);
  };
  body.addEventListener("fold", count);
  top.addEventListener("ended", () => setTimeout(() => reload().catch(() => {}), 1200));
  draw();
  drawHistory(past, first.story);
  const end = watch(() => put(top, strip(plan.plan_id), title(plan)));
  const go = (other) => other && shell.go(`/plans/${encodeURIComponent(other)}`);
  return {
    title: `${plan.tool} · plan`,
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
