"""An agent on the Python SDK's server for A2A 0.3: python member.py BINDING.

It does what it is told: asks, fails, waits for its cancel, and else echoes in two pieces.
Prints the address of its card when it is ready.
"""

import asyncio
import socket
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task

BINDING = sys.argv[1]


def part(text):
    return Part(root=TextPart(text=text))


class Far(AgentExecutor):
    async def execute(self, context, queue):
        said = context.get_user_input()
        task = TaskUpdater(queue, context.task_id, context.context_id)
        if context.current_task is None:
            await queue.enqueue_event(new_task(context.message))
        else:
            said = "you said " + said
        await task.start_work()
        if said == "ask":
            await task.requires_input(task.new_agent_message([part("Which city?")]), final=True)
        elif said == "fail":
            await task.failed(task.new_agent_message([part("It is broken.")]))
        elif said == "wait":
            await asyncio.Event().wait()
        else:
            await task.add_artifact([part("far: ")], artifact_id="a", append=False, last_chunk=False)
            await task.add_artifact([part(said)], artifact_id="a", append=True, last_chunk=True)
            await task.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


listener = socket.create_server(("127.0.0.1", 0))
base = f"http://127.0.0.1:{listener.getsockname()[1]}"
card = AgentCard(
    name="Far",
    description="Echoes from afar.",
    version="1",
    url=base,
    preferred_transport=BINDING,
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="Echo", description="Echoes.", tags=["echo"])],
)
serve = {"JSONRPC": A2AStarletteApplication, "HTTP+JSON": A2ARESTFastAPIApplication}[BINDING]
app = serve(agent_card=card, http_handler=DefaultRequestHandler(Far(), InMemoryTaskStore())).build()
print(f"ready {base}", flush=True)
asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener]))
