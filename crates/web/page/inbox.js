// Everything that waits for a person, live: plans to decide in their rows, similar ones folded into groups; withheld tools and
// failing upstreams. What needs a closer look or a typed name leads to the plan's own page.
import { get, post } from "./api.js";
import { typeLabel } from "./decide.js";
import { bundle, h, put } from "./dom.js";
import * as memory from "./memory.js";
import { act, announce, command, effect, empty, field, head, hostName, notice, select, showTrouble, state, toolName, trouble } from "./parts.js";
import { forget, groups, isLoaded, refresh, waiting, watch } from "./pending.js";
import { hasPreview, preview, replacements } from "./preview.js";
import { hiddenIn, line, plain, plural } from "./safe.js";
import { ago, left } from "./time.js";
import { brief, compact, same, table } from "./value.js";
import { CONFIRM_LABELS, EFFECTS } from "./vocabulary.js";

const pathOf = (plan) => `/plans/${encodeURIComponent(plan.plan_id)}`;
/** A row that has just moved takes no click: it may not be the one the person saw. */
const SETTLED = 400;
/** How long a decided row stays where it is, so that a second click does not hit the next one. */
const STAYS = 2000;
const SORTS = [["deadline", "next deadline"], ["newest", "newest"], ["agent", "agent"], ["tool", "tool"]];
const ORDER = {
  deadline: (one, other) => Date.parse(one.expires_at) - Date.parse(other.expires_at),
  newest: (one, other) => Date.parse(other.created_at) - Date.parse(one.created_at),
  agent: (one, other) => one.principal.localeCompare(other.principal),
  tool: (one, other) => one.tool.localeCompare(other.tool),
};

/** What a plan is asked for, on one line. */
export function summary(plan) {
  const steps = plan.steps ?? [];
  if (steps.length > 0) return brief(steps.map((step) => step.title).join("; "), 140);
  const members = Object.entries(plan.arguments ?? {}).filter(([name]) => !(plan.defaults ?? []).includes(name));
  if (members.length === 0) return h("span", { class: "dim" }, "no arguments");
  const shown = members.slice(0, 4).map(([name, value]) => h("span", { class: "pair" }, h("span", { class: "key" }, brief(name, 32)), " ", brief(value, 48)));
  return bundle(shown, members.length > 4 ? h("span", { class: "dim" }, `and ${members.length - 4} more`) : null);
}

/** The change of a plan inside its row, before it is approved there. */
function closeLook(plan) {
  if (hasPreview(plan.preview)) return preview(plan.preview, "h3");
  return bundle(replacements(plan.arguments) ?? table(plan.arguments ?? {}, "Arguments"), preview(plan.preview, "h3"));
}

/** The names of arguments in which plans differ. */
export function differing(plans) {
  const names = [...new Set(plans.flatMap((plan) => Object.keys(plan.arguments ?? {})))];
  const value = (plan, name) => (Object.hasOwn(plan.arguments ?? {}, name) ? plan.arguments[name] : undefined);
  return names.filter((name) => plans.some((plan) => !same(value(plan, name) ?? null, value(plans[0], name) ?? null) || (value(plan, name) === undefined) !== (value(plans[0], name) === undefined)));
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

/** Withheld tools and upstreams that are down: agents can't use them until a person looks. */
async function needsCare() {
  const [{ tools }, { upstreams }] = await Promise.all([get("/tools"), get("/upstreams")]);
  const down = upstreams.filter((one) => one.state === "down").map((one) => h("div", { class: "banner bad care" },
    h("span", null, "Upstream ", h("b", null, line(one.name)), " is down", one.why ? bundle(": ", brief(one.why, 160)) : "."), h("a", { class: "button", href: "/upstreams" }, "Look")));
  const waits = tools.filter((tool) => tool.pin !== "accepted");
  if (waits.length === 0) return down;
  const names = waits.slice(0, 3).map((tool, at) => bundle(at > 0 ? ", " : "", h("a", { href: `/tools/${encodeURIComponent(tool.name)}` }, toolName(tool.name))));
  const to = waits.length === 1 ? `/tools/${encodeURIComponent(waits[0].name)}` : `/tools?pin=${encodeURIComponent(waits[0].pin)}`;
  return [...down, h("div", { class: "banner warn care" },
    h("span", null, h("b", null, `${plural(waits.length, "tool")} withheld`), " until you accept: ", names, waits.length > 3 ? ` and ${waits.length - 3} more` : "", "."), h("a", { class: "button", href: to }, "Review"))];
}

/** Decides one plan from its row. */
async function decide(plan, word, done) {
  const shown = { plan_hash: plan.plan_hash };
  const sent = word === "approve" ? { ...shown, expires_at: plan.expires_at, run: !plan.call_waits_until } : shown;
  try {
    const answer = await post(`${pathOf(plan)}/${word}`, sent);
    if (answer?.run_error) notice("bad", "It is approved, but it did not run: ", line(answer.run_error.message ?? ""));
    announce(`${word === "approve" ? "Approved" : "Rejected"}: ${plain(plan.title)}`);
    done(answer?.state ?? (word === "approve" ? "approved" : "rejected"));
  } catch (error) {
    if (error.code === undefined) throw error;
    notice("bad", h("b", null, word === "approve" ? "Not approved: " : "Not rejected: ", line(plan.title)), trouble(error));
    done(null);
    refresh().catch(() => {});
  }
}

/** The rows of plans. Keeps which were decided here, which are open for a closer look, and whether they have just moved. */
class PlanRows {
  constructor() {
    this.decided = new Map();
    this.deciding = new Set();
    this.looking = new Set();
    this.open = new Set();
    this.isMoving = false;
  }

  /** Whether rows must stay where they are: one is being decided, or has just been. */
  isHeldStill() {
    return this.decided.size > 0 || this.deciding.size > 0;
  }

  /** The plans with those that were decided here a moment ago. */
  withDecided(plans) {
    const gone = [...this.decided.values()].map(({ plan }) => plan).filter((plan) => !plans.some((one) => one.plan_id === plan.plan_id));
    return gone.length === 0 ? plans : [...plans, ...gone].sort(ORDER.deadline);
  }

  buttons(plan, redraw) {
    const over = this.decided.get(plan.plan_id);
    if (over !== undefined) return h("span", { class: "row-acts" }, state(over.word));
    const done = (word) => {
      this.deciding.delete(plan.plan_id);
      if (word !== null) {
        this.decided.set(plan.plan_id, { word, plan });
        setTimeout(() => { this.decided.delete(plan.plan_id); forget(plan.plan_id); }, STAYS);
      }
      this.looking.delete(plan.plan_id);
      redraw();
    };
    const go = (word) => (event) => {
      if (this.isMoving) return notice("", "The list has just changed: look again.");
      for (const button of event.target.closest(".row-acts").querySelectorAll("button")) button.disabled = true;
      this.deciding.add(plan.plan_id);
      decide(plan, word, done);
    };
    const label = plan.call_waits_until ? "Approve" : "Approve and run";
    const named = (word) => ({ "aria-label": `${word}: ${plain(plan.title)}` });
    const isBlocked = (plan.blocks ?? []).length > 0;
    const isTyped = plan.confirm?.kind === "type";
    const mustLook = plan.confirm?.kind === "preview" || (plan.steps ?? []).length > 0;
    const no = h("button", { type: "button", ...named("Reject"), on: { click: go("reject") } }, "Reject");
    if (isBlocked) return h("span", { class: "row-acts" }, no);
    if (isTyped) return h("span", { class: "row-acts" }, no, h("a", { class: "button", href: `${pathOf(plan)}#approve`, ...named("Type to approve") }, "Type…"));
    const isOpen = this.looking.has(plan.plan_id);
    if (mustLook && !isOpen) return h("span", { class: "row-acts" }, no, h("button", { type: "button", ...named("Review"), "aria-expanded": "false", on: { click: () => { this.looking.add(plan.plan_id); redraw(); } } }, "Review"));
    return h("span", { class: "row-acts" }, no, h("button", { type: "button", class: plan.effect === "destructive" ? "primary danger" : "primary", ...named(label), on: { click: go("approve") } }, label));
  }

  row(plan, redraw) {
    const hidden = hiddenIn(compact(plan.arguments ?? {}));
    const host = hostName(plan.host);
    const isOpen = this.looking.has(plan.plan_id);
    const link = h("a", { class: "plan-row", href: pathOf(plan), data: { plan: plan.plan_id, effect: plan.effect } },
      h("span", { class: "when" }, left(plan.expires_at)),
      h("span", { class: "what" }, h("span", { class: "top" }, h("b", { class: "plan-name" }, line(plan.title)), effect(plan.effect), hidden > 0 ? h("span", { class: "badge warn" }, "hidden characters") : null),
        h("span", { class: "sum" }, h("span", { class: "pair" }, toolName(plan.tool)), summary(plan)),
        plan.intent?.reason ? h("span", { class: "why" }, "“", brief(plan.intent.reason, 140), "”") : null),
      h("span", { class: "who" }, h("span", null, brief(plan.principal, 28)), host === null ? null : h("span", { class: "dim" }, brief(host, 34)), h("span", { class: "dim" }, plan.confirm?.kind === "type" ? typeLabel(plan) : CONFIRM_LABELS[plan.confirm?.kind])));
    return h("div", { class: "plan-line", data: { of: plan.plan_id } }, link, this.buttons(plan, redraw), isOpen ? h("div", { class: "look" }, closeLook(plan)) : null);
  }

  group(plans, redraw) {
    if (plans.length === 1) return this.row(plans[0], redraw);
    const key = JSON.stringify([plans[0].tool, plans[0].principal]);
    const names = differing(plans);
    const differ = names.length === 0 ? "the same arguments" : bundle("they differ in ", names.slice(0, 5).map((name, at) => bundle(at > 0 ? ", " : "", h("code", null, brief(name, 28)))), names.length > 5 ? ` and ${names.length - 5} more` : "");
    const isOpen = this.open.has(key);
    const toggle = h("button", { type: "button", class: "quiet", "aria-expanded": String(isOpen), on: { click: () => {
      if (isOpen) this.open.delete(key);
      else this.open.add(key);
      redraw();
    } } }, isOpen ? "Hide them" : "Show them");
    return h("section", { class: "group", "aria-label": `${plans.length} similar plans` },
      h("div", { class: "group-head" }, h("span", null, h("b", null, `${plans.length} similar plans`), " ", toolName(plans[0].tool), " by ", h("b", null, brief(plans[0].principal, 28)), "; ", differ),
        h("span", { class: "row" }, h("span", { class: "dim" }, "next expires in ", left(plans[0].expires_at)), toggle, h("a", { class: "button", href: `/together?plan=${encodeURIComponent(plans[0].plan_id)}` }, "Decide together"))),
      isOpen ? plans.map((plan) => this.row(plan, redraw)) : null);
  }
}

/** The fields that narrow and order the list. */
function listForm(changed) {
  const q = h("input", { type: "search", name: "q", placeholder: "title, tool, agent, reason, arguments", autocomplete: "off" });
  const kind = select("effect", EFFECTS, "", "any");
  const agent = h("select", { name: "agent" }, h("option", { value: "" }, "any"));
  const sort = h("select", { name: "sort" }, SORTS.map(([value, label]) => h("option", { value }, label)));
  const node = h("form", { class: "filters inbox-filters", role: "search", "aria-label": "Filter plans", hidden: true, on: { submit: (event) => event.preventDefault(), input: changed } },
    h("div", { class: "fields" }, field("Search", q), field("Effect", kind), field("Agent", agent), field("Sort by", sort)));
  const fits = (plan) => {
    const said = q.value.trim().toLowerCase();
    const text = () => [plan.title, plan.tool, plan.principal, plan.intent?.reason ?? "", compact(plan.arguments ?? {})].join("\n").toLowerCase();
    return (kind.value === "" || plan.effect === kind.value) && (agent.value === "" || plan.principal === agent.value) && (said === "" || text().includes(said));
  };
  const pick = (all) => {
    const names = [...new Set(all.map((plan) => plan.principal))].sort();
    const known = [...agent.options].slice(1).map((one) => one.value);
    if (names.join("\n") !== known.join("\n")) {
      const was = agent.value;
      agent.replaceChildren(h("option", { value: "" }, "any"), ...names.map((name) => h("option", { value: name }, plain(name))));
      agent.value = names.includes(was) ? was : "";
    }
    node.hidden = all.length < 4;
    return node.hidden ? all : all.filter(fits).sort(ORDER[sort.value]);
  };
  return { node, pick, focus: () => q.focus() };
}

/** The view. */
export async function view(shell) {
  const [pauses, care, list, recent, proposals, troubles] = [h("div"), h("div"), h("div", { class: "inbox" }), h("section", { class: "recent" }), h("div"), h("div")];
  const rows_ = new PlanRows();
  const form = listForm(() => draw());
  const node = h("div", { class: "page" }, head("Inbox", "What waits for you"), troubles, pauses, form.node, list, care, proposals, recent);
  let before = null;
  let order = "";
  let settling;

  /** Rows changed places: for a moment a click may mean another one. */
  const moved = () => {
    clearTimeout(settling);
    const set = (is) => {
      rows_.isMoving = is;
      list.classList.toggle("moving", is);
    };
    set(true);
    settling = setTimeout(() => set(false), SETTLED);
  };

  /** `isNews`: something happened elsewhere, and rows may have moved without the person's doing. */
  const draw = (isNews = false) => {
    const focused = document.activeElement?.dataset?.plan;
    const all = rows_.withDecided(waiting());
    if (!isLoaded()) return;
    const shown = form.pick(all);
    put(list, all.length === 0 ? teach() : shown.length === 0 ? empty("No plan matches", "Try fewer words.") : groups(shown).map((plans) => rows_.group(plans, () => draw())));
    const now = shown.map((plan) => plan.plan_id).join();
    // A plan that comes last moves nothing.
    if (isNews && !now.startsWith(order)) moved();
    order = now;
    if (focused) list.querySelector(`[data-plan="${CSS.escape(focused)}"]`)?.focus();
    if (before !== null) {
      const fresh = all.filter((plan) => !before.has(plan.plan_id));
      if (fresh.length > 0) announce(fresh.length === 1 ? `New plan: ${plain(fresh[0].title)}, ${plain(fresh[0].tool)}, ${fresh[0].effect}` : `${fresh.length} new plans`);
    }
    before = new Set(all.map((plan) => plan.plan_id));
  };
  const drawRecent = async () => {
    const { plans } = await get("/plans", { limit: 40 });
    const done = plans.filter((plan) => plan.state !== "pending").slice(0, 12);
    if (done.length === 0) return put(recent);
    put(recent, h("h2", null, "Recent"), h("ul", { class: "recent-plans" }, done.map((plan) => h("li", null,
      h("a", { href: pathOf(plan) }, state(plan.state), h("span", { class: "plan-name" }, line(plan.title)), h("span", { class: "sum" }, toolName(plan.tool), " ", brief(plan.principal, 28)), h("span", { class: "dim" }, ago(plan.ended_at ?? plan.decided_at ?? plan.created_at)))))));
  };
  const drawPauses = async () => {
    const { pauses: all } = await get("/pauses");
    put(pauses, pausesOf(all ?? [], drawPauses));
  };
  const drawCare = async () => put(care, await needsCare());
  const quietly = async (job) => {
    try {
      await job();
    } catch (error) {
      if (error.code === undefined) throw error;
      if (error.status !== 404) showTrouble(troubles, error);
    }
  };
  const end = watch(() => !rows_.isHeldStill() && draw(true));
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
    await Promise.all([quietly(drawRecent), quietly(drawPauses), quietly(drawCare), drawProposals()]);
  };
  await later();
  return {
    title: "Inbox",
    node,
    heard: (kind) => {
      if (kind.startsWith("plan")) quietly(drawRecent);
      if (kind.startsWith("plan") || kind.startsWith("pause")) quietly(drawPauses);
      if (kind.startsWith("tool") || kind.startsWith("upstream")) quietly(drawCare);
      if (kind.startsWith("memory")) drawProposals();
    },
    keys: { j: () => move(1), k: () => move(-1), a: () => open("approve"), r: () => open("reject"), "/": () => form.focus() },
    leave: end,
  };
}
