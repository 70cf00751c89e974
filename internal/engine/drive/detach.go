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
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tasks begins tasks for a run and returns how they ended. *a2a.Handler implements it. It is safe
// for concurrent use.
type Tasks interface {
	// Begin records a task that is due to run. On entry accepted has the pins of the run that begins the task; Begin
	// replaces them by the current ones and adds the conversation. A second call with the same task id has no effect.
	// The error is AGENT_NOT_FOUND, also if the id of the agent belongs to another account now, or the store's.
	Begin(ctx context.Context, accepted *teamv1.Accepted) error
	// Outcome returns how a task ended, with its reply as a message, or nil if it has not ended.
	// The error is TASK_NOT_FOUND or the store's.
	Outcome(ctx context.Context, k runs.Key) (*teamv1.Ended, error)
}

// detacher begins other tasks for a run: those that it detaches, and the one that tells the lead of a detached run how it
// has ended. It implements agent.Detacher.
type detacher struct {
	rec   *record
	funds *funds
	tasks Tasks // nil if runs cannot detach tasks
	log   *zap.Logger
}

var _ agent.Detacher = (*detacher)(nil)

// Detach begins a task with the owner and the conversation of this run. It implements
// agent.Detacher. The task shares the budgets of this run, of which it is given the part s.Budget; s.Budgets
// become those that begin with this run.
func (d *detacher) Detach(ctx context.Context, s *teamv1.Spawned) error {
	acc := d.successor(s.GetTaskId(), s.GetAgent(), s.GetInput().GetParts())
	acc.Limits = spending.PartLimits(s.GetBudget())
	acc.Collaboration = d.rec.accepted.GetCollaboration()
	acc.Detached = &teamv1.Detached{Parent: d.rec.claim.Root, Member: s.GetMember(), Lead: s.GetLead(), Team: s.GetTeam()}
	purse, err := d.funds.openPurse(ctx, nil) // if it is not open, no part has been given
	if err != nil {
		return err
	}
	s.Budgets = d.funds.ownBudgets(s.GetBudgets())
	acc.Budgets = purse.Chain(s.GetBudgets())
	part := agent.CostOf(s.GetBudget())
	if err := purse.Give(ctx, s.GetTaskId(), part, s.GetBudgets()); err != nil {
		return err
	}
	if err := d.tasks.Begin(ctx, acc); err != nil {
		var known *agent.Error
		if !errors.As(err, &known) && len(acc.GetBudgets()) > 0 { // it may have begun, with this part
			return d.rec.journalError(err)
		}
		return errors.Join(runs.StoreError(acc.GetTaskId(), err), purse.TakeBack(ctx, s.GetTaskId(), s.GetBudgets()))
	}
	return purse.Gave(ctx, s.GetTaskId(), part, s.GetBudgets())
}

// Detached returns how a detached task ended, or nil if it has not. It implements agent.Detacher.
func (d *detacher) Detached(ctx context.Context, taskID string) (*teamv1.Ended, error) {
	return d.tasks.Outcome(ctx, runs.Key{Owner: d.rec.claim.Owner, ID: taskID})
}

// wakeLead tells the agent that detached this task how it ended, by beginning a task for that agent
// in the same conversation. It does so before the end is recorded, so that a crash between the two
// loses nothing. The id of the new task is derived from this one, so that a second call begins no
// second task.
func (d *detacher) wakeLead(ctx context.Context, e *teamv1.Ended) error {
	origin := d.rec.accepted.GetDetached()
	if origin.GetLead() == "" || d.tasks == nil {
		return nil
	}
	acc := d.successor(d.rec.run.ID("", "wake", 1), origin.GetLead(), d.news(e))
	acc.Budgets = d.rec.accepted.GetBudgets()
	err := d.tasks.Begin(ctx, acc)
	var known *agent.Error
	if errors.As(err, &known) && known.Reason == agent.ReasonAgentNotFound {
		d.log.Warn("the agent that started a detached task is no longer served and cannot be notified of its end", zap.Error(err))
		return nil
	}
	if err != nil {
		return d.rec.journalError(err)
	}
	return nil
}

// news returns the message that tells the lead how the task ended. A long result is referred to by
// the id of the task.
func (d *detacher) news(e *teamv1.Ended) []*a2av1.Part {
	text := agent.Text(e.GetReply())
	switch {
	case e.GetError() != nil:
		text = e.GetError().GetReason() + ": " + e.GetError().GetMessage()
	case e.GetReplyRef() > 0:
		texts := journal.TextsOf(d.rec.claim.Root, d.rec.events)
		text = agent.Text(texts.At(e.GetReplyRef()))
	}
	head := fmt.Sprintf("The task %s that %s was given has ended: %s.", d.rec.claim.Root, d.rec.accepted.GetDetached().GetMember(), taskstate.Word(e.GetOutcome()))
	return agent.ResultParts(head, text, d.rec.claim.Root)
}

// successor returns a task with the owner and the conversation of this one. It is one level deeper,
// so that the limit on depth also bounds tasks that begin each other.
func (d *detacher) successor(id, agentID string, parts []*a2av1.Part) *teamv1.Accepted {
	acc := d.rec.accepted
	return &teamv1.Accepted{
		TaskId: id, Agent: agentID, Owner: acc.GetOwner(), Seed: rand.Int64(), Depth: acc.GetDepth() + 1, Trace: acc.GetTrace(), Pins: acc.GetPins(), //nolint:gosec // jitter, not a secret
		Message: &a2av1.Message{
			MessageId: id, ContextId: acc.GetMessage().GetContextId(), Role: a2av1.Role_ROLE_USER, Parts: parts,
			ReferenceTaskIds: []string{d.rec.claim.Root},
		},
	}
}
