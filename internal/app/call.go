package app

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

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// Calling says how an agent is called, whatever for.
type Calling struct {
	// Binding is grpc, rest or jsonrpc; empty is what the card names first.
	Binding string
	// Protocol is 1.0 or 0.3; empty is 1.0 where the card offers it, else 0.3.
	Protocol string
	// Tenant is the agent to reach; empty is the card's.
	Tenant string
	// Extensions are the URIs of extensions to activate.
	Extensions []string
	// Headers are sent along, each as NAME=VALUE.
	Headers []string
	// Trusted are files with keys, of which one must have signed the card.
	Trusted []string
	// Raw shows what goes over the wire.
	Raw bool
	// Timeout of the whole call; 0 is none.
	Timeout time.Duration
}

// bindings are the words of --binding.
var bindings = map[string]string{"": "", "grpc": a2aclient.GRPC, "rest": a2aclient.REST, "jsonrpc": a2aclient.JSONRPC}

// config is how the agent at target is called.
func (s *Shell) config(target string, f *Calling) (a2aclient.Config, error) {
	cfg := a2aclient.Config{Token: s.Token, AnyGRPCPort: true}
	binding, known := bindings[strings.ToLower(f.Binding)]
	noCard := strings.HasPrefix(target, "grpc://") || strings.HasPrefix(target, "grpcs://")
	switch {
	case !known:
		return cfg, usagef("--binding %s: expected grpc, rest or jsonrpc", f.Binding)
	case f.Protocol != "" && f.Protocol != a2aclient.V1 && f.Protocol != a2aclient.V03:
		return cfg, usagef("--protocol %s: expected 1.0 or 0.3", f.Protocol)
	case f.Protocol == a2aclient.V03 && (binding == a2aclient.GRPC || noCard):
		return cfg, usagef("--protocol 0.3: A2A 0.3 is called over JSON-RPC and REST, not over gRPC")
	case noCard && binding != "" && binding != a2aclient.GRPC:
		return cfg, usagef("--binding %s: %s is called over gRPC; give the http:// address of the card", f.Binding, target)
	case noCard && len(f.Trusted) > 0:
		return cfg, usagef("--verify needs a card, and %s is called without one; give the http:// address of the card", target)
	case unsent(cfg.Token):
		return cfg, usagef("--token: expected one without line breaks or other control characters")
	case slices.ContainsFunc(f.Extensions, unsent):
		return cfg, usagef("--extension %q: expected a URI", strings.Join(f.Extensions, ", "))
	case f.Timeout < 0:
		return cfg, usagef("--timeout %s: expected a duration above 0, such as 30s", f.Timeout)
	}
	if binding != "" {
		cfg.Bindings = []string{binding}
	}
	cfg.Tenant, cfg.Version, cfg.Extensions, cfg.Header = f.Tenant, f.Protocol, f.Extensions, http.Header{}
	for _, h := range f.Headers {
		name, value, ok := strings.Cut(h, "=")
		switch {
		case !ok || !headerName.MatchString(name):
			return cfg, usagef("--header %s: expected NAME=VALUE", h)
		case unsent(value):
			return cfg, usagef("--header %s: expected a value without line breaks or other control characters", name)
		}
		cfg.Header.Add(name, value)
	}
	if f.Raw {
		cfg.Raw = plain{s.Talk}
	}
	var err error
	cfg.Verifier, err = s.verifier(f.Trusted)
	return cfg, err
}

var headerName = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$")

// unsent reports whether a value cannot be sent in a header.
func unsent(value string) bool { return strings.ContainsFunc(value, unicode.IsControl) }

func usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// errLate is the cause of the end of a call that takes too long.
var errLate = errors.New("--timeout")

// calling opens the agent at target and does something with it in the time there is.
func (s *Shell) calling(ctx context.Context, target string, f *Calling, do func(context.Context, *a2aclient.Client) error) error {
	cfg, err := s.config(target, f)
	if err != nil {
		return err
	}
	return f.inTime(ctx, func(ctx context.Context) error {
		c, err := a2aclient.Open(ctx, target, cfg)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // everything was read
		if err := f.reaches(c); err != nil {
			return err
		}
		return do(ctx, c)
	})
}

// inTime does something in the time there is, and says so when that was too short or
// somebody interrupted it.
func (f *Calling) inTime(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if f.Timeout > 0 { // no deadline: over gRPC the server would be told, and answer first
		defer time.AfterFunc(f.Timeout, func() { cancel(errLate) }).Stop()
	}
	err := do(ctx)
	switch {
	case err == nil || errors.Is(err, ErrFailed):
		return err
	case ctx.Err() == nil:
		return lined{err}
	case errors.Is(context.Cause(ctx), errLate):
		return fmt.Errorf("no answer within %s (--timeout)", f.Timeout)
	}
	return ErrInterrupted
}

// reaches says why the tenant cannot be reached, if it cannot.
func (f *Calling) reaches(c *a2aclient.Client) error {
	switch bound := c.Bound(); {
	case f.Tenant == "":
		return nil
	case c.Version() == a2aclient.V03:
		return usagef("--tenant %s: A2A 0.3 knows no tenant; name the agent in the URL", f.Tenant)
	case bound != "" && bound != f.Tenant:
		return usagef("--tenant %s: over %s the card's address is that of %s alone; name the agent in the URL", f.Tenant, c.Binding(), bound)
	}
	return nil
}

// again is how the task is followed from here on, as a command.
func (f *Calling) again(target, id string, after int64) string {
	var b strings.Builder
	b.WriteString("team-server call subscribe")
	for _, flag := range [][2]string{{"binding", f.Binding}, {"protocol", f.Protocol}, {"tenant", f.Tenant}} {
		if flag[1] != "" {
			fmt.Fprintf(&b, " --%s %s", flag[0], shellWord(flag[1]))
		}
	}
	if after > 0 {
		fmt.Fprintf(&b, " --after %d", after)
	}
	fmt.Fprintf(&b, " %s %s", shellWord(target), shellWord(id))
	return b.String()
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._~:/@%+=-]+$`)

// shellWord is a text as one word of a shell: ids are a stranger's, and commands that are
// shown are pasted.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Call sends a message to any A2A server and prints the answer. The text "-" is what
// stands on standard input.
func (s *Shell) Call(ctx context.Context, target, text string, f *Send) error {
	if text == "-" {
		var err error
		if text, err = s.read(); err != nil {
			return err
		}
	}
	req, err := f.request(text)
	if err != nil {
		return err
	}
	return s.calling(ctx, target, &f.Calling, func(ctx context.Context, c *a2aclient.Client) error {
		if f.Stream {
			return s.follow(c.StreamMessage(ctx, req), target, &f.Calling)
		}
		resp, err := c.SendMessage(ctx, req)
		if err != nil {
			return err
		}
		return s.answer(resp)
	})
}

// maxInput bounds what is read from standard input and from files, in bytes.
const maxInput = 16 << 20

// read reads standard input; the end of its last line is none of the text.
func (s *Shell) read() (string, error) {
	if s.In == nil {
		return "", usagef("there is no standard input to read")
	}
	b, err := io.ReadAll(io.LimitReader(s.In, maxInput+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading standard input: %w", err)
	case len(b) > maxInput:
		return "", usagef("standard input is larger than %d bytes", maxInput)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// answer prints what a send was answered with.
func (s *Shell) answer(resp *a2av1.SendMessageResponse) error {
	if s.JSON {
		if err := s.print(resp); err != nil || resp.GetTask() == nil {
			return err
		}
		return quiet().state(resp.GetTask().GetId(), resp.GetTask().GetStatus())
	}
	if m := resp.GetMessage(); m != nil {
		_, err := fmt.Fprintln(s.text(), content(m.GetParts()))
		return err
	}
	return s.task(resp.GetTask())
}

// task prints the answer of a task and says how it stands.
func (s *Shell) task(t *a2av1.Task) error {
	for _, a := range t.GetArtifacts() {
		if !ofMember(a) {
			fmt.Fprintln(s.text(), content(a.GetParts()))
		}
	}
	return s.state(t.GetId(), t.GetStatus())
}

// ofMember reports whether an artifact is what a member of the team said, not
// the answer.
func ofMember(a *a2av1.Artifact) bool { return a2a.RunOf(a.GetMetadata()).GetDelegationId() != "" }

// stateWord is a state as people read it.
func stateWord(state a2av1.TaskState) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state.String(), "TASK_STATE_")), "_", " ")
}

// state says how a task stands. One that has not come to a good end, and is not
// left to go on either, is a failure.
func (s *Shell) state(id string, status *a2av1.TaskStatus) error {
	told := fmt.Sprintf("task %s  %s", line(id), stateWord(status.GetState()))
	if text := agent.Text(status.GetMessage()); text != "" {
		told += "  " + below(text)
	}
	s.sayf("%s", told)
	switch status.GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING:
		return nil
	case a2av1.TaskState_TASK_STATE_INPUT_REQUIRED:
		s.sayf("answer it with --task %s", line(shellWord(id)))
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED,
		a2av1.TaskState_TASK_STATE_AUTH_REQUIRED, a2av1.TaskState_TASK_STATE_UNSPECIFIED:
	}
	return ErrFailed
}

// follow prints a stream as it comes. Of a task that goes on when it breaks off, it
// says how it is followed further.
func (s *Shell) follow(responses iter.Seq2[*a2av1.StreamResponse, error], target string, f *Calling) error {
	p := &streamed{out: s.text()}
	if s.JSON {
		p.out = io.Discard
	}
	for resp, err := range responses {
		if err == nil && s.JSON {
			err = s.print(resp)
		}
		if err != nil {
			p.end()
			s.goesOn(p, target, f)
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
	talk := s
	if s.JSON {
		talk = quiet()
	}
	if err := talk.state(p.id, p.last); err != nil {
		return err
	}
	if s.goesOn(p, target, f) {
		return ErrFailed // what comes next must not take it for done
	}
	return nil
}

// goesOn says how a task is followed that has not come to rest, and whether it is one.
func (s *Shell) goesOn(p *streamed, target string, f *Calling) bool {
	switch p.last.GetState() {
	case a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING:
		s.rest(p.id, p.seq, target, f)
		return true
	default: // there is no task, or nothing follows
		return false
	}
}

// rest says how the rest of a task is seen, behind a cursor if it is not 0.
func (s *Shell) rest(id string, after int64, target string, f *Calling) {
	s.sayf("task %s goes on; to see the rest: %s", line(id), line(f.again(target, id, after)))
}

// quiet is a shell that says nothing.
func quiet() *Shell { return &Shell{Out: io.Discard, Talk: io.Discard} }

// streamed prints the pieces of an answer.
type streamed struct {
	out  io.Writer
	id   string
	last *a2av1.TaskStatus
	seq  int64 // cursor of the newest piece; 0 where the server has none

	answered bool // by a message

	newest string            // artifact of which something was printed last
	shown  map[string]string // of each artifact
	open   bool              // the line has no end yet
}

func (p *streamed) show(resp *a2av1.StreamResponse) {
	switch k := resp.GetPayload().(type) {
	case *a2av1.StreamResponse_Message:
		p.answered = true
		fmt.Fprintln(p.out, content(k.Message.GetParts()))
	case *a2av1.StreamResponse_Task:
		p.id, p.last = k.Task.GetId(), k.Task.GetStatus()
		p.seq = max(p.seq, a2a.RunOf(k.Task.GetMetadata()).GetSeq())
		for _, a := range k.Task.GetArtifacts() {
			p.artifact(a, false)
		}
	case *a2av1.StreamResponse_StatusUpdate:
		p.id, p.last = k.StatusUpdate.GetTaskId(), k.StatusUpdate.GetStatus()
		p.seq = max(p.seq, a2a.RunOf(k.StatusUpdate.GetMetadata()).GetSeq())
	case *a2av1.StreamResponse_ArtifactUpdate:
		p.seq = max(p.seq, a2a.RunOf(k.ArtifactUpdate.GetMetadata()).GetSeq())
		p.artifact(k.ArtifactUpdate.GetArtifact(), k.ArtifactUpdate.GetAppend())
	}
}

// artifact prints what is new of an artifact: a piece that adds to it, or all of it
// that was not printed yet. What adds to nothing that was printed last begins a line
// of its own.
func (p *streamed) artifact(a *a2av1.Artifact, more bool) {
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

func (p *streamed) end() {
	if p.open {
		fmt.Fprintln(p.out)
	}
	p.open = false
}

// print prints a message as JSON in one line.
func (s *Shell) print(m proto.Message) error {
	data, err := wire.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s\n", data)
	return err
}
