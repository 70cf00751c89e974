package agent

import (
	"context"
	"iter"
	"runtime/debug"
	"sync/atomic"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Func is an Agent that calls a Go function. Only ID and Call are required. It must not be copied
// or changed while it is in use.
type Func struct {
	// ID is the id of the agent; see ValidID. Required.
	ID string
	// Name is the name for people. The default is the ID.
	Name string
	// Description says what the agent does, for people and models.
	Description string
	// InputModes lists the media types of parts that the agent accepts. Nil means that they are
	// not restricted.
	InputModes []string
	// OutputModes lists the media types of parts that the agent produces. Nil means that they are
	// unknown.
	OutputModes []string
	// Skills lists what the agent can do, as in its agent card.
	Skills []*teamv1.Skill
	// MayReplyDirectly says that the agent may answer with a message instead of a task.
	MayReplyDirectly bool
	// Call does the work and returns the answer. It runs once for each attempt, and concurrently
	// for concurrent calls. It should return when ctx ends; if it does not, it keeps running but
	// its result is discarded. Users see the Reason and Message of an *Error; of any other error
	// they learn only that it happened. A panic is reported as AGENT_PANIC. Required.
	Call func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error)
	// Health returns the health of the agent. If it is nil, the agent is healthy.
	Health func(ctx context.Context) (*teamv1.Health, error)
	// Log receives what users must not see: panics and their stack traces. Nil turns logging off.
	Log *zap.Logger

	info atomic.Pointer[teamv1.AgentInfo] // created on first use
}

var _ Describer = (*Func)(nil)

// Info implements Agent. The fields of f must not be changed after the first call.
func (f *Func) Info(context.Context) (*teamv1.AgentInfo, error) { return f.KnownInfo(), nil }

// KnownInfo implements Describer.
func (f *Func) KnownInfo() *teamv1.AgentInfo {
	if f.info.Load() == nil {
		f.info.CompareAndSwap(nil, f.describe())
	}
	return f.info.Load()
}

// describe builds the Info from the fields of f.
func (f *Func) describe() *teamv1.AgentInfo {
	name := f.Name
	if name == "" {
		name = f.ID
	}
	info := &teamv1.AgentInfo{
		Id: f.ID, Name: name, Description: f.Description, Skills: f.Skills,
		Metadata: map[string]string{"type": "func"}, MayReplyDirectly: f.MayReplyDirectly,
		InputModes: f.InputModes, OutputModes: f.OutputModes,
	}
	for _, s := range f.Skills {
		info.Capabilities = append(info.Capabilities, s.GetId())
	}
	return info
}

// HealthCheck implements Agent.
func (f *Func) HealthCheck(ctx context.Context) (*teamv1.Health, error) {
	if f.Health != nil {
		return f.Health(ctx)
	}
	return Healthy(), nil
}

// Process implements Agent.
func (f *Func) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		m, err := f.call(WithBrief(ctx, req.GetBrief()), req.GetMessage())
		if err != nil {
			yield(nil, err)
			return
		}
		yield(ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Direct: f.MayReplyDirectly}), nil)
	}
}

// call runs Call in a goroutine and returns when it has, or when ctx ends. In that case the
// function, if it has begun, continues in the background.
func (f *Func) call(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
	if ctx.Done() == nil {
		return f.protected(ctx, m)
	}
	type result struct {
		m   *a2av1.Message
		err error
	}
	var decided atomic.Bool // set by whichever comes first: the start of Call, or the end of ctx
	done := make(chan result, 1)
	go func() {
		if decided.Swap(true) {
			return
		}
		m, err := f.protected(ctx, m)
		done <- result{m, err}
	}()
	select {
	case r := <-done:
		return r.m, r.err
	case <-ctx.Done():
		decided.Store(true) // Call must not start after this, because the end of the call is recorded
		return nil, context.Cause(ctx)
	}
}

// protected runs Call and turns a panic into an error.
func (f *Func) protected(ctx context.Context, m *a2av1.Message) (_ *a2av1.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(f.Log, f.ID, r)
		}
	}()
	return f.Call(ctx, m)
}

// Panicked returns the error of an agent that panicked with the value r, and logs r with the
// stack trace. It must be called by the deferred function that recovered r. A nil log is ignored.
func Panicked(log *zap.Logger, id string, r any) *Error {
	if log != nil {
		log.Error("agent panicked", zap.String("agent", id), zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	}
	return Errorf(CodeInternal, ReasonAgentPanic, "agent %q crashed on this message; the server's log says where (\"agent panicked\"): correct the agent, or leave this work to another one", id)
}

// TextFunc returns a Func with an ID and a Call that gives f the text of messages, see [Text], and answers with the text that
// f returns. Set other fields of it, such as Description, before it is used.
func TextFunc(id string, f func(ctx context.Context, text string) (string, error)) *Func {
	return &Func{ID: id, Call: func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		text, err := f(ctx, Text(m))
		if err != nil {
			return nil, err
		}
		return NewMessage(text), nil
	}}
}
