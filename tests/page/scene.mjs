// The real binary with an upstream, an agent on its line and a browser before its page. Everything listens on loopback, lives
// in a folder of its own and ends with the tests.
import { spawn, execFileSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";

export const HERE = path.dirname(fileURLToPath(import.meta.url));
export const ROOT = path.resolve(HERE, "../..");
const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? "target");
const BINARY = process.env.COUNTERSIGN_BIN ?? path.join(TARGET, "debug/countersign");
/** Where pictures and logs go. */
export const OUT = process.env.PAGE_OUT ?? path.join(TARGET, "page");
const need = createRequire(path.join(ROOT, ".cache/page/"));
const { chromium } = need("playwright-core");
/** The source of the accessibility checks. */
export const AXE = fs.readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");

const CONFIGURATION = (room) => `
[gateway]
mode = "execute"
store = "sqlite:${room}/ledger.db"

[upstreams.notes]
command = "${process.execPath}"
args = ["${HERE}/upstream.mjs", "${room}/notes.json"]

[upstreams.jobs]
[[upstreams.jobs.tools]]
name = "build"
description = "Builds something, slowly"
input = { what = { type = "string" } }
run = ["sh", "${room}/build.sh", "{what}"]
effect = "write"
background = true

[confirm]
hold = "0s"

[upstreams.orders]
kind = "demo"

[upstreams.memory]
kind = "memory"

[upstreams.hostile]
command = "${process.execPath}"
args = ["${HERE}/upstream.mjs", "${room}/hostile.json", "hostile"]

[upstreams.gone]
command = "sh"
args = ["-c", "echo the database is not there >&2; exit 3"]

[[rules]]
match = "notes:set_fields"
preview = { arg = "preview", preview = true, apply = false }
[[rules]]
match = "notes:tag_note"
preview = { tool = "read_note" }

[[rules]]
match = "notes:delete_note"
confirm = "type"
type_field = "title"
strength = "human"

[[rules]]
match = ["notes:write_note", "notes:tag_note", "notes:move_note", "notes:set_fields", "notes:edit_file", "notes:take_anything", "notes:fail"]
confirm = "preview"
strength = "human"

[[rules]]
match = ["orders:*", "hostile:*"]
strength = "human"

[[rules]]
match = ["jobs:*", "memory:store"]
confirm = "none"
`;

/** A house: a gateway over HTTP with a page, in a folder of its own. */
export async function open() {
  const room = fs.mkdtempSync(path.join(os.tmpdir(), "countersign-page-"));
  fs.writeFileSync(path.join(room, "countersign.toml"), CONFIGURATION(room));
  fs.writeFileSync(path.join(room, "build.sh"), 'echo "building $1"\ni=0\nwhile [ $i -lt 600 ]; do i=$((i+1)); echo "line $i"; sleep 0.2; done\n');
  const env = { PATH: process.env.PATH, HOME: room, XDG_CONFIG_HOME: room, XDG_DATA_HOME: room, TMPDIR: room, USER: "mara", LANG: "C.UTF-8" };
  const said = [];
  let gateway = null;
  const start = (address) => new Promise((resolve, reject) => {
    gateway = spawn(BINARY, ["serve", "--http", address, "--config", "countersign.toml"], { cwd: room, env, stdio: ["ignore", "ignore", "pipe"] });
    readline.createInterface({ input: gateway.stderr }).on("line", (line) => {
      said.push(line);
      const found = /listening on (http:\/\/[^/\s]+)/.exec(line);
      if (found) resolve(found[1]);
    });
    gateway.on("exit", (code) => reject(new Error(`the gateway ended (${code}):\n${said.join("\n")}`)));
    setTimeout(() => reject(new Error(`the gateway did not start:\n${said.join("\n")}`)), 30_000).unref();
  });
  const stop = async () => {
    const ended = new Promise((resolve) => gateway.once("exit", resolve));
    gateway.kill("SIGTERM");
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 4000).unref())]);
    if (gateway.exitCode === null) gateway.kill("SIGKILL");
  };
  const url = await start("127.0.0.1:0");
  const run = (...args) => execFileSync(BINARY, args, { cwd: room, env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const close = async () => {
    await stop();
    fs.mkdirSync(OUT, { recursive: true });
    fs.writeFileSync(path.join(OUT, "gateway.log"), said.join("\n"));
    fs.rmSync(room, { recursive: true, force: true });
  };
  const secret = run("token", "create", "--role", "agent", "--name", "page-agent", "--config", "countersign.toml").trim();
  return { room, url, run, secret, close, stop, start: () => start(url.slice("http://".length)), notes: () => JSON.parse(fs.readFileSync(path.join(room, "notes.json"), "utf8")) };
}

/** A one-time link for the person of this house. */
export function link(house) {
  return JSON.parse(house.run("open", "--print", "--json", "--config", "countersign.toml", "--url", house.url)).data.link;
}

/** An agent on the gateway's line. */
export async function agent(house, headers = { authorization: `Bearer ${house.secret}` }) {
  let number = 0;
  let session = null;
  const send = async (method, params, isNotice) => {
    const answer = await fetch(`${house.url}/mcp`, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...(session ? { "mcp-session-id": session } : {}), ...headers },
      body: JSON.stringify({ jsonrpc: "2.0", method, params, ...(isNotice ? {} : { id: ++number }) }),
    });
    session ??= answer.headers.get("mcp-session-id");
    const text = await answer.text();
    if (isNotice) return null;
    const last = answer.headers.get("content-type")?.startsWith("text/event-stream") ? text.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).filter((line) => line !== "").at(-1) : text;
    const said = JSON.parse(last);
    if (said.error) throw new Error(JSON.stringify(said.error));
    return said.result;
  };
  await send("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test-host", version: "4.2" } });
  await send("notifications/initialized", {}, true);
  const tool = (name, args, meta) => send("tools/call", { name, arguments: args, ...(meta ? { _meta: meta } : {}) });
  const call = async (effect, name, args, more = {}, reason = "because the test says so", meta) => {
    const result = await tool(`call_tool_${effect}`, { name, args, intent: { operation_type: effect, data_sensitivity: "internal", reason }, ...more }, meta);
    return { result, data: result.structuredContent?.data, error: result.structuredContent?.errors?.[0] };
  };
  /** Asks for a plan and gives what the agent holds of it. */
  const ask = async (effect, name, args, reason, meta) => {
    const { data, error } = await call(effect, name, args, {}, reason, meta);
    if (data?.status !== "confirmation_required") throw new Error(`no plan: ${JSON.stringify({ data, error })}`);
    return { ...data, again: () => call(effect, name, args, { confirm_token: data.confirm_token, yes: true }, reason) };
  };
  return { tool, call, ask };
}

/** A browser; `visit` gives a signed-in tab that fails the test on any error of the page. */
export async function browse(house) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  const trouble = [];
  const visit = async (options = {}) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: "en-GB", timezoneId: "UTC", ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    page.on("console", (message) => {
      if (message.type() === "error" && !/Failed to load resource/.test(message.text())) trouble.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => trouble.push(`page: ${error.message}`));
    page.on("dialog", (dialog) => {
      trouble.push(`a dialog opened: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(`${house.url}/`) && !request.url().startsWith("data:")) trouble.push(`asked elsewhere: ${request.url()}`);
    });
    await page.goto(link(house));
    await page.getByRole("heading", { name: "Inbox" }).waitFor();
    return page;
  };
  return { browser, visit, trouble, close: () => browser.close() };
}
