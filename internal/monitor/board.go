package monitor

import (
	"cmp"
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// hasBoard reports whether a team has a board.
func (m *Monitor) hasBoard(ctx context.Context, team string) bool {
	if m.c.Boards == nil || m.c.BoardTeams == nil {
		return false
	}
	_, has, err := m.c.BoardTeams.BoardOf(ctx, team)
	return err == nil && has // an agent that is not a team is an error
}

// boardWatch reads the board of a watched team: its events, and an overview for snapshots.
// A nil *boardWatch is the watch of a team without a board. It is not safe for concurrent
// use.
type boardWatch struct {
	boards *board.Board
	key    board.Key
	clock  func() time.Time

	sent  int64          // sequence number of the last event that was sent
	now   board.Overview // the newest that was read
	shown board.Overview // what snapshots show: the overview as of sent
	fresh bool           // now is newer than shown
	more  bool           // there are events after those that news returned
}

// begin reads the overview and sets the event to continue after. ok is false if the events
// after it have been deleted or it is not an event of this board.
func (b *boardWatch) begin(ctx context.Context, sent int64) (ok bool, err error) {
	if b == nil {
		return true, nil
	}
	if b.now, err = b.boards.Overview(ctx, b.key); err != nil {
		return false, err
	}
	b.sent, b.shown = sent, b.now
	next, err := b.boards.Events(ctx, b.key, sent)
	return sent == b.now.Seq || len(next) > 0 && next[0].GetSeq() == sent+1, err
}

// skip marks all events of the board as sent.
func (b *boardWatch) skip() {
	if b != nil {
		b.sent, b.shown = b.now.Seq, b.now
	}
}

// news returns the next events that were not sent, about a hundred at most, in their order.
// lost is true if some of them have been deleted; the watcher then needs a new snapshot.
func (b *boardWatch) news(ctx context.Context) (events []*teamv1.BoardEvent, lost bool, err error) {
	if b == nil {
		return nil, false, nil
	}
	if events, err = b.boards.Events(ctx, b.key, b.sent); err != nil {
		return nil, false, err
	}
	if b.more = false; len(events) == 0 && !b.lapsed() {
		return nil, false, nil
	}
	if b.now, err = b.boards.Overview(ctx, b.key); err != nil {
		return nil, false, err
	}
	b.fresh = true
	if len(events) > 0 && events[0].GetSeq() != b.sent+1 {
		b.skip()
		return nil, true, nil
	}
	b.more = len(events) > 0 && events[len(events)-1].GetSeq() < b.now.Seq
	return events, false, nil
}

// lapsed reports whether a claim that snapshots show has expired.
func (b *boardWatch) lapsed() bool {
	return !b.shown.Lapses.IsZero() && !b.clock().Before(b.shown.Lapses)
}

// behind reports whether more events can be read already.
func (b *boardWatch) behind() bool { return b != nil && b.more }

// refreshed updates what snapshots show to the newest overview, if all its events were
// sent, and reports whether it did.
func (b *boardWatch) refreshed() bool {
	if b == nil || !b.fresh || b.sent != b.now.Seq {
		return false
	}
	b.shown, b.fresh = b.now, false
	return true
}

// at returns the sequence number of the last event that was sent, 0 without a board.
func (b *boardWatch) at() int64 {
	if b == nil {
		return 0
	}
	return b.sent
}

// show adds the board to a snapshot. The items take at most room bytes.
func (b *boardWatch) show(s *teamv1.TeamSnapshot, room int) {
	if b == nil {
		return
	}
	s.Board, s.BoardItems = b.shown.Counters, board.Fitting(b.shown.Held, maxShown, room)
}

// maxStepRuns is the maximum number of tasks whose steps are listed as work items.
const maxStepRuns = 20

// Steps implements board.Steps. It returns the steps of a team in the caller's own tasks as
// work items, the newest tasks first: those that the team gave to members or people, and
// those that a workflow has planned. It includes tasks in which the team worked as a member
// of another team.
func (m *Monitor) Steps(ctx context.Context, team string) ([]*teamv1.WorkItem, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	overview, err := m.overview()
	if err != nil {
		return nil, err
	}
	var marks []runs.RunMark
	for _, id := range m.holders(team, 0) {
		more, err := overview.Runs(ctx, who.Owner(), runs.RunFilter{Agent: id, Ended: true, Limit: maxStepRuns})
		if err != nil {
			return nil, runs.StoreError("", err)
		}
		marks = append(marks, more...)
	}
	slices.SortStableFunc(marks, func(a, b runs.RunMark) int { return b.StatusAt.Compare(a.StatusAt) })
	var items []*teamv1.WorkItem
	for _, mark := range marks {
		if len(items) == maxShown {
			break
		}
		r := newRun(mark.Root, team, journal.Outline)
		err := m.each(ctx, runs.Key{Owner: who.Owner(), ID: mark.Root}, 0, func(ev *teamv1.Event) bool { r.apply(ev); return true })
		switch {
		case a2aerror.IsNotFound(err), a2aerror.IsDamaged(err), err == nil && r.Accepted == nil:
			continue
		case err != nil:
			return nil, err
		}
		for _, p := range r.parts {
			for _, it := range append(r.given(p, who.Owner()), m.planned(r, p, who.Owner())...) {
				if len(items) < maxShown {
					it.Number = int64(len(items) + 1)
					items = append(items, it)
				}
			}
		}
	}
	return items, nil
}

// given returns the steps of a part of a run that members or people work on, as work items.
func (r *run) given(p *journal.Node, owner string) (items []*teamv1.WorkItem) {
	for _, s := range p.Steps {
		if s.Delegated() || s.Step.GetKind() == teamv1.Step_KIND_HUMAN {
			items = append(items, r.item(s, owner))
		}
	}
	return items
}

// planned returns the steps of a workflow that have not started yet, as work items. A step
// whose dependencies are not completed is BLOCKED.
func (m *Monitor) planned(r *run, p *journal.Node, owner string) (items []*teamv1.WorkItem) {
	if !p.Open() || m.c.BoardTeams == nil {
		return nil
	}
	last := map[string]*journal.Node{}
	for _, s := range p.Steps {
		last[s.Step.GetName()] = s
	}
	for _, it := range m.c.BoardTeams.PlanOf(r.of, r.Accepted.GetPins().GetRevisions()[r.of]) {
		if last[it.GetTitle()] != nil {
			continue
		}
		it.Id, it.TeamId, it.Source, it.State = r.id(agent.Scope(p.Scope, it.GetTitle())), r.of, teamv1.WorkItem_SOURCE_STEP, teamv1.WorkItem_STATE_PENDING
		it.Created = stamp(p.Since)
		it.CreatedBy = &teamv1.BoardActor{Principal: owner, Agent: r.of, TaskId: r.Root}
		if who := it.GetAssignee(); who != nil {
			who.Principal, who.TaskId = owner, r.Root
		}
		for i, name := range it.GetDependsOn() {
			before := last[name]
			if before == nil || itemState(before) != teamv1.WorkItem_STATE_COMPLETED {
				it.State = teamv1.WorkItem_STATE_BLOCKED
			}
			at := agent.Scope(p.Scope, name)
			if before != nil {
				at = before.Scope
			}
			it.DependsOn[i] = r.id(at)
		}
		items = append(items, it)
	}
	return items
}

// item returns a step as a work item.
func (r *run) item(s *journal.Node, owner string) *teamv1.WorkItem {
	it := &teamv1.WorkItem{
		Id: r.id(s.Scope), TeamId: r.of, Title: s.Step.GetName(), State: itemState(s),
		CreatedBy: &teamv1.BoardActor{Principal: owner, Agent: r.of, TaskId: r.Root},
		Created:   stamp(s.Since), Source: teamv1.WorkItem_SOURCE_DELEGATION,
	}
	if s.Step.GetKind() == teamv1.Step_KIND_STEP || s.Step.GetKind() == teamv1.Step_KIND_HUMAN {
		it.Source = teamv1.WorkItem_SOURCE_STEP
	}
	if s.Delegated() { // otherwise it is a question to people
		it.Assignee = &teamv1.BoardActor{Principal: owner, Agent: s.Step.GetMember(), TaskId: r.Root}
	}
	it.Description = r.texts[s]
	it.Title = cmp.Or(it.GetTitle(), it.GetDescription(), s.Step.GetMember())
	if it.GetState() == teamv1.WorkItem_STATE_COMPLETED {
		it.Progress = 100
	}
	for _, at := range []time.Time{s.Ended, s.Begun, s.Since} {
		if !at.IsZero() {
			it.Changed = stamp(at)
			break
		}
	}
	return it
}

// itemState returns the state of a step as the state of a work item.
func itemState(s *journal.Node) teamv1.WorkItem_State {
	switch {
	case s.State == journal.Pending:
		return teamv1.WorkItem_STATE_PENDING
	case s.Open():
		return teamv1.WorkItem_STATE_IN_PROGRESS
	}
	switch s.Outcome {
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED:
		return teamv1.WorkItem_STATE_FAILED
	case teamv1.Outcome_OUTCOME_CANCELED:
		return teamv1.WorkItem_STATE_CANCELED
	case teamv1.Outcome_OUTCOME_SKIPPED:
		return teamv1.WorkItem_STATE_SKIPPED
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return teamv1.WorkItem_STATE_COMPLETED
}
