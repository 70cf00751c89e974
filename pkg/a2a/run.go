package a2a

import (
	"context"
	"errors"
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// The operations in this file are for what drives runs and halts them. They check no caller.

// Begin creates a task that results from a run: a detached task, or the task that reports the end of a detached task
// to the agent that started it. On entry acc has the pins of the run that begins the task; Begin replaces them by the
// current ones and adds the conversation. If the id of the agent belongs to another account now, Begin returns
// AGENT_NOT_FOUND; also if its revision differs, unless the account of the owner may use it. No other permission is
// checked.
// Begin is idempotent: if there is a task with this id, it does nothing, even if the message differs. Errors:
// AGENT_NOT_FOUND, and errors of the store.
func (h *Handler) Begin(ctx context.Context, acc *teamv1.Accepted) error {
	a, err := h.agents.lookup(ctx, acc.GetAgent())
	if err != nil {
		return err
	}
	acc.Conversation = conversation(ctx, h.c.Conversations, a, runs.Thread{Owner: acc.GetOwner(), ContextID: acc.GetMessage().GetContextId()}, false)
	before := acc.GetPins()
	if acc.Pins, err = h.agents.pins(ctx, acc.GetAgent()); err != nil {
		return err
	}
	changed := acc.GetPins().GetRevisions()[acc.GetAgent()] != before.GetRevisions()[acc.GetAgent()]
	if !sameMaker(before, acc.GetPins(), acc.GetAgent()) || changed && !h.agents.allowsRuns(acc.GetOwner(), acc.GetAgent()) {
		return h.agents.notFound(ctx, acc.GetAgent())
	}
	if err := h.agents.pinTeam(ctx, before, acc); err != nil {
		return err
	}
	digest, err := digestOf(acc.GetAgent(), acc.GetMessage())
	if err != nil {
		return err
	}
	_, _, err = h.c.Store.Create(ctx, runs.New{Owner: acc.GetOwner(), Accepted: acc, MessageID: acc.GetTaskId(), Digest: digest})
	h.c.Wake()                                         // also after an error: the task may have been recorded
	if err != nil && !errors.Is(err, runs.ErrReused) { // with another text, if the end was reported twice
		return fmt.Errorf("begin task %s: %w", acc.GetTaskId(), err)
	}
	return nil
}

// Outcome returns how a root task has ended, including its reply message. It returns nil and no
// error if the task has not ended. Errors: TASK_NOT_FOUND, and errors of the store.
func (h *Handler) Outcome(ctx context.Context, k runs.Key) (*teamv1.Ended, error) {
	if st, err := h.tasks.standing(ctx, "", k); err != nil || !taskstate.Final(st.State) {
		return nil, err
	}
	f, err := h.tasks.fold(ctx, k, "")
	if err != nil || f.Ended() == nil {
		return nil, err
	}
	return &teamv1.Ended{
		Outcome: f.Ended().GetOutcome(), Error: f.Ended().GetError(), Spent: f.Ended().GetSpent(), Result: &teamv1.Ended_Reply{Reply: f.Answer()},
	}, nil
}

// Halted returns what became of a task or a step of any owner after a halt has reached it; see
// project.Fold.Halted. The error is TASK_NOT_FOUND or the store's.
func (h *Handler) Halted(ctx context.Context, k runs.Key) (*teamv1.HaltedTask, error) {
	root, scope := agent.SplitTask(k.ID)
	f, err := h.tasks.fold(ctx, runs.Key{Owner: k.Owner, ID: root}, scope)
	if err != nil {
		return nil, err
	}
	t := &teamv1.HaltedTask{TaskId: k.ID, Owner: k.Owner}
	t.State, t.Agent, t.Receipt = f.Halted()
	return t, nil
}

// Using returns the ids of the steps of a task of any owner that use a subject of a kind with one of the names and have
// not ended, or have ended because it is halted. Members are known by their ids. The error is TASK_NOT_FOUND or the
// store's.
func (h *Handler) Using(ctx context.Context, k runs.Key, kind teamv1.HaltKind, names []string) ([]string, error) {
	u := &uses{kind: kind, names: names, decided: map[string]bool{}}
	for ev, err := range h.feeds.Recorded(ctx, k.Owner, k.ID) {
		if err != nil {
			return nil, err
		}
		u.apply(ev)
	}
	var ids []string
	for _, scope := range u.open {
		ids = append(ids, agent.ChildTask(k.ID, scope))
	}
	return ids, nil
}

// uses are the steps of a journal that use a subject.
type uses struct {
	kind    teamv1.HaltKind
	names   []string
	decided map[string]bool // scopes of steps that will use it
	open    []string        // scopes of those that have begun, in that order
}

// apply applies the next event.
func (u *uses) apply(ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		for _, s := range k.Decided.GetSteps() {
			if u.covers(s) {
				u.decided[agent.Scope(ev.GetScope(), s.GetId())] = true
			}
		}
	case *teamv1.Event_Started:
		model := u.kind == teamv1.HaltKind_HALT_KIND_MODEL && slices.Contains(u.names, k.Started.GetModel())
		if (model || u.decided[ev.GetScope()]) && !slices.Contains(u.open, ev.GetScope()) {
			u.open = append(u.open, ev.GetScope())
		}
	case *teamv1.Event_Ended:
		if k.Ended.GetError().GetReason() != agent.ReasonHalted {
			u.open = slices.DeleteFunc(u.open, func(scope string) bool { return scope == ev.GetScope() })
		}
	}
}

// covers reports whether a step uses the subject, unless that is a model.
func (u *uses) covers(s *teamv1.Step) bool {
	switch u.kind {
	case teamv1.HaltKind_HALT_KIND_TOOL:
		return s.GetKind() == teamv1.Step_KIND_TOOL && slices.Contains(u.names, s.GetName())
	case teamv1.HaltKind_HALT_KIND_TEAM, teamv1.HaltKind_HALT_KIND_AGENT:
		return agent.IsDelegation(s.GetKind()) && slices.Contains(u.names, s.GetMember())
	default:
		return false
	}
}
