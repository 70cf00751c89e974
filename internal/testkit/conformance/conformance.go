// Package conformance implements an agent for A2A conformance test kits. The kits select
// the behavior of the agent with the prefix of a message id or of a message's text.
package conformance

import (
	"context"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	defaultStreamTimeout = 2 * time.Second
	questionLife         = time.Hour
)

// Config configures an Agent.
type Config struct {
	// ID is the agent's id.
	ID string
	// StreamTimeout is how long the kit waits for a stream; 0 means 2 seconds. The behavior for
	// resubscribing takes twice as long.
	StreamTimeout time.Duration
}

// Agent behaves as the ids of messages say. It has no state and is safe for concurrent use.
type Agent struct{ cfg Config }

var _ agent.Agent = (*Agent)(nil)

// New returns an agent.
func New(cfg Config) *Agent {
	if cfg.StreamTimeout == 0 {
		cfg.StreamTimeout = defaultStreamTimeout
	}
	return &Agent{cfg}
}

// Info implements agent.Agent.
func (a *Agent) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{
		Id: a.cfg.ID, Name: "Conformance", Description: "Does what conformance kits ask for by the ids and texts of their messages.",
		Capabilities: []string{"conformance"},
		Skills:       []*teamv1.Skill{{Id: "conformance", Name: "Conformance", Description: "Every behaviour of the protocol.", Tags: []string{"test"}}},
		Metadata:     map[string]string{"type": "conformance"}, MayReplyDirectly: true,
	}, nil
}

// HealthCheck implements agent.Agent.
func (a *Agent) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

// Prefixes of behaviors: direct is that of messages that are answered without a task, and multiTurn
// that of a task that asks until it is told that it is done.
const (
	direct    = "tck-message-response"
	multiTurn = "tck-multi-turn"
)

// behaviors are the behaviors by prefix of the message's id or text. A prefix comes before shorter prefixes
// of itself.
var behaviors = []struct {
	prefix string
	do     func(context.Context, *call) error
}{
	{"tck-complete-task", func(_ context.Context, c *call) error { return c.end(c.text("Hello from TCK"), nil) }},
	{"tck-artifact-text", func(_ context.Context, c *call) error { return c.end(nil, textParts) }},
	{"tck-artifact-file-url", func(_ context.Context, c *call) error { return c.end(nil, urlParts) }},
	{"tck-artifact-file", func(_ context.Context, c *call) error { return c.end(nil, fileParts) }},
	{"tck-artifact-data", func(_ context.Context, c *call) error { return c.end(nil, dataParts) }},
	{direct, func(_ context.Context, c *call) error { return c.reply("Direct message response") }},
	{"tck-input-required", func(_ context.Context, c *call) error { return c.ask(teamv1.Asked_KIND_INPUT) }},
	{"tck-auth-required", func(_ context.Context, c *call) error { return c.ask(teamv1.Asked_KIND_AUTH) }},
	{multiTurn, func(_ context.Context, c *call) error {
		if agent.Text(c.latest()) == "done" {
			return c.end(nil, textParts)
		}
		return c.ask(teamv1.Asked_KIND_INPUT)
	}},
	{"tck-task-failure", func(context.Context, *call) error {
		return agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed, "the task fails, as its message asks")
	}},
	{"tck-long-running", func(ctx context.Context, c *call) error {
		if err := agent.Sleep(ctx, c.agent.cfg.StreamTimeout/2); err != nil {
			return err
		}
		return c.end(nil, textParts)
	}},
	{"tck-cancel", func(ctx context.Context, _ *call) error { return agent.Sleep(ctx, questionLife) }},
	{"tck-reject-task", func(context.Context, *call) error {
		return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonGuardrailBlocked, "the task is rejected, as its message id asks")
	}},
	{"tck-stream-artifact-text", func(_ context.Context, c *call) error { return c.artifact(textParts, false, true, nil) }},
	{"tck-stream-artifact-file", func(_ context.Context, c *call) error { return c.artifact(fileParts, false, true, nil) }},
	{"tck-stream-artifact-chunked", func(_ context.Context, c *call) error {
		return c.artifact(agent.TextParts("chunk-1 "), false, false, func() error { return c.artifact(agent.TextParts("chunk-2"), true, true, nil) })
	}},
	{"tck-stream-001", streamed},
	{"tck-stream-003", streamed},
	{"tck-stream-ordering-001", streamed},
	{"tck-stream-basic", streamed},
	{"tck-stream-chunked", func(_ context.Context, c *call) error {
		return c.artifact(agent.TextParts("chunk-1 "), false, false, func() error { return c.artifact(agent.TextParts("chunk-2"), true, true, nil) })
	}},
	{"tck-stream-002", func(_ context.Context, c *call) error { return c.end(nil, nil) }},
	{"test-resubscribe-message-id", func(ctx context.Context, c *call) error {
		if err := agent.Sleep(ctx, 2*c.agent.cfg.StreamTimeout); err != nil {
			return err
		}
		return c.end(nil, nil)
	}},
}

var (
	textParts = agent.TextParts("Generated text content")
	fileParts = []*a2av1.Part{{Content: &a2av1.Part_Raw{Raw: []byte("Generated file content")}, Filename: "output.txt", MediaType: "text/plain"}}
	urlParts  = []*a2av1.Part{{Content: &a2av1.Part_Url{Url: "https://example.com/output.txt"}, Filename: "output.txt", MediaType: "text/plain"}}
	dataParts = []*a2av1.Part{{Content: &a2av1.Part_Data{Data: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"key": structpb.NewStringValue("value"), "count": structpb.NewNumberValue(42),
	}})}}}
)

// streamed emits a text as an artifact while the task is working.
func streamed(_ context.Context, c *call) error { return c.artifact(textParts, false, true, nil) }

// ask asks for input or authentication. The answer selects the next step.
func (c *call) ask(kind teamv1.Asked_Kind) error {
	asked, answered := int64(0), int64(0)
	for _, ev := range c.own() {
		switch {
		case ev.GetAsked() != nil:
			asked++
		case ev.GetAnswered() != nil:
			answered++
		}
	}
	if asked > answered { // the question is recorded
		return nil
	}
	id := c.run.ID(c.req.GetScope(), "question", asked+1)
	c.emit(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{
		Question: id, Kind: kind, Expires: timestamppb.New(c.run.Now().Add(questionLife)),
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: agent.TextParts("More input is needed")},
	}}})
	return nil
}

// Process implements agent.Agent. The latest message decides: the one that began the
// task, or the latest answer to a question. A message with any other id is answered
// with its own text.
func (a *Agent) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		c := &call{agent: a, run: agent.From(ctx), req: req, yield: yield}
		if err := c.behave(ctx); err != nil && !c.left {
			yield(nil, err)
		}
	}
}

// call is one call of an agent.
type call struct {
	agent *Agent
	run   *agent.Run
	req   *teamv1.ProcessRequest
	yield func(*teamv1.Event, error) bool
	left  bool  // the consumer stopped reading
	shown int64 // number of artifact updates so far
}

func (c *call) behave(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m := c.latest()
	for _, b := range behaviors {
		if !selects(m, b.prefix) && (b.prefix != multiTurn || !selects(c.req.GetMessage(), multiTurn)) {
			continue
		}
		if !c.noted(b.prefix) {
			return nil
		}
		return b.do(ctx, c)
	}
	return c.end(nil, agent.TextParts(agent.Text(m)))
}

// selects reports whether a message selects a behavior.
func selects(m *a2av1.Message, prefix string) bool {
	return strings.HasPrefix(m.GetMessageId(), prefix) || strings.HasPrefix(agent.Text(m), prefix)
}

// latest returns the latest answer to a question of the call, or the message that
// began it.
func (c *call) latest() *a2av1.Message {
	m := c.req.GetMessage()
	for _, ev := range c.own() {
		if a := ev.GetAnswered(); a != nil {
			m = a.GetMessage()
		}
	}
	return m
}

// noted records what the agent does, which turns the call into a task before any output; for a
// direct message, nothing is recorded. It reports whether to continue.
func (c *call) noted(prefix string) bool {
	if prefix == direct || len(c.own()) > 0 {
		return true
	}
	c.emit(&teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "CONFORMANCE", Text: prefix}}})
	return !c.left
}

// own returns the recorded events of the call itself.
func (c *call) own() []*teamv1.Event {
	var own []*teamv1.Event
	for _, ev := range c.req.GetRecorded() {
		if ev.GetScope() == c.req.GetScope() {
			own = append(own, ev)
		}
	}
	return own
}

// artifact emits parts of the only artifact, unless they are recorded, and then calls then; if then
// is nil, it ends the task.
func (c *call) artifact(parts []*a2av1.Part, add, last bool, then func() error) error {
	c.shown++
	n := int64(0)
	for _, ev := range c.own() {
		if ev.GetArtifact() != nil {
			n++
		}
	}
	if n < c.shown {
		c.emit(&teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
			Artifact: &a2av1.Artifact{ArtifactId: c.run.ID(c.req.GetScope(), "artifact", 1), Name: "result", Parts: parts}, Append: add, LastChunk: last,
		}}})
	}
	switch {
	case c.left:
		return nil
	case then != nil:
		return then()
	}
	return c.end(nil, nil)
}

// reply answers with a message, without a task if possible.
func (c *call) reply(text string) error {
	c.last(&teamv1.Reply{Result: &teamv1.Reply_Message{Message: c.text(text)}, Direct: true})
	return nil
}

// end completes the task: with a status message, with parts as its result, or with neither.
func (c *call) end(status *a2av1.Message, parts []*a2av1.Part) error {
	m := c.text("")
	m.Parts = parts
	r := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Status: status}
	if len(parts) == 0 {
		r.Outcome = teamv1.Outcome_OUTCOME_EMPTY
	}
	c.last(r)
	return nil
}

func (c *call) text(text string) *a2av1.Message {
	m := agent.NewMessage(text)
	m.MessageId = c.run.ID(c.req.GetScope(), "reply", 1)
	return m
}

func (c *call) last(r *teamv1.Reply) { c.yield(agent.ReplyEvent(c.req, r), nil) }

// emit yields an event in the scope of the call.
func (c *call) emit(ev *teamv1.Event) {
	ev.Scope, ev.Agent = c.req.GetScope(), agent.Path(c.req)
	c.left = !c.yield(ev, nil)
}
