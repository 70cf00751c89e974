// Mastra as a client, `node script.mjs SERVER`, and as a server, `node script.mjs`.
import { createServer } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { A2AAgent } from '@mastra/core/a2a';
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { InMemoryStore } from '@mastra/core/storage';
import { createTool } from '@mastra/core/tools';
import { MastraServer } from '@mastra/hono';
import { InMemoryTaskStore } from '@mastra/server/a2a/store';
import { Hono } from 'hono';
import { z } from 'zod';

const SERVER = process.argv[2];
const STEPS = ['card', 'send', 'stream', 'get', 'list', 'cancel', 'subscribe', 'question', 'push', 'receive', 'unknown', 'ended'];
const TIDES = 'high and low tide';
const print = (line) => process.stdout.write(line + '\n');
console.log = console.info = console.debug = console.warn = (...what) => process.stderr.write(what.join(' ') + '\n');

const client = (agent) => new A2AAgent({ url: `${SERVER}/${agent}` });

const steps = {
  async card() {
    const card = await client('relay').getAgentCard();
    if (card.name !== 'relay') throw new Error(JSON.stringify(card));
  },
  async send() {
    const got = await client('relay').generate(TIDES);
    if (got.text !== TIDES) throw new Error(JSON.stringify(got.text));
  },
  async stream() {
    const { fullStream } = await client('echo').stream(TIDES);
    const pieces = [];
    for await (const chunk of fullStream) if (chunk.type === 'text-delta') pieces.push(chunk.payload.text);
    if (pieces.length < 4 || pieces.join('') !== TIDES) throw new Error(JSON.stringify(pieces));
  },
  async question() {
    const agent = client('desk');
    const asked = await agent.generate('High tide');
    if (asked.finishReason !== 'suspended') throw new Error(JSON.stringify({ ...asked, messages: undefined }).slice(0, 2000));
    const done = await agent.resumeGenerate('Brest', { runId: asked.runId });
    if (!done.text.includes('in Brest')) throw new Error(JSON.stringify(done.text));
  },
};

async function play() {
  const lacks = 'A2AAgent is an agent that sends messages; it has no other calls of the protocol.';
  for (const step of STEPS) {
    const line = { step };
    try {
      if (steps[step]) await steps[step]();
      else line.lacks = lacks;
    } catch (e) {
      line.error = String(e?.stack ?? e);
    }
    print(JSON.stringify(line));
  }
  process.exit(0);
}

/** reply is what an agent says to a message, as ../common.py has it. */
function reply(text, asked) {
  if (text === 'fail') throw new Error('It is broken.');
  return ['far: ', asked ? `you said ${text}` : text];
}

/** model speaks as reply says, and calls the tool that asks. */
const model = {
  specificationVersion: 'v2', provider: 'night', modelId: 'echo', supportedUrls: {},
  async doGenerate() {
    throw new Error('only streams');
  },
  async doStream({ prompt, abortSignal }) {
    const said = prompt.filter((m) => m.role === 'user').at(-1).content.map((p) => p.text ?? '').join('');
    const results = prompt.filter((m) => m.role === 'tool').flatMap((m) => m.content).map((p) => p.output.value);
    if (said === 'wait') await new Promise((_, reject) => abortSignal?.addEventListener('abort', () => reject(new Error('aborted'))));
    const parts = [{ type: 'stream-start', warnings: [] }];
    const asks = said === 'ask' && results.length === 0;
    if (asks) {
      parts.push({ type: 'tool-call', toolCallId: '1', toolName: 'ask', input: '{}' });
    } else {
      const answer = results.length ? reply(String(results.at(-1)), true) : reply(said, false);
      parts.push({ type: 'text-start', id: 't' }, ...answer.map((delta) => ({ type: 'text-delta', id: 't', delta })), { type: 'text-end', id: 't' });
    }
    parts.push({ type: 'finish', finishReason: asks ? 'tool-calls' : 'stop', usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 } });
    return { stream: new ReadableStream({ start(c) { parts.forEach((p) => c.enqueue(p)); c.close(); } }) };
  },
};

const ask = createTool({
  id: 'ask', description: 'Asks the user.', inputSchema: z.object({}), outputSchema: z.string(),
  suspendSchema: z.object({ question: z.string() }), resumeSchema: z.string(),
  execute: async (_, context) => {
    const { suspend, resumeData } = context?.agent ?? {};
    if (resumeData === undefined) return suspend({ question: 'Which city?' });
    return resumeData;
  },
});

async function serveAgent() {
  const agent = new Agent({ id: 'peer', name: 'peer', description: 'Echoes.', instructions: 'Echo.', model, tools: { ask } });
  const mastra = new Mastra({ agents: { peer: agent }, storage: new InMemoryStore(), logger: false });
  const app = new Hono();
  await new MastraServer({ app, mastra, taskStore: new InMemoryTaskStore() }).init();
  const server = createServer(getRequestListener(app.fetch));
  server.listen(0, '127.0.0.1', () => print(`ready http://127.0.0.1:${server.address().port}`));
  process.stdin.on('end', () => process.exit(0)).resume();
}

await (SERVER ? play() : serveAgent());
