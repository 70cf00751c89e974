package endpoints

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protojson"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// seeds is how many runs of the team of the README a real model makes.
const seeds = 10

// TestDesk_RealModel has the team of the README, with a real model in place of its script, write a text.
// The rules are those of the README. Each run ends with a text that is complete, as a cycle, or at a limit
// that is named.
func TestDesk_RealModel(t *testing.T) {
	python := os.Getenv("TEAM_ENDPOINT_LLAMA")
	if python == "" {
		t.Skip("make night-models runs this with llama-cpp-python")
	}
	w := newWiretap(t, startLlama(t, python))
	server := w.serve(t)
	ended := map[string]int{}
	for seed := range seeds {
		task := ask(t, server, fmt.Sprintf("desk%d", seed+1), "Write two sentences about tides.")
		reason := task.GetStatus().GetState().String()
		if e := a2a.RunOf(task.GetMetadata()).GetError(); e != nil {
			reason = e.GetReason()
		}
		ended[reason]++
		text := ""
		for _, a := range task.GetArtifacts() {
			text += agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
		t.Logf("seed %d: %s %q", seed+1, reason, agent.Excerpt(text, 200))
		switch reason {
		case a2av1.TaskState_TASK_STATE_COMPLETED.String():
			if text == "" || w.isCut(text) {
				t.Errorf("seed %d: the text is not complete: %q", seed+1, text)
			}
		case agent.ReasonCycleDetected, agent.ReasonMaxIterations, agent.ReasonTimeout, agent.ReasonAnswerTruncated:
		default:
			t.Errorf("seed %d: %s: %s", seed+1, reason, agent.Text(task.GetStatus().GetMessage()))
		}
	}
	t.Log(ended)
	if formats, turns := w.counts(); formats == 0 || formats == turns {
		t.Errorf("%d of %d requests have a response_format; those of the critic must have one", formats, turns)
	}
}

// wiretap passes requests on to an endpoint, and notes which answers were cut.
type wiretap struct {
	*httptest.Server

	mu      sync.Mutex
	formats int      // requests with a response_format; guarded by mu
	turns   int      // guarded by mu
	cut     []string // guarded by mu
}

func newWiretap(t *testing.T, address string) *wiretap {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(address, "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	w := &wiretap{}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(res *http.Response) error {
			b, err := io.ReadAll(res.Body)
			w.answer(b)
			res.Body = io.NopCloser(bytes.NewReader(b))
			return err
		},
	}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.turns++
		if bytes.Contains(b, []byte(`"response_format"`)) {
			w.formats++
		}
		w.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(b))
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

// answer reads a stream of an answer.
func (w *wiretap) answer(stream []byte) {
	text, finish := "", ""
	for lines := bufio.NewScanner(bytes.NewReader(stream)); lines.Scan(); {
		var c struct {
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); !ok || json.Unmarshal([]byte(data), &c) != nil || len(c.Choices) == 0 {
			continue
		}
		text += c.Choices[0].Delta.Content
		finish += c.Choices[0].Finish
	}
	if finish == "length" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cut = append(w.cut, text)
	}
}

func (w *wiretap) isCut(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.cut, text)
}

func (w *wiretap) counts() (formats, turns int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.formats, w.turns
}

// serve serves a copy of the team of the README for each seed, and returns the address.
func (w *wiretap) serve(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^      rules:\n(        - .*\n)+`).Find(readme)
	if !bytes.Contains(rules, []byte("critic.data.score < 7")) {
		t.Fatal("the README has no rules of a desk")
	}
	var file strings.Builder
	fmt.Fprintf(&file, "version: v1\nmodels:\n  small: {provider: openai, name: smollm2, base_url: %q, api_key: %s, max_output_tokens: 256, context_window: %d}\nagents:\n", w.URL+"/v1", key, window)
	for seed := 1; seed <= seeds; seed++ {
		fmt.Fprintf(&file, "  writer%d: {description: Writes texts., model: small, instructions: Write clearly., settings: {seed: %d}}\n", seed, seed)
		fmt.Fprintf(&file, "  critic%d: {description: Scores texts., model: small, instructions: 'Answer with {\"score\": 0 to 10}.', output_schema: score.json, settings: {seed: %d}}\n", seed, seed)
	}
	file.WriteString("teams:\n")
	for seed := 1; seed <= seeds; seed++ {
		fmt.Fprintf(&file, "  desk%d:\n    description: Writes a text until the critic likes it.\n    members: [{id: writer, agent: writer%[1]d}, {id: critic, agent: critic%[1]d}]\n"+
			"    limits: {timeout: 600s, member_timeout: 300s}\n    supervisor:\n%[2]s", seed, rules)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"desk.yaml":  file.String(),
		"score.json": `{"type": "object", "properties": {"score": {"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}, "required": ["score"], "additionalProperties": false}`, // the grammar of llama-cpp-python keeps no minimum and maximum
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	def, err := config.Loader{Env: func(string) (string, bool) { return "", false }}.Load(filepath.Join(dir, "desk.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + r.HTTP
}

// ask sends a text to a team and returns the ended task.
func ask(t *testing.T, server, team, text string) *a2av1.Task {
	t.Helper()
	body, err := protojson.Marshal(&a2av1.SendMessageRequest{Message: agent.UserMessage(team, text)})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/"+team+"/message:send", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("A2A-Version", "1.0")
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Timeout: 3 * patience}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer := &a2av1.SendMessageResponse{}
	if err := protojson.Unmarshal(b, answer); err != nil || answer.GetTask() == nil {
		t.Fatalf("%s: %s, %v", res.Status, b, err)
	}
	return answer.GetTask()
}
