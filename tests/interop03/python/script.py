"""The Python SDK of A2A 0.3 as a client: python script.py SERVER BINDING.

Plays the steps of ../../interoprig/matrix.go, and prints a line of JSON for each: its
name, and what went wrong, or what of it the SDK lacks.
"""

import asyncio
import http.server
import json
import sys
import threading
import traceback
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
)

SERVER, BINDING = sys.argv[1:]
UNKNOWN = "00000000-0000-7000-8000-000000000000"
TIDES = "high and low tide"
AT_ONCE = MessageSendConfiguration(blocking=False)

# What the client makes of a subscription that is refused over HTTP.
LOST = "HTTP Error 400: Invalid SSE response or protocol error"

# What errors are, over JSON-RPC and over HTTP.
NOT_FOUND, NOT_CANCELABLE, UNSUPPORTED = (-32001, 404), (-32002, 400), (-32004, 400)


async def card_of(agent):
    async with httpx.AsyncClient() as plain:
        return await A2ACardResolver(plain, f"{SERVER}/{agent}").get_agent_card()


answers = []  # the last one is that of the call just made


async def note(response):
    answers.append((response.status_code, response.headers["Content-Type"]))


async def client(agent, streaming=False):
    config = ClientConfig(
        streaming=streaming,
        supported_transports=[BINDING],
        use_client_preference=True,
        httpx_client=httpx.AsyncClient(timeout=30, event_hooks={"response": [note]}),
    )
    return ClientFactory(config).create(await card_of(agent))


def say(text, **message):
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[TextPart(text=text)], **message)


async def collect(stream):
    return [event async for event in stream]


async def send(c, message, configuration=None):
    """Sends a message that has to be answered with a task."""
    [(task, _)] = await collect(c.send_message(message, configuration=configuration))
    assert isinstance(task, Task), task
    return task


def text(parts):
    return "".join(p.root.text for p in parts)


def is_(task, state):
    assert task.status.state == state, task


def answer(task):
    [artifact] = task.artifacts
    return text(artifact.parts)


async def asks(c):
    task = await send(c, say("High tide"))
    is_(task, TaskState.input_required)
    assert text(task.status.message.parts) == "Which city?", task
    return task


async def refused(call, error, subscription=False):
    code, status = error
    try:
        await call
    except A2AClientJSONRPCError as e:
        assert BINDING == "JSONRPC" and e.error.code == code, e
    except A2AClientHTTPError as e:
        assert BINDING == "HTTP+JSON" and answers[-1] == (status, "application/json"), answers[-1]
        if subscription:
            assert str(e).startswith(LOST), f"it sees refused subscriptions by now: {e}; drop LOST"
        else:
            assert e.status_code == status, e
    else:
        raise AssertionError(f"not refused with {error}")


def get(c, task):
    return c.get_task(TaskQueryParams(id=task))


def cancel(c, task):
    return c.cancel_task(TaskIdParams(id=task))


async def subscribe(agent, task):
    async for event in (await client(agent, streaming=True)).resubscribe(TaskIdParams(id=task)):
        yield event


class Receiver:
    """A receiver of notifications, and what it got up to the one of an end."""

    def __enter__(self):
        self.got, self.ended = [], threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                task = Task.model_validate_json(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.got.append((self.headers, task))
                self.send_response(204)
                self.end_headers()
                if task.status.state == TaskState.canceled:
                    receiver.ended.set()

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/hook"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()


def hook(task, url, **more):
    return TaskPushNotificationConfig(task_id=task, push_notification_config=PushNotificationConfig(url=url, token="t0ken", **more))


class Steps:
    async def card(self):
        card = await card_of("relay")
        assert (card.name, card.protocol_version) == ("relay", "0.3.0"), card
        assert BINDING in [i.transport for i in card.additional_interfaces], card
        assert card.capabilities.streaming and card.capabilities.push_notifications and card.skills, card

    async def send(self):
        self.sent = await send(await client("relay"), say(TIDES))
        is_(self.sent, TaskState.completed)
        assert answer(self.sent) == TIDES, self.sent

    async def stream(self):
        for agent, pieces in (("relay", 1), ("echo", 4)):
            events = await collect((await client(agent, streaming=True)).send_message(say(TIDES)))
            task, end = events[-1]
            assert events[0][1] is None and end.final, events
            assert sum(isinstance(update, TaskArtifactUpdateEvent) for _, update in events) >= pieces, events
            is_(task, TaskState.completed)
            assert answer(task) == TIDES, task

    async def get(self):
        task = await get(await client("relay"), self.sent.id)
        assert task == self.sent, task
        assert text(task.history[0].parts) == TIDES, task

    list = None

    async def cancel(self):
        c = await client("bureau")
        task = await send(c, say("Wait"), AT_ONCE)
        assert task.status.state in (TaskState.submitted, TaskState.working), task
        is_(await cancel(c, task.id), TaskState.canceled)
        is_(await get(c, task.id), TaskState.canceled)

    async def subscribe(self):
        c = await client("desk")
        asked = await asks(c)
        stream = subscribe("desk", asked.id)
        first, _ = await anext(stream)
        is_(first, TaskState.input_required)
        await send(c, say("Brest", task_id=asked.id))
        task, end = (await collect(stream))[-1]
        is_(end, TaskState.completed)
        assert answer(task) == "High tide in Brest", task

    async def question(self):
        c = await client("desk")
        asked = await asks(c)
        done = await send(c, say("Brest", task_id=asked.id, context_id=asked.context_id))
        assert done.id == asked.id, done
        is_(done, TaskState.completed)
        assert answer(done) == "High tide in Brest", done

    async def push(self):
        c = await client("desk")
        task = (await asks(c)).id
        made = await c.set_task_callback(hook(task, "http://127.0.0.1:1/one", id="one"))
        assert (made.task_id, made.push_notification_config.id) == (task, "one"), made
        got = await c.get_task_callback(GetTaskPushNotificationConfigParams(id=task, push_notification_config_id="one"))
        assert got.push_notification_config.url == "http://127.0.0.1:1/one", got
        await cancel(c, task)

    async def receive(self):
        c = await client("bureau")
        with Receiver() as to:
            task = await send(c, say("Wait"), AT_ONCE)
            bearer = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="letmein")
            await c.set_task_callback(hook(task.id, to.url, id="one", authentication=bearer))
            is_(await cancel(c, task.id), TaskState.canceled)
            assert await asyncio.to_thread(to.ended.wait, 30), "the end was not told"
        for headers, told in to.got:
            assert headers["X-A2A-Notification-Token"] == "t0ken", headers
            assert headers["Authorization"] == "Bearer letmein", headers
            assert told.id == task.id, told

    async def unknown(self):
        c, streaming = await client("relay"), await client("relay", streaming=True)
        await refused(get(c, UNKNOWN), NOT_FOUND)
        await refused(cancel(c, UNKNOWN), NOT_FOUND)
        for each in (c, streaming):
            await refused(collect(each.send_message(say("more", task_id=UNKNOWN))), NOT_FOUND)
        await refused(collect(subscribe("relay", UNKNOWN)), NOT_FOUND, subscription=True)

    async def ended(self):
        c, streaming = await client("relay"), await client("relay", streaming=True)
        task = self.sent.id
        await refused(cancel(c, task), NOT_CANCELABLE)
        for each in (c, streaming):
            await refused(collect(each.send_message(say("more", task_id=task))), UNSUPPORTED)
        await refused(collect(subscribe("relay", task)), UNSUPPORTED, subscription=True)


PARTLY = {"push": "The client sets and gets one; it has no calls to list and delete them."}
if BINDING == "HTTP+JSON":
    PARTLY["unknown"] = PARTLY["ended"] = (
        "The client gives a subscription that is refused the status 400, whatever it is: it reads events only, and is answered"
        " `HTTP/1.1 404 Not Found`, `Content-Type: application/json` and an error (https://github.com/a2aproject/a2a-python/issues/502)."
    )


async def main():
    steps = Steps()
    for step in (name for name in vars(Steps) if not name.startswith("_")):
        line = {"step": step, "partly": PARTLY.get(step)}
        if getattr(steps, step) is None:
            line["lacks"] = "The client has no call that lists tasks."
        else:
            try:
                await asyncio.wait_for(getattr(steps, step)(), 60)
            except Exception:
                line["error"] = traceback.format_exc()
        print(json.dumps(line), flush=True)


asyncio.run(main())
