'use strict';
// A card: shows a plan or its outcome, and sends one answer of the person who looks at it. No framework, no network access, no markup made from text.
(() => {
  const $ = (id) => document.getElementById(id);
  const PROTOCOL = '2026-01-26';
  // The only address a button may open. It is part of this document, which only the gateway writes.
  const DESK = document.documentElement.dataset.desk;
  // Hidden characters, from the list the gateway uses everywhere. Texts of results and of the host reach the card unescaped.
  const HIDDEN = new RegExp({{hidden}}, 'gu');
  const visible = (words) => String(words).replace(HIDDEN, (char) => char === '\r' ? '\\r' : '\\u{' + char.codePointAt(0).toString(16) + '}');
  const host = { can: {}, context: {} };
  // All state of the card. `locked` is set before anything is sent, so that two clicks are one action.
  const S = { state: 'loading', view: null, card: null, answer: null, locked: false, answered: false, told: false, retry: null, polling: null, closed: false };

  // --- messages to and from the host -----------------------------------------------------------------------------
  let nextId = 1;
  const open = new Map();
  const post = (message) => window.parent.postMessage({ jsonrpc: '2.0', ...message }, '*');
  const notify = (method, params) => post({ method, params });
  const request = (method, params, patience = 60000) => new Promise((resolve, reject) => {
    const id = nextId++;
    const timer = setTimeout(() => { open.delete(id); reject(new Error('the host did not answer')); }, patience);
    open.set(id, { resolve, reject, timer });
    post({ id, method, params });
  });

  window.addEventListener('message', (event) => {
    if (event.source !== window.parent) return;
    const message = event.data;
    if (!message || message.jsonrpc !== '2.0') return;
    if (message.method === undefined) {
      const waiting = open.get(message.id);
      if (!waiting) return;
      open.delete(message.id);
      clearTimeout(waiting.timer);
      if (message.error) waiting.reject(new Error(String(message.error.message || 'the host refused')));
      else waiting.resolve(message.result || {});
    } else if (message.id !== undefined) {
      if (message.method === 'ui/resource-teardown') { stop(); post({ id: message.id, result: {} }); }
      else if (message.method === 'ping') post({ id: message.id, result: {} });
      else post({ id: message.id, error: { code: -32601, message: 'not offered by this card' } });
    } else received(message.method, message.params || {});
  });

  function received(method, params) {
    if (method === 'ui/notifications/tool-input') showInput(params.arguments || {});
    else if (method === 'ui/notifications/tool-result') showResult(params);
    else if (method === 'ui/notifications/tool-cancelled') cancelledByHost(params.reason);
    else if (method === 'ui/notifications/host-context-changed') { Object.assign(host.context, params); dress(); }
  }

  async function initialize() {
    const answer = await request('ui/initialize', {
      protocolVersion: PROTOCOL,
      appInfo: { name: 'countersign-' + document.documentElement.dataset.kind, version: '1' },
      appCapabilities: {},
    });
    host.can = answer.hostCapabilities || {};
    host.context = answer.hostContext || {};
    dress();
    notify('ui/notifications/initialized', {});
    new ResizeObserver(measure).observe(document.documentElement);
    measure();
  }

  let size = '';
  function measure() {
    const height = Math.ceil(document.documentElement.getBoundingClientRect().height);
    const width = Math.ceil(document.documentElement.getBoundingClientRect().width);
    if (S.closed || size === width + 'x' + height) return;
    size = width + 'x' + height;
    notify('ui/notifications/size-changed', { width, height });
  }

  // The host's colours and fonts: only its variables, never its style text.
  function dress() {
    const root = document.documentElement;
    const theme = host.context.theme;
    const dark = theme ? theme === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'dark' : 'light';
    const variables = (host.context.styles && host.context.styles.variables) || {};
    for (const [name, value] of Object.entries(variables)) {
      if (name.startsWith('--') && typeof value === 'string') root.style.setProperty(name, value);
    }
  }

  function stop() { S.closed = true; clearInterval(S.polling); clearInterval(S.ticking); }

  // --- making elements -------------------------------------------------------------------------------------------
  function el(tag, name, ...children) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    for (const child of children) if (child !== null && child !== undefined) made.append(typeof child === 'string' ? visible(child) : child);
    return made;
  }
  const text = (value) => value === null || value === undefined ? '—' : typeof value === 'string' ? value : JSON.stringify(value);
  const show = (id, shown) => { $(id).hidden = !shown; };
  function say(id, words) { $(id).textContent = visible(words || ''); show(id, Boolean(words)); }
  const title = (words) => { $('title').textContent = visible(words); };

  // --- what is shown -----------------------------------------------------------------------------------------------
  const TONES = { APPLIED: 'good', done: 'good', FAILED: 'bad', failed: 'bad' };
  const MARKS = { added: '+', removed: '−', changed: '~', unchanged: ' ', unknown: '?' };

  function changeRow(change) {
    const values = el('td');
    if (change.how !== 'added') values.append(el('span', 'old', text(change.old)));
    if (change.how === 'changed' || change.how === 'unknown') values.append(el('span', 'arrow', ' → '));
    if (change.how !== 'removed' && change.how !== 'unchanged') values.append(el('span', 'new', text(change.new)));
    return el('tr', change.how, el('td', 'mark', MARKS[change.how] || ''), el('th', '', change.field), values);
  }

  function actionBox(action) {
    const box = el('div', 'action');
    const fate = action.status ? el('span', 'fate', action.status) : null;
    if (fate) fate.dataset.tone = TONES[action.status.split(' ')[0]] || '';
    const name = [action.operation, action.target].filter(Boolean).join(' ') || 'changes';
    box.append(el('h2', '', el('span', 'grow', name), fate));
    if (action.error) box.append(el('p', 'failure', action.error));
    if (action.changes.length) {
      const table = el('table', 'changes', el('colgroup', '', el('col', 'mark'), el('col', 'field'), el('col')));
      table.append(el('tbody', '', ...action.changes.map(changeRow)));
      box.append(table);
    }
    if (action.more && Object.keys(action.more).length) box.append(el('pre', '', JSON.stringify(action.more, null, 1)));
    return box;
  }

  function diffBox(diff) {
    const box = el('pre', 'diff');
    for (const line of diff.split('\n')) {
      const kind = line.startsWith('@@') ? 'at' : /^(\+\+\+|---) /.test(line) ? '' : line.startsWith('+') ? 'plus' : line.startsWith('-') ? 'minus' : '';
      box.append(el('span', kind, line), '\n');
    }
    return box;
  }

  function viewBoxes(view) {
    if (!view) return [];
    const boxes = [];
    if (view.message) boxes.push(el('p', 'say', view.message));
    if (view.error && view.error !== view.message) boxes.push(el('p', 'say failure', view.error));
    boxes.push(...view.actions.map(actionBox), ...view.diffs.map(diffBox), ...view.texts.map((one) => el('pre', '', one)));
    const rest = [view.next && view.next.length ? { it_suggests: view.next } : null, view.rest, view.for_programs].filter((one) => one !== null && one !== undefined);
    if (rest.length) {
      const more = el('details', '', el('summary', '', 'More of the answer'), ...rest.map((one) => el('pre', '', JSON.stringify(one, null, 2))));
      more.addEventListener('toggle', measure);
      boxes.push(more);
    }
    return boxes;
  }

  function argumentBox(pairs) {
    if (!pairs || !pairs.length) return el('p', 'hint', 'No arguments.');
    const rows = pairs.map(([name, value]) => el('tr', '', el('th', '', name), el('td', '', value)));
    const box = el('details', '', el('summary', '', 'Arguments (' + pairs.length + ')'), el('div', 'args', el('table', '', el('tbody', '', ...rows))));
    box.open = true;
    box.addEventListener('toggle', measure);
    return box;
  }

  function notes(view, blocks) {
    const warnings = view && view.warnings || [];
    $('notes').replaceChildren(
      ...blocks.map((one) => el('p', 'note block', 'Blocked: ' + one)),
      ...warnings.map((one) => el('p', 'note', one)));
  }

  function head(view) {
    title(view.title || view.tool || 'Countersign');
    const badge = $('badge');
    badge.hidden = !view.effect;
    if (view.effect) { badge.textContent = visible(view.effect); badge.dataset.effect = view.effect; }
    const target = view.view && view.view.target;
    const facts = [target, view.principal && 'requested by ' + view.principal, view.reason && '“' + view.reason + '”'];
    say('sub', facts.filter(Boolean).join(' · '));
  }

  function showPlan(view) {
    head(view);
    const boxes = [];
    if (view.steps) {
      view.steps.forEach((step, index) => {
        const box = el('div', 'step', el('p', 'say', el('strong', '', 'Step ' + (index + 1) + ': ' + step.tool + ' '), el('span', 'hint', step.effect)));
        box.append(...(step.view.warnings || []).map((one) => el('p', 'note', one)), ...viewBoxes(step.view), argumentBox(step.arguments));
        boxes.push(box);
      });
      notes(null, view.blocks || []);
    } else {
      boxes.push(...viewBoxes(view.view), argumentBox(view.arguments));
      notes(view.view, view.blocks || []);
    }
    $('body').replaceChildren(...boxes);
  }

  const PILLS = {
    ready: ['', ''], preview: ['Preview only', ''], pending: ['Pending…', 'busy'], applied: ['Applied', 'good'], failed: ['Failed', 'bad'],
    cancelled: ['Cancelled', ''], expired: ['Expired', ''], elsewhere: ['Decided elsewhere', ''], refused: ['Refused', 'bad'],
    unknown: ['Outcome unknown', 'bad'], blocked: ['Blocked', 'bad'], unmarked: ['Not from Countersign', ''],
  };

  // Draws the card in its state; called after every change.
  function draw(words) {
    const [name, tone] = PILLS[S.state] || ['', ''];
    $('card').dataset.state = S.state;
    $('pill').dataset.tone = tone;
    say('pill', words && words.pill || name);
    say('hint', words && words.hint);
    say('reason', words && words.reason);
    const view = S.view || {};
    const waits = S.state === 'ready' || S.state === 'blocked';
    const active = waits || ((S.state === 'pending' || S.state === 'cancelled') && S.locked);
    const person = needsPage(view);
    const channel = channelOf();
    show('confirm', active && S.card !== undefined && channel !== 'none' && !person && S.state !== 'blocked' && !blocked(view));
    show('cancel', active && channel !== 'none');
    show('desk', waits && person && canOpen(view));
    show('typed', waits && Boolean(view.confirm) && view.confirm.kind === 'type' && canOpen(view));
    show('retry', Boolean(S.retry));
    $('confirm').disabled = $('cancel').disabled = S.locked;
    show('clock', waits && Boolean(view.expires_at));
    show('foot', ['confirm', 'cancel', 'desk', 'typed', 'retry', 'hint', 'reason', 'clock'].some((id) => !$(id).hidden));
    measure();
  }

  const blocked = (view) => Boolean(view.blocks && view.blocks.length);
  const needsPage = (view) => view.needs_desk === true;
  const canOpen = (view) => Boolean(host.can.openLinks && isApprovalsPage(view.approve_url));
  const channelOf = () => host.can.serverTools && S.card ? 'tool' : host.can.message ? 'message' : 'none';

  function readyHint(view) {
    if (blocked(view)) return 'Nothing has changed, and it can’t be applied as it is.';
    const by = isApprovalsPage(view.approve_url) ? view.approve_url + ' or ' + view.approve_command : view.approve_command;
    if (needsPage(view)) return 'A person decides this on the approvals page: ' + by;
    if (channelOf() === 'none') return 'This host sends no answers of cards. Answer in the chat, or use: ' + by;
    if (channelOf() === 'message' && view.confirm && view.confirm.strength === 'host') return 'This host can’t vouch for a click: after Confirm a person also has to approve: ' + by;
    return 'Nothing has changed yet.';
  }

  // --- results from the host -------------------------------------------------------------------------------------------
  function showInput(given) {
    if (S.state !== 'loading') return;
    title(typeof given.name === 'string' ? given.name : 'Waiting for the preview…');
  }

  function cancelledByHost(reason) {
    if (S.state === 'applied' || S.state === 'failed') return;
    stop();
    S.locked = true; S.retry = null; S.state = 'cancelled';
    draw({ hint: reason ? 'The host ended the call: ' + reason : 'The host ended the call.' });
  }

  function showResult(result) {
    const meta = result._meta || {};
    const facts = isObject(meta.countersign) ? meta.countersign : null;
    const view = facts && isObject(meta['countersign/view']) ? meta['countersign/view'] : null;
    const envelope = ownEnvelope(result);
    if (envelope && view && view.status === 'ready') return ready(view, meta['countersign/card'] || null);
    if (envelope && view && view.status === 'preview') { S.view = view; S.state = 'preview'; showPlan(view); return draw({ hint: 'Mode is plan: nothing was changed.' }); }
    if (envelope && envelope.data && Array.isArray(envelope.data.steps)) return stepsDone(envelope);
    if (envelope && envelope.ok === false) return refused(envelope);
    if (view) return outcome(view, facts);
    return unmarked(result);
  }

  const isObject = (value) => Boolean(value) && typeof value === 'object';

  // An envelope counts only with the gateway's mark in `_meta`. An upstream can copy everything else; the gateway removes
  // members that begin with `countersign` from the `_meta` of upstreams.
  function ownEnvelope(result) {
    const facts = result._meta && result._meta.countersign;
    const content = result.structuredContent;
    return isObject(facts) && facts.envelope === true && isObject(content) && content.schema_version === 1 ? content : null;
  }

  // A result without the mark: not ours, or of a host that does not pass `_meta` on. Shown without buttons.
  function unmarked(result) {
    stop(); S.closed = false;
    S.view = null; S.card = null; S.retry = null; S.state = 'unmarked';
    $('body').replaceChildren(...viewBoxes(fromContent(result)));
    draw({ hint: 'Countersign did not mark this answer, so nothing can be decided here. Use the chat, the approvals page or: countersign plans' });
  }

  // Whether an address has the origin of the approvals page.
  function isApprovalsPage(url) {
    try { return Boolean(DESK) && typeof url === 'string' && new URL(url).origin === new URL(DESK).origin; } catch { return false; }
  }

  function fromContent(result) {
    const words = (result.content || []).filter((block) => typeof block.text === 'string').map((block) => block.text);
    return { actions: [], diffs: [], texts: words, warnings: [], blocks: [] };
  }

  function ready(view, card) {
    S.view = view; S.card = card; S.state = blocked(view) ? 'blocked' : 'ready';
    if (!view.apply) host.can = { openLinks: host.can.openLinks };
    showPlan(view);
    if (late(view)) return expired();
    draw({ hint: readyHint(view) });
    S.ticking = setInterval(tick, 500);
    tick();
    watch(3000);
    if (host.can.serverTools) refresh();
  }

  const late = (view) => Boolean(view.expires_at) && Date.parse(view.expires_at) <= Date.now();

  function tick() {
    const left = Date.parse(S.view.expires_at) - Date.now();
    if (S.state !== 'ready' && S.state !== 'blocked') return clearInterval(S.ticking);
    if (left <= 0) return expired();
    const seconds = Math.ceil(left / 1000);
    $('clock').textContent = 'expires in ' + Math.floor(seconds / 60) + ':' + String(seconds % 60).padStart(2, '0');
  }

  function expired() {
    stop(); S.closed = false;
    S.locked = true; S.retry = null; S.state = 'expired';
    draw({ hint: 'Nothing was changed. Ask for it again to get a new plan.' });
  }

  function outcome(view, facts) {
    stop(); S.closed = false;
    S.state = view.status === 'failed' ? 'failed' : 'applied';
    const reason = S.state === 'failed' ? reasonOf(view.view) : '';
    head({ ...view, effect: facts && facts.effect });
    notes(view.view, []);
    $('body').replaceChildren(...viewBoxes(view.view));
    draw({ reason, hint: facts && facts.ledger_id ? 'Recorded as ' + facts.ledger_id : '' });
  }

  function reasonOf(view) {
    if (!view) return '';
    const failed = view.actions.find((action) => action.error);
    return view.error || (failed && failed.error) || (view.texts && view.texts[0]) || view.message || 'It gave no reason.';
  }

  function refused(envelope) {
    const error = envelope.errors && envelope.errors[0] || { code: '', message: 'refused' };
    S.state = 'refused';
    title(S.view && S.view.tool || envelope.command || 'Refused');
    const next = error.details && error.details.next_actions || [];
    draw({ reason: (error.code ? error.code + ': ' : '') + error.message, hint: next.length ? 'Next: ' + next.join(', ').replaceAll('_', ' ') : '' });
  }

  function stepsDone(envelope) {
    S.state = envelope.ok ? 'applied' : 'failed';
    title('Plan of ' + envelope.data.steps.length + ' steps');
    const boxes = envelope.data.steps.map((step) => {
      const said = step.result && (step.result.structuredContent || step.result);
      const why = step.state === 'failed' ? reasonOfResult(step.result) : '';
      return actionBox({ operation: 'Step ' + step.step + ':', target: step.tool, status: step.state.replaceAll('_', ' '), error: why, changes: [], more: step.state === 'done' && said && said.message ? { message: said.message } : {} });
    });
    $('body').replaceChildren(...boxes);
    draw({ reason: envelope.ok ? '' : envelope.errors && envelope.errors[0] && envelope.errors[0].message });
  }

  // --- deciding --------------------------------------------------------------------------------------------------------
  const message = (words) => request('ui/message', { role: 'user', content: [{ type: 'text', text: words }] }).then((answer) => {
    if (answer.isError) throw new Error('the host did not take the message');
  });

  async function decide(answer) {
    if (S.locked) return;
    S.locked = true; S.answer = answer; S.retry = null;
    S.state = answer === 'approve' ? 'pending' : 'cancelled';
    draw({});
    const channel = channelOf();
    try {
      if (channel === 'tool' && !S.answered) { if (!await answerPlan(answer)) return; }
      if (!S.told) await tell(answer === 'approve' ? S.view.apply : S.view.cancel);
    } catch (error) {
      return fail(error.message, () => { S.locked = false; decide(answer); });
    }
    if (answer === 'reject') { stop(); S.closed = false; return draw({ hint: 'Nothing was changed.' }); }
    draw({ hint: channel === 'tool' ? (S.told ? 'Approved. The agent runs it next.' : 'Approved. Tell the agent to continue.') : 'Sent to the agent.' });
    watch(1200);
  }

  // Sends the answer; false if somebody else decided first and the card shows that decision.
  async function answerPlan(answer) {
    const result = await request('tools/call', { name: 'answer_plan', arguments: { plan_id: S.card.plan_id, nonce: S.card.nonce, answer } });
    const envelope = ownEnvelope(result);
    if (!envelope) throw new Error('the answer did not come from Countersign');
    if (!result.isError) { S.answered = true; return true; }
    const error = envelope.errors && envelope.errors[0] || {};
    if (error.code === 'E_PLAN_DECIDED') {
      const plan = await planNow();
      // The reply to our own answer was lost.
      const ours = plan && plan.approval && plan.approval.rail === 'card' && plan.state === 'approved' && answer === 'approve';
      if (ours) { S.answered = true; return true; }
      if (plan) settle(plan); else elsewhere('Somebody has already decided it.');
      return false;
    }
    const words = (result.content || []).map((block) => block.text).filter(Boolean).join('\n');
    throw new Error(error.message ? (error.code ? error.code + ': ' : '') + error.message : words || 'the answer was refused');
  }

  // Tells the agent to repeat the call: as a message if the host takes one, otherwise as context.
  async function tell(words) {
    if (host.can.message) { await message(words); S.told = true; return; }
    if (!host.can.updateModelContext) return;
    // The host may acknowledge without delivering; the hint also asks the person to tell the agent.
    await request('ui/update-model-context', { content: [{ type: 'text', text: words }] }).catch(() => {});
  }

  function fail(reason, again) {
    S.state = 'failed'; S.retry = again;
    draw({ reason });
  }

  function elsewhere(hint, pill) {
    stop(); S.closed = false;
    S.locked = true; S.retry = null; S.state = 'elsewhere';
    draw({ hint, pill });
  }

  // --- the state of the plan: polled, so that a lost message hides nothing -----------------------------------------------
  async function planNow() {
    const result = await request('tools/call', { name: 'get_plan', arguments: { plan_id: S.view.plan_id } }, 15000).catch(() => null);
    const envelope = result && !result.isError && ownEnvelope(result);
    return envelope && envelope.data && envelope.data.plan || null;
  }

  function watch(every) {
    if (!host.can.serverTools || !S.view.plan_id) return;
    clearInterval(S.polling);
    S.polling = setInterval(() => { if (!document.hidden) refresh(); }, every);
  }

  let polling = false;
  async function refresh() {
    if (polling || S.closed) return;
    polling = true;
    const plan = await planNow();
    polling = false;
    if (plan && !S.closed) settle(plan);
  }

  function settle(plan) {
    if (['applied', 'expired', 'elsewhere'].includes(S.state) || (S.state === 'failed' && !S.retry)) return;
    const who = plan.approval ? plan.approval.by + ' (' + plan.approval.rail + ')' : '';
    if (plan.state === 'pending') return;
    if (plan.state === 'approved') {
      if (S.answer === 'approve' || S.state === 'pending') return;
      S.locked = true; S.state = 'elsewhere';
      draw({ pill: 'Approved elsewhere', hint: 'Approved by ' + who + '. The agent runs it next.' });
      S.state = 'pending';
    } else if (plan.state === 'executing') { S.locked = true; S.state = 'pending'; S.retry = null; draw({ hint: 'Running.' });
    } else if (plan.state === 'rejected') {
      if (S.answer === 'reject') return stop();
      elsewhere(plan.note ? 'Rejected: ' + plan.note : 'Nothing was changed.', 'Rejected elsewhere');
    } else if (plan.state === 'cancelled') elsewhere('It was withdrawn; nothing was changed.', 'Withdrawn');
    else if (plan.state === 'expired') expired();
    else if (plan.state === 'outcome_unknown') { stop(); S.closed = false; S.locked = true; S.retry = null; S.state = 'unknown'; draw({ reason: 'The gateway stopped while it ran. Check before you try again.' }); }
    else ended(plan);
  }

  function ended(plan) {
    stop(); S.closed = false;
    S.locked = true; S.retry = null;
    done(plan.result);
    if (plan.state === 'done') {
      S.state = 'applied';
      const used = S.answer !== 'approve' && plan.approval && plan.approval.rail !== 'card';
      return draw({ hint: used ? 'Already run; approved over ' + plan.approval.rail + '.' : messageOfResult(plan.result) });
    }
    S.state = 'failed';
    // The plan is used up: another try needs a new plan, which the agent has to request.
    const again = S.view.retry;
    if (host.can.message && again) S.retry = () => { S.retry = null; message(again).then(() => draw({ reason: reasonOfResult(plan.result), hint: 'The agent was asked for a new plan.' }), (error) => fail(error.message, S.retry)); draw({ reason: reasonOfResult(plan.result) }); };
    draw({ reason: reasonOfResult(plan.result) });
  }

  // Replaces the planned changes by the actual ones, if the result lists them.
  function done(result) {
    const said = result && result.structuredContent || {};
    const listed = Array.isArray(said.actions) && said.actions.every((action) => action && Array.isArray(action.changes));
    if (!listed || S.view.steps) return document.querySelectorAll('#body > .say').forEach((one) => one.remove());
    const how = (change) => change.old === null || change.old === undefined ? 'added' : change.new === null || change.new === undefined ? 'removed' : 'changed';
    const boxes = said.actions.map((action) => actionBox({
      operation: action.operation, target: action.target_label || action.target, status: action.status_label || action.status, error: action.error,
      changes: action.changes.map((change) => ({ ...change, field: String(change.field), how: how(change) })), more: {},
    }));
    $('body').replaceChildren(...boxes, argumentBox(S.view.arguments));
  }

  function messageOfResult(result) {
    const said = result && result.structuredContent && result.structuredContent.message;
    return typeof said === 'string' ? said : '';
  }

  function reasonOfResult(result) {
    if (!result) return 'It gave no reason.';
    const said = result.structuredContent || {};
    const steps = Array.isArray(result.steps) ? result.steps.find((step) => step.state === 'failed') : null;
    if (steps) return 'Step ' + steps.step + ': ' + reasonOfResult(steps.result);
    if (typeof said.error === 'string') return said.error;
    if (typeof result.message === 'string') return result.message;
    if (result.errors && result.errors[0]) return result.errors[0].message;
    const words = (result.content || []).map((block) => block.text).filter(Boolean).join('\n');
    return words || 'It gave no reason.';
  }

  function openPage() {
    const url = S.view && S.view.approve_url;
    if (!isApprovalsPage(url) || !host.can.openLinks) return;
    request('ui/open-link', { url }).then((answer) => {
      if (answer.isError) throw new Error('the host did not open it');
    }).catch((error) => draw({ reason: 'The approvals page was not opened: ' + error.message, hint: url }));
  }

  $('confirm').addEventListener('click', () => decide('approve'));
  $('cancel').addEventListener('click', () => decide('reject'));
  $('retry').addEventListener('click', () => { const again = S.retry; if (again) again(); });
  $('desk').addEventListener('click', openPage);
  $('typed-field').addEventListener('click', openPage);
  $('typed-field').addEventListener('keydown', (event) => { if (event.key === 'Enter') openPage(); });
  dress();
  initialize().catch((error) => { S.state = 'refused'; draw({ reason: 'The host did not initialize this card: ' + error.message }); });
})();
