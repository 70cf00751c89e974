#!/bin/sh
# @mastra/hono 1.7.9 with @mastra/server 1.67.0 and @mastra/core 1.71.0, on Node.js 20; seen on Linux.
#
# A MastraServer of the Hono adapter that is made without `taskStore`, an option that its type does not require, serves the
# cards of its agents and the address of A2A, but no message can be sent there: `message/send` is answered -32603, and
# `message/stream` with status 200 and a body that breaks off without any event, as if the connection were lost. With
# `taskStore: new InMemoryTaskStore()` of @mastra/server/a2a/store both work.
#
# Seen: "card 200; send -32603 Cannot read properties of undefined (reading 'loadWithVersion'); stream 200, 0 bytes, broken off".
#
# The script installs the packages into a temporary folder, serves an agent on loopback, makes the three calls, and fails if
# their answers differ from these. It needs Node.js 20 or newer.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
echo '{"type": "module"}' >package.json
npm install --silent --no-audit --no-fund --ignore-scripts --save-exact @hono/node-server@1.19.19 @mastra/core@1.71.0 @mastra/hono@1.7.9 @mastra/server@1.67.0 hono@4.13.19 zod@3.25.76
cat >run.mjs <<'JS'
import { createServer } from 'node:http';
import { once } from 'node:events';
import { getRequestListener } from '@hono/node-server';
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { InMemoryStore } from '@mastra/core/storage';
import { MastraServer } from '@mastra/hono';
import { Hono } from 'hono';

console.error = () => {}; // the adapter prints what a stream ends with
const model = {
  specificationVersion: 'v2', provider: 'fixed', modelId: 'fixed', supportedUrls: {},
  async doGenerate() {
    return { content: [{ type: 'text', text: 'hello' }], finishReason: 'stop', usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 }, warnings: [] };
  },
  async doStream() { throw new Error('not used'); },
};
const agent = new Agent({ id: 'peer', name: 'peer', description: 'Says hello.', instructions: 'Say hello.', model });
const app = new Hono();
await new MastraServer({ app, mastra: new Mastra({ agents: { peer: agent }, storage: new InMemoryStore(), logger: false }) }).init();
const server = createServer(getRequestListener(app.fetch)).listen(0, '127.0.0.1');
await once(server, 'listening');
const url = `http://127.0.0.1:${server.address().port}/api`;

const call = (method) => fetch(`${url}/a2a/peer`, {
  method: 'POST', headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ jsonrpc: '2.0', id: '1', method, params: { message: { kind: 'message', messageId: method, role: 'user', parts: [{ kind: 'text', text: 'hi' }] } } }),
});
const card = await fetch(`${url}/.well-known/peer/agent-card.json`);
const { error } = await (await call('message/send')).json();
const stream = await call('message/stream');
let bytes = 0, end = 'ended';
try {
  for await (const chunk of stream.body) bytes += chunk.length;
} catch {
  end = 'broken off';
}
const seen = `card ${card.status}; send ${error?.code} ${error?.message}; stream ${stream.status}, ${bytes} bytes, ${end}`;
console.log(seen);
process.exit(seen === "card 200; send -32603 Cannot read properties of undefined (reading 'loadWithVersion'); stream 200, 0 bytes, broken off" ? 0 : 1);
JS
node run.mjs
