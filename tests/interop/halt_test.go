package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/agentteams/team-server/tests/interoprig"
)

// countedAgent is the agent on the Go SDK's server, and counts what reaches it.
type countedAgent struct {
	foreignAgent
	begun, waiting, canceled *atomic.Int32
}

func (a countedAgent) Execute(ctx context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	a.begun.Add(1)
	if text(req.Message.Parts) == "wait" {
		a.waiting.Add(1)
	}
	return a.foreignAgent.Execute(ctx, req)
}

func (a countedAgent) Cancel(ctx context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	a.canceled.Add(1)
	return a.foreignAgent.Cancel(ctx, req)
}

// haltTeam has the agent at an address as a member.
const haltTeam = `version: v1
agents: {far: {description: Works elsewhere., a2a: {card: %q, binding: %q}}}
teams: {relay: {members: [{agent: far}], workflow: {steps: [{id: pass, agent: far}]}}}
`

// waitingTasks is the number of tasks that the halted agent works on.
const waitingTasks = 3

// TestA_12_HaltOfAMember halts an agent on the Go SDK's server while it works on tasks and more arrive:
// after the answer nothing reaches it, and what it worked on was canceled there, or is listed as
// possibly running. After the resume it is called again.
func TestA_12_HaltOfAMember(t *testing.T) {
	program := interoprig.BuildServer(t)
	for _, b := range bindings() {
		t.Run(string(b), func(t *testing.T) {
			agent := countedAgent{begun: &atomic.Int32{}, waiting: &atomic.Int32{}, canceled: &atomic.Int32{}}
			at := serveExecutor(t, agent)
			file := filepath.Join(t.TempDir(), "team.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, haltTeam, at, strings.Replace(string(b), "HTTP+JSON", "REST", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			server := interoprig.Serve(t, program, file)
			send := func(text string, wait bool) (string, error) {
				return post(t, server.URL+"/relay/message:send", map[string]any{
					"message":       map[string]any{"messageId": fmt.Sprintf("m-%d", messages.Add(1)), "role": "ROLE_USER", "parts": []any{map[string]any{"text": text}}},
					"configuration": map[string]any{"returnImmediately": !wait},
				})
			}
			for range waitingTasks {
				if said, err := send("wait", false); err != nil {
					t.Fatal(said, err)
				}
			}
			until(t, "the tasks to begin", func() bool { return agent.waiting.Load() == waitingTasks })
			var load sync.WaitGroup
			defer load.Wait()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var refused atomic.Int32
			for range 4 {
				load.Go(func() {
					for ctx.Err() == nil {
						if said, _ := send("tides", true); strings.Contains(said, "HALTED") {
							refused.Add(1)
						}
					}
				})
			}
			until(t, "some load", func() bool { return agent.begun.Load() > waitingTasks+8 })
			said, err := post(t, server.URL+"/team/v1/halts", map[string]any{"kind": "HALT_KIND_AGENT", "name": "far", "reason": "a test"})
			begun, before := agent.begun.Load(), refused.Load()
			if err != nil {
				t.Fatal(said, err)
			}
			unconfirmed := strings.Count(said, `"unconfirmed":true`)
			if n := int(agent.canceled.Load()); n+unconfirmed < waitingTasks {
				t.Errorf("%d tasks were canceled there, and %d are listed as possibly running, want %d together: %s", n, unconfirmed, waitingTasks, said)
			}
			until(t, "load after the halt", func() bool { return refused.Load() > before+40 })
			if n := agent.begun.Load(); n != begun {
				t.Errorf("%d calls reached the agent after the answer to the halt", n-begun)
			}
			t.Logf("%d calls before the halt, %d canceled, %d unconfirmed, %d refused after it", begun, agent.canceled.Load(), unconfirmed, refused.Load()-before)
			if said, err := post(t, server.URL+"/team/v1/halts:resume", map[string]any{"kind": "HALT_KIND_AGENT", "name": "far"}); err != nil {
				t.Fatal(said, err)
			}
			until(t, "a call after the resume", func() bool { return agent.begun.Load() > begun })
		})
	}
}

// messages numbers the messages of this program.
var messages atomic.Int64

// post makes a call over REST, and returns the response.
func post(t *testing.T, url string, body any) (string, error) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return "", err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	return string(said), err
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("waited for %s", what)
		}
	}
}
