package run

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/ring"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/internal/testkit/dbtest"
	"github.com/agentteams/team-server/pkg/agent"
)

var one = runs.Key{Owner: "o", ID: "one"}

func putInput(t testing.TB, s *rig, id string) {
	t.Helper()
	in := &teamv1.Inbound{Key: id, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage(id, "and this")}}}
	if _, _, err := s.Put(context.Background(), one, in, []byte("d"), nil); err != nil {
		t.Fatal(err)
	}
}

func endOf(parts ...*a2av1.Part) *teamv1.Event {
	m := agent.NewMessage("done")
	m.Parts = append(m.GetParts(), parts...)
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: m}}}}
}

func committed(t testing.TB, j *journal, events ...*teamv1.Event) {
	t.Helper()
	if err := j.Append(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// unsteady is a database on which the first read of a journal in each plan fails. The plan then runs again, as
// after a connection was lost.
type unsteady struct {
	db.Engine
	failed *int
}

type unsteadySource struct {
	db.Source
	failed *int
}

type unsteadyQuerier struct {
	db.Querier
	failed *int
}

var errLost = errors.New("the connection is lost")

func (d unsteady) Add(s db.Source) error { return d.Engine.Add(unsteadySource{s, d.failed}) }

func (s unsteadySource) Take() *db.Op {
	o := s.Source.Take()
	if o != nil && o.Plan != nil {
		plan := o.Plan
		o.Plan = func(ctx context.Context, q db.Querier) error {
			if err := plan(ctx, unsteadyQuerier{q, s.failed}); !errors.Is(err, errLost) {
				return err
			}
			return plan(ctx, q)
		}
	}
	return o
}

func (q unsteadyQuerier) Query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if strings.Contains(text, "FROM event") {
		*q.failed++
		return nil, errLost
	}
	return q.Querier.Query(ctx, text, args...)
}

// The end of a large run is prepared before its turn to be written comes, because other runs wait for the writer.
func TestP11_ALargeEndIsPrepared(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	h := held{s.db.Engine, make(chan db.Source, 1)}
	s.db.Engine = h
	defer func() { s.db.Engine = h.Engine }()
	if err := j.Append(t.Context(), endOf(&a2av1.Part{Content: &a2av1.Part_Text{Text: strings.Repeat("x", 1<<20)}})); err != nil {
		t.Fatal(err)
	}
	<-h.sources
	j.mu.Lock()
	b := j.sealed
	j.mu.Unlock()
	if b == nil || b.snap == nil {
		t.Fatal("the end waits for its turn unprepared")
	}
	snap := b.snap
	o := j.Take()
	if err := h.Do(t.Context(), o.Apply); err != nil {
		t.Fatal(err)
	}
	if b.snap != snap {
		t.Error("the end was prepared again in its transaction")
	}
	if err := o.Done(t.Context(), h.Reader(), nil); err != nil {
		t.Fatal(err)
	}
	stored, _, err := s.shown(t, "one")
	f, _, why := s.Fold(t.Context(), "one", "")
	if err != nil || why != nil || !proto.Equal(stored, f.Task()) {
		t.Errorf("stored is another task: %v, %v", err, why)
	}
}

// An end that meets an unread input is sealed again, from the journal. If that cannot be read at first, the task
// is stored all the same as it is after the last attempt.
func TestA_16_TheTaskOfAnEndThatIsTriedAgain(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	putInput(t, s, "late")
	j.mu.Lock()
	j.unread = false // as if another process had taken it
	j.mu.Unlock()
	failed := 0
	s.db.Engine = unsteady{s.db.Engine, &failed}
	committed(t, j, endOf())
	if failed != 1 {
		t.Fatalf("%d reads failed, want 1", failed)
	}
	if _, err := s.Park(t.Context(), runs.Claim{Root: "one", Owner: j.owner, Epoch: j.epoch, Journal: j}, runs.Park{Done: true}); err != nil {
		t.Fatal(err)
	}
	stored, seq, err := s.shown(t, "one")
	if err != nil || seq != 3 {
		t.Fatalf("Task at %d: %v", seq, err)
	}
	f, _, err := s.Fold(t.Context(), "one", "")
	if err != nil || !proto.Equal(stored, f.Task()) {
		t.Errorf("stored is %v, want %v, %v", stored, f.Task(), err)
	}
}

// held is a database that writes nothing: it keeps what is to be written.
type held struct {
	db.Engine
	sources chan db.Source
}

func (d held) Add(s db.Source) error {
	d.sources <- s
	return nil
}

// taken returns what a journal would write after it appended events, and the bytes of the arguments.
func taken(t testing.TB, j *journal, events ...*teamv1.Event) (o *db.Op, size int) {
	t.Helper()
	engine := j.s.db.Engine
	h := held{engine, make(chan db.Source, 1)}
	j.s.db.Engine = h
	if err := j.Append(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
	o = (<-h.sources).Take() // a moment after the append, or by its commit
	j.s.db.Engine = engine
	for _, st := range o.Stmts {
		for _, a := range st.Args {
			if b, ok := a.([]byte); ok && len(b) > 64 { // not a hash
				size += len(b)
			}
		}
	}
	return o, size
}

// A large end is written by itself, and one that is written with other changes counts towards the size of the
// group with all that it writes.
func TestP11_TheSizeOfAnEnd(t *testing.T) {
	text := func(n int) *a2av1.Part {
		return &a2av1.Part{Content: &a2av1.Part_Text{Text: strings.Repeat("x", n)}}
	}
	file := &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte(strings.Repeat("y", 100<<10))}}
	noted := &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Received{Received: &teamv1.Received{Message: agent.UserMessage("h", strings.Repeat("z", 150<<10))}}}
	for name, c := range map[string]struct {
		before []*teamv1.Event // on record before the end
		end    *teamv1.Event
		shared bool
	}{
		"small":                     {nil, endOf(), true},
		"of 30 KB":                  {nil, endOf(text(30 << 10)), true},
		"of 150 KB, written once":   {nil, endOf(text(150 << 10)), true},
		"of 1 MB":                   {nil, endOf(text(1 << 20)), false},
		"small, of a large task":    {[]*teamv1.Event{noted, proto.CloneOf(noted)}, endOf(), false},
		"with a file that is known": {[]*teamv1.Event{{Agent: "a", Kind: &teamv1.Event_Received{Received: &teamv1.Received{Message: &a2av1.Message{MessageId: "f", Role: a2av1.Role_ROLE_USER, Parts: []*a2av1.Part{file}}}}}}, endOf(), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, dbtest.File(t))
			created(t, s, "one")
			j := claimedOne(t, s).Journal.(*journal)
			if len(c.before) > 0 {
				committed(t, j, c.before...)
			}
			o, size := taken(t, j, c.end)
			if shared := o.Plan == nil; shared != c.shared {
				t.Fatalf("shared = %v, want %v", shared, c.shared)
			}
			if c.shared && (o.Size < size || size > maxQuiet) {
				t.Errorf("the size is %d, and %d bytes are written, want at most %d", o.Size, size, maxQuiet)
			}
			if c.before != nil && c.shared && size > 4<<10 {
				t.Errorf("%d bytes are written, also the file that is recorded", size)
			}
			err := s.db.Do(t.Context(), o.Apply)
			if err = o.Done(t.Context(), s.db.Reader(), err); err != nil {
				t.Fatal(err)
			}
			j.give()
			if _, seq, err := s.shown(t, "one"); err != nil || seq != int64(2+len(c.before)) {
				t.Errorf("Task at %d: %v", seq, err)
			}
		})
	}
}

// claiming is a database on which something happens between the statement of a claim and the adoption of its runs.
type claiming struct {
	db.Engine
	then func()
}

func (d claiming) Statement(ctx context.Context, f func(context.Context, db.Querier) error) error {
	err := d.Engine.Statement(ctx, f)
	d.then()
	return err
}

// An input that comes between a claim and the adoption of its runs wakes no journal of the claim: the inbox is
// read once. Another run's input does not cause that.
func TestA_10_AnInputDuringAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		old  bool // the journal of an earlier claim is still registered
		then func(t testing.TB, s *rig)
		rows int
		read bool
	}{
		"nothing":                             {false, func(testing.TB, *rig) {}, 0, false},
		"an input":                            {false, func(t testing.TB, s *rig) { putInput(t, s, "x") }, 1, true},
		"an input that wakes the old journal": {true, func(t testing.TB, s *rig) { putInput(t, s, "x") }, 1, true},
		"changes of other runs elsewhere": {false, func(_ testing.TB, s *rig) {
			s.db.Arrived("two")
			s.Deliver("four")
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, dbtest.File(t))
			created(t, s, "one")
			if c.old {
				// Its release is committed, and the process has not come to forget it.
				old := claimedOne(t, s).Journal.(*journal)
				err := s.db.Do(t.Context(), func(ctx context.Context, q db.Querier) error {
					_, err := old.park(ctx, q, runs.Park{Until: s.db.Now()})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			counts := dbtest.Count(s.db)
			engine := s.db.Engine
			s.db.Engine = claiming{engine, func() { c.then(t, s) }}
			cl := claimedOne(t, s)
			s.db.Engine = engine
			counts.Take(1)
			rows, err := cl.Journal.Inbound(t.Context())
			if err != nil || len(rows) != c.rows {
				t.Errorf("Inbound = %v, %v, want %d", rows, err, c.rows)
			}
			if statements, _, _ := counts.Take(1); len(statements) > 0 != c.read {
				t.Errorf("Inbound cost %v", statements)
			}
		})
	}
}

// The end of a run that has taken its first input during its claim is one transaction, which does not read the
// journal.
func TestP11_TheEndAfterAnInput(t *testing.T) {
	for name, read := range map[string]bool{"read": true, "unread": false} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, dbtest.File(t))
			created(t, s, "one")
			j := claimedOne(t, s).Journal.(*journal)
			putInput(t, s, "x")
			if read {
				rows, err := j.Inbound(t.Context())
				if err != nil || len(rows) != 1 {
					t.Fatal(rows, err)
				}
				r := rows[0].GetReceived()
				r.Inbound = rows[0].GetN()
				committed(t, j, &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Received{Received: r}})
			}
			counts := dbtest.Count(s.db)
			committed(t, j, endOf())
			statements, trips, commits := counts.Take(1)
			if commits != 1 || trips > 9 || slices.ContainsFunc(statements, func(name string) bool { return strings.HasPrefix(name, "SELECT seq, scope") }) {
				t.Errorf("the end costs %g trips and %g commits with %v", trips, commits, statements)
			}
		})
	}
}

// What a run does with the event that it is given does not change what readers receive.
func TestP5_ARunDoesNotShareItsFirstEvent(t *testing.T) {
	s := opened(t, dbtest.File(t))
	created(t, s, "one")
	j := claimedOne(t, s).Journal.(*journal)
	events, err := j.Load(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	events[0].GetAccepted().GetMessage().Parts = nil
	records, err := s.Page(t.Context(), "one", "", 0, 10)
	if err != nil || len(records) != 1 || agent.Text(records[0].Event.GetAccepted().GetMessage()) != "do it" {
		t.Errorf("Events = %v, %v", records, err)
	}
	if j.first != nil {
		t.Error("the event is kept after it was loaded")
	}
	if events, err = j.Load(t.Context()); err != nil || len(events) != 1 || agent.Text(events[0].GetAccepted().GetMessage()) != "do it" {
		t.Errorf("Load again = %v, %v", events, err)
	}
}

// The journal of a run that has ended is kept for its readers without what only the run needs, and not at all if
// rings take much memory.
func TestA_16_WhatIsKeptOfAnEndedRun(t *testing.T) {
	for name, ringed := range map[string]int{"little": 0, "much": maxKept + 1} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, dbtest.File(t))
			_, leave := s.WatchRoot("one")
			defer leave()
			created(t, s, "one")
			cl := claimedOne(t, s)
			j := cl.Journal.(*journal)
			committed(t, j, &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Text: "x"}}}, endOf())
			if ringed > 0 {
				other := ring.New[entry](&s.rings, 1)
				other.Add(entry{Entry: record.Entry{Event: &teamv1.Event{}, Size: ringed}}, 0)
			}
			if _, err := s.Park(t.Context(), cl, runs.Park{Done: true}); err != nil {
				t.Fatal(err)
			}
			if kept := s.live("one") == j; kept != (ringed == 0) {
				t.Errorf("kept = %v with %d bytes of rings", kept, ringed)
			}
			if ringed > 0 && s.rings.Bytes() != int64(ringed) {
				t.Errorf("%d bytes are held of a journal that is not kept", s.rings.Bytes()-int64(ringed))
			}
			if ringed == 0 && (j.fold != nil || j.book != nil || j.stored != nil || j.named != nil || j.first != nil) {
				t.Error("more than the ring is kept")
			}
			if records, err := s.Page(t.Context(), "one", "", 0, 10); err != nil || len(records) != 3 {
				t.Errorf("Events = %v, %v", records, err)
			}
			if task, seq, err := s.shown(t, "one"); err != nil || seq != 3 || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Errorf("Task = %v at %d, %v", task, seq, err)
			}
			if ringed == 0 && j.view.seq != 0 {
				t.Errorf("events up to %d were applied once more for a reader of the task, which is stored", j.view.seq)
			}
		})
	}
}

// The reply to the commit of an end was lost, and the configuration that it has made due is not due for the
// second attempt.
func TestA_16_ALostReplyToAnEndWakesItsPushes(t *testing.T) {
	s := opened(t, dbtest.File(t))
	m := agent.UserMessage("m", "do it")
	n := runs.New{
		Owner: "o", MessageID: "m", Digest: []byte("d"), Push: &a2av1.TaskPushNotificationConfig{Id: "p", TaskId: "one", Url: "https://example.com"},
		Accepted: &teamv1.Accepted{TaskId: "one", Agent: "a", Owner: "o", Message: m},
	}
	if _, _, err := s.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	j := claimedOne(t, s).Journal.(*journal)
	dbtest.Exec(t, s.db, `UPDATE push_config SET due = NULL`) // it has reported what there was
	o, _ := taken(t, j, endOf())
	if o.Plan != nil {
		t.Fatal("the end has a plan")
	}
	for range 2 {
		if err := s.db.Do(t.Context(), o.Apply); err != nil {
			t.Fatal(err)
		}
	}
	o.Again = true
	select {
	case <-s.pushes.PushWake():
	default:
	}
	if err := o.Done(t.Context(), s.db.Reader(), nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.pushes.PushWake():
	default:
		t.Error("nobody looks for the configuration that is due")
	}
}
