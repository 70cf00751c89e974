package a2a

import (
	"context"
	"errors"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// What a stop without results hides (R-001-42): all that members said, asked and
// decided, and what was made of that. That something was done stays, with outcomes, the
// kinds of errors, times and cost; and so does what people said.

// conceal shows readers nothing of what the task has brought forth, and nothing of
// what still comes (R-001-42). The record keeps it.
func (f *Fold) conceal(yes bool) {
	if !yes {
		return
	}
	f.concealed = true
	f.artifacts, f.status, f.answer, f.warnings = nil, nil, nil, nil
	f.history = slices.DeleteFunc(slices.Clone(f.history), f.brought)
	for i, q := range f.questions {
		f.questions[i] = BareQuestion(q)
	}
	for _, d := range f.delegations {
		d.Error = BareError(d.GetError())
	}
	if f.ended != nil {
		f.ended = bareEnd(f.scope, f.ended)
		f.status = f.placed(f.endMessage(f.ended))
	}
}

// foresee takes note of a stop that was read, and is folded in a moment. It reports
// whether that has concealed the task.
func (f *Fold) foresee(stop *teamv1.Commanded) bool {
	if stop == nil || stop.GetSavePartial() || f.stop != nil || f.concealed {
		return false
	}
	f.conceal(true)
	return true
}

// seen is an event as the fold takes it: of a task that is concealed without the words
// that it would keep.
func (f *Fold) seen(ev *teamv1.Event) *teamv1.Event {
	if !f.concealed {
		return ev
	}
	switch ev.GetKind().(type) {
	case *teamv1.Event_Asked, *teamv1.Event_Ended:
		return Bare(ev)
	}
	return ev
}

// brought reports whether a message comes from the run: what a part of it is given
// does, too, and holds what others said before.
func (f *Fold) brought(m *a2av1.Message) bool {
	return f.scope != "" || m.GetRole() == a2av1.Role_ROLE_AGENT
}

// Concealed reports whether what a run has brought forth is not shown any more, as
// whoever reads it from its beginning has to know from the beginning. Errors:
// TASK_NOT_FOUND.
func (h *Handler) Concealed(ctx context.Context, root Key) (bool, error) {
	t, _, err := h.c.Store.Task(ctx, root)
	if errors.Is(err, ErrNotFound) { // it is none yet, or the error comes where it is read
		return false, nil
	}
	if err != nil {
		return false, storeError(root.ID, err)
	}
	ends := t.GetMetadata().GetFields()[TeamRunURI].GetStructValue().GetFields()["cancelRequested"].GetBoolValue()
	if t.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED && !ends {
		return false, nil
	}
	f, err := h.fold(ctx, root, "")
	if err != nil {
		return false, err
	}
	return f.concealed, nil
}

// Concealed reports whether what the run has brought forth is not shown any more.
func (f *Fold) Concealed() bool { return f.concealed }

// Bare is an event of a run of which nothing is shown any more: that something began
// or ended, that something was asked, and what people said; nil for what says more.
func Bare(ev *teamv1.Event) *teamv1.Event {
	bare := &teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent()}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		bare.Kind = &teamv1.Event_Started{Started: &teamv1.Started{Attempt: k.Started.GetAttempt()}}
	case *teamv1.Event_Ended:
		bare.Kind = &teamv1.Event_Ended{Ended: bareEnd(ev.GetScope(), k.Ended)}
	case *teamv1.Event_Asked:
		bare.Kind = &teamv1.Event_Asked{Asked: &teamv1.Asked{
			Question: k.Asked.GetQuestion(), Kind: k.Asked.GetKind(), Roles: k.Asked.GetRoles(), Expires: k.Asked.GetExpires(),
		}}
	case *teamv1.Event_Accepted, *teamv1.Event_Commanded, *teamv1.Event_Answered, *teamv1.Event_Waiting:
		return Public(ev)
	default:
		return nil
	}
	return bare
}

// bareEnd is the end of a scope of such a run.
func bareEnd(scope string, e *teamv1.Ended) *teamv1.Ended {
	bare := &teamv1.Ended{Outcome: e.GetOutcome(), Error: BareError(e.GetError()), Spent: e.GetSpent(), Receipt: e.GetReceipt()}
	if scope == "" && e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED {
		bare.Error = e.GetError() // of the stop: the words are the server's
	}
	return bare
}

// BareQuestion is an open question of such a run: without its words.
func BareQuestion(q *teamv1.Question) *teamv1.Question {
	return &teamv1.Question{
		Question: q.GetQuestion(), DelegationId: q.GetDelegationId(), Path: q.GetPath(), Kind: q.GetKind(), Roles: q.GetRoles(), Expires: q.GetExpires(),
	}
}

// BareError is an error of a step of such a run: what kind it is, without its words,
// which may be those of a member. Nil is none.
func BareError(e *teamv1.Error) *teamv1.Error {
	if e == nil {
		return nil
	}
	return &teamv1.Error{Reason: e.GetReason(), Code: e.GetCode(), Retry: e.GetRetry()}
}
