// Shows JSON of agents and upstreams in full, as text. Numbers keep the digits they were written with.
import { bundle, h } from "./dom.js";
import { fold, hiddenBadge, isLong, line, prose } from "./safe.js";
import { REDACTED } from "./vocabulary.js";

const SHORT = 76;
const ITEMS = 100;

/** Reads JSON; a number that would lose a digit is kept as its text. */
export function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || context?.source === undefined || String(value) === context.source) return value;
    return typeof JSON.rawJSON === "function" ? JSON.rawJSON(context.source) : value;
  });
}

/** Whether something is a number kept as its text. */
function isRaw(value) {
  return typeof JSON.isRawJSON === "function" && JSON.isRawJSON(value);
}

/** Whether something has members or items. */
export function isNested(value) {
  return value !== null && typeof value === "object" && !isRaw(value);
}

/** The same JSON on one line, for comparing and for short display. */
export function compact(value) {
  if (value === undefined) return "";
  if (!isNested(value)) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(compact).join(", ")}]`;
  return `{${Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${compact(member)}`).join(", ")}}`;
}

/** Whether two values are the same JSON; the order of names does not count. */
export function same(one, other) {
  if (!isNested(one) || !isNested(other)) return JSON.stringify(one) === JSON.stringify(other);
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

/** Whether a text holds a value that the gateway redacted. */
export function isRedacted(text) {
  return text.includes(REDACTED);
}

function leaf(value) {
  if (typeof value === "string") {
    if (isRedacted(value)) {
      return h("span", { class: "v redacted", title: "A rule redacts this value on pages and in the audit log; the call is sent with the real value" }, line(value));
    }
    // Quotation marks only where the text would not show by itself where it begins and ends.
    return h("span", { class: "v string" }, line(value === "" || value !== value.trim() ? JSON.stringify(value) : value), hiddenBadge(value));
  }
  if (value === null) return h("span", { class: "v null" }, "none");
  return h("span", { class: `v ${typeof value === "boolean" ? "boolean" : "number"}` }, JSON.stringify(value));
}

/** A short list or record on one line, as people write it; null where that could be read in two ways. */
function inWords(of) {
  const word = (item) => (typeof item === "string" ? item : item === null ? "none" : JSON.stringify(item));
  const isPlain = (text) => text !== "" && !/[,:\n]/.test(text) && text === text.trim();
  const all = entries(of);
  if (all.some(([name, item]) => isNested(item) || !isPlain(name) || !isPlain(word(item)))) return null;
  return all.map(([name, item]) => (Array.isArray(of) ? word(item) : `${name}: ${word(item)}`)).join(", ");
}

function entries(value) {
  return Array.isArray(value) ? value.map((item, at) => [String(at + 1), item]) : Object.entries(value);
}

/** A value, whole. */
export function value(of) {
  if (typeof of === "string" && (of.includes("\n") || isLong(of))) {
    return h("div", { class: "v text" }, hiddenBadge(of), prose(of));
  }
  if (!isNested(of)) return leaf(of);
  const all = entries(of);
  if (all.length === 0) return h("span", { class: "v null" }, Array.isArray(of) ? "no items" : "no members");
  const short = inWords(of);
  if (short !== null && short.length <= SHORT) return h("span", { class: "v json" }, line(short), hiddenBadge(short));
  const members = (some) => h("div", { class: "members" }, some.map(([name, member]) => memberOf(name, member, Array.isArray(of))));
  if (all.length <= ITEMS) return members(all);
  const noun = Array.isArray(of) ? "items" : "members";
  return fold(() => members(all.slice(0, 20)), () => members(all), `${all.length.toLocaleString("en")} ${noun}`);
}

function memberOf(name, member, isItem) {
  return h("div", { class: "member" }, h("span", { class: isItem ? "index" : "key" }, line(name)), h("div", { class: "of" }, value(member)));
}

/** Named values as a table. `marks`: name → a node beside the name. */
export function table(members, label, marks = new Map()) {
  const row = ([name, member]) =>
    h("tr", null, h("th", { scope: "row" }, line(name), marks.get(name)), h("td", null, value(member)));
  return h("table", { class: "values", "aria-label": label }, h("tbody", null, Object.entries(members).map(row)));
}

/** A value as lines, one thing each: for line by line comparison. */
export function spread(of, depth = 0) {
  const pad = "  ".repeat(depth);
  if (typeof of === "string" && of.includes("\n")) return of.split("\n").map((part) => `${pad}│ ${part}`);
  if (!isNested(of) || Object.keys(of).length === 0) return [`${pad}${JSON.stringify(of)}`];
  return entries(of).flatMap(([name, member]) => {
    const head = Array.isArray(of) ? `${pad}-` : `${pad}${name}:`;
    if (!isNested(member) && !(typeof member === "string" && member.includes("\n"))) return [`${head} ${JSON.stringify(member)}`];
    return [head, ...spread(member, depth + 1)];
  });
}

/** A value on at most one line, marked where it is cut. */
export function brief(of, most = 60) {
  const text = typeof of === "string" ? of : compact(of);
  if (text.length <= most) return bundle(line(text));
  // Never cut inside a surrogate pair.
  const cut = text.slice(0, most).replace(/[\ud800-\udbff]$/, "");
  return bundle(line(cut), h("span", { class: "cut", title: "Shown in full on its own page" }, "…"));
}
