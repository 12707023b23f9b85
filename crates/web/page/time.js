// Times and durations for people, by the gateway's clock: the browser's may be wrong.
import { h } from "./dom.js";

let ahead = 0;

/** Sets how far the gateway's clock is ahead of this computer's, in milliseconds, by a date it sent. */
export function learn(date) {
  const there = Date.parse(date);
  // A date header counts in whole seconds: less than two is no difference.
  if (!Number.isNaN(there)) ahead = Math.abs(there - Date.now()) < 2000 ? 0 : there - Date.now();
}

/** Now, at the gateway. */
export function now() {
  return Date.now() + ahead;
}

/** A span in two units at most. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  const days = Math.floor(seconds / 86400);
  return days === 1 ? "1 day" : `${days} days`;
}

/** How long ago, in one unit. */
export function since(moment) {
  const seconds = Math.floor((now() - Date.parse(moment)) / 1000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  const days = Math.floor(seconds / 86400);
  return days === 1 ? "yesterday" : `${days} days ago`;
}

/** A duration of microseconds. */
export function micros(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1_000_000) return `${(us / 1000).toFixed(us < 10_000 ? 1 : 0)} ms`;
  return `${(us / 1_000_000).toFixed(us < 10_000_000 ? 2 : 1)} s`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

/** The time of day. */
export function at(moment) {
  return h("time", { datetime: moment, title: `${exact.format(new Date(moment))} · ${moment}` }, clock.format(new Date(moment)));
}

/** Date and time. */
export function full(moment) {
  return h("time", { datetime: moment, title: moment }, exact.format(new Date(moment)));
}

/** How long ago; the exact moment on hover. Kept up to date by `tick`. */
export function ago(moment) {
  return h("time", { datetime: moment, title: exact.format(new Date(moment)), data: { since: moment } }, since(moment));
}

/** The day, as a heading says it. */
export function dayOf(moment) {
  const date = new Date(moment);
  const today = new Date(now());
  if (date.toDateString() === today.toDateString()) return "Today";
  return day.format(date);
}

/** How long is left. Kept up to date by `tick`. */
export function left(until, from) {
  const data = { until };
  if (from !== undefined) data.from = from;
  return h("span", { class: "left", data, role: "timer" }, span(Date.parse(until) - now()));
}

/** Brings every shown span up to date. */
export function tick(root) {
  for (const one of root.querySelectorAll("[data-since]")) one.textContent = since(one.dataset.since);
  for (const one of root.querySelectorAll("[data-until]")) {
    const rest = Date.parse(one.dataset.until) - now();
    const text = rest > 0 ? span(rest) : "expired";
    if (one.textContent !== text) one.textContent = text;
    one.classList.toggle("soon", rest > 0 && rest < 60_000);
    one.classList.toggle("over", rest <= 0);
    if (rest <= 0 && one.dataset.ended === undefined) {
      one.dataset.ended = "yes";
      one.dispatchEvent(new CustomEvent("ended", { bubbles: true }));
    }
  }
  for (const one of root.querySelectorAll("progress[data-ends]")) {
    one.value = Math.max(0, Date.parse(one.dataset.ends) - now());
  }
}
