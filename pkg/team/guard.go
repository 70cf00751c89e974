package team

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

// passage is a message on its way through a list of middlewares.
type passage struct {
	by     *runner
	stage  teamv1.Checked_Stage
	scope  string // of the events
	member string // that is given the message or has answered with it
	ref    int64  // of the event that brought the message
	guards []agent.Guard
	looked int              // so many have looked, by the record
	m      *a2av1.Message   // as it is now
	seq    int64            // of the event that holds m; 0: m is as it came
	said   []*a2av1.Message // the history that goes with it
	emit   func(*teamv1.Checked) (seq int64, err error)
}

// screen has those middlewares look at a message that have not yet, one after
// the other, and puts on record what each did. stopped is why the message goes
// no further; an error is that of ctx, or of the journal.
func (g *passage) screen(ctx context.Context) (stopped *agent.Error, err error) {
	for ; g.looked < len(g.guards); g.looked++ {
		guard := &g.guards[g.looked]
		if err := g.mayConsult(ctx, guard); err != nil {
			return nil, err
		}
		v, err := g.consult(ctx, guard)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := g.verdict(guard, v, err)
		seq, err := g.emit(c)
		if err != nil {
			return nil, err
		}
		if c.GetBlocked() {
			return agent.FromProto(c.GetError()), nil
		}
		if c.GetMessage() != nil {
			g.m, g.seq = c.GetMessage(), seq
		}
		if c.GetHistory() != nil {
			g.said = c.GetHistory().GetMessages()
		}
	}
	return nil, nil
}

// mayConsult makes durable what led to the message, for a middleware that may
// have effects, and holds back what was canceled meanwhile.
func (g *passage) mayConsult(ctx context.Context, guard *agent.Guard) error {
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
	return g.by.run.Begin(g.scope)
}

// consult asks one middleware, so that it can be left behind when ctx ends. A
// pure one is quick.
func (g *passage) consult(ctx context.Context, guard *agent.Guard) (agent.Verdict, error) {
	in := &agent.Passing{
		Stage: g.stage, Agent: g.by.path, Member: g.member, Message: g.m, History: g.said,
		Key: g.by.run.ID(g.scope, "check/"+stageWord(g.stage)+"/"+strconv.FormatInt(g.ref, 10), int64(g.looked+1)),
	}
	if guard.Pure {
		return g.try(ctx, guard.Middleware, in)
	}
	in.Message, in.History = proto.CloneOf(g.m), cloned(g.said)
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
func (g *passage) try(ctx context.Context, m agent.Middleware, in *agent.Passing) (v agent.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			cause := agent.Panicked(g.by.cfg.Log, m.Name(), r)
			err = agent.Errorf(agent.CodeInternal, agent.ReasonAgentPanic, "it crashed on this message; the log says where").Because(cause)
		}
	}()
	return m.Check(ctx, in)
}

// verdict is what goes on record of what a middleware said.
func (g *passage) verdict(guard *agent.Guard, v agent.Verdict, err error) *teamv1.Checked {
	c := &teamv1.Checked{Stage: g.stage, By: guard.Middleware.Name(), Ref: g.ref}
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
	if g.stage == teamv1.Checked_STAGE_RESULT && !c.GetBlocked() && c.GetMessage() == nil && g.seq == 0 {
		c.Message = g.by.run.Completed(g.scope, g.m) // nothing else has it on record yet
	}
	return c
}

// changed adds what a middleware has changed.
func (g *passage) changed(c *teamv1.Checked, v agent.Verdict) {
	if v.Message != nil {
		if is := g.passed(v.Message); !proto.Equal(is, g.m) {
			c.Message = is
		}
	}
	if v.History != nil && g.stage == teamv1.Checked_STAGE_DELEGATION && !slices.EqualFunc(v.History, g.said, equalMessages) {
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
func (g *passage) passed(is *a2av1.Message) *a2av1.Message {
	m := &a2av1.Message{
		MessageId: g.m.GetMessageId(), ContextId: g.m.GetContextId(), TaskId: g.m.GetTaskId(), Role: g.m.GetRole(),
		Parts: is.GetParts(), Metadata: is.GetMetadata(), Extensions: is.GetExtensions(), ReferenceTaskIds: g.m.GetReferenceTaskIds(),
	}
	if g.stage == teamv1.Checked_STAGE_INPUT || g.stage == teamv1.Checked_STAGE_DELEGATION || proto.Equal(m, g.m) {
		return m
	}
	m.MessageId = ""
	return g.by.run.Completed(g.scope, m)
}

// blocked is the error of a message that a guardrail has stopped.
func (g *passage) blocked(by, reason string) *agent.Error {
	return agent.Blocked("guardrail %q stopped %s: %s", by, g.subject(), reason).With("guardrail", by).With("stage", stageWord(g.stage))
}

// failedMiddleware is what is told of a middleware that failed.
func (g *passage) failedMiddleware(c *teamv1.Checked, err error) *agent.Error {
	why := "the log says why"
	var known *agent.Error
	if errors.As(err, &known) {
		why = known.Message
	}
	follows := "the message goes on as it was"
	if c.GetBlocked() {
		follows = "the message goes no further; correct the middleware, or have it continue on failure"
	}
	g.by.cfg.Log.Warn("middleware failed", zap.String("middleware", c.GetBy()), zap.String("agent", g.by.path),
		zap.String("stage", stageWord(g.stage)), zap.Bool("abort", c.GetBlocked()), zap.Error(err))
	return agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "middleware %q failed on %s: %s; %s", c.GetBy(), g.subject(), why, follows)
}

// subject names a message for people.
func (g *passage) subject() string {
	switch g.stage {
	case teamv1.Checked_STAGE_OUTPUT:
		return "the answer of " + strconv.Quote(g.by.cfg.ID)
	case teamv1.Checked_STAGE_DELEGATION:
		return "what member " + strconv.Quote(g.member) + " of team " + strconv.Quote(g.by.cfg.ID) + " is given"
	case teamv1.Checked_STAGE_RESULT:
		return "the answer of member " + strconv.Quote(g.member) + " of team " + strconv.Quote(g.by.cfg.ID)
	case teamv1.Checked_STAGE_INPUT, teamv1.Checked_STAGE_UNSPECIFIED:
	}
	return "the input of " + strconv.Quote(g.by.cfg.ID)
}

// stageWord is a stage in a word: input, output, delegation, result.
func stageWord(s teamv1.Checked_Stage) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STAGE_"))
}

// checkInput has the input middlewares look at all that has come in and that
// they have not seen.
func (p *process) checkInput(ctx context.Context) error {
	for _, a := range p.arrivals {
		if p.barred != nil {
			break
		}
		g := &passage{
			by: &p.runner, stage: teamv1.Checked_STAGE_INPUT, scope: p.Scope, ref: a.ref, guards: p.cfg.Guards.Input, looked: a.looked, m: a.m, emit: p.emitChecked,
		}
		if _, err := g.screen(ctx); err != nil {
			return p.endOfCheck(ctx, err)
		}
	}
	p.arrivals = nil
	if p.barred != nil {
		return p.barred
	}
	return nil
}

// checkOutput has the output middlewares look at the answer: what is returned is
// what is on record.
func (p *process) checkOutput(ctx context.Context, reply *teamv1.Reply) (*teamv1.Reply, error) {
	if len(p.cfg.Guards.Output) == 0 || reply.GetMessage() == nil {
		return reply, nil
	}
	if p.barred == nil {
		g := &passage{
			by: &p.runner, stage: teamv1.Checked_STAGE_OUTPUT, scope: p.Scope, guards: p.cfg.Guards.Output, looked: p.outputs, m: p.final, emit: p.emitChecked,
		}
		if _, err := g.screen(ctx); err != nil {
			return nil, p.endOfCheck(ctx, err)
		}
	}
	if p.barred != nil {
		return nil, p.barred
	}
	return p.reply(p.final), nil
}

// endOfCheck is why a look at a message of the scope itself was not finished.
func (p *process) endOfCheck(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errStopped) {
		return p.cause(ctx)
	}
	return err
}

func (p *process) emitChecked(c *teamv1.Checked) (int64, error) {
	ev := p.event("", &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: c}})
	err := p.pass(ev)
	return ev.GetSeq(), err
}

// checkGiven has the delegation middlewares look at what a member is given,
// before its first attempt. over means that the step has ended with that. ctx is
// the run's, sctx the step's.
func (r *runner) checkGiven(ctx, sctx context.Context, w *work, emit emitter) (over bool, err error) {
	if !agent.IsDelegation(w.step.GetKind()) || len(r.cfg.Guards.Delegation) == 0 || w.attempts > 0 {
		return false, nil
	}
	g := r.passageOf(w, teamv1.Checked_STAGE_DELEGATION, emit)
	g.guards, g.looked, g.m, g.seq, g.said = r.cfg.Guards.Delegation, w.checks.given, w.input, w.checks.input, w.history
	stopped := w.checks.barred
	if stopped == nil {
		stopped, err = g.screen(sctx)
	}
	switch {
	case errors.Is(err, errStopped):
		return true, err
	case err != nil && (sctx.Err() != nil || errors.Is(err, agent.ErrCanceled)):
		return true, r.fail(ctx, w, emit, err)
	case err != nil:
		return true, err
	case stopped != nil:
		return true, r.emitEnd(w, emit, endedWith(stopped, teamv1.Outcome_OUTCOME_REJECTED))
	}
	w.input, w.checks.input, w.history = g.m, g.seq, g.said
	return false, nil
}

// checkResult has the result middlewares look at what a member has answered,
// before anybody reads it.
func (r *runner) checkResult(ctx context.Context, w *work, emit emitter, res result) result {
	m := res.reply.GetMessage()
	if res.err != nil || m == nil || w.step.GetDetached() || !agent.IsDelegation(w.step.GetKind()) || len(r.cfg.Guards.Result) == 0 {
		return res
	}
	g := r.passageOf(w, teamv1.Checked_STAGE_RESULT, emit)
	g.guards, g.looked, g.m = r.cfg.Guards.Result, w.checks.results, m
	if w.checks.answer != nil { // this is what was looked at, whatever an attempt after a crash has answered
		g.m, g.seq = w.checks.answer, w.checks.answered
	}
	stopped, err := w.checks.barred, error(nil)
	if stopped == nil {
		stopped, err = g.screen(ctx)
	}
	switch {
	case err != nil:
		return result{err: err}
	case stopped != nil:
		e := *stopped
		e.Spent = res.reply.GetSpent()
		return result{err: &e}
	}
	reply := &teamv1.Reply{
		Result: &teamv1.Reply_Message{Message: g.m}, Ref: g.seq, Outcome: res.reply.GetOutcome(), Spent: res.reply.GetSpent(),
		Evidence: res.reply.GetEvidence(), Warnings: slices.Concat(res.reply.GetWarnings(), w.checks.warnings),
	}
	if !samePartsAs(g.m, m) {
		reply.Outcome = teamv1.Outcome_OUTCOME_UNSPECIFIED
	}
	return result{reply: reply}
}

func samePartsAs(a, b *a2av1.Message) bool {
	return proto.Equal(&a2av1.Message{Parts: a.GetParts()}, &a2av1.Message{Parts: b.GetParts()})
}

// passageOf is the passage of a message to or from a member.
func (r *runner) passageOf(w *work, stage teamv1.Checked_Stage, emit emitter) *passage {
	return &passage{by: r, stage: stage, scope: w.scope, member: w.step.GetMember(), emit: func(c *teamv1.Checked) (int64, error) {
		ev := r.stepEvent(w, &teamv1.Event{Kind: &teamv1.Event_Checked{Checked: c}})
		if err := emit(ev); err != nil {
			return 0, err
		}
		w.checks.warn(c)
		return ev.GetSeq(), nil
	}}
}

// silent reports whether text of the scope's own models is held back until it
// has been looked at as a whole.
func (l *Loop) silent() bool { return len(l.cfg.Guards.Output) > 0 || l.traits.WithholdsText }

// hushes reports whether text that members stream is held back until their
// answers have been looked at.
func (l *Loop) hushes() bool { return len(l.cfg.Guards.Result) > 0 }

// withholds reports whether readers of the team see nothing that members say but
// what is in the answer, which is looked at.
func (l *Loop) withholds() bool { return len(l.cfg.Guards.Output) > 0 }

// checkGuards returns what is wrong with lists of middlewares.
func checkGuards(cfg *Config) []error {
	id, g := cfg.ID, &cfg.Guards
	var faults []error
	if cfg.Scheduler != nil && cfg.Scheduler.Traits().Detaches && len(g.Result) > 0 {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
			"team %q: guards.result cannot look at work that is a task of its own; use WAIT or CANCEL for open delegations", id))
	}
	for _, l := range []struct {
		name   string
		guards []agent.Guard
	}{{"input", g.Input}, {"output", g.Output}, {"delegation", g.Delegation}, {"result", g.Result}} {
		for i := range l.guards {
			if m := l.guards[i].Middleware; m == nil || m.Name() == "" {
				faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
					"%q: guards.%s[%d] has no middleware with a name; give it one", id, l.name, i))
			}
		}
	}
	return faults
}
