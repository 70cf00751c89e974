//go:build linux

package durable

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/tests/rig"
)

const toolsFile = `version: v1
models: {script: {provider: scripted, file: s.yaml}}
tools: {bank: {mcp: {url: "${BANK}"}}}
agents: {clerk: {model: script, tools: [bank]}}
teams: {desk: {workflow: {steps: [{id: only, agent: clerk}]}}}
`

const toolsScript = `agents:
  clerk:
    - {when: turn == 1 && input == "pay", tool_calls: [{name: pay, arguments: {to: ann}}]}
    - {when: turn == 1, tool_calls: [{name: look}]}
    - {text: "{{results}}"}
`

// bank is an MCP server with the tools pay, which is unsafe, and look, which is
// safe. The first call of each hangs until the bank closes.
type bank struct {
	*httptest.Server
	end chan struct{}

	mu   sync.Mutex
	keys map[string][]any // of calls, by tool; guarded by mu
}

func openBank(t *testing.T) *bank {
	b := &bank{end: make(chan struct{}), keys: map[string][]any{}}
	s := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, nil)
	for name, hints := range map[string]*mcp.ToolAnnotations{"pay": nil, "look": {ReadOnlyHint: true}} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}, Annotations: hints}, b.handle)
	}
	b.Server = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		close(b.end)
		for session := range s.Sessions() {
			_ = session.Close()
		}
		b.Close()
	})
	return b
}

func (b *bank) handle(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	name := req.Params.Name
	b.mu.Lock()
	b.keys[name] = append(b.keys[name], req.Params.Meta["team-server/key"])
	n := len(b.keys[name])
	b.mu.Unlock()
	if n == 1 {
		<-b.end
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%s is done", name)}}}, nil
}

func (b *bank) calls(tool string) []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.keys[tool])
}

// TestTools_KilledInMidCall kills the server while a tool works. A safe one is
// called again with the same key; what became of an unsafe one is asked.
func TestTools_KilledInMidCall(t *testing.T) {
	for _, tt := range []struct {
		tool, answer string
		calls        int
		says         string
	}{
		{"look", "", 2, "look is done"},
		{"pay", "it was done", 1, "A person has looked and says that it was done"},
		{"pay", "fail", 1, "it counts as failed"},
		{"pay", "call it again", 2, "pay is done"},
	} {
		t.Run(tt.tool+" "+tt.answer, func(t *testing.T) {
			t.Parallel()
			b, dir := openBank(t), t.TempDir()
			for name, text := range map[string]string{"team.yaml": toolsFile, "s.yaml": toolsScript} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := command{config: filepath.Join(dir, "team.yaml"), store: sqlite(t), env: []string{"BANK=" + b.URL}, dir: dir}
			first := serve(t, c)
			send := rig.Text("desk", "m-1", tt.tool)
			send.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			sent, err := rig.NewREST(first.target).Send(t.Context(), send)
			if err != nil {
				t.Fatal(err)
			}
			id := sent.GetTask().GetId()
			await(t, "the call", func() bool { return len(b.calls(tt.tool)) == 1 })
			first.end(syscall.SIGKILL)
			client := rig.NewREST(serve(t, c).target)
			state := func() (task *a2av1.Task) {
				task, err := client.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
				if err != nil {
					t.Fatal(err)
				}
				return task
			}
			if tt.answer != "" {
				await(t, "a question", func() bool {
					return state().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
				})
				if n := len(b.calls(tt.tool)); n != 1 {
					t.Errorf("it was called %d times before anybody was asked", n)
				}
				if asked := fmt.Sprint(state().GetStatus().GetMessage().GetParts()); !strings.Contains(asked, "clerk called pay with") || !strings.Contains(asked, "call it again") {
					t.Errorf("asked %s", asked)
				}
				for i, text := range []string{"perhaps", tt.answer} {
					m := rig.Text("desk", fmt.Sprintf("answer-%d", i), text)
					m.Message.TaskId = id
					if _, err := client.Send(t.Context(), m); (err != nil) != (text == "perhaps") {
						t.Errorf("%q: %v", text, err)
					}
				}
			}
			await(t, "the end", func() bool { return state().GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED })
			if text := fmt.Sprint(state().GetArtifacts()); !strings.Contains(text, tt.says) {
				t.Errorf("answer %s, want %s", text, tt.says)
			}
			calls := b.calls(tt.tool)
			if len(calls) != tt.calls || calls[0] == nil || calls[0] != calls[len(calls)-1] {
				t.Errorf("called with the keys %v, want %d calls with one", calls, tt.calls)
			}
		})
	}
}

// serve starts a server that is killed with the test.
func serve(t *testing.T, c command) *replica {
	t.Helper()
	r, err := c.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(syscall.SIGKILL) })
	return r
}
