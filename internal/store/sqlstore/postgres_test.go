package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

// pair opens a store twice, as two replicas do.
func pair(t *testing.T, cfg sqlstore.Config) (a, b *sqlstore.Store) {
	t.Helper()
	url := pgtest.URL(t)
	return open(t, url, cfg), open(t, url, cfg)
}

func TestPostgres_A_16_AReplicaThatIsNotHeardOfLosesItsRuns(t *testing.T) {
	a, b := pair(t, sqlstore.Config{Lease: 300 * time.Millisecond})
	create(t, a, "one")
	old := claim(t, a, "a")
	record(t, old, note("by a"))
	var c runs.Claim
	until(t, "the lease runs out", func() bool {
		claims, next, err := b.Claim(t.Context(), "b", engine.NewRoom(10, nil))
		if err != nil || next.IsZero() || next.After(b.Now().Add(2*time.Second)) {
			t.Fatalf("Claim = %v, %v", next, err)
		}
		if len(claims) == 1 {
			c = claims[0]
		}
		return len(claims) == 1
	})
	record(t, c, note("by b"))
	if err := old.Journal.Append(t.Context(), note("late")); err == nil {
		err = old.Journal.Commit(t.Context())
		if !errors.Is(err, agent.ErrFenced) {
			t.Fatalf("Commit of the old owner: %v, want ErrFenced", err)
		}
	}
	if _, err := a.Park(t.Context(), old, runs.Park{}); !errors.Is(err, agent.ErrFenced) {
		t.Errorf("Park of the old owner: %v, want ErrFenced", err)
	}
	record(t, c, end())
	if got := texts(t, a, "one"); !slices.Equal(got, []string{"by a", "by b"}) {
		t.Errorf("on record are %v", got)
	}
}

// What a replica holds whose lease is over can be claimed by name, and is taken as due.
func TestPostgres_AnotherServiceSchedulesRunsOfALostReplica(t *testing.T) {
	a, b := pair(t, sqlstore.Config{Lease: 300 * time.Millisecond})
	create(t, a, "one")
	create(t, a, "two")
	if claims, _, err := a.Claim(t.Context(), "a", engine.NewRoom(2, nil)); err != nil || len(claims) != 2 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	room := engine.NewRoom(10, nil)
	until(t, "the lease runs out", func() bool {
		c, next, err := b.ClaimRun(t.Context(), "b", "one", room)
		if err != nil || c.Journal == nil && next.At.IsZero() {
			t.Fatalf("ClaimRun = %v, %v", next, err)
		}
		return c.Epoch == 2
	})
	due, err := b.TakeDue(t.Context(), room, 10)
	if err != nil || len(due) != 1 || due[0] != key("two") {
		t.Fatalf("TakeDue = %v, %v", due, err)
	}
	if c, _, err := b.ClaimRun(t.Context(), "b", "two", room); err != nil || c.Epoch != 2 {
		t.Errorf("ClaimRun = %v, %v", c, err)
	}
}

// A database has one engine until that is moved, which needs that no server uses it.
func TestPostgres_OneEngine(t *testing.T) {
	a, b := pair(t, sqlstore.Config{Lease: 300 * time.Millisecond})
	if err := errors.Join(a.UseEngine(t.Context(), engine.TemporalEngine), b.UseEngine(t.Context(), engine.TemporalEngine)); err != nil {
		t.Fatal(err)
	}
	if err := b.UseEngine(t.Context(), engine.StoreEngine); err == nil || !strings.Contains(err.Error(), "engine move --to store") {
		t.Errorf("the other engine: %v", err)
	}
	if err := a.Beat(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.MoveEngine(t.Context(), engine.StoreEngine); err == nil {
		t.Error("moved while a server uses it")
	}
	until(t, "the lease runs out", func() bool { return b.MoveEngine(t.Context(), engine.StoreEngine) == nil })
	if err := b.UseEngine(t.Context(), engine.StoreEngine); err != nil {
		t.Error(err)
	}
}

func TestPostgres_A_16_AReplicaThatBeatsKeepsItsRuns(t *testing.T) {
	a, b := pair(t, sqlstore.Config{Lease: 2 * time.Second}) // far longer than a busy machine takes for a heartbeat
	create(t, a, "one")
	c := claim(t, a, "a")
	for range 20 {
		if err := a.Beat(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if claims, _, err := b.Claim(t.Context(), "b", engine.NewRoom(10, nil)); err != nil || len(claims) > 0 {
			t.Fatalf("Claim = %v, %v", claims, err)
		}
		<-time.After(200 * time.Millisecond) // twice the lease in all
	}
	record(t, c, end())
}

func TestPostgres_A_07_AReaderElsewhereIsWoken(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	create(t, a, "one")
	c := claim(t, a, "a")
	wake, stop := b.Watch("one")
	defer stop()
	for i := range 20 {
		record(t, c, note(fmt.Sprint(i)))
		until(t, "the reader has event "+fmt.Sprint(i), func() bool {
			select {
			case <-wake:
			case <-time.After(5 * time.Second):
				t.Fatal("not woken")
			}
			return len(texts(t, b, "one")) == i+1
		})
	}
}

// TestPostgres_AWorkerElsewhereIsWoken: a front has workers learn at once of what is due.
func TestPostgres_AWorkerElsewhereIsWoken(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	wake, stop := b.WatchDue()
	defer stop()
	a.AnnounceDue()
	select {
	case <-wake:
	case <-time.After(10 * time.Second):
		t.Error("not woken")
	}
}

func TestPostgres_A_16_AnInputFromElsewhereWakesTheOwner(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	create(t, a, "one")
	c := claim(t, a, "a")
	if rows, err := c.Journal.Inbound(t.Context()); err != nil || len(rows) > 0 {
		t.Fatalf("Inbound = %v, %v", rows, err)
	}
	if _, _, err := b.Put(t.Context(), key("one"), followUp("f"), []byte("d"), nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the owner sees the input", func() bool {
		select {
		case <-c.Journal.Wake():
		case <-time.After(5 * time.Second):
			t.Fatal("not woken")
		}
		rows, err := c.Journal.Inbound(t.Context())
		return err == nil && len(rows) == 1
	})
}

// R-001-30: two replicas begin a collaboration at the same time where fewer may run than
// did: there are never more than may run now.
func TestPostgres_R_001_30_FewerPlacesThanBefore(t *testing.T) {
	at := pgtest.URL(t)
	s := open(t, at, sqlstore.Config{})
	collaboration := func(id string, most int) runs.New {
		n := task(id)
		n.Collaborations, n.Accepted.Collaboration = most, &teamv1.Brief{TaskDescription: "do it"}
		return n
	}
	for _, id := range []string{"one", "two"} {
		if _, _, err := s.Create(t.Context(), collaboration(id, 3)); err != nil {
			t.Fatal(err)
		}
	}
	claims, _, err := s.Claim(t.Context(), "a", engine.NewRoom(10, nil))
	if err != nil || len(claims) != 2 {
		t.Fatalf("Claim = %v, %v", claims, err)
	}
	if _, _, err := s.Create(t.Context(), collaboration("three", 3)); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		record(t, c, end())
	}
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	other, err := db.BeginTx(t.Context(), nil) // another replica, before it commits
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), `INSERT INTO run (id, owner, seq, bytes, due) VALUES ('elsewhere', 'acme/ann', 1, 1, 1)`); err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), `INSERT INTO collaboration_slot (team, slot, id) VALUES ('a', 1, 'elsewhere')`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Create(context.Background(), collaboration("four", 2))
		done <- err
	}()
	until(t, "it waits for the other replica", func() bool {
		var waiting int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%collaboration_slot%'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, runs.ErrBusy) {
		t.Errorf("Create = %v, want ErrBusy", err)
	}
}

// R-001-30: two replicas, one that starts collaborations of a team and one that deletes
// it: of two at once one is refused.
func TestPostgres_P5_StartOrDelete(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	for round := range 20 {
		version, err := a.CatalogVersion(t.Context())
		if err == nil {
			version, err = a.ChangeCatalog(t.Context(), version, catalog.Change{Put: []catalog.Entry{{ID: "a", Data: []byte("a team")}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		n := task(fmt.Sprint("round-", round))
		n.Collaborations, n.Entry, n.Accepted.Collaboration = 100, "a", &teamv1.Brief{TaskDescription: "do it"}
		var begun, deleted error
		var wg sync.WaitGroup
		wg.Go(func() { _, _, begun = b.Create(context.Background(), n) })
		wg.Go(func() {
			_, deleted = a.ChangeCatalog(context.Background(), version, catalog.Change{Delete: []string{"a"}})
		})
		wg.Wait()
		switch {
		case begun == nil && errors.Is(deleted, runs.ErrBusy):
			claims, _, err := b.Claim(t.Context(), "b", engine.NewRoom(10, nil))
			if err != nil || len(claims) != 1 {
				t.Fatal(claims, err)
			}
			record(t, claims[0], end())
		case deleted == nil && errors.Is(begun, runs.ErrDeleted):
		default:
			t.Fatalf("round %d: Create = %v, ChangeCatalog = %v", round, begun, deleted)
		}
	}
}

// The listening connection is cut: polling finds what was not told.
func TestPostgres_P5_NothingIsLostWithoutNotifications(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	create(t, a, "one")
	c := claim(t, a, "a")
	wake, stop := b.Watch("one")
	defer stop()
	for i := range 3 {
		a.Exec(t.Context(), t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND application_name = 'team-server'`)
		record(t, c, note(fmt.Sprint(i)))
		until(t, "the reader has event", func() bool {
			select {
			case <-wake:
			case <-time.After(5 * time.Second):
				t.Fatal("not woken")
			}
			return len(texts(t, b, "one")) == i+1
		})
	}
}

func TestPostgres_RefusesFsyncOff(t *testing.T) {
	server := pgtest.New(t)
	db, err := sql.Open("pgx", server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{`ALTER SYSTEM SET fsync = off`, `SELECT pg_reload_conf()`} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the server has read its configuration", func() bool {
		var on string
		return db.QueryRowContext(t.Context(), `SHOW fsync`).Scan(&on) == nil && on == "off"
	})
	_, err = sqlstore.Open(t.Context(), server.URL(), sqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "fsync=off") {
		t.Fatalf("Open = %v", err)
	}
}

func TestPostgres_SaysThatItIsNotReached(t *testing.T) {
	_, err := sqlstore.Open(t.Context(), "postgres://me:secret@127.0.0.1:1/none", sqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "not reached") || strings.Contains(err.Error(), "secret") {
		t.Fatalf("Open = %v", err)
	}
}

// Of replicas that start at the same time each finds the schema ready.
func TestPostgres_ReplicasStartTogether(t *testing.T) {
	url := pgtest.URL(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := sqlstore.Open(context.Background(), url, sqlstore.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// The connection is lost in the middle of commits, before the database hears of
// them or before its answer comes back: nothing is on record twice, and nothing
// that was acknowledged is missing.
func TestPostgres_P1_ConnectionLostInCommit(t *testing.T) {
	p := newProxy(t, pgtest.URL(t))
	s := open(t, p.url, sqlstore.Config{})
	const many, rounds = 8, 300
	claims := make([]runs.Claim, many)
	for i := range claims {
		create(t, s, id(i))
		claims[i] = claim(t, s, "r")
	}
	acked := make([][]string, many)
	var all atomic.Int64
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() {
			for n := range rounds {
				text := fmt.Sprint(n)
				err := c.Journal.Append(context.Background(), note(text), paid(text, "a/b", 3))
				if err == nil {
					err = c.Journal.Commit(context.Background())
				}
				if err != nil {
					t.Errorf("run %d stopped at %d: %v", i, n, err)
					return
				}
				acked[i] = append(acked[i], text)
				if n := all.Add(1); n%200 == 0 { // the others are in the middle of something
					p.cut(n%400 == 0)
				}
			}
			if err := c.Journal.Append(context.Background(), end()); err != nil {
				t.Error(err)
			}
			if err := c.Journal.Commit(context.Background()); err != nil {
				t.Errorf("run %d has no end: %v", i, err)
			}
		})
	}
	wg.Wait()
	if p.cuts() == 0 {
		t.Fatal("no connection was cut")
	}
	for i := range claims {
		if got := texts(t, s, id(i)); !slices.Equal(got, acked[i]) {
			t.Errorf("run %d: on record are %v, acknowledged %v", i, got, acked[i])
		}
	}
	if micros, _ := costsOf(t, s, cost.Query{}); micros != 3*all.Load() {
		t.Errorf("the costs of %d steps are %d micros, want 3 each", all.Load(), micros)
	}
}

func TestPostgres_ReadsGoOnWhenConnectionsAreLost(t *testing.T) {
	p := newProxy(t, pgtest.URL(t))
	s := open(t, p.url, sqlstore.Config{})
	create(t, s, "one")
	for i := range 50 {
		p.cut(i%2 == 0)
		if records, err := s.Events(t.Context(), key("one"), 0, 10); err != nil || len(records) != 1 {
			t.Fatalf("Events = %v, %v", records, err)
		}
		if _, _, err := s.Task(t.Context(), key("one")); err != nil {
			t.Fatalf("Task: %v", err)
		}
	}
}

// proxy passes a database's connections on, and cuts them.
type proxy struct {
	url, to string
	l       net.Listener

	mu    sync.Mutex
	conns map[net.Conn]net.Conn // client's to server's
	hung  map[net.Conn]bool     // nothing more is passed on from them
	n     int
}

func newProxy(t *testing.T, address string) *proxy {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+child.FreePort(t)) // may be opened again
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: u.Host, l: l, conns: map[net.Conn]net.Conn{}, hung: map[net.Conn]bool{}}
	u.Host = l.Addr().String()
	p.url = u.String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = p.l.Close()
		p.cut(false)
		wg.Wait()
	})
	return p
}

func (p *proxy) serve(c net.Conn) {
	up, err := (&net.Dialer{}).Dial("tcp", p.to)
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c] = up
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(up, reader{c, p}); _ = up.Close() })
	wg.Go(func() { _, _ = io.Copy(c, up); _ = c.Close() })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// cut ends all connections: the client's side first, so that answers are lost, or
// the server's.
func (p *proxy) cut(client bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, up := range p.conns {
		p.n++
		if client {
			_ = c.Close()
		} else {
			_ = up.Close()
		}
	}
}

func (p *proxy) cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// R-003-30: who watches an owner's roots hears from another replica of these, and of the
// boards of the account, and is not woken for others.
func TestPostgres_R_003_30_AWatcherElsewhereIsWokenForItsOwner(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	claims := map[string]runs.Claim{}
	for _, owner := range []string{"acme/ann", "acme/bob", "globex/eve"} {
		n := task("of-" + owner)
		n.Owner = owner
		if _, _, err := a.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		claims[owner] = claim(t, a, "a")
	}
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	early, stop := b.WatchAll("acme/bob")
	defer stop()
	until(t, "the other replica listens", func() bool { // and has woken all, as it does once when it begins
		record(t, claims["acme/bob"], note("x"))
		return woken(early)
	})
	ann, stop := b.WatchAll("acme/ann")
	defer stop()
	bob, stop := b.WatchAll("acme/bob")
	defer stop()
	eve, stop := b.WatchAll("globex/eve")
	defer stop()
	// settle waits until the other replica has heard of all changes before. Notifications
	// come in order, and those of a new owner wake nobody else.
	settle := func(owner string) {
		last, stop := b.WatchAll(owner)
		n := task("of-" + owner)
		n.Owner = owner
		if _, _, err := a.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		record(t, claim(t, a, "a"), note("last"))
		until(t, "the watcher of "+owner+" is woken", func() bool { return woken(last) })
		stop() // waits for those who are woken together with this one
	}
	settle("one/last")
	for _, c := range []<-chan struct{}{ann, bob, eve} {
		woken(c)
	}
	for range 20 {
		record(t, claims["acme/bob"], note("x"))
	}
	settle("two/last")
	if !woken(bob) || woken(ann) || woken(eve) {
		t.Error("changes of acme/bob did not wake the watcher of acme/bob alone")
	}
	_, err := a.ChangeBoard(t.Context(), board.Key{Account: "acme", Team: "a"}, board.Op{ID: "one"}, func(v board.View) (*board.Change, error) {
		return &board.Change{Event: &teamv1.BoardEvent{Time: timestamppb.New(v.Now())}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	settle("three/last")
	if !woken(ann) || !woken(bob) || woken(eve) {
		t.Error("a change of a board of acme did not wake the watchers of acme alone")
	}
}
