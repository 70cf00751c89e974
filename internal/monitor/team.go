package monitor

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
)

const (
	// maxShown bounds the lists of a snapshot.
	maxShown = 100
	// maxBatch is how many events are read before they are told, about.
	maxBatch = 1024
	// pace is the least time between two looks at a team.
	pace = 20 * time.Millisecond
	// askTime bounds the question to a team who and how it is.
	askTime = 2 * time.Second
)

// WatchTeam shows a team, then what happens in the caller's tasks of it, and how it
// is when that has changed, until ctx ends. Its tasks are those that were sent to it,
// and what it began as a member of another team in tasks of that one. Behind a cursor
// of an earlier answer it goes on without gap or repeat, whichever replica gave it;
// one that is unknown or too old begins with a snapshot. Errors: AGENT_NOT_FOUND,
// INSUFFICIENT_RESOURCES when too many streams are open, UNSUPPORTED_OPERATION. The
// sequence is read once, before ctx ends.
func (m *Monitor) WatchTeam(ctx context.Context, req *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error) {
	who, err := m.whose(ctx)
	if err != nil {
		return nil, err
	}
	overview, err := m.overview()
	if err != nil {
		return nil, err
	}
	if _, err := m.h.Find(ctx, req.GetTeamId()); err != nil {
		return nil, err
	}
	leave, err := m.h.SitAtTeam(who.Owner(), req.GetTeamId())
	if err != nil {
		return nil, err
	}
	w := &teamWatch{
		m: m, overview: overview, owner: who.Owner(), team: req.GetTeamId(),
		runs: map[string]*watched{}, over: map[string]ending{}, past: &figures{}, floor: map[string]time.Time{},
	}
	if m.hasBoard(ctx, w.team) {
		w.board = &boardWatch{boards: m.c.Boards, key: board.Key{Account: who.Account, Team: w.team}, clock: m.c.Clock}
	}
	w.wake, w.stop = overview.WatchAll(w.owner)
	all := func() { w.stop(); leave() }
	if err := w.begin(ctx, req.GetCursor()); err != nil {
		all()
		return nil, err
	}
	return closing(ctx, all, w.tell), nil
}

// teamWatch is a watcher of one team: a cursor into the journal of each task of it
// that is not over, and the figures of all. One goroutine at a time.
type teamWatch struct {
	m           *Monitor
	overview    a2a.Overview
	owner, team string
	holders     []string // whose tasks it works in; one that was stays
	wake        <-chan struct{}
	stop        func()

	who     *teamv1.TeamSnapshot // name, mode and so on; lists and figures are left out
	health  *teamv1.Health
	runs    map[string]*watched  // that are not over, or not told to their end
	over    map[string]ending    // others that have ended of late
	floor   map[string]time.Time // what had ended of a holder by then, when it began, is not counted
	past    *figures             // of those that are over
	partial bool
	upTo    time.Time // see cursor
	resumed bool
	board   *boardWatch // nil: it has none

	shown *teamv1.TeamSnapshot // that was told last
}

// ending is how far a task came that is over, and when that was.
type ending struct {
	seq  int64
	at   time.Time
	none bool // the team did nothing in it
}

// watched is a task with the sequence up to which it was told.
type watched struct {
	*run
	mark    int64 // how far it is known to have come
	told    time.Time
	counted *figures // of run as it is; nil: to be counted
}

// figures are those of the task as it is.
func (r *watched) figures() *figures {
	if r.counted == nil {
		r.counted = r.run.figures()
	}
	return r.counted
}

// begin reads what is on record: all of it in silence, or behind a cursor up to
// that.
func (w *teamWatch) begin(ctx context.Context, text string) error {
	w.introduce(ctx)
	c, ok := decode(text, w.owner, w.team)
	now := w.m.c.Clock()
	ok = ok && now.Sub(c.upTo) < lifetime
	w.upTo = now.Add(-margin)
	w.holders = w.m.holders(w.team, 0)
	marks, err := w.marks(ctx)
	if err != nil {
		return a2a.StoreError("", err)
	}
	behind, err := w.board.begin(ctx, c.board)
	if err != nil {
		return err
	}
	if w.resumed = ok && behind && covers(marks, c); !w.resumed {
		w.board.skip()
		return w.load(ctx, marks, w.upTo, func(string) func(*teamv1.Event) bool { return everything })
	}
	old := slices.DeleteFunc(slices.Clone(marks), func(m a2a.RunMark) bool { _, listed := c.roots[m.Root]; return listed })
	if err := w.load(ctx, old, c.upTo, c.told); err != nil {
		return err
	}
	listed := slices.DeleteFunc(marks, func(m a2a.RunMark) bool { _, listed := c.roots[m.Root]; return !listed })
	return w.load(ctx, listed, time.Time{}, c.told)
}

// marks are those of the tasks that have not ended, and of the newest that have, of
// each holder.
func (w *teamWatch) marks(ctx context.Context) (marks []a2a.RunMark, err error) {
	for _, id := range w.holders {
		more, err := w.marksOf(ctx, id)
		if err != nil {
			return nil, err
		}
		marks = append(marks, more...)
	}
	return marks, nil
}

func (w *teamWatch) marksOf(ctx context.Context, holder string) ([]a2a.RunMark, error) {
	marks, err := w.overview.Runs(ctx, w.owner, a2a.RunFilter{Agent: holder})
	if err != nil {
		return nil, err
	}
	open := map[string]int{}
	for i, m := range marks {
		open[m.Root] = i
	}
	ended, err := w.overview.Runs(ctx, w.owner, a2a.RunFilter{Agent: holder, Ended: true, Limit: w.m.c.Runs + len(marks) + 1})
	for _, m := range ended {
		i, known := open[m.Root]
		switch {
		case known:
			marks[i] = m
		case !taskstate.Final(m.State): // it is new
		case len(marks) == w.m.c.Runs+len(open):
			w.partial, w.floor[holder] = true, m.StatusAt
			return marks, err
		default:
			marks = append(marks, m)
		}
	}
	return marks, err
}

func everything(*teamv1.Event) bool { return true }

// covers reports whether the roots of a cursor are still there.
func covers(marks []a2a.RunMark, c cursor) bool {
	there := map[string]int64{}
	for _, m := range marks {
		there[m.Root] = m.Seq
	}
	for root, seq := range c.roots {
		if there[root] < seq {
			return false
		}
	}
	return true
}

// told returns what tells which events of a root lie before a cursor.
func (c cursor) told(root string) func(*teamv1.Event) bool {
	if seq, ok := c.roots[root]; ok {
		return func(ev *teamv1.Event) bool { return ev.GetSeq() <= seq }
	}
	return func(ev *teamv1.Event) bool { return !ev.GetTime().AsTime().After(c.upTo) }
}

// load folds tasks up to what was told of them. Those that had ended before some
// time were told to their end.
func (w *teamWatch) load(ctx context.Context, marks []a2a.RunMark, before time.Time, told func(root string) func(*teamv1.Event) bool) error {
	for _, mark := range marks {
		key := a2a.Key{Owner: w.owner, ID: mark.Root}
		if f := w.m.known(key, w.team); f != nil && mark.StatusAt.Before(before) {
			w.past.add(f)
			continue
		}
		r, silent := &watched{run: newRun(mark.Root, w.team, journal.Outline), mark: mark.Seq}, told(mark.Root)
		var hidden []*teamv1.Event // of the beginning, which is told with the event that reveals the task
		seen := project.New(mark.Root, "")
		err := w.m.each(ctx, key, 0, func(ev *teamv1.Event) bool {
			if !seen.Visible() {
				hidden = append(hidden, ev)
				if seen.Apply(ev); !seen.Visible() {
					return true
				}
			}
			if !silent(ev) {
				r.mark = max(r.mark, ev.GetSeq())
				return false
			}
			for _, before := range hidden {
				r.take(before)
			}
			if hidden == nil {
				r.take(ev)
			}
			hidden = nil
			return true
		})
		switch {
		case a2a.IsNotFound(err): // deleted meanwhile
			continue
		case a2a.IsDamaged(err): // the others are worth more than nothing
			w.leave(mark)
			continue
		case err != nil:
			return err
		}
		r.told, r.mark = r.Now, max(r.mark, r.Seq)
		w.keep(r)
	}
	return nil
}

// leave does without a task that cannot be read.
func (w *teamWatch) leave(mark a2a.RunMark) {
	delete(w.runs, mark.Root)
	w.over[mark.Root] = ending{mark.Seq, w.m.c.Clock(), false}
	w.partial = true
}

// keep follows a task, or only counts it where it is over and told.
func (w *teamWatch) keep(r *watched) {
	if !r.over() || r.Seq < r.mark {
		w.runs[r.Root] = r
		return
	}
	delete(w.runs, r.Root)
	w.over[r.Root] = ending{r.Seq, r.Top.Ended, len(r.parts) == 0}
	f := r.figures()
	w.past.add(f)
	w.m.remember(a2a.Key{Owner: w.owner, ID: r.Root}, w.team, f)
}

// known returns the figures of a team in a run that has ended; nil where they are not kept.
func (m *Monitor) known(k a2a.Key, team string) *figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.past[pastKey{k, team}]
}

func (m *Monitor) remember(k a2a.Key, team string, f *figures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.past) >= maxPast {
		clear(m.past)
	}
	m.past[pastKey{k, team}] = f
}

// introduce asks the team who it is. One that does not say it in time has no name.
func (w *teamWatch) introduce(ctx context.Context) {
	w.who = &teamv1.TeamSnapshot{TeamId: w.team, Name: w.team}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	w.who.Revision = w.revision(ctx)
	a, err := w.m.h.Agents().Get(w.team)
	if err != nil {
		return
	}
	if info, err := a.Info(ctx); err == nil {
		w.who.Name, w.who.Description, w.who.Mode = cmp.Or(info.GetName(), w.team), info.GetDescription(), info.GetMetadata()["mode"]
	}
	if w.health = w.asked(); len(w.health.GetMembers()) == 0 { // not checked yet
		if h, err := a.HealthCheck(ctx); err == nil {
			w.health = h
		}
	}
}

// revision is that of the team's definition; empty where it has none, or it cannot be had.
func (w *teamWatch) revision(ctx context.Context) string {
	p, ok := w.m.h.Agents().(a2a.Pinner)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	pins, err := p.Pins(ctx, w.team)
	if err != nil {
		return ""
	}
	return pins.GetRevisions()[w.team]
}

// asked is the team's health as it is known, without waiting; nil where nobody
// keeps it.
func (w *teamWatch) asked() *teamv1.Health {
	if k, ok := w.m.h.Agents().(interface {
		Health(id string) *teamv1.Health
	}); ok {
		return k.Health(w.team)
	}
	return nil
}

// refresh looks at the definition and the health again, and reports whether they have
// changed.
func (w *teamWatch) refresh(ctx context.Context) bool {
	if now := w.revision(ctx); now != "" && now != w.who.GetRevision() {
		w.introduce(ctx)
		return true
	}
	h := w.asked()
	if h == nil || len(h.GetMembers()) == 0 && len(w.health.GetMembers()) > 0 && h.GetHealthy() || proto.Equal(h, w.health) {
		return false
	}
	w.health = h
	return true
}

// tell tells the team, then what happens, and how the team is then.
func (w *teamWatch) tell(ctx context.Context, yield func(*teamv1.WatchTeamResponse, error) bool) {
	if !w.resumed && !w.show(yield, true) {
		return
	}
	changed := w.resumed
	for {
		events, err := w.news(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, n := range events {
			n.of.take(n.ev)
			n.of.told = n.of.Now
			if n.of.looked() {
				changed, n.of.counted = true, nil
			}
			w.keep(n.of)
			e := n.of.event(n.ev)
			if e != nil && n.of.partOf(n.ev.GetScope()) != nil && !yield(&teamv1.WatchTeamResponse{Cursor: w.cursor(), Kind: &teamv1.WatchTeamResponse_Event{Event: e}}, nil) {
				return
			}
		}
		told, err := w.tellBoard(ctx, yield)
		if err != nil {
			yield(nil, err)
			return
		}
		if !told {
			return
		}
		if w.behind() || w.board.behind() {
			continue
		}
		changed = w.board.refreshed() || changed
		if changed = w.refresh(ctx) || changed; changed && !w.show(yield, false) {
			return
		}
		changed = false
		if err := w.wait(ctx); err != nil {
			yield(nil, err)
			return
		}
	}
}

// tellBoard tells what happened on the board; false: nobody listens any more.
func (w *teamWatch) tellBoard(ctx context.Context, yield func(*teamv1.WatchTeamResponse, error) bool) (bool, error) {
	events, lost, err := w.board.news(ctx)
	if err != nil {
		return false, err
	}
	for _, ev := range events {
		w.board.told = ev.GetSeq()
		if !yield(&teamv1.WatchTeamResponse{Cursor: w.cursor(), Kind: &teamv1.WatchTeamResponse_BoardEvent{BoardEvent: ev}}, nil) {
			return false, nil
		}
	}
	return !lost || w.show(yield, true), nil
}

// behind reports whether there is more to tell already.
func (w *teamWatch) behind() bool {
	for _, r := range w.runs {
		if r.Seq < r.mark {
			return true
		}
	}
	return false
}

// wait returns when there may be more, at most so often.
func (w *teamWatch) wait(ctx context.Context) error {
	rest := time.NewTimer(pace)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	poll := time.NewTimer(w.m.c.Poll)
	defer poll.Stop()
	select {
	case <-w.wake:
	case <-poll.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// news is an event that was not told.
type news struct {
	of *watched
	ev *teamv1.Event
}

// news reads what was not told, about a batch of it, in the order of its time.
func (w *teamWatch) news(ctx context.Context) ([]news, error) {
	since := w.m.c.Clock().Add(-margin)
	for _, id := range w.m.holders(w.team, w.m.c.Poll) {
		if !slices.Contains(w.holders, id) { // it has become a member
			w.holders = append(w.holders, id)
		}
	}
	for _, id := range w.holders {
		marks, err := w.overview.Runs(ctx, w.owner, a2a.RunFilter{Agent: id, Ended: true, Since: w.upTo})
		if err != nil {
			return nil, a2a.StoreError("", err)
		}
		for _, mark := range marks {
			w.follow(mark)
		}
	}
	var list []news
	for root, r := range w.runs {
		if r.Seq >= r.mark || len(list) >= maxBatch {
			continue
		}
		page, _, err := w.m.h.Page(ctx, a2a.Key{Owner: w.owner, ID: root}, r.Seq)
		switch {
		case a2a.IsNotFound(err):
			delete(w.runs, root)
			continue
		case a2a.IsDamaged(err):
			w.leave(a2a.RunMark{Root: root, Seq: r.mark})
			continue
		case err != nil:
			return nil, err
		case len(page) == 0: // it is on record for others, and here in a moment
			r.mark = r.Seq
		}
		for _, rec := range page {
			list = append(list, news{r, rec.Event})
			r.mark = max(r.mark, rec.Seq)
		}
	}
	slices.SortStableFunc(list, func(a, b news) int { return a.ev.GetTime().AsTime().Compare(b.ev.GetTime().AsTime()) })
	if since.After(w.upTo) {
		w.upTo = since
		w.forget()
	}
	return list, nil
}

// follow notes how far a task has come, unless it is over and told.
func (w *teamWatch) follow(mark a2a.RunMark) {
	if _, over := w.over[mark.Root]; over {
		return
	}
	r := w.runs[mark.Root]
	if r == nil {
		if taskstate.Final(mark.State) && !mark.StatusAt.After(w.floor[mark.Agent]) {
			return
		}
		r = &watched{run: newRun(mark.Root, w.team, journal.Outline)}
		w.runs[mark.Root] = r
	}
	r.mark = max(r.mark, mark.Seq)
}

// forget drops what no look asks for any more.
func (w *teamWatch) forget() {
	for root, e := range w.over {
		if e.at.Before(w.upTo.Add(-margin)) {
			delete(w.over, root)
		}
	}
}

// cursor is where the watcher has come to. Of a task of which nothing was told it does
// not matter how far it was read.
func (w *teamWatch) cursor() string {
	c := cursor{upTo: w.upTo.Truncate(time.Millisecond), roots: map[string]int64{}, board: w.board.at()}
	for root, r := range w.runs {
		if r.Seq < r.mark || len(r.parts) > 0 && r.told.After(c.upTo) {
			c.roots[root] = r.Seq
		}
	}
	for root, e := range w.over {
		if !e.none && e.at.After(c.upTo) {
			c.roots[root] = e.seq
		}
	}
	return c.encode(w.owner, w.team)
}
