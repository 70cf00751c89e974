// Plays one step with OpenAI's SDK or that of MCP against a door of a server: door.mjs URL API STEP. It prints what came of it
// as JSON.
import { setTimeout as sleep } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import OpenAI from "openai";

const [url, api, step] = process.argv.slice(2);
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const image = "data:image/png;base64," + png;

const client = (more) => new OpenAI({ baseURL: url + "/v1", apiKey: "none", ...more });
const text = (answer) => (api === "chat" ? answer.choices[0].message.content : answer.output_text);
const tell = (answer) => [
  text(answer),
  api === "chat" ? answer.choices[0].finish_reason : answer.status,
  answer.usage.total_tokens,
];

function ask(c, model, messages, previous) {
  const history = messages.map((content, i) => ({ role: i % 2 ? "assistant" : "user", content }));
  if (api === "chat") return c.chat.completions.create({ model, messages: history });
  if (previous) return c.responses.create({ model, input: messages.at(-1), previous_response_id: previous.id });
  return c.responses.create({ model, input: history });
}

async function stream(c, content) {
  let pieces = 0;
  if (api === "chat") {
    const s = c.chat.completions.stream({
      model: "writer",
      messages: [{ role: "user", content }],
      stream_options: { include_usage: true },
    });
    s.on("content", () => pieces++);
    return [...tell(await s.finalChatCompletion()), pieces > 0];
  }
  const s = c.responses.stream({ model: "writer", input: content });
  s.on("response.output_text.delta", () => pieces++);
  return [...tell(await s.finalResponse()), pieces > 0];
}

// Reads a stream again whose server is killed, until it has all of it.
async function resume(c) {
  const numbers = [];
  let pieces = "";
  let id;
  let events = await c.responses.create({ model: "writer", input: "slow", background: true, stream: true });
  for (let i = 0; i < 100; i++) {
    try {
      for await (const e of events) {
        if (!id) console.error("began"); // now the server may be killed
        id ??= e.response.id;
        if (e.type !== "response.in_progress" || !numbers.includes(e.sequence_number)) numbers.push(e.sequence_number);
        if (e.type === "response.output_text.delta") pieces += e.delta;
        if (e.type === "response.completed") {
          const sorted = [...new Set(numbers)].sort((a, b) => a - b);
          const whole = e.response.output[0].content[0].text;
          return [pieces, whole === pieces, JSON.stringify(sorted) === JSON.stringify(numbers)];
        }
      }
    } catch {
      // the server was killed
    }
    try {
      events = await c.responses.retrieve(id, { stream: true, starting_after: numbers.at(-1) });
    } catch {
      await sleep(100);
    }
  }
}

const steps = {
  async models(c) {
    const ids = [];
    for await (const m of c.models.list()) ids.push(m.id);
    return [...ids, (await c.models.retrieve("team/writer")).id];
  },
  send: async (c) => tell(await ask(c, "writer", ["hello"])),
  stream: (c) => stream(c, "hello"),
  async question(c) {
    const first = await ask(c, "asker", ["paint"]);
    return [text(first), text(await ask(c, "asker", ["paint", text(first), "red"], first))];
  },
  budget: async (c) => text(await ask(c, "poor", ["hello"])),
  halted: async (c) => text(await ask(c, "writer", ["hello"])),
  async file(c) {
    const parts =
      api === "chat"
        ? [{ type: "text", text: "look" }, { type: "image_url", image_url: { url: image } }]
        : [{ type: "input_text", text: "look" }, { type: "input_image", image_url: image }];
    return text(await ask(c, "writer", [parts]));
  },
  again: async () => text(await ask(client({ timeout: 1000, maxRetries: 5 }), "writer", ["slow"])),
  async dropped() {
    try {
      return text(await ask(client({ timeout: 1000, maxRetries: 0 }), "writer", ["slow"]));
    } catch (e) {
      if (e instanceof OpenAI.APIConnectionTimeoutError) return "dropped";
      throw e;
    }
  },
  kill: async () => text(await ask(client({ maxRetries: 12 }), "writer", ["slow"])),
  async cancel(c) {
    let r = await c.responses.create({ model: "writer", input: "slow", background: true });
    const began = ["queued", "in_progress"].includes(r.status);
    r = await c.responses.cancel(r.id);
    while (["queued", "in_progress"].includes(r.status)) r = await c.responses.retrieve(r.id);
    return [began, r.status];
  },
  resume: () => resume(client({ maxRetries: 12 })),
  long: async (c) => text(await ask(c, "writer", ["slow"])),
  "long-stream": (c) => stream(c, "slow"),
};

async function call(c, name, message, more = {}, options = undefined) {
  const r = await c.callTool({ name, arguments: { message, ...more } }, options);
  const said = r.content.map((p) => p.text ?? "").join("");
  return r.isError ? { refused: said.split(":")[0] } : said;
}

const mcpSteps = {
  models: async (c) => (await c.listTools()).tools.map((t) => t.name),
  send: (c) => call(c, "writer", "hello"),
  async stream(c) {
    let notified = 0;
    return [await call(c, "writer", "hello", {}, { onprogress: () => notified++ }), notified > 0];
  },
  question: (c) => call(c, "asker", "paint"),
  budget: (c) => call(c, "poor", "hello"),
  halted: (c) => call(c, "writer", "hello"),
  file: (c) => call(c, "writer", "look", { files: [{ name: "a.png", media_type: "image/png", data: png }] }),
  async cancel(c) {
    const got = await call(c, "writer", "slow", {}, { timeout: 1000 }).catch(() => "gave up");
    await sleep(500); // closing the client at once would keep its notification from being sent
    return got;
  },
  async dropped(c) {
    setTimeout(() => {
      console.log('"dropped"');
      process.exit(0);
    }, 1000);
    return call(c, "writer", "slow");
  },
  async kill(c) {
    for (let i = 0; i < 100; i++) {
      try {
        return await call(c, "writer", "slow", {}, { timeout: 5000 });
      } catch {
        await sleep(100);
      }
    }
  },
  long: (c) => call(c, "writer", "slow", {}, { timeout: 600_000 }),
};

async function playMCP() {
  const mode = api.slice("mcp-".length);
  const c = new Client(
    { name: "test", version: "1" },
    {
      capabilities: step === "question" ? { elicitation: {} } : {},
      ...(mode === "auto" ? { versionNegotiation: { mode } } : {}),
    },
  );
  if (step === "question") c.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { answer: "red" } }));
  await c.connect(new StreamableHTTPClientTransport(new URL(url + "/mcp")));
  const got = await mcpSteps[step](c);
  await c.close();
  return got;
}

try {
  console.log(JSON.stringify(await (api.startsWith("mcp") ? playMCP() : steps[step](client()))));
} catch (e) {
  if (!(e instanceof OpenAI.BadRequestError)) throw e;
  console.log(JSON.stringify({ code: e.code, type: e.type, status: e.status }));
}
