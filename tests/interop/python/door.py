"""Plays one step with OpenAI's SDK against the door of a server: door.py URL STEP. It prints what came of it as JSON."""

import json
import sys

import openai

url, step = sys.argv[1], sys.argv[2]
PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def client(**more):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", **more)


def ask(c, model, *messages, **more):
    roles = ["user", "assistant"]
    history = [{"role": roles[i % 2], "content": m} for i, m in enumerate(messages)]
    return c.chat.completions.create(model=model, messages=history, **more)


def text(completion):
    return completion.choices[0].message.content


def play():
    c = client()
    match step:
        case "models":
            return [m.id for m in c.models.list()] + [c.models.retrieve("team/writer").id]
        case "send":
            answer = ask(c, "writer", "hello")
            return [text(answer), answer.choices[0].finish_reason, answer.usage.total_tokens]
        case "stream":
            with c.chat.completions.stream(model="writer", messages=[{"role": "user", "content": "hello"}], stream_options={"include_usage": True}) as s:
                pieces = sum(1 for e in s if e.type == "content.delta")
                end = s.get_final_completion()
            return [text(end), end.choices[0].finish_reason, end.usage.total_tokens, pieces > 0]
        case "question":
            first = text(ask(c, "asker", "paint"))
            return [first, text(ask(c, "asker", "paint", first, "red"))]
        case "budget" | "halted":
            return text(ask(c, "poor" if step == "budget" else "writer", "hello"))
        case "file":
            parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PNG}}]
            return text(ask(c, "writer", parts))
        case "again":
            return text(ask(client(timeout=1, max_retries=5), "writer", "slow"))
        case "dropped":
            try:
                ask(client(timeout=1, max_retries=0), "writer", "slow")
            except openai.APITimeoutError:
                return "dropped"
        case "kill":
            return text(ask(client(max_retries=12), "writer", "slow"))


try:
    print(json.dumps(play()))
except openai.BadRequestError as e:
    print(json.dumps({"code": e.code, "type": e.type, "status": e.status_code}))
