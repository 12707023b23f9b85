// The REST API and the event stream. Keeps the session's CSRF token in memory and no other secret.
import { learn } from "./time.js";
import { parse } from "./value.js";
import { EVENT_NAMES } from "./vocabulary.js";

const ROOT = "/api/v1";
let csrf = null;

/** An error answer: code, message, and what to do next. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.details = error.details ?? {};
  }
}

function query(filters) {
  const all = Object.entries(filters ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return all.length === 0 ? "" : `?${new URLSearchParams(all)}`;
}

/** Tells the frame whether the gateway answers. */
function reached(is) {
  document.dispatchEvent(new CustomEvent("reached", { detail: is }));
}

async function ask(method, path, body) {
  const headers = { accept: "application/json" };
  if (method !== "GET" && csrf !== null) headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(ROOT + path, { method, headers, body: sent, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch {
    reached(false);
    throw new Refused(0, { code: "E_UNREACHABLE", message: "the gateway does not answer", details: { next_actions: ["check that `countersign serve` is running; this page retries by itself"] } });
  }
  reached(true);
  learn(answer.headers.get("date"));
  const text = await answer.text();
  let said = null;
  try {
    said = text === "" ? { success: answer.ok, data: {} } : parse(text);
  } catch {
    // Not our JSON: reported below.
  }
  if (answer.ok && said?.success === true) return said.data;
  throw new Refused(answer.status, said?.error ?? { code: "E_ANSWER", message: `the gateway answered ${answer.status} without saying why` });
}

/** Reads. */
export function get(path, filters) {
  return ask("GET", path + query(filters));
}

/** Changes something. */
export function post(path, body = {}) {
  return ask("POST", path, body);
}

/** Takes something away. */
export function remove(path) {
  return ask("DELETE", path);
}

/** Where a file of rows can be had from. */
export function address(path, filters) {
  return ROOT + path + query(filters);
}

/** Who is signed in. Keeps the CSRF token for what follows. */
export async function whoAmI() {
  const me = await get("/me");
  csrf = me.csrf_token ?? null;
  return me;
}

const SHARED = "countersign-events";
/** How often a page without events asks for itself, in milliseconds. */
const POLL = 5000;
/** How long to wait before a stream that was refused is tried again. */
const AGAIN = 2000;

/**
 * Events as they come: `heard(kind, data)` for each, `state(up)` when the connection comes or goes. Comes back by itself.
 *
 * All tabs of a browser share one stream: browsers allow six connections to a host, and a stream in every tab would use them
 * up. The tab that holds the lock reads it and passes events on; when it closes, the next one takes over.
 */
export function listen(heard, state) {
  if (navigator.locks === undefined || typeof BroadcastChannel !== "function") return poll(heard, state);
  const channel = new BroadcastChannel(SHARED);
  const take = ({ type, text }) => {
    let data = {};
    try {
      data = parse(text);
    } catch {
      // An event without readable data still says that something happened.
    }
    heard(data.kind ?? type, data);
  };
  let up = false;
  let leads = false;
  channel.onmessage = ({ data }) => {
    if (data.ask === true) {
      if (leads) channel.postMessage({ up });
    } else if (data.up !== undefined) state(data.up);
    else take(data);
  };
  channel.postMessage({ ask: true });
  const lead = () => {
    leads = true;
    open((event) => { take(event); channel.postMessage(event); }, (now) => {
      up = now;
      state(now);
      channel.postMessage({ up: now });
    });
    // Held as long as this page is open.
    return new Promise(() => {});
  };
  navigator.locks.request(SHARED, lead).catch(() => poll(heard, state));
}

/** Opens the stream itself. Whoever reads it may have missed something before: everything is read again. */
function open(pass, state) {
  const reset = () => pass({ type: "reset", text: '{"kind":"plan.reset"}' });
  const source = new EventSource(`${ROOT}/events`);
  for (const name of EVENT_NAMES) source.addEventListener(name, (event) => pass({ type: event.type, text: event.data }));
  source.addEventListener("open", () => { state(true); reset(); });
  source.addEventListener("error", () => {
    state(false);
    // A browser gives up on an answer that is no stream: a gateway that starts again, a session that ended, too many streams.
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    reset();
    setTimeout(() => open(pass, state), AGAIN);
  });
}

/** Without a way to share a stream, the page asks again and again. */
function poll(heard, state) {
  state(true);
  setInterval(() => heard("plan.reset", { kind: "plan.reset" }), POLL);
}
