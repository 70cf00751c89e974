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

// Func is an agent made of a Go func. The zero value of every field but ID and
// Call is usable. It must not be copied or changed while it is in use.
type Func struct {
	// ID of the agent. Required.
	ID string
	// Name for people; default: the ID.
	Name string
	// Description says what the agent does.
	Description string
	// InputModes are the media types that it takes; nil takes everything.
	InputModes []string
	// OutputModes are the media types that it answers with; nil says nothing.
	OutputModes []string
	// Skills it offers.
	Skills []*teamv1.Skill
	// MayReplyDirectly: a message may be answered without a task.
	MayReplyDirectly bool
	// Call does the work. It runs once per attempt and should end with ctx;
	// when it does not, it is left behind and its late result is dropped. A
	// returned *Error reaches the caller; of any other only that it happened.
	Call func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error)
	// Health says how it is; default: healthy.
	Health func(ctx context.Context) (*teamv1.Health, error)
	// Log gets what callers must not see: panics with their stack.
	Log *zap.Logger

	info atomic.Pointer[teamv1.AgentInfo] // made when it is first asked for
}

var _ Describer = (*Func)(nil)

// Info implements Agent. The fields must not be changed after the first call.
func (f *Func) Info(context.Context) (*teamv1.AgentInfo, error) { return f.KnownInfo(), nil }

// KnownInfo implements Describer.
func (f *Func) KnownInfo() *teamv1.AgentInfo {
	if f.info.Load() == nil {
		f.info.CompareAndSwap(nil, f.describe())
	}
	return f.info.Load()
}

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

// call runs the func so that it can be left behind when ctx ends.
func (f *Func) call(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
	if ctx.Done() == nil {
		return f.protected(ctx, m)
	}
	type result struct {
		m   *a2av1.Message
		err error
	}
	var decided atomic.Bool // that it is called, or that it is not
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
		decided.Store(true) // what has not begun by now must not: the end goes on record
		return nil, context.Cause(ctx)
	}
}

// protected turns a panic of the func into an error.
func (f *Func) protected(ctx context.Context, m *a2av1.Message) (_ *a2av1.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(f.Log, f.ID, r)
		}
	}()
	return f.Call(ctx, m)
}

// Panicked is the error of an agent that panicked; the panic and its stack go to the log.
func Panicked(log *zap.Logger, id string, r any) *Error {
	if log != nil {
		log.Error("agent panicked", zap.String("agent", id), zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	}
	return Errorf(CodeInternal, ReasonAgentPanic, "agent %q crashed on this message; the server's log says where (\"agent panicked\"): correct the agent, or leave this work to another one", id)
}
