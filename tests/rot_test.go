package tests

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/testing/protocmp"
	_ "modernc.org/sqlite" // the database that is damaged

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// row is a record of a task: an event, or its snapshot.
type row struct {
	id   string
	seq  int64 // 0: the snapshot
	body []byte
}

// rot flips bits in the records of a store that is closed.
type rot interface {
	rows(t *testing.T, query string) []row
	flip(t *testing.T, r row, bit int)
	close()
}

const (
	eventRows = `SELECT id, seq, body FROM event ORDER BY id, seq`
	snapRows  = `SELECT id, 0, snap FROM task WHERE snap IS NOT NULL ORDER BY id`
)

// TestP15_BitRot flips one bit in each of 100 records, of 100 tasks: every one of
// them is found, no wrong content is served, and other tasks are as they were.
func TestP15_BitRot(t *testing.T) {
	t.Parallel()
	for _, place := range sample.Of(t, []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL}) {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			const tasks, flips = 120, 100
			c := newCrew()
			m := c.members(t)
			four(t, m, "workflow")
			first := live(t, at, m)
			before := map[string]*a2av1.Task{}
			for i := range tasks {
				resp, err := first.clients[i%3].Send(t.Context(), rig.Text("team", fmt.Sprint("m", i), fmt.Sprint("text ", i)))
				if err != nil {
					t.Fatal(err)
				}
				before[resp.GetTask().GetId()] = first.get(t, resp.GetTask().GetId())
			}
			first.stop()
			first.close()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			damaged := damage(t, at, rand.New(rand.NewPCG(seed, 1)), flips)
			if len(damaged) != flips {
				t.Fatalf("%d records are damaged", len(damaged))
			}
			s, _ := at.Open(t)
			for id, r := range damaged {
				found(t, s, id, r, before[id])
			}
			for id, task := range before {
				if _, is := damaged[id]; is {
					continue
				}
				if got, _, err := s.Task(t.Context(), runs.Key{Owner: "local/local", ID: id}); err != nil || !cmp.Equal(task, got, protocmp.Transform()) {
					t.Errorf("P15 an undamaged task is %v, %v", got, err)
				}
			}
			target := rig.Serve(t, server.Config{Agents: m, Store: s})
			rig.Each(t, target, func(t *testing.T, c rig.Client) { overTheWire(t, c, target, before, damaged) })
			readable := int64(tasks)
			for _, r := range damaged {
				if r.seq > 0 {
					readable--
				}
			}
			for _, m := range rig.Monitors(t, target) {
				w := watchTeam(t, m, "team", "")
				if w.read(t); w.last.GetCounters().GetRuns().GetDone() != readable || !w.last.GetCounters().GetPartial() {
					t.Errorf("P15 a watcher is shown %v of %d tasks that can be read", w.last.GetCounters(), readable)
				}
				w.stop()
			}
		})
	}
}

// damage flips a bit of one record each of so many tasks: of events mostly, and of
// some snapshots.
func damage(t *testing.T, at rig.Place, random *rand.Rand, flips int) map[string]row {
	t.Helper()
	var r rot
	if file, is := strings.CutPrefix(at.URL, "sqlite:"); is {
		r = openFile(t, file)
	} else {
		r = openServer(t, at.URL)
	}
	defer r.close()
	events, snaps := r.rows(t, eventRows), r.rows(t, snapRows)
	random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	damaged := map[string]row{}
	for i, from := range append(snaps[:flips/10:flips/10], events...) {
		if _, twice := damaged[from.id]; twice || len(damaged) == flips {
			continue
		}
		bit := random.IntN(8 * len(from.body))
		if i == 0 {
			bit = 8*len(from.body) - 1 // the last one, for sure
		}
		r.flip(t, from, bit)
		damaged[from.id] = from
	}
	return damaged
}

// found wants a damaged record to be told as such, and what is told of its task
// to be right.
func found(t *testing.T, s server.Store, id string, r row, before *a2av1.Task) {
	t.Helper()
	key := runs.Key{Owner: "local/local", ID: id}
	task, _, err := s.Task(t.Context(), key)
	switch {
	case err == nil && !cmp.Equal(before, task, protocmp.Transform()):
		t.Errorf("P15 the wrong task is served: %v", task)
	case err != nil && !errors.Is(err, runs.ErrDataLoss), err == nil && r.seq == 0:
		t.Errorf("P15 task with record %d damaged: %v", r.seq, err)
	}
	_, err = s.Events(t.Context(), key, 0, 1000)
	if r.seq > 0 && !errors.Is(err, runs.ErrDataLoss) {
		t.Errorf("P15 events with record %d damaged: %v", r.seq, err)
	}
	if r.seq == 0 && err != nil {
		t.Errorf("P15 events with the snapshot damaged: %v", err)
	}
	if r.seq <= 1 {
		return
	}
	rest, err := s.Events(t.Context(), key, 0, int(r.seq)-1) // those before it
	if err != nil || len(rest) != int(r.seq)-1 {
		t.Errorf("P15 the %d events before the damaged one: %d, %v", r.seq-1, len(rest), err)
	}
}

// overTheWire asks for every task over a binding, and for the list of all.
func overTheWire(t *testing.T, c rig.Client, target rig.Target, before map[string]*a2av1.Task, damaged map[string]row) {
	for id, task := range before {
		got, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
		f := rig.Fault(err)
		r, is := damaged[id]
		switch {
		case err == nil && !cmp.Equal(task.GetArtifacts(), got.GetArtifacts(), protocmp.Transform()):
			t.Errorf("P15 the wrong task is served: %v", got)
		case err == nil && is && r.seq == 0, err != nil && !is:
			t.Errorf("P15 damaged: %v, got %v", is, err)
		case err != nil && (f.Code != "DataLoss" || f.Reason != "DATA_LOSS"):
			t.Errorf("P15 %+v, want DATA_LOSS", f)
		}
	}
	listed := map[string]bool{}
	req := &a2av1.ListTasksRequest{PageSize: new(int32(25))}
	for {
		page, err := c.List(t.Context(), req)
		if err != nil {
			t.Fatalf("P15 damaged tasks take the others out of the list: %v", err)
		}
		for _, task := range page.GetTasks() {
			listed[task.GetId()] = true
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	for id := range before {
		if _, is := damaged[id]; !is && !listed[id] {
			t.Errorf("P15 an undamaged task is not listed")
		}
	}
}

// file is a SQLite file: its bits flip where they are.
type file struct {
	path string
	db   *sql.DB
}

func openFile(t *testing.T, path string) *file {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	return &file{path, db}
}

func (f *file) close() {}

func (f *file) rows(t *testing.T, query string) []row {
	t.Helper()
	rows, err := f.db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // read to the end
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.seq, &r.body); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// flip flips a bit of the file. A record that does not lie in one piece loses one
// of its first bytes.
func (f *file) flip(t *testing.T, r row, bit int) {
	t.Helper()
	if f.db != nil {
		if _, err := f.db.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
			t.Fatal(err)
		}
		if err := f.db.Close(); err != nil {
			t.Fatal(err)
		}
		f.db = nil
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	whole := r.body
	for at := bytes.Index(b, whole); ; at = bytes.Index(b, whole) {
		if at >= 0 {
			b[at+bit/8%len(whole)] ^= 1 << (bit % 8)
			break
		}
		whole = whole[:len(whole)/2]
	}
	if err := os.WriteFile(f.path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// database is a PostgreSQL: bits flip by an update.
type database struct{ conn *pgx.Conn }

func openServer(t *testing.T, url string) *database {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return &database{conn}
}

func (d *database) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = d.conn.Close(ctx) // nothing is open on it
}

func (d *database) rows(t *testing.T, query string) []row {
	t.Helper()
	rows, err := d.conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (r row, err error) {
		return r, from.Scan(&r.id, &r.seq, &r.body)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (d *database) flip(t *testing.T, r row, bit int) {
	t.Helper()
	update := `UPDATE event SET body = set_bit(body, $3::bigint, 1 - get_bit(body, $3::bigint)) WHERE id = $1 AND seq = $2`
	if r.seq == 0 {
		update = `UPDATE task SET snap = set_bit(snap, $3::bigint, 1 - get_bit(snap, $3::bigint)) WHERE id = $1 AND $2::bigint = 0`
	}
	tag, err := d.conn.Exec(t.Context(), update, r.id, r.seq, int64(bit))
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%d rows: %v", tag.RowsAffected(), err)
	}
}
