"""An agent in Python. It echoes a text in pieces, and asks, fails or waits if the text says so.

python agent.py ADDRESS
"""

import asyncio
import sys
import uuid

import grpc
from lf.a2a.v1 import a2a_pb2
from team.v1 import agent_pb2, agent_pb2_grpc, event_pb2, info_pb2


def message(text):
    return a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_AGENT, parts=[a2a_pb2.Part(text=text)])


class Far(agent_pb2_grpc.AgentServiceServicer):
    def __init__(self):
        self.canceled = {}  # by task: an event, set when the task is canceled

    async def Info(self, request, context):
        return agent_pb2.InfoResponse(info=info_pb2.AgentInfo(id="far", name="Far", description="Echoes from afar."))

    async def HealthCheck(self, request, context):
        return agent_pb2.HealthCheckResponse(healthy=True, usable=True)

    async def ProcessStream(self, request, context):
        call = request.request
        text = "".join(part.text for part in call.message.parts)
        task = call.task_id or call.key  # an answer names the task that asked

        def event(**kind):
            return agent_pb2.ProcessStreamResponse(task_id=task, event=event_pb2.Event(**kind))

        if call.task_id:
            text = "you said " + text
        elif text == "ask":
            asked = event_pb2.Asked(question="city", kind=event_pb2.Asked.KIND_INPUT, message=message("Which city?"))
            yield event(asked=asked)
            yield event(waiting=event_pb2.Waiting(questions=["city"]))
            return  # the answer comes as another call
        elif text == "fail":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "It is broken.")
        elif text == "wait":
            self.canceled[task] = asyncio.Event()
            yield event()  # tells the task, by which it can be canceled
            await self.canceled[task].wait()
            await context.abort(grpc.StatusCode.ABORTED, "It was canceled.")
        for piece in ("far: ", text):
            yield event(delta=event_pb2.Delta(artifact_id="text", text=piece))
        yield event(reply=event_pb2.Reply(message=message("far: " + text)))

    async def Cancel(self, request, context):
        canceled = self.canceled.get(request.task_id or request.key)
        if canceled is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such task.")
        canceled.set()
        return agent_pb2.CancelResponse(state=a2a_pb2.TASK_STATE_CANCELED)


async def main(address):
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(Far(), server)
    port = server.add_insecure_port(address)
    await server.start()
    print("ready", address.rsplit(":", 1)[0] + f":{port}", flush=True)
    await server.wait_for_termination()


asyncio.run(main(sys.argv[1]))
