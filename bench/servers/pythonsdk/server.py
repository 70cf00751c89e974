"""An agent that echoes, on the Python SDK's server: server.py memory|sqlite FOLDER.

It prints the URL for JSON-RPC when it is ready.
"""

import asyncio
import socket
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from starlette.applications import Starlette


class Echo(AgentExecutor):
    """Answers with the text it is sent, in a task of four events."""

    async def execute(self, context, queue):
        await queue.enqueue_event(
            a2a.Task(
                id=context.task_id,
                context_id=context.context_id,
                status=a2a.TaskStatus(state=a2a.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
        )
        task = TaskUpdater(queue, context.task_id, context.context_id)
        await task.start_work()
        await task.add_artifact([a2a.Part(text=context.get_user_input())])
        await task.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def store():
    if sys.argv[1] == "memory":
        return InMemoryTaskStore()
    from sqlalchemy.ext.asyncio import create_async_engine

    # Concurrent calls wait for each other; the default of five seconds is too short for many of them.
    return DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{sys.argv[2]}/tasks.db", connect_args={"timeout": 25}))


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/rpc"
    card = a2a.AgentCard(
        name="Echo",
        description="Echoes.",
        version="1",
        supported_interfaces=[a2a.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=a2a.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a.AgentSkill(id="echo", name="Echo", description="Echoes.", tags=["echo"])],
    )
    tasks = store()
    if isinstance(tasks, DatabaseTaskStore):
        await tasks.initialize()
    app = Starlette(routes=create_jsonrpc_routes(DefaultRequestHandler(Echo(), tasks, card), "/rpc"))
    print(f"ready {url}", flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


asyncio.run(main())
