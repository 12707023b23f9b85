// What a test of a card needs: a real gateway with the order desk behind it, a real MCP client, a real browser with the official host.

import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
const require = createRequire(path.join(root, '.cache/cards/package.json'));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { getToolUiResourceUri, isToolVisibilityAppOnly } = await import(require.resolve('@modelcontextprotocol/ext-apps/app-bridge'));
const esbuild = require('esbuild');
const puppeteer = require('puppeteer-core');
const Ajv = require('ajv/dist/2020').default;
export const appsSchema = require('@modelcontextprotocol/ext-apps/schema.json');
export { getToolUiResourceUri, isToolVisibilityAppOnly, Ajv };

export const MIME = 'text/html;profile=mcp-app';
export const EXTENSION = 'io.modelcontextprotocol/ui';
// The policy of the specification for a card that declares none.
export const CSP = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; base-uri 'self'";

/** Who the clients are, in plans and in the ledger. */
export const PRINCIPAL = 'test-host';

export const binary = process.env.COUNTERSIGN ?? path.join(root, 'target/debug/countersign');
const ends = [];
const secrets = new Map();
export async function end() { for (const one of ends.reverse()) await one(); ends.length = 0; }

/** A gateway on a free port; `config` is added to a configuration with the order desk in execute mode. */
export async function gateway({ config = '', ttl = '5m', surface = 'router' } = {}) {
  const folder = mkdtempSync(path.join(tmpdir(), 'countersign-cards-'));
  const file = path.join(folder, 'countersign.toml');
  writeFileSync(file, `[gateway]\nmode = "execute"\nsurface = "${surface}"\n[confirm]\nttl = "${ttl}"\nhold = "0s"\nstrength = { write = "caller" }\n[upstreams.orders]\nkind = "demo"\n${config}\n`);
  const child = spawn(binary, ['serve', '--config', file, '--http', '127.0.0.1:0'], { stdio: ['ignore', 'ignore', 'pipe'], env: { PATH: process.env.PATH, HOME: folder } });
  const url = await new Promise((resolve, reject) => {
    let told = '';
    child.stderr.on('data', (more) => {
      told += more;
      const found = told.match(/listening on (http:\S+\/mcp)/);
      if (found) resolve(found[1]);
    });
    child.on('exit', () => reject(new Error(`the gateway ended: ${told}`)));
  });
  const stop = async () => {
    if (child.exitCode === null) { child.removeAllListeners('exit'); const gone = new Promise((resolve) => child.on('exit', resolve)); child.kill('SIGTERM'); await gone; }
    rmSync(folder, { recursive: true, force: true });
  };
  ends.push(stop);
  const cli = (...args) => {
    const ran = spawnSync(binary, [...args, '--config', file, '--json'], { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: folder, USER: 'dana' } });
    return JSON.parse(ran.stdout || '{}');
  };
  // A host that shows cards holds a credential that lets it answer them.
  secrets.set(new URL(url).origin, cli('token', 'create', '--role', 'agent', '--name', PRINCIPAL, '--may-vouch').data.secret);
  return { url, cli, folder };
}

/** An MCP client that shows cards, or one that does not. */
export async function client(url, { cards = true, era, secret = secrets.get(new URL(url).origin) } = {}) {
  const capabilities = cards ? { extensions: { [EXTENSION]: { mimeTypes: [MIME] } } } : {};
  const made = new Client({ name: 'test-host', version: '1' }, { capabilities, ...(era ? { versionNegotiation: { mode: era } } : {}) });
  await made.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${secret}` } } }));
  ends.push(() => made.close().catch(() => {}));
  return made;
}

/** `countersign demo` that waits for a person: the link it prints, and everything it said once it ended. */
export function demonstration() {
  const folder = mkdtempSync(path.join(tmpdir(), 'countersign-cards-'));
  const child = spawn(binary, ['demo', '--print'], { stdio: ['ignore', 'pipe', 'inherit'], env: { PATH: process.env.PATH, HOME: folder, USER: 'dana' } });
  ends.push(() => { if (child.exitCode === null) child.kill('SIGTERM'); rmSync(folder, { recursive: true, force: true }); });
  let told = '';
  const waits = [];
  child.stdout.on('data', (more) => { told += more; for (const wait of waits) wait(); });
  /** What the terminal shows once it fits. */
  const says = (fits) => new Promise((resolve, reject) => {
    const patience = setTimeout(() => reject(new Error(`the demonstration does not say ${fits}: ${told}`)), 20000);
    const look = () => { const found = told.match(fits); if (found) { clearTimeout(patience); resolve(found[0]); } };
    waits.push(look);
    look();
  });
  return { link: says(/http:\S+#code=\S+/), says, interrupt: () => child.kill('SIGINT') };
}

/** What an agent does with the text of a card: reads it with Python's own parser. */
export function parsed(text) {
  const ran = spawnSync('python3', [path.join(here, 'call.py')], { input: text, encoding: 'utf8' });
  if (ran.status !== 0) throw new Error(`not a call: ${text}\n${ran.stderr}`);
  return JSON.parse(ran.stdout);
}

function serve(routes, headers = {}) {
  return new Promise((resolve) => {
    const server = createServer((request, response) => {
      const body = routes[new URL(request.url, 'http://x').pathname];
      if (body === undefined) { response.writeHead(204); return response.end(); }
      const type = request.url.endsWith('.js') ? 'text/javascript' : 'text/html';
      response.writeHead(200, { 'content-type': `${type}; charset=utf-8`, ...headers });
      response.end(body);
    });
    server.listen(0, '127.0.0.1', () => {
      ends.push(() => new Promise((done) => { server.closeAllConnections(); server.close(done); }));
      resolve(`http://127.0.0.1:${server.address().port}`);
    });
  });
}

let stage;
/** The browser, and two origins: the host's page and the sandbox with the default policy. */
export async function browser() {
  if (stage) return stage;
  const bundle = await esbuild.build({ entryPoints: [path.join(here, 'host.mjs')], bundle: true, format: 'iife', write: false, nodePaths: [path.join(root, '.cache/cards/node_modules')], logLevel: 'error' });
  const page = '<!doctype html><meta charset="utf-8"><title>host</title><style>html,body{margin:0;height:100%}</style><body><script src="/host.js"></script>';
  const hostOrigin = await serve({ '/': page, '/host.js': bundle.outputFiles[0].text });
  const sandboxOrigin = await serve({ '/': readFileSync(path.join(here, 'sandbox.html')) }, { 'content-security-policy': CSP });
  const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((file) => spawnSync('test', ['-x', file]).status === 0);
  const running = await puppeteer.launch({ executablePath, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
  ends.push(() => running.close());
  stage = { running, hostOrigin, sandboxOrigin };
  return stage;
}

/** One card in the host, for a call that was made: its frame, and everything that was said. */
export async function card(mcp, { html, capabilities, context, width = 640, height = 900, faults, answer }) {
  const { running, hostOrigin, sandboxOrigin } = await browser();
  const page = await running.newPage();
  await page.setViewport({ width, height, deviceScaleFactor: 2 });
  const trouble = [];
  // About the harness’s own frames, as every web host has them.
  const own = /allow-scripts and allow-same-origin/;
  page.on('console', (line) => { if (['error', 'warn'].includes(line.type()) && !own.test(line.text())) trouble.push(line.text()); });
  page.on('pageerror', (error) => trouble.push(String(error)));
  const messages = []; const contexts = []; const calls = []; const links = [];
  const tools = (await mcp.listTools()).tools;
  await page.exposeFunction('toServer', async (params) => {
    calls.push(params);
    const known = tools.find((tool) => tool.name === params.name);
    // A host must reject what an app may not call.
    const visibility = known?._meta?.ui?.visibility ?? ['model', 'app'];
    if (!known || !visibility.includes('app')) throw new Error(`tool ${params.name} is not for apps`);
    if (answer) { const made = await answer(params); if (made) return made; }
    return await mcp.callTool(params);
  });
  await page.exposeFunction('toAgent', async (params) => { messages.push(params); });
  await page.exposeFunction('toContext', async (params) => { contexts.push(params); });
  await page.exposeFunction('toBrowser', async (url) => { links.push(url); });
  await page.goto(hostOrigin);
  await page.evaluate((given) => window.openCard(given), { html, capabilities, context, faults, sandbox: sandboxOrigin });
  const frame = page.frames().find((one) => one.parentFrame()?.parentFrame() === page.mainFrame());
  const made = {
    page, frame, trouble, messages, contexts, calls, links,
    input: (given) => page.evaluate((given) => window.bridge.sendToolInput({ arguments: given }), given),
    result: (given) => page.evaluate((given) => window.bridge.sendToolResult(given), given),
    said: () => page.evaluate(() => window.said),
    text: () => frame.evaluate(() => document.body.innerText),
    state: () => frame.$eval('#card', (card) => card.dataset.state),
    shown: (id) => frame.$eval(`#${id}`, (one) => !one.hidden && one.offsetParent !== null),
    value: (id) => frame.$eval(`#${id}`, (one) => one.textContent),
    disabled: (id) => frame.$eval(`#${id}`, (one) => one.disabled),
    click: (id) => frame.$eval(`#${id}`, (one) => one.click()),
    until: (state, patience = 8000) => frame.waitForFunction((state) => document.getElementById('card').dataset.state === state, { timeout: patience }, state),
    shot: async (name) => {
      if (!process.env.CARD_PICTURES) return;
      const tall = await frame.evaluate(() => Math.ceil(document.getElementById('card').getBoundingClientRect().height));
      await page.screenshot({ path: path.join(process.env.CARD_PICTURES, `${name}.png`), clip: { x: 0, y: 0, width, height: Math.min(tall, height) } });
    },
    close: () => page.close(),
  };
  return made;
}

/** The text of a card as the server gives it. */
export async function read(mcp, uri) {
  const read = await mcp.readResource({ uri });
  return read.contents[0];
}
