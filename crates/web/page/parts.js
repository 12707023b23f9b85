// Parts that every view uses: badges, facts, empty states, errors, notices, dialogs.
import { bundle, h, put } from "./dom.js";
import { line, plain } from "./safe.js";
import { TONES } from "./vocabulary.js";

/** A badge for an effect. */
export function effect(word) {
  const mark = { read: "○", write: "◐", destructive: "●" }[word] ?? "";
  return h("span", { class: `badge effect ${classOf(word)}` }, h("span", { "aria-hidden": "true" }, mark), " ", String(word ?? "unknown"));
}

/** A badge for a state, in its own tone unless another is given. */
export function state(word, tone) {
  const known = String(word);
  return h("span", { class: `badge ${tone ?? TONES[known] ?? ""}` }, h("span", { class: "dot", "aria-hidden": "true" }), plain(known.replaceAll("_", " ")));
}

function classOf(word) {
  return /^[a-z_]+$/.test(String(word)) ? word : "";
}

/** `upstream:tool`, the tool's own name in front of the eye. */
export function toolName(full) {
  const text = String(full);
  const at = text.indexOf(":");
  if (at < 0) return h("span", { class: "tool-name" }, line(text));
  return h("span", { class: "tool-name" }, h("span", { class: "upstream" }, line(text.slice(0, at)), ":"), line(text.slice(at + 1)));
}

/** Who is on the other end of a connection: `Claude Code 2.1 in ~/projects/shop`; null where nothing is known. */
export function hostName(of) {
  if (of === undefined || of === null) return null;
  if (typeof of === "string") return of;
  const name = [of.title ?? of.program ?? of.name, of.version].filter(Boolean).join(" ");
  return [name, of.folder].filter(Boolean).join(" in ") || null;
}

/** Names and what they stand for. Pairs without a value are left out. */
export function facts(pairs) {
  const all = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return h("dl", { class: "facts" }, all.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** The head of a view. */
export function head(title, about, ...tools) {
  return h("div", { class: "head" }, h("div", null, h("h1", null, title), about ? h("p", { class: "about" }, about) : null), tools.length > 0 ? h("div", { class: "tools" }, tools) : null);
}

/** A place where nothing is yet, and how something gets there. */
export function empty(title, ...words) {
  return h("div", { class: "empty" }, h("p", { class: "title" }, title), words.map((word) => (typeof word === "string" ? h("p", null, word) : word)));
}

/** A command to copy. */
export function command(text) {
  const copy = h("button", { type: "button", class: "quiet", "aria-label": `Copy: ${text}` }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return h("div", { class: "command" }, h("code", null, text), copy);
}

function steps(error) {
  const next = error.details?.next_actions;
  return Array.isArray(next) ? next.map((step) => (typeof step === "string" ? step : JSON.stringify(step))) : [];
}

/** What went wrong, its code, and what to do next. */
export function trouble(error) {
  const next = steps(error);
  return h("div", { class: "trouble", role: "alert", data: { code: String(error.code ?? "") } },
    h("p", null, line(error.message), error.code ? bundle(" ", h("code", { class: "code" }, line(error.code))) : null),
    next.length > 0 ? h("ul", null, next.map((step) => h("li", null, line(step)))) : null);
}

/** Shows a trouble inside an element, or clears it. */
export function showTrouble(place, error) {
  put(place, error === null ? null : trouble(error));
}

/** Runs a job and shows an error answer inside an element; false if there was one. */
export async function reportErrors(place, job) {
  try {
    await job();
    showTrouble(place, null);
    return true;
  } catch (error) {
    if (error.code === undefined) throw error;
    showTrouble(place, error);
    return false;
  }
}

/** Says something to a screen reader without moving anything. */
export function announce(text) {
  document.getElementById("said").textContent = text;
}

/** A notice in the corner for a few seconds. */
export function notice(tone, ...words) {
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close notice" }, "×");
  const box = h("div", { class: `notice ${tone}`, role: tone === "bad" ? "alert" : "status" }, h("div", null, words), close);
  const end = () => box.remove();
  close.addEventListener("click", end);
  document.getElementById("notes").append(box);
  setTimeout(end, tone === "bad" ? 12_000 : 5_000);
}

/** A question with a dialog; resolves to true on yes. `yes` names the button. */
export function question(title, body, yes, tone = "primary") {
  return new Promise((resolve) => {
    const no = h("button", { type: "submit", value: "no", formnovalidate: true }, "Cancel");
    const go = h("button", { type: "submit", value: "yes", class: tone }, yes);
    const box = h("dialog", { "aria-label": title }, h("form", { method: "dialog" }, h("h2", null, title), h("div", { class: "body" }, body), h("div", { class: "actions" }, no, go)));
    box.addEventListener("close", () => {
      resolve(box.returnValue === "yes");
      box.remove();
    });
    document.body.append(box);
    box.showModal();
    no.focus();
  });
}

/** A button that is busy while its act runs, and says what went wrong beside itself. */
export function act(label, props, run) {
  const button = h("button", { type: "button", ...props }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    try {
      await run();
    } catch (error) {
      if (error.code === undefined) throw error;
      notice("bad", trouble(error));
    } finally {
      button.disabled = false;
      button.removeAttribute("aria-busy");
    }
  });
  return button;
}

/** A labelled field. */
export function field(label, input, hint) {
  const id = input.id || `f${Math.random().toString(36).slice(2)}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null);
}

/** A choice of words. */
export function select(name, words, chosen, any) {
  const option = (word) => h("option", { value: word, selected: word === chosen }, word);
  return h("select", { name }, any === undefined ? null : h("option", { value: "" }, any), words.map(option));
}

/** A table with heads. Where there is little room each row is a card, which is why the roles are said aloud. */
export function grid(label, columns, rows) {
  const heads = columns.map((column) => h("th", { scope: "col", role: "columnheader" }, column));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: "grid", role: "table", "aria-label": label }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), h("tbody", { role: "rowgroup" }, rows)));
}

/** A row for `grid`: cells in the order of its columns. */
export function cells(columns, values, props) {
  const cell = (value, at) => h("td", { role: "cell", class: value === "" || value === null ? "bare" : null, data: at === 0 ? {} : { label: columns[at] } }, h("div", null, value));
  return h("tr", { role: "row", ...props }, values.map(cell));
}
