"""Plays one step with OpenAI's SDK or that of MCP against a door of a server: door.py URL API STEP. It prints what came of it
as JSON."""

import asyncio
import json
import os
import sys

url, api, step = sys.argv[1], sys.argv[2], sys.argv[3]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = "data:image/png;base64," + PNG


def client(**more):
    import openai

    return openai.OpenAI(base_url=url + "/v1", api_key="none", **more)


def text(answer):
    return answer.choices[0].message.content if api == "chat" else answer.output_text


def ask(c, model, *messages, previous=None, **more):
    roles = ["user", "assistant"]
    history = [{"role": roles[i % 2], "content": m} for i, m in enumerate(messages)]
    if api == "chat":
        return c.chat.completions.create(model=model, messages=history, **more)
    if previous is not None:
        return c.responses.create(model=model, input=messages[-1], previous_response_id=previous.id, **more)
    return c.responses.create(model=model, input=history, **more)


def tell(answer):
    return [text(answer), answer.choices[0].finish_reason if api == "chat" else answer.status, answer.usage.total_tokens]


def stream(c, model, content):
    """Streams an answer, and returns it with whether there were pieces."""
    if api == "chat":
        with c.chat.completions.stream(model=model, messages=[{"role": "user", "content": content}], stream_options={"include_usage": True}) as s:
            pieces = sum(1 for e in s if e.type == "content.delta")
            return tell(s.get_final_completion()) + [pieces > 0]
    with c.responses.stream(model=model, input=content) as s:
        pieces = sum(1 for e in s if e.type == "response.output_text.delta")
        return tell(s.get_final_response()) + [pieces > 0]


def resume(c):
    """Reads a stream again whose server is killed, until it has all of it, and returns the text and whether each event came once."""
    import openai

    numbers, pieces, response = [], "", None
    events = c.responses.create(model="writer", input="slow", background=True, stream=True)
    for _ in range(100):
        try:
            for e in events:
                if response is None:
                    response = e.response.id
                    print("began", file=__import__("sys").stderr, flush=True)  # now the server may be killed
                repeats = e.type == "response.in_progress" and e.sequence_number in numbers
                if not repeats:
                    numbers.append(e.sequence_number)
                if e.type == "response.output_text.delta":
                    pieces += e.delta
                if e.type == "response.completed":
                    return [pieces, e.response.output_text == pieces, numbers == sorted(set(numbers))]
        except (openai.APIConnectionError, openai.APIError, ConnectionError, __import__("httpx").HTTPError):
            pass
        try:
            events = c.responses.retrieve(response, stream=True, starting_after=numbers[-1])
        except openai.APIConnectionError:
            __import__("time").sleep(0.1)


def background(c, stop):
    """Begins a response in the background, and polls until it has ended."""
    r = c.responses.create(model="writer", input="slow", background=True)
    began = r.status in ("queued", "in_progress")
    if stop:
        r = c.responses.cancel(r.id)
    while r.status in ("queued", "in_progress"):
        r = c.responses.retrieve(r.id)
    return [began, r.status]


def play():
    import openai

    c = client()
    match step:
        case "models":
            return [m.id for m in c.models.list()] + [c.models.retrieve("team/writer").id]
        case "send":
            return tell(ask(c, "writer", "hello"))
        case "stream":
            return stream(c, "writer", "hello")
        case "question":
            first = ask(c, "asker", "paint")
            return [text(first), text(ask(c, "asker", "paint", text(first), "red", previous=first))]
        case "budget" | "halted":
            return text(ask(c, "poor" if step == "budget" else "writer", "hello"))
        case "file":
            parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": IMAGE}}]
            if api == "responses":
                parts = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": IMAGE}]
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
        case "cancel":
            return background(c, True)
        case "resume":
            return resume(client(max_retries=12))
        case "long":
            return text(ask(c, "writer", "slow"))
        case "long-stream":
            return stream(c, "writer", "slow")


async def answer(context, params):
    from mcp import types

    return types.ElicitResult(action="accept", content={"answer": "red"})


async def call(c, tool, message, **more):
    """Calls a tool, and returns its text, or the reason if it was refused."""
    arguments = {"message": message, **more.pop("arguments", {})}
    r = await c.call_tool(tool, arguments, **more)
    said = "".join(p.text for p in r.content if p.type == "text")
    return {"refused": said.split(":")[0]} if r.is_error else said


async def connected(do, **more):
    import mcp

    async with mcp.Client(url + "/mcp", mode=api.removeprefix("mcp-"), **more) as c:
        return await do(c)


async def again():
    """Calls until there is an answer, each time with a client of its own: one whose server dies cannot be used again."""
    for _ in range(100):
        try:
            return await connected(lambda c: call(c, "writer", "slow"))
        except Exception:
            await asyncio.sleep(0.1)


async def play_mcp(c):
    notified = []

    async def progress(done, total, message):
        notified.append(done)

    match step:
        case "models":
            return [t.name for t in (await c.list_tools()).tools]
        case "send" | "long":
            return await call(c, "writer", "hello" if step == "send" else "slow")
        case "stream":
            return [await call(c, "writer", "hello", progress_callback=progress), len(notified) > 0]
        case "question":
            return await call(c, "asker", "paint")
        case "budget" | "halted":
            return await call(c, "poor" if step == "budget" else "writer", "hello")
        case "file":
            return await call(c, "writer", "look", arguments={"files": [{"name": "a.png", "media_type": "image/png", "data": PNG}]})
        case "cancel":
            try:
                return await call(c, "writer", "slow", read_timeout_seconds=1)
            except Exception:
                return "gave up"
        case "dropped":
            asyncio.get_running_loop().call_later(1, lambda: (print('"dropped"', flush=True), os._exit(0)))
            return await call(c, "writer", "slow")


if api.startswith("mcp"):
    play_it = again() if step == "kill" else connected(play_mcp, elicitation_callback=answer if step == "question" else None)
    print(json.dumps(asyncio.run(play_it)))
else:
    import openai

    try:
        print(json.dumps(play()))
    except openai.BadRequestError as e:
        print(json.dumps({"code": e.code, "type": e.type, "status": e.status_code}))
