// The JS SDK of A2A 0.3 as a client: node script.mjs SERVER BINDING. Plays the steps of
// ../../interoprig/matrix.go, and prints a line of JSON for each: its name, and what
// went wrong or why the SDK lacks it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { ClientFactory, ClientFactoryOptions } from '@a2a-js/sdk/client';

const [server, transport] = process.argv.slice(2);
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [transport] }),
);

// Over HTTP+JSON the client leaves append out of the updates that it reads, so pieces of a text replace each other; as
// findings/a2a-js-sdk-append.sh shows of a later version.
const losesAppend = transport === 'HTTP+JSON';

const at = (agent) => factory.createFromUrl(`${server}/${agent}/.well-known/agent-card.json`, '');
const say = (text, more = {}, configuration = undefined) => ({
  message: { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...more },
  ...(configuration && { configuration }),
});
const textOf = (parts) => parts.map((p) => p.text ?? '').join('');
const answer = (task) => {
  assert.equal(task.artifacts?.length, 1);
  return textOf(task.artifacts[0].parts);
};
const collect = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};
const fold = (events) =>
  events
    .filter((e) => e.kind === 'artifact-update')
    .reduce((all, e) => (e.append ? all : '') + textOf(e.artifact.parts), '');

// refused checks which error of the protocol a call ends with. Streams of JSON-RPC
// carry it as the cause.
const refused = async (call, name) => {
  try {
    await call();
  } catch (e) {
    const names = [e, e.cause].filter(Boolean).flatMap((e) => [e.constructor.name, Object.getPrototypeOf(e.constructor).name]);
    assert.ok(names.includes(name), `refused with ${names} (${e.message}), not ${name}`);
    return;
  }
  assert.fail(`not refused with ${name}`);
};

// receiver serves a receiver of notifications, and reads them to the one of an end.
const receiver = async () => {
  const got = [];
  let told;
  const ended = new Promise((resolve) => (told = resolve));
  const http = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    response.writeHead(204).end();
    got.push({ headers: request.headers, task: JSON.parse(body) });
    if (got.at(-1).task.status.state === 'canceled') told();
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return { url: `http://127.0.0.1:${http.address().port}/hook`, ended, got, close: () => http.close() };
};

const sent = {};
const steps = {
  async card() {
    const card = await (await at('relay')).getAgentCard();
    assert.equal(card.name, 'relay');
    assert.equal(card.protocolVersion, '0.3.0');
    assert.equal(card.preferredTransport, 'JSONRPC');
    assert.deepEqual(card.additionalInterfaces.map((i) => i.transport), ['JSONRPC', 'HTTP+JSON']);
    assert.ok(card.capabilities.streaming && card.capabilities.pushNotifications && card.skills.length > 0);
  },
  async send() {
    const client = await at('relay');
    sent.task = await client.sendMessage(say('Hello'));
    assert.equal(sent.task.kind, 'task');
    assert.equal(sent.task.status.state, 'completed');
    assert.equal(answer(sent.task), 'Hello');
    await assert.rejects(client.sendMessage(say('', { parts: [] })), /message\.(parts|content) is required/);
  },
  async stream() {
    for (const [agent, pieces] of [['relay', 1], ['echo', 4]]) {
      const events = await collect((await at(agent)).sendMessageStream(say('one two three four')));
      assert.equal(events[0].kind, 'task');
      if (!losesAppend) assert.equal(fold(events), 'one two three four');
      assert.ok(events.filter((e) => e.kind === 'artifact-update').length >= pieces, 'the answer is in fewer pieces');
      const updates = events.filter((e) => e.kind === 'status-update');
      assert.equal(events.at(-1), updates.at(-1));
      assert.equal(updates.at(-1).status.state, 'completed');
      assert.deepEqual(updates.map((u) => u.final), updates.map((u, i) => i === updates.length - 1));
    }
  },
  async get() {
    const client = await at('relay');
    const got = await client.getTask({ id: sent.task.id });
    assert.equal(answer(got), 'Hello');
    assert.equal(got.history[0].role, 'user');
    const parts = [
      { kind: 'text', text: 'All kinds' },
      { kind: 'data', data: { key: 'value', list: [1, null, true] } },
      { kind: 'file', file: { bytes: 'aGVsbG8=', mimeType: 'text/plain' } },
      { kind: 'file', file: { uri: 'https://example.com/a.png', mimeType: 'image/png' } },
    ];
    const task = await client.sendMessage(say('', { parts }));
    assert.deepEqual((await client.getTask({ id: task.id })).history[0].parts, parts);
  },
  list: undefined,
  async cancel() {
    const client = await at('bureau');
    const task = await client.sendMessage(say('Wait', {}, { blocking: false }));
    assert.ok(['submitted', 'working'].includes(task.status.state), task.status.state);
    const ended = await client.cancelTask({ id: task.id });
    assert.equal(ended.status.state, 'canceled');
  },
  async subscribe() {
    const client = await at('desk');
    const asked = await client.sendMessage(say('High tide'));
    const stream = client.resubscribeTask({ id: asked.id });
    const first = (await stream.next()).value;
    assert.equal(first.kind, 'task');
    assert.equal(first.status.state, 'input-required');
    const done = await client.sendMessage(say('Brest', { taskId: asked.id }));
    assert.equal(done.status.state, 'completed');
    const rest = await collect(stream);
    assert.equal(rest.at(-1).status.state, 'completed');
    assert.equal(rest.at(-1).final, true);
  },
  async question() {
    const client = await at('desk');
    const asked = await client.sendMessage(say('High tide'));
    assert.equal(asked.status.state, 'input-required');
    assert.equal(textOf(asked.status.message.parts), 'Which city?');
    const done = await client.sendMessage(say('Brest', { taskId: asked.id, contextId: asked.contextId }));
    assert.equal(done.id, asked.id);
    assert.equal(answer(done), 'High tide in Brest');
  },
  async push() {
    const client = await at('desk');
    const { id: taskId } = await client.sendMessage(say('High tide'));
    const ids = async () => (await client.listTaskPushNotificationConfig({ id: taskId })).map((c) => c.pushNotificationConfig.id);
    const set = await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: { id: 'one', url: 'http://127.0.0.1:1/one', token: 't' } });
    assert.deepEqual([set.taskId, set.pushNotificationConfig.id], [taskId, 'one']);
    await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: { id: 'two', url: 'http://127.0.0.1:1/two' } });
    const got = await client.getTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'two' });
    assert.equal(got.pushNotificationConfig.url, 'http://127.0.0.1:1/two');
    assert.deepEqual((await ids()).sort(), ['one', 'two']);
    await client.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'one' });
    assert.deepEqual(await ids(), ['two']);
    await client.cancelTask({ id: taskId });
  },
  async receive() {
    const client = await at('bureau');
    const to = await receiver();
    try {
      const task = await client.sendMessage(say('Wait', {}, { blocking: false }));
      const authentication = { schemes: ['Bearer'], credentials: 'letmein' };
      await client.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig: { url: to.url, token: 't0ken', authentication } });
      await client.cancelTask({ id: task.id });
      await to.ended;
      for (const { headers, task: told } of to.got) {
        assert.equal(headers['x-a2a-notification-token'], 't0ken');
        assert.equal(headers.authorization, 'Bearer letmein');
        assert.deepEqual([told.kind, told.id], ['task', task.id]);
      }
    } finally {
      to.close();
    }
  },
  async unknown() {
    const client = await at('relay');
    const id = '00000000-0000-7000-8000-000000000000';
    const missing = 'TaskNotFoundError';
    await refused(() => client.getTask({ id }), missing);
    await refused(() => client.cancelTask({ id }), missing);
    await refused(() => client.sendMessage(say('more', { taskId: id })), missing);
    await refused(() => collect(client.sendMessageStream(say('more', { taskId: id }))), missing);
    await refused(() => collect(client.resubscribeTask({ id })), missing);
  },
  async ended() {
    const client = await at('relay');
    const { id } = sent.task;
    await refused(() => client.cancelTask({ id }), 'TaskNotCancelableError');
    await refused(() => client.sendMessage(say('more', { taskId: id })), 'UnsupportedOperationError');
    await refused(() => collect(client.sendMessageStream(say('more', { taskId: id }))), 'UnsupportedOperationError');
    await refused(() => collect(client.resubscribeTask({ id })), 'UnsupportedOperationError');
  },
};

for (const [step, play] of Object.entries(steps)) {
  if (play === undefined) {
    console.log(JSON.stringify({ step, lacks: 'The client has no call that lists tasks.' }));
    continue;
  }
  let error;
  try {
    await play();
  } catch (e) {
    error = e.stack + (e.cause ? `\ncause: ${e.cause.stack}` : '');
  }
  const partly =
    !error && step === 'stream' && losesAppend ? 'The client leaves `append` out of updates, so that pieces replace each other.' : undefined;
  console.log(JSON.stringify({ step, error, partly }));
}
