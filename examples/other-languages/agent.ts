// An agent in TypeScript. It echoes a text in pieces, and asks, fails or waits if the text says so.
//
//   node dist/agent.js ADDRESS
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType } from "./gen/agent";
import type { Message } from "./gen/lf/a2a/v1/Message";
import type { AgentServiceHandlers } from "./gen/team/v1/AgentService";
import type { Event } from "./gen/team/v1/Event";

const protos = grpc.loadPackageDefinition(loadSync("team/v1/agent.proto", { includeDirs: [join(__dirname, "../protos")] })) as unknown as ProtoGrpcType;

const message = (text: string): Message => ({ messageId: randomUUID(), role: "ROLE_AGENT", parts: [{ text }] });
const failure = (code: grpc.status, details: string) => ({ code, details });
const cancels = new Map<string, () => void>(); // what cancels a task, by its id

const far: AgentServiceHandlers = {
  Info: (_, reply) => reply(null, { info: { id: "far", name: "Far", description: "Echoes from afar." } }),
  HealthCheck: (_, reply) => reply(null, { healthy: true, usable: true }),

  // Where an agent has ProcessStream, this is not called.
  Process: (_, reply) => reply(failure(grpc.status.UNIMPLEMENTED, "Use ProcessStream.")),

  ProcessStream(stream) {
    const call = stream.request.request!;
    let text = (call.message?.parts ?? []).map((part) => part.text ?? "").join("");
    const taskId = call.taskId || call.key; // an answer names the task that asked
    const send = (event: Event) => stream.write({ taskId, event });
    if (call.taskId) {
      text = "you said " + text;
    } else if (text === "ask") {
      send({ asked: { question: "city", kind: "KIND_INPUT", message: message("Which city?") } });
      send({ waiting: { questions: ["city"] } });
      stream.end(); // the answer comes as another call
      return;
    } else if (text === "fail") {
      stream.emit("error", failure(grpc.status.FAILED_PRECONDITION, "It is broken."));
      return;
    } else if (text === "wait") {
      cancels.set(taskId!, () => stream.emit("error", failure(grpc.status.ABORTED, "It was canceled.")));
      send({}); // tells the task, by which it can be canceled
      return;
    }
    for (const piece of ["far: ", text]) send({ delta: { artifactId: "text", text: piece } });
    send({ reply: { message: message("far: " + text) } });
    stream.end();
  },

  Cancel(call, reply) {
    const cancel = cancels.get(call.request.taskId || call.request.key || "");
    if (!cancel) return reply(failure(grpc.status.NOT_FOUND, "There is no such task."));
    cancel();
    reply(null, { state: "TASK_STATE_CANCELED" });
  },
};

const [address] = process.argv.slice(2);
const server = new grpc.Server();
server.addService(protos.team.v1.AgentService.service, far);
server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(`ready ${address.replace(/:\d+$/, "")}:${port}`);
});
