"""strands-agents as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, play, reply, serve

from strands import Agent, tool
from strands.agent.a2a_agent import A2AAgent
from strands.models.model import Model
from strands.multiagent.a2a import A2AServer
from strands.types.tools import ToolContext

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


def words(result):
    return "".join(block.get("text", "") for block in result.message["content"])


class Steps:
    async def card(self):
        card = await A2AAgent(f"{SERVER}/relay").get_agent_card()
        assert card.name == "relay", card

    async def send(self):
        got = words(await A2AAgent(f"{SERVER}/relay").invoke_async(TIDES))
        assert TIDES in got, got

    async def stream(self):
        events = [e async for e in A2AAgent(f"{SERVER}/echo").stream_async(TIDES)]
        assert len(events) > 3, events
        assert words(events[-1]["result"]) == TIDES, events[-1]


class Echo(Model):
    """A model that says what ../common.py wants; for `ask` it calls the tool that asks."""

    def update_config(self, **config):
        pass

    def get_config(self):
        return {}

    async def structured_output(self, *args, **kwargs):
        raise NotImplementedError
        yield

    async def stream(self, messages, *args, **kwargs):
        said = next(b["text"] for m in messages if m["role"] == "user" for b in m["content"] if "text" in b)
        results = [b["toolResult"]["content"][0]["text"] for m in messages for b in m["content"] if "toolResult" in b]
        yield {"messageStart": {"role": "assistant"}}
        if said == "wait":
            await asyncio.Event().wait()
        if said == "ask" and not results:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "ask", "toolUseId": "1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
            return
        yield {"contentBlockStart": {"start": {}}}
        for piece in reply(results[-1] if results else said, bool(results)):
            yield {"contentBlockDelta": {"delta": {"text": piece}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


@tool(context=True)
def ask(tool_context: ToolContext) -> str:
    """Asks the user which city."""
    return tool_context.interrupt("city", reason="Which city?")


def make(url):
    host, port = url.removeprefix("http://").split(":")
    return A2AServer(
        agent_factory=lambda context: Agent(name="peer", description="Echoes.", model=Echo(), tools=[ask], callback_handler=None),
        host=host, port=int(port), enable_a2a_compliant_streaming=True,
    ).to_starlette_app()


if SERVER:
    why = "A2AAgent is an agent that sends messages; it has no other calls of the protocol."
    play(Steps(), {"": why, "question": "A2AAgent names no task in a message, so it cannot answer a question."})
else:
    serve(make)
