#!/bin/sh
# FastMCP 4.2.3 (with mcp 2.3.0) from PyPI; seen on Linux with Python 3.11.
#
# A tool that calls ctx.elicit works for clients of MCP 2025-11-25 only. A client that connects by default, and so speaks
# 2026-07-28 with the server, gets an error as the result, although it can answer questions:
#
#	elicitation via server-initiated requests is unavailable on 2026-07-28 connections.
#
# FastMCP's own client in its default mode "auto" gets it, too; in mode "legacy" the tool asks, and answers "accept 3".
#
# The script installs the package into a temporary folder, runs the server on loopback, and fails if it behaves
# differently. It needs Python 3.11.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check 'fastmcp==4.2.3' 'mcp==2.3.0'
cat >"$dir/ask.py" <<'PYTHON'
import asyncio
import socket

import uvicorn
from fastmcp import Client, Context, FastMCP

server = FastMCP("shop")


@server.tool
async def book(ctx: Context) -> str:
    answer = await ctx.elicit("For how many?", response_type=int)
    return f"{answer.action} {answer.data}"


async def people(message, response_type, params, context):
    return response_type(value=3)


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(server.http_app(), log_level="critical"))
    serving = asyncio.create_task(web.serve([listener]))
    for mode in ("auto", "legacy"):
        async with Client(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", elicitation_handler=people, mode=mode) as client:
            result = await client.call_tool("book", raise_on_error=False)
            print(f"{mode}: {result.content[0].text}")
    web.should_exit = True
    await serving


asyncio.run(main())
PYTHON
"$dir/venv/bin/python" "$dir/ask.py" 2>"$dir/log" >"$dir/out" || { cat "$dir/log"; exit 1; }
cat "$dir/out"
grep -q '^auto: elicitation via server-initiated requests is unavailable on 2026-07-28 connections' "$dir/out" || { echo "mode auto answers otherwise"; exit 1; }
grep -q '^legacy: accept 3$' "$dir/out" || { echo "mode legacy answers otherwise"; exit 1; }
