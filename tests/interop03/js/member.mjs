// An agent on the JavaScript SDK's server for A2A 0.3: node member.mjs BINDING. It does what
// it is told: asks, fails, waits for its cancel, and else echoes in two pieces. Prints the
// address of its card when it is ready.
import { randomUUID } from "node:crypto";
import { DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { jsonRpcHandler, restHandler, UserBuilder } from "@a2a-js/sdk/server/express";
import express from "express";

const [binding] = process.argv.slice(2);
const contexts = new Map();

const far = {
  async execute({ userMessage, task, taskId, contextId }, bus) {
    const words = userMessage.parts.map((p) => (p.kind === "text" ? p.text : "")).join("");
    const said = task ? `you said ${words}` : words;
    const status = (state, words) => ({
      state, timestamp: new Date().toISOString(),
      ...(words && { message: { kind: "message", messageId: randomUUID(), contextId, taskId, role: "agent", parts: [{ kind: "text", text: words }] } }),
    });
    const artifact = (words, append) => bus.publish({
      kind: "artifact-update", taskId, contextId, append, lastChunk: append, artifact: { artifactId: "a", parts: [{ kind: "text", text: words }] },
    });
    const turn = (state, final, words) => bus.publish({ kind: "status-update", taskId, contextId, status: status(state, words), final });
    contexts.set(taskId, contextId);
    if (!task) bus.publish({ kind: "task", id: taskId, contextId, status: status("submitted"), history: [userMessage] });
    turn("working", false);
    if (said === "wait") return new Promise((resolve) => bus.once("finished", resolve));
    if (said === "ask") turn("input-required", true, "Which city?");
    else if (said === "fail") turn("failed", true, "It is broken.");
    else {
      artifact("far: ", false);
      artifact(said, true);
      turn("completed", true);
    }
    bus.finished();
  },
  async cancelTask(taskId, bus) {
    bus.publish({
      kind: "status-update", taskId, contextId: contexts.get(taskId), final: true,
      status: { state: "canceled", timestamp: new Date().toISOString() },
    });
    bus.finished();
  },
};

const app = express();
const http = app.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${http.address().port}`;
  const card = {
    name: "Far", description: "Echoes from afar.", version: "1", protocolVersion: "0.3.0",
    url: { JSONRPC: `${base}/rpc`, "HTTP+JSON": `${base}/rest` }[binding], preferredTransport: binding,
    capabilities: { streaming: true },
    defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
    skills: [{ id: "echo", name: "Echo", description: "Echoes.", tags: ["echo"] }],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), far);
  app.get("/.well-known/agent-card.json", (_, response) => response.json(card));
  app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  app.use("/rest", restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  console.log(`ready ${base}`);
});
