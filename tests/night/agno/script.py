"""agno as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, answer, play, reply, serve

from agno.agent import Agent
from agno.client.a2a import A2AClient
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


def client(agent):
    return A2AClient(f"{SERVER}/{agent}", protocol="json-rpc")


class Steps:
    async def card(self):
        card = await asyncio.to_thread(A2AClient(f"{SERVER}/relay").get_agent_card)
        assert card and card.name == "relay", card

    async def send(self):
        got = await client("relay").send_message(TIDES)
        assert got.task_id and got.status == "completed", got
        assert len(got.artifacts) == 1, got

    async def stream(self):
        events = [e async for e in client("echo").stream_message(TIDES)]
        assert "".join(e.content or "" for e in events if e.event_type == "content") == TIDES, events
        assert events[-1].is_final and events[-1].event_type == "completed", events[-1]


class Echo(Model):
    def invoke(self, messages, **kwargs):
        return ModelResponse(role="assistant", content=answer(messages[-1].content))

    async def ainvoke(self, messages, **kwargs):
        return self.invoke(messages)

    def invoke_stream(self, messages, **kwargs):
        for piece in reply(messages[-1].content):
            yield ModelResponse(role="assistant", content=piece)

    async def ainvoke_stream(self, messages, **kwargs):
        if messages[-1].content == "wait":
            await asyncio.Event().wait()
        for response in self.invoke_stream(messages):
            yield response

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


def make(url):
    agent = Agent(id="peer", name="peer", description="Echoes.", model=Echo(id="echo"), telemetry=False)
    return AgentOS(agents=[agent], a2a_interface=True, telemetry=False).get_app()


if SERVER:
    play(
        Steps(),
        {
            "": "The client of agno sends and streams messages and reads the card; it has no other calls.",
            "question": "The client of agno cannot name a task in a message, so it cannot answer a question.",
        },
        {"send": "The client takes the text of an answer from the agent's messages in the history alone, and of artifacts what is not their parts: the content of a task with `artifacts: [{parts: [{kind: text, text: ...}]}]` is empty to it."},
    )
else:
    serve(make)
