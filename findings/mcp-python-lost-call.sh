#!/bin/sh
# mcp 2.3.0 from PyPI; seen on Linux with Python 3.11.
#
# Over streamable HTTP a server that closes the connection of one call before it answers, as a proxy or a server that is killed
# does, ends the whole client: the calls are cancelled, also one beside it that the server would answer, and the block of the
# client ends with an ExceptionGroup:
#
#	drop: CancelledError
#	beside: CancelledError
#	client: ExceptionGroup
#
# So a program that wants to call again needs a new client, and with it another session.
#
# The script installs the package into a temporary folder, runs a server on loopback, and fails if the client behaves
# differently. It needs Python 3.11.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check 'mcp==2.3.0'
cat >"$dir/lost.py" <<'PYTHON'
import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import mcp


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.send_error(405)

    def do_POST(self):
        m = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in m:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if m["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        elif m["method"] == "tools/list":
            result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("drop", "answer")]}
        elif m["params"]["name"] == "drop":
            time.sleep(1)
            self.close_connection = True
            self.connection.shutdown(2)
            return
        else:
            time.sleep(m["params"]["arguments"]["seconds"])
            result = {"content": [{"type": "text", "text": "answered"}]}
        b = json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(b)))
            self.end_headers()
            self.wfile.write(b)
        except OSError:
            pass  # the client has gone


async def call(said, name, c, tool, seconds=0):
    try:
        said[name] = (await c.call_tool(tool, {"seconds": seconds})).content[0].text
    except BaseException as e:
        said[name] = type(e).__name__
        raise


async def main(url):
    said = {}
    try:
        async with mcp.Client(url, mode="legacy") as c:
            await asyncio.gather(call(said, "drop", c, "drop"), call(said, "beside", c, "answer", 2))
            await call(said, "later", c, "answer")
    except BaseException as e:
        said["client"] = type(e).__name__
    for name, text in said.items():
        print(f"{name}: {text}")


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(f"http://127.0.0.1:{server.server_port}/mcp"))
PYTHON
"$dir/venv/bin/python" "$dir/lost.py" >"$dir/out"
cat "$dir/out"
printf 'drop: CancelledError\nbeside: CancelledError\nclient: ExceptionGroup\n' | cmp - "$dir/out"
