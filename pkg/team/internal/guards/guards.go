// Package guards has middlewares look at messages, and says what goes on record of it.
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

// Owner is the team or agent in whose run something happens.
type Owner struct {
	// ID and path of the agent.
	ID, Path string
	// Run that it is part of.
	Run *agent.Run
	// Log gets warnings.
	Log *zap.Logger
}

// Passage is a message on its way through a list of middlewares.
type Passage struct {
	Owner
	// Stage at which they look.
	Stage teamv1.Checked_Stage
	// Scope of the events.
	Scope string
	// Member that is given the message or has answered with it.
	Member string
	// Ref is the sequence of the event that brought the message.
	Ref int64
	// Guards are the middlewares. Looked says how many of them have looked, by the record.
	Guards []agent.Guard
	Looked int
	// Message as it is now, and Seq of the event that holds it; 0: it is as it came.
	Message *a2av1.Message
	Seq     int64
	// History that goes with it.
	History []*a2av1.Message
	// Emit puts on record what a middleware did, and returns the sequence of that.
	Emit func(*teamv1.Checked) (seq int64, err error)
}

// Screen has those middlewares look at a message that have not yet, one after
// the other, and puts on record what each did. stopped is why the message goes
// no further; an error is that of ctx, or of the journal.
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

// mayConsult makes durable what led to the message, for a middleware that may
// have effects, and holds back what was canceled meanwhile.
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

// consult asks one middleware, so that it can be left behind when ctx ends. A
// pure one is quick.
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

// try turns a panic of a middleware into its failure.
func (g *Passage) try(ctx context.Context, m agent.Middleware, in *agent.Passing) (v agent.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause := agent.Panicked(g.Log, m.Name(), r)
			err = agent.Errorf(agent.CodeInternal, agent.ReasonAgentPanic, "it crashed on this message; the log says where").Because(cause)
		}
	}()
	return m.Check(ctx, in)
}

// verdict is what goes on record of what a middleware said.
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
		c.Message = g.Run.Completed(g.Scope, g.Message) // nothing else has it on record yet
	}
	return c
}

// changed adds what a middleware has changed.
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

// passed is what a middleware made of a message: an input stays the message that
// it was, an answer becomes one of its own.
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

// blocked is the error of a message that a guardrail has stopped.
func (g *Passage) blocked(by, reason string) *agent.Error {
	return agent.Blocked("guardrail %q stopped %s: %s", by, g.subject(), reason).With("guardrail", by).With("stage", StageWord(g.Stage))
}

// failedMiddleware is what is told of a middleware that failed.
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
	g.Log.Warn("middleware failed", zap.String("middleware", c.GetBy()), zap.String("agent", g.Path),
		zap.String("stage", StageWord(g.Stage)), zap.Bool("abort", c.GetBlocked()), zap.Error(err))
	return agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "middleware %q failed on %s: %s; %s", c.GetBy(), g.subject(), why, follows)
}

// subject names a message for people.
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

// StageWord is a stage in a word: input, output, delegation, result.
func StageWord(s teamv1.Checked_Stage) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STAGE_"))
}
