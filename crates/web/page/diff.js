// Diffs: unified diffs in colour, and two texts compared line by line. Shows every line; hidden characters are escapes.
import { bundle, h } from "./dom.js";
import { block, fold, hiddenBadge } from "./safe.js";

const LINES = 300;
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

function row(kind, before, after, text) {
  const sign = { add: "+", del: "−", change: "~" }[kind] ?? "";
  return h("tr", { class: kind },
    h("td", { class: "no", "aria-hidden": "true" }, before),
    h("td", { class: "no", "aria-hidden": "true" }, after),
    h("td", { class: "sign", "aria-hidden": "true" }, sign),
    h("td", { class: "code" }, SPOKEN[kind] === undefined ? null : h("span", { class: "unseen" }, SPOKEN[kind]), block(text)));
}

function framed(rows, added, removed, label) {
  const head = h("div", { class: "diff-head" },
    h("span", { class: "name" }, label),
    h("span", { class: "plus" }, `+${added}`), " ", h("span", { class: "minus" }, `−${removed}`));
  const body = (some) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Difference: ${label}` }, h("table", { class: "diff" }, h("tbody", null, some())));
  const whole = () => body(() => rows.map((make) => make()));
  const shown = rows.length <= LINES ? whole() : fold(() => body(() => rows.slice(0, LINES).map((make) => make())), whole, `${rows.length.toLocaleString("en")} lines`);
  return h("div", { class: "diff-box" }, head, shown);
}

/** A unified difference with its colours and line numbers. */
export function unified(text) {
  const rows = [];
  let [before, after, added, removed] = [0, 0, 0, 0];
  // How many lines of each side the hunk still has: a removed line `-- x` is no file name.
  let [oldLeft, newLeft] = [0, 0];
  for (const line of text.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (hunk !== null && oldLeft <= 0 && newLeft <= 0) {
      [before, after] = [Number(hunk[1]), Number(hunk[3])];
      [oldLeft, newLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
      rows.push(() => row("hunk", "", "", line));
    } else if (oldLeft <= 0 && newLeft <= 0) {
      rows.push(() => row("file", "", "", line));
    } else if (line.startsWith("+")) {
      const no = after++;
      newLeft -= 1;
      added += 1;
      rows.push(() => row("add", "", no, line.slice(1)));
    } else if (line.startsWith("-")) {
      const no = before++;
      oldLeft -= 1;
      removed += 1;
      rows.push(() => row("del", no, "", line.slice(1)));
    } else if (line.startsWith("\\")) {
      rows.push(() => row("file", "", "", line));
    } else {
      const [one, other] = [before++, after++];
      oldLeft -= 1;
      newLeft -= 1;
      rows.push(() => row("", one, other, line.slice(1)));
    }
  }
  const file = /^\+\+\+ (?:b\/)?([^\t\n]+)/m.exec(text)?.[1] ?? "difference";
  const files = text.match(/^\+\+\+ /gm)?.length ?? 1;
  return bundle(hiddenBadge(text), framed(rows, added, removed, files > 1 ? `${files} files` : bundleText(file)));
}

// A label takes characters only; what can't be seen is made visible in the lines themselves.
function bundleText(text) {
  return text.replace(/[^\x20-\x7e\u00a1-\u02ff]/gu, "·");
}

/** A plan in the signs of Terraform: `+`, `-`, `~` at the front of a line. */
export function signed(text) {
  let [added, removed] = [0, 0];
  const rows = text.replace(/\n$/, "").split("\n").map((line) => {
    const sign = /^\s*(\+\/-|-\/\+|[+~-])\s/.exec(line)?.[1];
    const kind = sign === undefined ? "" : sign === "+" ? "add" : sign === "-" ? "del" : "change";
    if (kind === "add") added += 1;
    if (kind === "del") removed += 1;
    return () => row(kind, "", "", line);
  });
  return bundle(hiddenBadge(text), framed(rows, added, removed, "plan"));
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

/** Two lists of lines side by side in one column; every line is there. */
export function between(one, other, label) {
  let [before, after, added, removed] = [1, 1, 0, 0];
  const rows = compare(one, other).map(([kind, line]) => {
    if (kind === "add") {
      const no = after++;
      added += 1;
      return () => row("add", "", no, line);
    }
    if (kind === "del") {
      const no = before++;
      removed += 1;
      return () => row("del", no, "", line);
    }
    const [left, right] = [before++, after++];
    return () => row("", left, right, line);
  });
  return bundle(hiddenBadge([...one, ...other].join("\n")), framed(rows, added, removed, label));
}
