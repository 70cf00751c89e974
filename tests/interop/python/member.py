"""An agent on the Python SDK's server: python member.py BINDING.

It does what it is told: asks, fails, waits for its cancel, and else echoes in two pieces.
Prints the address of its card when it is ready.
"""

import asyncio
import socket
import sys

import grpc
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from a2a.types import a2a_pb2_grpc
from starlette.applications import Starlette

BINDING = sys.argv[1]


class Far(AgentExecutor):
    async def execute(self, context, queue):
        said = context.get_user_input()
        task = TaskUpdater(queue, context.task_id, context.context_id)
        if context.current_task is None:
            await queue.enqueue_event(
                a2a.Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=a2a.TaskStatus(state=a2a.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
        else:
            said = "you said " + said
        await task.start_work()
        if said == "ask":
            await task.requires_input(task.new_agent_message([a2a.Part(text="Which city?")]))
        elif said == "fail":
            await task.failed(task.new_agent_message([a2a.Part(text="It is broken.")]))
        elif said == "wait":
            await asyncio.Event().wait()
        else:
            await task.add_artifact([a2a.Part(text="far: ")], artifact_id="a", append=False, last_chunk=False)
            await task.add_artifact([a2a.Part(text=said)], artifact_id="a", append=True, last_chunk=True)
            await task.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = grpc.aio.server()
    at = {"JSONRPC": base + "/rpc", "HTTP+JSON": base, "GRPC": f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"}
    card = a2a.AgentCard(
        name="Far",
        description="Echoes from afar.",
        version="1",
        supported_interfaces=[a2a.AgentInterface(url=at[BINDING], protocol_binding=BINDING, protocol_version="1.0")],
        capabilities=a2a.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a.AgentSkill(id="echo", name="Echo", description="Echoes.", tags=["echo"])],
    )
    handler = DefaultRequestHandler(Far(), InMemoryTaskStore(), card)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    await server.start()
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc"), *create_rest_routes(handler)])
    print(f"ready {base}", flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


asyncio.run(main())
