// Diffs: unified diffs in colour, and two texts compared line by line and word by word, in one column or side by side. Shows every
// line; hidden characters are escapes.
import { bundle, h } from "./dom.js";
import { block, fold, hiddenBadge } from "./safe.js";

const LINES = 600;
/** Above this many comparisons two texts are shown one after the other. */
const WORK = 4_000_000;

/** Whether a text is a unified difference. */
export function isUnified(text) {
  return /^@@ /m.test(text) && /^\+\+\+ /m.test(text);
}

/** Whether a text is a plan as Terraform and its relatives print it. */
export function isTerraform(text) {
  return /^Plan: \d+ to add/m.test(text) || /^\s*# .+ (will|must) be /m.test(text);
}

const SPOKEN = { add: "added: ", del: "removed: ", change: "changed: " };
const SIGNS = { add: "+", del: "−", change: "~" };
/** Lines above a hunk that repeat its file's name or say how it was made. Anything else outside of hunks is shown. */
const HEADER = /^(?:`{3,}[\w-]*|Index: .*|={5,}|-{3} .*|\+{3} .*|diff --git .*|index [0-9a-f]+\.\.[0-9a-f]+.*|(?:new|deleted) file mode \d+|)$/;
/** Lines that are less alike than this are shown without words of their own. */
const ALIKE = 0.35;
const WIDE = matchMedia("(min-width: 1280px)");

/** The words of a line, each with whether the other line has it too; null where the lines have little in common. */
function words(one, other) {
  const split = (text) => text.match(/[\p{L}\p{N}_]+|\s+|./gsu) ?? [];
  const [a, b] = [split(one), split(other)];
  if (a.length * b.length > WORK / 100) return null;
  const steps = compare(a, b);
  const same = steps.filter(([kind]) => kind === "same").reduce((sum, [, word]) => sum + word.trim().length, 0);
  if (same < ALIKE * Math.max(one.trim().length, other.trim().length)) return null;
  const side = (kind) => steps.filter(([is]) => is === "same" || is === kind).map(([is, word]) => [is === kind, word]);
  return { del: side("del"), add: side("add") };
}

/** Gives each removed line and the added line in its place the words in which they differ, and each other's number. */
function pair(lines) {
  for (let at = 0; at < lines.length; at += 1) {
    let [gone, come] = [at, at];
    while (lines[come]?.kind === "del") come += 1;
    const middle = come;
    while (lines[come]?.kind === "add") come += 1;
    for (; gone < middle && middle + gone - at < come; gone += 1) {
      const [before, after] = [lines[gone], lines[middle + gone - at]];
      const found = words(before.text, after.text);
      [before.pair, after.isPaired] = [after, true];
      if (found !== null) [before.words, after.words] = [found.del, found.add];
    }
    at = Math.max(at, come - 1);
  }
  return lines;
}

function code(line, kind = line.kind) {
  const spoken = SPOKEN[kind] === undefined ? null : h("span", { class: "unseen" }, SPOKEN[kind]);
  const text = line.words === undefined ? block(line.text) : line.words.map(([isOwn, word]) => (isOwn ? h("b", { class: "word" }, block(word)) : block(word)));
  return h("td", { class: "code" }, spoken, text);
}

const number = (no) => h("td", { class: "no", "aria-hidden": "true" }, no);

function row(line) {
  return h("tr", { class: line.kind }, number(line.before), number(line.after), h("td", { class: "sign", "aria-hidden": "true" }, SIGNS[line.kind] ?? ""), code(line));
}

/** One row of two columns: a removed line beside the added one in its place. */
function wideRow(line) {
  const none = () => [h("td", { class: "no" }), h("td", { class: "code none" })];
  const side = (of, no) => {
    const cells = [number(no), code(of)];
    for (const cell of cells) cell.classList.add(of.kind === "" ? "same" : of.kind);
    return cells;
  };
  if (line.kind === "add") return line.isPaired ? null : h("tr", null, none(), side(line, line.after));
  if (line.kind === "del") return h("tr", null, side(line, line.before), line.pair ? side(line.pair, line.pair.after) : none());
  if (line.kind === "") return h("tr", null, side(line, line.before), side(line, line.after));
  const cell = code(line);
  cell.setAttribute("colspan", "3");
  return h("tr", { class: line.kind }, number(""), cell);
}

/** Whether differences are shown in two columns: as the person chose, else where there is room. */
let chosen = null;
const isWide = () => chosen ?? WIDE.matches;

function framed(lines, label, { header = [], sides = true } = {}) {
  const count = (kind) => lines.filter((line) => line.kind === kind).length;
  const canSplit = sides && count("del") > 0 && count("add") > 0;
  const box = h("div", { class: "diff-box" });
  const table = (some, split) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Difference: ${label}` }, h("table", { class: split ? "diff wide" : "diff" }, split ? h("colgroup", null, ["no", "half", "no", "half"].map((name) => h("col", { class: name }))) : null, h("tbody", null, some.map(split ? wideRow : row).filter((one) => one !== null))));
  const draw = () => {
    const split = canSplit && isWide();
    const toggle = canSplit ? h("button", { type: "button", class: "quiet sides", on: { click: () => { chosen = !split; draw(); } } }, split ? "One column" : "Side by side") : null;
    const whole = () => table(lines, split);
    box.replaceChildren(
      h("div", { class: "diff-head" }, h("span", { class: "name" }, label), toggle, h("span", { class: "plus" }, `+${count("add")}`), " ", h("span", { class: "minus" }, `−${count("del")}`)),
      lines.length <= LINES ? whole() : fold(() => table(lines.slice(0, LINES), split), whole, `${lines.length.toLocaleString("en")} lines`),
      ...(header.length > 0 ? [h("details", { class: "diff-header" }, h("summary", null, "Header"), h("pre", { class: "prose" }, block(header.join("\n"))))] : []));
  };
  draw();
  return box;
}

/** A unified difference with its colours, line numbers and words. Header lines are folded. */
export function unified(text) {
  const [lines, header] = [[], []];
  let [before, after] = [0, 0];
  // How many lines of each side the hunk still has: a removed line `-- x` is no file name.
  let [oldLeft, newLeft] = [0, 0];
  const files = text.match(/^\+\+\+ /gm)?.length ?? 1;
  for (const line of text.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (hunk !== null && oldLeft <= 0 && newLeft <= 0) {
      [before, after] = [Number(hunk[1]), Number(hunk[3])];
      [oldLeft, newLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
      lines.push({ kind: "hunk", text: line });
    } else if (oldLeft <= 0 && newLeft <= 0) {
      // With several files their names belong between the hunks.
      if (HEADER.test(line) && !(files > 1 && line.startsWith("+++ "))) header.push(line);
      else lines.push({ kind: "file", text: line });
    } else if (line.startsWith("+")) {
      newLeft -= 1;
      lines.push({ kind: "add", after: after++, text: line.slice(1) });
    } else if (line.startsWith("-")) {
      oldLeft -= 1;
      lines.push({ kind: "del", before: before++, text: line.slice(1) });
    } else if (line.startsWith("\\")) {
      lines.push({ kind: "file", text: line });
    } else {
      oldLeft -= 1;
      newLeft -= 1;
      lines.push({ kind: "", before: before++, after: after++, text: line.slice(1) });
    }
  }
  const name = (sign) => new RegExp(`^${sign} (?:[ab]/)?([^\\t\\n]+)`, "m").exec(text)?.[1];
  const file = [name("\\+\\+\\+"), name("---")].find((one) => one !== undefined && one !== "/dev/null") ?? "difference";
  return bundle(hiddenBadge(text), framed(pair(lines), files > 1 ? `${files} files` : bundleText(file), { header: header.filter((line) => line !== "") }));
}

// A label takes characters only; what can't be seen is made visible in the lines themselves.
function bundleText(text) {
  return text.replace(/[^\x20-\x7e\u00a1-\u02ff]/gu, "·");
}

/** A plan in the signs of Terraform: `+`, `-`, `~` at the front of a line. */
export function signed(text) {
  const lines = text.replace(/\n$/, "").split("\n").map((line) => {
    const sign = /^\s*(\+\/-|-\/\+|[+~-])\s/.exec(line)?.[1];
    return { kind: sign === undefined ? "" : sign === "+" ? "add" : sign === "-" ? "del" : "change", text: line };
  });
  return bundle(hiddenBadge(text), framed(lines, "plan", { sides: false }));
}

/** What turns one list of lines into another: `["same" | "add" | "del", line]` each. */
export function compare(one, other) {
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [a, b] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  const same = (line) => ["same", line];
  return [...one.slice(0, start).map(same), ...middle(a, b), ...one.slice(one.length - end).map(same)];
}

function middle(a, b) {
  if (a.length * b.length > WORK) return [...a.map((line) => ["del", line]), ...b.map((line) => ["add", line])];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      out.push(["del", a[i++]]);
    } else {
      out.push(["add", b[j++]]);
    }
  }
  return out;
}

/** Two lists of lines compared; every line is there. */
export function between(one, other, label) {
  let [before, after] = [1, 1];
  const lines = compare(one, other).map(([kind, text]) => {
    if (kind === "add") return { kind, after: after++, text };
    if (kind === "del") return { kind, before: before++, text };
    return { kind: "", before: before++, after: after++, text };
  });
  return bundle(hiddenBadge([...one, ...other].join("\n")), framed(pair(lines), label));
}
