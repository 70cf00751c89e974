"""What the scripts share: they play the steps of ../interoprig/matrix.go, and serve agents."""

import asyncio
import json
import os
import socket
import sys
import traceback

STEPS = ("card", "send", "stream", "get", "list", "cancel", "subscribe", "question", "push", "receive", "unknown", "ended")
TIDES = "high and low tide"
UNKNOWN = "00000000-0000-7000-8000-000000000000"

# What the frameworks print goes to standard error.
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_TRACING_ENABLED", "OTEL_SDK_DISABLED", "AGNO_TELEMETRY"):
    os.environ.setdefault(name, "false" if name in ("CREWAI_TRACING_ENABLED", "AGNO_TELEMETRY") else "true")


def play(steps, lacks, partly=None):
    """Plays what a class has, and says of the other steps why the client lacks them.

    lacks is the reason for all steps, or a dict of reasons with "" for the others.
    """
    if isinstance(lacks, str):
        lacks = {"": lacks}

    async def main():
        for step in STEPS:
            line = {"step": step, "partly": (partly or {}).get(step)}
            if not hasattr(steps, step):
                line["lacks"] = lacks.get(step, lacks.get(""))
            else:
                try:
                    await asyncio.wait_for(getattr(steps, step)(), 60)
                except BaseException:
                    line["error"] = traceback.format_exc()
            print(json.dumps(line), file=OUT, flush=True)

    asyncio.run(main())


def reply(text, asked=False):
    """What an agent says to a message, in two pieces; it fails for `fail`, as ../interoprig/member.go wants it."""
    if asked:
        text = "you said " + text
    if text == "fail":
        raise RuntimeError("It is broken.")
    return ["far: ", text]


def answer(text, asked=False):
    """The reply in one piece."""
    return "".join(reply(text, asked))


def serve(make):
    """Serves the application that make returns for a URL, on a free port, until standard input ends."""
    import threading

    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = make(url)
    # Nothing is lost when it ends at once: it keeps nothing.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))

    async def main():
        async def ready():
            while not server.started:
                await asyncio.sleep(0.01)
            print(f"ready {url}", file=OUT, flush=True)

        task = asyncio.create_task(ready())
        await server.serve(sockets=[listener])
        await task

    asyncio.run(main())
