package interop03

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/agentteams/team-server/tests/interoprig"
)

// alike compares by what is sent.
func alike(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// far is an agent on the Go SDK's server of 0.3. It echoes in two pieces; asks when
// it is told to ask; and waits for its cancel when it is told to wait.
type far struct {
	mu       sync.Mutex
	canceled chan struct{}
	messages []*a2a.Message // guarded by mu
}

func (f *far) Execute(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	f.mu.Lock()
	f.messages = append(f.messages, req.Message)
	f.mu.Unlock()
	said := text(req.Message.Parts)
	switch {
	case req.StoredTask != nil:
		said = "you said " + said
	case said == "direct":
		return q.Write(ctx, a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: "at once"}))
	}
	if req.StoredTask == nil {
		if err := q.Write(ctx, a2a.NewSubmittedTask(req, req.Message)); err != nil {
			return err
		}
	}
	if err := q.Write(ctx, a2a.NewStatusUpdateEvent(req, a2a.TaskStateWorking, nil)); err != nil {
		return err
	}
	switch said {
	case "ask":
		return f.end(ctx, req, q, a2a.TaskStateInputRequired, "Which city?")
	case "fail":
		return f.end(ctx, req, q, a2a.TaskStateFailed, "It is broken.")
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	}
	first := a2a.NewArtifactEvent(req, a2a.TextPart{Text: "far: "})
	if err := q.Write(ctx, first); err != nil {
		return err
	}
	if err := q.Write(ctx, a2a.NewArtifactUpdateEvent(req, first.Artifact.ID, a2a.TextPart{Text: said})); err != nil {
		return err
	}
	return f.end(ctx, req, q, a2a.TaskStateCompleted, "")
}

func (f *far) end(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue, state a2a.TaskState, text string) error {
	var m *a2a.Message
	if text != "" {
		m = a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: text})
	}
	ev := a2a.NewStatusUpdateEvent(req, state, m)
	ev.Final = true
	return q.Write(ctx, ev)
}

func (f *far) Cancel(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	defer close(f.canceled)
	return f.end(ctx, req, q, a2a.TaskStateCanceled, "")
}

// serveFar serves the agent with a card of 0.3 alone.
func serveFar(t *testing.T, f *far, streaming bool) string {
	t.Helper()
	f.canceled = make(chan struct{})
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.Handle("/a2a", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(f)))
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "Far", Description: "Echoes from afar.", Version: "1", ProtocolVersion: "0.3.0",
		URL: srv.URL + "/a2a", PreferredTransport: a2a.TransportProtocolJSONRPC,
		Capabilities:      a2a.AgentCapabilities{Streaming: streaming},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "echo", Name: "Echo", Description: "Echoes.", Tags: []string{"echo"}}},
		SecuritySchemes: a2a.NamedSecuritySchemes{
			"bearer": a2a.HTTPAuthSecurityScheme{Scheme: "Bearer"},
		},
	}))
	return srv.URL
}

const teamOfFar = `version: v1
agents:
  far: {a2a: {card: %q%s}}
teams:
  relay:
    limits: {retry: {attempts: 1}}
    workflow: {steps: [{id: pass, agent: far}]}
server:
  egress: {allow: [127.0.0.0/8]}
  default_agent: relay
`

// A server that speaks only 0.3 has a member of a team, streamed and polled.
func TestA_25_MemberOn03Server(t *testing.T) {
	program := interoprig.BuildServer(t)
	for _, way := range []struct {
		name, version string
		streaming     bool
	}{{"streamed", "", true}, {"polled", "", false}, {"version chosen", `, version: "0.3"`, true}} {
		t.Run(way.name, func(t *testing.T) {
			f := &far{}
			file := filepath.Join(t.TempDir(), "team.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, teamOfFar, serveFar(t, f, way.streaming), way.version), 0o600); err != nil {
				t.Fatal(err)
			}
			s := interoprig.Serve(t, program, file)
			t.Run("send", func(t *testing.T) { playMember(newStage(t, s, "relay")) })
			t.Run("message without a task", func(t *testing.T) { playDirectMember(newStage(t, s, "relay")) })
			t.Run("stream", func(t *testing.T) { playMemberStream(newStage(t, s, "relay")) })
			t.Run("input-required", func(t *testing.T) { playMemberAsks(newStage(t, s, "relay"), f) })
			t.Run("failure", func(t *testing.T) { playMemberFails(newStage(t, s, "relay")) })
			t.Run("cancel", func(t *testing.T) { playMemberCanceled(newStage(t, s, "relay"), f) })
		})
	}
}

func playMember(s *stage) {
	task := s.task(say("Hello"))
	s.is(task, a2a.TaskStateCompleted)
	s.answered(task, "far: Hello")
}

func playDirectMember(s *stage) {
	task := s.task(say("direct"))
	s.is(task, a2a.TaskStateCompleted)
	s.answered(task, "at once")
}

func playMemberStream(s *stage) {
	events := s.collect(s.SendStreamingMessage(s.ctx, say("Hello")))
	if got := fold(events); got != "far: Hello" {
		s.Errorf("artifact %q", got)
	}
}

// playMemberAsks has the answer reach the task that asked.
func playMemberAsks(s *stage, f *far) {
	asked := s.task(say("ask"))
	s.is(asked, a2a.TaskStateInputRequired)
	if asked.Status.Message == nil || text(asked.Status.Message.Parts) != "Which city?" {
		s.Errorf("status %+v, want the question", asked.Status)
	}
	done := s.task(to(asked.ID, say("Brest")))
	s.is(done, a2a.TaskStateCompleted)
	s.answered(done, "far: you said Brest")
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.messages[len(f.messages)-1]
	if last.TaskID == "" || last.ContextID == "" || last.TaskID == asked.ID {
		s.Errorf("the answer came as %+v", last)
	}
}

func playMemberFails(s *stage) {
	task := s.task(say("fail"))
	s.is(task, a2a.TaskStateFailed)
	if task.Status.Message == nil {
		s.Fatal("the task does not say why")
	}
}

func playMemberCanceled(s *stage, f *far) {
	task := s.task(atOnce(say("wait")))
	s.await(task.ID, func(*a2a.Task) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return text(f.messages[len(f.messages)-1].Parts) == "wait"
	})
	ended, err := s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	s.is(ended, a2a.TaskStateCanceled)
	select {
	case <-f.canceled:
	case <-s.ctx.Done():
		s.Error("the far server was not told of the cancel")
	}
}
