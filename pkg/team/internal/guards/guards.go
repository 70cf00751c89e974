// Package guards passes messages through middlewares and records the results.
package guards

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Owner is the team or agent whose run passes a message.
type Owner struct {
	// ID and path of the agent.
	ID, Path string
	// Run that the agent works for.
	Run *agent.Run
	// Log receives warnings.
	Log *zap.Logger
}

// Passage passes one message through a list of middlewares. Not safe for concurrent use.
type Passage struct {
	Owner
	// Stage at which the message is checked.
	Stage teamv1.Checked_Stage
	// Scope of the recorded events.
	Scope string
	// Member that is given the message or has answered with it; empty for the owner's own messages.
	Member string
	// Ref is the sequence number of the event that brought the message.
	Ref int64
	// Guards are the middlewares, and Looked the number of them that have checked the message,
	// according to the record.
	Guards []agent.Guard
	Looked int
	// Message with the changes so far, and Seq the sequence number of the event that holds it; 0 if
	// it is unchanged.
	Message *a2av1.Message
	Seq     int64
	// History that is shown along with the message.
	History []*a2av1.Message
	// Emit records what a middleware did and returns the sequence number of the event.
	Emit func(*teamv1.Checked) (seq int64, err error)
}

// Screen passes the message through the remaining middlewares in order, and records what each one
// did. stopped says why the message was blocked; nil if it was not. err is the cause of ctx, a
// cancel, or an error of the journal.
func (g *Passage) Screen(ctx context.Context) (stopped *agent.Error, err error) {
	for ; g.Looked < len(g.Guards); g.Looked++ {
		guard := &g.Guards[g.Looked]
		if err := g.mayConsult(ctx, guard); err != nil {
			return nil, err
		}
		v, err := g.consult(ctx, guard)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := g.verdict(guard, v, err)
		seq, err := g.Emit(c)
		if err != nil {
			return nil, err
		}
		if c.GetBlocked() {
			return agent.FromProto(c.GetError()), nil
		}
		if c.GetMessage() != nil {
			g.Message, g.Seq = c.GetMessage(), seq
		}
		if c.GetHistory() != nil {
			g.History = c.GetHistory().GetMessages()
		}
	}
	return nil, nil
}

// mayConsult prepares the call of a middleware that may have effects: it makes durable what led to
// the message, and returns an error if the scope was canceled meanwhile.
func (g *Passage) mayConsult(ctx context.Context, guard *agent.Guard) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if guard.Pure {
		return nil
	}
	if err := agent.Commit(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return g.Run.Begin(g.Scope)
}

// consult calls one middleware. A pure one is fast and called directly. Any other is called in a
// goroutine with copies of the messages, so that consult can return when ctx ends.
func (g *Passage) consult(ctx context.Context, guard *agent.Guard) (agent.Verdict, error) {
	in := &agent.Passing{
		Stage: g.Stage, Agent: g.Path, Member: g.Member, Message: g.Message, History: g.History,
		Key: g.Run.ID(g.Scope, "check/"+StageWord(g.Stage)+"/"+strconv.FormatInt(g.Ref, 10), int64(g.Looked+1)),
	}
	if guard.Pure {
		return g.try(ctx, guard.Middleware, in)
	}
	in.Message, in.History = proto.CloneOf(g.Message), cloned(g.History)
	var v agent.Verdict
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = g.try(ctx, guard.Middleware, in)
	}()
	select {
	case <-done:
		return v, err
	case <-ctx.Done():
		return agent.Verdict{}, context.Cause(ctx)
	}
}

// try calls a middleware and returns a panic as its error.
func (g *Passage) try(ctx context.Context, m agent.Middleware, in *agent.Passing) (v agent.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause := agent.Panicked(g.Log, m.Name(), r)
			err = agent.Errorf(agent.CodeInternal, agent.ReasonAgentPanic, "it crashed on this message; the log says where").Because(cause)
		}
	}()
	return m.Check(ctx, in)
}

// verdict returns the record of what a middleware did.
func (g *Passage) verdict(guard *agent.Guard, v agent.Verdict, err error) *teamv1.Checked {
	c := &teamv1.Checked{Stage: g.Stage, By: guard.Middleware.Name(), Ref: g.Ref}
	switch {
	case err != nil:
		c.Blocked = guard.OnFailure == agent.Abort
		c.Error = g.failedMiddleware(c, err).Proto()
	case v.Block != "":
		c.Blocked = true
		c.Error = g.blocked(c.GetBy(), v.Block).Proto()
	default:
		g.changed(c, v)
	}
	if g.Stage == teamv1.Checked_STAGE_RESULT && !c.GetBlocked() && c.GetMessage() == nil && g.Seq == 0 {
		c.Message = g.Run.Completed(g.Scope, g.Message) // the first record of the answer
	}
	return c
}

// changed adds the changes of a middleware to the record.
func (g *Passage) changed(c *teamv1.Checked, v agent.Verdict) {
	if v.Message != nil {
		if is := g.passed(v.Message); !proto.Equal(is, g.Message) {
			c.Message = is
		}
	}
	if v.History != nil && g.Stage == teamv1.Checked_STAGE_DELEGATION && !slices.EqualFunc(v.History, g.History, equalMessages) {
		c.History = &teamv1.Checked_Shown{Messages: v.History}
	}
}

func equalMessages(a, b *a2av1.Message) bool { return proto.Equal(a, b) }

func cloned(ms []*a2av1.Message) []*a2av1.Message {
	out := make([]*a2av1.Message, len(ms))
	for i, m := range ms {
		out[i] = proto.CloneOf(m)
	}
	return out
}

// passed returns a message with a middleware's changes. A changed input keeps its id; a changed
// answer gets a new one.
func (g *Passage) passed(is *a2av1.Message) *a2av1.Message {
	m := &a2av1.Message{
		MessageId: g.Message.GetMessageId(), ContextId: g.Message.GetContextId(), TaskId: g.Message.GetTaskId(), Role: g.Message.GetRole(),
		Parts: is.GetParts(), Metadata: is.GetMetadata(), Extensions: is.GetExtensions(), ReferenceTaskIds: g.Message.GetReferenceTaskIds(),
	}
	if g.Stage == teamv1.Checked_STAGE_INPUT || g.Stage == teamv1.Checked_STAGE_DELEGATION || proto.Equal(m, g.Message) {
		return m
	}
	m.MessageId = ""
	return g.Run.Completed(g.Scope, m)
}

// blocked returns the error of a message that a guardrail blocked.
func (g *Passage) blocked(by, reason string) *agent.Error {
	return agent.Blocked("guardrail %q stopped %s: %s", by, g.subject(), reason).With("guardrail", by).With("stage", StageWord(g.Stage))
}

// failedMiddleware logs and returns the error of a middleware that failed.
func (g *Passage) failedMiddleware(c *teamv1.Checked, err error) *agent.Error {
	why := "the log says why"
	var known *agent.Error
	if errors.As(err, &known) {
		why = known.Message
	}
	follows := "the message goes on as it was"
	if c.GetBlocked() {
		follows = "the message goes no further; correct the middleware, or have it continue on failure"
	}
	g.Log.Warn("middleware failed", zap.String("task", g.Run.Root), zap.String("middleware", c.GetBy()), zap.String("agent", g.Path),
		zap.String("stage", StageWord(g.Stage)), zap.Bool("abort", c.GetBlocked()), zap.Error(err))
	return agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "middleware %q failed on %s: %s; %s", c.GetBy(), g.subject(), why, follows)
}

// subject describes the message for people.
func (g *Passage) subject() string {
	switch g.Stage {
	case teamv1.Checked_STAGE_OUTPUT:
		return "the answer of " + strconv.Quote(g.ID)
	case teamv1.Checked_STAGE_DELEGATION:
		return "what member " + strconv.Quote(g.Member) + " of team " + strconv.Quote(g.ID) + " is given"
	case teamv1.Checked_STAGE_RESULT:
		return "the answer of member " + strconv.Quote(g.Member) + " of team " + strconv.Quote(g.ID)
	case teamv1.Checked_STAGE_INPUT, teamv1.Checked_STAGE_UNSPECIFIED:
	}
	return "the input of " + strconv.Quote(g.ID)
}

// StageWord returns a stage as a word: input, output, delegation or result.
func StageWord(s teamv1.Checked_Stage) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STAGE_"))
}
