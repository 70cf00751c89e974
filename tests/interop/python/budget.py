"""The Python SDK answers a question: python budget.py SERVER BINDING AGENT TEXT [TASK].

Sends a message, to a task if one is named, waits until the task has ended or asks, and prints a
line of JSON: its id, its state, the text of its status and of its artifacts.
"""

import asyncio
import json
import sys
import uuid

import grpc
import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import A2AError

SERVER, BINDING, AGENT, TEXT = sys.argv[1:5]
TASK = (sys.argv[5:] + [""])[0]


def text(parts):
    return "".join(p.text for p in parts)


async def main():
    async with httpx.AsyncClient() as plain:
        card = await A2ACardResolver(plain, f"{SERVER}/{AGENT}").get_agent_card()
    config = ClientConfig(streaming=False, supported_protocol_bindings=[BINDING], grpc_channel_factory=grpc.aio.insecure_channel)
    client = ClientFactory(config).create(card)
    message = a2a.Message(message_id=str(uuid.uuid4()), role=a2a.ROLE_USER, parts=[a2a.Part(text=TEXT)], task_id=TASK)
    try:
        [answer] = [event async for event in client.send_message(a2a.SendMessageRequest(message=message))]
    except (A2AError, A2AClientError) as e:
        print(json.dumps({"error": str(e)}))
        return
    task = answer.task
    print(json.dumps({
        "id": task.id,
        "state": a2a.TaskState.Name(task.status.state),
        "status": text(task.status.message.parts),
        "answer": "".join(text(a.parts) for a in task.artifacts),
    }))


asyncio.run(main())
