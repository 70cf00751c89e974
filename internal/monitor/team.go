package monitor

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// maxShown is the maximum length of the lists in a snapshot.
	maxShown = 100
	// maxBatch is about how many events are read before they are sent.
	maxBatch = 1024
	// pace is the minimum time between two reads for one watcher.
	pace = 20 * time.Millisecond
	// askTime is the timeout for asking a team for its description and health.
	askTime = 2 * time.Second
)

// WatchTeam returns a snapshot of a team, followed by the events of the caller's tasks in
// which the team works, and an update of the snapshot whenever it has changed, until ctx
// ends. These tasks are the ones sent to the team and, of tasks sent to other teams, the
// parts in which it works as a member. With the cursor of an earlier response, of any
// replica, the stream continues there without gaps or repeats. If the cursor is invalid or
// too old, the stream begins with a snapshot. The errors are AGENT_NOT_FOUND,
// INSUFFICIENT_RESOURCES if too many streams are open, and UNSUPPORTED_OPERATION. The
// sequence can be iterated once, before ctx ends.
func (m *Monitor) WatchTeam(ctx context.Context, req *teamv1.WatchTeamRequest) (iter.Seq2[*teamv1.WatchTeamResponse, error], error) {
	who, err := identity.Authenticated(ctx)
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
	leave, err := m.h.AcquireTeamStream(who.Owner(), req.GetTeamId())
	if err != nil {
		return nil, err
	}
	w := &teamWatch{
		m: m, overview: overview, owner: who.Owner(), team: req.GetTeamId(),
		runs: map[string]*watched{}, over: map[string]ending{}, past: &figures{}, floor: map[string]time.Time{},
	}
	if m.hasBoard(ctx, w.team) {
		w.board = &boardWatch{boards: m.c.Boards, key: board.Key{Account: who.Account, Team: agent.KeyOf(m.c.BoardTeams.AccountOf(w.team), w.team)}, clock: m.c.Clock}
	}
	w.wake, w.stop = overview.WatchAll(w.owner)
	all := func() { w.stop(); leave() }
	if err := w.begin(ctx, req.GetCursor()); err != nil {
		all()
		return nil, err
	}
	return closing(ctx, all, w.stream), nil
}

// teamWatch is the watch of one team: a position in the journal of each running task, and
// the figures of all tasks. It is not safe for concurrent use.
type teamWatch struct {
	m           *Monitor
	overview    runs.Overview
	owner, team string
	holders     []string // the agents in whose tasks the team may work; only grows
	wake        <-chan struct{}
	stop        func()

	who     *teamv1.TeamSnapshot // ID, name, mode and revision; without lists and figures
	health  *teamv1.Health
	open    map[string]string    // health details of the members whose breakers are open for the owner's account, by id
	runs    map[string]*watched  // tasks that run, or whose events were not all sent
	over    map[string]ending    // other tasks that have ended recently
	floor   map[string]time.Time // per holder: tasks that had ended by then are not counted
	past    *figures             // figures of ended tasks
	partial bool
	upTo    time.Time // see cursor
	resumed bool
	board   *boardWatch // nil if the team has no board

	shown *teamv1.TeamSnapshot // the last one sent
}

// ending is the end of a task: its last sequence number and its time.
type ending struct {
	seq  int64
	at   time.Time
	none bool // the team did not work in it
}

// watched is a running task with the position up to which its events were sent.
type watched struct {
	*run
	mark    int64     // the last sequence number that is known to exist
	sent    time.Time // time of the last event that was sent
	counted *figures  // figures of run; nil if they must be computed again
}

// figures returns the current figures of the task.
func (r *watched) figures() *figures {
	if r.counted == nil {
		r.counted = r.run.figures()
	}
	return r.counted
}

// begin reads the journals up to now, or, if the cursor is valid, up to the cursor.
func (w *teamWatch) begin(ctx context.Context, text string) error {
	w.introduce(ctx)
	c, ok := decode(text, w.owner, w.team)
	now := w.m.c.Clock()
	ok = ok && now.Sub(c.upTo) < lifetime
	w.upTo = now.Add(-margin)
	w.holders = w.m.holders(w.team, 0)
	marks, err := w.marks(ctx)
	if err != nil {
		return runs.StoreError("", err)
	}
	behind, err := w.board.begin(ctx, c.board)
	if err != nil {
		return err
	}
	if w.resumed = ok && behind && covers(marks, c); !w.resumed {
		w.board.skip()
		return w.load(ctx, marks, w.upTo, func(string) func(*teamv1.Event) bool { return everything })
	}
	old := slices.DeleteFunc(slices.Clone(marks), func(m runs.RunMark) bool { _, listed := c.roots[m.Root]; return listed })
	if err := w.load(ctx, old, c.upTo, c.covered); err != nil {
		return err
	}
	listed := slices.DeleteFunc(marks, func(m runs.RunMark) bool { _, listed := c.roots[m.Root]; return !listed })
	return w.load(ctx, listed, time.Time{}, c.covered)
}

// marks returns the tasks of all holders that run, and the newest ones that have ended.
func (w *teamWatch) marks(ctx context.Context) (marks []runs.RunMark, err error) {
	for _, id := range w.holders {
		more, err := w.marksOf(ctx, id)
		if err != nil {
			return nil, err
		}
		marks = append(marks, more...)
	}
	return marks, nil
}

func (w *teamWatch) marksOf(ctx context.Context, holder string) ([]runs.RunMark, error) {
	marks, err := w.overview.Runs(ctx, w.owner, runs.RunFilter{Agent: holder})
	if err != nil {
		return nil, err
	}
	open := map[string]int{}
	for i, m := range marks {
		open[m.Root] = i
	}
	ended, err := w.overview.Runs(ctx, w.owner, runs.RunFilter{Agent: holder, Ended: true, Limit: w.m.c.Runs + len(marks) + 1})
	for _, m := range ended {
		i, known := open[m.Root]
		switch {
		case known:
			marks[i] = m
		case !taskstate.Final(m.State): // it began between the two reads
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

// covers reports whether the store still has the listed roots of a cursor.
func covers(marks []runs.RunMark, c cursor) bool {
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

// covered returns a function that reports whether an event of a root is before the cursor.
func (c cursor) covered(root string) func(*teamv1.Event) bool {
	if seq, ok := c.roots[root]; ok {
		return func(ev *teamv1.Event) bool { return ev.GetSeq() <= seq }
	}
	return func(ev *teamv1.Event) bool { return !ev.GetTime().AsTime().After(c.upTo) }
}

// load folds the events of tasks that were sent already, as sent reports for each root.
// Tasks that ended before a time need not be read if their figures are cached.
func (w *teamWatch) load(ctx context.Context, marks []runs.RunMark, before time.Time, sent func(root string) func(*teamv1.Event) bool) error {
	for _, mark := range marks {
		key := runs.Key{Owner: w.owner, ID: mark.Root}
		if f := w.m.known(key, w.team); f != nil && mark.StatusAt.Before(before) {
			w.past.add(f)
			continue
		}
		r, silent := &watched{run: newRun(mark.Root, w.team, journal.Outline), mark: mark.Seq}, sent(mark.Root)
		var hidden []*teamv1.Event // the first events, which are sent together with the event that makes the task visible
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
				r.apply(before)
			}
			if hidden == nil {
				r.apply(ev)
			}
			hidden = nil
			return true
		})
		switch {
		case a2aerror.IsNotFound(err): // deleted meanwhile
			continue
		case a2aerror.IsDamaged(err): // show the other tasks
			w.skip(mark)
			continue
		case err != nil:
			return err
		}
		r.sent, r.mark = r.Now, max(r.mark, r.Seq)
		w.keep(r)
	}
	return nil
}

// skip stops watching a task that cannot be read, and marks the figures as partial.
func (w *teamWatch) skip(mark runs.RunMark) {
	delete(w.runs, mark.Root)
	w.over[mark.Root] = ending{mark.Seq, w.m.c.Clock(), false}
	w.partial = true
}

// keep watches a task, or only counts it if it has ended and all its events were sent.
func (w *teamWatch) keep(r *watched) {
	if !r.over() || r.Seq < r.mark {
		w.runs[r.Root] = r
		return
	}
	delete(w.runs, r.Root)
	w.over[r.Root] = ending{r.Seq, r.Top.Ended, len(r.parts) == 0}
	f := r.figures()
	w.past.add(f)
	w.m.remember(runs.Key{Owner: w.owner, ID: r.Root}, w.team, f)
}

// known returns the cached figures of a team in an ended run, or nil if they are not cached.
func (m *Monitor) known(k runs.Key, team string) *figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.past[pastKey{k, team}]
}

// remember caches the figures of a team in an ended run.
func (m *Monitor) remember(k runs.Key, team string, f *figures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.past) >= maxPast {
		clear(m.past)
	}
	m.past[pastKey{k, team}] = f
}

// introduce reads the description and health of the team. If the team does not answer
// within askTime, its name is its ID.
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
	w.open = openBreakers(a, identity.AccountOf(w.owner))
	if w.health = w.knownHealth(); len(w.health.GetMembers()) == 0 { // not checked yet
		if h, err := a.HealthCheck(ctx); err == nil {
			w.health = h
		}
	}
}

// revision returns the revision of the team's definition, "" if it is unknown.
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

// knownHealth returns the cached health of the team without waiting, nil if health is not
// cached.
func (w *teamWatch) knownHealth() *teamv1.Health {
	if k, ok := w.m.h.Agents().(interface {
		Health(id string) *teamv1.Health
	}); ok {
		return k.Health(w.team)
	}
	return nil
}

// openBreakers returns the health details of the members of a team whose circuit breakers are open for an account, by
// the ids of the members.
func openBreakers(a agent.Agent, account string) map[string]string {
	team, ok := a.(interface {
		OpenBreakers(account string) map[string]string
	})
	if !ok {
		return nil
	}
	return team.OpenBreakers(account)
}

// refresh reads the revision and the health again and reports whether one of them has
// changed.
func (w *teamWatch) refresh(ctx context.Context) bool {
	if now := w.revision(ctx); now != "" && now != w.who.GetRevision() {
		w.introduce(ctx)
		return true
	}
	if a, err := w.m.h.Agents().Get(w.team); err == nil {
		open := openBreakers(a, identity.AccountOf(w.owner))
		if !maps.Equal(open, w.open) {
			w.open = open
			return true
		}
	}
	h := w.knownHealth()
	if h == nil || len(h.GetMembers()) == 0 && len(w.health.GetMembers()) > 0 && h.GetHealthy() || proto.Equal(h, w.health) {
		return false
	}
	w.health = h
	return true
}

// stream sends the snapshot, then events, and an update after each batch that changed
// something.
func (w *teamWatch) stream(ctx context.Context, yield func(*teamv1.WatchTeamResponse, error) bool) {
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
			n.of.apply(n.ev)
			n.of.sent = n.of.Now
			if n.of.takeChanged() {
				changed, n.of.counted = true, nil
			}
			w.keep(n.of)
			e := n.of.event(n.ev)
			if e != nil && n.of.partOf(n.ev.GetScope()) != nil && !yield(&teamv1.WatchTeamResponse{Cursor: w.cursor(), Kind: &teamv1.WatchTeamResponse_Event{Event: e}}, nil) {
				return
			}
		}
		reading, err := w.sendBoard(ctx, yield)
		if err != nil {
			yield(nil, err)
			return
		}
		if !reading {
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

// sendBoard sends the new events of the board. It returns false if the reader has stopped.
func (w *teamWatch) sendBoard(ctx context.Context, yield func(*teamv1.WatchTeamResponse, error) bool) (bool, error) {
	events, lost, err := w.board.news(ctx)
	if err != nil {
		return false, err
	}
	for _, ev := range events {
		w.board.sent = ev.GetSeq()
		if !yield(&teamv1.WatchTeamResponse{Cursor: w.cursor(), Kind: &teamv1.WatchTeamResponse_BoardEvent{BoardEvent: ev}}, nil) {
			return false, nil
		}
	}
	return !lost || w.show(yield, true), nil
}

// behind reports whether more events can be read already.
func (w *teamWatch) behind() bool {
	for _, r := range w.runs {
		if r.Seq < r.mark {
			return true
		}
	}
	return false
}

// wait returns when the watcher should read again: after a notification or Config.Poll, but
// not before pace.
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

// news is an event that was not sent yet.
type news struct {
	of *watched
	ev *teamv1.Event
}

// news reads about maxBatch events that were not sent, sorted by time.
func (w *teamWatch) news(ctx context.Context) ([]news, error) {
	since := w.m.c.Clock().Add(-margin)
	for _, id := range w.m.holders(w.team, w.m.c.Poll) {
		if !slices.Contains(w.holders, id) { // the team has become a member of it
			w.holders = append(w.holders, id)
		}
	}
	for _, id := range w.holders {
		marks, err := w.overview.Runs(ctx, w.owner, runs.RunFilter{Agent: id, Ended: true, Since: w.upTo})
		if err != nil {
			return nil, runs.StoreError("", err)
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
		page, _, err := w.m.h.Page(ctx, runs.Key{Owner: w.owner, ID: root}, r.Seq)
		switch {
		case a2aerror.IsNotFound(err):
			delete(w.runs, root)
			continue
		case a2aerror.IsDamaged(err):
			w.skip(runs.RunMark{Root: root, Seq: r.mark})
			continue
		case err != nil:
			return nil, err
		case len(page) == 0: // another replica wrote it; it is not readable here yet
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

// follow records how far a task has progressed, unless it has ended and was sent
// completely.
func (w *teamWatch) follow(mark runs.RunMark) {
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

// forget removes the ends of tasks that no later read returns.
func (w *teamWatch) forget() {
	for root, e := range w.over {
		if e.at.Before(w.upTo.Add(-margin)) {
			delete(w.over, root)
		}
	}
}

// cursor returns the position of the watcher. Tasks without work of the team are omitted:
// no event of theirs is sent.
func (w *teamWatch) cursor() string {
	c := cursor{upTo: w.upTo.Truncate(time.Millisecond), roots: map[string]int64{}, board: w.board.at()}
	for root, r := range w.runs {
		if r.Seq < r.mark || len(r.parts) > 0 && r.sent.After(c.upTo) {
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
