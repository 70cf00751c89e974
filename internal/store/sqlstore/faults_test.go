package sqlstore_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
)

func piece(text string) *teamv1.Event {
	a := &a2av1.Artifact{ArtifactId: "x", Parts: []*a2av1.Part{agent.NewMessage(text).GetParts()[0]}}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: a, Append: true}}}
}

// A task that is read on a replica that does not drive it shows what its sequence
// says, no more: a reader goes on behind it, and must see no event twice.
func TestPostgres_P5_ATaskShowsItsSequence(t *testing.T) {
	a, b := pair(t, sqlstore.Config{})
	create(t, a, "one")
	c := claim(t, a, "a")
	const pieces = 400
	var wg sync.WaitGroup
	wg.Go(func() {
		for range pieces {
			record(t, c, piece("x"))
		}
	})
	defer wg.Wait()
	for {
		got, seq, err := b.Task(t.Context(), key("one"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, x := range got.GetArtifacts() {
			n += len(x.GetParts())
		}
		if int64(n) != seq-1 {
			t.Errorf("a task at sequence %d holds %d pieces", seq, n)
			return
		}
		if seq == pieces+1 {
			return
		}
	}
}

// A replica that lost a run without knowing still shows what is on record.
func TestPostgres_A_16_AReplicaThatLostARunShowsWhatGoesOn(t *testing.T) {
	t.Parallel()
	a, b := pair(t, sqlstore.Config{Lease: 300 * time.Millisecond})
	create(t, a, "one")
	record(t, claim(t, a, "a"), note("by a"))
	if _, seq, err := a.Task(t.Context(), key("one")); err != nil || seq != 2 {
		t.Fatalf("Task = %d, %v", seq, err)
	}
	var c runs.Claim
	until(t, "the lease runs out", func() bool {
		claims, _, err := b.Claim(t.Context(), "b", engine.NewRoom(10, nil))
		if err == nil && len(claims) == 1 {
			c = claims[0]
		}
		return len(claims) == 1
	})
	record(t, c, note("by b"), end())
	wait, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	until(t, "a's readers see b's events", func() bool {
		if wait.Err() != nil {
			t.Fatal("a's readers never see b's events")
		}
		task, _, err := a.Task(t.Context(), key("one"))
		return err == nil && task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED && len(texts(t, a, "one")) == 2
	})
}

// A beat has less time than a write is tried for: the store is not ready then either.
func TestPostgres_NotReadyWhileItIsNotReached(t *testing.T) {
	t.Parallel()
	p := newProxy(t, pgtest.URL(t))
	s := open(t, p.url, sqlstore.Config{})
	if err := s.Beat(t.Context(), "r"); err != nil || s.Ready() != nil {
		t.Fatalf("Beat = %v, Ready = %v", err, s.Ready())
	}
	address := p.l.Addr().String()
	_ = p.l.Close()
	p.cut(false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := s.Beat(ctx, "r")
	if err == nil || s.Ready() == nil {
		t.Errorf("Beat = %v, Ready = %v while the database is out of reach", err, s.Ready())
	}
	p.reopen(t, address)
	if err := s.Beat(t.Context(), "r"); err != nil || s.Ready() != nil {
		t.Errorf("Beat = %v, Ready = %v when it is reached again", err, s.Ready())
	}
}

// reopen takes connections again.
func (p *proxy) reopen(t *testing.T, address string) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p.l = l // is closed after the store
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
}

func TestSQLite_RefusesASecondProcessByAnotherName(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "team.db"), filepath.Join(dir, "other.db")
	open(t, "sqlite:"+file, sqlstore.Config{})
	if err := os.Symlink(file, other); err != nil {
		t.Fatal(err)
	}
	s, err := sqlstore.Open(t.Context(), "sqlite:"+other, sqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("Open = %v", err)
	}
	if err == nil {
		_ = s.Close()
	}
}

func TestSQLite_RefusesMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := sqlstore.Open(t.Context(), "sqlite::memory:", sqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "memory: is one") {
		t.Errorf("Open = %v", err)
	}
	if err == nil {
		_ = s.Close()
	}
}

// A connection that neither answers nor breaks does not keep the others waiting.
func TestPostgres_A_16_AConnectionThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	p := newProxy(t, pgtest.URL(t))
	s := open(t, p.url, sqlstore.Config{})
	create(t, s, "one")
	c := claim(t, s, "r")
	record(t, c, note("before"))
	p.hang()
	defer p.cut(true) // closing waits for them too
	start := time.Now()
	record(t, c, note("after"))
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the write took %v", took)
	}
	if got := texts(t, s, "one"); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("on record are %v", got)
	}
}

// hang passes nothing more on from the connections that there are.
func (p *proxy) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.hung[c] = true
	}
}

// reader is what a connection sends, as long as it does not hang.
type reader struct {
	net.Conn
	p *proxy
}

func (r reader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.p.hung[r.Conn] && err == nil {
		return 0, nil // dropped
	}
	return n, err
}

// Connections that hang cost one beat, however many there are.
func TestPostgres_A_16_ABeatLeavesConnectionsThatHang(t *testing.T) {
	t.Parallel()
	p := newProxy(t, pgtest.URL(t))
	s := open(t, p.url, sqlstore.Config{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			_, _, _ = s.Create(context.Background(), task(id(i)))
			_, _, _ = s.Task(context.Background(), key(id(i)))
		})
	}
	wg.Wait()
	p.hang()
	defer p.cut(true)
	for i, want := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := s.Beat(ctx, "r")
		cancel()
		if (err == nil) != want || (s.Ready() == nil) != want {
			t.Errorf("beat %d: %v, Ready: %v", i, err, s.Ready())
		}
	}
}
