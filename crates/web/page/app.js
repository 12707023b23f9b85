// The frame of the page: sign-in, navigation, live events, keys. Each view is a module of its own.
import * as activity from "./activity.js";
import { listen, remove, whoAmI } from "./api.js";
import * as credentials from "./credentials.js";
import { h, put } from "./dom.js";
import * as grants from "./grants.js";
import * as inbox from "./inbox.js";
import { announce, command, notice, trouble } from "./parts.js";
import { refresh, waiting, watch } from "./pending.js";
import * as overview from "./overview.js";
import * as plan from "./plan.js";
import * as policy from "./policy.js";
import * as runs from "./runs.js";
import { line, plain } from "./safe.js";
import * as signin from "./signin.js";
import * as call_history from "./call_history.js";
import { tick } from "./time.js";
import { EVENT_NAMES } from "./vocabulary.js";
import * as similar_plans from "./similar_plans.js";
import * as tools from "./tools.js";
import * as upstreams from "./upstreams.js";

const PLACES = [["/", "Inbox", "i"], ["/overview", "Overview", "o"], ["/activity", "Activity", "y"], ["/tools", "Tools", "t"], ["/upstreams", "Upstreams", "s"], ["/runs", "Runs", "n"], ["/grants", "Grants", "g"], ["/credentials", "Credentials", "c"], ["/policy", "Policy", "p"]];
const ROUTES = [
  [/^\/$/, inbox.view], [/^\/plans$/, inbox.view], [/^\/plans\/([^/]+)$/, plan.view], [/^\/together$/, similar_plans.view],
  [/^\/overview$/, overview.view], [/^\/activity$/, activity.view], [/^\/activity\/([^/]+)$/, call_history.view], [/^\/tools$/, tools.view], [/^\/tools\/([^/]+)$/, tools.one],
  [/^\/upstreams$/, upstreams.view], [/^\/runs$/, runs.view], [/^\/runs\/([^/]+)$/, runs.one], [/^\/grants$/, grants.view],
  [/^\/credentials$/, credentials.view], [/^\/policy$/, policy.view],
];

const main = document.getElementById("main");
const side = document.getElementById("side");
const shell = { go, me: null };
let current = null;
let turn = 0;
let up = null;

function titled() {
  const count = waiting().length;
  document.title = `${count > 0 ? `(${count}) ` : ""}${current?.title ? `${plain(current.title)} · ` : ""}Countersign`;
  const badge = document.getElementById("count");
  if (badge) {
    badge.textContent = count > 0 ? String(count) : "";
    badge.hidden = count === 0;
  }
}

async function show() {
  const mine = ++turn;
  const path = location.pathname.length > 1 ? location.pathname.replace(/\/$/, "") : "/";
  const filters = new URLSearchParams(location.search);
  let found = null;
  for (const [pattern, view] of ROUTES) {
    const match = pattern.exec(path);
    if (match !== null) found = () => view(shell, match[1] === undefined ? undefined : decodeURIComponent(match[1]), filters);
  }
  let next;
  try {
    main.setAttribute("aria-busy", "true");
    next = found === null ? lost() : await found();
  } catch (error) {
    if (error.status === 401 && shell.me !== null) return start();
    if (error.code === undefined) console.error(error);
    next = { title: "Trouble", failed: true, node: h("div", { class: "page" }, h("h1", null, "This page can't be shown"), trouble(error), h("p", null, h("a", { href: "/" }, "Back to the inbox"))) };
  }
  if (mine !== turn) return next.leave?.();
  current?.leave?.();
  current = next;
  main.removeAttribute("aria-busy");
  put(main, next.node);
  tick(main);
  titled();
  place(path);
  next.shown?.();
}

function lost() {
  return { title: "Not here", node: h("div", { class: "page" }, h("h1", null, "There is nothing here"), h("p", null, h("a", { href: "/" }, "Back to the inbox"))) };
}

/** Goes to another address of the page. */
function go(to) {
  history.pushState(null, "", to);
  side.classList.remove("open");
  show().then(() => {
    if (document.activeElement === document.body || !main.contains(document.activeElement)) main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  });
}

function place(path) {
  for (const link of side.querySelectorAll("nav a")) {
    const to = link.getAttribute("href");
    const here = to === "/" ? path === "/" || path.startsWith("/plans") || path.startsWith("/together") : path === to || path.startsWith(`${to}/`);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function themeButton() {
  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => (isDark() ? "Light" : "Dark");
  const button = h("button", { type: "button", class: "quiet", id: "theme" }, label());
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("countersign-theme", chosen);
    } catch {
      // No storage: the choice lasts until the page is closed.
    }
    button.textContent = label();
  });
  return button;
}

function drawSide() {
  const menu = h("button", { type: "button", class: "menu", "aria-expanded": "false", "aria-controls": "places" }, "Menu");
  menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(side.classList.toggle("open"))));
  const link = ([to, name]) => h("li", null, h("a", { href: to }, name, to === "/" ? h("span", { id: "count", class: "count", hidden: true, "aria-label": "plans waiting" }) : null));
  put(side,
    h("a", { class: "brand", href: "/" }, h("img", { src: "/page/mark.svg", alt: "", width: 22, height: 22 }), "Countersign"),
    menu,
    h("nav", { id: "places", "aria-label": "Places" }, h("ul", null, PLACES.map(link))),
    h("div", { class: "foot" },
      h("p", { id: "line", class: "live" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", null, "connecting")),
      h("p", { class: "me" }, line(shell.me?.principal ?? "")),
      h("p", { class: "row" }, themeButton(), h("button", { type: "button", class: "quiet", on: { click: help } }, "Keys ?"), h("button", { type: "button", class: "quiet", on: { click: leave } }, "Sign out"))));
}

/** How often a gateway that is away is asked whether it is back. */
const ASK_AGAIN = 1500;
let away = null;

/** The gateway does not answer: says so across the page until it does, and asks again and again. */
function showAway() {
  if (away !== null) return;
  const banner = h("div", { class: "away", role: "alert" }, h("b", null, "The gateway is away."), " What you see may be out of date, and nothing can be decided. This page asks again by itself.");
  away = { banner, timer: setInterval(check, ASK_AGAIN) };
  document.body.prepend(banner);
  document.body.classList.add("is-away");
}

/** It answers again: nothing of its absence stays on the page, and the view reads everything again. */
function showBack() {
  if (away === null) return;
  clearInterval(away.timer);
  away.banner.remove();
  away = null;
  document.body.classList.remove("is-away");
  for (const one of document.querySelectorAll('.trouble[data-code="E_UNREACHABLE"]')) (one.closest(".notice") ?? one).remove();
  announce("The gateway is back");
  refresh().catch(() => {});
  if (current?.failed) show();
  else for (const name of EVENT_NAMES) current?.heard?.(name, {});
}

function lineState(now) {
  if (up === now) return;
  const came = up === false && now;
  up = now;
  const place = document.getElementById("line");
  if (place) {
    place.className = `live ${now ? "up" : "down"}`;
    place.lastChild.textContent = now ? "live" : "trying again";
  }
  if (!now) return check();
  if (came) {
    announce("Live again");
    refresh().catch(() => {});
    current?.heard?.("plan", {});
  }
}

/** Reloads the page if the session ended: the sign-in page follows. Whether the gateway answers is noticed on the way. */
async function check() {
  try {
    await whoAmI();
  } catch (error) {
    if (error.status === 401) location.reload();
  }
}

async function leave() {
  try {
    await remove("/session");
  } catch (error) {
    if (error.code === undefined) throw error;
  }
  location.assign("/");
}

function help() {
  const keys = [["j, k", "next, previous plan"], ["Enter", "open the plan"], ["a", "go to approve; Enter then approves"], ["r", "go to reject; Enter then rejects"], ["u", "up to the list"], ["/", "to the search field"], ["g then a letter", "go: i inbox, o overview, y activity, t tools, s upstreams, n runs, g grants, c credentials, p policy"], ["?", "this help"], ["Esc", "close, leave a field"]];
  const box = h("dialog", { class: "help", "aria-label": "Keys" }, h("form", { method: "dialog" }, h("h2", null, "Keys"), h("dl", { class: "facts" }, keys.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])), h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Close"))));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

let prefix = 0;
function pressed(event) {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "Escape" && typing && typing.tagName !== "DIALOG") return event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (Date.now() - prefix < 1500) {
    prefix = 0;
    const to = PLACES.find(([, , letter]) => letter === event.key);
    if (to) {
      event.preventDefault();
      return go(to[0]);
    }
  }
  const act = event.key === "?" ? help : current?.keys?.[event.key];
  if (act) {
    event.preventDefault();
    return act();
  }
  if (event.key === "g") prefix = Date.now();
}

function clicked(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const to = link.getAttribute("href");
  if (!to.startsWith("/") || to.startsWith("/api/") || to.startsWith("//") || link.hasAttribute("download")) return;
  event.preventDefault();
  go(to);
}

/** Collects a burst of events, so that the views read once for all of them. */
function hearing() {
  let timer = null;
  let kept = new Map();
  return (kind, data) => {
    kept.set(`${kind} ${data.plan_id ?? ""}`, [kind, data]);
    timer ??= setTimeout(() => {
      const all = [...kept.values()];
      timer = null;
      kept = new Map();
      if (all.some(([one]) => one.startsWith("plan"))) refresh().catch(() => {});
      for (const [one, about] of all) current?.heard?.(one, about);
    }, 60);
  };
}

function begin() {
  document.body.classList.remove("out");
  drawSide();
  watch(titled);
  listen(hearing(), lineState);
  document.addEventListener("reached", ({ detail }) => (detail ? showBack() : showAway()));
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", clicked);
  window.addEventListener("popstate", show);
  setInterval(() => tick(document), 1000);
  setInterval(titled, 5000);
  show();
  if (location.pathname !== "/") refresh().catch(() => {});
}

let begun = false;
async function start() {
  try {
    shell.me = await whoAmI();
  } catch (error) {
    if (error.code === undefined) throw error;
    shell.me = null;
    document.body.classList.add("out");
    put(side);
    document.title = "Sign in · Countersign";
    window.addEventListener("focus", follow);
    return put(main, error.status === 401 || error.status === 403 ? signin.node(start) : h("div", { class: "page" }, h("h1", null, "The gateway does not answer"), trouble(error), command("countersign serve --http 127.0.0.1:7878"), h("p", null, h("button", { type: "button", class: "primary", on: { click: start } }, "Try again"))));
  }
  if (begun) return location.reload();
  begun = true;
  window.removeEventListener("focus", follow);
  begin();
}

/** The command on the sign-in page signs in over a tab of its own: this one stays at its address and follows. */
async function follow() {
  try {
    await whoAmI();
  } catch {
    return;
  }
  await start();
}

await signin.exchange(notice);
await start();
