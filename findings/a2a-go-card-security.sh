#!/bin/sh
# github.com/a2aproject/a2a-go/v2 2.4.0, its agentcard.Resolver, and a2a-sdk 1.3.0 (Python), its card route, as the agent;
# with Go 1.26 and Python 3.11, seen on Linux.
#
# The Resolver rejects each card of A2A 1.0 that has a security requirement in the form that the protocol defines,
# ProtoJSON: {"schemes": {"key": {"list": ["read"]}}}. It expects an array in place of the object with "list". A client that
# finds its agents by their cards can therefore not call an agent of another SDK whose card requires a key. The same card
# without the requirement is read. What the Resolver reads in its place, {"schemes": {"key": ["read"]}}, is no ProtoJSON:
# the Python SDK rejects it.
#
# Seen: "open: read", "locked: card parsing failed: json: cannot unmarshal object into Go struct field
# AgentCard.securityRequirements.schemes of type a2a.SecuritySchemeScopes", and "Python on an array: rejected".
#
# The script installs both packages into a temporary folder, serves both cards on loopback, prints what the Resolver says
# of each, and fails if it reads the locked one. It needs Go 1.26 and Python 3.10 or newer.
set -eu
dir=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv python
python/bin/pip install --quiet --disable-pip-version-check 'a2a-sdk[http-server]==1.3.0' uvicorn==0.54.0
cat >serve.py <<'PY'
import socket

import uvicorn
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.types import a2a_pb2 as a2a
from google.protobuf import json_format
from starlette.applications import Starlette

routes = []
s = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{s.getsockname()[1]}"
for name in ("open", "locked"):
    card = a2a.AgentCard(
        name=name, description="An agent.", version="1", default_input_modes=["text/plain"], default_output_modes=["text/plain"],
        capabilities=a2a.AgentCapabilities(streaming=True),
        supported_interfaces=[a2a.AgentInterface(url=url + "/rpc", protocol_binding="JSONRPC", protocol_version="1.0")],
        skills=[a2a.AgentSkill(id="s", name="s", description="A skill.", tags=["t"])],
        security_schemes={"key": a2a.SecurityScheme(http_auth_security_scheme=a2a.HTTPAuthSecurityScheme(scheme="Bearer"))},
    )
    if name == "locked":
        card.security_requirements.add().schemes["key"].list.append("read")
    routes += create_agent_card_routes(card, card_url=f"/{name}.json")
try:
    json_format.ParseDict({"schemes": {"key": ["read"]}}, a2a.SecurityRequirement())
    print("Python on an array: read")
except json_format.ParseError:
    print("Python on an array: rejected")
print(url, flush=True)
uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error")).run(sockets=[s])
PY
python/bin/python serve.py >said &
server=$!
cat >go.mod <<'GO'
module resolve

go 1.26.0

require github.com/a2aproject/a2a-go/v2 v2.4.0
GO
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
)

func main() {
	said := map[string]string{}
	for _, name := range []string{"open", "locked"} {
		said[name] = "read"
		if _, err := agentcard.NewResolver(nil).Resolve(context.Background(), os.Args[1], agentcard.WithPath("/"+name+".json")); err != nil {
			said[name] = err.Error()
		}
		fmt.Printf("%s: %s\n", name, said[name])
	}
	if said["open"] != "read" || !strings.Contains(said["locked"], "securityRequirements.schemes") {
		os.Exit(1)
	}
}
GO
go mod tidy 2>tidy.log || { cat tidy.log; exit 1; }
go build -o resolve .
until grep -q '^http' said; do
	kill -0 "$server" || exit 1
	sleep 0.1
done
grep '^Python' said
./resolve "$(grep '^http' said)"
grep -q 'array: rejected' said
