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

// run is the projected journal of a collaboration. It is not safe for concurrent use.
type run struct {
	*journal.View
	task *project.Fold
	plan plan

	driven   bool           // a replica has claimed the run
	kept     *a2av1.Message // the newest artifact of the team
	observed []*teamv1.Observed_Member
}

func newRun(root string) *run {
	return &run{View: journal.New(root, journal.Whole), task: project.New(root, "")}
}

// apply folds the next event.
func (r *run) apply(ev *teamv1.Event) {
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

// reply returns the result: the answer, or the partial result that a failed run kept; nil
// if there is neither.
func (r *run) reply() *a2av1.Message {
	return cmp.Or(r.Top.Reply, r.task.Kept(), r.kept)
}

// score returns the score of the last judged round, nil if it has none, and the number of
// the round.
func (r *run) score() (round int32, score *float64) {
	for _, n := range r.Top.Steps {
		if n.Step.GetKind() == teamv1.Step_KIND_JUDGE && n.End != nil {
			round, score = n.InRound, scoreOf(n.End)
		}
	}
	return round, score
}

// scoreOf returns the score of an ended judge step, nil if it has none.
func scoreOf(e *teamv1.Ended) *float64 {
	if v := e.GetVerdict(); v != nil {
		return v.Score //nolint:protogetter // set or not matters
	}
	return nil
}

// works reports whether a step is running, and neither paused nor waiting for an answer.
func (r *run) works(n *journal.Node) bool {
	return (n.State == journal.Running || n.State == journal.Retrying) && !r.Parked() && !n.Asks()
}

// done reports whether a step has succeeded. An empty reply counts as success.
func done(n *journal.Node) bool {
	o := n.End.GetOutcome()
	return o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY
}

// needed reports whether a step counts as a task of the team. Steps do not count if they
// were dropped or skipped because their result was not needed, or if the call of a leader
// was rejected before it started.
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

// took returns how long a step has been worked on, up to the last event.
func (r *run) took(n *journal.Node) time.Duration {
	switch {
	case n.Begun.IsZero():
		return 0
	case n.Open():
		return r.Now.Sub(n.Begun)
	}
	return n.Ended.Sub(n.Begun)
}

// own returns the steps of the team that count as its tasks: those of members, and the
// questions of a workflow.
func (r *run) own() []*journal.Node {
	var list []*journal.Node
	for _, n := range r.Top.Steps {
		if n.Delegated() || n.Step.GetKind() == teamv1.Step_KIND_HUMAN && r.plan.has(n.Step.GetName()) {
			list = append(list, n)
		}
	}
	return list
}

// given returns the delegated steps at all levels of nesting.
func (r *run) given() []*journal.Node {
	var list []*journal.Node
	r.Top.Walk(func(n *journal.Node) {
		if n.Delegated() {
			list = append(list, n)
		}
	})
	return list
}

// ahead returns the planned steps that have not been scheduled in this round.
func (r *run) ahead() []planned {
	decided := map[string]bool{}
	for _, n := range r.own() {
		if n.InRound == r.currentRound() {
			decided[n.Step.GetName()] = true
		}
	}
	steps := r.plan.steps
	if len(steps) == 0 {
		steps = r.recordedPlan()
	}
	return slices.DeleteFunc(slices.Clone(steps), func(p planned) bool { return decided[p.id] })
}

// recordedPlan returns the steps of the plan that a model has made in this round; none if there is no
// plan on record.
func (r *run) recordedPlan() (steps []planned) {
	for _, ev := range r.Top.Decisions {
		d := ev.GetDecided()
		if d.GetPlan() == nil && d.GetRound() == 0 {
			continue
		}
		steps = nil // also at the beginning of a round
		for _, v := range d.GetPlan().GetFields()["steps"].GetListValue().GetValues() {
			s := v.GetStructValue().GetFields()
			steps = append(steps, planned{id: s["id"].GetStringValue(), member: s["member"].GetStringValue()})
		}
	}
	return steps
}

// label returns the name of a step for people.
func label(n *journal.Node) string {
	name, member := n.Step.GetName(), n.Step.GetMember()
	if name != "" && n.Step.GetKind() == teamv1.Step_KIND_STEP || member == "" {
		return name
	}
	return member
}

// clip returns the first 200 characters of a text.
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
