package a2a

import (
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// mayResume returns the HALTED error for a task of the caller that a halt does not let continue.
func (h *Handler) mayResume(ctx context.Context, f *Fold) error {
	who, _ := CallerOf(ctx)
	if err := h.c.Halts.Refusal(who.Owner(), f.Account(), f.Agent()); err != nil {
		return err
	}
	return h.c.Halts.InForce(f.PausedBy().GetVersion())
}

// Halted returns what became of a task or a step of any owner after a halt has reached it; see
// project.Fold.Halted. The error is TASK_NOT_FOUND or the store's.
func (h *Handler) Halted(ctx context.Context, k Key) (*teamv1.HaltedTask, error) {
	root, scope := agent.SplitTask(k.ID)
	f, err := h.journals.fold(ctx, Key{k.Owner, root}, scope)
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
func (h *Handler) Using(ctx context.Context, k Key, kind teamv1.HaltKind, names []string) ([]string, error) {
	u := &uses{kind: kind, names: names, decided: map[string]bool{}}
	var cursor int64
	for {
		page, err := h.c.Store.Events(ctx, k, cursor, pageEvents)
		if err != nil {
			return nil, storeError(k.ID, err)
		}
		for _, rec := range page {
			u.apply(rec.Event)
			cursor = rec.Seq
		}
		if len(page) < pageEvents {
			break
		}
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
