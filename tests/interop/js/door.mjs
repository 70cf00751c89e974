// Plays one step with OpenAI's SDK against the door of a server: door.mjs URL STEP. It prints what came of it as JSON.
import OpenAI from "openai";

const [url, step] = process.argv.slice(2);
const png =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const client = (more) => new OpenAI({ baseURL: url + "/v1", apiKey: "none", ...more });
const text = (completion) => completion.choices[0].message.content;

function ask(c, model, ...messages) {
  const history = messages.map((content, i) => ({ role: i % 2 ? "assistant" : "user", content }));
  return c.chat.completions.create({ model, messages: history });
}

const steps = {
  async models(c) {
    const ids = [];
    for await (const m of c.models.list()) ids.push(m.id);
    return [...ids, (await c.models.retrieve("team/writer")).id];
  },
  async send(c) {
    const answer = await ask(c, "writer", "hello");
    return [text(answer), answer.choices[0].finish_reason, answer.usage.total_tokens];
  },
  async stream(c) {
    const s = c.chat.completions.stream({
      model: "writer",
      messages: [{ role: "user", content: "hello" }],
      stream_options: { include_usage: true },
    });
    let pieces = 0;
    s.on("content", () => pieces++);
    const end = await s.finalChatCompletion();
    return [text(end), end.choices[0].finish_reason, end.usage.total_tokens, pieces > 0];
  },
  async question(c) {
    const first = text(await ask(c, "asker", "paint"));
    return [first, text(await ask(c, "asker", "paint", first, "red"))];
  },
  async budget(c) {
    return text(await ask(c, "poor", "hello"));
  },
  async halted(c) {
    return text(await ask(c, "writer", "hello"));
  },
  async file(c) {
    return text(await ask(c, "writer", [{ type: "text", text: "look" }, { type: "image_url", image_url: { url: png } }]));
  },
  async again() {
    return text(await ask(client({ timeout: 1000, maxRetries: 5 }), "writer", "slow"));
  },
  async dropped() {
    try {
      return text(await ask(client({ timeout: 1000, maxRetries: 0 }), "writer", "slow"));
    } catch (e) {
      if (e instanceof OpenAI.APIConnectionTimeoutError) return "dropped";
      throw e;
    }
  },
  async kill() {
    return text(await ask(client({ maxRetries: 12 }), "writer", "slow"));
  },
};

try {
  console.log(JSON.stringify(await steps[step](client())));
} catch (e) {
  if (!(e instanceof OpenAI.BadRequestError)) throw e;
  console.log(JSON.stringify({ code: e.code, type: e.type, status: e.status }));
}
