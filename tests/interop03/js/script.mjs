// The JS SDK of A2A 0.3 as a client: node script.mjs <server> <transport>. Prints a
// line of JSON for each step that is over: its name, and what went wrong with it.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { ClientFactory, ClientFactoryOptions } from '@a2a-js/sdk/client';

const [server, transport] = process.argv.slice(2);
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [transport] }),
);

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

const steps = {
  async card() {
    const card = await (await at('echo')).getAgentCard();
    assert.equal(card.protocolVersion, '0.3.0');
    assert.equal(card.preferredTransport, 'JSONRPC');
    assert.deepEqual(card.additionalInterfaces.map((i) => i.transport), ['JSONRPC', 'HTTP+JSON']);
    assert.ok(card.capabilities.streaming && card.skills.length > 0);
  },
  async 'send and get'() {
    const client = await at('echo');
    const task = await client.sendMessage(say('Hello'));
    assert.equal(task.kind, 'task');
    assert.equal(task.status.state, 'completed');
    assert.equal(answer(task), 'Hello');
    const got = await client.getTask({ id: task.id });
    assert.equal(answer(got), 'Hello');
    assert.equal(got.history[0].role, 'user');
  },
  async 'parts of all kinds'() {
    const client = await at('echo');
    const parts = [
      { kind: 'text', text: 'All kinds' },
      { kind: 'data', data: { key: 'value', list: [1, null, true] } },
      { kind: 'file', file: { bytes: 'aGVsbG8=', mimeType: 'text/plain' } },
      { kind: 'file', file: { uri: 'https://example.com/a.png', mimeType: 'image/png' } },
    ];
    const task = await client.sendMessage(say('', { parts }));
    const got = await client.getTask({ id: task.id });
    assert.deepEqual(got.history[0].parts, parts);
  },
  async stream() {
    const client = await at('echo');
    const events = await collect(client.sendMessageStream(say('one two three four')));
    assert.equal(events[0].kind, 'task');
    assert.equal(fold(events), 'one two three four');
    const updates = events.filter((e) => e.kind === 'status-update');
    assert.equal(events.at(-1), updates.at(-1));
    assert.equal(updates.at(-1).status.state, 'completed');
    assert.deepEqual(updates.map((u) => u.final), updates.map((u, i) => i === updates.length - 1));
  },
  async resubscribe() {
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
  async cancel() {
    const client = await at('bureau');
    const task = await client.sendMessage(say('Wait', {}, { blocking: false }));
    assert.ok(['submitted', 'working'].includes(task.status.state), task.status.state);
    const ended = await client.cancelTask({ id: task.id });
    assert.equal(ended.status.state, 'canceled');
  },
  async 'input-required'() {
    const client = await at('curious');
    const asked = await client.sendMessage(say('High tide'));
    assert.equal(asked.status.state, 'input-required');
    assert.equal(textOf(asked.status.message.parts), 'Which city?');
    const done = await client.sendMessage(say('Brest', { taskId: asked.id, contextId: asked.contextId }));
    assert.equal(done.id, asked.id);
    assert.equal(answer(done), 'High tide in Brest');
  },
  async 'push notification configurations'() {
    const client = await at('echo');
    const { id: taskId } = await client.sendMessage(say('Hello'));
    const pushNotificationConfig = { id: 'one', url: 'https://example.com/hook', token: 't' };
    if (!(await client.getAgentCard()).capabilities.pushNotifications) {
      // The client itself refuses to ask; so its transport does.
      const wanted = 'PushNotificationNotSupportedError';
      await refused(() => client.transport.setTaskPushNotificationConfig({ taskId, pushNotificationConfig }), wanted);
      await refused(() => client.transport.getTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'one' }), wanted);
      await refused(() => client.transport.listTaskPushNotificationConfig({ id: taskId }), wanted);
      await refused(() => client.transport.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'one' }), wanted);
      return;
    }
    const set = await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig });
    assert.equal(set.taskId, taskId);
    assert.equal(set.pushNotificationConfig.id, 'one');
    const got = await client.getTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'one' });
    assert.equal(got.pushNotificationConfig.url, pushNotificationConfig.url);
    const list = await client.listTaskPushNotificationConfig({ id: taskId });
    assert.deepEqual(list.map((c) => c.pushNotificationConfig.id), ['one']);
    await client.deleteTaskPushNotificationConfig({ id: taskId, pushNotificationConfigId: 'one' });
    assert.equal((await client.listTaskPushNotificationConfig({ id: taskId })).length, 0);
  },
  async errors() {
    const client = await at('echo');
    const id = '00000000-0000-7000-8000-000000000000';
    const missing = 'TaskNotFoundError';
    await refused(() => client.getTask({ id }), missing);
    await refused(() => client.cancelTask({ id }), missing);
    await refused(() => client.sendMessage(say('more', { taskId: id })), missing);
    await refused(() => collect(client.sendMessageStream(say('more', { taskId: id }))), missing);
    await refused(() => collect(client.resubscribeTask({ id })), missing);
    const done = await client.sendMessage(say('Hello'));
    await refused(() => client.cancelTask({ id: done.id }), 'TaskNotCancelableError');
    await refused(() => client.sendMessage(say('more', { taskId: done.id })), 'UnsupportedOperationError');
    await refused(() => collect(client.resubscribeTask({ id: done.id })), 'UnsupportedOperationError');
    await assert.rejects(client.sendMessage(say('', { parts: [] })), /message\.(parts|content) is required/);
  },
};

for (const [name, step] of Object.entries(steps)) {
  let error;
  try {
    await step();
  } catch (e) {
    error = e.stack + (e.cause ? `\ncause: ${e.cause.stack}` : '');
  }
  console.log(JSON.stringify({ name, error }));
}
