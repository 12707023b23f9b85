// A real MCP client, the TypeScript SDK: connects, lists the tools, calls one, prints what it saw as one JSON object.
//
//   node typescript_client.mjs [--era legacy|modern|auto] [--tool NAME] [--args JSON] [--elicit accept|decline|cancel] TARGET...
//
// TARGET is a URL or a command with its arguments. Without --elicit the client does not offer elicitation.
// To be run with .cache/peers/bin/node.

import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

const require = createRequire(new URL('../../.cache/peers/npm/package.json', import.meta.url));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');
const ourVersion = require('./package.json').dependencies['@modelcontextprotocol/client'];

const modes = { legacy: 'legacy', modern: { pin: '2026-07-28' }, auto: 'auto' };

/** Options first, then the target: a command's own flags are not ours. */
function options() {
  const argv = process.argv.slice(2);
  let own = 0;
  while (argv[own]?.startsWith('--')) own += argv[own].includes('=') ? 1 : 2;
  const { values } = parseArgs({
    args: argv.slice(0, own),
    options: {
      era: { type: 'string', default: 'auto' },
      tool: { type: 'string' },
      args: { type: 'string', default: '{}' },
      elicit: { type: 'string' },
    },
  });
  const target = argv.slice(own);
  if (target.length === 0) throw new Error('a URL or a command is missing');
  if (!(values.era in modes)) throw new Error(`unknown era \`${values.era}\``);
  return { ...values, target };
}

/** A form filled in the simplest way its schema allows. */
function filled(schema) {
  const simplest = { boolean: true, integer: 1, number: 1, string: 'yes', array: [] };
  const value = (field) =>
    field.default ?? field.enum?.[0] ?? field.oneOf?.[0]?.const ?? simplest[field.type] ?? 'yes';
  return Object.fromEntries(Object.entries(schema?.properties ?? {}).map(([name, field]) => [name, value(field)]));
}

async function see({ era, tool, args, elicit, target }) {
  const asked = [];
  const [first, ...rest] = target;
  const transport = /^https?:/.test(first)
    ? new StreamableHTTPClientTransport(new URL(first))
    : new StdioClientTransport({ command: first, args: rest, stderr: 'inherit' });
  const client = new Client(
    { name: 'countersign-peer-typescript', version: '1' },
    { capabilities: elicit ? { elicitation: {} } : {}, versionNegotiation: { mode: modes[era] } },
  );
  if (elicit) {
    client.setRequestHandler('elicitation/create', async ({ params }) => {
      asked.push(params);
      return elicit === 'accept' ? { action: elicit, content: filled(params.requestedSchema) } : { action: elicit };
    });
  }
  await client.connect(transport);
  try {
    const { tools } = await client.listTools();
    const seen = {
      client: `typescript client ${ourVersion}`,
      era,
      protocol: client.getNegotiatedProtocolVersion?.() ?? null,
      server: client.getServerVersion()?.name ?? null,
      tools: tools.map(({ name }) => name),
    };
    if (tool) seen.result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
    if (asked.length > 0) seen.asked = asked;
    return seen;
  } finally {
    await client.close();
  }
}

const timer = setTimeout(() => finish({ fault: 'nothing within 30 seconds' }, 1), 30_000);

function finish(told, code) {
  clearTimeout(timer);
  // Exits only when the text is out: a pipe may take it in pieces.
  process.stdout.write(`${JSON.stringify(told)}\n`, () => process.exit(code));
}

try {
  finish(await see(options()), 0);
} catch (fault) {
  const told = { fault: `${fault.name}: ${fault.message}` };
  if (typeof fault.code === 'number') told.error = { code: fault.code, message: fault.message, data: fault.data };
  finish(told, 1);
}
