//go:build linux

package durable

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/tests/rig"
)

const askingFile = `version: v1
models: {script: {provider: scripted, file: s.yaml}}
tools: {bank: {mcp: {url: "${BANK}", effects: {pay: %s}, elicit: {}}}}
agents: {clerk: {model: script, tools: [bank]}}
teams: {desk: {workflow: {steps: [{id: only, agent: clerk}]}}}
`

// askingBank is an MCP server with the tool pay, which asks for an amount and then pays it.
type askingBank struct {
	*httptest.Server
	end chan struct{}

	mu    sync.Mutex
	asked int            // guarded by mu
	paid  map[string]int // payments, by amount and key of the call; guarded by mu
	calls int            // that have an answer; guarded by mu
}

// openAskingBank opens a bank. version is that of MCP: old, in which servers ask while they work on a
// call, or new. hangs says that the first payment hangs.
func openAskingBank(t *testing.T, version string, hangs bool) *askingBank {
	b := &askingBank{end: make(chan struct{}), paid: map[string]int{}}
	o := &mcp.ServerOptions{}
	if version == "old" {
		o.SupportedProtocolVersions = []string{"2025-11-25", "2025-06-18"}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "bank", Version: "1"}, o)
	form := &mcp.ElicitParams{Message: "How much?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"amount": map[string]any{"type": "integer"}}, "required": []string{"amount"}}}
	s.AddTool(&mcp.Tool{Name: "pay", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, _ := r.Params.InputResponses["how"].(*mcp.ElicitResult)
		if answer == nil {
			b.mu.Lock()
			b.asked++
			b.mu.Unlock()
			if version == "new" {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"how": form}, RequestState: "how"}, nil
			}
			waits, stop := context.WithCancel(ctx) // the library goes on waiting for a client that is gone
			defer stop()
			go func() {
				select {
				case <-b.end:
				case <-waits.Done():
				}
				stop()
			}()
			var err error
			if answer, err = r.Session.Elicit(waits, form); err != nil {
				return nil, err
			}
		}
		b.mu.Lock()
		b.calls++
		first := b.calls == 1
		b.paid[fmt.Sprintf("%v %v", answer.Content["amount"], r.Params.Meta["team-server/key"])]++
		b.mu.Unlock()
		if first && hangs {
			<-b.end
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("paid %v", answer.Content["amount"])}}}, nil
	})
	b.Server = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: version == "new"}))
	t.Cleanup(func() {
		close(b.end)
		for session := range s.Sessions() {
			_ = session.Close()
		}
		b.Close()
	})
	return b
}

// counts returns how often the bank has asked, the number of calls that it has got an answer in, and
// that of the different payments by amount and key.
func (b *askingBank) counts() (asked, calls, payments int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked, b.calls, len(b.paid)
}

// TestS_51_ToolQuestion_KilledBeforeTheAnswer kills the server while people are asked what an MCP server wants
// to know, or while the answered call works. People are asked once; a call that may have had its effect
// is made again only if its effect allows it, or if people say so.
func TestS_51_ToolQuestion_KilledBeforeTheAnswer(t *testing.T) {
	for _, tt := range []struct {
		version, effect string
		hangs           bool   // the server is killed while the answered call works, instead of before
		ruling          string // the answer to the question about the outcome; empty if it is not asked
		asked, calls    int
		says            string
	}{
		{"new", "UNSAFE", false, "", 1, 1, "paid 7"},
		{"new", "KEYED", false, "", 1, 1, "paid 7"},
		{"old", "KEYED", false, "", 2, 1, "paid 7"},
		{"old", "UNSAFE", false, "fail", 1, 0, "counts as failed"},
		{"old", "UNSAFE", false, "call it again", 2, 1, "paid 7"},
		{"new", "UNSAFE", true, "it was done", 1, 1, "A person has looked and says that it was done"},
		{"new", "UNSAFE", true, "call it again", 2, 2, "paid 7"},
		{"old", "UNSAFE", true, "it was done", 1, 1, "A person has looked and says that it was done"},
		{"old", "KEYED", true, "", 2, 2, "paid 7"},
		{"new", "KEYED", true, "", 2, 2, "paid 7"},
	} {
		t.Run(fmt.Sprintf("%s %s hangs=%v %s", tt.version, tt.effect, tt.hangs, tt.ruling), func(t *testing.T) {
			t.Parallel()
			b, dir := openAskingBank(t, tt.version, tt.hangs), t.TempDir()
			for name, text := range map[string]string{"team.yaml": fmt.Sprintf(askingFile, tt.effect), "s.yaml": toolsScript} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := command{config: filepath.Join(dir, "team.yaml"), store: sqlite(t), env: []string{"BANK=" + b.URL}, dir: dir}
			first := serve(t, c)
			client := rig.NewREST(first.target)
			sent, err := client.Send(t.Context(), rig.Text("desk", "m-1", "pay"))
			if err != nil || !strings.Contains(fmt.Sprint(sent.GetTask().GetStatus().GetMessage().GetParts()), "How much?") {
				t.Fatal(sent, err)
			}
			id := sent.GetTask().GetId()
			answer := func(text string) error {
				m := rig.Text("desk", "answer-"+strings.ReplaceAll(text, " ", "-"), text)
				m.Message.TaskId = id
				m.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
				_, err := client.Send(t.Context(), m)
				return err
			}
			if tt.hangs {
				if err := answer("7"); err != nil {
					t.Fatal(err)
				}
				await(t, "the payment", func() bool { _, calls, _ := b.counts(); return calls == 1 })
			}
			first.end(syscall.SIGKILL)
			client = rig.NewREST(serve(t, c).target)
			if !tt.hangs {
				if err := answer("seven"); err == nil || !strings.Contains(err.Error(), "amount") {
					t.Errorf("a bad answer: %v", err)
				}
				if err := answer("7"); err != nil {
					t.Fatal(err)
				}
			}
			var task *a2av1.Task
			in := func(state a2av1.TaskState, says string) func() bool {
				return func() bool {
					if task, err = client.Get(t.Context(), &a2av1.GetTaskRequest{Id: id}); err != nil {
						t.Fatal(err)
					}
					return task.GetStatus().GetState() == state && strings.Contains(fmt.Sprint(task.GetStatus().GetMessage().GetParts(), task.GetArtifacts()), says)
				}
			}
			if tt.ruling != "" {
				await(t, "the question about the outcome", in(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED, "What became of it?"))
				if err := answer(tt.ruling); err != nil {
					t.Fatal(err)
				}
			}
			await(t, "the end", in(a2av1.TaskState_TASK_STATE_COMPLETED, tt.says))
			asked, calls, payments := b.counts()
			if asked != tt.asked || calls != tt.calls || payments > 1 {
				t.Errorf("the bank asked %d times, and %d calls paid, with %d keys; want %d, %d and one key", asked, calls, payments, tt.asked, tt.calls)
			}
			n := 0
			for _, m := range task.GetHistory() {
				if strings.Contains(fmt.Sprint(m.GetParts()), "How much?") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("people were asked %d times: %v", n, task.GetHistory())
			}
		})
	}
}
