// Makes texts of agents and upstreams safe to look at: characters that are invisible or reorder text become visible escapes.
// Folds long texts behind a button that says how much there is. Never drops anything silently.
import { bundle, h } from "./dom.js";
import { HIDDEN, HIDDEN_ON_ONE_LINE } from "./vocabulary.js";

const DECEPTIVE = new RegExp(HIDDEN, "gu");
const ON_ONE_LINE = new RegExp(HIDDEN_ON_ONE_LINE, "gu");

const NAMES = new Map([
  [0x00ad, "soft hyphen"], [0x061c, "Arabic letter mark"], [0x200b, "zero width space"], [0x200c, "zero width non-joiner"],
  [0x200d, "zero width joiner"], [0x200e, "left-to-right mark"], [0x200f, "right-to-left mark"], [0x2028, "line separator"],
  [0x2029, "paragraph separator"], [0x202a, "left-to-right embedding"], [0x202b, "right-to-left embedding"],
  [0x202c, "pop directional formatting"], [0x202d, "left-to-right override"], [0x202e, "right-to-left override"],
  [0x2060, "word joiner"], [0x2066, "left-to-right isolate"], [0x2067, "right-to-left isolate"], [0x2068, "first strong isolate"],
  [0x2069, "pop directional isolate"], [0xfeff, "byte order mark"], [0x09, "tab"], [0x0a, "line end"], [0x0d, "carriage return"], [0x1b, "escape"], [0x00, "null"],
]);

/** `no rows`, `1 row`, `2 rows`. */
export function plural(count, one) {
  return `${count === 0 ? "no" : count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
}

/** How long a text may be before it is folded, in characters and in lines. */
export const LONG = 1600;
export const MANY = 28;

/** How many characters a text has that nobody would see. */
export function hiddenIn(text) {
  const found = text.match(DECEPTIVE);
  return found === null ? 0 : found.length;
}

function escaped(char) {
  const plain = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[char];
  if (plain !== undefined) return plain;
  return `\\u{${char.codePointAt(0).toString(16)}}`;
}

function nodes(text, pattern) {
  const out = [];
  let from = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > from) out.push(document.createTextNode(text.slice(from, found.index)));
    const code = found[0].codePointAt(0);
    const what = NAMES.get(code) ?? "a character that can't be seen";
    out.push(h("span", { class: code === 10 || code === 9 ? "escape soft" : "escape", title: `U+${code.toString(16).toUpperCase().padStart(4, "0")} ${what}` }, escaped(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) out.push(document.createTextNode(text.slice(from)));
  return out;
}

/** A text on one line; line ends are escapes too. */
export function line(text) {
  return h("span", { class: "said" }, nodes(String(text), ON_ONE_LINE));
}

/** A text on one line, as plain characters: for titles and labels that take no elements. */
export function plain(text) {
  return String(text).replace(ON_ONE_LINE, escaped);
}

/** A text with its own lines, whole. */
export function block(text) {
  return bundle(nodes(String(text), DECEPTIVE));
}

/** A badge that says how many characters were made visible; nothing where there were none. */
export function hiddenBadge(text) {
  const count = hiddenIn(String(text));
  if (count === 0) return null;
  return h("span", { class: "badge warn", title: "They are shown as escapes" }, count === 1 ? "1 hidden character" : `${count.toLocaleString("en")} hidden characters`);
}

/** How much there is, in words. */
export function amount(text) {
  const characters = [...text].length;
  const lines = text.split("\n").length;
  const many = `${characters.toLocaleString("en")} characters`;
  return lines > 1 ? `${many}, ${lines.toLocaleString("en")} lines` : many;
}

/** Whether a text is long enough to be folded. */
export function isLong(text) {
  return text.length > LONG || text.split("\n", MANY + 2).length > MANY + 1;
}

/** The part of a long text that is shown before it is unfolded, cut between characters. */
function opening(text) {
  const lines = text.split("\n", MANY).join("\n");
  return lines.slice(0, LONG).replace(/[\ud800-\udbff]$/, "");
}

/** Content that is folded until asked for: `short` and `whole` are functions that make it, `what` says how much there is. */
export function fold(short, whole, what) {
  const box = h("div", { class: "fold", data: { folded: "yes" } });
  const holder = h("div", { class: "fold-body" }, short());
  const button = h("button", { type: "button", class: "quiet", "aria-expanded": "false" }, `Show all ${what}`);
  const set = (open) => {
    holder.replaceChildren(open ? whole() : short());
    button.textContent = open ? "Show less" : `Show all ${what}`;
    button.setAttribute("aria-expanded", String(open));
    box.dataset.folded = open ? "no" : "yes";
    box.dispatchEvent(new CustomEvent("fold", { bubbles: true }));
  };
  button.addEventListener("click", () => set(box.dataset.folded === "yes"));
  box.addEventListener("unfold", () => set(true));
  box.append(holder, button);
  return box;
}

/** How many folds are closed inside an element. */
export function foldedIn(element) {
  return element.querySelectorAll('.fold[data-folded="yes"]').length;
}

/** Opens every fold inside an element, those inside of folds too. */
export function unfoldAll(element) {
  for (let turn = 0; turn < 64 && foldedIn(element) > 0; turn += 1) {
    for (const box of element.querySelectorAll('.fold[data-folded="yes"]')) box.dispatchEvent(new CustomEvent("unfold"));
  }
}

/** A text of any length: with its own lines, folded where it is long. */
export function prose(text) {
  const said = String(text);
  const body = (part) => h("pre", { class: "prose" }, block(part));
  if (!isLong(said)) return body(said);
  return fold(() => bundle(body(opening(said)), h("span", { class: "cut", "aria-hidden": "true" }, "…")), () => body(said), amount(said));
}
