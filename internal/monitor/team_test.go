package monitor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// desk is a monitor with a store whose runs the test drives, and with a clock of its own.
type desk struct {
	*testing.T
	clock  *storetest.Clock
	store  store.Store
	m      *Monitor
	ctx    context.Context //nolint:containedctx // of the caller
	claims map[string]runs.Claim
}

type registry struct{}

func (registry) Get(id string) (agent.Agent, error) { return &agent.Func{ID: id}, nil }
func (registry) IDs() []string                      { return []string{"a"} }

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, clock: storetest.NewClock(), claims: map[string]runs.Claim{}}
	d.store = memstore.OpenAt(t, d.clock.Now)
	h := a2a.NewHandler(a2a.Config{Agents: registry{}, Store: d.store, Overview: d.store, Clock: d.clock.Now})
	d.m = New(Config{Handler: h, Clock: d.clock.Now, Poll: 10 * time.Millisecond})
	d.ctx = identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann"})
	return d
}

// begin makes a run of agent "a" and claims it.
func (d *desk) begin(id string) {
	d.Helper()
	d.beginAs(&teamv1.Accepted{TaskId: id, Agent: "a", Message: agent.UserMessage(id, "do it")})
}

func (d *desk) beginAs(accepted *teamv1.Accepted) {
	d.Helper()
	id := accepted.GetTaskId()
	_, _, err := d.store.Create(d.ctx, runs.New{Owner: "acme/ann", Accepted: accepted})
	if err != nil {
		d.Fatal(err)
	}
	d.take()
	d.put(id, "", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
}

// take claims the runs.
func (d *desk) take() {
	d.Helper()
	claims, _, err := d.store.Claim(d.ctx, "r", engine.NewRoom(100, nil))
	if err != nil {
		d.Fatal(err)
	}
	for _, c := range claims {
		d.claims[c.Root] = c
	}
}

// put puts an event on record, some time later.
func (d *desk) put(id, scope string, ev *teamv1.Event) {
	d.Helper()
	d.clock.Move(time.Millisecond)
	ev.Scope, ev.Agent = scope, "a"
	j := d.claims[id].Journal
	if err := cmp.Or(j.Append(d.ctx, ev), j.Commit(d.ctx)); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) note(id string) {
	d.Helper()
	d.put(id, "", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "on"}}})
}

func (d *desk) end(id string) {
	d.Helper()
	d.put(id, "", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}}})
}

// reader reads what a watcher receives.
type reader struct {
	next   func() (*teamv1.WatchTeamResponse, error, bool)
	stop   func()
	cursor string
	told   []string
	snaps  int
	last   *teamv1.TeamSnapshot
}

func (d *desk) watch(cursor string) *reader {
	d.Helper()
	seq, err := d.m.WatchTeam(d.ctx, &teamv1.WatchTeamRequest{TeamId: "a", Cursor: cursor})
	if err != nil {
		d.Fatal(err)
	}
	r := &reader{}
	r.next, r.stop = iter.Pull2(seq)
	d.Cleanup(r.stop)
	return r
}

// read reads so many events, and first a snapshot where one comes.
func (r *reader) read(d *desk, events int) {
	d.Helper()
	for len(r.told) < events || r.cursor == "" {
		m, err, ok := r.next()
		if err != nil || !ok {
			d.Fatalf("behind %v: %v", r.told, err)
		}
		r.cursor = m.GetCursor()
		switch k := m.GetKind().(type) {
		case *teamv1.WatchTeamResponse_Event:
			r.told = append(r.told, fmt.Sprint(k.Event.GetRootTaskId(), " ", k.Event.GetEvent().GetSeq()))
		case *teamv1.WatchTeamResponse_Snapshot:
			r.snaps, r.last = r.snaps+1, k.Snapshot
		case *teamv1.WatchTeamResponse_Update:
			r.last = k.Update
		}
	}
}

// resumes checks that a watcher that resumes from a cursor receives exactly these events.
func (d *desk) resumes(cursor string, want ...string) {
	d.Helper()
	r := d.watch(cursor)
	defer r.stop()
	r.read(d, len(want))
	for r.last == nil { // the update comes when all is told
		m, err, ok := r.next()
		if err != nil || !ok || m.GetEvent() != nil {
			d.Fatalf("behind the last event comes %v, %v", m, err)
		}
		r.last = m.GetUpdate()
	}
	slices.Sort(want)
	slices.Sort(r.told)
	if diff := gocmp.Diff(append([]string{}, want...), append([]string{}, r.told...)); diff != "" || r.snaps > 0 {
		d.Errorf("%d snapshots, and:\n%s", r.snaps, diff)
	}
}

func TestR_003_30_CursorBehindTheEndOfATask(t *testing.T) {
	d := newDesk(t)
	r := d.watch("")
	r.read(d, 0)
	start := r.cursor
	d.begin("one")
	d.end("one")
	r.read(d, 3)
	d.resumes(r.cursor)
	d.begin("two")
	d.resumes(r.cursor, "two 1", "two 2")
	d.resumes(start, "one 1", "one 2", "one 3", "two 1", "two 2")
	d.clock.Move(2 * margin) // both are further back than what a cursor lists
	r.read(d, 5)
	d.note("two")
	r.read(d, 6)
	d.resumes(r.cursor)
	d.note("two")
	d.resumes(r.cursor, "two 4")
	d.clock.Move(lifetime)
	late := d.watch(r.cursor)
	if late.read(d, 0); late.snaps != 1 {
		t.Error("a cursor that is too old is taken")
	}
}

// TestR_003_30_CursorOfASlowReader: events that a slow reader has not received yet are in
// its cursor even if they are older than the cursor's time.
func TestR_003_30_CursorOfASlowReader(t *testing.T) {
	d := newDesk(t)
	r := d.watch("")
	r.read(d, 0)
	d.begin("one")
	d.begin("two")
	for range 3 {
		d.note("one")
		d.note("two")
	}
	r.read(d, 1) // of ten, which were read together
	d.clock.Move(3 * margin)
	all := []string{"one 1", "one 2", "one 3", "one 4", "one 5", "two 1", "two 2", "two 3", "two 4", "two 5"}
	for n := 1; n < len(all); n++ {
		r.read(d, n)
		d.resumes(r.cursor, slices.DeleteFunc(slices.Clone(all), func(e string) bool { return slices.Contains(r.told, e) })...)
		if n == 5 { // one that goes on behind it is slow, too
			again := d.watch(r.cursor)
			again.read(d, 1)
			d.clock.Move(3 * margin)
			again.read(d, 2)
			d.resumes(again.cursor, slices.DeleteFunc(slices.Clone(all), func(e string) bool {
				return slices.Contains(r.told, e) || slices.Contains(again.told, e)
			})...)
			again.stop()
		}
	}
}

// TestR_003_28_TheNewestAreCounted: older ended tasks are neither counted nor sent as new;
// tasks that end later are.
func TestR_003_28_TheNewestAreCounted(t *testing.T) {
	d := newDesk(t)
	d.m.c.Runs = 2
	for i := range 4 {
		d.begin(fmt.Sprint("old", i))
		d.end(fmt.Sprint("old", i))
	}
	d.begin("open")
	r := d.watch("")
	r.read(d, 0)
	if c := r.last.GetCounters(); c.GetRuns().GetDone() != 2 || c.GetRuns().GetActive() != 1 || !c.GetPartial() {
		t.Errorf("counted are %v", c)
	}
	d.end("open")
	r.read(d, 1)
	for r.last.GetCounters().GetRuns().GetDone() != 3 {
		m, err, ok := r.next()
		if err != nil || !ok || m.GetUpdate() == nil {
			t.Fatalf("behind %v comes %v, %v", r.told, m, err)
		}
		r.last = m.GetUpdate()
	}
	if diff := gocmp.Diff([]string{"open 3"}, r.told); diff != "" {
		t.Error(diff)
	}
}

// TestR_003_28_CostOfAnAttemptThatIsRepeated: it counts before the step has its end.
func TestR_003_28_CostOfAnAttemptThatIsRepeated(t *testing.T) {
	d := newDesk(t)
	d.begin("one")
	d.put("one", "", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_MODEL}}}}})
	d.put("one", "1", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	d.put("one", "1", &teamv1.Event{Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Attempt: 1, Spent: &teamv1.Spent{InputTokens: 7}}}})
	r := d.watch("")
	r.read(d, 0)
	if got := r.last.GetCounters().GetSpent().GetInputTokens(); got != 7 {
		t.Errorf("%d tokens", got)
	}
	if at := r.last.GetActive()[0].GetWorkers(); len(at) != 1 || at[0].GetState() != teamv1.TraceStep_STATE_RETRYING {
		t.Errorf("who works is %v", at)
	}
	tr, err := d.m.GetTrace(d.ctx, &teamv1.GetTraceRequest{TaskId: "one"})
	if err != nil || tr.GetTrace().GetStep().GetSpent().GetInputTokens() != 7 || tr.GetTrace().GetStep().GetOwn().GetInputTokens() != 0 {
		t.Errorf("%v, %v", tr, err)
	}
}

// TestR_003_28_SnapshotFitsClients: however much is asked, and held on the board, a snapshot is
// no more than gRPC clients take, and has as much of it as it can.
func TestR_003_28_SnapshotFitsClients(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	w := &teamWatch{who: &teamv1.TeamSnapshot{}, past: &figures{}, runs: map[string]*watched{}, board: &boardWatch{}}
	for i := range 9 {
		r := newRun(fmt.Sprint("t", i), "", journal.Outline)
		r.Top.Since = time.Unix(int64(i), 0)
		r.parts = []*journal.Node{r.Top}
		ask := &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Message: agent.UserMessage("q", long)}}}
		r.apply(ask)
		w.runs[r.Root] = &watched{run: r}
	}
	for range 100 {
		w.board.shown.Held = append(w.board.shown.Held, &teamv1.WorkItem{Description: long[:16<<10]})
	}
	s := w.snapshot()
	if n := proto.Size(s); n > 4<<20-64<<10 || len(s.GetQuestions()) != 2 || len(s.GetBoardItems()) < 50 || len(s.GetActive()) != 9 {
		t.Errorf("it has %d bytes, %d questions, %d items of work and %d tasks", n, len(s.GetQuestions()), len(s.GetBoardItems()), len(s.GetActive()))
	}
}

// TestR_003_30_TaskThatIsSeenLate: a task that is hidden until it is clear that the answer
// is not a message is then sent from its beginning, even to watchers whose cursor is newer.
func TestR_003_30_TaskThatIsSeenLate(t *testing.T) {
	d := newDesk(t)
	accepted := &teamv1.Accepted{TaskId: "late", Agent: "a", Message: agent.UserMessage("late", "do it"), MayReplyDirectly: true}
	d.beginAs(accepted)
	d.begin("seen")
	d.clock.Move(2 * margin)
	r := d.watch("")
	if r.read(d, 0); r.last.GetCounters().GetRuns().GetTotal() != 1 {
		t.Fatalf("shown are %v", r.last.GetCounters())
	}
	d.note("late")
	d.resumes(r.cursor, "late 1", "late 2", "late 3")
	r.read(d, 3)
	d.resumes(r.cursor)
}

// changing are agents of which "a" has another revision each time.
type changing struct {
	registry
	revision atomic.Int64
}

func (c *changing) Pins(context.Context, string) (*teamv1.Pins, error) {
	return &teamv1.Pins{Revisions: map[string]string{"a": fmt.Sprint("r", c.revision.Load())}}, nil
}

func (c *changing) Pinned(context.Context, string, *teamv1.Pins) (agent.Agent, func(), error) {
	a, err := c.Get("a")
	return a, func() {}, err
}

// TestR_003_28_RevisionThatChanges: a new definition of the team leads to an update without
// an event.
func TestR_003_28_RevisionThatChanges(t *testing.T) {
	d := newDesk(t)
	c := &changing{}
	d.m = New(Config{Handler: a2a.NewHandler(a2a.Config{Agents: c, Store: d.store, Overview: d.store, Clock: d.clock.Now}), Clock: d.clock.Now, Poll: 10 * time.Millisecond})
	r := d.watch("")
	if r.read(d, 0); r.last.GetRevision() != "r0" {
		t.Fatalf("begins with %v", r.last)
	}
	c.revision.Store(1)
	for r.last.GetRevision() != "r1" {
		m, err, ok := r.next()
		if err != nil || !ok || m.GetUpdate() == nil {
			t.Fatalf("told %v, %v", m, err)
		}
		r.last = m.GetUpdate()
	}
}

// boss is an agent that has "a" as a member.
type boss struct{ agent.Func }

func (*boss) Members() []string { return []string{"a"} }

type bossy struct{}

func (bossy) Get(id string) (agent.Agent, error) {
	if id == "boss" {
		return &boss{agent.Func{ID: id}}, nil
	}
	return registry{}.Get(id)
}
func (bossy) IDs() []string { return []string{"a", "boss"} }

// TestR_003_30_CursorBesideOthers: tasks in which a member might work but has not are not
// in its watchers' cursors; if it works in one later, that is sent.
func TestR_003_30_CursorBesideOthers(t *testing.T) {
	d := newDesk(t)
	d.m = New(Config{Handler: a2a.NewHandler(a2a.Config{Agents: bossy{}, Store: d.store, Overview: d.store, Clock: d.clock.Now}), Clock: d.clock.Now, Poll: 10 * time.Millisecond})
	r := d.watch("")
	r.read(d, 0)
	for i := range maxListed + 10 {
		id := fmt.Sprint("boss", i)
		d.beginAs(&teamv1.Accepted{TaskId: id, Agent: "boss", Message: agent.UserMessage(id, "do it")})
		if i%2 == 0 {
			d.end(id)
		}
	}
	d.begin("own")
	r.read(d, 2)
	if r.cursor == lost {
		t.Fatal("the cursor is lost")
	}
	d.resumes(r.cursor)
	d.put("boss1", "", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_DELEGATE, Member: "a"}}}}})
	d.put("boss1", "1", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	d.resumes(r.cursor, "boss1 4")
	r.read(d, 3)
	d.resumes(r.cursor)
}
