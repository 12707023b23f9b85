// Tools with their effect, confirm kind, strength and the rule behind each. Changed definitions are compared and accepted
// exactly as shown.
import { get, post } from "./api.js";
import * as diff from "./diff.js";
import { bundle, h, put } from "./dom.js";
import { act, cells, command, effect, empty, facts, field, grid, head, notice, question, reportErrors, select, state, toolName } from "./parts.js";
import { hiddenBadge, line, prose } from "./safe.js";
import { ago } from "./time.js";
import { brief, spread, value } from "./value.js";
import { EFFECTS, TOOL_STATES } from "./vocabulary.js";

const COLUMNS = ["Tool", "Effect", "Confirm", "Strength", "Definition", "Decided by"];

const pathOf = (name) => `/tools/${encodeURIComponent(name)}`;

function row(tool) {
  const flags = (tool.flags ?? []).length;
  return cells(COLUMNS, [
    bundle(h("a", { href: pathOf(tool.name) }, toolName(tool.name)), flags > 0 ? h("span", { class: "badge warn" }, flags === 1 ? "1 flag" : `${flags} flags`) : null, tool.denied ? h("span", { class: "badge bad" }, "denied") : null, tool.role === "human" ? h("span", { class: "badge" }, "people only") : null, h("div", { class: "dim clamp" }, brief(tool.description ?? "", 110))),
    effect(tool.effect), bundle(tool.confirm, tool.conditional ? h("span", { class: "dim", title: "A rule with a condition may change that" }, " *") : null), tool.strength, bundle(state(tool.pin), tool.flips ? h("span", { class: "dim" }, tool.flips.accepted ? ` 1 of ${tool.flips.known}` : " known") : null), h("span", { class: "dim" }, tool.rule ? line(tool.rule) : "default for the effect"),
  ]);
}

/** The list. */
export async function view(shell, _, filters) {
  const [list, troubles] = [h("div"), h("div")];
  const q = h("input", { type: "search", name: "q", value: filters.get("q") ?? "", placeholder: "a few words, or a name" });
  const kind = select("effect", EFFECTS, filters.get("effect") ?? "", "any");
  const stands = select("pin", TOOL_STATES, filters.get("pin") ?? "", "any");
  const upstream = h("select", { name: "server" }, h("option", { value: "" }, "any"));
  const form = h("form", { class: "filters", role: "search", "aria-label": "Find tools", on: { submit: (event) => event.preventDefault() } }, h("div", { class: "fields" }, field("Find", q), field("Upstream", upstream), field("Effect", kind), field("Definition", stands)));
  const node = h("div", { class: "page" }, head("Tools", "What agents can call, and what each call needs"), form, troubles, list);
  let all = [];

  const draw = () => {
    const fits = (tool) => (kind.value === "" || tool.effect === kind.value) && (stands.value === "" || tool.pin === stands.value) && (upstream.value === "" || tool.server === upstream.value);
    const some = all.filter(fits);
    const waits = all.filter((tool) => tool.pin !== "accepted").length;
    put(list,
      waits > 0 && stands.value === "" ? h("div", { class: "banner warn" }, h("span", null, `${waits} ${waits === 1 ? "definition waits" : "definitions wait"} for you: agents can't use ${waits === 1 ? "it" : "them"} until you accept.`), h("button", { type: "button", on: { click: () => { stands.value = all.some((tool) => tool.pin === "changed") ? "changed" : "new"; draw(); } } }, "Show")) : null,
      some.length > 0 ? grid("Tools", COLUMNS, some.map(row)) : all.length > 0 || q.value !== "" ? empty("No tool matches", "Try fewer words.") : empty("No tools yet", "Tools come from upstreams: MCP servers and commands in the configuration.", command("countersign upstreams add NAME --command npx -- -y SERVER")));
  };
  const load = async () => {
    await reportErrors(troubles, async () => {
      all = (await get("/tools", { q: q.value.trim() })).tools;
      const names = [...new Set(all.map((tool) => tool.server))].sort();
      if (upstream.options.length === 1) upstream.append(...names.map((name) => h("option", { value: name, selected: name === filters.get("server") }, name)));
      draw();
    });
  };
  let timer;
  q.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  });
  [kind, stands, upstream].forEach((choice) => choice.addEventListener("change", draw));
  await load();
  return { title: "Tools", node, heard: (kind_) => kind_.startsWith("tool") && load(), keys: { "/": () => q.focus() } };
}

function decidedTable(decided) {
  if (!Array.isArray(decided) || decided.length === 0) return null;
  const columns = ["Field", "Value", "Decided by"];
  return h("section", null, h("h2", null, "What a call needs, and why"), grid("What a call needs", columns, decided.map((one) => cells(columns, [line(one.field), value(one.value), one.rule ? h("code", null, line(one.rule)) : h("span", { class: "dim" }, line(one.because ?? ""))]))));
}

function difference(pin) {
  if (!pin?.candidate) return null;
  const now = spread(pin.candidate.definition);
  const was = pin.accepted ? spread(pin.accepted.definition) : [];
  return h("section", null, h("h2", null, pin.accepted ? "What changed" : "A new definition"),
    h("p", { class: "about" }, pin.accepted ? "The accepted definition against the one its upstream lists now. Read descriptions as instructions to your agent, because it will." : "Nobody has accepted this tool yet. Read its description as an instruction to your agent, because it will."),
    diff.between(was, now, pin.accepted ? "accepted → now" : "new"));
}

/** Every definition that was accepted at some time, compared with the pinned one. */
function knownSet(pin) {
  const known = pin?.known ?? [];
  if (known.length < 2) return null;
  const isSet = known.some((one) => one.in_set);
  const was = pin.accepted ? spread(pin.accepted.definition) : [];
  const about = isSet ? "A person accepted these as a set: each of them counts as accepted. Any other definition is withheld." : "Its upstream alternates between these definitions. Accept them as a set, and each of them counts as accepted; any other definition is withheld.";
  const whose = (one) => bundle(one.accepted_by ? bundle("accepted by ", line(one.accepted_by)) : "trusted on first use", ", ", ago(one.accepted_at), one.in_set ? h("span", { class: "badge" }, "in the set") : null);
  return h("section", { class: "known-set" }, h("h2", null, `${known.length} known definitions`), h("p", { class: "about" }, about),
    known.map((one) => h("details", null, h("summary", null, h("span", { class: "mono" }, line(one.fingerprint.slice(0, 12))), " ", whose(one)),
      one.fingerprint === pin.accepted?.fingerprint ? value(one.definition) : diff.between(was, spread(one.definition), "accepted last → this one"))));
}

/** Buttons that accept the waiting definition, the set of known ones, or one definition alone. */
function choices(name, pin, load) {
  const send = (label, props, title, body, sent) => act(label, props, async () => {
    if (!(await question(title, body, "Accept"))) return;
    await post(`${pathOf(name)}/approve`, sent);
    notice("good", "Accepted ", toolName(name));
    await load();
  });
  const known = pin?.known ?? [];
  const prints = known.map((one) => one.fingerprint);
  const list = h("ul", { class: "mono dim" }, prints.map((one) => h("li", null, one)));
  const isSet = known.some((one) => one.in_set);
  return bundle(
    pin?.candidate ? send("Accept this definition", { class: "primary" }, "Accept this definition?", bundle(h("p", null, "Agents will be able to call ", toolName(name), " as shown here, under the rules in force."), h("p", { class: "mono dim" }, pin.candidate.fingerprint)), { fingerprint: pin.candidate.fingerprint }) : null,
    pin?.accepted_before && known.length > 1 ? send(`Accept all ${known.length} known definitions`, {}, "Accept the set?", bundle(h("p", null, "Agents will be able to call ", toolName(name), " with any of these definitions, under the rules in force."), list), { known: true, fingerprints: prints }) : null,
    isSet && pin?.accepted ? send("End the set", {}, "End the set?", bundle(h("p", null, "Only this definition of ", toolName(name), " will count as accepted."), h("p", { class: "mono dim" }, pin.accepted.fingerprint)), { only: true, fingerprint: pin.accepted.fingerprint }) : null);
}

/** One tool. */
export async function one(shell, name) {
  const node = h("div", { class: "page" });
  const load = async () => {
    const answer = await get(pathOf(name));
    const tool = answer.tool;
    let pin = null;
    if (tool.pin !== "accepted" || tool.flips) {
      try {
        const found = await get(`${pathOf(name)}/diff`);
        pin = found.tool ?? found.diff ?? found;
      } catch (error) {
        if (error.code === undefined) throw error;
      }
    }
    const description = tool.description ?? tool.definition?.description;
    put(node,
      h("nav", { class: "strip" }, h("a", { href: "/tools" }, "← Tools")),
      h("div", { class: "plan-title" }, h("h1", null, toolName(name)), h("p", { class: "badges" }, effect(tool.effect), state(tool.pin), tool.denied ? h("span", { class: "badge bad" }, "denied") : null, tool.flips?.accepted ? h("span", { class: "badge" }, `1 of ${tool.flips.known}`) : null, choices(name, pin, load))),
      (tool.flags ?? []).map((flag) => h("div", { class: "banner warn" }, line(typeof flag === "string" ? flag : JSON.stringify(flag)))),
      tool.withheld ? h("div", { class: "banner bad" }, line(tool.withheld.why ?? tool.withheld)) : null,
      description ? h("figure", { class: "reason" }, h("blockquote", null, hiddenBadge(description), prose(description)), h("figcaption", null, "the upstream's own words")) : null,
      facts([
        ["confirm", bundle(tool.confirm, tool.conditional ? h("span", { class: "dim" }, "; a rule with a condition may change that") : null)], ["strength", tool.strength], ["call with", tool.call_with ? h("code", null, tool.call_with) : null],
        ["rule", tool.rule ? h("code", null, line(tool.rule)) : null], ["denied", tool.denied ? line(tool.denied) : null], ["only for", tool.role ? line(tool.role) : null],
        ["decided", pin?.decided_by ? bundle(line(pin.decided_by), pin.decided_at ? bundle(", ", ago(pin.decided_at)) : null) : null], ["definition", h("span", { class: "mono" }, line(tool.fingerprint ?? ""))],
      ]),
      difference(pin), knownSet(pin), decidedTable(answer.decided),
      h("section", { class: "definition" }, h("h2", null, "Definition"), value(tool.definition ?? {})),
      h("p", null, h("a", { href: `/activity?tool=${encodeURIComponent(name)}` }, "Calls of this tool"), " · ", h("a", { href: `/policy?tool=${encodeURIComponent(name)}` }, "Explain a call")));
  };
  await load();
  return { title: name, node, heard: (kind) => kind.startsWith("tool") && load().catch(() => {}), keys: { u: () => shell.go("/tools") } };
}
