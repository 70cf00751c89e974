// The JavaScript SDK sends files: node files.mjs SERVER BINDING AGENT FILE:TYPE…. It prints
// the state of the task, or the error that the call ends with, as a line of JSON.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";

const [server, binding, agent, ...files] = process.argv.slice(2);
const Factory = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory, GRPC: GrpcTransportFactory }[binding];
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports: [new Factory({})], preferredTransports: [binding] }),
);
const parts = files.map((file) => {
  const [path, mediaType] = file.split(":");
  return { raw: readFileSync(path).toString("base64"), filename: basename(path), mediaType };
});
try {
  const client = await factory.createFromUrl(`${server}/${agent}/.well-known/agent-card.json`, "");
  const task = await client.sendMessage(
    SendMessageRequest.fromJSON({ message: { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text: "What is it?" }, ...parts] } }),
  );
  console.log(JSON.stringify({ state: TaskState[task.status.state] }));
} catch (e) {
  console.log(JSON.stringify({ error: e.constructor.name, message: `${e.message} ${e.cause?.message ?? ""}` }));
}
process.exit(0); // connections of gRPC stay open
