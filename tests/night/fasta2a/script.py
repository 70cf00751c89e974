"""fasta2a as a client, `python script.py SERVER`, and as a server, `python script.py`."""

import asyncio
import sys
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import TIDES, play, reply, serve

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.client import A2AClient
from fasta2a.storage import InMemoryStorage

SERVER = sys.argv[1] if len(sys.argv) > 1 else ""


def client(agent):
    return A2AClient(f"{SERVER}/{agent}")


def message(text, **more):
    return {"message_id": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}


class Steps:
    async def stream(self):
        events = [e async for e in client("relay").stream_message(message(TIDES))]
        assert events == [], "it streams now; play more steps"


class Echo(Worker):
    async def run_task(self, params):
        task = await self.storage.load_task(params["id"])
        await self.storage.update_task(task["id"], state="working")
        text = "".join(p.get("text", "") for p in task["history"][-1]["parts"])
        if text == "wait":
            await asyncio.Event().wait()
        if text == "ask":
            asks = {"message_id": str(uuid.uuid4()), "role": "ROLE_AGENT", "parts": [{"text": "Which city?"}]}
            await self.storage.update_task(task["id"], state="input-required")
            await self.publish_status(task["id"], task["context_id"], "input-required", asks)
            return
        try:
            pieces = reply(text, len(task["history"]) > 1)
        except RuntimeError as e:
            says = {"message_id": str(uuid.uuid4()), "role": "ROLE_AGENT", "parts": [{"text": str(e)}]}
            await self.storage.update_task(task["id"], state="failed")
            await self.publish_status(task["id"], task["context_id"], "failed", says)
            return
        for i, piece in enumerate(pieces):
            artifact = {"artifact_id": "answer", "parts": [{"text": piece}]}
            await self.publish_artifact(task["id"], task["context_id"], artifact, append=i > 0, last_chunk=i == len(pieces) - 1)
        whole = {"artifact_id": "answer", "parts": [{"text": "".join(pieces)}]}
        await self.storage.update_task(task["id"], state="completed", new_artifacts=[whole])

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return []


def make(url):
    storage, broker = InMemoryStorage(), InMemoryBroker()
    worker = Echo(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(app):
        # A worker does one thing at a time; the second one takes the cancel of what the first one does.
        async with app.task_manager, worker.run(), worker.run():
            yield

    return FastA2A(storage=storage, broker=broker, url=url, name="peer", description="Echoes.", lifespan=lifespan)


if SERVER:
    mix = (
        "The client names methods of A2A 0.3 (`message/send`) and writes messages of 1.0 (`\"role\":\"ROLE_USER\"`), "
        "and is answered -32602, `message.role must be user or agent`."
    )
    other = "The client of fasta2a sends and streams messages and gets tasks; it has no other calls."
    lacks = {"": other, "card": "It wants `inputModes` and `outputModes` of each skill, which A2A leaves to the agent: `skills.0.inputModes Field required`."}
    play(Steps(), lacks | dict.fromkeys(("send", "get", "question", "unknown", "ended"), mix), {"stream": mix + " It takes the refusal of a stream for a stream without events."})
else:
    serve(make)
