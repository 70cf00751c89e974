"""google-adk as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, play, reply, serve

from google.adk.agents import BaseAgent
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.genai import types

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


class Talk:
    """A conversation with an agent of the server."""

    def __init__(self, agent):
        self.agent = RemoteA2aAgent(name=agent, agent_card=f"{SERVER}/{agent}/.well-known/agent-card.json")
        self.runner = InMemoryRunner(agent=self.agent, app_name="night")
        self.session = None

    async def say(self, text=None, part=None):
        if self.session is None:
            self.session = await self.runner.session_service.create_session(app_name="night", user_id="ann")
        message = types.Content(role="user", parts=[part or types.Part(text=text)])
        return [e async for e in self.runner.run_async(user_id="ann", session_id=self.session.id, new_message=message)]


def said(events):
    for e in events:
        assert not e.error_message, e.error_message
    return "".join(p.text or "" for e in events if e.content and not e.partial for p in e.content.parts if not p.thought)


class Steps:
    async def card(self):
        talk = Talk("relay")
        await talk.say(TIDES)
        card = talk.agent._agent_card
        assert card and card.name == "relay", card

    async def send(self):
        got = said(await Talk("relay").say(TIDES))
        assert TIDES in got, got

    async def question(self):
        talk = Talk("desk")
        asked = await talk.say("High tide")
        assert "Which city?" in str(asked), asked
        # A question is a function that takes its time; the answer is what it returns.
        [call] = [c for e in asked for c in e.get_function_calls() if c.id in (e.long_running_tool_ids or ())]
        response = types.FunctionResponse(id=call.id, name=call.name, response={"result": "Brest"})
        done = await talk.say(part=types.Part(function_response=response))
        assert "in Brest" in str(done), done


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx):
        text = "".join(p.text or "" for p in ctx.user_content.parts)
        if text == "wait":
            await asyncio.Event().wait()
        if text == "ask":
            # What takes its time is a question.
            call = types.FunctionCall(id="1", name="ask", args={})
            yield self.event(types.Part(text="Which city?"), types.Part(function_call=call), long_running_tool_ids={"1"})
            return
        pieces = reply(text, any(e.get_function_calls() for e in ctx.session.events))
        for piece in pieces:
            yield self.event(types.Part(text=piece), partial=True)
        yield self.event(types.Part(text="".join(pieces)))

    def event(self, *parts, **more):
        return Event(author=self.name, content=types.Content(role="model", parts=parts), **more)


def make(url):
    host, port = url.removeprefix("http://").split(":")
    return to_a2a(Echo(name="peer", description="Echoes."), host=host, port=int(port))


if SERVER:
    why = "RemoteA2aAgent is an agent that sends messages; it has no other calls of the protocol."
    play(Steps(), {"": why, "stream": "RemoteA2aAgent chooses itself whether it streams; the step send is what it chose."})
else:
    serve(make)
