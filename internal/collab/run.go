package collab

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// run folds the journal of a collaboration. One goroutine at a time.
type run struct {
	root     string
	task     *a2a.Fold
	plan     plan
	accepted *teamv1.Accepted
	seq      int64
	begun    time.Time // when it was accepted
	at       time.Time // of the last event

	driven   bool // somebody has begun to work
	parked   bool // nothing is running: it waits for people, or to be resumed
	end      *teamv1.Ended
	reply    *a2av1.Message
	steps    []*step // in the order they were decided, at all levels
	byScope  map[string]*step
	observed []*teamv1.Observed_Member
	context  map[string]*structpb.Value
	updates  map[string]*structpb.Value // of context, once the steps decided with them have ended
	texts    map[int64]*a2av1.Message
	round    int32 // that is worked on; 0 is the first, too
	judged   int32 // rounds whose result was judged
	score    *float64
}

// step is a piece of work.
type step struct {
	scope, member, name, text string
	kind                      teamv1.Step_Kind
	round                     int32

	parent  *step // nil: it is the team's own
	below   []*step
	asks    map[string]bool // open questions of its own
	started time.Time
	ended   time.Time
	end     *teamv1.Ended
	reply   *a2av1.Message
	dropped bool
	held    bool // the run is paused and nothing of the step is running
	wasted  *teamv1.Spent
}

func newRun(root string) *run {
	return &run{
		root: root, task: a2a.NewFold(root, ""), byScope: map[string]*step{}, texts: map[int64]*a2av1.Message{},
		context: map[string]*structpb.Value{},
	}
}

// take folds the next event.
func (r *run) take(ev *teamv1.Event) {
	r.seq, r.at = ev.GetSeq(), ev.GetTime().AsTime()
	r.task.Apply(ev)
	if m := agent.MessageOf(r.root, ev); m != nil {
		r.texts[ev.GetSeq()] = m
	}
	s := r.byScope[ev.GetScope()]
	r.park(s, ev)
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted:
		r.accepted, r.begun = k.Accepted, r.at
		maps.Copy(r.context, k.Accepted.GetCollaboration().GetContext().GetFields())
	case *teamv1.Event_Claimed:
		r.driven = true
	case *teamv1.Event_Observed:
		if ev.GetScope() == "" {
			r.observe(k.Observed)
		}
	case *teamv1.Event_Artifact:
		if ev.GetScope() == "" { // what is kept of a run that fails
			r.reply = &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: k.Artifact.GetArtifact().GetParts()}
		}
	case *teamv1.Event_Decided:
		r.decide(s, ev.GetScope(), k.Decided)
	case *teamv1.Event_Ended:
		if ev.GetScope() == "" {
			r.end = k.Ended
			if m := cmp.Or(r.said(k.Ended), r.task.Kept()); m != nil {
				r.reply = m
			}
		}
	default:
	}
	if s != nil {
		r.work(s, ev)
	}
}

// park updates whether anything of the collaboration and of a step is running; a nil
// event belongs to neither.
func (r *run) park(s *step, ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Waiting:
		if ev.GetScope() == "" {
			r.parked = true
		} else if s != nil {
			s.held = k.Waiting.GetPaused()
		}
	case *teamv1.Event_Claimed:
	case *teamv1.Event_Commanded:
		if k.Commanded.GetCommand() == teamv1.Commanded_COMMAND_RESUME {
			r.parked = false
			for _, held := range r.steps {
				held.held = false
			}
		}
	default:
		r.parked = false
		for ; s != nil; s = s.parent {
			s.held = false
		}
	}
}

// works reports whether a step has begun and is running.
func (r *run) works(s *step) bool {
	return s.begun() && s.end == nil && !r.parked && !s.held && !s.asking()
}

// work folds what happens to a step.
func (r *run) work(s *step, ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		if s.started.IsZero() {
			s.started = r.at
		}
	case *teamv1.Event_Retried:
		s.wasted = agent.AddSpent(s.wasted, k.Retried.GetSpent())
	case *teamv1.Event_Asked:
		s.asks[k.Asked.GetQuestion()] = true
	case *teamv1.Event_Answered:
		delete(s.asks, k.Answered.GetQuestion())
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			clear(s.asks)
		}
	case *teamv1.Event_Ended:
		s.end, s.ended, s.reply = k.Ended, r.at, r.said(k.Ended)
		clear(s.asks)
		if s.parent == nil && s.kind == teamv1.Step_KIND_JUDGE {
			r.judged, r.score = s.round, scoreOf(k.Ended)
		}
	default:
	}
}

// scoreOf is the score that a judgement ended with; nil is none.
func scoreOf(e *teamv1.Ended) *float64 {
	if v := e.GetVerdict(); v != nil {
		return v.Score //nolint:protogetter // set or not matters
	}
	return nil
}

// said is the message that something ended with.
func (r *run) said(e *teamv1.Ended) *a2av1.Message {
	if m := e.GetReply(); m != nil {
		return m
	}
	return r.texts[e.GetReplyRef()]
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

func (r *run) decide(in *step, scope string, d *teamv1.Decided) {
	if scope == "" {
		maps.Copy(r.context, r.updates)
		r.updates = d.GetUpdates()
	}
	if scope == "" && d.GetRound() > 0 {
		r.round = d.GetRound()
	}
	for _, id := range d.GetCancel() {
		if s := r.byScope[agent.Scope(scope, id)]; s != nil {
			s.dropped = true
		}
	}
	for _, st := range d.GetSteps() {
		s := &step{
			scope: agent.Scope(scope, st.GetId()), member: st.GetMember(), name: st.GetName(), kind: st.GetKind(), parent: in, asks: map[string]bool{}, round: r.currentRound(),
			text: agent.Text(st.GetInput().GetMessage()),
		}
		if s.text == "" {
			s.text = agent.Text(r.texts[st.GetInput().GetRef()])
		}
		if in != nil {
			in.below = append(in.below, s)
		}
		r.byScope[s.scope] = s
		r.steps = append(r.steps, s)
	}
}

// given reports whether a step is work that a member was given.
func (s *step) given() bool {
	return s.kind == teamv1.Step_KIND_DELEGATE || s.kind == teamv1.Step_KIND_TRANSFER || s.kind == teamv1.Step_KIND_STEP
}

func (s *step) begun() bool { return !s.started.IsZero() }

// done reports whether a step has brought what it should.
func (s *step) done() bool {
	o := s.end.GetOutcome()
	return o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY
}

// asking reports whether a step, or one below it, waits for people.
func (s *step) asking() bool {
	return len(s.asks) > 0 || slices.ContainsFunc(s.below, (*step).asking)
}

// needed reports whether a step counts: not one that was dropped or skipped because
// nobody needs it, nor one that a leader was refused.
func (s *step) needed() bool {
	switch s.end.GetOutcome() {
	case teamv1.Outcome_OUTCOME_SKIPPED:
		return s.end.GetError().GetReason() != ""
	case teamv1.Outcome_OUTCOME_REJECTED:
		return s.begun() || s.kind == teamv1.Step_KIND_STEP
	case teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_UNSPECIFIED:
		return !s.dropped
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT:
	}
	return true
}

// spent is what a step cost with everything below it, so far.
func (s *step) spent() *teamv1.Spent {
	if s.end.GetSpent() != nil {
		return s.end.GetSpent()
	}
	sum := s.wasted
	for _, b := range s.below {
		sum = agent.AddSpent(sum, b.spent())
	}
	return sum
}

// took is how long a step was worked on, at the time of the last event.
func (r *run) took(s *step) time.Duration {
	switch {
	case !s.begun():
		return 0
	case s.end == nil:
		return r.at.Sub(s.started)
	}
	return s.ended.Sub(s.started)
}

// own are the steps of the team itself that count as its tasks.
func (r *run) own() []*step {
	var list []*step
	for _, s := range r.steps {
		if s.parent == nil && (s.given() || s.kind == teamv1.Step_KIND_HUMAN && r.plan.has(s.name)) {
			list = append(list, s)
		}
	}
	return list
}

// ahead are the steps of the plan that were not decided yet in this round.
func (r *run) ahead() []planned {
	decided := map[string]bool{}
	for _, s := range r.own() {
		if s.round == r.currentRound() {
			decided[s.name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(r.plan.steps), func(p planned) bool { return decided[p.id] })
}

// label names a step for people.
func (s *step) label() string {
	if s.name != "" && s.kind == teamv1.Step_KIND_STEP || s.member == "" {
		return s.name
	}
	return s.member
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
