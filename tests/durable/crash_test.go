//go:build linux

package durable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/pgtest"
)

const (
	// readyIn is how soon a server must be ready after a crash.
	readyIn = 5 * time.Second
	// inFlight is how many tasks must be under way when a server is killed at an acknowledgement.
	inFlight = 20
)

// failpoints are the places where a server may die of itself.
var failpoints = []string{
	"store.before_commit", "store.after_commit", "store.before_notify",
}

// TestCrash_P1_P2 kills the server again and again under load, after a number of
// acknowledgements or at a failpoint, and checks at the end that nothing
// acknowledged is lost and nothing recorded is repeated.
func TestCrash_P1_P2(t *testing.T) {
	for _, s := range stores {
		t.Run("P1 P2 "+s.name, func(t *testing.T) {
			c := newCrash(t, s)
			c.run(number(t, cyclesVariable, 60))
			r, err := c.verdict(c.history)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v in %v", s.name, r, time.Since(c.began).Round(time.Second/10))
			if err := r.err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// database is a kind of store.
type database struct {
	name string
	url  func(testing.TB) string
	args []string
}

// stores are those that outlive a process. The lease of PostgreSQL is short, so
// that the next server takes over within a cycle.
var stores = []database{
	{name: "sqlite", url: sqlite},
	{name: "postgres", url: pgtest.URL, args: []string{"--lease=" + lease.String()}},
}

// crash is one run of the harness.
type crash struct {
	*testing.T
	command
	*members
	history *history
	front   *front
	seed    uint64
	began   time.Time
	now     *replica // nil while none runs
}

func newCrash(t *testing.T, s database) *crash {
	t.Helper()
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	c := &crash{T: t, history: newHistory(t), front: newFront(), seed: seed(t), began: time.Now()}
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
// more in which everything comes to its end.
func (c *crash) run(cycles uint64) {
	c.Helper()
	l := startLoad(c.Context(), c.history, c.front, c.seed)
	defer l.abandon()
	for n := range cycles {
		if err := c.cycle(n, l); err != nil {
			c.Fatal(err)
		}
	}
	if err := c.start(""); err != nil {
		c.Fatal(err)
	}
	if err := l.finish(patience); err != nil {
		tail := c.now.tail()
		c.now.end(syscall.SIGQUIT) // its goroutines are in its log then
		c.Fatalf("%v\n%s\nmore in %s", err, tail, c.now.log)
	}
	if s := c.now.end(syscall.SIGTERM); s.ExitStatus() != 0 {
		c.Errorf("after SIGTERM the server ended with %v\n%s", s, c.now.tail())
	}
	c.stopped("the end")
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
	point := failpoints[r.IntN(len(failpoints))]
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
		return fmt.Errorf("life %d: %w\n%s", c.history.lifeNow(), err, c.now.tail())
	}
	if s := c.now.end(syscall.SIGKILL); s.Signal() != syscall.SIGKILL {
		return fmt.Errorf("life %d was to be killed and ended with exit code %d\n%s", c.history.lifeNow(), s.ExitStatus(), c.now.tail())
	}
	c.stopped(why)
	return nil
}

// await waits until the server is to be killed, or has died.
func (c *crash) await(p plan, l *load) (why string, err error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		acks, open, changed := c.history.standing()
		if acks >= p.acks && open >= inFlight {
			return fmt.Sprintf("%d acknowledgements, %d tasks under way", acks, open), nil
		}
		if err := l.failure(); err != nil {
			return "", err
		}
		select {
		case <-changed:
		case <-c.now.gone:
			return p.env, nil
		case <-limit.C:
			return "", fmt.Errorf("%d acknowledgements and %d tasks under way in %v", acks, open, patience)
		}
	}
}
