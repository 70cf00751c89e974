package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/interoprig"
)

// doorFile is a server with the door for clients of OpenAI's API. URL is that of the provider.
const doorFile = `version: v1
models: {m: {provider: openai, name: m, base_url: "URL/v1", api_key: none, accepts: ["image/*"]}}
agents:
  writer: {description: Writes., model: m}
  asker: {scripted: {steps: [{ask: "Which colour?"}, {text: "Painted."}]}}
  poor: {description: Has nothing., model: m, limits: {max_tokens: 1}}
server: {openai: {}, egress: {allow: [127.0.0.0/8]}}
`

// doorProvider is an endpoint that counts what it is asked. It holds answers to "slow" until it is released.
type doorProvider struct {
	*httptest.Server
	mu      sync.Mutex
	calls   int           // guarded by mu
	asked   chan struct{} // receives a value for each call that is held
	release chan struct{}
}

func provideDoor(t *testing.T) *doorProvider {
	p := &doorProvider{asked: make(chan struct{}, 10), release: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.calls++
		p.mu.Unlock()
		text := "said"
		if strings.Contains(string(body), "image/png") {
			text = "seen"
		}
		if strings.Contains(string(body), "slow") {
			p.asked <- struct{}{}
			select {
			case <-p.release:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}\n\ndata: [DONE]\n\n", text)
	}))
	t.Cleanup(p.Close)
	return p
}

// TestDoorOpenAI: the SDKs of OpenAI do through the door what people do with them, and never make two tasks or calls of the provider
// where one was meant.
func TestDoorOpenAI(t *testing.T) {
	program := interoprig.BuildServer(t)
	for _, sdk := range []struct{ name, runtime, script string }{
		{"python", interoprig.Python(t), filepath.Join("python", "door.py")}, {"js", interoprig.Node(t), filepath.Join("js", "door.mjs")},
	} {
		for _, step := range []struct {
			name, want   string
			tasks, calls int
		}{
			{"models", `["asker","poor","writer","team/writer"]`, 0, 0},
			{"send", `["said","stop",10]`, 1, 1},
			{"stream", `["said","stop",10,true]`, 1, 1},
			{"question", `["Which colour?","Painted."]`, 1, 0},
			{"budget", `{"code":"BUDGET_EXCEEDED","status":400,"type":"insufficient_quota"}`, 1, 0},
			{"halted", `{"code":"HALTED","status":400,"type":"invalid_request_error"}`, 0, 0},
			{"file", `"seen"`, 1, 1},
			{"again", `"said"`, 1, 1},
			{"dropped", `"dropped"`, 1, 1},
			{"kill", `"said"`, 1, 2}, // the call that the crash has ended, and the one after it
		} {
			t.Run(sdk.name+"/"+step.name, func(t *testing.T) {
				p := provideDoor(t)
				file := filepath.Join(t.TempDir(), "team.yaml")
				if err := os.WriteFile(file, []byte(strings.Replace(doorFile, "URL", p.URL, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
				args := []string{"-c", file, "--store", "sqlite:" + filepath.Join(t.TempDir(), "team.db")}
				s := interoprig.Start(t, program, "serve", args...)
				if step.name == "halted" {
					doorCall(t, s.URL+"/team/v1/halts", `{"kind": "HALT_KIND_SERVER", "reason": "maintenance"}`, nil)
				}
				script := exec.CommandContext(t.Context(), sdk.runtime, sdk.script, s.URL, step.name) //nolint:gosec // the test's own
				var out, log strings.Builder
				script.Stdout, script.Stderr = &out, &log
				if err := script.Start(); err != nil {
					t.Fatal(err)
				}
				switch step.name {
				case "again":
					<-p.asked
					time.AfterFunc(1500*time.Millisecond, func() { close(p.release) }) // the SDK gives up after a second
				case "kill":
					<-p.asked
					s.Kill()
					close(p.release)
					s = interoprig.Start(t, program, "serve", append(args, "--http", strings.TrimPrefix(s.URL, "http://"))...)
				}
				err := script.Wait()
				if step.name == "dropped" {
					close(p.release)
				}
				var got any
				if uerr := json.Unmarshal([]byte(out.String()), &got); err != nil || uerr != nil {
					t.Fatalf("%v: %s%s", err, out.String(), log.String())
				}
				text, _ := json.Marshal(got)
				if string(text) != step.want {
					t.Errorf("got %s, want %s", text, step.want)
				}
				var page struct{ TotalSize int }
				doorCall(t, s.URL+"/tasks", "", &page)
				p.mu.Lock()
				defer p.mu.Unlock()
				if page.TotalSize != step.tasks || p.calls != step.calls {
					t.Errorf("%d tasks and %d calls of the provider, want %d and %d", page.TotalSize, p.calls, step.tasks, step.calls)
				}
			})
		}
	}
}

// doorCall posts a body, or gets an answer if there is none.
func doorCall(t *testing.T, url, body string, into any) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
	}
	if into != nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
