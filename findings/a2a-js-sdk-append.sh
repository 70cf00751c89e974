#!/bin/sh
# @a2a-js/sdk 1.3.0, its client for A2A 0.3 over HTTP+JSON, on Node.js 20; seen on Linux.
#
# The client leaves `append` out of the artifact updates that it reads from a stream. An agent that sends "high ", then
# "tide" with "append": true, is read as two updates without it, so a program that follows the protocol shows "tide". Over
# JSON-RPC the same client keeps `append`.
#
# Seen: "updates read: 2, with append: 0".
#
# The script installs the package into a temporary folder, serves one stream of fixed events on loopback, prints what the
# client reads, and fails if it reads `append`. It needs Node.js 20 or newer.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
echo '{"type": "module"}' >package.json
npm install --silent --no-audit --no-fund --ignore-scripts @a2a-js/sdk@1.3.0
cat >run.mjs <<'JS'
import http from "node:http";
import * as legacy from "@a2a-js/sdk/compat/v0_3/client";

const piece = (text, append) => ({ artifactUpdate: { taskId: "t", contextId: "c", append, artifact: { artifactId: "a", parts: [{ text }] } } });
const events = [{ task: { id: "t", contextId: "c", status: { state: "TASK_STATE_WORKING" } } }, piece("high ", false), piece("tide", true)];
const server = http.createServer((req, res) => {
  req.resume();
  res.writeHead(200, { "Content-Type": "text/event-stream" });
  res.end(events.map((e) => `data: ${JSON.stringify(e)}\n\n`).join(""));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${server.address().port}`;
const names = Object.keys(legacy);
const Transport = legacy[names.find((n) => /Rest.*Transport$/.test(n))];
if (!Transport) throw new Error(`no REST transport among ${names.join(" ")}`);
const client = new Transport({ endpoint: url });
const message = { messageId: "m", role: 1, parts: [{ content: { $case: "text", value: "hi" } }], contextId: "", taskId: "", extensions: [], referenceTaskIds: [] };
let appended = 0, pieces = 0;
for await (const event of client.sendMessageStream({ message, tenant: "" })) {
  const update = event.payload?.value ?? event;
  if (!update.artifact) continue;
  pieces++;
  if (update.append) appended++;
}
server.close();
console.log(`updates read: ${pieces}, with append: ${appended}`);
if (pieces !== 2 || appended !== 0) process.exit(1);
JS
node run.mjs
