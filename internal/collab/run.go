package collab

import (
	"cmp"
	"slices"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
)

// run is a collaboration as its journal has it. One goroutine at a time.
type run struct {
	*journal.View
	task *project.Fold
	plan plan

	driven   bool // somebody has begun to work
	kept     *a2av1.Message
	observed []*teamv1.Observed_Member
}

func newRun(root string) *run {
	return &run{View: journal.New(root, journal.Whole), task: project.New(root, "")}
}

// take folds the next event.
func (r *run) take(ev *teamv1.Event) {
	r.Apply(ev)
	r.task.Apply(ev)
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Claimed:
		r.driven = true
	case *teamv1.Event_Observed:
		if ev.GetScope() == "" {
			r.observe(k.Observed)
		}
	case *teamv1.Event_Artifact:
		if ev.GetScope() == "" {
			r.kept = &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: k.Artifact.GetArtifact().GetParts()}
		}
	}
}

func (r *run) observe(o *teamv1.Observed) {
	for _, m := range o.GetMembers() {
		i := slices.IndexFunc(r.observed, func(known *teamv1.Observed_Member) bool { return known.GetId() == m.GetId() })
		if i < 0 {
			r.observed = append(r.observed, m)
		} else {
			r.observed[i] = m
		}
	}
}

// ended reports whether the collaboration has ended.
func (r *run) ended() bool { return !r.Top.Open() }

// reply is what it ended with, or what is kept of one that has failed; nil is neither.
func (r *run) reply() *a2av1.Message {
	return cmp.Or(r.Top.Reply, r.task.Kept(), r.kept)
}

// score is that of the last round that was judged, and which that is; nil is that it has
// none.
func (r *run) score() (round int32, score *float64) {
	for _, n := range r.Top.Steps {
		if n.Step.GetKind() == teamv1.Step_KIND_JUDGE && n.End != nil {
			round, score = n.InRound, scoreOf(n.End)
		}
	}
	return round, score
}

// scoreOf is the score that a judgement ended with; nil is none.
func scoreOf(e *teamv1.Ended) *float64 {
	if v := e.GetVerdict(); v != nil {
		return v.Score //nolint:protogetter // set or not matters
	}
	return nil
}

// works reports whether a step has begun and is running.
func (r *run) works(n *journal.Node) bool {
	return (n.State == journal.Running || n.State == journal.Retrying) && !r.Parked() && !n.Asks()
}

// done reports whether a step has brought what it should.
func done(n *journal.Node) bool {
	o := n.End.GetOutcome()
	return o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY
}

// needed reports whether a step counts: not one that was dropped or skipped because
// nobody needs it, nor one that a leader was refused.
func needed(n *journal.Node) bool {
	switch n.End.GetOutcome() {
	case teamv1.Outcome_OUTCOME_SKIPPED:
		return n.End.GetError().GetReason() != ""
	case teamv1.Outcome_OUTCOME_REJECTED:
		return !n.Begun.IsZero() || n.Step.GetKind() == teamv1.Step_KIND_STEP
	case teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_UNSPECIFIED:
		return !n.Dropped
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT:
	}
	return true
}

// took is how long a step was worked on, at the time of the last event.
func (r *run) took(n *journal.Node) time.Duration {
	switch {
	case n.Begun.IsZero():
		return 0
	case n.Open():
		return r.Now.Sub(n.Begun)
	}
	return n.Ended.Sub(n.Begun)
}

// own are the steps of the team itself that count as its tasks.
func (r *run) own() []*journal.Node {
	var list []*journal.Node
	for _, n := range r.Top.Steps {
		if n.Delegated() || n.Step.GetKind() == teamv1.Step_KIND_HUMAN && r.plan.has(n.Step.GetName()) {
			list = append(list, n)
		}
	}
	return list
}

// given are the steps at all levels that members were given.
func (r *run) given() []*journal.Node {
	var list []*journal.Node
	r.Top.Walk(func(n *journal.Node) {
		if n.Delegated() {
			list = append(list, n)
		}
	})
	return list
}

// ahead are the steps of the plan that were not decided yet in this round.
func (r *run) ahead() []planned {
	decided := map[string]bool{}
	for _, n := range r.own() {
		if n.InRound == r.currentRound() {
			decided[n.Step.GetName()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(r.plan.steps), func(p planned) bool { return decided[p.id] })
}

// label names a step for people.
func label(n *journal.Node) string {
	name, member := n.Step.GetName(), n.Step.GetMember()
	if name != "" && n.Step.GetKind() == teamv1.Step_KIND_STEP || member == "" {
		return name
	}
	return member
}

// clip is the beginning of a text.
func clip(text string) string {
	const most = 200
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i] + "…"
		}
	}
	return strings.TrimSpace(text)
}
