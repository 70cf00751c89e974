#!/bin/sh
# LiteLLM proxy 1.108.7, with a master_key and without a database; seen on Linux.
#
# A request with a key that is not the master key is not answered with 401:
#
#   400 {"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}
#
# A client that decides by the status takes it for a request that it has formed wrongly. With the right key the same
# request is answered.
#
# The script installs the proxy into a temporary folder, runs it on loopback with a model that answers with a fixed
# text, and fails if it behaves differently. It needs Python 3.11 and curl.
set -eu
dir=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill "$pid"; rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check 'litellm[proxy]==1.108.7'
port=$("$dir/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$dir/config.yaml" <<'YAML'
general_settings: {master_key: sk-right}
litellm_settings: {telemetry: false}
model_list:
- {model_name: m, litellm_params: {model: openai/m, api_key: none, mock_response: Hello.}}
YAML
cd "$dir"
LITELLM_LOCAL_MODEL_COST_MAP=True venv/bin/litellm --config config.yaml --host 127.0.0.1 --port "$port" >log 2>&1 &
pid=$!
until curl -sf "http://127.0.0.1:$port/health/liveliness" >/dev/null; do
	kill -0 "$pid"
	sleep 1
done

# ask KEY prints the status of a request with a key, and writes the response to the file body.
ask() {
	curl -s -o body -w '%{http_code}' -H 'Content-Type: application/json' -H "Authorization: Bearer $1" \
		-d '{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}' "http://127.0.0.1:$port/v1/chat/completions"
}
right=$(ask sk-right)
echo "the right key: $right"
test "$right" = 200
wrong=$(ask sk-wrong)
echo "a wrong key:   $wrong $(cat body)"
test "$wrong" = 400
grep -q '"No connected db."' body
