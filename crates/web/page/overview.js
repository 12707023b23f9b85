// Charts of any period: calls, holds, decisions and refusals over time, by agent, tool and rule, and how long decisions took.
// Every bar is a link to the rows behind it, and every chart has its figures as a table.
import { get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { cells, empty, field, grid, head, reportErrors } from "./parts.js";
import { line, plain, plural } from "./safe.js";
import { full, micros } from "./time.js";
import { brief } from "./value.js";

const PERIODS = [["1h", "the last hour", 3600], ["24h", "the last 24 hours", 86_400], ["7d", "the last 7 days", 604_800], ["30d", "the last 30 days", 2_592_000]];
const USUAL = "24h";
const PARTS = 30;
const [WIDTH, HEIGHT] = [600, 90];
/** The charts over time: which rows each counts, one colour for each kind and status. */
const SERIES = [
  ["Calls that ran", [["call", "success"], ["call", "error"]]],
  ["Holds for a person", [["call", "pending"]]],
  ["Decisions", [["approval", "success"], ["approval", "refused"], ["approval", "error"]]],
  ["Refusals", [["call", "refused"]]],
];

/** A period of the address: a named one up to now, or two moments. */
function periodOf(filters) {
  const [from, until] = [filters.get("start_time"), filters.get("end_time")];
  if (from && until && !Number.isNaN(Date.parse(from)) && !Number.isNaN(Date.parse(until))) return { start: new Date(from), end: new Date(until), name: "" };
  const name = PERIODS.some(([key]) => key === filters.get("period")) ? filters.get("period") : USUAL;
  const seconds = PERIODS.find(([key]) => key === name)[2];
  const end = new Date();
  return { start: new Date(end.getTime() - seconds * 1000), end, name };
}

const rowsLink = (more) => `/activity?${new URLSearchParams(more)}`;

/** A bar that is a link; the title says what it counts. */
function bar(x, y, width, height, tone, title, href) {
  return svg("a", { href, "aria-label": title }, svg("rect", { x, y, width, height: Math.max(height, 1), class: `bar ${tone}` }, svg("title", null, title)));
}

/** The figures of a chart as a table, folded. */
function figures(label, columns, rows) {
  return h("details", { class: "figures" }, h("summary", null, "As a table"), grid(label, columns, rows.map((values) => cells(columns, values))));
}

function card(title, total, drawing, table) {
  return h("section", { class: "card chart", "aria-label": title }, h("div", { class: "card-head" }, h("h2", null, title), h("span", { class: "total" }, total)), drawing, table);
}

const within = (chart, part) => ({ start_time: chart.parts[part], end_time: chart.parts[part + 1] ?? chart.end_time });

/** What the colours of a chart mean. */
function legend(statuses) {
  return h("p", { class: "legend" }, [...new Set(statuses)].map((status) => h("span", null, h("span", { class: `swatch ${status}` }), status)));
}

function axis(chart) {
  return h("p", { class: "axis" }, full(chart.start_time), full(chart.end_time));
}

function drawn(label, bars) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "group", "aria-label": label }, svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "ground" }), bars);
}

function overTime(chart, [title, kinds]) {
  const counts = chart.parts.map(() => new Map());
  for (const one of chart.over_time) {
    if (kinds.some(([kind, status]) => kind === one.kind && status === one.status)) counts[one.part]?.set(`${one.kind} ${one.status}`, one.count);
  }
  const sum = (part) => [...part.values()].reduce((all, count) => all + count, 0);
  const most = Math.max(1, ...counts.map(sum));
  const step = WIDTH / chart.parts.length;
  const bars = counts.flatMap((part, at) => {
    let top = HEIGHT - 1;
    return kinds.filter(([kind, status]) => part.has(`${kind} ${status}`)).map(([kind, status]) => {
      const count = part.get(`${kind} ${status}`);
      const height = (count / most) * (HEIGHT - 6);
      top -= height;
      return bar(at * step + 1, top, Math.max(1, step - 2), height, status, `${count} ${status}, from ${new Date(chart.parts[at]).toLocaleString("en-GB")}`, rowsLink({ type: kind, status, ...within(chart, at) }));
    });
  });
  const total = counts.reduce((all, part) => all + sum(part), 0);
  const columns = ["From", ...kinds.map(([, status]) => status)];
  const rows = counts.map((part, at) => [part, at]).filter(([part]) => part.size > 0).map(([part, at]) => [full(chart.parts[at]), ...kinds.map(([kind, status]) => (part.has(`${kind} ${status}`) ? h("a", { href: rowsLink({ type: kind, status, ...within(chart, at) }) }, String(part.get(`${kind} ${status}`))) : "0"))]);
  return card(title, total.toLocaleString("en"), [drawn(`${title} over time`, bars), axis(chart), kinds.length > 1 ? legend(kinds.filter(([kind, status]) => counts.some((part) => part.has(`${kind} ${status}`))).map(([, status]) => status)) : null], total === 0 ? null : figures(title, columns, rows));
}

function decisionTimes(chart) {
  const most = Math.max(1, ...chart.decisions.map((one) => one.median_us));
  const step = WIDTH / chart.parts.length;
  const to = (one) => rowsLink({ type: "approval", ...within(chart, one.part) });
  const bars = chart.decisions.map((one) => {
    const height = (one.median_us / most) * (HEIGHT - 6);
    return bar(one.part * step + 1, HEIGHT - 1 - height, Math.max(1, step - 2), height, "took", `median ${micros(one.median_us)} of ${plural(one.count, "decision")}, from ${new Date(chart.parts[one.part]).toLocaleString("en-GB")}`, to(one));
  });
  const count = chart.decisions.reduce((all, one) => all + one.count, 0);
  const rows = chart.decisions.map((one) => [full(chart.parts[one.part]), h("a", { href: to(one) }, String(one.count)), micros(one.median_us)]);
  return card("Time to decision", count === 0 ? "none" : `up to ${micros(most)}`, [drawn("Median time to decision", bars), axis(chart)], count === 0 ? null : figures("Time to decision", ["From", "Decisions", "Median"], rows));
}

/** Calls by a name, one line each: the name, and a bar of its statuses. */
function byName(chart, title, list, filter) {
  const names = [...new Set(list.map((one) => one.name))];
  const total = (name) => list.filter((one) => one.name === name).reduce((all, one) => all + one.count, 0);
  names.sort((one, other) => total(other) - total(one));
  const most = Math.max(1, ...names.map(total));
  const period = { start_time: chart.start_time, end_time: chart.end_time };
  const to = (one) => rowsLink({ type: "call", ...filter(one.name), status: one.status, ...period });
  const lines = names.map((name) => {
    let x = 0;
    const bars = list.filter((one) => one.name === name).map((one) => {
      const width = (one.count / most) * WIDTH;
      x += width;
      return bar(x - width, 0, Math.max(width - 1, 1), 12, one.status, `${plain(name)}: ${one.count} ${one.status}`, to(one));
    });
    return h("li", null, h("span", { class: "name" }, brief(name, 48)), h("span", { class: "total" }, total(name).toLocaleString("en")), svg("svg", { viewBox: `0 0 ${WIDTH} 12`, preserveAspectRatio: "none", role: "group", "aria-label": `${title}: ${plain(name)}` }, bars));
  });
  const rows = list.map((one) => [line(one.name), one.status, h("a", { href: to(one) }, String(one.count))]);
  return card(title, names.length === 0 ? "none" : "", names.length === 0 ? h("p", { class: "dim" }, "None in this period.") : [h("ol", { class: "name-bars" }, lines), legend(list.map((one) => one.status))], names.length === 0 ? null : figures(title, ["Name", "Status", "Calls"], rows));
}

function periodForm(shell, period) {
  const local = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  const time = (name, date) => h("input", { type: "datetime-local", name, value: local(date), required: true });
  const [from, until] = [time("start_time", period.start), time("end_time", period.end)];
  const links = PERIODS.map(([key, label]) => h("a", { class: "button", href: `/overview?period=${key}`, "aria-current": period.name === key ? "true" : null }, label));
  return h("form", { class: "filters periods", "aria-label": "Period", on: { submit: (event) => {
    event.preventDefault();
    shell.go(`/overview?${new URLSearchParams({ start_time: new Date(from.value).toISOString(), end_time: new Date(until.value).toISOString() })}`);
  } } },
    h("div", { class: "row" }, links),
    h("details", { open: period.name === "" }, h("summary", null, "Another period"), h("div", { class: "fields" }, field("From", from), field("Until", until), h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Show")))));
}

/** The view. */
export async function view(shell, _, filters) {
  const period = periodOf(filters);
  const [charts, troubles] = [h("div", { class: "cards charts" }), h("div")];
  const node = h("div", { class: "page" }, head("Overview", "What agents did and what was decided; every bar leads to its rows"), periodForm(shell, period), troubles, charts);
  const load = () => reportErrors(troubles, async () => {
    const chart = await get("/activity/chart", { start_time: period.start.toISOString(), end_time: period.end.toISOString(), parts: PARTS });
    const isEmpty = chart.over_time.length === 0;
    put(charts, isEmpty ? empty("Nothing happened in this period", "Calls, holds, decisions and refusals appear here as they are recorded.") : [
      SERIES.map((one) => overTime(chart, one)),
      decisionTimes(chart),
      byName(chart, "Calls by agent", chart.by_principal, (principal) => ({ principal })),
      byName(chart, "Calls by tool", chart.by_tool, (tool) => ({ tool })),
      byName(chart, "Rules that asked or refused", chart.by_rule, (q) => ({ q })),
    ]);
  });
  await load();
  return { title: "Overview", node };
}
