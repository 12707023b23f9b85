// The pending plans, shared by all views and read again on every event.
import { get } from "./api.js";
import { now } from "./time.js";

const watchers = new Set();
let plans = [];
let loaded = false;
let asking = null;
let again = false;

/** Pending plans that have not expired, the next deadline first. */
export function waiting() {
  return plans.filter((plan) => Date.parse(plan.expires_at) > now());
}

/** Whether the list was ever read. */
export function isLoaded() {
  return loaded;
}

/** Calls back after each change; the result ends that. */
export function watch(back) {
  watchers.add(back);
  return () => watchers.delete(back);
}

async function read() {
  const all = [];
  let cursor;
  do {
    const page = await get("/plans", { state: "pending", limit: 1000, cursor });
    all.push(...page.plans);
    cursor = page.next_cursor;
  } while (cursor);
  all.sort((one, other) => Date.parse(one.expires_at) - Date.parse(other.expires_at));
  plans = all;
  loaded = true;
}

/** Reads the list again. Many calls at once become one more reading. */
export async function refresh() {
  if (asking !== null) {
    again = true;
    return asking;
  }
  asking = (async () => {
    try {
      do {
        again = false;
        await read();
      } while (again);
    } finally {
      asking = null;
    }
    for (const back of watchers) back();
  })();
  return asking;
}

/** Forgets a plan that was just decided here, before the next reading says so. */
export function forget(id) {
  plans = plans.filter((plan) => plan.plan_id !== id);
  for (const back of watchers) back();
}

/** How often plans whose calls are held open are read again: their agents may leave at any time. */
const LOOK_AGAIN = 4000;
setInterval(() => {
  if (watchers.size > 0 && waiting().some((plan) => plan.call_waits_until)) refresh().catch(() => {});
}, LOOK_AGAIN);

/** Plans that ask for the same tool for the same principal, in the order of the first of each. */
export function groups(all) {
  const found = new Map();
  for (const plan of all) {
    const alone = (plan.steps ?? []).length > 0;
    const key = alone ? plan.plan_id : JSON.stringify([plan.tool, plan.principal, plan.effect]);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(plan);
  }
  return [...found.values()];
}
