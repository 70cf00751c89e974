"""An MCP server on FastMCP: python tools.py stdio, or python tools.py http.

Over HTTP it prints "ready" and its address.
"""

import asyncio
import socket
import sys

import mcp_types as types
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult

server = FastMCP("tools")


@server.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def forecast(text: str) -> ToolResult:
    """The text only summarizes the data."""
    return ToolResult(content=text, structured_content={"degrees": 21, "station": "S-1"})


@server.tool
def report() -> list:
    return [types.ResourceLink(type="resource_link", uri=f"report://2026/{part}", name=part) for part in ("text", "chart")]


@server.resource("report://2026/text", mime_type="text/markdown")
def text() -> str:
    return "# All is well"


@server.resource("report://2026/chart", mime_type="image/png")
def chart() -> bytes:
    return b"\x89PNG\r\n"


@server.tool
async def slow(ctx: Context) -> str:
    """Takes longer than a call may without progress."""
    for i in range(4):
        await asyncio.sleep(0.35)
        await ctx.report_progress(i + 1, 4)
    return "four steps"


@server.tool
async def book(ctx: Context) -> str:
    answer = await ctx.elicit("For how many?", response_type=int)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool
def refuse() -> str:
    raise ToolError("closed today")


async def main():
    if sys.argv[1] == "stdio":
        await server.run_stdio_async(show_banner=False)
        return
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    await uvicorn.Server(uvicorn.Config(server.http_app(), log_level="warning")).serve([listener])


asyncio.run(main())
