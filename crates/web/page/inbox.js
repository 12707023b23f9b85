// Plans that wait for a decision, live: similar ones grouped, the next deadline first. Decides nothing itself.
import { get, post } from "./api.js";
import { bundle, h, put } from "./dom.js";
import * as memory from "./memory.js";
import { act, announce, command, effect, empty, head, notice, showTrouble, state, toolName } from "./parts.js";
import { forget, groups, isLoaded, refresh, waiting, watch } from "./pending.js";
import { hiddenIn, line, plain, plural } from "./safe.js";
import { ago, left } from "./time.js";
import { brief, compact, same } from "./value.js";
import { CONFIRM_LABELS } from "./vocabulary.js";

/** A plan on one line: its title, or its first arguments. */
export function summary(plan) {
  const steps = plan.steps ?? [];
  if (steps.length > 0) return bundle(h("b", null, plural(steps.length, "step")), " ", brief(plan.arguments?.title ?? "", 90));
  const members = Object.entries(plan.arguments ?? {});
  if (members.length === 0) return h("span", { class: "dim" }, "no arguments");
  const shown = members.slice(0, 4).map(([name, value]) => h("span", { class: "pair" }, h("span", { class: "key" }, brief(name, 32)), " ", brief(value, 48)));
  return bundle(shown, members.length > 4 ? h("span", { class: "dim" }, `and ${members.length - 4} more`) : null);
}

function row(plan) {
  const hidden = hiddenIn(compact(plan.arguments ?? {}));
  return h("a", { class: "plan-row", href: `/plans/${encodeURIComponent(plan.plan_id)}`, data: { plan: plan.plan_id, effect: plan.effect } },
    h("span", { class: "when" }, left(plan.expires_at)),
    h("span", { class: "what" }, h("span", { class: "top" }, toolName(plan.tool), effect(plan.effect), hidden > 0 ? h("span", { class: "badge warn" }, "hidden characters") : null),
      h("span", { class: "sum" }, summary(plan)),
      plan.intent?.reason ? h("span", { class: "why" }, "“", brief(plan.intent.reason, 140), "”") : null),
    h("span", { class: "who" }, h("span", null, brief(plan.principal, 28)), h("span", { class: "dim" }, CONFIRM_LABELS[plan.confirm?.kind])));
}

/** The names of arguments in which plans differ. */
export function differing(plans) {
  const names = [...new Set(plans.flatMap((plan) => Object.keys(plan.arguments ?? {})))];
  const value = (plan, name) => (Object.hasOwn(plan.arguments ?? {}, name) ? plan.arguments[name] : undefined);
  return names.filter((name) => plans.some((plan) => !same(value(plan, name) ?? null, value(plans[0], name) ?? null) || (value(plan, name) === undefined) !== (value(plans[0], name) === undefined)));
}

function group(plans) {
  if (plans.length === 1) return row(plans[0]);
  const names = differing(plans);
  const where = `/together?plan=${encodeURIComponent(plans[0].plan_id)}`;
  const differ = names.length === 0 ? "the same arguments" : bundle("they differ in ", names.slice(0, 5).map((name, at) => bundle(at > 0 ? ", " : "", h("code", null, brief(name, 28)))), names.length > 5 ? ` and ${names.length - 5} more` : "");
  return h("section", { class: "group", "aria-label": `${plans.length} similar plans` },
    h("div", { class: "group-head" }, h("span", null, h("b", null, `${plans.length} similar plans`), " ", differ), h("a", { class: "button", href: where }, "Decide together")),
    plans.map(row));
}

function teach() {
  return empty("Nothing waits for you",
    "When an agent wants to change something, its plan appears here: the tool, the arguments, and what would change. By default no change runs on the agent's word alone: you approve here, in the dialog of its host, or with `countersign approve`.",
    h("p", null, "To try it, let an agent call a tool that writes, or run:"),
    command("countersign call tool-write --tool-name=UPSTREAM:TOOL --json_args '{}'"),
    h("p", { class: "dim" }, "The profile and the rules say who has to approve: see ", h("a", { href: "/policy" }, "Policy"), "."));
}

function pausesOf(list, reload) {
  return list.map((pause) => h("div", { class: "banner warn", role: "status" },
    h("span", null, "Writes of ", h("b", null, line(pause.principal)), " are paused after three rejections", ", ", ago(pause.since), "."),
    act("Resume", {}, async () => {
      await post(`/pauses/${encodeURIComponent(pause.principal)}/resume`);
      notice("good", "Resumed writes of ", line(pause.principal));
      await reload();
    })));
}

/** The view. */
export async function view(shell) {
  const [pauses, list, recent, proposals, troubles] = [h("div"), h("div", { class: "inbox" }), h("section", { class: "recent" }), h("div"), h("div")];
  const node = h("div", { class: "page" }, head("Inbox", "Plans that wait for your approval"), troubles, pauses, list, proposals, recent);
  let before = null;

  const draw = () => {
    const focused = document.activeElement?.dataset?.plan;
    const all = waiting();
    if (!isLoaded()) return;
    put(list, all.length === 0 ? teach() : groups(all).map(group));
    if (focused) list.querySelector(`[data-plan="${CSS.escape(focused)}"]`)?.focus();
    if (before !== null) {
      const fresh = all.filter((plan) => !before.has(plan.plan_id));
      if (fresh.length > 0) announce(fresh.length === 1 ? `New plan: ${plain(fresh[0].tool)}, ${fresh[0].effect}` : `${fresh.length} new plans`);
    }
    before = new Set(all.map((plan) => plan.plan_id));
  };
  const drawRecent = async () => {
    const { plans } = await get("/plans", { limit: 40 });
    const done = plans.filter((plan) => plan.state !== "pending").slice(0, 12);
    if (done.length === 0) return put(recent);
    put(recent, h("h2", null, "Recent"), h("ul", { class: "recent-plans" }, done.map((plan) => h("li", null,
      h("a", { href: `/plans/${encodeURIComponent(plan.plan_id)}` }, state(plan.state), toolName(plan.tool), h("span", { class: "sum" }, summary(plan)), h("span", { class: "dim" }, ago(plan.ended_at ?? plan.decided_at ?? plan.created_at)))))));
  };
  const drawPauses = async () => {
    const { pauses: all } = await get("/pauses");
    put(pauses, pausesOf(all ?? [], drawPauses));
  };
  const quietly = async (job) => {
    try {
      await job();
    } catch (error) {
      if (error.code === undefined) throw error;
      if (error.status !== 404) showTrouble(troubles, error);
    }
  };
  const end = watch(draw);
  const rows = () => [...list.querySelectorAll(".plan-row")];
  const move = (by) => {
    const all = rows();
    if (all.length === 0) return;
    const at = all.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest" });
  };
  const open = (what) => {
    const chosen = rows().includes(document.activeElement) ? document.activeElement : rows()[0];
    if (chosen) shell.go(`${chosen.getAttribute("href")}#${what}`);
  };
  list.addEventListener("ended", (event) => {
    const id = event.target.closest("[data-plan]")?.dataset.plan;
    if (id) setTimeout(() => forget(id), 1500);
  });
  const drawProposals = () => quietly(() => memory.proposals(proposals));
  const later = async () => {
    await quietly(refresh);
    draw();
    await Promise.all([quietly(drawRecent), quietly(drawPauses), drawProposals()]);
  };
  await later();
  return {
    title: "Inbox",
    node,
    heard: (kind) => {
      if (kind.startsWith("plan")) quietly(drawRecent);
      if (kind.startsWith("plan") || kind.startsWith("pause")) quietly(drawPauses);
      if (kind.startsWith("memory")) drawProposals();
    },
    keys: { j: () => move(1), k: () => move(-1), a: () => open("approve"), r: () => open("reject") },
    leave: end,
  };
}
