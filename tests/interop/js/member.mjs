// An agent on the JavaScript SDK's server: node member.mjs BINDING. It does what it is
// told: asks, fails, waits for its cancel, and else echoes in two pieces. Prints the address
// of its card when it is ready.
import { randomUUID } from "node:crypto";
import { AgentCard, TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { jsonRpcHandler, restHandler, UserBuilder } from "@a2a-js/sdk/server/express";
import { A2AService, grpcService, UserBuilder as GrpcUserBuilder } from "@a2a-js/sdk/server/grpc";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import express from "express";

const [binding] = process.argv.slice(2);
const text = (value) => ({ content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "text/plain" });
const contexts = new Map();

const far = {
  async execute({ userMessage, task, taskId, contextId }, bus) {
    const words = userMessage.parts.map((p) => (p.content?.$case === "text" ? p.content.value : "")).join("");
    const said = task ? `you said ${words}` : words;
    const status = (state, words) => ({
      state, timestamp: new Date().toISOString(),
      message: words && {
        messageId: randomUUID(), contextId, taskId, role: 2, parts: [text(words)], metadata: undefined, extensions: [], referenceTaskIds: [],
      },
    });
    const artifact = (words, append) => bus.publish(AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk: append, metadata: undefined,
      artifact: { artifactId: "a", name: "", description: "", parts: [text(words)], metadata: undefined, extensions: [] },
    }));
    const turn = (state, words) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, words), metadata: undefined }));
    contexts.set(taskId, contextId);
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [], history: [userMessage], metadata: undefined,
    }));
    turn(TaskState.TASK_STATE_WORKING);
    if (said === "wait") return new Promise((resolve) => bus.once("finished", resolve));
    if (said === "ask") turn(TaskState.TASK_STATE_INPUT_REQUIRED, "Which city?");
    else if (said === "fail") turn(TaskState.TASK_STATE_FAILED, "It is broken.");
    else {
      artifact("far: ", false);
      artifact(said, true);
      turn(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  },
  async cancelTask(taskId, bus) {
    bus.publish(AgentEvent.statusUpdate({
      taskId, contextId: contexts.get(taskId), metadata: undefined,
      status: { state: TaskState.TASK_STATE_CANCELED, message: undefined, timestamp: new Date().toISOString() },
    }));
    bus.finished();
  },
};

const app = express();
const http = app.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${http.address().port}`;
  const server = new Server();
  server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    const url = { JSONRPC: `${base}/rpc`, "HTTP+JSON": base, GRPC: `127.0.0.1:${port}` }[binding];
    const card = {
      name: "Far", description: "Echoes from afar.", version: "1",
      supportedInterfaces: [{ url, protocolBinding: binding, protocolVersion: "1.0" }],
      capabilities: { streaming: true },
      defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
      skills: [{ id: "echo", name: "Echo", description: "Echoes.", tags: ["echo"] }],
    };
    const requestHandler = new DefaultRequestHandler(AgentCard.fromJSON(card), new InMemoryTaskStore(), far);
    server.addService(A2AService, grpcService({ requestHandler, userBuilder: GrpcUserBuilder.noAuthentication }));
    app.get("/.well-known/agent-card.json", (_, response) => response.json(card));
    app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
    app.use(restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
    console.log(`ready ${base}`);
  });
});
