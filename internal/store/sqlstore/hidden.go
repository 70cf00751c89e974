package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
)

// In earlier versions, a stop without results hid everything that the members of the run had said,
// asked and decided. Runs that were stopped in this way remain hidden. Their journals are complete,
// but readers of the store receive them without that content.

// maxHiding limits the number of roots in Store.hiding.
const maxHiding = 1000

// hides reports whether the first stop among the events of a run was recorded by an earlier version
// and hides the run.
func hides(events []*teamv1.Event) bool {
	for _, ev := range events {
		if c := ev.GetCommanded(); c.GetCommand() == teamv1.Commanded_COMMAND_STOP && ev.GetScope() == "" {
			return !c.GetSavePartial() && !c.GetResultsDropped()
		}
	}
	return false
}

// isHidden reports whether a root is hidden. The result is cached only when it can no longer
// change, because a replica of an earlier version may still stop an open run.
func (s *Store) isHidden(ctx context.Context, root string) (hidden bool, err error) {
	if j := s.live(root); j != nil {
		j.mu.Lock()
		hidden, loaded := j.hidden, j.fold != nil || j.lost || j.ended // a journal that is kept has no fold
		j.mu.Unlock()
		if loaded {
			return hidden, nil
		}
	}
	s.mu.Lock()
	hidden, known := s.hiding[root]
	s.mu.Unlock()
	if known {
		return hidden, nil
	}
	var state int64
	err = each(ctx, s.db.reader(), func() { state = 0 }, func(r *sql.Rows) error { return r.Scan(&state) }, `SELECT state FROM task WHERE id = $1`, root)
	if err != nil {
		return false, err
	}
	switch a2av1.TaskState(state) { //nolint:gosec // as it was written
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_REJECTED:
		return false, nil // the run was not ended by a stop
	default:
	}
	err = each(ctx, s.db.reader(), func() { hidden = false }, func(r *sql.Rows) error {
		rec, missing, err := scanEvent(r, root, nil)
		if err == nil && len(missing) == 0 && rec.Event.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_STOP { // a command has no blobs
			hidden, err = hides([]*teamv1.Event{rec.Event}), errFound
		}
		return err
	}, `SELECT seq, scope, sum, body FROM event WHERE id = $1 AND scope = '' AND delta = 0 ORDER BY seq`, root)
	if err != nil && !errors.Is(err, errFound) {
		return false, err
	}
	if !hidden && a2av1.TaskState(state) != a2av1.TaskState_TASK_STATE_CANCELED { //nolint:gosec // as it was written
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hiding) >= maxHiding {
		clear(s.hiding)
	}
	s.hiding[root] = hidden
	return hidden, nil
}

// without returns the records of a hidden run without hidden content.
func without(page []a2a.Record) []a2a.Record {
	var list []a2a.Record
	for _, rec := range page {
		if ev := bare(rec.Event); ev != nil {
			list = append(list, a2a.Record{Seq: rec.Seq, Event: ev})
		}
	}
	return list
}

// show folds an event as readers receive it. hidden says whether the run is hidden.
func show(f *project.Fold, ev *teamv1.Event, hidden bool) {
	if hidden {
		ev = bare(ev)
	}
	if ev != nil {
		f.Apply(ev)
	}
}

// nothing is a sequence number that no message has.
const nothing = math.MaxInt64

// bare returns an event of a hidden run without its content. It keeps what was done, outcomes,
// kinds of errors, times and costs, and everything that people said. It returns nil for events that
// are hidden entirely.
func bare(ev *teamv1.Event) *teamv1.Event {
	b := &teamv1.Event{Seq: ev.GetSeq(), Time: ev.GetTime(), Scope: ev.GetScope(), Agent: ev.GetAgent()}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted, *teamv1.Event_Commanded, *teamv1.Event_Answered, *teamv1.Event_Received, *teamv1.Event_Waiting,
		*teamv1.Event_Bound, *teamv1.Event_Expired:
		return ev
	case *teamv1.Event_Decided:
		b.Kind = &teamv1.Event_Decided{Decided: bareDecision(k.Decided)}
	case *teamv1.Event_Started:
		b.Kind = &teamv1.Event_Started{Started: &teamv1.Started{
			Attempt: k.Started.GetAttempt(), Model: k.Started.GetModel(), Endpoint: k.Started.GetEndpoint(), Revision: k.Started.GetRevision(),
		}}
	case *teamv1.Event_Retried:
		b.Kind = &teamv1.Event_Retried{Retried: &teamv1.Retried{
			Attempt: k.Retried.GetAttempt(), Error: bareError(k.Retried.GetError()), Fresh: k.Retried.GetFresh(), Spent: k.Retried.GetSpent(),
		}}
	case *teamv1.Event_Spawned:
		b.Kind = &teamv1.Event_Spawned{Spawned: &teamv1.Spawned{TaskId: k.Spawned.GetTaskId()}}
	case *teamv1.Event_Asked:
		b.Kind = &teamv1.Event_Asked{Asked: &teamv1.Asked{
			Question: k.Asked.GetQuestion(), Kind: k.Asked.GetKind(), Roles: k.Asked.GetRoles(), Expires: k.Asked.GetExpires(),
		}}
	case *teamv1.Event_Observed:
		o := &teamv1.Observed{}
		for _, m := range k.Observed.GetMembers() {
			o.Members = append(o.Members, &teamv1.Observed_Member{Id: m.GetId(), Info: &teamv1.AgentInfo{Id: m.GetInfo().GetId()}})
		}
		b.Kind = &teamv1.Event_Observed{Observed: o}
	case *teamv1.Event_Ended:
		b.Kind = &teamv1.Event_Ended{Ended: bareEnd(ev.GetScope(), k.Ended)}
	default:
		return nil
	}
	return b
}

// bareDecision returns a decision without its texts.
func bareDecision(d *teamv1.Decided) *teamv1.Decided {
	b := &teamv1.Decided{
		Rule: d.GetRule(), Cancel: d.GetCancel(), Joins: d.GetJoins(), Round: d.GetRound(), Failure: bareError(d.GetFailure()),
	}
	if d.GetReply() != nil || d.GetTransfer() != nil {
		b.Reply = &teamv1.Input{Ref: nothing}
	}
	for _, s := range d.GetSteps() {
		b.Steps = append(b.Steps, &teamv1.Step{
			Id: s.GetId(), Kind: s.GetKind(), Member: s.GetMember(), Name: s.GetName(), CallId: s.GetCallId(), Async: s.GetAsync(),
			Detached: s.GetDetached(), Required: s.GetRequired(), Input: &teamv1.Input{Ref: nothing},
		})
	}
	return b
}

// bareEnd returns an end without its texts. scope is that of the event.
func bareEnd(scope string, e *teamv1.Ended) *teamv1.Ended {
	b := &teamv1.Ended{Outcome: e.GetOutcome(), Error: bareError(e.GetError()), Spent: e.GetSpent(), Receipt: e.GetReceipt()}
	if v := e.GetVerdict(); v != nil {
		b.Verdict = &teamv1.Verdict{Score: v.Score} //nolint:protogetter // set or not matters
	}
	if scope == "" && e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED {
		b.Error = e.GetError() // the text of a stop comes from the server
	}
	return b
}

// bareError returns an error without its message; nil for nil.
func bareError(e *teamv1.Error) *teamv1.Error {
	if e == nil {
		return nil
	}
	return &teamv1.Error{Reason: e.GetReason(), Code: e.GetCode(), Retry: e.GetRetry()}
}
