package step

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// delegate calls an agent with the step's message and emits the events that it yields.
func (w *Work) delegate(ctx context.Context) (res Result) {
	req, run, resumed := w.request(), w.by.Run, w.by.Run.Resumed()
	ctx = agent.WithDepth(ctx, int(req.GetDepth()))
	defer w.recovered(w.Step.GetMember(), &res)
	for ev, err := range w.Target.Agent.Process(ctx, req) {
		if err != nil {
			return Result{Err: err}
		}
		w.heard = w.heard || ev.GetStarted() == nil && ev.GetRetried() == nil // these come before an answer
		if reply := ev.GetReply(); reply != nil && ev.GetScope() == w.Scope {
			res.Reply = reply
			continue
		}
		if ev.GetDelta() != nil && len(w.by.Guards.Result) > 0 { // withheld until result middlewares have checked the answer
			continue
		}
		if e := ev.GetEnded(); e.GetError() != nil && e.GetTurn() != nil && len(w.by.Guards.Result)+len(w.by.Guards.Output) > 0 { // likewise what there is of a turn
			e.Result = nil
		}
		if err := w.emit(ev); err != nil {
			return Result{Err: ErrStopped}
		}
		w.remember(ev)
	}
	switch {
	case res.Reply != nil:
		return res
	case stopsRecording(context.Cause(ctx)): // even if it has asked a question: other work below it was interrupted
		return Result{Err: ErrStopped}
	case !w.Target.Leaf && run.PausedSince(resumed): // paused, even if ctx ended meanwhile
		return Result{}
	case len(w.Asked.Open()) > 0: // even if ctx ended meanwhile: a cancel closes the open work of the member separately
		return Result{}
	case ctx.Err() != nil:
		return Result{Err: context.Cause(ctx)}
	case run.PausedSince(resumed): // something below it is paused
		return Result{}
	}
	return Result{Err: agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed,
		"member %q ended without an answer; its agent has to end with a reply, a question or an error", w.Step.GetMember())}
}

// request returns the request for an agent: the message, and the history that the member's history
// scope shows.
func (w *Work) request() *teamv1.ProcessRequest {
	of, key := w.by.Request, w.key()
	alloc := &requestAlloc{}
	m, req := &alloc.message, &alloc.request
	m.MessageId, m.ContextId, m.Role = key, w.Input.GetContextId(), a2av1.Role_ROLE_USER
	m.Parts, m.Metadata = w.Input.GetParts(), w.Input.GetMetadata()
	req.AgentId, req.Message, req.ContextId, req.Key = w.Step.GetMember(), m, of.GetContextId(), key
	req.History, req.Transfers, req.Branch = w.History, w.Transfers, w.Branch
	req.Path, req.Depth, req.Brief = w.by.Above, of.GetDepth()+1, of.GetBrief()
	if w.Step.GetKind() == teamv1.Step_KIND_ROUND { // in the place of the delegation
		req.Path, req.Depth = of.GetPath(), of.GetDepth()
	}
	req.Scope, req.Recorded, req.Envelope = w.Scope, w.Recorded, w.cost.hold.Envelope()
	if !w.Deadline.IsZero() {
		alloc.deadline.Seconds, alloc.deadline.Nanos = w.Deadline.Unix(), int32(w.Deadline.Nanosecond()) //nolint:gosec // less than 1e9
		req.Deadline = &alloc.deadline
	}
	return req
}

// requestAlloc is a request with its message and deadline in a single allocation.
type requestAlloc struct {
	request  teamv1.ProcessRequest
	message  a2av1.Message
	deadline timestamppb.Timestamp
}

// DetachedID returns the id of the task that a detached step becomes.
func DetachedID(root, scope string) string { return (&agent.Run{Root: root}).ID(scope, "detached", 1) }

// detach starts a member's work as a task of its own. The step ends with that: nothing waits for
// the task here.
func (w *Work) detach(ctx context.Context) Result {
	d, member := w.by.Run.Detacher, w.Step.GetMember()
	if d == nil {
		return Result{Err: agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
			"member %q cannot work as a task of its own without a server; serve the team, or use another policy for open delegations", member)}
	}
	s := &teamv1.Spawned{
		TaskId: DetachedID(w.by.Run.Root, w.Scope), Agent: w.Target.AgentID, Input: w.Input, Member: member, Team: w.by.ID, Budget: w.Reserved,
		Budgets: w.by.Budget.budget.Shared(),
	}
	if w.by.Wakes {
		s.Lead = w.by.ID
	}
	if err := d.Detach(ctx, s); err != nil {
		return Result{Err: err}
	}
	if err := w.emit(w.event(&teamv1.Event{Kind: &teamv1.Event_Spawned{Spawned: s}})); err != nil {
		return Result{Err: ErrStopped}
	}
	text := "Under way as " + s.GetTaskId() + "."
	return Result{Reply: &teamv1.Reply{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Reply_Message{Message: agent.NewMessage(text)}}}
}
