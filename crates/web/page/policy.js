// The rules in force, an explanation of one call, and a simulation of other rules on past calls. Changes nothing: rules are
// edited in their file.
import { get, post } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { cells, effect, empty, field, grid, head, reportErrors, select, toolName } from "./parts.js";
import { line, plural } from "./safe.js";
import { ago } from "./time.js";
import { brief, parse, value } from "./value.js";
import { CALL_ROUTES, MODES, ROLES, TONES, VERDICTS } from "./vocabulary.js";

function verdict(word) {
  return h("span", { class: `badge ${TONES[word] ?? ""}` }, VERDICTS[word] ?? String(word));
}

function ruleCard(rule, at) {
  const from = { tool: "declared by a command tool", "built in": "built in" }[rule.origin];
  return h("li", { class: "rule" },
    h("span", { class: "number" }, at + 1),
    h("div", null,
      h("p", null, rule.match.map((one, n) => bundle(n > 0 ? ", " : "", h("code", { class: "match" }, line(one)))), rule.when ? bundle(" when ", h("code", null, line(rule.when))) : null),
      h("p", { class: "sets" }, Object.entries(rule.says).map(([name, of]) => h("span", { class: "pair" }, h("span", { class: "key" }, line(name)), " ", value(of)))),
      h("p", { class: "dim" }, h("span", { class: "mono" }, line(rule.name)), from ? `, ${from}` : "")));
}

function explained(of) {
  const columns = ["Field", "Value", "Decided by"];
  const modes = Object.entries(of.modes ?? {});
  return h("div", { class: "explained", role: "status" },
    h("p", { class: "verdict" }, toolName(of.tool), " in ", h("b", null, of.mode), " mode ", verdict(of.verdict), effect(of.effect)),
    of.message ? h("p", null, of.code ? bundle(h("code", { class: "code" }, line(of.code)), " ") : null, line(of.message)) : null,
    of.rule ? h("p", { class: "dim" }, "because of ", h("code", null, line(of.rule))) : null,
    (of.warnings ?? []).map((one) => h("div", { class: "banner warn" }, line(one))),
    grid("Which rule decided each field", columns, (of.decided ?? []).map((one) => cells(columns, [line(one.field), value(one.value), one.rule ? h("code", null, line(one.rule)) : h("span", { class: "dim" }, line(one.because ?? ""))]))),
    modes.length > 0 ? h("dl", { class: "facts" }, modes.map(([mode, said]) => [h("dt", null, `in ${mode} mode`), h("dd", null, verdict(said.verdict), said.code ? bundle(" ", h("code", { class: "code" }, line(said.code))) : null)])) : null);
}

/** Reads a pasted call in any form that agents write; null if it is none. */
export function readCall(text) {
  const of = parse(text);
  const call = of?.params ?? of;
  const inner = call?.arguments ?? call;
  const isOurs = typeof inner?.name === "string" && inner.name.includes(":");
  if (isOurs) {
    const variant = CALL_ROUTES.find((word) => call.name === `call_tool_${word}`);
    const args = inner.args ?? (typeof inner.args_json === "string" ? parse(inner.args_json) : {});
    return { tool: inner.name, args, mode: inner.mode, variant, reason: inner.intent?.reason ?? inner.intent_reason, sensitivity: inner.intent?.data_sensitivity ?? inner.intent_data_sensitivity };
  }
  if (typeof call?.name === "string" && call.name.includes("__")) return { tool: call.name.replace("__", ":"), args: call.arguments ?? {} };
  if (typeof of?.tool === "string") return { tool: of.tool, args: of.args ?? of.arguments ?? {}, mode: of.mode };
  return null;
}

function whatIf(filters) {
  const [answer, troubles] = [h("div"), h("div")];
  const tool = h("input", { type: "text", name: "tool", required: true, value: filters.get("tool") ?? "", placeholder: "github:delete_repo", autocomplete: "off", spellcheck: "false" });
  const args = h("textarea", { name: "args", rows: 4, class: "mono", spellcheck: "false", placeholder: '{"repo": "acme/site"}' });
  const mode = select("mode", MODES, MODES.at(-1));
  const role = select("role", ROLES, "agent");
  const variant = select("variant", CALL_ROUTES, "", "the one that suits the tool");
  const take = () => {
    let call = null;
    try {
      call = readCall(args.value);
    } catch {
      // Not JSON yet.
    }
    if (call === null) return;
    tool.value = call.tool;
    args.value = JSON.stringify(call.args ?? {}, null, 2);
    if (call.mode) mode.value = call.mode;
    if (call.variant) variant.value = call.variant;
  };
  args.addEventListener("paste", () => setTimeout(take));
  const form = h("form", { class: "card", on: { submit: async (event) => {
    event.preventDefault();
    take();
    const asked = { tool: tool.value.trim(), mode: mode.value, role: role.value };
    if (variant.value !== "") asked.variant = variant.value;
    const done = await reportErrors(troubles, async () => {
      if (args.value.trim() !== "") asked.args = readObject(args.value);
      const said = await post("/policy/explain", asked);
      put(answer, explained(said.explained));
    });
    if (!done) put(answer);
  } } },
    h("h2", null, "What if?"), h("p", { class: "about" }, "Paste or write a call to see which rules match and what would happen. Nothing is called."),
    h("div", { class: "fields" }, field("Tool", tool), field("Mode", mode), field("Role", role), field("Through", variant)), field("Arguments, or a whole call as an agent writes it", args), troubles, h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Explain")), answer);
  return form;
}

function readObject(text) {
  try {
    const of = parse(text);
    if (of !== null && typeof of === "object" && !Array.isArray(of)) return of;
  } catch {
    // Reported below.
  }
  throw Object.assign(new Error("the arguments must be a JSON object"), { code: "E_ARGUMENTS_INVALID", details: { next_actions: ['{"name": "value"}'] } });
}

function simulate() {
  const [answer, troubles] = [h("div"), h("div")];
  const rules = h("textarea", { name: "rules", rows: 7, class: "mono", spellcheck: "false", required: true, placeholder: '[[rules]]\nmatch = "github:*"\nstrength = "human"' });
  const since = select("since", ["1d", "7d", "30d"], "7d");
  const needs = (of) => [of.effect, of.confirm ? `confirm ${of.confirm}` : null, of.strength ? `strength ${of.strength}` : null].filter(Boolean).join(", ");
  const side = (of) => bundle(verdict(of.verdict), of.code ? bundle(" ", h("code", { class: "code" }, line(of.code))) : null, h("div", { class: "dim" }, needs(of)), of.rule ? h("div", { class: "dim mono" }, line(of.rule)) : null, of.message ? h("div", { class: "dim" }, line(of.message)) : null);
  const call = (one) => bundle(toolName(one.tool), h("div", { class: "dim" }, brief(one.arguments, 80)));
  const when = (one) => h("a", { href: `/activity/${encodeURIComponent(one.ledger_id)}` }, ago(one.time));
  const blind = (some) => (some.length === 0 ? null : h("details", null, h("summary", null, `${plural(some.length, "call")} can't be simulated: a rule reads an argument that was redacted in the audit log`),
    grid("Calls that can't be simulated", ["When", "Call", "Rule", "Redacted"], some.map((one) => cells(["When", "Call", "Rule", "Redacted"], [when(one), call(one), h("code", null, line(one.rule)), line(one.redacted.join(", "))])))));
  return h("form", { class: "card", on: { submit: async (event) => {
    event.preventDefault();
    const done = await reportErrors(troubles, async () => {
      const said = await post("/policy/simulate", { rules: rules.value, since: since.value });
      const changed = said.changes;
      const columns = ["When", "Call", "Who", "Then", "With these rules"];
      put(answer, h("div", { role: "status" },
        h("p", { class: "verdict" }, changed.length === 0 ? "No decision would change" : `${plural(changed.length, "decision")} would change`, h("span", { class: "dim" }, ` of ${plural(said.calls, "call")}`, said.left_out > 0 ? `; ${said.left_out} were not decided by rules` : "")),
        changed.length === 0 ? null : grid("Decisions that would change", columns, changed.map((one) => cells(columns, [when(one), call(one), line(one.principal ?? ""), side(one.before), side(one.after)]))), blind(said.undecidable)));
    });
    if (!done) put(answer);
  } } },
    h("h2", null, "Try other rules"), h("p", { class: "about" }, "Write rules as in the configuration, in place of the present ones. Past calls are evaluated again with them, and every decision that would change is listed. Nothing is called or changed."),
    field("Rules", rules), field("Over the last", since), troubles, h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Simulate")), answer);
}

/** The view. */
export async function view(shell, _, filters) {
  const [rules, troubles] = [h("div"), h("div")];
  const load = async () => {
    await reportErrors(troubles, async () => {
      const policy = await get("/policy");
      const all = policy.rules ?? [];
      put(rules, h("h2", null, "Rules in force"), h("p", { class: "about" }, "The first rule that matches decides each field, from top to bottom."),
        all.length === 0 ? empty("No rules yet", "The defaults apply: reads run, writes need an approval, destructive calls need a review of their preview. Rules in the configuration change that for each tool.") : h("ol", { class: "rules" }, all.map(ruleCard)));
    });
  };
  await load();
  const form = whatIf(filters);
  const node = h("div", { class: "page" }, head("Policy", "The rules in force, and what they decide"), troubles, rules, form, simulate());
  if (filters.has("tool")) setTimeout(() => form.requestSubmit());
  return { title: "Policy", node, heard: (kind) => (kind.startsWith("policy") || kind.startsWith("config")) && load() };
}
