package drive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tasks is what runs need of who serves the tasks of their owners: they begin tasks of
// their own, and hear how these ended. *a2a.Handler is one. Safe for concurrent use.
type Tasks interface {
	// Begin puts a task on record, due to run. accepted says all of it but the pins and
	// the conversation, which Begin adds to it; its task id is the key: again with the
	// same id begins nothing. Errors: AGENT_NOT_FOUND, else the store's.
	Begin(ctx context.Context, accepted *teamv1.Accepted) error
	// Outcome returns how a task ended, with its reply as a message; nil while it has
	// not. Errors are those of the caller of a task: TASK_NOT_FOUND, the store's.
	Outcome(ctx context.Context, k a2a.Key) (*teamv1.Ended, error)
}

var _ agent.Detacher = (*drive)(nil)

// Detach begins a task of the run's owner in its conversation. It implements
// agent.Detacher.
func (d *drive) Detach(ctx context.Context, s *teamv1.Spawned) error {
	acc := d.successor(s.GetTaskId(), s.GetAgent(), s.GetInput().GetParts())
	acc.Limits = agent.PartLimits(s.GetBudget())
	acc.Collaboration = d.accepted.GetCollaboration()
	acc.Detached = &teamv1.Detached{Parent: d.claim.Root, Member: s.GetMember(), Lead: s.GetLead(), Team: s.GetTeam()}
	if err := d.Tasks.Begin(ctx, acc); err != nil {
		return a2a.StoreError(acc.GetTaskId(), err)
	}
	return nil
}

// Detached implements agent.Detacher.
func (d *drive) Detached(ctx context.Context, taskID string) (*teamv1.Ended, error) {
	return d.Tasks.Outcome(ctx, a2a.Key{Owner: d.claim.Owner, ID: taskID})
}

// wakeLead has the agent that detached the task hear of its end: a task of its
// own, in the same conversation. It is begun before the end is on record, so that
// a crash between the two loses nothing; its id is that of the task that ended, so
// that there is one.
func (d *drive) wakeLead(ctx context.Context, e *teamv1.Ended) error {
	origin := d.accepted.GetDetached()
	if origin.GetLead() == "" || d.Tasks == nil {
		return nil
	}
	acc := d.successor(d.run.ID("", "wake", 1), origin.GetLead(), d.news(e))
	err := d.Tasks.Begin(ctx, acc)
	var known *agent.Error
	if errors.As(err, &known) && known.Reason == agent.ReasonAgentNotFound {
		d.Log.Warn("nobody to tell of the end of a detached task", zap.String("task", d.claim.Root), zap.Error(err))
		return nil
	}
	if err != nil {
		return d.journalError(err)
	}
	return nil
}

// news is what the lead is told; a long result by reference.
func (d *drive) news(e *teamv1.Ended) []*a2av1.Part {
	text := agent.Text(e.GetReply())
	switch {
	case e.GetError() != nil:
		text = e.GetError().GetReason() + ": " + e.GetError().GetMessage()
	case e.GetReplyRef() > 0:
		texts := journal.TextsOf(d.claim.Root, d.recorded)
		text = agent.Text(texts.At(e.GetReplyRef()))
	}
	head := fmt.Sprintf("The task %s that %s was given has ended: %s.", d.claim.Root, d.accepted.GetDetached().GetMember(), taskstate.Word(e.GetOutcome()))
	return agent.ResultParts(head, text, d.claim.Root)
}

// successor is a task that follows from this one: of its owner and in its
// conversation, one level deeper, so that tasks that begin each other come to an end.
func (d *drive) successor(id, agentID string, parts []*a2av1.Part) *teamv1.Accepted {
	acc := d.accepted
	return &teamv1.Accepted{
		TaskId: id, Agent: agentID, Owner: acc.GetOwner(), Seed: rand.Int64(), Depth: acc.GetDepth() + 1, Trace: acc.GetTrace(), //nolint:gosec // jitter, not a secret
		Message: &a2av1.Message{
			MessageId: id, ContextId: acc.GetMessage().GetContextId(), Role: a2av1.Role_ROLE_USER, Parts: parts,
			ReferenceTaskIds: []string{d.claim.Root},
		},
	}
}
