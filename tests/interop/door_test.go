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

// doorFile is a server with the doors for clients of OpenAI's API and of MCP. URL is that of the provider.
const doorFile = `version: v1
models: {m: {provider: openai, name: m, base_url: "URL/v1", api_key: none, accepts: ["image/*"]}}
agents:
  writer: {description: Writes., model: m, limits: {timeout: 10m}}
  asker: {scripted: {steps: [{ask: "Which colour?"}, {text: "Painted."}]}}
  poor: {description: Has nothing., model: m, limits: {max_tokens: 1}}
server: {openai: {}, mcp: {}, egress: {allow: [127.0.0.0/8]}}
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
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(text, finish string) {
			_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":%s}]}\n\n", text, finish)
		}
		text := "said"
		if strings.Contains(string(body), "image/png") {
			text = "seen"
		}
		if strings.Contains(string(body), "slow") {
			say(text[:2], "null")
			_ = http.NewResponseController(w).Flush()
			text = text[2:]
			p.asked <- struct{}{}
			select {
			case <-p.release:
			case <-r.Context().Done():
				return
			}
		}
		say(text, `"stop"`)
		_, _ = io.WriteString(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(p.Close)
	return p
}

// doorStep is what people do with a client of a door.
type doorStep struct {
	name         string
	chat         string // what the script prints: with chat completions, with responses, and with MCP; "" if there is no such thing
	responses    string
	mcp          string
	tasks, calls int // -1: any
}

// doorRefused is what the SDKs of OpenAI say of a refusal.
func doorRefused(code, kind string) string {
	return fmt.Sprintf(`{"code":%q,"status":400,"type":%q}`, code, kind)
}

var doorSteps = []doorStep{
	{"models", `["asker","poor","writer","team/writer"]`, "", `["asker","poor","writer"]`, 0, 0},
	{"send", `["said","stop",10]`, `["said","completed",10]`, `"said"`, 1, 1},
	{"stream", `["said","stop",10,true]`, `["said","completed",10,true]`, `["said",true]`, 1, 1},
	{"question", `["Which colour?","Painted."]`, `["Which colour?","Painted."]`, `"Painted."`, 1, 0},
	{"cancel", "", `[true,"cancelled"]`, `"gave up"`, 1, -1},
	{"budget", doorRefused("BUDGET_EXCEEDED", "insufficient_quota"), doorRefused("BUDGET_EXCEEDED", "insufficient_quota"), `{"refused":"BUDGET_EXCEEDED"}`, 1, 0},
	{"halted", doorRefused("HALTED", "invalid_request_error"), doorRefused("HALTED", "invalid_request_error"), `{"refused":"HALTED"}`, 0, 0},
	{"file", `"seen"`, `"seen"`, `"seen"`, 1, 1},
	{"again", `"said"`, `"said"`, "", 1, 1},
	{"dropped", `"dropped"`, `"dropped"`, `"dropped"`, 1, 1},
	{"kill", `"said"`, `"said"`, `"said"`, 1, 2}, // the call that the crash has ended, and the one after it
	{"resume", "", `["said",true,true]`, "", 1, 2},
	{"long", `"said"`, `"said"`, `"said"`, 1, 1},
	{"long-stream", `["said","stop",10,true]`, `["said","completed",10,true]`, "", 1, 1},
}

// doorLongCall is how long the step long lasts, which is only played if TEAM_TESTS=all: longer than any client waits in silence.
const doorLongCall = 310 * time.Second

// TestDoors: the SDKs of OpenAI and of MCP do through the doors what people do with them, and never make two tasks or calls of
// the provider where one was meant. By default a quarter of that is played, each door and each SDK with some of the steps; with
// TEAM_TESTS=all everything.
func TestDoors(t *testing.T) {
	program := interoprig.BuildServer(t)
	all := os.Getenv("TEAM_TESTS") == "all"
	for k, sdk := range []struct{ name, runtime, script string }{
		{"python", interoprig.Python(t), filepath.Join("python", "door.py")}, {"js", interoprig.Node(t), filepath.Join("js", "door.mjs")},
	} {
		for i, step := range doorSteps {
			if !all && strings.HasPrefix(step.name, "long") {
				continue
			}
			for j, door := range []struct{ api, want string }{
				{"chat", step.chat}, {"responses", step.responses}, {"mcp-legacy", step.mcp}, {"mcp-auto", step.mcp},
			} {
				if door.want == "" || !all && (i+j)%4 != 2*k {
					continue
				}
				t.Run(strings.Join([]string{sdk.name, door.api, step.name}, "/"), func(t *testing.T) {
					t.Parallel()
					step.play(t, program, door.want, sdk.runtime, sdk.script, door.api)
				})
			}
		}
	}
}

// play runs a script that plays the step, with a server and a provider of its own.
func (step doorStep) play(t *testing.T, program, want, runtime, script, api string) {
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
	run := exec.CommandContext(t.Context(), runtime, script, s.URL, api, step.name) //nolint:gosec // the test's own
	var out strings.Builder
	log := signaling{begun: make(chan struct{})}
	run.Stdout, run.Stderr = &out, &log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	s = step.disturb(t, p, log.begun, s, program, args)
	err := run.Wait()
	if step.name == "dropped" {
		close(p.release)
	}
	var got any
	if uerr := json.Unmarshal([]byte(out.String()), &got); err != nil || uerr != nil {
		t.Fatalf("%v: %s%s", err, out.String(), log.String())
	}
	if text, _ := json.Marshal(got); string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
	var page struct {
		TotalSize int
		Tasks     []struct{ Status struct{ State string } }
	}
	doorCall(t, s.URL+"/tasks", "", &page)
	for end := time.Now().Add(20 * time.Second); step.name == "cancel" && page.Tasks[0].Status.State == "TASK_STATE_WORKING" && time.Now().Before(end); {
		doorCall(t, s.URL+"/tasks", "", &page) // a client that gives up does not wait for the end of its task
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if page.TotalSize != step.tasks || step.calls >= 0 && p.calls != step.calls {
		t.Errorf("%d tasks and %d calls of the provider, want %d and %d", page.TotalSize, p.calls, step.tasks, step.calls)
	}
	if step.name == "cancel" {
		close(p.release)
		if page.Tasks[0].Status.State != "TASK_STATE_CANCELED" {
			t.Errorf("the task is %s", page.Tasks[0].Status.State)
		}
	}
}

// signaling keeps what is written to it, and closes begun with the first write.
type signaling struct {
	strings.Builder
	begun chan struct{}
}

// Write implements io.Writer.
func (s *signaling) Write(b []byte) (int, error) {
	if s.Len() == 0 {
		close(s.begun)
	}
	return s.Builder.Write(b)
}

// disturb does what happens to a call meanwhile, and returns the server that answers it. read is closed when the client has
// read a part of the answer, if it says so.
func (step doorStep) disturb(t *testing.T, p *doorProvider, read <-chan struct{}, s interoprig.Server, program string, args []string) interoprig.Server {
	switch step.name {
	case "again":
		<-p.asked
		time.AfterFunc(1500*time.Millisecond, func() { close(p.release) }) // the SDK gives up after a second
	case "long", "long-stream":
		<-p.asked
		time.AfterFunc(doorLongCall, func() { close(p.release) })
	case "kill", "resume":
		<-p.asked
		if step.name == "resume" {
			<-read // otherwise it does not know which answer to go on with
		}
		s.Kill()
		close(p.release)
		return interoprig.Start(t, program, "serve", append(args, "--http", strings.TrimPrefix(s.URL, "http://"))...)
	}
	return s
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
