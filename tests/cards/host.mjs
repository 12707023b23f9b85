// The page of the host: the official AppBridge around one card, with whatever capabilities a test gives it.
// Everything the card says is kept as it came, in order. Bundled for the browser by run.mjs.

import { AppBridge, PostMessageTransport } from '@modelcontextprotocol/ext-apps/app-bridge';

const said = [];
window.said = said;

window.openCard = async ({ html, capabilities, context, sandbox, faults = {} }) => {
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-scripts allow-same-origin');
  frame.style.cssText = 'width:100%;height:100%;border:0';
  document.body.append(frame);
  window.addEventListener('message', (event) => {
    if (event.source === frame.contentWindow && event.data?.jsonrpc) said.push(structuredClone(event.data));
  });
  const ready = new Promise((resolve) => {
    window.addEventListener('message', function wait(event) {
      if (event.source === frame.contentWindow && event.data?.method === 'ui/notifications/sandbox-proxy-ready') {
        window.removeEventListener('message', wait);
        resolve();
      }
    });
  });
  frame.src = sandbox;
  await ready;
  const bridge = new AppBridge(null, { name: 'test-host', version: '1' }, capabilities, { hostContext: context ?? {} });
  window.bridge = bridge;
  window.faults = faults;
  // A host offers what it declares, and nothing else.
  if (capabilities.serverTools) bridge.oncalltool = (params) => window.toServer(params);
  if (capabilities.message) {
    bridge.onmessage = async (params) => {
      if (window.faults.message === 'error') throw new Error('the chat is closed');
      if (window.faults.message === 'isError') return { isError: true };
      await window.toAgent(params);
      return {};
    };
  }
  if (capabilities.updateModelContext) bridge.onupdatemodelcontext = async (params) => { await window.toContext(params); return {}; };
  if (capabilities.openLinks) bridge.onopenlink = async (params) => { await window.toBrowser(params.url); return {}; };
  const initialized = new Promise((resolve) => { bridge.oninitialized = resolve; });
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  await bridge.sendSandboxResourceReady({ html });
  await initialized;
};
