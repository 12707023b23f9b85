// Our cards in the official host of MCP Apps, in a real browser, around a real gateway: the thirteen checks, and the five stories of a
// predecessor's production bugs. Prints one line per check; a failure says what was seen.
//
//   node tests/cards/run.mjs [NAME-PART...]       CARD_PICTURES=FOLDER keeps screenshots

import assert from 'node:assert/strict';
import { SHORT_TEXT, TEXT, notEscaped } from '../invisible.mjs';
import { Ajv, appsSchema, browser, card, client, demonstration, end, gateway, getToolUiResourceUri, isToolVisibilityAppOnly, MIME, parsed, read, PRINCIPAL } from './scene.mjs';

const PLAN = 'ui://countersign/plan';
const wanted = process.argv.slice(2);
const checks = [];
const check = (name, run) => { if (!wanted.length || wanted.some((part) => name.includes(part))) checks.push({ name, run }); };

const ALL = { serverTools: {}, message: { text: {} }, openLinks: {}, updateModelContext: { text: {} } };
const RAILS = { none: {}, message: { message: { text: {} } }, serverTools: { serverTools: {} }, both: { serverTools: {}, message: { text: {} } } };
const router = (name, args, operation = 'destructive', more = {}) => ({ name: `call_tool_${operation}`, arguments: { name: `orders:${name}`, args, intent: { operation_type: operation, reason: 'asked for' }, ...more } });
const DELETE = router('delete_purchase_order', { number: 'PO-1041' });
const CREATE = (note) => router('create_purchase_order', { supplier: 'Taiko Components', lines: [{ sku: 'CHAIN-8S', quantity: 4 }], note }, 'write');

let home; let mcp; let html;
const seen = [];

/** A call, its answer, and the card that shows it. */
async function scene(call, capabilities, more = {}) {
  const line = more.mcp ?? mcp;
  const result = await line.callTool(call);
  // A gateway's card knows that gateway's desk.
  const own = more.mcp ? (await read(line, PLAN)).text : html;
  const shown = await card(line, { html: own, capabilities, ...more });
  await shown.input(call.arguments);
  await shown.result(result);
  await shown.frame.waitForFunction(() => document.getElementById('card').dataset.state !== 'loading', { timeout: 5000 });
  return { shown, result, plan: result.structuredContent?.data?.plan_id };
}
const settled = (ms = 150) => new Promise((resolve) => setTimeout(resolve, ms));
const planOf = async (id, line = mcp) => (await line.callTool({ name: 'get_plan', arguments: { plan_id: id } })).structuredContent.data.plan;
/** What an agent does with the message of a card. */
async function obey(message, line = mcp) {
  const told = parsed(message.content[0].text);
  return { told, result: await line.callTool({ name: told.tool, arguments: told.arguments }) };
}
const leave = async (shown) => { seen.push(...await shown.said()); await shown.close(); };
const cancelPlan = (id, line = mcp) => line.callTool({ name: 'cancel_plan', arguments: { plan_id: id } }).catch(() => {});

check('a card is linked, read and listed only for clients that show cards', async () => {
  const plain = await client(home.url, { cards: false });
  for (const line of [mcp, plain]) {
    const tools = (await line.listTools()).tools;
    const linked = tools.filter((tool) => getToolUiResourceUri(tool)).map((tool) => tool.name);
    const listed = (await line.listResources()).resources.map((one) => one.uri).filter((uri) => uri.startsWith('ui://countersign/'));
    if (line === plain) {
      assert.deepEqual([linked, listed], [[], []]);
      assert(!tools.some((tool) => tool.name === 'answer_plan'));
      const asked = await plain.callTool(DELETE);
      assert.equal(asked._meta?.['countersign/card'], undefined, 'no nonce without a card');
      assert(asked.content[0].text.includes('confirm_token'), 'the same facts as text');
      await cancelPlan(asked.structuredContent.data.plan_id, plain);
    } else {
      assert.deepEqual(linked.sort(), ['call_tool_destructive', 'call_tool_write', 'draft_plan', 'run_plan']);
      assert.deepEqual(listed, [PLAN, 'ui://countersign/result']);
      for (const tool of tools.filter((tool) => linked.includes(tool.name))) assert.equal(tool._meta['ui/resourceUri'], tool._meta.ui.resourceUri);
      assert(isToolVisibilityAppOnly(tools.find((tool) => tool.name === 'answer_plan')));
    }
  }
  for (const uri of [PLAN, 'ui://countersign/result']) {
    const item = await read(mcp, uri);
    assert.deepEqual([item.uri, item.mimeType], [uri, MIME]);
  }
});

check('coaching leads with the host that shows no card, and read tools carry none', async () => {
  const direct = await client(`${home.url}/direct`);
  const leads = (text) => text.indexOf('If no card is shown') !== -1 && text.indexOf('If no card is shown') < text.indexOf('If a card is shown');
  for (const line of [mcp, direct]) {
    for (const tool of (await line.listTools()).tools) {
      const coached = /Apply: call/.test(tool.description);
      // On the direct surface it is said once, in the instructions.
      assert.equal(coached, /^call_tool_(write|destructive)$|^draft_plan$/.test(tool.name), tool.name);
      if (coached) assert(leads(tool.description), tool.name);
      if (tool.name.startsWith('orders__')) assert.equal(Boolean(getToolUiResourceUri(tool)), !tool.annotations.readOnlyHint, tool.name);
    }
  }
  const said = direct.getInstructions();
  assert(/Apply: call/.test(said) && leads(said), said);
});

check('1, 2: it greets with all three params, waits, and says nothing else before', async () => {
  const { shown, plan } = await scene(DELETE, ALL);
  const said = (await shown.said()).filter((one) => one.method !== 'ui/notifications/sandbox-proxy-ready');
  assert.equal(said[0].method, 'ui/initialize');
  assert.deepEqual(Object.keys(said[0].params).sort(), ['appCapabilities', 'appInfo', 'protocolVersion']);
  assert.equal(said[1].method, 'ui/notifications/initialized');
  await leave(shown); await cancelPlan(plan);
});

check('3: every argument is shown in full, and hostile texts are inert', async () => {
  const note = '<img src=x onerror="parent.pwned=1"><script>parent.pwned=1</script> \u202eevil\u202c \u200bend';
  const items = (await mcp.callTool(router('search_items', {}, 'read'))).structuredContent.items;
  const lines = items.slice(0, 20).map((item, index) => ({ sku: item.sku, quantity: index + 1, price: 1.5 + index }));
  const { shown, plan } = await scene(router('create_purchase_order', { supplier: 'Brightspoke GmbH', lines, note, due: '2026-12-24' }, 'write'), ALL);
  const text = await shown.text();
  for (const line of lines) assert(text.includes(line.sku), line.sku);
  assert(text.includes('<img src=x onerror='), 'shown as text');
  assert(!text.includes('\u202e') && text.includes('\\u{202e}evil'), 'what would hide is visible');
  assert.equal(await shown.frame.evaluate(() => document.querySelectorAll('img, script').length), 1, 'only the card’s own script');
  assert.equal(await shown.frame.evaluate(() => window.pwned || parent.pwned), undefined);
  assert(text.includes('2026-12-24') && text.includes('Brightspoke GmbH'));
  await leave(shown); await cancelPlan(plan);
});

check('attack_11: every invisible character is an escape on the card, in plans and in results', async () => {
  const call = router('modify_purchase_order', { number: 'PO-1040', note: SHORT_TEXT });
  call.arguments.intent.reason = SHORT_TEXT;
  const { shown, plan } = await scene({ ...call, _meta: { tenant: TEXT } }, ALL);
  const text = (selector) => shown.frame.evaluate((selector) => document.querySelector(selector).textContent, selector);
  assert.deepEqual(notEscaped(await text('#sub'), SHORT_TEXT), [], 'reason');
  const note = await shown.frame.evaluate(() => [...document.querySelectorAll('#body .args tr')].find((row) => row.firstChild.textContent === 'note').textContent);
  assert.deepEqual(notEscaped(note, SHORT_TEXT), [], 'argument');
  assert.deepEqual(notEscaped(await text('#body .args tr:last-child')), [], '_meta');
  await shown.shot('invisible');
  await leave(shown); await cancelPlan(plan);
  // Results reach the card through the host, as the upstream wrote them.
  const said = { content: [{ type: 'text', text: TEXT }] };
  const other = await scene(CREATE('invisible'), ALL);
  await other.shown.result(said);
  await other.shown.until('unmarked');
  assert.deepEqual(notEscaped(await other.shown.frame.evaluate(() => document.getElementById('body').textContent)), [], 'result');
  await leave(other.shown); await cancelPlan(other.plan);
});

check('attack_02: what is sent along in _meta is on the card, hidden characters visible', async () => {
  const call = router('modify_purchase_order', { number: 'PO-1040', note: 'sent along' });
  const { shown, plan } = await scene({ ...call, _meta: { tenant: 'acme\u202eevil' } }, ALL);
  const text = await shown.text();
  assert(text.includes('_meta') && text.includes('"tenant"'), text);
  assert(!text.includes('\u202e') && text.includes('acme\\u{202e}evil'), text);
  await leave(shown); await cancelPlan(plan);
});

check('4: two clicks are one action, and terminal states are locked', async () => {
  const { shown, plan } = await scene(DELETE, RAILS.both);
  await shown.frame.evaluate(() => { for (const id of ['confirm', 'confirm', 'cancel', 'confirm']) document.getElementById(id).click(); });
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  assert.equal(shown.calls.filter((call) => call.name === 'answer_plan').length, 1);
  assert.equal(shown.messages.length, 1);
  assert.equal(await shown.state(), 'pending');
  assert.equal(await shown.value('pill'), 'Pending…');
  assert(await shown.disabled('confirm') && await shown.disabled('cancel'));
  await shown.shot('pending');
  assert.equal((await planOf(plan)).approval.rail, 'card');
  await cancelPlan(plan); await leave(shown);

  const other = await scene(DELETE, RAILS.both);
  await other.shown.frame.evaluate(() => { for (const id of ['cancel', 'confirm', 'cancel']) document.getElementById(id).click(); });
  await settled(400);
  assert.equal(await other.shown.state(), 'cancelled');
  assert.equal(await other.shown.value('pill'), 'Cancelled');
  assert.deepEqual(other.shown.messages.map((one) => one.content[0].text), ['Cancel: do not apply the deletion of that purchase order.']);
  assert.equal((await planOf(other.plan)).state, 'rejected');
  await other.shown.shot('cancelled');
  await leave(other.shown);
});

for (const [name, capabilities] of Object.entries(RAILS)) {
  check(`5: the rail of a host that offers ${name}`, async () => {
    const { shown, plan, result } = await scene(CREATE(`rail ${name}`), capabilities);
    const nonce = result._meta['countersign/card'].nonce;
    assert(!JSON.stringify([result.content, result.structuredContent]).includes(nonce), 'the nonce is only in _meta');
    assert.deepEqual(Object.keys(result._meta['countersign/card']).sort(), ['nonce', 'plan_id']);
    if (name === 'none') {
      assert(!await shown.shown('confirm') && !await shown.shown('cancel'), 'no dead button');
      assert((await shown.text()).includes('countersign approve'), 'but what to do');
      await shown.shot('no-rail');
    } else {
      await shown.click('confirm');
      await settled(400);
      const answers = shown.calls.filter((call) => call.name === 'answer_plan');
      assert.equal(answers.length, name === 'message' ? 0 : 1);
      assert.equal(shown.messages.length, name === 'serverTools' ? 0 : 1);
      if (answers.length) assert.deepEqual([(await planOf(plan)).state, (await planOf(plan)).approval.strength], ['approved', 'host']);
      if (shown.messages.length) {
        const { told, result } = await obey(shown.messages[0]);
        assert.equal(told.last, 'preview', 'preview=False stands last');
        assert.equal(result.isError, false, JSON.stringify(result));
        if (name === 'both') { await shown.until('applied'); await shown.shot('applied'); }
      }
    }
    await cancelPlan(plan); await leave(shown);
  });
}

check('attack_07: where the credential may not vouch the card has no Confirm and leads to the desk', async () => {
  const plain = await client(home.url, { secret: home.cli('token', 'create', '--role', 'agent', '--name', 'plain-host').data.secret });
  const { shown, result, plan } = await scene(router('modify_purchase_order', { number: 'PO-1040', note: 'no vouching' }), RAILS.both, { mcp: plain });
  assert.equal(result.structuredContent.data.confirm.strength, 'host');
  assert.equal(await shown.shown('confirm'), false);
  assert.match(await shown.text(), /A person decides this on the approvals page/);
  await cancelPlan(plan, plain); await leave(shown);
});

check('message alone, strength host: the click is no person, a person agrees, the agent goes on to the end', async () => {
  const { shown, plan } = await scene(router('modify_purchase_order', { number: 'PO-1040', note: 'by message' }), RAILS.message);
  assert.match(await shown.text(), /can’t vouch for a click.*countersign approve/s);
  await shown.click('confirm');
  await settled(300);
  assert.deepEqual([shown.messages.length, shown.calls.filter((call) => call.name === 'answer_plan').length], [1, 0]);
  const early = (await obey(shown.messages[0])).result;
  assert.equal(early.structuredContent.errors[0].code, 'E_APPROVAL_PENDING', JSON.stringify(early));
  assert.equal((await planOf(plan)).state, 'pending');
  assert.equal(home.cli('approve', plan, '--yes').ok, true);
  const { result } = await obey(shown.messages[0]);
  assert.equal(result.isError, false, JSON.stringify(result));
  const done = await planOf(plan);
  assert.deepEqual([done.state, done.approval.strength, done.approval.rail], ['done', 'human', 'cli']);
  await leave(shown);
});

check('6: a host that refuses shows its reason and Retry, and a retry acts once', async () => {
  const { shown, plan } = await scene(CREATE('host error'), RAILS.both, { faults: { message: 'error' } });
  await shown.click('confirm');
  await shown.until('failed');
  assert((await shown.value('reason')).includes('the chat is closed'));
  assert(await shown.shown('retry'));
  await shown.shot('failed-retry');
  await shown.page.evaluate(() => { window.faults = { message: 'isError' }; });
  await shown.click('retry');
  await shown.frame.waitForFunction(() => document.getElementById('reason').textContent.includes('did not take the message'));
  await shown.page.evaluate(() => { window.faults = {}; });
  await shown.click('retry');
  await shown.until('pending');
  await settled();
  assert.equal(shown.messages.length, 1);
  assert.equal(shown.calls.filter((call) => call.name === 'answer_plan').length, 1, 'what was answered is not answered again');
  await cancelPlan(plan); await leave(shown);

  const lost = await scene(CREATE('lost reply'), RAILS.both, {
    answer: (() => { let first = true; return async (params) => { if (params.name === 'answer_plan' && first) { first = false; await mcp.callTool(params); throw new Error('the line broke'); } }; })(),
  });
  await lost.shown.click('confirm');
  await lost.shown.until('failed');
  await lost.shown.click('retry');
  await lost.shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  assert.equal(lost.shown.messages.length, 1, 'an answer whose reply was lost is recognised as its own');
  await cancelPlan(lost.plan); await leave(lost.shown);
});

check('7: a call the host ended, and a teardown', async () => {
  const { shown, plan } = await scene(DELETE, ALL);
  await shown.page.evaluate(() => window.bridge.sendToolCancelled({ reason: 'user pressed stop' }));
  await shown.until('cancelled');
  assert((await shown.text()).includes('user pressed stop'));
  assert(await shown.disabled('confirm'));
  assert.deepEqual(await shown.page.evaluate(() => window.bridge.teardownResource({})), {});
  const before = shown.calls.length;
  await settled(3500);
  assert.equal(shown.calls.length, before, 'it asks nothing after a teardown');
  await cancelPlan(plan); await leave(shown);
});

check('8: the host’s theme and variables, also when they change', async () => {
  const context = { theme: 'light', styles: { variables: { '--color-background-primary': 'rgb(1, 2, 3)' } } };
  const { shown, plan } = await scene(DELETE, ALL, { context });
  const ground = () => shown.frame.$eval('#card', (card) => getComputedStyle(card).backgroundColor);
  assert.equal(await ground(), 'rgb(1, 2, 3)');
  await shown.page.evaluate(() => window.bridge.setHostContext({ theme: 'dark', styles: { variables: { '--color-background-primary': 'rgb(9, 8, 7)' } } }));
  await shown.frame.waitForFunction(() => document.documentElement.dataset.theme === 'dark');
  assert.equal(await ground(), 'rgb(9, 8, 7)');
  await cancelPlan(plan); await leave(shown);
});

check('9: it says its size after it was drawn', async () => {
  const { shown, plan } = await scene(DELETE, ALL);
  await settled(300);
  const sizes = (await shown.said()).filter((one) => one.method === 'ui/notifications/size-changed').map((one) => one.params.height);
  const real = await shown.frame.evaluate(() => document.documentElement.getBoundingClientRect().height);
  assert(sizes.length > 0 && Math.abs(sizes.at(-1) - real) <= 1, `${sizes} against ${real}`);
  await cancelPlan(plan); await leave(shown);
});

check('10: nothing breaks the default policy, nothing is fetched', async () => {
  const { shown, plan } = await scene(DELETE, ALL);
  await shown.click('cancel');
  await settled(400);
  assert.deepEqual(shown.trouble, []);
  assert.equal(await shown.frame.evaluate(() => fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'blocked')), 'blocked');
  await leave(shown); await cancelPlan(plan);
});

check('11: both buttons by keyboard, Enter and Space', async () => {
  for (const [steps, key, expect] of [[1, 'Enter', 'approve'], [2, 'Space', 'reject']]) {
    const { shown, plan } = await scene(CREATE(`keyboard ${key}`), RAILS.both);
    // From the last thing before the buttons.
    await shown.frame.evaluate(() => { const all = [...document.querySelectorAll('summary')]; all.at(-1).focus(); });
    for (let step = 0; step < steps; step += 1) await shown.page.keyboard.press('Tab');
    await shown.page.keyboard.press(key);
    await settled(400);
    assert.equal(shown.calls.find((call) => call.name === 'answer_plan')?.arguments.answer, expect);
    await cancelPlan(plan); await leave(shown);
  }
});

check('12: what expired or was used elsewhere says so, and has no dead button', async () => {
  const brief = await gateway({ ttl: '3s' });
  const quick = await client(brief.url);
  const { shown } = await scene(DELETE, RAILS.message, { mcp: quick });
  assert(await shown.shown('confirm'));
  await shown.until('expired', 6000);
  assert.equal(await shown.value('pill'), 'Expired');
  assert(!await shown.shown('confirm') && !await shown.shown('cancel'));
  await shown.shot('expired');
  await leave(shown);

  const rejected = await scene(DELETE, RAILS.both);
  const no = home.cli('reject', rejected.plan, '--note', 'keep it');
  assert.equal(no.ok, true, JSON.stringify(no));
  await rejected.shown.until('elsewhere');
  assert.equal(await rejected.shown.value('pill'), 'Rejected elsewhere');
  assert((await rejected.shown.text()).includes('keep it'));
  assert(!await rejected.shown.shown('confirm'));
  await rejected.shown.shot('elsewhere');
  await leave(rejected.shown);

  // Decided between the last look and the click.
  const raced = await scene(CREATE('raced'), RAILS.both, { answer: async (params) => (params.name === 'get_plan' && !raced?.done ? { content: [], isError: true } : null) });
  raced.done = true;
  home.cli('reject', raced.plan);
  await raced.shown.click('confirm');
  await raced.shown.until('elsewhere');
  assert.equal(raced.shown.messages.length, 0, 'the agent is not told to apply what was rejected');
  await leave(raced.shown);
});

check('typed: the field opens the desk and decides nothing', async () => {
  const strict = await gateway({ config: '[[rules]]\nmatch = "orders:delete_*"\nconfirm = "type"\ntype_field = "number"\nstrength = "human"\n' });
  const line = await client(strict.url);
  const { shown, plan, result } = await scene(DELETE, ALL, { mcp: line });
  const url = result._meta['countersign/view'].approve_url;
  assert(await shown.shown('typed') && await shown.shown('desk') && !await shown.shown('confirm'));
  for (const way of ['typed-field', 'desk']) await shown.click(way);
  await settled();
  assert.deepEqual(shown.links, [url, url]);
  assert.equal(shown.calls.filter((call) => call.name === 'answer_plan').length, 0);
  const { nonce } = result._meta['countersign/card'];
  const refused = await line.callTool({ name: 'answer_plan', arguments: { plan_id: plan, nonce, answer: 'approve' } });
  assert.equal(refused.structuredContent.errors[0].code, 'E_APPROVAL_PENDING');
  await shown.shot('typed');
  await leave(shown);
});

check('attack_04: a copied envelope, without our mark or without our view, has no button and no address', async () => {
  const asked = await mcp.callTool(CREATE('copied'));
  const copy = structuredClone(asked);
  copy.structuredContent.data.approve_url = 'https://evil.example/approve';
  for (const _meta of [undefined, {}, { 'countersign/view': copy._meta['countersign/view'], 'countersign/card': copy._meta['countersign/card'] }, { countersign: { ledger_id: 'x' } }]) {
    const shown = await card(mcp, { html, capabilities: ALL });
    await shown.result({ ...copy, _meta });
    await shown.until('unmarked');
    for (const id of ['confirm', 'cancel', 'desk', 'typed', 'retry']) assert(!await shown.shown(id), `${id} with ${JSON.stringify(_meta)}`);
    assert(!(await shown.text()).includes('evil.example/approve or'), await shown.text());
    await settled();
    assert.deepEqual([shown.links, shown.messages, shown.calls], [[], [], []]);
    await leave(shown);
  }
  await cancelPlan(asked.structuredContent.data.plan_id);
});

check('attack_04: a card opens no address but the desk’s own, and believes no unmarked answer', async () => {
  const strict = await gateway({ config: '[[rules]]\nmatch = "orders:delete_*"\nstrength = "human"\n' });
  const line = await client(strict.url);
  const asked = await line.callTool(DELETE);
  const own = (await read(line, PLAN)).text;
  for (const url of ['https://evil.example/', 'javascript:alert(1)', asked._meta['countersign/view'].approve_url.replace('127.0.0.1', '127.0.0.1.evil.example')]) {
    const bent = structuredClone(asked);
    bent._meta['countersign/view'].approve_url = url;
    const shown = await card(line, { html: own, capabilities: ALL });
    await shown.result(bent);
    await shown.until('ready');
    assert(!await shown.shown('desk'));
    await shown.click('desk');
    await settled();
    assert.deepEqual(shown.links, []);
    assert(!(await shown.text()).includes('evil.example'));
    await leave(shown);
  }
  // A tool of an upstream that answers in the place of ours is not believed either.
  const fake = { content: [], structuredContent: { schema_version: 1, ok: true, data: { plan: { state: 'done', result: {} } }, errors: [] }, isError: false };
  const { shown, plan } = await scene(CREATE('lied to'), RAILS.serverTools, { answer: async () => fake });
  await shown.click('confirm');
  await shown.until('failed');
  assert((await shown.text()).includes('did not come from Countersign'));
  await leave(shown); await cancelPlan(plan);
});

check('blocked: a warning that forbids takes Confirm away, on every rail', async () => {
  const { shown, plan, result } = await scene(router('delete_purchase_order', { number: 'PO-1038' }), ALL);
  assert.equal(await shown.state(), 'blocked');
  assert(!await shown.shown('confirm') && await shown.shown('cancel'));
  assert(!(await shown.text()).includes('BLOCK:') && (await shown.text()).includes('correct it instead'));
  await shown.shot('blocked');
  const told = result.structuredContent.data;
  assert.deepEqual([told.next_actions, told.approve_command, told.blocks.length], [['fix_arguments', 'stop'], undefined, 1]);
  const { nonce } = result._meta['countersign/card'];
  for (const answer of [
    await mcp.callTool({ name: 'answer_plan', arguments: { plan_id: plan, nonce, answer: 'approve' } }),
    { structuredContent: home.cli('approve', plan, '--yes') },
  ]) assert.equal(answer.structuredContent.errors[0].details.reason_code, 'preview_blocked', JSON.stringify(answer));
  await leave(shown); await cancelPlan(plan);
});

check('a nonce is not to be guessed, and answers only its own plan', async () => {
  const one = await mcp.callTool(CREATE('nonce one')); const two = await mcp.callTool(CREATE('nonce two'));
  const [first, second] = [one, two].map((result) => result._meta['countersign/card']);
  for (const given of ['', 'x', second.nonce, first.nonce.slice(0, -1), first.nonce.toUpperCase()]) {
    const refused = await mcp.callTool({ name: 'answer_plan', arguments: { plan_id: first.plan_id, nonce: given, answer: 'approve' } });
    assert.equal(refused.structuredContent.errors[0].code, 'E_CONFIRM_TOKEN_MISMATCH', given);
  }
  const unknown = await mcp.callTool({ name: 'answer_plan', arguments: { plan_id: 'pln_nothing', nonce: first.nonce, answer: 'approve' } });
  assert.equal(unknown.structuredContent.errors[0].code, 'E_CONFIRM_TOKEN_MISMATCH', 'unknown and foreign look the same');
  for (const card of [first, second]) await cancelPlan(card.plan_id);
});

check('a plan of several steps: every step shown, one answer, run_plan, its outcome', async () => {
  const steps = [
    { name: 'orders:modify_item', args: { sku: 'CHAIN-8S', price: 12.5 }, intent: { operation_type: 'destructive' } },
    { name: 'orders:receive_purchase_order', args: { number: 'PO-1040' }, intent: { operation_type: 'destructive' } },
    { name: 'orders:rebuild_cache', args: {}, intent: { operation_type: 'destructive' } },
  ];
  const { shown } = await scene({ name: 'draft_plan', arguments: { title: 'Goods in', steps } }, ALL, { height: 1500 });
  for (const part of ['Step 1', 'Step 2', 'Step 3', '11.2', '12.5', 'bin C-01']) assert((await shown.text()).includes(part), part);
  await shown.shot('steps');
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const { told, result } = await obey(shown.messages[0]);
  assert.equal(told.tool, 'run_plan');
  assert.deepEqual(result.structuredContent.data.steps.map((step) => step.state), ['done', 'failed', 'not_run']);
  await shown.until('failed');
  assert((await shown.value('reason')).includes('the bin of TYRE-700C is full'));
  await leave(shown);
  const outcome = await card(mcp, { html: (await read(mcp, 'ui://countersign/result')).text, capabilities: {} });
  await outcome.input({}); await outcome.result(result);
  await outcome.until('failed');
  assert((await outcome.text()).includes('the bin of TYRE-700C is full'));
  await outcome.shot('result-steps');
  await leave(outcome);
});

check('stateless: the extension is heard with each request', async () => {
  const modern = await client(home.url, { era: { pin: '2026-07-28' } });
  const { shown, plan } = await scene(CREATE('stateless'), RAILS.both, { mcp: modern });
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const { result } = await obey(shown.messages[0], modern);
  assert.equal(result.isError ?? false, false, JSON.stringify(result));
  assert.equal((await planOf(plan, modern)).state, 'done');
  await leave(shown);
});

check('direct surface: the tool’s own name, every argument, countersign and preview last', async () => {
  const direct = await client(`${home.url}/direct`);
  const given = { supplier: 'Taiko Components', lines: [{ sku: 'CHAIN-8S', quantity: 2, price: 10.5 }], note: 'it’s "quoted"\n' };
  const { shown, result } = await scene({ name: 'orders__create_purchase_order', arguments: given }, RAILS.both, { mcp: direct });
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const text = shown.messages[0].content[0].text;
  const token = result.structuredContent.data.confirm_token;
  assert(text.startsWith('Apply: call orders__create_purchase_order(supplier='), text);
  assert(text.endsWith(`, countersign={'confirm_token': '${token}', 'yes': True}, preview=False)`), text);
  const { told, result: done } = await obey(shown.messages[0], direct);
  const { countersign, preview, ...rest } = told.arguments;
  assert.deepEqual(rest, given);
  assert.equal(done.isError, false, JSON.stringify(done));
  await leave(shown);
});

// --- five stories from the production of a predecessor ---------------------------------------------------------------

check('#491: no argument is lost between preview, Apply text and upstream', async () => {
  const items = (await mcp.callTool(router('search_items', {}, 'read'))).structuredContent.items;
  const lines = items.slice(0, 20).map((item, index) => ({ sku: item.sku, quantity: index + 1, price: 0.25 + index }));
  const note = 'ütf-8 \u202e “quotes” \' " \\ \n\t {braces} 🚲';
  const call = router('create_purchase_order', { supplier: 'Alder & Sons Tubing', lines, note, due: '2027-01-31' }, 'write');
  const { shown } = await scene(call, RAILS.both);
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const { told, result } = await obey(shown.messages[0]);
  assert.deepEqual(told.arguments.args, call.arguments.args, 'the text carries every argument');
  const number = result.structuredContent.entity_id;
  const order = (await mcp.callTool(router('get_order', { number }, 'read'))).structuredContent;
  assert.deepEqual(order.lines.map(({ sku, quantity, price }) => ({ sku, quantity, price })), lines, 'and the upstream has them all');
  assert.deepEqual([order.note, order.due, order.supplier], [note, '2027-01-31', 'Alder & Sons Tubing']);
  await leave(shown);
});

check('#495: a click is seen at once', async () => {
  const { shown, plan } = await scene(CREATE('feedback'), RAILS.both, { answer: async (params) => { if (params.name === 'answer_plan') await settled(1500); } });
  await shown.click('confirm');
  assert.equal(await shown.value('pill'), 'Pending…', 'before the host has answered anything');
  assert(await shown.disabled('confirm') && await shown.disabled('cancel'));
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  assert.equal(shown.messages.length, 1, 'and the chat has a line about it');
  await leave(shown); await cancelPlan(plan);
});

check('#544: one canonical rail: whoever answers first decides, once', async () => {
  const { shown, plan, result } = await scene(DELETE, RAILS.both);
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const late = home.cli('approve', plan, '--yes');
  assert.equal(late.errors[0].code, 'E_PLAN_DECIDED');
  const { nonce } = result._meta['countersign/card'];
  const again = await mcp.callTool({ name: 'answer_plan', arguments: { plan_id: plan, nonce, answer: 'reject' } });
  assert.equal(again.structuredContent.errors[0].code, 'E_PLAN_DECIDED');
  await cancelPlan(plan); await leave(shown);
});

check('#545: the real reason of a failure reaches the agent and the card', async () => {
  const { shown } = await scene(router('receive_purchase_order', { number: 'PO-1040', lines: [{ sku: 'TYRE-700C', quantity: 80 }] }), ALL);
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const { result } = await obey(shown.messages[0]);
  assert.equal(result.isError, true);
  assert.equal(result.structuredContent.error, 'the bin of TYRE-700C is full');
  await shown.until('failed');
  assert.equal(await shown.value('reason'), 'the bin of TYRE-700C is full');
  assert(!(await shown.text()).includes('PLANNED') && (await shown.text()).includes('NOT RUN'), 'what was planned gave way to what was done');
  await shown.shot('failed');
  assert(await shown.shown('retry'), 'a spent plan is retried as a new one');
  await shown.click('retry');
  await settled(400);
  const retry = parsed(shown.messages[1].content[0].text);
  assert.deepEqual([retry.tool, retry.arguments.confirm_token], ['call_tool_destructive', undefined]);
  await leave(shown);
  const outcome = await card(mcp, { html, capabilities: {} });
  await outcome.input({}); await outcome.result(result);
  await outcome.until('failed');
  assert.equal(await outcome.value('reason'), 'the bin of TYRE-700C is full');
  await outcome.shot('result-failed');
  await leave(outcome);
});

check('#559: the agent makes the call itself and sees that it is done', async () => {
  const { shown, plan } = await scene(DELETE, ALL);
  await shown.shot('ready');
  await shown.click('confirm');
  await shown.frame.waitForFunction(() => document.getElementById('hint').textContent.includes('Approved'));
  const { result } = await obey(shown.messages[0]);
  assert.equal(result.isError, false);
  assert.equal(result.structuredContent.is_preview, false);
  assert(result.structuredContent.message.endsWith(': applied'), result.structuredContent.message);
  assert.equal(result._meta.countersign.plan_id, plan);
  await shown.until('applied');
  const outcome = await card(mcp, { html, capabilities: {} });
  await outcome.input({}); await outcome.result(result);
  await outcome.until('applied');
  assert((await outcome.text()).includes('delete PO-1041'));
  await outcome.shot('result-applied');
  await leave(outcome); await leave(shown);
});

check('dark, narrow: it is still readable', async () => {
  const { shown, plan } = await scene(router('modify_purchase_order', { number: 'PO-1037', due: '2026-12-07', note: 'call the day before', set_lines: [{ sku: 'TUBE-4130-28', quantity: 300 }] }), ALL, { context: { theme: 'dark' }, width: 420, height: 760 });
  assert.equal(await shown.frame.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), true, 'nothing sticks out');
  await shown.shot('dark');
  await cancelPlan(plan); await leave(shown);
});

check('demo: a person decides on the page, and the terminal goes on until Ctrl-C', async () => {
  const { running } = await browser();
  const demo = demonstration();
  const context = await running.createBrowserContext();
  const page = await context.newPage();
  await page.goto(await demo.link);
  for (const [plan, button, expect] of [['Delete purchase order PO-1041', /^Approve/, /PO-1041 is gone/], ['Delete sales order SO-1043', /^Reject$/, /SO-1043 is still there/]]) {
    const row = await page.waitForSelector(`.plan-name::-p-text(${plan})`, { timeout: 10000 });
    await row.click();
    await page.waitForFunction((title) => document.querySelector('h1')?.innerText.includes(title), { timeout: 10000 }, plan);
    const pressed = await page.waitForFunction((name) => [...document.querySelectorAll('button')].find((one) => one.checkVisibility() && new RegExp(name).test(one.innerText.trim())), { timeout: 10000 }, button.source);
    await pressed.click();
    await demo.says(expect);
    await page.goto(new URL('/', page.url()).href);
  }
  demo.interrupt();
  await demo.says(/nothing left behind/);
  await context.close();
});

check('13: every message any card sent fits the official schema', async () => {
  const ajv = new Ajv({ strict: false, allErrors: true, logger: false });
  ajv.addSchema({ ...appsSchema, $id: 'apps' });
  const names = { 'ui/initialize': 'McpUiInitializeRequest', 'ui/notifications/initialized': 'McpUiInitializedNotification', 'ui/message': 'McpUiMessageRequest',
    'ui/open-link': 'McpUiOpenLinkRequest', 'ui/update-model-context': 'McpUiUpdateModelContextRequest', 'ui/notifications/size-changed': 'McpUiSizeChangedNotification' };
  const counted = {};
  for (const message of seen) {
    if (!message.method || message.method === 'ui/notifications/sandbox-proxy-ready') continue;
    if (message.method === 'tools/call') { assert(typeof message.params.name === 'string' && typeof message.params.arguments === 'object'); continue; }
    assert(names[message.method], `an unknown message: ${message.method}`);
    counted[message.method] = (counted[message.method] ?? 0) + 1;
    const { jsonrpc, id, ...body } = message;
    const fits = ajv.getSchema(`apps#/$defs/${names[message.method]}`);
    assert(fits(body), `${message.method}: ${ajv.errorsText(fits.errors)}`);
  }
  assert(counted['ui/initialize'] > 0);
});

let failed = 0;
const began = Date.now();
try {
  await browser();
  home = await gateway();
  mcp = await client(home.url);
  html = (await read(mcp, PLAN)).text;
  for (const { name, run } of checks) {
    const from = Date.now();
    try {
      await run();
      console.log(`ok      ${name} (${Date.now() - from} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n        ${String(error.stack ?? error).split('\n').slice(0, 6).join('\n        ')}`);
    }
    // Rejections pause a principal's writes; a person lets it go on.
    home.cli('plans', 'resume', PRINCIPAL);
  }
} finally {
  await end();
}
console.log(`cards: ${checks.length - failed} of ${checks.length} checks passed, ${Math.round((Date.now() - began) / 1000)} s`);
process.exit(failed ? 1 : 0);
