package monitor

import (
	"cmp"
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// hasBoard reports whether a team has a board.
func (m *Monitor) hasBoard(ctx context.Context, team string) bool {
	if m.c.Boards == nil || m.c.BoardTeams == nil {
		return false
	}
	_, has, err := m.c.BoardTeams.BoardOf(ctx, team)
	return err == nil && has // an agent that is no team has none
}

// boardWatch is how far a watcher of a team was told of its board. nil is a team
// without one.
type boardWatch struct {
	boards *board.Board
	key    board.Key
	clock  func() time.Time

	told  int64          // seq of the last event that was told
	now   board.Overview // as it is
	shown board.Overview // as it is behind told; what snapshots show
	fresh bool           // now is newer than shown
	more  bool           // there are events behind those that were read
}

// begin looks at the board, to go on behind an event; false: what follows that is
// not kept any more, or is none of this board.
func (b *boardWatch) begin(ctx context.Context, told int64) (ok bool, err error) {
	if b == nil {
		return true, nil
	}
	if b.now, err = b.boards.Overview(ctx, b.key); err != nil {
		return false, err
	}
	b.told, b.shown = told, b.now
	next, err := b.boards.Events(ctx, b.key, told)
	return told == b.now.Seq || len(next) > 0 && next[0].GetSeq() == told+1, err
}

// skip counts all that is on the board as told.
func (b *boardWatch) skip() {
	if b != nil {
		b.told, b.shown = b.now.Seq, b.now
	}
}

// news returns events that were not told, some hundred, in their order; lost where
// what follows is not kept any more: the watcher begins anew.
func (b *boardWatch) news(ctx context.Context) (events []*teamv1.BoardEvent, lost bool, err error) {
	if b == nil {
		return nil, false, nil
	}
	if events, err = b.boards.Events(ctx, b.key, b.told); err != nil {
		return nil, false, err
	}
	if b.more = false; len(events) == 0 && !b.lapsed() {
		return nil, false, nil
	}
	if b.now, err = b.boards.Overview(ctx, b.key); err != nil {
		return nil, false, err
	}
	b.fresh = true
	if len(events) > 0 && events[0].GetSeq() != b.told+1 {
		b.skip()
		return nil, true, nil
	}
	b.more = len(events) > 0 && events[len(events)-1].GetSeq() < b.now.Seq
	return events, false, nil
}

// lapsed reports whether a claim has lapsed that is shown.
func (b *boardWatch) lapsed() bool {
	return !b.shown.Lapses.IsZero() && !b.clock().Before(b.shown.Lapses)
}

// behind reports whether there is more to tell already.
func (b *boardWatch) behind() bool { return b != nil && b.more }

// refreshed shows the board as it is behind what was told, and reports whether that
// is new.
func (b *boardWatch) refreshed() bool {
	if b == nil || !b.fresh || b.told != b.now.Seq {
		return false
	}
	b.shown, b.fresh = b.now, false
	return true
}

// at is seq of the last event that was told.
func (b *boardWatch) at() int64 {
	if b == nil {
		return 0
	}
	return b.told
}

// show puts the board into a snapshot that has so much room.
func (b *boardWatch) show(s *teamv1.TeamSnapshot, room int) {
	if b == nil {
		return
	}
	s.Board, s.BoardItems = b.shown.Counters, board.Fitting(b.shown.Held, maxShown, room)
}

// maxStepRuns is of how many tasks the work is shown on a board.
const maxStepRuns = 20

// Steps implements board.Steps: what members were given in the caller's own tasks of
// a team, and in what it did as a member of another one, as the journals have it.
func (m *Monitor) Steps(ctx context.Context, team string) ([]*teamv1.WorkItem, error) {
	who, err := m.whose(ctx)
	if err != nil {
		return nil, err
	}
	overview, err := m.overview()
	if err != nil {
		return nil, err
	}
	var marks []a2a.RunMark
	for _, id := range m.holders(team, 0) {
		more, err := overview.Runs(ctx, who.Owner(), a2a.RunFilter{Agent: id, Ended: true, Limit: maxStepRuns})
		if err != nil {
			return nil, a2a.StoreError("", err)
		}
		marks = append(marks, more...)
	}
	slices.SortStableFunc(marks, func(a, b a2a.RunMark) int { return b.StatusAt.Compare(a.StatusAt) })
	var items []*teamv1.WorkItem
	for _, mark := range marks {
		if len(items) == maxShown {
			break
		}
		r := newRun(mark.Root, team, journal.Outline)
		err := m.each(ctx, a2a.Key{Owner: who.Owner(), ID: mark.Root}, 0, func(ev *teamv1.Event) bool { r.take(ev); return true })
		switch {
		case a2a.IsNotFound(err), a2a.IsDamaged(err), err == nil && r.Accepted == nil:
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

// given is the work that a part of a run has given to members, and what it asks people,
// as items of a board.
func (r *run) given(p *journal.Node, owner string) (items []*teamv1.WorkItem) {
	for _, s := range p.Steps {
		if s.Delegated() || s.Step.GetKind() == teamv1.Step_KIND_HUMAN {
			items = append(items, r.item(s, owner))
		}
	}
	return items
}

// planned are the steps of a workflow that a part of a run has not come to.
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

// item is a step as an item of a board.
func (r *run) item(s *journal.Node, owner string) *teamv1.WorkItem {
	it := &teamv1.WorkItem{
		Id: r.id(s.Scope), TeamId: r.of, Title: s.Step.GetName(), State: itemState(s),
		CreatedBy: &teamv1.BoardActor{Principal: owner, Agent: r.of, TaskId: r.Root},
		Created:   stamp(s.Since), Source: teamv1.WorkItem_SOURCE_DELEGATION,
	}
	if s.Step.GetKind() == teamv1.Step_KIND_STEP || s.Step.GetKind() == teamv1.Step_KIND_HUMAN {
		it.Source = teamv1.WorkItem_SOURCE_STEP
	}
	if s.Delegated() { // else people are asked
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

// itemState is how a step stands in the words of a board.
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
