//go:build linux

package durable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
)

const (
	// readyIn is how soon a server must be ready after a crash.
	readyIn = 5 * time.Second
	// inFlight is how many tasks must be under way when a server is killed at an acknowledgement.
	inFlight = 20
)

// segment is how many cycles one history is made of.
const segment = 100

// TestCrash_P1_P2 kills the server again and again under load, after a number of
// acknowledgements or at a failpoint, and checks at the end that nothing
// acknowledged is lost and nothing recorded is repeated.
func TestCrash_P1_P2(t *testing.T) {
	for _, s := range stores {
		t.Run("P1 P2 "+s.name, func(t *testing.T) {
			all, began, seed := &report{}, time.Now(), seed(t)
			for left := number(t, cyclesVariable, 20/uint64(sample.Stride())); left > 0 && !t.Failed(); {
				n := min(left, segment)
				t.Run(fmt.Sprintf("%d cycles", n), func(t *testing.T) { all.add(crashes(t, s, n, seed)) })
				left -= n
				seed++
			}
			t.Logf("%s: %v, in %v", s.name, all, time.Since(began).Round(time.Second/10))
		})
	}
}

// crashes is one history.
func crashes(t *testing.T, s database, cycles, seed uint64) *report {
	t.Helper()
	c := newCrash(t, s, seed)
	if err := c.run(cycles); err != nil {
		t.Error(err)
	}
	r, err := c.verdict(c.history)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.err(); err != nil {
		t.Errorf("%v\n%v", r, err)
	}
	return r
}

// database is a kind of store.
type database struct {
	name       string
	url        func(testing.TB) string
	args       []string
	failpoints []string // where its server may die of itself
}

// stores are those that outlive a process. The lease of PostgreSQL is short, so
// that the next server takes over within a cycle.
var stores = []database{
	{name: "sqlite", url: sqlite, failpoints: []string{"store.before_commit", "store.after_commit"}},
	{
		name: "postgres", url: pgtest.URL, args: []string{"--lease=" + lease.String()},
		failpoints: []string{"store.before_commit", "store.after_commit", "store.before_notify"},
	},
}

// crash is one run of the harness.
type crash struct {
	*testing.T
	command
	*members
	history *history
	front   *front
	places  []string // failpoints
	seed    uint64
	now     *replica // nil while none runs
}

func newCrash(t *testing.T, s database, seed uint64) *crash {
	t.Helper()
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	c := &crash{T: t, history: newHistory(t), front: newFront(), places: s.failpoints, seed: seed}
	c.members = newMembers(t, c.history)
	c.command = command{config: c.members.config(t), store: s.url(t), args: s.args, dir: t.ArtifactDir()}
	t.Cleanup(func() {
		if c.now != nil {
			c.now.end(syscall.SIGKILL)
		}
		c.front.gone()
	})
	return c
}

// run goes through a number of lives, each of which ends with a kill, and one
// more in which everything comes to its end. After an error no server runs.
func (c *crash) run(cycles uint64) error {
	c.Helper()
	l := startLoad(c.Context(), c.history, c.front, c.seed)
	defer l.abandon()
	for n := range cycles {
		if err := c.cycle(n, l); err != nil {
			return c.giveUp(err)
		}
	}
	if err := c.start(""); err != nil {
		return err
	}
	if err := l.finish(); err != nil {
		return c.giveUp(err)
	}
	s := c.now.end(syscall.SIGTERM)
	if s.ExitStatus() != 0 {
		c.Errorf("after SIGTERM the server ended with %v\n%s", s, c.now.tail())
	}
	c.stopped("the end")
	return nil
}

// giveUp ends the server, with its goroutines in its log.
func (c *crash) giveUp(err error) error {
	if c.now == nil {
		return err
	}
	err = fmt.Errorf("life %d: %w\n%s\nmore in %s", c.history.lifeNow(), err, c.now.tail(), c.now.log)
	c.now.end(syscall.SIGQUIT)
	c.stopped("the end")
	return err
}

// start begins a life of the server, with a variable or none.
func (c *crash) start(env string) error {
	c.history.add(entry{Op: opStart})
	c.env = []string{env}
	r, err := c.command.start()
	if err != nil {
		return err
	}
	c.now = r
	c.history.add(entry{Op: opReady, Took: r.took})
	if r.took > readyIn {
		c.history.add(entry{Op: opFailed, Text: fmt.Sprintf("life %d was ready after %v", c.history.lifeNow(), r.took)})
	}
	return c.front.serve(r.target)
}

// stopped notes that the server is gone.
func (c *crash) stopped(why string) {
	c.front.gone()
	c.collect()
	if why != "the end" {
		_, open, _ := c.history.standing()
		c.history.add(entry{Op: opKill, Text: why, Count: open})
	}
	c.now = nil
}

// plan is how a life ends.
type plan struct {
	acks int    // killed after so many acknowledgements
	env  string // or before, by itself: a variable
}

func (c *crash) plan(n uint64) plan {
	r := rand.New(rand.NewPCG(c.seed, n))
	if n == 0 || r.IntN(2) == 0 {
		return plan{acks: 1 + r.IntN(250)}
	}
	point := c.places[r.IntN(len(c.places))]
	return plan{acks: 400, env: fmt.Sprintf("TEAM_FAILPOINTS=%s=kill@%d", point, 1+r.IntN(100))}
}

// cycle is one life that ends with a kill.
func (c *crash) cycle(n uint64, l *load) error {
	p := c.plan(n)
	var early died
	err := c.start(p.env)
	if errors.As(err, &early) && p.env != "" && early.Signal() == syscall.SIGKILL {
		c.stopped(p.env + ", before it was ready")
		return nil
	}
	if err != nil {
		return err
	}
	why, err := c.await(p, l)
	if err != nil {
		return err
	}
	if s := c.now.end(syscall.SIGKILL); s.Signal() != syscall.SIGKILL {
		return fmt.Errorf("life %d was to be killed and ended with exit code %d\n%s", c.history.lifeNow(), s.ExitStatus(), c.now.tail())
	}
	c.stopped(why)
	return nil
}

// await waits until the server is to be killed, or has died.
func (c *crash) await(p plan, l *load) (why string, err error) {
	open, err := l.reach(p.acks, inFlight, c.now.gone)
	select {
	case <-c.now.gone:
		return p.env, err
	default:
		return fmt.Sprintf("%d acknowledgements, %d tasks under way", p.acks, open), err
	}
}
