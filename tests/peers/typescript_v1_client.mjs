// A real MCP client, the TypeScript SDK of the first generation, which most hosts have inside: connects to a command over stdio,
// lists the tools, calls one, prints what it saw as one JSON object.
//
//   node typescript_v1_client.mjs [--era legacy] [--tool NAME] [--args JSON] COMMAND...
//
// It speaks the older revisions only. To be run with .cache/peers/bin/node.

import { createRequire } from 'node:module';

const require = createRequire(new URL('../../.cache/peers/npm/package.json', import.meta.url));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

const words = process.argv.slice(2);
const own = { era: 'legacy', args: '{}' };
while (words[0]?.startsWith('--')) own[words.shift().slice(2)] = words.shift();

async function see([command, ...args]) {
  const client = new Client({ name: 'countersign-peer-typescript-v1', version: '1' }, { capabilities: {} });
  await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));
  try {
    // Checks of results are made from this list.
    const { tools } = await client.listTools();
    const seen = { client: 'typescript sdk v1', era: own.era, tools: tools.map(({ name }) => name) };
    if (own.tool) seen.result = await client.callTool({ name: own.tool, arguments: JSON.parse(own.args) });
    return seen;
  } finally {
    await client.close();
  }
}

const told = await see(words).catch((fault) => ({ fault: `${fault.name}: ${fault.message}` }));
process.stdout.write(`${JSON.stringify(told)}\n`, () => process.exit(told.fault ? 1 : 0));
