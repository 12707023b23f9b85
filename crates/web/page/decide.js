// The decision panel of one plan: typed confirmation, approve (and run where the agent no longer waits), reject, note, grant. Sends what the person did,
// with the hash and expiry that were shown. The gateway decides whether it counts.
import { post } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { announce, facts, field, notice, reportErrors, select, showTrouble, state, toolName, trouble } from "./parts.js";
import { forget } from "./pending.js";
import { line, plain } from "./safe.js";
import { full, left } from "./time.js";
import { brief, compact, isRedacted } from "./value.js";
import { MOST_GRANT_USES, PLAN_SENTENCES } from "./vocabulary.js";

const SPANS = [["15m", "15 minutes"], ["1h", "1 hour"], ["8h", "8 hours"], ["1d", "1 day"], ["7d", "7 days"]];

/** The panel of a plan that is decided or over. */
function over(plan, next) {
  const how = plan.approval;
  return h("div", { class: "over" }, h("p", null, state(plan.state)), h("p", null, PLAN_SENTENCES[plan.state] ?? ""),
    facts([["by", how?.by ? line(how.by) : null], ["over", how?.rail ? `${how.rail}, strength ${how.strength}` : null], ["at", how?.at || plan.decided_at ? full(how?.at ?? plan.decided_at) : null], ["note", how?.note || plan.note ? line(how?.note ?? plan.note) : null]]),
    next === null ? h("a", { class: "button next", href: "/" }, "Back to the inbox") : h("a", { class: "button next", href: `/plans/${encodeURIComponent(next)}`, "aria-keyshortcuts": "j" }, "Next plan"));
}

/** The part of the form that grants later calls. */
function grantForm(plan) {
  const names = Object.keys(plan.arguments ?? {});
  const choices = new Map(names.map((name) => [name, select("", ["exact", "any"], "exact")]));
  for (const [name, choice] of choices) {
    choice.setAttribute("aria-label", `${plain(name)}: exactly this value, or any`);
    choice.replaceChildren(h("option", { value: "exact" }, "exactly this"), h("option", { value: "any" }, "any value"));
  }
  const uses = h("input", { type: "number", min: 1, max: MOST_GRANT_USES, value: "5", inputmode: "numeric", required: true });
  const until = h("select", null, SPANS.map(([value, label]) => h("option", { value, selected: value === "1h" }, label)));
  const rows = names.map((name) => h("div", { class: "grant-row" }, h("span", { class: "key" }, brief(name, 40)), h("span", { class: "dim" }, brief(plan.arguments[name], 40)), choices.get(name)));
  const body = h("div", { class: "grant-body", hidden: true },
    h("p", { class: "hint" }, "Later calls of ", toolName(plan.tool), " by ", h("b", null, line(plan.principal)), " that match run without asking. Each use is recorded. You can revoke the grant."),
    names.length === 0 ? h("p", { class: "hint" }, "Only calls without any arguments match.") : h("div", { class: "grant-rows" }, rows),
    h("div", { class: "two" }, field("Uses", uses), field("For", until)));
  const box = h("input", { type: "checkbox" });
  const node = h("div", { class: "grant-form" }, h("label", { class: "check" }, box, "Also allow later calls like this"), body);
  box.addEventListener("change", () => (body.hidden = !box.checked));
  const read = () => {
    if (!box.checked) return undefined;
    const terms = { uses: Number(uses.value), expires_in: until.value };
    const all = [...choices];
    // The gateway has the plan's own values in full, also those that are redacted on this page.
    if (all.every(([, choice]) => choice.value === "exact")) return terms;
    const hidden = all.filter(([name, choice]) => choice.value === "exact" && isRedacted(compact(plan.arguments[name]))).map(([name]) => name);
    if (hidden.length > 0) throw refusal(hidden, plan);
    const argument = ([name, choice]) => [name, choice.value === "any" ? { any: true } : plan.arguments[name]];
    return { ...terms, arguments: Object.fromEntries(all.map(argument)) };
  };
  return { node, read, isAsked: () => box.checked };
}

/** A redacted value can't be sent back. */
function refusal(hidden, plan) {
  const message = `the value of \`${plain(hidden[0])}\` is redacted on this page: grant exactly this call, or use the command line`;
  return Object.assign(new Error(message), { code: "E_GRANT_FORBIDDEN", details: { next_actions: [`countersign approve ${plan.plan_id} --grant --any NAME`] } });
}

/** The panel. `around`: `removed` steps, the `folds` line, `reload`, and which plan comes `after`. */
export function decision(plan, around) {
  if (plan.state !== "pending") return { node: over(plan, around.after()), approve() {}, reject() {} };
  const blocked = (plan.blocks ?? []).length > 0;
  const typed = plan.confirm?.kind === "type" && !blocked;
  const several = (plan.steps ?? []).length > 0;
  const [troubles, aboutSteps] = [h("div"), h("div")];
  const text = h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", name: "confirm_text", maxlength: 2000 });
  const note = h("textarea", { rows: 2, maxlength: 4000, name: "note" });
  const grant = typed || several || blocked ? null : grantForm(plan);
  const yes = h("button", { type: "submit", class: plan.effect === "destructive" ? "primary danger" : "primary", "aria-keyshortcuts": "a" });
  const later = h("button", { type: "button" }, "Approve without running");
  const no = h("button", { type: "button", class: "no", "aria-keyshortcuts": "r" }, "Reject");
  const means = h("p", { class: "hint means" });
  const all = [yes, later, no];
  let sending = false;
  let isHeld = false;
  /** Whether the agent's call is held open decides what an approval does, and the button says it. */
  const held = (now) => {
    isHeld = now === true;
    yes.textContent = isHeld ? "Approve" : "Approve and run";
    put(means, blocked ? null : isHeld ? "The agent waits: its own call runs and returns the result." : "The agent no longer waits: this runs it now, exactly as shown, and the agent finds the result.");
    later.hidden = isHeld;
  };

  const ready = () => {
    const waits = blocked || sending || (typed && text.value === "") || around.removed.size > 0;
    yes.disabled = waits;
    later.disabled = waits;
    no.disabled = sending;
  };
  const send = async (work, said) => {
    if (sending) return;
    sending = true;
    ready();
    all.forEach((button) => button.setAttribute("aria-busy", "true"));
    showTrouble(troubles, null);
    try {
      const answer = await work();
      forget(plan.plan_id);
      announce(`${said}: ${plain(plan.title)}`);
      if (answer?.run_error) notice("bad", "It is approved, but it did not run: ", line(answer.run_error.message ?? ""));
      notice(said === "Rejected" ? "" : "good", `${said}: `, line(plan.title), answer?.grant?.grant_id ? bundle(", with the grant ", h("a", { href: "/grants" }, line(answer.grant.grant_id))) : null);
      // Stay on this page: the second click of a double click must not hit the next plan's button.
      await around.reload();
      document.querySelector(".decide .next")?.focus();
    } catch (error) {
      if (error.code === undefined) throw error;
      showTrouble(troubles, error);
      // On a phone the panel may be out of sight.
      if (error.status === 0) notice("bad", h("b", null, `Not ${said.toLowerCase()}: `), "it could not be sent, or its answer was lost. The page shows what counts as soon as the gateway is back.");
      if (typed && text.value !== "") text.select();
      await around.reload().catch(() => {});
      // Somebody else decided first: the panel now shows that decision, so the error goes into a notice.
      if (!form.isConnected) notice("bad", trouble(error));
    } finally {
      sending = false;
      all.forEach((button) => button.removeAttribute("aria-busy"));
      ready();
    }
  };
  const written = () => (note.value.trim() === "" ? {} : { note: note.value.trim() });
  const body = (more) => {
    const said = { ...more, plan_hash: plan.plan_hash, expires_at: plan.expires_at };
    if (typed) said.confirm_text = text.value;
    const ahead = grant?.read();
    if (ahead !== undefined) said.grant = ahead;
    return { ...said, ...written() };
  };
  const at = (word) => `/plans/${encodeURIComponent(plan.plan_id)}/${word}`;
  const form = h("form", { autocomplete: "off", on: { submit: (event) => {
    event.preventDefault();
    if (!yes.disabled) send(() => post(at("approve"), body(isHeld ? {} : { run: true })), grant?.isAsked() ? "Granted" : "Approved");
  } } },
    h("p", { class: "clock" }, left(plan.expires_at), h("progress", { max: Date.parse(plan.expires_at) - Date.parse(plan.created_at), value: Date.parse(plan.expires_at) - Date.parse(plan.created_at), data: { ends: plan.expires_at }, "aria-label": "Time left" })),
    around.folds,
    aboutSteps,
    typed ? field(typeLabel(plan), text, "The whole value, with case and spaces. This tool requires it so that nobody approves by habit.") : null,
    troubles,
    blocked ? h("p", { class: "banner bad" }, "The preview blocks this change: nobody can approve it. Nothing has changed.") : null,
    h("div", { class: "buttons" }, no, blocked ? null : yes),
    means,
    field("Note", note, "Recorded with the decision. The agent reads it when you reject."),
    blocked ? null : h("details", { class: "other-ways" }, h("summary", null, "Other ways to approve"), grant?.node, later),
    h("p", { class: "hint keys" }, blocked ? null : [h("kbd", null, "a"), " approve "], h("kbd", null, "r"), " reject ", h("kbd", null, "j"), h("kbd", null, "k"), " next, previous"));
  held(Boolean(plan.call_waits_until));
  later.addEventListener("click", () => send(() => post(at("approve"), body({})), "Approved"));
  no.addEventListener("click", () => send(() => post(at("reject"), { plan_hash: plan.plan_hash, ...written() }), "Rejected"));
  text.addEventListener("input", ready);
  note.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) no.click();
  });
  ready();

  /** Removes the unticked steps. The rest is the plan to decide on, under another hash. */
  const takeOut = async () => {
    const gone = [...around.removed].map((number) => number + 1);
    showTrouble(troubles, null);
    await reportErrors(troubles, async () => {
      await post(at("steps"), { remove: gone, plan_hash: plan.plan_hash });
      const said = gone.length === 1 ? "1 step removed" : `${gone.length} steps removed`;
      notice("good", said);
      announce(said);
    });
    await around.reload();
  };
  const stepsChanged = () => {
    const count = around.removed.size;
    const leave = plan.steps.length - count;
    const words = leave === 0 ? "No step would be left: reject the plan instead." : `${count} of ${plan.steps.length} steps to remove. The rest becomes the plan you decide on, and the agent is told.`;
    const go = leave === 0 ? null : h("button", { type: "button", on: { click: takeOut } }, count === 1 ? "Remove it" : "Remove them");
    put(aboutSteps, count === 0 ? null : h("div", { class: "banner" }, h("p", null, words), go));
    ready();
  };
  return {
    node: form,
    held,
    stepsChanged,
    approve: () => {
      if (blocked) return announce("The preview blocks this change: nobody can approve it");
      const target = typed ? text : yes;
      target.scrollIntoView({ block: "nearest" });
      target.focus();
      announce(typed ? "Type to approve" : `Press Enter to ${isHeld ? "approve" : "approve and run"}`);
    },
    reject: () => {
      note.scrollIntoView({ block: "nearest" });
      no.focus();
      announce("Press Enter to reject");
    },
  };
}

const LONGEST_EXCERPT = 40;

/** What has to be typed, in words: `Type the destination of step 2: …/cart.js`. Steps count from 1, as on the page. */
export function typeLabel(plan) {
  const name = plan.confirm?.type_field;
  if (name === undefined || name === null) return "Type the name of the resource";
  if (name === "tool") return bundle("Type the name of the tool: ", h("code", null, line(plan.tool)));
  const step = /^steps\.(\d+)\.(.+)$/s.exec(name);
  const args = step === null ? plan.arguments : plan.steps?.[Number(step[1])]?.arguments;
  const [field, where] = step === null ? [name, ""] : [step[2], ` of step ${Number(step[1]) + 1}`];
  const value = args?.[field];
  const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
  const shown = text !== "" && !isRedacted(text);
  return bundle(`Type the ${plain(field).replaceAll("_", " ")}${where}`, shown ? bundle(": ", h("code", null, line(ending(text)))) : null);
}

/** The end of a long text, cut before a name of a path where there is one. */
function ending(text) {
  if (text.length <= LONGEST_EXCERPT) return text;
  const tail = text.slice(-LONGEST_EXCERPT);
  const at = tail.indexOf("/");
  return `…${at < 0 ? tail.replace(/^[\udc00-\udfff]/, "") : tail.slice(at)}`;
}
