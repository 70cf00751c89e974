"""agent-framework as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, answer, play, reply, serve

import httpx
from a2a.client.card_resolver import A2ACardResolver
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agent_framework import Agent, BaseChatClient, ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream
from agent_framework_a2a import A2AAgent, A2AExecutor
from starlette.applications import Starlette

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


async def agent(name):
    async with httpx.AsyncClient() as plain:
        card = await A2ACardResolver(plain, f"{SERVER}/{name}").get_agent_card()
    return A2AAgent(agent_card=card)


class Steps:
    async def card(self):
        a = await agent("relay")
        assert a.name == "relay", a.name

    async def send(self):
        got = await (await agent("relay")).run(TIDES)
        assert got.text == TIDES, got

    async def stream(self):
        updates = [u async for u in (await agent("echo")).run(TIDES, stream=True)]
        assert len(updates) > 1, updates
        assert "".join(u.text for u in updates) == TIDES, [u.text for u in updates]

    async def question(self):
        a = await agent("desk")
        session = a.create_session()
        asked = await a.run("High tide", session=session)
        assert "Which city?" in asked.text, asked
        done = await a.run("Brest", session=session)
        assert "High tide in Brest" in done.text, done

    async def unknown(self):
        a = await agent("relay")
        try:
            await a.poll_task({"task_id": "00000000-0000-7000-8000-000000000000", "context_id": ""})
        except Exception as e:
            assert "TaskNotFound" in repr(e) or "no task" in str(e), repr(e)
        else:
            raise AssertionError("not refused")


class Echo(BaseChatClient):
    def _inner_get_response(self, *, messages, stream, options, **kwargs):
        text = messages[-1].text

        async def whole():
            if text == "wait":
                await asyncio.Event().wait()
            return ChatResponse(messages=[Message(role="assistant", contents=[answer(text)])])

        async def pieces():
            if text == "wait":
                await asyncio.Event().wait()
            for piece in reply(text):
                yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(piece)])

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates) if stream else whole()


def make(url):
    card = AgentCard(
        name="peer",
        description="Echoes.",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="Echo", description="Echoes.", tags=["echo"])],
        supported_interfaces=[AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=url + "/")],
    )
    handler = DefaultRequestHandler(
        agent_executor=A2AExecutor(Agent(client=Echo(), name="peer")), task_store=InMemoryTaskStore(), agent_card=card
    )
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])


if SERVER:
    why = "A2AAgent sends and streams messages and polls tasks that it began; it has no other calls of the protocol."
    play(Steps(), why)
else:
    serve(make)
