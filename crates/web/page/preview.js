// The preview of a call: diffs in colour, changes as old → new, texts, and everything else as values, in the order the upstream
// sent it.
import { bundle, h } from "./dom.js";
import * as diff from "./diff.js";
import { fold, hiddenBadge, line, plain, prose } from "./safe.js";
import { isNested, parse, same, value } from "./value.js";
import { PREVIEW_SOURCES } from "./vocabulary.js";

const OLD = ["old", "before", "from", "current", "old_value", "previous"];
const NEW = ["new", "after", "to", "proposed", "new_value", "next"];
const NAME = ["field", "name", "path", "path_posix", "key", "attribute", "property", "target"];
/** Shown by the style of the row. */
const FLAGS = ["is_added", "is_unchanged", "is_unknown_prior"];
const DIFF = ["diff", "unified", "patch", "unified_diff"];

function pick(of, names) {
  return names.find((name) => Object.hasOwn(of, name));
}

/** Whether a value is a list of changes: each a name with an old or a new value. */
function isChanges(of) {
  const isOne = (item) => isNested(item) && !Array.isArray(item) && pick(item, NAME) !== undefined && (pick(item, OLD) !== undefined || pick(item, NEW) !== undefined);
  return Array.isArray(of) && of.length > 0 && of.every(isOne);
}

function side(of, names, absent) {
  const name = pick(of, names);
  return name === undefined ? h("span", { class: "v null" }, absent) : value(of[name]);
}

function changes(list) {
  const rows = list.map((item) => {
    const [name, before, after] = [pick(item, NAME), pick(item, OLD), pick(item, NEW)];
    const rest = Object.entries(item).filter(([member, of]) => ![name, before, after].includes(member) && !(FLAGS.includes(member) && typeof of === "boolean"));
    const word = item.op ?? item.operation ?? (before === undefined || item[before] === null ? "add" : after === undefined || item[after] === null ? "remove" : "change");
    const tone = item.is_unchanged === true ? "same" : /del|remove|destroy/.test(word) ? "del" : /add|create|insert/.test(word) ? "add" : "change";
    return h("tr", { class: tone },
      h("th", { scope: "row" }, typeof item[name] === "string" ? line(item[name]) : value(item[name])),
      h("td", { class: "old" }, item.is_unknown_prior === true ? h("span", { class: "v null" }, "not known") : side(item, OLD, "nothing")),
      h("td", { class: "arrow", "aria-hidden": "true" }, "→"),
      h("td", { class: "new" }, side(item, NEW, "nothing")),
      h("td", { class: "rest" }, rest.map(([member, of]) => h("div", null, h("span", { class: "key" }, line(member)), " ", value(of)))));
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes" },
    h("table", { class: "changes" },
      h("thead", null, h("tr", null, ["field", "old", "", "new", ""].map((word) => (word === "" ? h("td", null) : h("th", { scope: "col" }, word))))),
      h("tbody", null, rows)));
}

/** A text in parts: what stands between code fences, and what stands around it. */
function unfenced(said) {
  const parts = [];
  let from = 0;
  for (const found of said.matchAll(/^(`{3,})[\w-]*\n([\s\S]*?)\n?^\1[ \t]*$/gm)) {
    parts.push(said.slice(from, found.index), found[2]);
    from = found.index + found[0].length;
  }
  return [...parts, said.slice(from)].map((part) => part.replace(/^\n+|\n+$/g, "")).filter((part) => part.trim() !== "");
}

/** A text: a diff, a Terraform plan, JSON, or prose. */
function text(said) {
  const parts = unfenced(said);
  if (/^```/m.test(said) && parts.length > 0) return bundle(parts.map(plainText));
  return plainText(said);
}

function plainText(said) {
  if (diff.isUnified(said)) return diff.unified(said);
  if (diff.isTerraform(said)) return diff.signed(said);
  if (/^\s*[[{]/.test(said)) {
    try {
      return shape(parse(said));
    } catch {
      // Prose that begins like JSON.
    }
  }
  return bundle(hiddenBadge(said), prose(said));
}

/** Warnings of the upstream; one that begins with `BLOCK:` blocks the change. */
function warnings(list) {
  return list.map((one) => {
    const block = /^\s*BLOCK:/.test(one);
    return h("div", { class: block ? "banner bad" : "banner warn" }, h("span", null, block ? h("b", null, "Blocked: ") : null, line(one.replace(/^\s*BLOCK:\s*/, "")), hiddenBadge(one)));
  });
}

function isWarnings(name, of) {
  return name === "warnings" && Array.isArray(of) && of.length > 0 && of.every((one) => typeof one === "string");
}

/** The first of these members that is a text or a number. */
function word(of, names) {
  const found = names.find((name) => typeof of[name] === "string" || typeof of[name] === "number");
  return found === undefined ? null : { name: found, said: String(of[found]) };
}

/** The heading of one action (operation, target, status) and the members to show below it. */
function action(item, at) {
  const said = [word(item, ["operation_label", "operation", "op"]), word(item, ["target_label", "target", "target_id", "path"]), word(item, ["status_label", "status"])];
  const [what, target, status] = said;
  if (what === null && target === null) return { name: [`${at + 1}`], rest: item };
  // An empty error or outcome repeats the status; an index repeats the position.
  const used = ([name, member]) => said.some((one) => one?.name === name) || member === null || (name === "index" && member === at);
  const name = [line(what?.said ?? ""), " ", h("span", { class: "mono" }, line(target?.said ?? "")), status === null ? null : bundle(" ", h("span", { class: "badge" }, line(status.said)))];
  return { name, rest: Object.fromEntries(Object.entries(item).filter((member) => !used(member))) };
}

function part(title, of) {
  return h("section", { class: "part" }, h("h4", null, title), shape(of));
}

/** A list of actions or other parts that have a form of their own. */
function parts(list) {
  return bundle(list.map((item, at) => {
    if (!isNested(item) || Array.isArray(item)) return part(`${at + 1}`, item);
    const { name, rest } = action(item, at);
    return isNested(rest.changes) && Object.keys(rest).length === 1 ? part(name, rest.changes) : part(name, rest);
  }));
}

/** The parts of an answer that read as prose: what it is about, its message, its warnings. */
function words(of) {
  const used = new Set();
  const take = (name, fits) => (Object.hasOwn(of, name) && fits(of[name]) ? (used.add(name), of[name]) : null);
  const text_ = (one) => typeof one === "string" && !one.includes("\n") && one.length < 400;
  const id = take("entity_id", (one) => text_(one) || typeof one === "number");
  const kind = id === null ? null : take("entity_type", text_);
  const message = take("message", text_) ?? take("summary", text_);
  const warned = take("warnings", (one) => Array.isArray(one) && one.every((warning) => typeof warning === "string"));
  take("is_preview", (one) => typeof one === "boolean");
  const node = bundle(
    id === null && message === null ? null : h("p", { class: "sentence" }, id === null ? null : h("b", null, line(`${(kind ?? "").replaceAll("_", " ")} ${id}`.trim())), id !== null && message !== null ? ": " : null, message === null ? null : line(message)),
    warnings(warned ?? []));
  return { node, rest: Object.entries(of).filter(([name]) => !used.has(name)) };
}

/** Any value, its differences and changes in their own form. */
function shape(of) {
  if (typeof of === "string") return text(of);
  if (isChanges(of)) return changes(of);
  if (!isNested(of) || !holdsForm(of)) return value(of);
  if (Array.isArray(of)) return parts(of);
  const special = ([name, member]) => (typeof member === "string" ? DIFF.includes(name) || diff.isUnified(member) || diff.isTerraform(member) : isNested(member) && holdsForm(member));
  const { node, rest } = words(of);
  const plain = rest.filter((member) => !special(member));
  const formed = rest.filter(special);
  const only = formed.length === 1 && ["actions", "changes", ...DIFF].includes(formed[0][0]);
  return bundle(node,
    only ? shape(formed[0][1]) : formed.map(([name, member]) => part(line(name), member)),
    plain.length > 0 ? value(Object.fromEntries(plain)) : null);
}

function holdsForm(of) {
  if (typeof of === "string") return diff.isUnified(of) || diff.isTerraform(of);
  if (!isNested(of)) return false;
  return isChanges(of) || Object.entries(of).some(([name, member]) => isWarnings(name, member) || holdsForm(member));
}

/** A tool result: its content blocks in order, then the rest. */
export function result(of) {
  if (!isNested(of) || Array.isArray(of) || !Array.isArray(of.content)) return h("div", { class: "result" }, shape(of));
  const rest = Object.fromEntries(Object.entries(of).filter(([name, member]) => name !== "content" && !(name === "isError" && member === false)));
  const people = of.content.length > 0 && of.content.every(isForPeople);
  const blocks = of.content.map((block) => {
    if (block?.type !== "text" || typeof block.text !== "string") return value(block);
    if (rest.structuredContent !== undefined && isSame(block.text, rest.structuredContent)) return null;
    const more = Object.fromEntries(Object.entries(block).filter(([name]) => name !== "type" && name !== "text" && !(people && name === "annotations")));
    return bundle(text(block.text), Object.keys(more).length > 0 ? value(more) : null);
  });
  const { structuredContent, isError, ...other } = rest;
  return h("div", { class: "result" },
    isError === true ? h("p", { class: "badge bad" }, "the tool reports an error") : null,
    blocks,
    structuredContent === undefined ? null : people ? forPrograms(structuredContent) : besideTexts(structuredContent, of.content),
    Object.keys(other).length > 0 ? value(other) : null);
}

/** Whether a block is for people only; the structured content beside it is for programs then. */
function isForPeople(block) {
  const audience = block?.annotations?.audience;
  return Array.isArray(audience) && audience.length === 1 && audience[0] === "user";
}

/** Folded, except for its warnings. */
function forPrograms(of) {
  const warned = isNested(of) && isWarnings("warnings", of.warnings) ? warnings(of.warnings) : null;
  return bundle(warned, fold(() => h("p", { class: "about" }, "Data for programs is folded."), () => value(of), "data for programs"));
}

/** Structured content beside texts: folded where it only repeats them. */
function besideTexts(of, content) {
  const texts = content.map((block) => (typeof block?.text === "string" ? block.text : "")).join("\n");
  const isSaid = (value) => !isChanges(value) && (typeof value === "string" ? texts.includes(value.trim()) : isNested(value) && Object.entries(value).every(([name, member]) => !isWarnings(name, member) && isSaid(member)));
  if (!isNested(of) || !isSaid(of)) return shape(of);
  return h("details", { class: "again" }, h("summary", null, "The same again, for programs"), value(of));
}

function isSame(said, structured) {
  try {
    return same(parse(said), structured);
  } catch {
    return false;
  }
}

/** The preview of a plan or a step, with a heading of the given level. */
export function preview(of, level = "h2") {
  if (!hasPreview(of)) return h("section", { class: "preview none" }, h("p", { class: "about" }, PREVIEW_SOURCES[of?.source] ?? ""));
  return h("section", { class: "preview" },
    h(level, null, "Preview", h("span", { class: "from" }, ` by ${PREVIEW_SOURCES[of.source] ?? "the upstream"}`)), result(of.shown));
}

/** Whether somebody else than the call itself says what would change. */
export function hasPreview(of) {
  return of !== undefined && of !== null && of.source !== "computed" && of.source !== "when_reached";
}

const OLD_TEXT = ["old", "oldText", "old_string", "old_str"];
const NEW_TEXT = ["new", "newText", "new_string", "new_str"];

/** Replacements among arguments, as differences: `{edits: [{oldText, newText}]}` or one pair; null where there are none. */
export function replacements(args) {
  const edits = Array.isArray(args?.edits) ? args.edits : [args];
  const pairs = edits.map((edit) => (isNested(edit) ? [pick(edit, OLD_TEXT), pick(edit, NEW_TEXT)].map((name) => edit[name]) : []));
  if (pairs.length === 0 || !pairs.every((both) => both.length === 2 && both.every((one) => typeof one === "string"))) return null;
  const file = ["path", "file_path", "filename", "file"].map((name) => args[name]).find((one) => typeof one === "string");
  const label = (at) => `${plain(file ?? "replacement")}${pairs.length === 1 ? "" : `, ${at + 1} of ${pairs.length}`}`;
  return bundle(pairs.map(([before, after], at) => diff.between(before.split("\n"), after.split("\n"), label(at))));
}
