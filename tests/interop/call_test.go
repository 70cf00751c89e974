package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"
	"google.golang.org/grpc"
)

// foreignAgent is an agent on the Go SDK's server. It echoes in two pieces; does what
// it is told to: ask, fail, answer without a task; and waits for its cancel.
type foreignAgent struct{}

func (foreignAgent) Execute(ctx context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	said := text(req.Message.Parts)
	if said == "direct" {
		return toldBy(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("at once")))
	}
	var first []a2a.Event
	if req.StoredTask == nil {
		first = append(first, a2a.NewSubmittedTask(req, req.Message))
	} else {
		said = "you said " + said
	}
	note := func(state a2a.TaskState, words string) a2a.Event {
		return a2a.NewStatusUpdateEvent(req, state, a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.NewTextPart(words)))
	}
	switch {
	case said == "ask":
		return toldBy(append(first, note(a2a.TaskStateInputRequired, "Which city?"))...)
	case said == "fail":
		return toldBy(append(first, note(a2a.TaskStateFailed, "It is broken."))...)
	case said == "wait":
		return func(yield func(a2a.Event, error) bool) {
			for ev := range toldBy(append(first, note(a2a.TaskStateWorking, "Waiting."))...) {
				if !yield(ev, nil) {
					return
				}
			}
			<-ctx.Done()
			yield(nil, ctx.Err())
		}
	}
	piece := a2a.NewArtifactEvent(req, a2a.NewTextPart("far: "))
	return toldBy(append(first, piece, a2a.NewArtifactUpdateEvent(req, piece.Artifact.ID, a2a.NewTextPart(said)),
		a2a.NewStatusUpdateEvent(req, a2a.TaskStateCompleted, nil))...)
}

func (foreignAgent) Cancel(_ context.Context, req *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return toldBy(a2a.NewStatusUpdateEvent(req, a2a.TaskStateCanceled, nil))
}

func toldBy(events ...a2a.Event) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		for _, ev := range events {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// serveForeign serves the agent over three bindings and returns where its card is.
func serveForeign(t *testing.T) string {
	t.Helper()
	return serveExecutor(t, foreignAgent{})
}

// serveExecutor is serveForeign for another implementation of the agent.
func serveExecutor(t *testing.T, agent a2asrv.AgentExecutor) string {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback, at once
	if err != nil {
		t.Fatal(err)
	}
	card := &a2a.AgentCard{
		Name: "Foreign", Description: "Echoes from afar.", Version: "1",
		SupportedInterfaces: []*a2a.AgentInterface{
			{URL: srv.URL + "/rpc", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "1.0"},
			{URL: srv.URL, ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: "1.0"},
			{URL: l.Addr().String(), ProtocolBinding: a2a.TransportProtocolGRPC, ProtocolVersion: "1.0"},
		},
		Capabilities:      a2a.AgentCapabilities{Streaming: true, PushNotifications: true, ExtendedAgentCard: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "echo", Name: "Echo", Description: "Echoes.", Tags: []string{"echo"}}},
	}
	extended := *card
	extended.Description = "Echoes for friends."
	h := a2asrv.NewHandler(agent, a2asrv.WithExtendedAgentCard(&extended), a2asrv.WithLogger(slog.New(slog.DiscardHandler)),
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), push.NewHTTPPushSender(nil)),
		a2asrv.WithTaskStore(taskstore.NewInMemory(&taskstore.InMemoryStoreConfig{
			Authenticator: func(context.Context) (string, error) { return "someone", nil }, // who lists tasks has to be known
		})))
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(h))
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(card))
	mux.Handle("/", a2asrv.NewRESTHandler(h))
	g := grpc.NewServer()
	a2agrpc.NewHandler(h).RegisterWith(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l) // it is stopped
	}()
	t.Cleanup(func() {
		g.Stop()
		<-served
	})
	return srv.URL
}

// callerOf makes calls with the program, as a process.
type callerOf struct {
	*testing.T
	program string
	flags   []string
}

// called is what became of a call.
type called struct {
	out, talk string
	code      int
}

func (c *callerOf) call(args ...string) called {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), callTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append(append([]string{"call"}, args...), c.flags...)...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		c.Fatalf("call %v: %v, %v\n%s", args, err, ctx.Err(), &talk)
	}
	return called{out.String(), talk.String(), cmd.ProcessState.ExitCode()}
}

// says makes a call and checks its exit code, and that each pattern is in what it
// wrote, with a mark before what is on standard error.
func (c *callerOf) says(code int, patterns []string, args ...string) called {
	c.Helper()
	got := c.call(args...)
	if got.code != code {
		c.Errorf("call %v: exit code %d, want %d", args, got.code, code)
	}
	for _, p := range patterns {
		text := got.out
		if rest, talk := strings.CutPrefix(p, "2>"); talk {
			p, text = rest, got.talk
		}
		if !regexp.MustCompile("(?m)" + p).MatchString(text) {
			c.Errorf("call %v: no match for %s in\n%s%s", args, p, got.out, got.talk)
		}
	}
	return got
}

// begin begins a task that waits, and returns its id once its agent works on it.
func (c *callerOf) begin(url string) string {
	c.Helper()
	var resp struct{ Task struct{ ID string } }
	got := c.call("send", url, "wait", "--return-immediately", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &resp); err != nil || resp.Task.ID == "" {
		c.Fatalf("%v: %s%s", err, got.out, got.talk)
	}
	for deadline := time.Now().Add(callTime); time.Now().Before(deadline); {
		if strings.Contains(c.call("get", url, resp.Task.ID).out, "Waiting.") {
			return resp.Task.ID
		}
	}
	c.Fatal("the agent does not begin")
	return ""
}

// The program's own client at the Go SDK's server: every operation over every binding.
func TestA_12_CallGoSDKServer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "team-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/team-server")
	build.Dir = filepath.Join("..", "..")
	if log, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, log)
	}
	url := serveForeign(t)
	for _, binding := range []string{"grpc", "rest", "jsonrpc"} {
		t.Run(binding, func(t *testing.T) {
			play := func(name string, f func(*callerOf)) {
				t.Run(name, func(t *testing.T) { f(&callerOf{t, program, []string{"--binding", binding}}) })
			}
			play("send and stream", func(c *callerOf) { callSends(c, url) })
			play("tasks", func(c *callerOf) { callTasks(c, url) })
			play("cancel and subscribe", func(c *callerOf) { callCancels(c, url) })
			play("webhooks", func(c *callerOf) { callWebhooks(c, url) })
			play("cards", func(c *callerOf) {
				c.says(0, []string{`^Foreign  1$`, `^Echoes from afar.$`}, "card", url)
				c.says(0, []string{`^Echoes for friends.$`}, "card", url, "--extended")
			})
			play("refusals", func(c *callerOf) { callRefused(c, url) })
		})
	}
}

func callSends(c *callerOf, url string) {
	c.says(0, []string{`^far: \nHello$`, `2>^task \S+  completed$`}, url, "Hello") // parts, a line each
	c.says(0, []string{`^far: Hello$`, `2>^task \S+  completed$`}, "stream", url, "Hello")
	c.says(0, []string{`^at once$`}, "send", url, "direct")
	c.says(0, []string{`^at once$`}, "stream", url, "direct")
	c.says(1, []string{`2>^task \S+  failed  It is broken.$`}, "send", url, "fail")
	asked := c.says(1, []string{`2>^task \S+  input required  Which city\?$`}, "send", url, "ask")
	_, id, _ := strings.Cut(asked.talk, "--task ")
	id, _, _ = strings.Cut(id, " ")
	c.says(0, []string{`^far: \nyou said Brest$`}, "send", url, "Brest", "--task", id)
}

func callTasks(c *callerOf, url string) {
	sent := c.call("send", url, "Hello", "-o", "json", "--context", "talk-"+c.flags[1], "--file", "go.mod", "--data", `{"a":1}`)
	var resp struct{ Task struct{ ID string } }
	if err := json.Unmarshal([]byte(sent.out), &resp); err != nil {
		c.Fatalf("%v: %s%s", err, sent.out, sent.talk)
	}
	id := resp.Task.ID
	c.says(0, []string{`^task     ` + id + `$`, `^state    completed`, `^  far: \n  Hello$`, `^  Hello\n  \[file go.mod \S+ \d+ bytes\]\n  {"a": *1}$`}, "get", url, id)
	if got := c.call("get", url, id, "--history", "0"); strings.Contains(got.out, "go.mod") {
		c.Errorf("history 0:\n%s", got.out)
	}
	c.call("send", url, "again", "--context", "talk-"+c.flags[1])
	c.says(0, []string{id + ` +completed`, `2>^2 tasks$`}, "list", url, "--context", "talk-"+c.flags[1], "--all", "--page-size", "1")
	c.says(0, []string{`2>--page-token \S+$`}, "list", url, "--context", "talk-"+c.flags[1], "--page-size", "1")
	if got := c.says(0, []string{`2>^0 tasks$`}, "list", url, "--context", "talk-"+c.flags[1], "--status", "working"); got.out != "" {
		c.Errorf("working are\n%s", got.out)
	}
}

func callCancels(c *callerOf, url string) {
	id := c.begin(url)
	c.says(1, []string{`2>^no answer within 300ms \(--timeout\)$`, `2>^task ` + id + ` is still running; to see the rest: team-server call subscribe --binding ` + c.flags[1]},
		"subscribe", url, id, "--timeout", "300ms")
	c.says(0, []string{`^state    canceled`}, "cancel", url, id)
	c.says(1, []string{`2>^TASK_NOT_CANCELABLE: `}, "cancel", url, doneAt(c, url))
}

// doneAt is a task that has completed.
func doneAt(c *callerOf, url string) string {
	c.Helper()
	m := regexp.MustCompile(`(?m)^task (\S+)  completed$`).FindStringSubmatch(c.call("send", url, "Hello").talk)
	if m == nil {
		c.Fatal("the task is not completed")
	}
	return m[1]
}

func callWebhooks(c *callerOf, url string) {
	id := c.begin(url)
	c.says(0, []string{`^webhook  mine$`, `^url      https://example.com/hook$`, `^auth     Bearer \*\*\*$`},
		"push", "set", url, id, "https://example.com/hook", "--id", "mine", "--push-token", "t0ken", "--auth-scheme", "Bearer", "--auth-credentials", "letmein")
	c.says(0, []string{`^webhook  mine$`}, "push", "get", url, id, "mine")
	raw := c.says(0, []string{`^mine +https://example.com/hook$`}, "push", "ls", url, id, "--raw")
	if strings.Contains(raw.talk, "letmein") || strings.Contains(raw.talk, "t0ken") {
		c.Errorf("secrets are shown:\n%s", raw.talk)
	}
	c.says(0, []string{`2>^webhook mine of task ` + id + ` deleted$`}, "push", "delete", url, id, "mine")
	c.says(0, []string{`2>^0 webhooks of task ` + id + `$`}, "push", "ls", url, id)
	c.says(0, nil, "cancel", url, id)
}

func callRefused(c *callerOf, url string) {
	nobody := fmt.Sprintf("%s-%s", "nobody", c.flags[1])
	for _, args := range [][]string{{"get", url, nobody}, {"cancel", url, nobody}, {"subscribe", url, nobody}, {"send", url, "Hello", "--task", nobody}} {
		c.says(1, []string{`2>^TASK_NOT_FOUND: `}, args...)
	}
	if c.flags[1] != "grpc" {
		c.says(1, []string{`2>^card read, but it offers only JSONRPC 1.0, HTTP\+JSON 1.0, GRPC 1.0; wanted protocol 0.3 over `}, "--protocol", "0.3", url, "Hello")
	}
}
