package interop03

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/a2aproject/a2a-go/a2asrv/push"
)

// oldAgent is an agent on the Go SDK's server of 0.3. It echoes in two pieces; does
// what it is told to: ask, answer without a task; and waits for its cancel.
type oldAgent struct{}

func (oldAgent) Execute(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	said := text(req.Message.Parts)
	if said == "direct" {
		return q.Write(ctx, a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: "at once"}))
	}
	if req.StoredTask == nil {
		if err := q.Write(ctx, a2a.NewSubmittedTask(req, req.Message)); err != nil {
			return err
		}
	}
	switch said {
	case "ask":
		return tellOld(ctx, req, q, a2a.TaskStateInputRequired, "Which city?")
	case "wait":
		if err := tellOld(ctx, req, q, a2a.TaskStateWorking, "Waiting."); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	piece := a2a.NewArtifactEvent(req, a2a.TextPart{Text: "far: "})
	if err := errors.Join(q.Write(ctx, piece), q.Write(ctx, a2a.NewArtifactUpdateEvent(req, piece.Artifact.ID, a2a.TextPart{Text: said}))); err != nil {
		return err
	}
	return tellOld(ctx, req, q, a2a.TaskStateCompleted, "Done.")
}

func tellOld(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue, state a2a.TaskState, words string) error {
	ev := a2a.NewStatusUpdateEvent(req, state, a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: words}))
	ev.Final = state != a2a.TaskStateWorking
	return q.Write(ctx, ev)
}

func (oldAgent) Cancel(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	return tellOld(ctx, req, q, a2a.TaskStateCanceled, "Stopped.")
}

// serveOld serves the agent with a card of 0.3 alone.
func serveOld(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	card := &a2a.AgentCard{
		Name: "Old", Description: "Echoes from afar.", Version: "1", ProtocolVersion: "0.3.0",
		URL: srv.URL + "/a2a", PreferredTransport: a2a.TransportProtocolJSONRPC,
		Capabilities:      a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills:                            []a2a.AgentSkill{{ID: "echo", Name: "Echo", Description: "Echoes.", Tags: []string{"echo"}}},
		SupportsAuthenticatedExtendedCard: true,
	}
	extended := *card
	extended.Description = "Echoes for friends."
	mux.Handle("/a2a", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(oldAgent{}, a2asrv.WithExtendedAgentCard(&extended),
		a2asrv.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))), a2asrv.WithPushNotifications(push.NewInMemoryStore(), push.NewHTTPPushSender(nil)))))
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(card))
	return srv.URL
}

// callerOf makes calls with the program, as a process.
type callerOf struct {
	*testing.T
	program string
}

// says makes a call and checks its exit code, and that each pattern is in what it
// wrote, with a mark before what is on standard error.
func (c *callerOf) says(code int, patterns []string, args ...string) (out, talk string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), callTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append([]string{"call"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		c.Fatalf("call %v: %v, %v\n%s", args, err, ctx.Err(), &stderr)
	}
	out, talk = stdout.String(), stderr.String()
	if got := cmd.ProcessState.ExitCode(); got != code {
		c.Errorf("call %v: exit code %d, want %d\n%s", args, got, code, talk)
	}
	for _, p := range patterns {
		text := out
		if rest, ok := strings.CutPrefix(p, "2>"); ok {
			p, text = rest, talk
		}
		if !regexp.MustCompile("(?m)" + p).MatchString(text) {
			c.Errorf("call %v: no match for %s in\n%s%s", args, p, out, talk)
		}
	}
	return out, talk
}

// begin begins a task that waits, and returns its id once its agent works on it.
func (c *callerOf) begin(url string) string {
	c.Helper()
	var task struct{ Task struct{ ID string } }
	out, talk := c.says(0, nil, "send", url, "wait", "--return-immediately", "-o", "json")
	if err := json.Unmarshal([]byte(out), &task); err != nil || task.Task.ID == "" {
		c.Fatalf("%v: %s%s", err, out, talk)
	}
	for deadline := time.Now().Add(callTime); time.Now().Before(deadline); {
		if out, _ := c.says(0, nil, "get", url, task.Task.ID); strings.Contains(out, "Waiting.") {
			return task.Task.ID
		}
	}
	c.Fatal("the agent does not begin")
	return ""
}

// The program's own client at the Go SDK's server of 0.3: the card says which version
// it is.
func TestA_25_CallGoSDK03Server(t *testing.T) {
	program := filepath.Join(t.TempDir(), "team-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/team-server")
	build.Dir = filepath.Join("..", "..")
	if log, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, log)
	}
	url := serveOld(t)
	play := func(name string, f func(*callerOf, string)) {
		t.Run(name, func(t *testing.T) { f(&callerOf{t, program}, url) })
	}
	play("send and stream", callOldSends)
	play("tasks", callOldTasks)
	play("webhooks", callOldWebhooks)
	play("cards", func(c *callerOf, url string) {
		c.says(0, []string{`^Old  1$`, `^  JSONRPC    0.3.0 http`}, "card", url)
		c.says(0, []string{`^Echoes for friends.$`}, "card", url, "--extended")
	})
	play("refusals", func(c *callerOf, url string) {
		for _, args := range [][]string{{"get", url, "nobody"}, {"cancel", url, "nobody"}, {"subscribe", url, "nobody"}} {
			c.says(1, []string{`2>^TASK_NOT_FOUND: `}, args...)
		}
		c.says(1, []string{`2>^UNAUTHENTICATED: `}, "list", url) // its store lists nobody's tasks
		c.says(1, []string{`2>^card read, but it offers only JSONRPC 0.3.0; wanted protocol 1.0 over GRPC, HTTP\+JSON or JSONRPC$`}, "--protocol", "1.0", url, "Hello")
		c.says(1, []string{`2>^card read, but it offers only JSONRPC 0.3.0; wanted protocol 1.0 over GRPC$`}, "--binding", "grpc", url, "Hello")
	})
}

func callOldSends(c *callerOf, url string) {
	c.says(0, []string{`^far: \nHello$`, `2>^task \S+  completed  Done.$`}, url, "Hello") // parts, a line each
	c.says(0, []string{`^far: Hello$`, `2>^task \S+  completed  Done.$`, `2>^> A2A-Version: 0.3$`}, "stream", url, "Hello", "--raw")
	c.says(0, []string{`^at once$`}, "send", url, "direct")
	c.says(0, []string{`^at once$`}, "stream", url, "direct")
	_, talk := c.says(1, []string{`2>^task \S+  input required  Which city\?$`}, "send", url, "ask")
	_, id, _ := strings.Cut(talk, "--task ")
	id, _, _ = strings.Cut(id, " ")
	c.says(0, []string{`^far: \nBrest$`}, "send", url, "Brest", "--task", id)
}

func callOldTasks(c *callerOf, url string) {
	id := c.begin(url)
	c.says(0, []string{`^state    working`, `^message  Waiting.$`, `^user     \S+\n  wait$`}, "get", url, id)
	if out, _ := c.says(0, nil, "get", url, id, "--history", "1", "-o", "json"); !strings.Contains(out, `"ROLE_USER"`) {
		c.Errorf("as JSON it is not one of 1.0: %s", out)
	}
	c.says(1, []string{`2>^no answer within 300ms \(--timeout\)$`}, "subscribe", url, id, "--timeout", "300ms")
	c.says(0, []string{`^state    canceled`, `^message  Stopped.$`}, "cancel", url, id)
}

func callOldWebhooks(c *callerOf, url string) {
	id := c.begin(url)
	c.says(0, []string{`^webhook  mine$`, `^url      https://example.com/hook$`, `^auth     Bearer \*\*\*$`},
		"push", "set", url, id, "https://example.com/hook", "--id", "mine", "--auth-scheme", "Bearer", "--auth-credentials", "letmein")
	c.says(0, []string{`^webhook  mine$`}, "push", "get", url, id, "mine")
	c.says(0, []string{`^mine +https://example.com/hook$`, `2>^1 webhook of task ` + id + `$`}, "push", "ls", url, id)
	c.says(0, []string{`2>^webhook mine of task ` + id + ` deleted$`}, "push", "delete", url, id, "mine")
	c.says(0, []string{`2>^0 webhooks of task ` + id + `$`}, "push", "ls", url, id)
	c.says(0, nil, "cancel", url, id)
}
