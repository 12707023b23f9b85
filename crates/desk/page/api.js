// The gateway's REST, as the page uses it: one place for requests, refusals and events. Holds no secret but the CSRF token
// of this session, and that in memory only.
import { learn } from "./time.js";
import { parse } from "./value.js";

const ROOT = "/api/v1";
let csrf = null;

/** The law said no, or something broke: code, sentence, and what to do next. */
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

async function ask(method, path, body) {
  const headers = { accept: "application/json" };
  if (method !== "GET" && csrf !== null) headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(ROOT + path, { method, headers, body: sent, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch {
    throw new Refused(0, { code: "E_UNREACHABLE", message: "the gateway does not answer", details: { next_actions: ["see whether `countersign serve` still runs; this page tries again by itself"] } });
  }
  learn(answer.headers.get("date"));
  const text = await answer.text();
  let said = null;
  try {
    said = text === "" ? { success: answer.ok, data: {} } : parse(text);
  } catch {
    // Not ours: said below.
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

const KINDS = ["plan", "activity", "upstream", "tool", "run", "grant", "credential", "pause", "policy", "memory", "reset", "message"];

/** Events as they come: `heard(kind, data)` for each, `state(up)` when the line comes or goes. Comes back by itself. */
export function listen(heard, state) {
  const source = new EventSource(`${ROOT}/events`);
  const take = (event) => {
    let data = {};
    try {
      data = parse(event.data);
    } catch {
      // An event without readable data still says that something happened.
    }
    heard(data.kind ?? event.type, data);
  };
  for (const kind of KINDS) source.addEventListener(kind, take);
  source.addEventListener("open", () => state(true));
  source.addEventListener("error", () => {
    state(false);
    // A browser gives up on an answer that is no stream: a gateway that starts again, or a session that ended.
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(() => listen(heard, state), 2000);
  });
}
