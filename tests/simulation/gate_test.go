package simulation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/agentteams/team-server/internal/runs"
)

// verdict is what becomes of an operation that waits at the gate.
type verdict int

const (
	execute verdict = iota
	fail            // it is not executed and reported as failed
	lie             // it is executed and reported as failed
	mute            // it is executed, and its answer waits at the gate
	perish          // its process has crashed
)

func (v verdict) String() string {
	return [...]string{"is executed", "fails", "is executed and reported as failed", "is executed and not answered", "dies"}[v]
}

// errCrashed is what the rest of a process gets after its crash. Nobody sees it.
var errCrashed = errors.New("the process has crashed")

// op is an operation that waits at the gate: a request to the store, its answer, or work of a member.
type op struct {
	key     string
	node    *node
	n       int64
	born    time.Time
	after   time.Time // it is not let through before
	work    bool      // of a member, which needs no store
	answer  bool
	begins  bool // a step
	verdict chan verdict
}

// gate lets one operation at a time through, and so decides on the order of everything that happens.
type gate struct {
	mu      sync.Mutex
	waiting []*op // guarded by mu
	n       int64 // operations so far; guarded by mu
	trace   []string
	faults  []string // what must not have happened; guarded by mu
	began   time.Time
}

// note adds a line to the trace.
func (g *gate) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trace = append(g.trace, fmt.Sprintf("%12v ", time.Since(g.began).Round(time.Microsecond))+fmt.Sprintf(format, args...))
}

// wrong records what must not have happened.
func (g *gate) wrong(format string, args ...any) {
	g.note("WRONG: "+format, args...)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, fmt.Sprintf(format, args...))
}

// hash is that of the trace.
func (g *gate) hash() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(g.trace, "\n"))))[:16]
}

// pass waits until the operation is let through, or ctx ends. An operation of a frozen process waits
// until that goes on, whatever its ctx does.
func (g *gate) pass(ctx context.Context, o *op) (verdict, error) {
	if !g.add(o) {
		return perish, errCrashed
	}
	select {
	case v := <-o.verdict:
		return v, g.refusal(v, o)
	case <-ctx.Done():
	}
	if g.withdraw(o) {
		return fail, fmt.Errorf("%s: %w", o.key, context.Cause(ctx))
	}
	v := <-o.verdict
	return v, g.refusal(v, o)
}

// refusal is the error of an operation that is not executed.
func (g *gate) refusal(v verdict, o *op) error {
	switch v {
	case perish:
		return errCrashed
	case fail:
		return fmt.Errorf("%s failed on purpose: %w", o.key, runs.ErrStorage)
	case execute, lie, mute:
	}
	return nil
}

// add has an operation wait. It reports whether its process lives.
func (g *gate) add(o *op) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o.node.crashed {
		return false
	}
	g.n++
	o.n, o.born, o.verdict = g.n, time.Now(), make(chan verdict, 1)
	g.waiting = append(g.waiting, o)
	return true
}

// withdraw removes an operation whose ctx has ended. It reports false if the operation is let through
// meanwhile, or if its process is frozen: then it waits for a verdict.
func (g *gate) withdraw(o *op) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, o)
	if i < 0 || o.node.frozen {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// open returns the operations that can be let through, in an order that does not depend on that of
// goroutines.
func (g *gate) open() []*op {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortFunc(g.waiting, func(a, b *op) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.n, b.n)) })
	var list []*op
	for _, o := range g.waiting {
		late := time.Since(o.born) > giveUp // the store's client gives up then
		switch {
		case o.node.frozen, time.Now().Before(o.after), o.begins && o.node.begins != nil:
		case o.work, o.node.cut == whole, late, o.node.cut == refused:
			list = append(list, o)
		case o.node.cut == answersLost && !o.answer:
			list = append(list, o)
		}
	}
	return list
}

// most is how many operations a simulation has at most: one that has more never ends.
const most = 20_000

// let lets an operation through, and waits until nothing moves any more.
func (g *gate) let(o *op, v verdict) {
	g.note("%s %v", o.key, v)
	g.mu.Lock()
	if i := slices.Index(g.waiting, o); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.mu.Unlock()
	o.verdict <- v
	settle()
}

// endless reports whether there have been too many operations.
func (g *gate) endless() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n > most
}

// settle lets a moment pass in which everything that can move does. Timers that are set in different
// moments never fire in the same one.
func settle() {
	synctest.Wait()
	time.Sleep(time.Microsecond)
	synctest.Wait()
}

// chance draws true with a probability of n in of.
func chance(r *rand.Rand, n, of int) bool { return r.IntN(of) < n }
