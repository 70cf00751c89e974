"""beeai-framework as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, answer, play, serve

from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


def agent(name):
    return A2AAgent(url=f"{SERVER}/{name}", memory=UnconstrainedMemory())


class Steps:
    async def card(self):
        a = agent("relay")
        await a._load_agent_card()
        assert a.name == "relay", a.name

    async def send(self):
        got = await agent("relay").run(TIDES, streaming=False)
        assert got.last_message.text == TIDES, got

    async def stream(self):
        events = []
        got = await agent("echo").run(TIDES, streaming=True).on("update", lambda data, event: events.append(data))
        assert len(events) > 1, events
        assert got.last_message.text == TIDES, got

    async def question(self):
        a = agent("desk")
        asked = await a.run("High tide")
        assert "Which city?" in asked.last_message.text, asked
        done = await a.run("Brest")
        assert done.last_message.text == "High tide in Brest", done


def make(url):
    import a2a.server.apps as apps
    import a2a.server.request_handlers as handlers
    import a2a.server.tasks as tasks
    from beeai_framework.adapters.a2a.serve.server import A2AServer
    from beeai_framework.agents.requirement import RequirementAgent
    from beeai_framework.backend import AssistantMessage, ChatModel, ChatModelError, ChatModelOutput, MessageToolCallContent, UserMessage

    class Echo(ChatModel):
        model_id = "echo"
        provider_id = "ollama"

        async def _create(self, input, run):
            text = [m for m in input.messages if isinstance(m, UserMessage)][-1].text.removeprefix("Your task: ")
            if text == "wait":
                await asyncio.Event().wait()
            try:
                text = answer(text)
            except RuntimeError as e:
                raise ChatModelError(str(e)) from e
            call = MessageToolCallContent(id="1", tool_name="final_answer", args=json.dumps({"response": text}))
            return ChatModelOutput(output=[AssistantMessage(call)], finish_reason="stop")

        async def _create_stream(self, input, run):
            yield await self._create(input, run)

        async def clone(self):
            return self

    member = RequirementAgent(llm=Echo(), memory=UnconstrainedMemory(), name="peer", description="Echoes.")
    executor = A2AServer._get_factory(member)(member, metadata={}, memory_manager=A2AServer()._memory_manager)
    executor.agent_card.url = url
    handler = handlers.DefaultRequestHandler(agent_executor=executor, task_store=tasks.InMemoryTaskStore())
    return apps.A2AStarletteApplication(agent_card=executor.agent_card, http_handler=handler).build()


if SERVER:
    play(Steps(), "A2AAgent sends and streams messages; it has no other calls of the protocol.")
else:
    serve(make)
