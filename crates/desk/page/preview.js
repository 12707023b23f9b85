// What a call would change, as its upstream says it: differences in colour, changes as old → new, texts as texts, and
// whatever else there is as values. Shows all of it, in the order it came.
import { bundle, h } from "./dom.js";
import * as diff from "./diff.js";
import { hiddenBadge, line, prose } from "./safe.js";
import { isNested, parse, same, value } from "./value.js";

const OLD = ["old", "before", "from", "current", "old_value", "previous"];
const NEW = ["new", "after", "to", "proposed", "new_value", "next"];
const NAME = ["field", "name", "path", "path_posix", "key", "attribute", "property", "target"];
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
  const known = new Set();
  const rows = list.map((item) => {
    const [name, before, after] = [pick(item, NAME), pick(item, OLD), pick(item, NEW)];
    [name, before, after].forEach((one) => known.add(one));
    const rest = Object.entries(item).filter(([member]) => ![name, before, after].includes(member));
    const word = item.op ?? item.operation ?? (before === undefined || item[before] === null ? "add" : after === undefined || item[after] === null ? "remove" : "change");
    const tone = /del|remove|destroy/.test(word) ? "del" : /add|create|insert/.test(word) ? "add" : "change";
    return h("tr", { class: tone },
      h("th", { scope: "row" }, typeof item[name] === "string" ? line(item[name]) : value(item[name])),
      h("td", { class: "old" }, side(item, OLD, "nothing")),
      h("td", { class: "arrow", "aria-hidden": "true" }, "→"),
      h("td", { class: "new" }, side(item, NEW, "nothing")),
      h("td", { class: "rest" }, rest.map(([member, of]) => h("div", null, h("span", { class: "key" }, line(member)), " ", value(of)))));
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes" },
    h("table", { class: "changes" },
      h("thead", null, h("tr", null, ["field", "old", "", "new", ""].map((word) => (word === "" ? h("td", null) : h("th", { scope: "col" }, word))))),
      h("tbody", null, rows)));
}

/** A text: a difference, a plan, JSON in disguise, or words. */
function text(said) {
  if (diff.isUnified(said)) return diff.unified(said);
  if (diff.isTerraform(said)) return diff.signed(said);
  if (/^\s*[[{]/.test(said)) {
    try {
      return shape(parse(said));
    } catch {
      // Words that begin like JSON.
    }
  }
  return bundle(hiddenBadge(said), prose(said));
}

/** Any value, its differences and changes in their own form. */
function shape(of) {
  if (typeof of === "string") return text(of);
  if (isChanges(of)) return changes(of);
  if (!isNested(of) || Array.isArray(of)) {
    if (Array.isArray(of) && of.some((item) => isNested(item) && holdsForm(item))) {
      return bundle(of.map((item, at) => h("section", { class: "part" }, h("h4", null, `${at + 1}`), shape(item))));
    }
    return value(of);
  }
  if (!holdsForm(of)) return value(of);
  const special = ([name, member]) => (typeof member === "string" ? DIFF.includes(name) || diff.isUnified(member) || diff.isTerraform(member) : isNested(member) && holdsForm({ [name]: member }));
  const members = Object.entries(of);
  const plain = members.filter((member) => !special(member));
  return bundle(
    plain.length > 0 ? value(Object.fromEntries(plain)) : null,
    members.filter(special).map(([name, member]) => h("section", { class: "part" }, h("h4", null, line(name)), shape(member))));
}

function holdsForm(of) {
  if (typeof of === "string") return diff.isUnified(of) || diff.isTerraform(of);
  if (!isNested(of)) return false;
  return isChanges(of) || Object.values(of).some(holdsForm);
}

/** What an upstream answered: its blocks in order, then whatever else it holds. */
export function result(of) {
  if (!isNested(of) || Array.isArray(of) || !Array.isArray(of.content)) return h("div", { class: "result" }, shape(of));
  const rest = Object.fromEntries(Object.entries(of).filter(([name, member]) => name !== "content" && !(name === "isError" && member === false)));
  const blocks = of.content.map((block) => {
    if (block?.type !== "text" || typeof block.text !== "string") return value(block);
    if (rest.structuredContent !== undefined && isSame(block.text, rest.structuredContent)) return null;
    const more = Object.fromEntries(Object.entries(block).filter(([name]) => name !== "type" && name !== "text"));
    return bundle(text(block.text), Object.keys(more).length > 0 ? value(more) : null);
  });
  const { structuredContent, isError, ...other } = rest;
  return h("div", { class: "result" },
    isError === true ? h("p", { class: "badge bad" }, "the tool says this is an error") : null,
    blocks,
    structuredContent === undefined ? null : shape(structuredContent),
    Object.keys(other).length > 0 ? value(other) : null);
}

function isSame(said, structured) {
  try {
    return same(parse(said), structured);
  } catch {
    return false;
  }
}

const FROM = {
  argument: "the tool's own dry run",
  companion: "another tool of the same upstream",
  command: "a configured command",
};

/** The preview of a plan or a step, with a heading of the given level. */
export function preview(of, level = "h2") {
  if (of === undefined || of === null) return null;
  if (of.source === "computed") {
    return h("section", { class: "preview none" }, h(level, null, "No preview"),
      h("p", { class: "about" }, "The upstream offers no dry run. The tool will run with exactly the arguments shown here."));
  }
  return h("section", { class: "preview" },
    h(level, null, "Preview", h("span", { class: "from" }, ` by ${FROM[of.source] ?? plainWord(of.source)}`)), result(of.shown));
}

function plainWord(word) {
  return /^[a-z ]+$/.test(String(word)) ? word : "its upstream";
}
