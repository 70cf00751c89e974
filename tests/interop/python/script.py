"""The Python SDK as a client: python script.py SERVER BINDING [0.3].

Plays the steps of ../../interoprig/matrix.go, and prints a line of JSON for each: its
name, and what went wrong or why the SDK lacks it. With 0.3 it is the SDK's client for
that version.
"""

import asyncio
import http.server
import json
import sys
import threading
import traceback
import uuid

import grpc
import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import Parse

SERVER, BINDING, VERSION = (sys.argv[1:] + ["1.0"])[:3]
LEGACY = VERSION == "0.3"
UNKNOWN = "00000000-0000-7000-8000-000000000000"
TIDES = "high and low tide"


async def card_of(agent):
    async with httpx.AsyncClient() as plain:
        base = f"{SERVER}/{agent}"
        if not LEGACY:
            return await A2ACardResolver(plain, base).get_agent_card()
        # The card that old clients get, and of it what they read.
        card = (await plain.get(base + "/.well-known/agent-card.json")).raise_for_status().json()
        del card["supportedInterfaces"]
        return parse_agent_card(card)


async def client(agent, streaming=False):
    config = ClientConfig(
        streaming=streaming,
        supported_protocol_bindings=[BINDING],
        grpc_channel_factory=grpc.aio.insecure_channel,
    )
    return ClientFactory(config).create(await card_of(agent))


def say(text, configuration=None, **message):
    message = a2a.Message(message_id=str(uuid.uuid4()), role=a2a.ROLE_USER, parts=[a2a.Part(text=text)], **message)
    return a2a.SendMessageRequest(message=message, configuration=configuration)


AT_ONCE = a2a.SendMessageConfiguration(return_immediately=True)


async def collect(stream):
    return [event async for event in stream]


async def send(c, request):
    """Sends a message that has to be answered with a task."""
    [answer] = await collect(c.send_message(request))
    assert answer.HasField("task"), answer
    return answer.task


def text(parts):
    return "".join(p.text for p in parts)


def is_(task, state):
    assert task.status.state == state, task


def answer(task):
    [artifact] = task.artifacts
    return text(artifact.parts)


def fold(events):
    said = ""
    for update in (e.artifact_update for e in events if e.HasField("artifact_update")):
        said = (said if update.append else "") + text(update.artifact.parts)
    return said


async def asks(c):
    task = await send(c, say("High tide"))
    is_(task, a2a.TASK_STATE_INPUT_REQUIRED)
    assert text(task.status.message.parts) == "Which city?", task
    return task


async def refused(call, kind):
    try:
        await call
    except kind:
        return
    except Exception as e:
        raise AssertionError(f"refused with {e!r}, not with {kind.__name__}") from e
    raise AssertionError(f"not refused with {kind.__name__}")


def get(c, task):
    return c.get_task(a2a.GetTaskRequest(id=task))


def cancel(c, task):
    return c.cancel_task(a2a.CancelTaskRequest(id=task))


async def subscribe(agent, task):
    async for event in (await client(agent, streaming=True)).subscribe(a2a.SubscribeToTaskRequest(id=task)):
        yield event


class Receiver:
    """A receiver of notifications, and what it got up to the one of an end."""

    def __enter__(self):
        self.got, self.ended = [], threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                receiver.got.append((self.headers, body))
                self.send_response(204)
                self.end_headers()
                if '"TASK_STATE_CANCELED"' in body or '"canceled"' in body:
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
    return a2a.TaskPushNotificationConfig(task_id=task, url=url, token="t0ken", **more)


class Steps:
    async def card(self):
        card = await card_of("relay")
        assert card.name == "relay", card
        offered = [(i.protocol_binding, i.protocol_version) for i in card.supported_interfaces]
        assert (BINDING, "0.3.0" if LEGACY else "1.0") in offered, offered
        assert card.capabilities.streaming and card.capabilities.push_notifications and card.skills, card

    async def send(self):
        self.sent = await send(await client("relay"), say(TIDES))
        is_(self.sent, a2a.TASK_STATE_COMPLETED)
        assert answer(self.sent) == TIDES, self.sent

    async def stream(self):
        for agent, pieces in (("relay", 1), ("echo", 4)):
            events = await collect((await client(agent, streaming=True)).send_message(say(TIDES)))
            assert events[0].HasField("task"), events
            assert fold(events) == TIDES, events
            assert sum(e.HasField("artifact_update") for e in events) >= pieces, events
            is_(events[-1].status_update, a2a.TASK_STATE_COMPLETED)

    async def get(self):
        task = await get(await client("relay"), self.sent.id)
        assert task == self.sent, task
        assert text(task.history[0].parts) == TIDES, task

    async def list(self):
        c = await client("relay")
        of = {"context_id": self.sent.context_id, "page_size": 1}
        second = await send(c, say("again", context_id=self.sent.context_id))
        page = await c.list_tasks(a2a.ListTasksRequest(**of))
        assert ([t.id for t in page.tasks], page.total_size) == ([second.id], 2), page
        page = await c.list_tasks(a2a.ListTasksRequest(page_token=page.next_page_token, **of))
        assert ([t.id for t in page.tasks], page.next_page_token) == ([self.sent.id], ""), page

    async def cancel(self):
        c = await client("bureau")
        task = await send(c, say("Wait", AT_ONCE))
        assert task.status.state in (a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING), task
        is_(await cancel(c, task.id), a2a.TASK_STATE_CANCELED)
        is_(await get(c, task.id), a2a.TASK_STATE_CANCELED)

    async def subscribe(self):
        c = await client("desk")
        asked = await asks(c)
        stream = subscribe("desk", asked.id)
        first = await anext(stream)
        is_(first.task, a2a.TASK_STATE_INPUT_REQUIRED)
        await send(c, say("Brest", task_id=asked.id))
        events = await collect(stream)
        assert fold(events) == "High tide in Brest", events
        is_(events[-1].status_update, a2a.TASK_STATE_COMPLETED)

    async def question(self):
        c = await client("desk")
        asked = await asks(c)
        done = await send(c, say("Brest", task_id=asked.id, context_id=asked.context_id))
        assert done.id == asked.id, done
        is_(done, a2a.TASK_STATE_COMPLETED)
        assert answer(done) == "High tide in Brest", done

    async def push(self):
        c = await client("desk")
        task = (await asks(c)).id
        made = await c.create_task_push_notification_config(hook(task, "http://127.0.0.1:1/one", id="one"))
        assert (made.id, made.task_id, made.url) == ("one", task, "http://127.0.0.1:1/one"), made
        await c.create_task_push_notification_config(hook(task, "http://127.0.0.1:1/two", id="two"))
        got = await c.get_task_push_notification_config(a2a.GetTaskPushNotificationConfigRequest(task_id=task, id="two"))
        assert (got.id, got.url) == ("two", "http://127.0.0.1:1/two"), got
        if "push" in PARTLY:
            await cancel(c, task)
            return

        async def listed():
            request = a2a.ListTaskPushNotificationConfigsRequest(task_id=task)
            return sorted(config.id for config in (await c.list_task_push_notification_configs(request)).configs)

        assert await listed() == ["one", "two"]
        await c.delete_task_push_notification_config(a2a.DeleteTaskPushNotificationConfigRequest(task_id=task, id="one"))
        assert await listed() == ["two"]
        await cancel(c, task)

    async def receive(self):
        c = await client("bureau")
        with Receiver() as to:
            task = await send(c, say("Wait", AT_ONCE))
            bearer = a2a.AuthenticationInfo(scheme="Bearer", credentials="letmein")
            await c.create_task_push_notification_config(hook(task.id, to.url, authentication=bearer))
            is_(await cancel(c, task.id), a2a.TASK_STATE_CANCELED)
            assert await asyncio.to_thread(to.ended.wait, 30), "the end was not told"
        for headers, body in to.got:
            assert headers["X-A2A-Notification-Token"] == "t0ken", headers
            assert headers["Authorization"] == "Bearer letmein", headers
            if LEGACY:
                continue  # a 0.3 receiver is told the task, as JSON of 0.3
            event = Parse(body, a2a.StreamResponse())
            assert (event.task.id or event.status_update.task_id) == task.id, event

    async def unknown(self):
        c, streaming = await client("relay"), await client("relay", streaming=True)
        await refused(get(c, UNKNOWN), TaskNotFoundError)
        await refused(cancel(c, UNKNOWN), TaskNotFoundError)
        for each in (c, streaming):
            await refused(collect(each.send_message(say("more", task_id=UNKNOWN))), TaskNotFoundError)
        await refused(collect(subscribe("relay", UNKNOWN)), TaskNotFoundError)

    async def ended(self):
        c, streaming = await client("relay"), await client("relay", streaming=True)
        task = self.sent.id
        await refused(cancel(c, task), TaskNotCancelableError)
        for each in (c, streaming):
            await refused(collect(each.send_message(say("more", task_id=task))), UnsupportedOperationError)
        await refused(collect(subscribe("relay", task)), UnsupportedOperationError)


LACKS = {"list": "A2A 0.3 lists no tasks over JSON-RPC and HTTP, and the client refuses the call."} if LEGACY else {}
PARTLY = {}
if LEGACY and BINDING == "HTTP+JSON":
    PARTLY["push"] = "The client creates and gets them; it refuses to list and delete them over HTTP."


async def main():
    steps = Steps()
    for step in (name for name in vars(Steps) if not name.startswith("_")):
        line = {"step": step, "partly": PARTLY.get(step)}
        if step in LACKS:
            line["lacks"] = LACKS[step]
        else:
            try:
                await asyncio.wait_for(getattr(steps, step)(), 60)
            except Exception:
                line["error"] = traceback.format_exc()
        print(json.dumps(line), flush=True)


asyncio.run(main())
