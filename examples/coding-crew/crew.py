"""Four agents on the public Python SDK of A2A, at /planner, /coder, /reviewer and /merger: python crew.py [PORT].

With OPENAI_BASE_URL or OPENAI_API_KEY a model answers (OPENAI_MODEL); without, each agent answers by itself. MERGED names a
file to which the merger adds a line for each merge, once for each message: a message that is sent again merges nothing.
"""

import asyncio
import json
import os
import socket
import sys
import urllib.request

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from starlette.applications import Starlette
from starlette.routing import Mount

ROLES = {
    "planner": "Say in a few lines what has to be changed, and how it is tested.",
    "coder": "Write the change as a unified diff, and nothing else. If a review is shown to you, do what it asks.",
    "reviewer": 'Review the diff. Answer with JSON alone: {"ok": true or false, "why": TEXT}.',
    "merger": "",
}
BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1" if "OPENAI_API_KEY" in os.environ else "")
merged = set()


def ask_model(role, text):
    request = urllib.request.Request(
        BASE.rstrip("/") + "/chat/completions",
        json.dumps(
            {
                "model": os.environ.get("OPENAI_MODEL", "gpt-5-mini"),
                "messages": [{"role": "system", "content": ROLES[role]}, {"role": "user", "content": text}],
            }
        ).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none")},
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def answer_alone(role, text):
    if role == "planner":
        return "Add a test for: " + text.splitlines()[0]
    if role == "coder":
        return "+ test, with a comment" if "a comment is missing" in text else "+ test"
    ok = "with a comment" in text
    return json.dumps({"ok": ok, "why": "" if ok else "a comment is missing"})


def merge(message, text):
    if message not in merged:
        merged.add(message)
        if "MERGED" in os.environ:
            with open(os.environ["MERGED"], "a") as file:
                file.write(json.dumps({"message": message, "text": text}) + "\n")
    return "Merged."


class Member(AgentExecutor):
    def __init__(self, role):
        self.role = role

    async def execute(self, context, queue):
        text = context.get_user_input()
        task = TaskUpdater(queue, context.task_id, context.context_id)
        await queue.enqueue_event(
            a2a.Task(
                id=context.task_id,
                context_id=context.context_id,
                status=a2a.TaskStatus(state=a2a.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
        )
        await task.start_work()
        if self.role == "merger":
            said = merge(context.message.message_id, text)
        elif BASE:
            said = await asyncio.to_thread(ask_model, self.role, text)
        else:
            said = answer_alone(self.role, text)
        await task.add_artifact([a2a.Part(text=said)])
        await task.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def mount(role, base):
    card = a2a.AgentCard(
        name=role,
        description=ROLES[role] or "Merges a change.",
        version="1",
        supported_interfaces=[a2a.AgentInterface(url=f"{base}/{role}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=a2a.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a.AgentSkill(id=role, name=role, description=ROLES[role] or "Merges a change.", tags=["code"])],
    )
    handler = DefaultRequestHandler(Member(role), InMemoryTaskStore(), card)
    return Mount("/" + role, routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])


listener = socket.create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9100))
address = f"http://127.0.0.1:{listener.getsockname()[1]}"
app = Starlette(routes=[mount(role, address) for role in ROLES])
print(f"ready {address}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
