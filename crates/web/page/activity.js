// The audit log, newest first. Every filter is in the address, so that a view can be shared as a link.
import { address, get } from "./api.js";
import { bundle, h, put, svg } from "./dom.js";
import { empty, field, head, hostName, reportErrors, select } from "./parts.js";
import { about, rowState } from "./timeline.js";
import { line, plural } from "./safe.js";
import { at, dayOf, full, micros } from "./time.js";
import { brief } from "./value.js";
import { ACTIVITY_FILTERS, ACTOR_ROLES, EFFECTS, ROW_KINDS, ROW_STATUSES } from "./vocabulary.js";

const PAGE = 100;
const BARS = 48;

/** `datetime-local` gives a time without a zone: the person's own. */
function moment(text) {
  const date = new Date(text);
  return text === "" || Number.isNaN(date.getTime()) ? "" : date.toISOString();
}

function local(iso) {
  const date = new Date(iso);
  if (!iso || Number.isNaN(date.getTime())) return "";
  const pad = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}T${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

function filterForm(shell, filters) {
  const text = (name, hint) => h("input", { type: "text", name, value: filters.get(name) ?? "", placeholder: hint, autocomplete: "off", spellcheck: "false" });
  const time = (name) => h("input", { type: "datetime-local", name, value: local(filters.get(name)) });
  const of = (name) => filters.get(name) ?? "";
  const more = ["server", "intent_type", "role", "session_id", "plan_id", "code", "start_time", "end_time"];
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter activity", on: { submit: (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      const said = name.endsWith("_time") ? moment(value) : value.trim();
      if (said !== "") wanted.set(name, said);
    }
    shell.go(`/activity${wanted.size > 0 ? `?${wanted}` : ""}`);
  } } },
    h("div", { class: "fields" }, field("Text", text("q", "in tool, reason, arguments, code")), field("Type", select("type", ROW_KINDS, of("type"), "any")), field("Status", select("status", ROW_STATUSES, of("status"), "any")),
      field("Tool", text("tool", "upstream:tool")), field("Who", text("principal", "principal"))),
    h("details", { open: more.some((name) => filters.has(name)) }, h("summary", null, "More filters"),
      h("div", { class: "fields" }, field("Upstream", text("server")), field("Intent", select("intent_type", EFFECTS, of("intent_type"), "any")), field("Role", select("role", ACTOR_ROLES, of("role"), "any")),
        field("Session", text("session_id")), field("Plan", text("plan_id", "pln_…")), field("Code", text("code", "E_…")), field("From", time("start_time")), field("Until", time("end_time")))),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Filter"), filters.size > 0 ? h("a", { href: "/activity", class: "button" }, "Clear") : null));
  form.addEventListener("change", (event) => {
    if (event.target.tagName === "SELECT") form.requestSubmit();
  });
  return form;
}

/** Rows over time, as bars; the label says the same in words. */
function histogram(rows) {
  if (rows.length < 2) return null;
  const times = rows.map((row) => Date.parse(row.time));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const width = Math.max(1, (last - first) / BARS);
  const bars = Array.from({ length: BARS }, () => new Map());
  rows.forEach((row, index) => {
    const bar = bars[Math.min(BARS - 1, Math.floor((times[index] - first) / width))];
    bar.set(row.status, (bar.get(row.status) ?? 0) + 1);
  });
  const total = (bar) => [...bar.values()].reduce((sum, count) => sum + count, 0);
  const most = Math.max(...bars.map(total));
  const drawn = bars.flatMap((bar, index) => {
    let top = 40;
    return ROW_STATUSES.filter((status) => bar.has(status)).map((status) => {
      const tall = (bar.get(status) / most) * 38;
      top -= tall;
      return svg("rect", { x: index * 10 + 1, y: top, width: 8, height: tall, class: `bar ${status}` }, svg("title", null, `${bar.get(status)} ${status}`));
    });
  });
  const counts = ROW_STATUSES.map((status) => [status, rows.filter((row) => row.status === status).length]).filter(([, count]) => count > 0);
  return h("figure", { class: "histogram" },
    svg("svg", { viewBox: `0 0 ${BARS * 10} 40`, preserveAspectRatio: "none", role: "img", "aria-label": `${plural(rows.length, "row")}: ${counts.map(([status, count]) => `${count} ${status}`).join(", ")}` }, drawn),
    h("figcaption", null, full(new Date(first).toISOString()), h("span", { class: "legend" }, counts.map(([status, count]) => h("a", { href: link({ status }) }, h("span", { class: `swatch ${status}` }), `${count} ${status}`))), full(new Date(last).toISOString())));
}

/** The same view with one filter more. */
function link(more) {
  const wanted = new URLSearchParams(location.pathname === "/activity" ? location.search : "");
  for (const [name, value] of Object.entries(more)) wanted.set(name, value);
  return `/activity?${wanted}`;
}

function cellsOf(of, extra) {
  return [
    h("span", { class: "when" }, at(of.time)),
    h("span", { class: "how" }, rowState(of)),
    h("a", { class: "what", href: `/activity/${encodeURIComponent(of.id)}` }, about(of)),
    h("span", { class: "args" }, of.intent?.reason ? bundle("“", brief(of.intent.reason, 70), "”") : of.arguments ? brief(of.arguments, 70) : null),
    h("span", { class: "who" }, of.principal ? brief(of.principal, 26) : null, hostName(of.host) === null ? null : h("span", { class: "dim host" }, brief(hostName(of.host), 40))),
    of.code ? h("span", { class: "code" }, line(of.code), extra) : h("span", { class: "code took" }, of.duration_us ? micros(Number(of.duration_us)) : null, extra),
  ];
}

/** Rows of one plan or call are one line: the newest, with the others inside. */
function entry(rows) {
  const [newest, ...others] = rows;
  if (others.length === 0) return h("li", { class: "act", data: { id: newest.id } }, cellsOf(newest));
  const inner = h("ol", { class: "acts inner", hidden: true }, others.map((of) => h("li", { class: "act", data: { id: of.id } }, cellsOf(of))));
  const more = h("button", { type: "button", class: "quiet", "aria-expanded": "false" }, plural(rows.length, "row"));
  more.addEventListener("click", () => {
    inner.hidden = !inner.hidden;
    more.setAttribute("aria-expanded", String(!inner.hidden));
  });
  return h("li", { class: "of-plan" }, h("div", { class: "act", data: { id: newest.id } }, cellsOf(newest, more)), inner);
}

/** Rows in the order they came, those of one plan or call together at the newest. */
function byPlan(rows) {
  const found = new Map();
  for (const one of rows) {
    const key = one.plan_id ?? one.request_id ?? one.id;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(one);
  }
  return [...found.values()];
}

function days(rows) {
  const found = new Map();
  for (const one of rows) {
    const day = dayOf(one.time);
    if (!found.has(day)) found.set(day, []);
    found.get(day).push(one);
  }
  return [...found].map(([day, some]) => h("section", null, h("h2", { class: "day" }, day), h("ol", { class: "acts" }, byPlan(some).map(entry))));
}

/** The view. */
export async function view(shell, _, filters) {
  const wanted = Object.fromEntries(ACTIVITY_FILTERS.map((name) => [name, filters.get(name) ?? undefined]));
  const [list, chart, more, fresh, troubles] = [h("div"), h("div"), h("div", { class: "more" }), h("div"), h("div")];
  const exports = ["jsonl", "csv"].map((format) => h("a", { class: "button", href: address("/activity/export", { ...wanted, format }), download: `activity.${format}` }, format.toUpperCase()));
  const node = h("div", { class: "page" }, head("Activity", "The audit log: every call, decision and change, tamper-evident", exports), filterForm(shell, filters), troubles, chart, fresh, list, more);
  let rows = [];
  let cursor;
  let unseen = 0;

  const draw = () => {
    put(chart, histogram(rows));
    put(list, rows.length === 0 ? none(filters) : days(rows));
    put(more, cursor ? h("button", { type: "button", on: { click: () => load(false) } }, "Older rows") : rows.length > 0 ? h("p", { class: "dim" }, "No older rows.") : null);
  };
  const load = async (anew) => {
    await reportErrors(troubles, async () => {
      const answer = await get("/activity", { ...wanted, limit: PAGE, cursor: anew ? undefined : cursor });
      rows = anew ? answer.activities : [...rows, ...answer.activities];
      cursor = answer.next_cursor;
      draw();
    });
  };
  await load(true);
  return {
    title: "Activity",
    node,
    heard: (kind) => {
      if (!kind.startsWith("activity")) return;
      unseen += 1;
      put(fresh, h("button", { type: "button", class: "fresh", on: { click: async () => {
        unseen = 0;
        put(fresh);
        await load(true);
      } } }, unseen === 1 ? "Show 1 new row" : `Show ${unseen} new rows`));
    },
    keys: { "/": () => node.querySelector('input[name="q"]').focus() },
  };
}

function none(filters) {
  if (filters.size > 0) return empty("No row matches", h("p", null, h("a", { href: "/activity" }, "Clear the filters"), " to see everything."));
  return empty("Nothing has happened yet", "Every call of an agent is recorded here, refused ones too: who asked, what was decided, how it ended.");
}
