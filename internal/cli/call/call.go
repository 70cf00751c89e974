// Package call implements the commands that call any A2A server.
package call

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// Commands are the calls of A2A servers. They print to the console, and connect as the connection says.
type Commands struct {
	Console    *console.Console
	Connection *console.Connection
}

// Flags are the flags that all call commands share.
type Flags struct {
	// Binding is grpc, rest or jsonrpc; "" means the first one that the card names.
	Binding string
	// Protocol is 1.0 or 0.3; "" means 1.0 if the card offers it, else 0.3.
	Protocol string
	// Tenant is the agent to call; "" means the tenant of the card.
	Tenant string
	// Extensions are the URIs of extensions to activate.
	Extensions []string
	// Headers are added to each request, as NAME=VALUE.
	Headers []string
	// Trusted are files with public keys, one of which must have signed the card.
	Trusted []string
	// Raw prints requests and responses as they are sent.
	Raw bool
	// Timeout limits the whole call; 0 means no limit.
	Timeout time.Duration
}

// bindings maps the values of --binding to those of the client.
var bindings = map[string]string{"": "", "grpc": a2aclient.GRPC, "rest": a2aclient.REST, "jsonrpc": a2aclient.JSONRPC}

// Check returns what is wrong with the flags of a call of the agent at target.
func (c *Commands) Check(target string, f *Flags) error {
	_, err := c.config(target, f)
	return err
}

// config returns the client configuration for the agent at target.
func (c *Commands) config(target string, f *Flags) (a2aclient.Config, error) {
	cfg := a2aclient.Config{Token: secret.New(c.Connection.Token), AnyGRPCPort: true}
	binding, known := bindings[strings.ToLower(f.Binding)]
	noCard := strings.HasPrefix(target, "grpc://") || strings.HasPrefix(target, "grpcs://")
	switch {
	case !known:
		return cfg, console.Usagef("--binding %s: expected grpc, rest or jsonrpc", f.Binding)
	case f.Protocol != "" && f.Protocol != a2aclient.V1 && f.Protocol != a2aclient.V03:
		return cfg, console.Usagef("--protocol %s: expected 1.0 or 0.3", f.Protocol)
	case f.Protocol == a2aclient.V03 && (binding == a2aclient.GRPC || noCard):
		return cfg, console.Usagef("--protocol 0.3: A2A 0.3 is called over JSON-RPC and REST, not over gRPC")
	case noCard && binding != "" && binding != a2aclient.GRPC:
		return cfg, console.Usagef("--binding %s: %s is called over gRPC; give the http:// address of the card", f.Binding, target)
	case noCard && len(f.Trusted) > 0:
		return cfg, console.Usagef("--verify needs a card, and %s is called without one; give the http:// address of the card", target)
	case hasControl(c.Connection.Token):
		return cfg, console.Usagef("--token: expected a token without line breaks or other control characters")
	case slices.ContainsFunc(f.Extensions, hasControl):
		return cfg, console.Usagef("--extension %q: expected a URI", strings.Join(f.Extensions, ", "))
	case f.Timeout < 0:
		return cfg, console.Usagef("--timeout %s: expected a duration above 0, such as 30s", f.Timeout)
	}
	if binding != "" {
		cfg.Bindings = []string{binding}
	}
	cfg.Tenant, cfg.Version, cfg.Extensions, cfg.Header = f.Tenant, f.Protocol, f.Extensions, http.Header{}
	for _, h := range f.Headers {
		name, value, ok := strings.Cut(h, "=")
		switch {
		case !ok || !headerName.MatchString(name):
			return cfg, console.Usagef("--header %s: expected NAME=VALUE", h)
		case hasControl(value):
			return cfg, console.Usagef("--header %s: expected a value without line breaks or other control characters", name)
		}
		cfg.Header.Add(name, value)
	}
	if f.Raw {
		cfg.Raw = console.Plain{To: c.Console.Talk}
	}
	var err error
	if cfg.TLS, err = c.Connection.TLS(); err != nil {
		return cfg, err
	}
	cfg.Verifier, err = c.verifier(f.Trusted)
	return cfg, err
}

var headerName = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$")

// hasControl reports whether a value contains control characters, which a header must not contain.
func hasControl(value string) bool { return strings.ContainsFunc(value, unicode.IsControl) }

// errTimeout is the cause with which a call is canceled after --timeout.
var errTimeout = errors.New("--timeout")

// withClient connects to the agent at target and calls do, within the timeout.
func (c *Commands) withClient(ctx context.Context, target string, f *Flags, do func(context.Context, *a2aclient.Client) error) error {
	cfg, err := c.config(target, f)
	if err != nil {
		return err
	}
	return f.withTimeout(ctx, func(ctx context.Context) error {
		server, err := a2aclient.Open(ctx, target, cfg)
		if err != nil {
			return err
		}
		defer server.Close() //nolint:errcheck // everything was read
		if err := f.checkTenant(server); err != nil {
			return err
		}
		return do(ctx, server)
	})
}

// withTimeout calls do and translates a timeout or an interrupt into an error for the user.
func (f *Flags) withTimeout(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if f.Timeout > 0 { // not a context deadline: gRPC would send it to the server, which would answer first
		defer time.AfterFunc(f.Timeout, func() { cancel(errTimeout) }).Stop()
	}
	err := do(ctx)
	switch {
	case err == nil || errors.Is(err, console.ErrFailed):
		return err
	case ctx.Err() == nil:
		return lined{err}
	case errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("no answer within %s (--timeout)", f.Timeout)
	}
	return console.ErrInterrupted
}

// lined is an error whose text is a single line.
type lined struct{ error }

// Error returns the text of the error as a single line.
func (e lined) Error() string { return console.Line(e.error.Error()) }

// Unwrap returns the original error.
func (e lined) Unwrap() error { return e.error }

// checkTenant returns an error if the connection cannot reach the tenant.
func (f *Flags) checkTenant(server *a2aclient.Client) error {
	switch bound := server.Bound(); {
	case f.Tenant == "":
		return nil
	case server.Version() == a2aclient.V03:
		return console.Usagef("--tenant %s: A2A 0.3 has no tenants; name the agent in the URL", f.Tenant)
	case bound != "" && bound != f.Tenant:
		return console.Usagef("--tenant %s: over %s this card reaches only %s; name the agent in the URL", f.Tenant, server.Binding(), bound)
	}
	return nil
}

// command returns the beginning of a command line of a call, with the flags that name the agent.
func (f *Flags) command(name string) string {
	var b strings.Builder
	b.WriteString("team-server " + name)
	for _, flag := range [][2]string{{"binding", f.Binding}, {"protocol", f.Protocol}, {"tenant", f.Tenant}} {
		if flag[1] != "" {
			fmt.Fprintf(&b, " --%s %s", flag[0], console.Word(flag[1]))
		}
	}
	return b.String()
}

// resumeCommand returns the command that shows the events of the task after a cursor.
func (f *Flags) resumeCommand(target, id string, after int64) string {
	text := f.command("call subscribe")
	if after > 0 {
		text += fmt.Sprintf(" --after %d", after)
	}
	return text + " " + console.Word(target) + " " + console.Word(id)
}

// Send sends a message to any A2A server and prints the answer. If text is "-", standard input is
// sent.
func (c *Commands) Send(ctx context.Context, target, text string, f *Send) error {
	if text == "-" {
		var err error
		if text, err = c.Console.Read(); err != nil {
			return err
		}
	}
	req, err := f.request(text)
	if err != nil {
		return err
	}
	return c.withClient(ctx, target, &f.Flags, func(ctx context.Context, server *a2aclient.Client) error {
		if f.Stream {
			return c.follow(server.StreamMessage(ctx, req), target, &f.Flags)
		}
		resp, err := server.SendMessage(ctx, req)
		if err != nil {
			return err
		}
		return c.answer(resp, target, &f.Flags)
	})
}

// answer prints the response to a message that was sent to target.
func (c *Commands) answer(resp *a2av1.SendMessageResponse, target string, f *Flags) error {
	if c.Console.JSON {
		if err := c.Console.Print(resp); err != nil || resp.GetTask() == nil {
			return err
		}
		return quiet().state(resp.GetTask().GetId(), resp.GetTask().GetStatus(), target, f)
	}
	if m := resp.GetMessage(); m != nil {
		_, err := fmt.Fprintln(c.Console.Text(), content(m.GetParts()))
		return err
	}
	return c.task(resp.GetTask(), target, f)
}

// task prints the artifacts of a task of target and its state.
func (c *Commands) task(t *a2av1.Task, target string, f *Flags) error {
	for _, a := range t.GetArtifacts() {
		if !ofMember(a) {
			fmt.Fprintln(c.Console.Text(), content(a.GetParts()))
		}
	}
	return c.state(t.GetId(), t.GetStatus(), target, f)
}

// ofMember reports whether an artifact is the output of a member of the team rather than the
// answer.
func ofMember(a *a2av1.Artifact) bool { return project.RunOf(a.GetMetadata()).GetDelegationId() != "" }

// stateWord returns a state in words.
func stateWord(state a2av1.TaskState) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state.String(), "TASK_STATE_")), "_", " ")
}

// state prints the state of a task of target, and how to answer it if it waits. It returns console.ErrFailed unless the task has
// completed or is still running.
func (c *Commands) state(id string, status *a2av1.TaskStatus, target string, f *Flags) error {
	text := fmt.Sprintf("task %s  %s", console.Line(id), stateWord(status.GetState()))
	if message := agent.Text(status.GetMessage()); message != "" {
		text += "  " + console.Below(message)
	}
	c.Console.Sayf("%s", text)
	switch status.GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING:
		return nil
	case a2av1.TaskState_TASK_STATE_INPUT_REQUIRED:
		c.Console.Sayf("to answer: %s TEXT", console.Line(f.command("call")+" --task "+console.Word(id)+" "+console.Word(target)))
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED,
		a2av1.TaskState_TASK_STATE_AUTH_REQUIRED, a2av1.TaskState_TASK_STATE_UNSPECIFIED:
	}
	return console.ErrFailed
}

// follow prints the events of a stream as they arrive. If the stream ends before the task does, it
// prints the command that shows the rest.
func (c *Commands) follow(responses iter.Seq2[*a2av1.StreamResponse, error], target string, f *Flags) error {
	p := &streamPrinter{out: c.Console.Text()}
	if c.Console.JSON {
		p.out = io.Discard
	}
	for resp, err := range responses {
		if err == nil && c.Console.JSON {
			err = c.Console.Print(resp)
		}
		if err != nil {
			p.end()
			c.hintRest(p, target, f)
			return err
		}
		p.show(resp)
	}
	p.end()
	switch {
	case p.last == nil && p.answered:
		return nil // a message, no task
	case p.last == nil:
		return errors.New("the stream ended before an answer")
	}
	last := c
	if c.Console.JSON {
		last = quiet()
	}
	if err := last.state(p.id, p.last, target, f); err != nil {
		return err
	}
	if c.hintRest(p, target, f) {
		return console.ErrFailed // a script must not continue as if the task were done
	}
	return nil
}

// hintRest prints how to see the rest of a task that is still running, and reports whether it is.
func (c *Commands) hintRest(p *streamPrinter, target string, f *Flags) bool {
	switch p.last.GetState() {
	case a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING:
		c.Console.Sayf("%s", f.Rest(p.id, p.seq, target))
		return true
	default: // no task, or no more events without input
		return false
	}
}

// Rest says how to see the rest of a task of target that is still running, after a cursor unless it is 0.
func (f *Flags) Rest(id string, after int64, target string) string {
	return fmt.Sprintf("task %s is still running; to see the rest: %s", console.Line(id), console.Line(f.resumeCommand(target, id, after)))
}

// quiet returns commands that print nothing.
func quiet() *Commands {
	return &Commands{Console: &console.Console{Out: io.Discard, Talk: io.Discard}}
}

// streamPrinter prints the pieces of an answer as they arrive.
type streamPrinter struct {
	out  io.Writer
	id   string
	last *a2av1.TaskStatus
	seq  int64 // cursor of the latest event; 0 if the server sends none

	answered bool // the response was a message

	newest string            // id of the artifact that was printed last
	shown  map[string]string // text printed so far, by artifact id
	open   bool              // the last line has no newline yet
}

func (p *streamPrinter) show(resp *a2av1.StreamResponse) {
	switch k := resp.GetPayload().(type) {
	case *a2av1.StreamResponse_Message:
		p.answered = true
		fmt.Fprintln(p.out, content(k.Message.GetParts()))
	case *a2av1.StreamResponse_Task:
		p.id, p.last = k.Task.GetId(), k.Task.GetStatus()
		p.seq = max(p.seq, project.RunOf(k.Task.GetMetadata()).GetSeq())
		for _, a := range k.Task.GetArtifacts() {
			p.artifact(a, false)
		}
	case *a2av1.StreamResponse_StatusUpdate:
		p.id, p.last = k.StatusUpdate.GetTaskId(), k.StatusUpdate.GetStatus()
		p.seq = max(p.seq, project.RunOf(k.StatusUpdate.GetMetadata()).GetSeq())
	case *a2av1.StreamResponse_ArtifactUpdate:
		p.seq = max(p.seq, project.RunOf(k.ArtifactUpdate.GetMetadata()).GetSeq())
		p.artifact(k.ArtifactUpdate.GetArtifact(), k.ArtifactUpdate.GetAppend())
	}
}

// artifact prints the new text of an artifact: an appended piece, or the part of a replacement that
// was not printed yet. Text that does not continue the last output begins on a new line.
func (p *streamPrinter) artifact(a *a2av1.Artifact, more bool) {
	if ofMember(a) {
		return
	}
	text := content(a.GetParts())
	before := p.shown[a.GetArtifactId()]
	all := before + text
	if !more {
		all = text
		rest, grown := strings.CutPrefix(text, before)
		if text = rest; !grown {
			p.end()
		}
	}
	if a.GetArtifactId() != p.newest && text != "" {
		p.end()
		p.newest = a.GetArtifactId()
	}
	if p.shown == nil {
		p.shown = map[string]string{}
	}
	p.shown[a.GetArtifactId()] = all
	fmt.Fprint(p.out, text)
	p.open = p.open || text != ""
}

func (p *streamPrinter) end() {
	if p.open {
		fmt.Fprintln(p.out)
	}
	p.open = false
}
