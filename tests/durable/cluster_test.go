//go:build linux

package durable

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

// lease is how long a replica that is not heard of keeps its runs here.
const lease = 1500 * time.Millisecond

// cluster are replicas that share a PostgreSQL. What members are called is held
// where a test says so.
type cluster struct {
	*testing.T
	command
	*members
	*gates
	history  *history
	replicas map[string]*replica
	fronts   map[string]*front
}

// newCluster starts replicas under their names.
func newCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	return clusterOn(t, pgtest.URL(t), names...)
}

func clusterOn(t *testing.T, url string, names ...string) *cluster {
	t.Helper()
	c := &cluster{T: t, history: newHistory(t), gates: newGates(), replicas: map[string]*replica{}, fronts: map[string]*front{}}
	c.members = newMembers(t, c.history)
	c.gate, c.arrival = c.pass, true
	c.command = command{config: c.members.config(t), store: url, dir: t.ArtifactDir()}
	c.history.add(entry{Op: opStart})
	t.Cleanup(func() {
		for name, r := range c.replicas {
			r.end(syscall.SIGKILL)
			c.fronts[name].gone()
		}
	})
	for _, name := range names {
		c.start(name)
	}
	return c
}

// start starts a replica.
func (c *cluster) start(name string) {
	c.Helper()
	cmd := c.command
	cmd.args = []string{"--lease=" + lease.String(), "--replica=" + name}
	r, err := cmd.start()
	if err != nil {
		c.Fatal(err)
	}
	if c.fronts[name] == nil {
		c.fronts[name] = newFront()
	}
	c.replicas[name] = r
	if err := c.fronts[name].serve(r.target); err != nil {
		c.Fatal(err)
	}
}

// client is a watch of a job by a replica.
func (c *cluster) client(name string, j job) *watch {
	return &watch{load: &load{history: c.history, front: c.fronts[name]}, job: j}
}

// begin sends a job to a replica.
func (c *cluster) begin(name string, j job) *watch {
	c.Helper()
	c.history.add(entry{Op: opSend, Owner: j.owner, Message: j.message, Agent: j.agent, Text: j.text})
	w := c.client(name, j)
	if err := w.send(c.Context()); err != nil {
		c.Fatal(err)
	}
	return w
}

// query reads one text from the database.
func (c *cluster) query(statement string, args ...any) string {
	c.Helper()
	conn, err := pgx.Connect(c.Context(), c.store)
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close(c.Context())
	var text string
	if err := conn.QueryRow(c.Context(), statement, args...).Scan(&text); err != nil {
		c.Fatalf("%s: %v", statement, err)
	}
	return text
}

// holder is the name of the replica that has a run.
func (c *cluster) holder(task string) string {
	c.Helper()
	name, _, _ := strings.Cut(c.query("SELECT coalesce(holder, '') FROM run WHERE id = $1", task), "-")
	if c.replicas[name] == nil {
		c.Fatalf("task %s is held by %q", task, name)
	}
	return name
}

// others are the names of all replicas but one.
func (c *cluster) others(than string) []string {
	var names []string
	for name := range c.replicas {
		if name != than {
			names = append(names, name)
		}
	}
	return names
}

// calls are the calls of members so far, after what the fakes know was added.
func (c *cluster) calls() []entry {
	c.Helper()
	c.collect()
	all, err := c.history.all()
	if err != nil {
		c.Fatal(err)
	}
	var calls []entry
	for _, e := range all {
		if e.Op == opCall {
			calls = append(calls, e)
		}
	}
	return calls
}

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !is(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// gates hold calls of members.
type gates struct {
	mu     sync.Mutex
	closed map[string]bool // by member; guarded by mu
	held   chan *held
}

// held is a call that waits.
type held struct {
	member, text string
	let          func() // lets it go on
	gone         <-chan struct{}
}

func newGates() *gates { return &gates{closed: map[string]bool{}, held: make(chan *held, 100)} }

// hold makes further calls of a member wait until they are let go.
func (g *gates) hold(member string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed[member] = true
}

// open lets further calls of a member through.
func (g *gates) open(member string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed[member] = false
}

func (g *gates) pass(ctx context.Context, member, text string) error {
	g.mu.Lock()
	closed := g.closed[member]
	g.mu.Unlock()
	if !closed {
		return nil
	}
	let := make(chan struct{})
	g.held <- &held{member: member, text: text, let: sync.OnceFunc(func() { close(let) }), gone: ctx.Done()}
	select {
	case <-let:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next is the next call that waits.
func (g *gates) next(t testing.TB) *held {
	t.Helper()
	select {
	case h := <-g.held:
		return h
	case <-time.After(patience):
		t.Fatal("no member is called")
		return nil
	}
}
