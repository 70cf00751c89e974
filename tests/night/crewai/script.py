"""crewai as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, answer, play, serve

from crewai.a2a.utils.agent_card import afetch_agent_card
from crewai.a2a.utils.delegation import aexecute_a2a_delegation

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


def endpoint(agent):
    return f"{SERVER}/{agent}/.well-known/agent-card.json"


async def delegate(agent, text, **more):
    return await aexecute_a2a_delegation(endpoint(agent), None, 60, text, accepted_output_modes=["text/plain"], **more)


class Steps:
    async def card(self):
        card = await afetch_agent_card(endpoint("relay"))
        assert card.name == "relay", card

    async def send(self):
        from crewai.a2a.updates import PollingConfig

        got = await delegate("relay", TIDES, updates=PollingConfig(interval=0.1))
        assert str(got["status"]).endswith("completed") and TIDES in got["result"], got

    async def stream(self):
        from crewai.a2a.updates import StreamingConfig

        got = await delegate("relay", TIDES, updates=StreamingConfig())
        assert str(got["status"]).endswith("completed") and TIDES in got["result"], got


def make(url):
    import a2a.server.apps as apps
    import a2a.server.request_handlers as handlers
    import a2a.server.tasks as tasks
    from a2a.server.agent_execution import AgentExecutor
    from crewai import Agent
    from crewai.a2a import A2AServerConfig
    from crewai.a2a.utils.agent_card import _agent_to_agent_card
    from crewai.a2a.utils.task import cancel, execute
    from crewai.llms.base_llm import BaseLLM

    class Echo(BaseLLM):
        def call(self, messages, *args, **kwargs):
            text = messages if isinstance(messages, str) else messages[-1]["content"]
            # The message is a line of the prompt.
            said = next((word for word in ("ask", "fail", "wait", "Hello") if f"Current Task: {word}" in text), text)
            # It does not wait for a cancel: an agent does one thing at a time, and none could be told to end.
            return "Thought: I now can give a great answer\nFinal Answer: " + answer(said)

    agent = Agent(role="peer", goal="Echo.", backstory="Echoes.", llm=Echo(model="echo"), a2a=A2AServerConfig(url=url))

    class Executor(AgentExecutor):
        async def execute(self, context, queue):
            await execute(agent, context, queue)

        async def cancel(self, context, queue):
            await cancel(context, queue)

    handler = handlers.DefaultRequestHandler(agent_executor=Executor(), task_store=tasks.InMemoryTaskStore())
    return apps.A2AStarletteApplication(agent_card=_agent_to_agent_card(agent, url), http_handler=handler).build()


if SERVER:
    play(Steps(), "crewai delegates work to an agent: it sends messages and follows their tasks; it has no other calls for its users.")
else:
    serve(make)
