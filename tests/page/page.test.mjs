// The page in a real Chromium against the real binary: what a person sees, decides, and can rely on.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { SHORT_TEXT, TEXT, notEscaped } from "../invisible.mjs";
import { agent, browse, link, open } from "./scene.mjs";

let house;
let web;
let page;
let bot;

before(async () => {
  house = await open();
  web = await browse(house);
  page = await web.visit();
  bot = await agent(house);
});
after(async () => {
  await web?.close();
  await house?.close();
});
beforeEach(async () => {
  await resume();
  await clear();
  web.trouble.length = 0;
  await page.goto(`${house.url}/`);
  await page.getByRole("heading", { name: "Inbox" }).waitFor();
});

const quiet = () => assert.deepEqual(web.trouble, []);
const row = (id) => page.locator(`.plan-row[data-plan="${id}"]`);
const press = (name) => page.getByRole("button", { name, exact: true }).click();
const openPlan = async (id) => {
  await page.goto(`${house.url}/plans/${id}`);
  await page.locator(".decide").waitFor();
};
/** Approves and leaves it to the agent to run it. */
const approveOnly = async () => {
  await page.getByText("Other ways to approve").click();
  await press("Approve without running");
};
const state = (word) => page.locator(".plan-title .badge", { hasText: word }).waitFor();
let counter = 0;
const title = (word) => `${word}-${++counter}`;
const write = (name = title("note"), body = "one\ntwo\n", reason) => bot.ask("write", "notes:write_note", { title: name, body }, reason);

test("who is not signed in sees how to get in, and nothing else", async () => {
  const context = await web.browser.newContext();
  const fresh = await context.newPage();
  await fresh.goto(`${house.url}/plans/pln_01KA4Z7Q3V9M5T2X8R6W0YPQRS`);
  await fresh.getByRole("heading", { name: "Sign in to approve" }).waitFor();
  await fresh.getByText("countersign open").first().waitFor();
  assert.equal(await fresh.locator("nav").count(), 0);
  await context.close();
});

test("a link signs in once, and leaves no code in the address", async () => {
  const url = link(house);
  const context = await web.browser.newContext();
  const first = await context.newPage();
  await first.goto(url);
  await first.getByRole("heading", { name: "Inbox" }).waitFor();
  assert.doesNotMatch(first.url(), /code/);
  await context.close();
  const other = await web.browser.newContext();
  const second = await other.newPage();
  await second.goto(url);
  await second.getByRole("heading", { name: "Sign in to approve" }).waitFor();
  await second.getByText("That link can't be used").waitFor();
  await other.close();
});

test("attack_20 the empty inbox says that no change runs on the agent's word, and who agrees", async () => {
  const told = await page.locator(".empty").innerText();
  assert.match(told, /Nothing waits for you/);
  assert.match(told, /By default no change runs on the agent's word alone: you approve here, in the dialog of its host, or with `countersign approve`/);
  quiet();
});

test("a plan appears without reload, is counted in the title and said aloud", async () => {
  const before_ = await page.evaluate(() => (window.marker = Math.random()));
  const plan = await write(title("live"), "hello\n", "so that it is seen");
  await row(plan.plan_id).waitFor();
  assert.equal(await page.evaluate(() => window.marker), before_);
  const count = await page.locator(".plan-row").count();
  await page.waitForFunction((n) => document.title.startsWith(`(${n}) `), count);
  assert.match(await page.locator("#said").textContent(), /New plan: Write note .*notes:write_note, write/);
  await page.locator("#line.up").waitFor();
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  await row(plan.plan_id).waitFor({ state: "detached" });
  quiet();
});

test("a plan shows who, from which host, why, its difference in colour and every argument", async () => {
  const plan = await write("release-plan", "ship on Friday\ntell everybody\nrest\n", "Monday is a holiday");
  await openPlan(plan.plan_id);
  const body = page.locator(".plan-body");
  await body.getByText("Monday is a holiday").waitFor();
  await body.locator(".who-why").getByText("test-host 4.2").waitFor();
  assert.match(await body.locator(".about-plan .facts").textContent(), /the rule .*countersign\.toml/);
  assert.match(await body.locator(".diff .del .code, .diff .code.del").first().textContent(), /ship on Monday/);
  assert.match(await body.locator(".diff .add .code, .diff .code.add").first().textContent(), /ship on Friday/);
  const colours = await page.evaluate(() => ["add", "del"].map((kind) => getComputedStyle(document.querySelector(`.diff .${kind}`)).backgroundColor));
  assert.notEqual(colours[0], colours[1]);
  assert.match(await body.locator("table.values").first().textContent(), /ship on Friday/);
  assert.match(await page.locator(".decide .left").textContent(), /min|s/);
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  await state("cancelled");
  quiet();
});

test("attack_02 what is sent along in _meta is shown with the arguments, hidden characters visible", async () => {
  const plan = await bot.ask("write", "notes:take_anything", { x: 1 }, "why not", { tenant: "acme\u202eevil", progressToken: "p1" });
  await openPlan(plan.plan_id);
  const part = page.locator(".plan-body section", { has: page.getByRole("heading", { name: "Sent with the call (_meta)" }) });
  const text = await part.textContent();
  assert.match(text, /tenant/);
  assert(!text.includes("\u202e") && /acme.*202e.*evil/i.test(text), text);
  assert(!text.includes("p1"), "a progress token is no part of the plan");
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  quiet();
});

test("attack_09 a decision is bound to the expiry on the screen, whatever time the plan was given since", async () => {
  const name = title("bound");
  const plan = await write(name);
  await openPlan(plan.plan_id);
  const shown = plan.confirm_token_expires_at;
  await new Promise((resolve) => setTimeout(resolve, 1100));
  const again = await write(name);
  assert.equal(again.plan_id, plan.plan_id);
  assert(Date.parse(again.confirm_token_expires_at) > Date.parse(shown), "asked again, it has more time");
  const sent = page.waitForRequest((request) => request.url().endsWith("/approve"));
  await approveOnly();
  assert.equal(Date.parse(JSON.parse((await sent).postData()).expires_at), Date.parse(shown));
  await state("approved");
  const kept = (await bot.tool("get_plan", { plan_id: plan.plan_id })).structuredContent.data.plan;
  assert.equal(Date.parse(kept.expires_at), Date.parse(shown));
  quiet();
});

test("what its preview forbids can only be rejected", async () => {
  const plan = await bot.ask("destructive", "orders:delete_purchase_order", { number: "PO-1038" });
  await openPlan(plan.plan_id);
  await page.locator(".decide").getByText("nobody can approve it").waitFor();
  await page.locator(".preview .banner.bad").first().waitFor();
  assert(!(await page.locator(".plan-body").textContent()).includes("BLOCK:"));
  for (const name of ["Approve", "Approve and run"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
  assert.equal(await page.locator(".grant-form").count(), 0);
  await page.keyboard.press("a");
  await press("Reject");
  await state("rejected");
  quiet();
});

test("beside texts for people, what is said to programs is folded; what it warns of is not", async () => {
  const plan = await write(title("for-people"), "new\n", "to see it once");
  await openPlan(plan.plan_id);
  const shown = page.locator(".preview");
  await shown.getByText("Data for programs is folded.").waitFor();
  assert.equal(await shown.locator(".diff").count(), 1);
  await shown.locator(".banner.warn").getByText("it is late").waitFor();
  assert(!/machine_word|audience/.test(await shown.textContent()), await shown.textContent());
  await shown.getByRole("button", { name: "Show all data for programs" }).click();
  assert.match(await shown.textContent(), /machine_word/);
  await press("Reject");
  await state("rejected");
  quiet();
});

test("another tool's answer is a preview, and says whose it is", async () => {
  const plan = await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: "urgent" });
  await openPlan(plan.plan_id);
  assert.match(await page.locator(".preview h2").textContent(), /another tool of the same upstream/);
  assert.match(await page.locator(".preview").textContent(), /tell everybody/);
  await press("Reject");
  await state("rejected");
  quiet();
});

test("changes are shown as old and new", async () => {
  const plan = await bot.ask("write", "notes:set_fields", { title: "release-plan", owner: "mara" });
  await openPlan(plan.plan_id);
  const changes = page.locator(".preview table.changes tbody tr");
  assert.match(await changes.nth(0).textContent(), /owner.*nobody.*→.*mara/);
  assert.equal(await changes.count(), 2);
  await press("Reject");
  await state("rejected");
  quiet();
});

test("approve: the agent's token then runs it, once, exactly as shown", async () => {
  const name = title("approved");
  const plan = await write(name, "countersigned\n");
  assert.equal((await plan.again()).error.code, "E_APPROVAL_PENDING");
  await openPlan(plan.plan_id);
  await approveOnly();
  await state("approved");
  await page.locator(".decide .facts", { hasText: "page, strength human" }).waitFor();
  await plan.again();
  assert.equal(house.notes()[name], "countersigned\n");
  await state("done");
  await page.locator(".outcome", { hasText: `wrote ${name}` }).waitFor();
  assert.equal((await plan.again()).error.code, "E_CONFIRM_TOKEN_USED");
  quiet();
});

test("approve and run: it runs from here, and the agent finds the result", async () => {
  const name = title("ran");
  const plan = await write(name, "from the desk\n");
  await openPlan(plan.plan_id);
  await press("Approve and run");
  await state("done");
  assert.equal(house.notes()[name], "from the desk\n");
  const told = (await bot.tool("get_plan", { plan_id: plan.plan_id })).structuredContent.data.plan;
  assert.equal(told.state, "done");
  assert.match(JSON.stringify(told.result), new RegExp(`wrote ${name}`));
  quiet();
});

test("reject: the note reaches the agent, and nothing runs", async () => {
  const name = title("rejected");
  const plan = await write(name, "no\n");
  await openPlan(plan.plan_id);
  await page.getByLabel("Note").fill("not before the holidays");
  await press("Reject");
  await state("rejected");
  const { error } = await plan.again();
  assert.equal(error.code, "E_APPROVAL_REJECTED");
  assert.match(JSON.stringify(error), /not before the holidays/);
  assert.equal(house.notes()[name], undefined);
  await resume();
  quiet();
});

test("type to confirm: wrong decides nothing, right approves", async () => {
  const name = title("typed");
  const made = await write(name, "to go\n");
  await openPlan(made.plan_id);
  await press("Approve and run");
  await state("done");
  const plan = await bot.ask("destructive", "notes:delete_note", { title: name });
  await openPlan(plan.plan_id);
  const approve = page.getByRole("button", { name: "Approve and run", exact: true });
  assert.equal(await approve.isDisabled(), true);
  const typed = page.getByLabel(`Type the title: ${name}`);
  for (const wrong of [name.toUpperCase(), `${name} `, "yes"]) {
    await typed.fill(wrong);
    await approve.click();
    await page.locator(".decide .trouble", { hasText: "E_CONFIRM_TEXT_MISMATCH" }).waitFor();
    assert.doesNotMatch(await page.locator(".decide .trouble").textContent(), new RegExp(name));
  }
  assert.notEqual(house.notes()[name], undefined);
  await state("pending");
  await typed.fill(name);
  await approve.click();
  await state("done");
  assert.equal(house.notes()[name], undefined);
  quiet();
});

test("what changed since the last approval is folded and calm, and only about the same target", async () => {
  const first = await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: "draft" });
  await openPlan(first.plan_id);
  await approveOnly();
  await state("approved");
  await first.again();
  const second = await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: "final" });
  await openPlan(second.plan_id);
  const since = page.locator(".since");
  assert.equal(await since.getAttribute("open"), null, "folded");
  assert.match(await since.textContent(), /1 of 2 arguments differs/);
  await since.locator("summary").click();
  assert.match(await since.locator("tbody tr").textContent(), /tagdraft→final/);
  const [add, del] = await page.evaluate(() => ["--add", "--del"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(name)));
  const colours = await since.evaluate((box) => [...box.querySelectorAll("td, td *")].map((one) => getComputedStyle(one).backgroundColor));
  const rgb = (hex) => `rgb(${[1, 3, 5].map((at) => parseInt(hex.trim().slice(at, at + 2), 16)).join(", ")})`;
  assert.ok(colours.length > 0 && !colours.includes(rgb(add)) && !colours.includes(rgb(del)), "never in red and green");
  await bot.tool("cancel_plan", { plan_id: second.plan_id });
  const other = await bot.ask("write", "notes:tag_note", { title: "another-note", tag: "final" });
  await openPlan(other.plan_id);
  assert.equal(await page.locator(".since").count(), 0, "another target says nothing about this one");
  await bot.tool("cancel_plan", { plan_id: other.plan_id });
  quiet();
});

test("a grant lets calls like it run, is listed with its uses, and ends when revoked", async () => {
  const plan = await bot.ask("write", "notes:move_note", { title: "release-plan", to: "archive" });
  await openPlan(plan.plan_id);
  await page.getByText("Other ways to approve").click();
  await page.getByLabel("Also allow later calls like this").check();
  await page.getByLabel("to: exactly this value, or any").selectOption("any");
  await page.getByLabel("Uses").fill("3");
  await press("Approve without running");
  await state("approved");
  const free = await bot.call("write", "notes:move_note", { title: "release-plan", to: "elsewhere" });
  assert.match(JSON.stringify(free.result.content), /move_note took 2/);
  assert.equal((await bot.call("write", "notes:move_note", { title: "other", to: "elsewhere" })).data.status, "confirmation_required");
  await page.goto(`${house.url}/grants`);
  const line = page.locator("tr", { hasText: "notes:move_note" });
  await line.getByText("any value").waitFor();
  assert.match(await line.textContent(), /2/);
  await line.getByRole("button", { name: /Revoke/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await line.waitFor({ state: "detached" });
  assert.equal((await bot.call("write", "notes:move_note", { title: "release-plan", to: "third" })).data.status, "confirmation_required");
  await clear();
  quiet();
});

test("a type-to-confirm plan offers no grant", async () => {
  const plan = await bot.ask("destructive", "notes:delete_note", { title: "release-plan" });
  await openPlan(plan.plan_id);
  assert.equal(await page.getByLabel("Also allow later calls like this").count(), 0);
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  quiet();
});

test("similar plans are grouped, every difference shown, one decision each", async () => {
  const names = ["x", "y", "z"].map(title);
  const plans = [];
  for (const name of names) plans.push(await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: name }));
  const group = page.locator(".group", { hasText: "3 similar plans" });
  await group.waitFor();
  assert.equal(await row(plans[2].plan_id).count(), 0, "folded");
  await group.getByRole("button", { name: "Show them" }).click();
  await row(plans[2].plan_id).waitFor();
  assert.match(await group.locator(".group-head").textContent(), /differ in tag/);
  await group.getByRole("link", { name: "Decide together" }).click();
  await page.locator(".one").nth(2).waitFor();
  assert.match(await page.locator("section", { hasText: "Shared by all" }).first().textContent(), /release-plan/);
  for (const name of names) await page.locator(".one", { hasText: name }).waitFor();
  const one = (index) => page.locator(`.one[data-plan="${plans[index].plan_id}"]`);
  await one(0).getByLabel("approve").check();
  await one(1).getByLabel("approve").check();
  await one(2).getByLabel("reject").check();
  await press("Approve 2, reject 1");
  await page.getByRole("heading", { name: "Inbox" }).waitFor();
  const states = [];
  for (const plan of plans) states.push((await bot.tool("get_plan", { plan_id: plan.plan_id })).structuredContent.data.plan.state);
  assert.deepEqual(states, ["done", "done", "rejected"]);
  await resume();
  quiet();
});

test("a plan of several steps: each shown whole, one taken out, the rest run in order", async () => {
  const [one, two, three] = ["a", "b", "c"].map((word) => title(`step-${word}`));
  const step = (name, body) => ({ name: "notes:write_note", args: { title: name, body }, intent: { operation_type: "write", reason: `make ${name}` } });
  const drafted = (await bot.tool("draft_plan", { title: "Three notes", reason: "they belong together", steps: [step(one, "1\n"), step(two, "2\n"), step(three, "3\n")] })).structuredContent.data;
  await row(drafted.plan_id).waitFor();
  assert.match(await row(drafted.plan_id).textContent(), /Run 3 steps: Three notes/);
  await openPlan(drafted.plan_id);
  assert.equal(await page.locator(".step").count(), 3);
  assert.match(await page.locator(".step").nth(1).textContent(), new RegExp(`make ${two}.*${two}`, "s"));
  assert.equal(await page.locator(".step .diff").count(), 3);
  await page.getByLabel("Keep Step 2").uncheck();
  assert.equal(await page.getByRole("button", { name: "Approve and run", exact: true }).isDisabled(), true);
  await press("Remove it");
  await page.waitForFunction(() => document.querySelectorAll(".step").length === 2);
  await press("Approve and run");
  await state("done");
  assert.deepEqual([one, two, three].map((name) => house.notes()[name]), ["1\n", undefined, "3\n"]);
  assert.equal(await page.locator(".step .badge", { hasText: "done" }).count(), 2);
  quiet();
});

test("a step that has to be typed says which and what, counted as on the page", async () => {
  const name = title("step-typed");
  const steps = [
    { name: "notes:write_note", args: { title: name, body: "1\n" }, intent: { operation_type: "write" } },
    { name: "notes:delete_note", args: { title: name }, intent: { operation_type: "destructive" } },
  ];
  const drafted = (await bot.tool("draft_plan", { title: "Write and delete", reason: "to see the label", steps })).structuredContent.data;
  await openPlan(drafted.plan_id);
  await page.getByLabel(`Type the title of step 2: ${name}`).waitFor();
  await bot.tool("cancel_plan", { plan_id: drafted.plan_id });
  quiet();
});

test("what is decided elsewhere shows here", async () => {
  const plan = await write();
  await openPlan(plan.plan_id);
  house.run("approve", plan.plan_id, "--yes", "--config", "countersign.toml");
  await state("approved");
  await page.locator(".decide", { hasText: "over" }).getByText("cli, strength human").waitFor();
  quiet();
});

test("a click that comes too late is told who was first", async () => {
  const late = await write();
  await openPlan(late.plan_id);
  // The page is not told of it in time: its click meets a plan that is decided.
  await page.route("**/api/v1/plans/*/reject", async (route) => {
    house.run("approve", late.plan_id, "--yes", "--config", "countersign.toml");
    await route.continue();
  });
  await press("Reject");
  await state("approved");
  await page.locator(".notice, .trouble", { hasText: /already|decided|approved/ }).first().waitFor();
  await page.unroute("**/api/v1/plans/*/reject");
  assert.equal((await bot.tool("get_plan", { plan_id: late.plan_id })).structuredContent.data.plan.state, "approved");
  quiet();
});

test("a double click decides one plan, not the next one as well", async () => {
  const plans = [await write(), await write()];
  await openPlan(plans[0].plan_id);
  await page.getByRole("button", { name: "Approve and run", exact: true }).dblclick();
  await state("done");
  const states = [];
  for (const plan of plans) states.push((await bot.tool("get_plan", { plan_id: plan.plan_id })).structuredContent.data.plan.state);
  assert.deepEqual(states, ["done", "pending"]);
  quiet();
});

test("three rejections pause the agent; a person lets it go on from the inbox", async () => {
  const paused = async () => {
    const { data, error } = await bot.call("write", "notes:write_note", { title: title("no"), body: "y\n" });
    if (error) return error.code;
    await openPlan(data.plan_id);
    await press("Reject");
    await state("rejected");
    return null;
  };
  // Rejections of the tests before count, too.
  let code = null;
  for (let turn = 0; turn < 4 && code === null; turn += 1) code = await paused();
  assert.equal(code, "E_PRINCIPAL_PAUSED");
  await page.goto(`${house.url}/`);
  await page.locator(".banner", { hasText: "are paused" }).waitFor();
  await press("Resume");
  await page.locator(".banner", { hasText: "are paused" }).waitFor({ state: "detached" });
  const plan = await write();
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  quiet();
});

test("keys: j and k move, Enter opens, a and r go to the decision, u goes up, ? helps", async () => {
  await clear();
  const plans = [await write(), await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: title("key") })];
  await row(plans[1].plan_id).waitFor();
  const focused = () => page.evaluate(() => document.activeElement?.dataset?.plan ?? document.activeElement?.textContent);
  await page.keyboard.press("j");
  assert.equal(await focused(), plans[0].plan_id);
  await page.keyboard.press("j");
  assert.equal(await focused(), plans[1].plan_id);
  await page.keyboard.press("k");
  assert.equal(await focused(), plans[0].plan_id);
  await page.keyboard.press("Enter");
  await page.locator(".decide").waitFor();
  assert.match(page.url(), new RegExp(plans[0].plan_id));
  await page.keyboard.press("j");
  await page.waitForURL(new RegExp(plans[1].plan_id));
  await page.locator(".plan-title", { hasText: "Tag note" }).waitFor();
  await page.keyboard.press("r");
  assert.equal(await focused(), "Reject");
  await page.keyboard.press("a");
  assert.equal(await focused(), "Approve and run");
  // A letter never decides by itself.
  assert.equal((await bot.tool("get_plan", { plan_id: plans[1].plan_id })).structuredContent.data.plan.state, "pending");
  await page.keyboard.press("Enter");
  await state("done");
  assert.equal((await bot.tool("get_plan", { plan_id: plans[1].plan_id })).structuredContent.data.plan.state, "done");
  await page.waitForFunction(() => document.activeElement?.textContent === "Next plan");
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(plans[0].plan_id));
  await page.keyboard.press("u");
  await page.getByRole("heading", { name: "Inbox" }).waitFor();
  await page.keyboard.press("a");
  await page.waitForURL(/#approve$/);
  await page.waitForFunction(() => document.activeElement?.textContent === "Approve and run");
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("next, previous plan").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.getByRole("heading", { name: "Tools" }).waitFor();
  // Letters typed into a field are letters.
  await page.getByLabel("Find", { exact: true }).fill("");
  await page.getByLabel("Find", { exact: true }).pressSequentially("ajr?");
  assert.equal(await page.getByLabel("Find", { exact: true }).inputValue(), "ajr?");
  await clear();
  quiet();
});

test("hostile strings are inert and whole", async () => {
  const evil = "<script>window.hit=1</script><img src=x onerror=\"window.hit=1\"><svg/onload=window.hit=1>";
  const args = { [`"><script>window.hit=1</script>`]: 1, [evil]: evil, javascript: "javascript:window.hit=1", bidi: "invoice \u202e001\u202c \u2066x\u2069", zero: "pay\u200bpal\u00ad \ufeff", tags: "ok\u{e0041}\u{e0042}", blank: "a\u2800b\uffa0c\ue000", control: "a\u001b[2Jb\u0007", proto: { __proto__x: 1, constructor: "c" }, template: "{{7*7}} ${7*7}", long: `${"0123456789".repeat(10_240)}END` };
  const plan = await bot.ask("write", "notes:take_anything", args, `${evil} \u202eevil`);
  await row(plan.plan_id).waitFor();
  await page.locator(`.plan-row[data-plan="${plan.plan_id}"] .badge`, { hasText: "hidden characters" }).waitFor();
  await openPlan(plan.plan_id);
  const values = page.locator(".arguments table.values");
  const shown = (name) => page.locator(".arguments tr").filter({ has: page.locator("th", { hasText: name }) }).locator("td").textContent();
  assert.equal(await values.locator("tr").count(), Object.keys(args).length);
  assert.match(await shown("bidi"), /invoice \\u\{202e\}001\\u\{202c\} \\u\{2066\}x\\u\{2069\}/);
  assert.match(await shown("zero"), /pay\\u\{200b\}pal\\u\{ad\} \\u\{feff\}/);
  assert.match(await shown("tags"), /\\u\{e0041\}\\u\{e0042\}/);
  assert.match(await shown("blank"), /a\\u\{2800\}b\\u\{ffa0\}c\\u\{e000\}/);
  assert.match(await shown("control"), /a\\u\{1b\}\[2Jb\\u\{7\}/);
  assert.doesNotMatch(await page.locator("main").textContent(), /[\u202a-\u202e\u2066-\u2069\u200b\ufeff]/);
  await page.locator(".folds", { hasText: "folded" }).waitFor();
  assert.match(await shown("long"), /Show all 102,403 characters/);
  await press("Unfold all");
  assert.ok((await shown("long")).includes(args.long), "the whole value is there");
  assert.equal(await page.locator(".folds").textContent(), "");
  assert.ok((await values.textContent()).includes("<img src=x onerror="));
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assert.equal(await page.locator("main img, main script, main svg[onload], main iframe").count(), 0);
  const box = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(box <= 0, "nothing leaves its box");
  await approveOnly();
  await state("approved");
  await page.goto(`${house.url}/activity?plan_id=${plan.plan_id}`);
  await page.locator(".act").first().waitFor();
  await page.locator(".act a.what").first().click();
  await page.locator(".history-page").waitFor();
  assert.equal(await page.evaluate(() => window.hit), undefined);
  quiet();
});

test("attack_11 every invisible character is an escape on the page", async () => {
  const plan = await bot.ask("write", "notes:take_anything", { text: TEXT, lines: `first\n${TEXT}\nlast`, [TEXT]: 1, nested: { deep: [TEXT] } }, SHORT_TEXT, { tenant: TEXT });
  await row(plan.plan_id).waitFor();
  await openPlan(plan.plan_id);
  await page.evaluate(() => document.querySelectorAll(".folds button").forEach((button) => button.click()));
  const values = page.locator(".arguments").first();
  const cell = async (name) => (await values.locator("tr").filter({ has: page.locator("th", { hasText: name }) }).locator("td").first().textContent());
  assert.deepEqual(notEscaped(await page.locator(".reason").first().textContent(), SHORT_TEXT), [], "reason");
  const places = { value: await cell("text"), "text of several lines": await cell("lines"), nested: await cell("nested"), name: await values.locator("th", { hasText: "<202e:" }).textContent(), _meta: await page.locator(".arguments").last().textContent() };
  for (const [place, shown] of Object.entries(places)) assert.deepEqual(notEscaped(shown), [], place);
  await press("Reject");
  await state("rejected");
  const written = await write(title("hidden"), `${TEXT}\n`);
  await openPlan(written.plan_id);
  assert.deepEqual(notEscaped(await page.locator(".preview .diff").textContent()), [], "difference");
  await page.getByLabel("Note").fill("no");
  await press("Reject");
  await state("rejected");
  await page.goto(`${house.url}/activity?plan_id=${plan.plan_id}`);
  await page.locator(".act a.what").first().click();
  await page.locator(".history-page").waitFor();
  // The audit log stores `␀` for a NUL.
  assert.deepEqual(notEscaped(await page.locator(".reason").first().textContent(), SHORT_TEXT.replace("<0:\0>", "")), [], "history");
  await resume();
  quiet();
});

test("a rejection is bound to the plan on the screen", async () => {
  const plan = await write();
  await openPlan(plan.plan_id);
  const sent = page.waitForRequest((request) => request.url().endsWith("/reject"));
  await press("Reject");
  await state("rejected");
  const hash = await page.locator(".fine .mono").nth(1).textContent();
  assert.match(hash, /^[0-9a-f]{64}$/);
  assert.equal(JSON.parse((await sent).postData()).plan_hash, hash);
  await resume();
  quiet();
});

test("words and choices of the page come from the gateway's own lists", async () => {
  const words = await page.evaluate(() => import("/page/vocabulary.js").then((module) => ({ ...module })));
  await page.goto(`${house.url}/activity`);
  // Reading the options does not wait for the form by itself.
  await page.locator("form.filters").waitFor();
  const options = (label) => page.getByLabel(label, { exact: true }).locator("option").evaluateAll((all) => all.map((one) => one.value).filter((value) => value !== ""));
  assert.deepEqual(await options("Type"), words.ROW_KINDS);
  assert.deepEqual(await options("Status"), words.ROW_STATUSES);
  await page.getByText("More filters").click();
  assert.deepEqual(await options("Role"), ["agent", "host", "human"]);
  assert.deepEqual(words.MODES, ["ask", "plan", "execute"]);
  for (const state of ["pending", "approved", "outcome_unknown"]) assert.ok(words.PLAN_SENTENCES[state].length > 10, state);
  const plan = await write();
  await row(plan.plan_id).waitFor({ state: "detached" }).catch(() => {});
  await page.goto(`${house.url}/`);
  await row(plan.plan_id).getByText("review and approve").waitFor();
  quiet();
});

test("an upstream that means harm is inert wherever it can say something", async () => {
  const inert = async (where) => {
    assert.equal(await page.evaluate(() => window.hit), undefined, where);
    assert.equal(await page.locator('main script, main iframe, main [onerror], main a[href^="javascript"]').count(), 0, where);
    assert.equal(await page.locator("main img").count(), 0, where);
    assert.doesNotMatch(await page.locator("main").textContent(), /[\u202a-\u202e\u200b]/, where);
    assert.ok((await page.locator("main").textContent()).includes("window.hit=1"), `${where}: shown as text`);
  };
  await page.goto(`${house.url}/tools`);
  await page.locator("tr", { hasText: "hostile:greet" }).waitFor();
  await inert("tools");
  await page.goto(`${house.url}/tools/hostile%3Agreet`);
  await page.locator(".definition").waitFor();
  await inert("tool");
  await page.goto(`${house.url}/upstreams`);
  await page.getByRole("article", { name: "Upstream hostile" }).locator("summary").click();
  await inert("upstreams");
  const plan = await bot.ask("write", "hostile:say", {}, "see what it says");
  await openPlan(plan.plan_id);
  await page.locator(".preview .diff .add").first().waitFor();
  await page.locator(".preview .changes").waitFor();
  await inert("plan");
  await press("Approve and run");
  await state("done");
  await page.locator(".outcome").waitFor();
  await inert("result");
  quiet();
});

test("an order desk's preview reads as a sentence, a warning and changes", async () => {
  const plan = await bot.ask("destructive", "orders:delete_purchase_order", { number: "PO-1040" });
  await openPlan(plan.plan_id);
  const preview = page.locator(".preview");
  await preview.locator(".sentence", { hasText: "purchase order PO-1040: " }).waitFor();
  await preview.locator(".banner.warn", { hasText: "cannot be brought back" }).waitFor();
  await preview.locator("h4", { hasText: "delete PO-1040" }).waitFor();
  assert.match(await preview.locator(".changes tbody tr").first().textContent(), /supplierBrightspoke GmbH→none/);
  assert.match(await preview.textContent(), /review the changes/);
  quiet();
});

test("500 arguments are all there, and 40 levels deep is readable", async () => {
  const args = Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`argument_${String(at).padStart(3, "0")}`, `value ${at}`]));
  let deep = "bottom";
  for (let level = 0; level < 40; level += 1) deep = { [`level_${level}`]: deep, beside: "a text that is long enough not to fit on one line with the rest of it" };
  const plan = await bot.ask("write", "notes:take_anything", { ...args, deep });
  await openPlan(plan.plan_id);
  assert.equal(await page.locator(".arguments > table.values > tbody > tr").count(), 501);
  const all = await page.locator(".arguments").textContent();
  for (let at = 0; at < 500; at += 1) assert.ok(all.includes(`value ${at}`), `value ${at}`);
  assert.ok(all.includes("bottom"));
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  quiet();
});

test("numbers stand as they were written", async () => {
  const plan = await bot.ask("write", "notes:take_anything", { big: 9007199254740991, small: 1e-7, exact: 0.1 });
  await openPlan(plan.plan_id);
  const text = await page.locator(".arguments").textContent();
  assert.match(text, /9007199254740991/);
  assert.match(text, /0\.1/);
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  quiet();
});

test("activity: every filter narrows, the address holds it, the story of a call is on one page", async () => {
  await bot.call("read", "notes:read_note", { title: "release-plan" }, {}, "needle in the reason");
  await bot.call("read", "notes:delete_note", { title: "release-plan" });
  await page.goto(`${house.url}/activity`);
  await page.locator(".act").first().waitFor();
  await page.locator(".histogram svg").waitFor();
  const all = await page.locator(".act").count();
  const count = async (query, check) => {
    await page.goto(`${house.url}/activity?${query}`);
    await page.locator(".act, .empty").first().waitFor();
    const rows = await page.locator(".act").allTextContents();
    if (check) for (const text of rows) assert.match(text, check);
    return rows.length;
  };
  const session = (await (await page.request.get(`${house.url}/api/v1/activity?limit=1&role=agent`)).json()).data.activities[0];
  const within = async (query, check) => {
    const found = await count(query, check);
    assert.ok(found > 0 && found <= Math.max(all, 100), `${query}: ${found}`);
  };
  await within("status=refused", /refused|rejected|mistyped/);
  await within("type=approval", /approved|rejected|approval/);
  await within("server=notes", /notes:/);
  await within("tool=notes:write_note", /write_note/);
  await within("intent_type=read", /read_note|delete_note/);
  await within(`principal=${encodeURIComponent(session.principal)}`);
  await within("role=human", /mara/);
  await within(`session_id=${encodeURIComponent(session.session)}`);
  await within("code=E_INTENT_SERVER_MISMATCH", /E_INTENT_SERVER_MISMATCH/);
  await within("q=needle");
  assert.equal(await count("q=nothing-has-this-text"), 0);
  await page.getByText("Clear the filters").waitFor();
  assert.equal(await count("end_time=2020-01-01T00:00:00Z"), 0);
  await within("start_time=2020-01-01T00:00:00Z");
  await page.goto(`${house.url}/activity`);
  await page.getByLabel("Status").selectOption("refused");
  await page.waitForURL(/status=refused/);
  await page.locator("form.filters").getByLabel("Text").fill("delete_note");
  await press("Filter");
  await page.waitForURL(/q=delete_note/);
  await page.locator(".act").first().locator("a.what").click();
  await page.locator(".history-page").waitFor();
  await page.getByText("Full record").click();
  await page.locator(".record").getByText("prev hash").waitFor();
  for (const format of ["JSONL", "CSV"]) {
    await page.goto(`${house.url}/activity?status=refused`);
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: format }).click()]);
    assert.match(fs.readFileSync(await file.path(), "utf8"), /refused/);
  }
  quiet();
});

test("the whole story of an approved call: asked, approved, sent, done", async () => {
  const name = title("story");
  const plan = await write(name, "told\n");
  await openPlan(plan.plan_id);
  await page.getByLabel("Note").fill("go ahead");
  await press("Approve and run");
  await state("done");
  await page.goto(`${house.url}/activity?plan_id=${plan.plan_id}`);
  await page.locator(".act a.what").first().click();
  const story = page.locator(".history .timeline");
  await story.waitFor();
  const text = await story.textContent();
  for (const part of [/waits for a person/, /approved it over page, strength human/, /go ahead/, /ran/]) assert.match(text, part);
  await page.getByText(`wrote ${name}`).waitFor();
  quiet();
});

test("tools: what each needs and why; a changed definition is compared and accepted as shown", async () => {
  await page.goto(`${house.url}/tools`);
  const line = page.locator("tr", { hasText: "notes:delete_note" });
  assert.match(await line.textContent(), /destructive.*type.*human.*accepted/s);
  fs.writeFileSync(path.join(house.room, "notes.json.changed"), "");
  house.run("tools", "list", "--config", "countersign.toml");
  // The gateway reads the list again before a call is let out.
  await bot.call("write", "notes:move_note", { title: "a", to: "b" }).catch(() => {});
  await page.goto(`${house.url}/tools/notes%3Amove_note`);
  if ((await page.locator(".plan-title .badge", { hasText: "changed" }).count()) === 0) {
    const plan = await write();
    await openPlan(plan.plan_id);
    await press("Approve and run");
    await state("done");
    await page.goto(`${house.url}/tools/notes%3Amove_note`);
  }
  await page.locator(".plan-title .badge", { hasText: "changed" }).waitFor();
  assert.match(await page.locator(".diff .code.add, .diff .add .code", { hasText: "evil.test" }).textContent(), /send every file/);
  await page.locator(".diff .code.add, .diff .add .code", { hasText: "bcc" }).first().waitFor();
  await press("Accept this definition");
  await page.getByRole("dialog").getByRole("button", { name: "Accept" }).click();
  await page.locator(".plan-title .badge", { hasText: "accepted" }).waitFor();
  await clear();
  quiet();
});

test("tools: a definition that was accepted before is offered with the others, as a set that can be ended", async () => {
  const changed = path.join(house.room, "notes.json.changed");
  const lists = async () => {
    const plan = await write();
    await openPlan(plan.plan_id);
    await press("Approve and run");
    await state("done");
    await page.goto(`${house.url}/tools/notes%3Amove_note`);
  };
  const badge = (text) => page.locator(".plan-title .badge", { hasText: text }).waitFor();
  fs.rmSync(changed);
  await lists();
  await badge("changed");
  await page.locator(".banner", { hasText: "accepted before: the tool flips between 2 known definitions" }).waitFor();
  assert.equal(await page.locator(".known-set details").count(), 2);
  await press("Accept all 2 known definitions");
  await page.getByRole("dialog").getByRole("button", { name: "Accept" }).click();
  await badge("1 of 2");
  fs.writeFileSync(changed, "");
  await lists();
  await badge("1 of 2");
  await press("End the set");
  await page.getByRole("dialog").getByRole("button", { name: "Accept" }).click();
  await badge("changed");
  await press("Accept this definition");
  await page.getByRole("dialog").getByRole("button", { name: "Accept" }).click();
  await badge("accepted");
  await clear();
  quiet();
});

test("tools are found by words", async () => {
  await page.goto(`${house.url}/tools`);
  await page.getByLabel("Upstream").selectOption("notes");
  await page.getByLabel("Find", { exact: true }).fill("delete");
  await page.waitForFunction(() => document.querySelectorAll(".grid tbody tr").length === 1);
  await page.getByLabel("Find", { exact: true }).fill("");
  await page.getByLabel("Effect").selectOption("read");
  await page.waitForFunction(() => document.querySelectorAll(".grid tbody tr").length === 1);
  quiet();
});

test("upstreams: health, restarts, stderr, latency", async () => {
  await page.goto(`${house.url}/upstreams`);
  const notes = page.getByRole("article", { name: "Upstream notes" });
  await notes.locator(".badge", { hasText: "up" }).waitFor();
  await notes.locator(".spark svg").waitFor();
  await notes.locator("summary").click();
  await notes.getByText("notes are open").waitFor();
  const gone = page.getByRole("article", { name: "Upstream gone" });
  await gone.getByText("the database is not there").first().waitFor();
  quiet();
});

test("runs: lines come live, and it can be stopped", async () => {
  const { data } = await bot.call("write", "jobs:build", { what: "the site" });
  await page.goto(`${house.url}/runs`);
  await page.locator("tr", { hasText: data.run_id }).getByRole("link").click();
  const log = page.getByRole("log");
  await log.getByText("building the site").waitFor();
  const before_ = (await log.textContent()).length;
  await page.waitForFunction((n) => document.querySelector('[role="log"]').textContent.length > n, before_);
  await press("Stop");
  await page.getByRole("dialog").getByRole("button", { name: "Stop it" }).click();
  await page.locator(".plan-title .badge", { hasText: "cancelled" }).waitFor();
  quiet();
});

test("credentials: made with limits, shown once, revoked", async () => {
  await page.goto(`${house.url}/credentials`);
  const form = page.locator("form.make");
  await form.getByLabel("Name").fill("ci-agent");
  await form.getByLabel("Only these upstreams").fill("notes");
  await form.getByLabel("Highest mode").selectOption("plan");
  await form.getByLabel("Its host's dialog may approve").check();
  await press("Create");
  const secret = await page.getByLabel("The secret, shown this once").inputValue();
  assert.match(secret, /^csg_agent_/);
  const other = await agent(house, { authorization: `Bearer ${secret}` });
  assert.equal((await other.call("write", "notes:tag_note", { title: "a", tag: "b" })).error?.code, "E_MODE_FORBIDDEN");
  const tried = await fetch(`${house.url}/api/v1/plans`, { headers: { authorization: `Bearer ${secret}` } });
  assert.equal(tried.status, 403);
  await page.reload();
  const line = page.locator("tr", { hasText: "ci-agent" });
  await line.waitFor();
  assert.ok(!(await page.content()).includes(secret));
  assert.match(await line.textContent(), /max_mode.*plan/);
  assert.match(await line.textContent(), /may_vouch.*true/);
  await line.getByRole("button", { name: /Revoke/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await line.locator(".badge", { hasText: "revoked" }).waitFor();
  await form.getByLabel("Name").fill("bad name!");
  await press("Create");
  await form.locator(".trouble").waitFor();
  quiet();
});

test("policy: rules with their place, a pasted call explained", async () => {
  await page.goto(`${house.url}/policy`);
  const rule = page.locator(".rule", { hasText: "notes:delete_note" });
  assert.match(await rule.textContent(), /confirm.*type.*countersign\.toml/s);
  const call = { method: "tools/call", params: { name: "call_tool_destructive", arguments: { name: "notes:delete_note", args: { title: "x" }, intent: { operation_type: "destructive" } } } };
  await page.getByLabel("Arguments, or a whole call as an agent writes it").fill(JSON.stringify(call));
  await page.getByLabel("Tool", { exact: true }).fill("?");
  await press("Explain");
  await page.locator(".explained", { hasText: "waits for confirmation" }).waitFor();
  assert.match(await page.locator(".explained").textContent(), /notes:delete_note.*type_field|confirm.*type/s);
  await page.getByLabel("Arguments, or a whole call as an agent writes it").fill("[1]");
  await press("Explain");
  await page.locator("form .trouble", { hasText: "JSON object" }).waitFor();
  quiet();
});

test("policy: which decisions of the last days other rules would change", async () => {
  await bot.call("read", "notes:read_note", { title: "release-plan" });
  await page.goto(`${house.url}/policy`);
  await page.getByLabel("Rules").fill('[[rules]]\nmatch = "notes:*"\ndeny = "closed"\n');
  await press("Simulate");
  await page.getByText(/decisions? would change/).waitFor();
  await page.getByLabel("Rules").fill("[[rules]\n");
  await press("Simulate");
  await page.locator("form .trouble").last().waitFor();
  quiet();
});

test("what agents propose to remember is in the inbox, reworded or rejected by a person", async () => {
  const propose = (content) => bot.call("write", "memory:store", { content, as: "decision", rationale: "it broke twice <script>window.hit=1</script>" });
  const first = await propose("Releases go out on Tuesdays, never on Fridays.");
  const id = first.data?.proposal_id ?? first.result.structuredContent.data.proposal_id;
  const card = page.locator(`[data-proposal="${id}"]`);
  await page.reload();
  await card.getByText("it broke twice <script>").waitFor();
  await card.getByText("Edit before approving").click();
  await card.getByLabel("Text to remember").fill("Releases go out on Tuesdays.");
  // News that draws the list anew takes nothing away from whoever is writing.
  const second = await propose("Backups are taken every night at two.");
  const other = second.data?.proposal_id ?? second.result.structuredContent.data.proposal_id;
  await page.locator(`[data-proposal="${other}"]`).waitFor();
  await card.getByRole("button", { name: "Approve" }).click();
  await card.waitFor({ state: "detached" });
  const kept = JSON.stringify((await bot.call("read", "memory:recall", { query: "releases" })).result);
  assert.match(kept, /Releases go out on Tuesdays\./);
  await page.locator(`[data-proposal="${other}"]`).getByRole("button", { name: "Reject" }).click();
  await page.locator(`[data-proposal="${other}"]`).waitFor({ state: "detached" });
  assert.doesNotMatch(JSON.stringify((await bot.call("read", "memory:recall", { query: "backups" })).result), /every night/);
  assert.equal(await page.evaluate(() => window.hit), undefined);
  quiet();
});

test("light and dark: as the system says, until a person chooses; the choice stays", async () => {
  const dark = await web.visit({ colorScheme: "dark" });
  const background = () => dark.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const system = await background();
  await dark.getByRole("button", { name: "Light" }).click();
  const chosen = await background();
  assert.notEqual(system, chosen);
  await dark.reload();
  await dark.getByRole("heading", { name: "Inbox" }).waitFor();
  assert.equal(await background(), chosen);
  await dark.context().close();
  quiet();
});

test("a gateway that goes and comes back: the page says so, stays signed in, and is live again", async () => {
  const plan = await write();
  await row(plan.plan_id).waitFor();
  await house.stop();
  await page.locator("#line.down").waitFor();
  await page.locator(".away", { hasText: "The gateway is away" }).waitFor();
  // A decision that could not be sent says so, and decides nothing.
  await page.getByRole("button", { name: /^Reject: / }).click();
  await page.locator(".notice.bad", { hasText: "Not rejected" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.locator(".trouble", { hasText: "the gateway does not answer" }).first().waitFor();
  await house.start();
  await page.locator("#line.up").waitFor({ timeout: 20_000 });
  // Nothing of it stays: the view that could not be shown is, and the notices are gone.
  await page.getByRole("heading", { name: "Tools", exact: true }).waitFor();
  await page.locator(".away").waitFor({ state: "detached" });
  assert.equal(await page.locator(".trouble, .notice.bad").count(), 0);
  await page.goto(`${house.url}/`);
  await row(plan.plan_id).waitFor();
  bot = await agent(house);
  const next = await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: "back" });
  await row(next.plan_id).waitFor();
});

test("a pass phrase is set under Credentials, and with it and a name one signs in; a wrong one does not", async () => {
  await page.goto(`${house.url}/credentials`);
  const set = page.locator("form", { has: page.getByRole("heading", { name: "Your pass phrase" }) });
  await set.getByLabel("New pass phrase").fill("too short");
  await set.getByRole("button", { name: "Set" }).click();
  await set.getByText(/12 characters/).last().waitFor();
  await set.getByLabel("New pass phrase").fill("correct horse battery staple");
  await set.getByRole("button", { name: "Set" }).click();
  await page.getByText("Your pass phrase is set").waitFor();
  assert.equal(await set.getByLabel("New pass phrase").inputValue(), "", "it is not left standing there");
  const context = await web.browser.newContext();
  const fresh = await context.newPage();
  const plan = await write();
  await fresh.goto(`${house.url}/plans/${plan.plan_id}`);
  await fresh.getByRole("heading", { name: "Sign in to approve" }).waitFor();
  await fresh.getByText("Sign in with a pass phrase").click();
  const door = fresh.locator("form", { has: fresh.getByLabel("Pass phrase") });
  const secret = door.getByLabel("Pass phrase");
  assert.equal(await secret.getAttribute("type"), "password");
  for (const [name, phrase] of [["mara", "correct horse battery stable"], ["nobody", "correct horse battery staple"]]) {
    await fresh.getByLabel("Name").fill(name);
    await secret.fill(phrase);
    await door.getByRole("button", { name: "Sign in" }).click();
    await door.getByText(/E_[A-Z_]+|pass phrase is|unknown|wrong/).first().waitFor();
    assert.equal(await fresh.locator("nav").count(), 0, "nobody is in");
  }
  await fresh.getByLabel("Name").fill("mara");
  await secret.fill("correct horse battery staple");
  await door.getByRole("button", { name: "Sign in" }).click();
  // The link to a plan leads there, after the sign-in too.
  await fresh.getByRole("button", { name: "Approve and run", exact: true }).click();
  await fresh.locator(".plan-title .badge", { hasText: "done" }).waitFor();
  assert.match(fresh.url(), new RegExp(plan.plan_id));
  await context.close();
  quiet();
});

test("while the agent waits Approve ends in its own call; afterwards the button runs the plan", async () => {
  const name = title("held");
  const held = (words, seconds) => bot.call("write", "notes:write_note", { title: name, body: words }, { wait_seconds: seconds });
  const waiting = held("while you wait\n", 60);
  await page.locator(".plan-row", { hasText: name }).waitFor();
  await page.locator(".plan-row", { hasText: name }).click();
  await page.locator(".means", { hasText: "The agent waits" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Approve and run", exact: true }).count(), 0);
  await press("Approve");
  assert.match(JSON.stringify((await waiting).result.content), new RegExp(`wrote ${name}`));
  await state("done");
  assert.equal(house.notes()[name], "while you wait\n");
  // The agent gives up while the page is open: the same button then runs the plan.
  const left = held("after it left\n", 2);
  await page.goto(`${house.url}/`);
  await page.locator(".plan-row", { hasText: name }).first().click();
  await page.locator(".decide").waitFor();
  await left;
  await page.getByRole("button", { name: "Approve and run", exact: true }).click();
  await state("done");
  assert.equal(house.notes()[name], "after it left\n");
  quiet();
});

test("an Approve that could not be sent says so, and decides nothing", async () => {
  const plan = await write();
  await openPlan(plan.plan_id);
  await page.route("**/api/v1/plans/*/approve", (route) => route.abort());
  await press("Approve and run");
  await page.locator(".notice.bad", { hasText: "Not approved: it could not be sent" }).waitFor();
  await page.unroute("**/api/v1/plans/*/approve");
  assert.equal((await bot.tool("get_plan", { plan_id: plan.plan_id })).structuredContent.data.plan.state, "pending");
  await page.locator(".away").waitFor({ state: "detached" });
  await press("Approve and run");
  await state("done");
  quiet();
});

test("rows are decided in the inbox, found by words, narrowed and ordered", async () => {
  const asked = { write_note: { title: "row-write", body: "x\n" }, tag_note: { title: "row-tag", tag: "x" }, take_anything: { title: "row-take" }, set_fields: { title: "row-set", owner: "mara" } };
  const kept = [];
  for (const [tool, args] of Object.entries(asked)) kept.push(await bot.ask("write", `notes:${tool}`, args));
  await row(kept[3].plan_id).waitFor();
  const count = () => page.locator(".plan-row").count();
  await page.getByLabel("Search").fill("row-tag");
  await page.waitForFunction(() => document.querySelectorAll(".plan-row").length === 1);
  await page.getByLabel("Search").fill("no plan says this");
  await page.getByText("No plan matches").waitFor();
  await page.getByLabel("Search").fill("");
  await page.getByLabel("Effect", { exact: true }).selectOption("destructive");
  assert.equal(await count(), 0);
  await page.getByLabel("Effect", { exact: true }).selectOption("");
  await page.getByLabel("Sort by").selectOption("tool");
  const tools = await page.locator(".plan-row .tool-name").allTextContents();
  assert.deepEqual(tools, [...tools].sort());
  // What has to be reviewed is shown in its row first; then one click decides, and the row stays where it was for a moment.
  const line = (plan) => page.locator(`.plan-line[data-of="${plan.plan_id}"]`);
  await line(kept[0]).getByRole("button", { name: /^Review/ }).click();
  await line(kept[0]).locator(".look .diff").waitFor();
  await line(kept[0]).getByRole("button", { name: /^Approve and run/ }).dblclick();
  await line(kept[0]).locator(".badge", { hasText: "done" }).waitFor();
  assert.equal(house.notes()["row-write"], "x\n");
  await row(kept[0].plan_id).waitFor({ state: "detached" });
  await page.locator(".inbox:not(.moving)").waitFor();
  await line(kept[1]).getByRole("button", { name: /^Reject/ }).click();
  await row(kept[1].plan_id).waitFor({ state: "detached" });
  const states = [];
  for (const plan of kept) states.push((await bot.tool("get_plan", { plan_id: plan.plan_id })).structuredContent.data.plan.state);
  assert.deepEqual(states, ["done", "rejected", "pending", "pending"]);
  await page.locator(".care", { hasText: "gone is down" }).waitFor();
  quiet();
});

test("220 plans: groups are folded, every plan is found and opened", async () => {
  const secrets = Array.from({ length: 11 }, (_, at) => house.run("token", "create", "--role", "agent", "--name", `crowd-${at}`, "--config", "countersign.toml").trim());
  const crowd = await Promise.all(secrets.map(async (secret, at) => {
    const one = await agent(house, { authorization: `Bearer ${secret}` });
    const plans = [];
    for (let turn = 0; turn < 20; turn += 1) plans.push(await one.ask("write", turn % 2 === 0 ? "notes:take_anything" : "hostile:greet", { who: "x", title: `crowd-${at}-${turn}` }));
    return { one, plans };
  }));
  await page.goto(`${house.url}/`);
  await page.waitForFunction(() => document.title.startsWith("(220) "));
  await page.waitForFunction(() => document.querySelectorAll(".group").length === 22);
  assert.equal(await page.locator(".plan-row").count(), 0, "folded");
  for (let left = 22; left > 0; left -= 1) await page.getByRole("button", { name: "Show them" }).first().click();
  assert.equal(await page.locator(".plan-row").count(), 220);
  await page.getByLabel("Search").fill("crowd-7-13");
  await page.waitForFunction(() => document.querySelectorAll(".plan-row").length === 1);
  await page.locator(".plan-row").click();
  await page.locator("h1", { hasText: "crowd-7-13" }).waitFor();
  await Promise.all(crowd.map(async ({ one, plans }) => {
    for (const plan of plans) await one.tool("cancel_plan", { plan_id: plan.plan_id });
  }));
  quiet();
});

test("a 500-line difference: the change is first, whole, and the buttons stay in reach on a phone", async () => {
  const name = title("long");
  const made = await write(name, Array.from({ length: 250 }, (_, at) => `before ${at}\n`).join(""));
  await openPlan(made.plan_id);
  await press("Approve and run");
  await state("done");
  const plan = await write(name, Array.from({ length: 250 }, (_, at) => `after ${at}\n`).join(""), "every line is new");
  await openPlan(plan.plan_id);
  await page.locator("h1", { hasText: `Write note ${name}, +250 −250` }).waitFor();
  const top = await page.locator(".diff-box").evaluate((box) => box.getBoundingClientRect().top);
  assert.ok(top < 260, `the change begins at ${top}`);
  assert.equal(await page.locator(".diff .code.del").count(), 250);
  assert.equal(await page.locator(".diff .code.add").count(), 250);
  await page.setViewportSize({ width: 390, height: 844 });
  for (const name of ["Reject", "Approve and run"]) {
    const box = await page.getByRole("button", { name, exact: true }).boundingBox();
    assert.ok(box.y > 700 && box.y + box.height <= 844, `${name} is at ${JSON.stringify(box)}`);
  }
  await press("Reject");
  await state("rejected");
  await page.setViewportSize({ width: 1280, height: 860 });
  await resume();
  quiet();
});

test("fences, header lines and what is said twice are folded; the words that differ are marked", async () => {
  const plan = await bot.ask("write", "notes:edit_file", { path: "/srv/shop/cart.js", edits: [{ oldText: "const VAT = 19;", newText: "const VAT = 16;" }], note: null }, "VAT went down");
  await openPlan(plan.plan_id);
  await page.locator("h1", { hasText: /^Edit cart\.js, \+1 −1$/ }).waitFor();
  const shown = page.locator(".preview");
  assert.equal(await shown.locator(".diff").count(), 1);
  // Text of folded parts is not rendered.
  assert.doesNotMatch(await shown.innerText(), /```|Index:|====/);
  assert.equal(await shown.locator("details.again").getAttribute("open"), null, "the same again is folded");
  assert.deepEqual(await shown.locator(".word").allTextContents(), ["19", "16"]);
  assert.match(await shown.locator(".diff-head .name").textContent(), /srv\/shop\/cart\.js/);
  await shown.getByRole("button", { name: "One column" }).click();
  assert.equal(await shown.locator("tr.del").count(), 1);
  await shown.getByRole("button", { name: "Side by side" }).click();
  assert.equal(await shown.locator(".diff.wide").count(), 1);
  const names = await page.locator(".folded .arguments > table.values > tbody > tr > th").allTextContents();
  assert.deepEqual(names, ["path", "edits"], "in the schema's order, without what says nothing");
  assert.deepEqual(await page.locator(".silent th").allTextContents(), ["dryRun", "note"]);
  assert.doesNotMatch(await page.locator(".folded .arguments > table.values").textContent(), /"|null/);
  await bot.tool("cancel_plan", { plan_id: plan.plan_id });
  quiet();
});

test("charts: every bar leads to the rows it counts, and each has its figures", async () => {
  await bot.call("read", "notes:read_note", { title: "release-plan" });
  await bot.call("read", "notes:delete_note", { title: "release-plan" });
  await page.goto(`${house.url}/overview?period=1h`);
  const chart = (name) => page.locator(".chart", { has: page.getByRole("heading", { name, exact: true }) });
  for (const name of ["Calls that ran", "Holds for a person", "Decisions", "Refusals", "Time to decision", "Calls by agent", "Calls by tool", "Rules that asked or refused"]) {
    await chart(name).locator("a .bar").first().waitFor();
    await chart(name).getByText("As a table").click();
    assert.ok((await chart(name).locator("tbody tr").count()) > 0, name);
  }
  for (const name of ["Refusals", "Decisions", "Calls by tool", "Rules that asked or refused"]) {
    const bar = chart(name).locator("svg a").last();
    const count = Number(/(\d+) (?:success|refused|error|pending)/.exec(await bar.getAttribute("aria-label"))[1]);
    await page.goto(house.url + (await bar.getAttribute("href")));
    await page.locator(".act").first().waitFor();
    assert.equal(await page.locator(".act").count(), Math.min(count, 100), name);
    await page.goBack();
    await chart(name).locator("a .bar").first().waitFor();
  }
  await page.getByText("Another period").click();
  await page.getByLabel("From", { exact: true }).fill("2020-01-01T00:00");
  await page.getByLabel("Until", { exact: true }).fill("2020-01-02T00:00");
  await press("Show");
  await page.getByText("Nothing happened in this period").waitFor();
  quiet();
});

test("a human credential opens the page, an agent's does not", async () => {
  const make = (role) => JSON.parse(house.run("token", "create", "--role", role, "--name", `${role}-at-the-door`, "--json", "--config", "countersign.toml")).data.secret;
  const context = await web.browser.newContext();
  const fresh = await context.newPage();
  await fresh.goto(`${house.url}/grants`);
  await fresh.getByText("Sign in with a human credential").click();
  const form = fresh.locator("form", { has: fresh.getByLabel("Credential") });
  await form.getByLabel("Credential").fill(make("agent"));
  await form.getByRole("button", { name: "Sign in" }).click();
  await form.getByText(/only people decide here/).waitFor();
  assert.equal(await fresh.locator("nav").count(), 0);
  await form.getByLabel("Credential").fill(make("human"));
  await form.getByRole("button", { name: "Sign in" }).click();
  await fresh.getByRole("heading", { name: "Grants" }).waitFor();
  await context.close();
});

test("attack_06 eight tabs share one event stream, and the eighth works like the first", async () => {
  const streams = [];
  const count = (request) => { if (new URL(request.url()).pathname === "/api/v1/events") streams.push(request); };
  const first = await web.visit();
  const context = first.context();
  context.on("request", count);
  const tabs = [first];
  for (let number = 1; number < 8; number += 1) {
    const tab = await context.newPage();
    await tab.goto(`${house.url}/`);
    await tab.getByRole("heading", { name: "Inbox" }).waitFor();
    await tab.locator("#line.up").waitFor();
    tabs.push(tab);
  }
  assert.equal(streams.length, 0, "the first tab's stream serves all");
  const plan = await write();
  for (const tab of tabs) await tab.locator(`.plan-row[data-plan="${plan.plan_id}"]`).waitFor();
  // The tab that read the stream goes away: another one takes over, and everybody hears what follows.
  await first.close();
  const next = await bot.ask("write", "notes:tag_note", { title: "release-plan", tag: "tabs" });
  for (const tab of tabs.slice(1)) await tab.locator(`.plan-row[data-plan="${next.plan_id}"]`).waitFor();
  assert.equal(streams.length, 1);
  await context.close();
  quiet();
});

test("signing out ends the session", async () => {
  const other = await web.visit();
  await other.getByRole("button", { name: "Sign out" }).click();
  await other.getByRole("heading", { name: "Sign in to approve" }).waitFor();
  await other.context().close();
});

/** Lets the agent go on where the tests rejected too much. */
async function resume() {
  const { pauses } = (await (await page.request.get(`${house.url}/api/v1/pauses`)).json()).data;
  for (const pause of pauses) house.run("plans", "resume", pause.principal, "--config", "countersign.toml");
}

/** Takes back every plan that waits. */
async function clear() {
  const { plans } = (await (await page.request.get(`${house.url}/api/v1/plans?state=pending&limit=100`)).json()).data;
  for (const plan of plans) await bot.tool("cancel_plan", { plan_id: plan.plan_id });
}
