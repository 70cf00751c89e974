"""An agent that echoes, on Agno's AgentOS without a database.

It prints the URL for JSON-RPC when it is ready.
"""

import asyncio
import os
import socket

os.environ["AGNO_TELEMETRY"] = "false"

import uvicorn
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS


class Echo(Model):
    """Answers with the last message."""

    def invoke(self, messages, **kwargs):
        return ModelResponse(role="assistant", content=messages[-1].content)

    async def ainvoke(self, messages, **kwargs):
        return self.invoke(messages)

    def invoke_stream(self, messages, **kwargs):
        yield self.invoke(messages)

    async def ainvoke_stream(self, messages, **kwargs):
        yield self.invoke(messages)

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


async def main():
    agent = Agent(id="echo", name="echo", description="Echoes.", model=Echo(id="echo"), telemetry=False)
    app = AgentOS(agents=[agent], a2a_interface=True, telemetry=False).get_app()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/a2a/agents/echo/v1/message:send", flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listener])


asyncio.run(main())
