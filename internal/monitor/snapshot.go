package monitor

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
)

// show sends the state of the team, unless it equals the one that was sent last. The first
// one is sent as a snapshot, later ones as updates.
func (w *teamWatch) show(yield func(*teamv1.WatchTeamResponse, error) bool, first bool) bool {
	s := w.snapshot()
	if !first && w.shown != nil && proto.Equal(s, w.shown) {
		return true
	}
	w.shown = s
	s = proto.CloneOf(s)
	s.Time = stamp(w.m.c.Clock())
	resp := &teamv1.WatchTeamResponse{Cursor: w.cursor(), Kind: &teamv1.WatchTeamResponse_Update{Update: s}}
	if first {
		resp.Kind = &teamv1.WatchTeamResponse_Snapshot{Snapshot: s}
	}
	return yield(resp, nil)
}

// snapshot returns the state of the team.
func (w *teamWatch) snapshot() *teamv1.TeamSnapshot {
	f := w.past.copy()
	var open []work
	for _, r := range w.runs {
		f.add(r.figures())
		for _, p := range r.parts {
			if p.Open() {
				open = append(open, work{r.run, p})
			}
		}
	}
	slices.SortFunc(open, func(a, b work) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(b.Root, a.Root), cmp.Compare(b.Scope, a.Scope))
	})
	s := proto.CloneOf(w.who)
	s.Healthy, s.Usable, s.Detail = w.health.GetHealthy(), w.health.GetUsable(), w.health.GetDetail()
	s.Members = w.members(f)
	s.Counters = &teamv1.TeamCounters{
		MemberCount: int32(len(w.health.GetMembers())), Tasks: f.tasks.proto(), Runs: f.runs.proto(), Spent: spentOr(f.spent), //nolint:gosec // a small number
		RunP50: quantile(f.took, 50), RunP95: quantile(f.took, 95), Partial: w.partial,
	}
	room := runs.MaxPageBytes
	for _, p := range open {
		if len(s.GetActive()) < maxShown {
			s.Active = append(s.Active, p.active())
		}
		for _, q := range board.Fitting(p.open(p.Scope), maxShown-len(s.GetQuestions()), room) {
			s.Questions = append(s.Questions, q)
			room -= proto.Size(q)
		}
	}
	w.board.show(s, room)
	return s
}

// members returns the status of each member, the leader's first.
func (w *teamWatch) members(f *figures) []*teamv1.MemberStatus {
	var list []*teamv1.MemberStatus
	if w.who.GetMode() == "coordinator" {
		list = append(list, w.lead(f))
	}
	for _, h := range w.health.GetMembers() {
		p := f.members[h.GetId()]
		if p == nil {
			p = &part{}
		}
		why := w.open[h.GetId()]
		m := &teamv1.MemberStatus{
			Id: h.GetId(), Role: teamv1.MemberStatus_ROLE_MEMBER, Healthy: h.GetHealthy() && why == "", Detail: cmp.Or(why, h.GetDetail()), Disabled: h.GetDisabled(),
			Breaker: breaker(why), Tasks: p.tasks.proto(), LatencyP50: quantile(p.took, 50), LatencyP95: quantile(p.took, 95), Spent: spentOr(p.spent),
		}
		switch {
		case p.tasks.active > p.tasks.waiting:
			m.Activity = teamv1.MemberStatus_ACTIVITY_WORKING
		case p.tasks.active > 0:
			m.Activity = teamv1.MemberStatus_ACTIVITY_WAITING
		case h.GetDisabled() || !m.GetHealthy():
			m.Activity = teamv1.MemberStatus_ACTIVITY_OFFLINE
		default:
			m.Activity = teamv1.MemberStatus_ACTIVITY_IDLE
		}
		list = append(list, m)
	}
	return list
}

// lead returns the status of the team's leader.
func (w *teamWatch) lead(f *figures) *teamv1.MemberStatus {
	m := &teamv1.MemberStatus{
		Id: w.team, Role: teamv1.MemberStatus_ROLE_LEAD, Activity: teamv1.MemberStatus_ACTIVITY_IDLE, Healthy: true,
		LatencyP50: quantile(f.lead.took, 50), LatencyP95: quantile(f.lead.took, 95), Spent: spentOr(f.lead.spent),
	}
	for _, r := range w.runs {
		if slices.ContainsFunc(r.parts, leads) {
			m.Activity = teamv1.MemberStatus_ACTIVITY_WORKING
		}
	}
	return m
}

// leads reports whether the agent of a step is running a model turn or a tool call itself.
func leads(n *journal.Node) bool {
	return slices.ContainsFunc(n.Steps, func(s *journal.Node) bool { return s.Open() && !s.Delegated() })
}

// breaker returns the state of a member's circuit breaker, given why the member is not called.
func breaker(why string) teamv1.MemberStatus_Breaker {
	switch {
	case strings.HasSuffix(why, "circuit breaker half open"):
		return teamv1.MemberStatus_BREAKER_HALF_OPEN
	case strings.HasSuffix(why, "circuit breaker open"):
		return teamv1.MemberStatus_BREAKER_OPEN
	}
	return teamv1.MemberStatus_BREAKER_CLOSED
}

// work is a task of the watched team: a part of a run.
type work struct {
	*run
	*journal.Node
}

// input returns the input of a step, or of the nearest step above it that has one.
func (r *run) input(n *journal.Node) string {
	for n != r.Top && r.texts[n] == "" {
		n = n.Parent
	}
	return r.texts[n]
}

// active returns the task with those who are working on it.
func (p work) active() *teamv1.ActiveTask {
	r, state := p.run, p.taskState(p.Node)
	t := &teamv1.ActiveTask{
		TaskId: r.id(p.Scope), ContextId: r.Accepted.GetMessage().GetContextId(), State: state, Text: r.input(p.Node), Since: stamp(p.Since),
		Waiting: taskstate.Interrupted(state), CancelRequested: r.Canceled(p.Scope), Spent: spentOr(p.Spent()),
	}
	if p.Node != r.Top {
		t.RootTaskId, t.RootAgentId = r.Root, r.Accepted.GetAgent()
	}
	var walk func(s *journal.Node)
	walk = func(s *journal.Node) {
		leaf := true
		for _, child := range s.Steps {
			if child.Open() {
				leaf = false
				walk(child)
			}
		}
		if leaf && s != r.Top && len(t.GetWorkers()) < maxShown {
			since := s.Begun
			if since.IsZero() {
				since = s.Since
			}
			t.Workers = append(t.Workers, &teamv1.Worker{
				TaskId: r.id(s.Scope), Path: s.Path, Kind: s.Step.GetKind(), Name: s.Step.GetName(), Text: r.input(s), Since: stamp(since), State: stepState(s.State),
			})
		}
	}
	walk(p.Node)
	return t
}
