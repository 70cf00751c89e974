package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
)

const (
	duration = 10 * time.Minute // virtual time with faults
	recovery = 10 * time.Minute // virtual time in which everything ends without them
)

// faults are the faults and habits of clients that a seed has: some of them, so that rare ones are not
// drowned.
type faults struct {
	fails, lies, slow, crashes, freezes, cuts, flaky bool
	repeats, cancels, messages                       bool
}

// world is one simulation.
type world struct {
	gate  *gate
	db    *database
	rand  *rand.Rand
	with  faults
	most  int // jobs
	steps int // actions with faults

	nodes   []*node
	started int // nodes so far
	jobs    []*job
	calls   map[string]int // of members, by step and epoch; guarded by db.mu
	calling sync.WaitGroup
	clients int      // calls so far
	answers []answer // guarded by gate.mu
}

// result is what is left of a simulation.
type result struct {
	hash    string
	trace   []string
	faults  []string
	virtual time.Duration
	tasks   int
}

// simulate runs the simulation of a seed. It must be called in a bubble.
func simulate(t *testing.T, seed int64, f flaw) result {
	g := &gate{began: time.Now()}
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	some := func() bool { return chance(r, 1, 2) }
	w := &world{gate: g, db: newDatabase(t, g, seed, f), rand: r, calls: map[string]int{}}
	w.with = faults{some(), some(), some(), some(), some(), some(), some(), some(), some(), some()}
	w.most, w.steps = 1+r.IntN(6), 60+r.IntN(120)
	g.note("%+v", w.with)
	for range 1 + r.IntN(3) {
		w.join()
	}
	settle()
	for range w.steps {
		if time.Since(g.began) > duration {
			break
		}
		w.step()
	}
	w.heal()
	w.recover()
	w.check()
	w.stop()
	return result{hash: g.hash(), trace: g.trace, faults: g.faults, virtual: time.Since(g.began), tasks: len(w.db.logs)}
}

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

// join starts one more replica.
func (w *world) join() {
	w.started++
	n := w.start(fmt.Sprint("n", w.started))
	w.gate.note("%s starts", n.name)
	w.nodes = append(w.nodes, n)
	settle()
}

// living is a replica that clients reach.
func (w *world) living() *node {
	var list []*node
	for _, n := range w.nodes {
		if !n.frozen {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[w.rand.IntN(len(list))]
}

// step takes one action.
func (w *world) step() {
	w.collect()
	ops := w.gate.open()
	switch p := w.rand.IntN(100); {
	case p < 70 && len(ops) > 0:
		w.deliver(ops[w.rand.IntN(len(ops))])
	case p < 82:
		w.act()
	case p < 90:
		w.disturb()
	default:
		w.advance()
	}
	w.collect()
}

// advance lets time pass.
func (w *world) advance() {
	d := time.Duration(1+w.rand.IntN(100)) * time.Millisecond
	switch w.rand.IntN(4) {
	case 0, 1:
		d = time.Duration(1+w.rand.IntN(5000)) * time.Millisecond
	case 2:
		d = time.Duration(5+w.rand.IntN(115)) * time.Second
	}
	w.gate.note("%v pass", d)
	time.Sleep(d)
	settle()
}

// deliver lets an operation through, or has a fault meet it.
func (w *world) deliver(o *op) {
	v := execute
	switch {
	case o.work:
		if w.with.flaky && strings.Contains(o.key, " works on ") && chance(w.rand, 1, 8) {
			v = fail
		}
	case o.node.cut == refused, o.node.cut == silent, o.node.cut == answersLost && o.answer:
		v = fail
	case o.node.cut == answersLost:
		v = mute
	case o.answer:
	case w.with.fails && chance(w.rand, 1, 15):
		v = fail
	case w.with.lies && chance(w.rand, 1, 15):
		v = lie
	case w.with.slow && o.after.IsZero() && chance(w.rand, 1, 10):
		d := time.Duration(1+w.rand.IntN(20000)) * time.Millisecond
		w.gate.note("%s takes %v", o.key, d)
		o.after = time.Now().Add(d)
		return
	}
	w.gate.let(o, v)
}

// disturb begins a fault of a replica or ends it.
func (w *world) disturb() {
	if len(w.nodes) == 0 {
		w.join()
		return
	}
	i := w.rand.IntN(len(w.nodes))
	n := w.nodes[i]
	switch p := w.rand.IntN(3); {
	case n.frozen || n.cut != whole:
		if chance(w.rand, 1, 2) {
			w.set(n, false, whole)
		}
	case p == 0 && w.with.crashes:
		w.crash(n)
		w.nodes = slices.Delete(w.nodes, i, i+1)
		if chance(w.rand, 1, 2) {
			w.join()
		}
	case p == 1 && w.with.freezes:
		w.set(n, true, whole)
	case p == 2 && w.with.cuts:
		w.set(n, false, cut(1+w.rand.IntN(3)))
	}
}

// set freezes a replica, cuts it off, or ends that.
func (w *world) set(n *node, frozen bool, c cut) {
	w.gate.note("%s: frozen %v, %v", n.name, frozen, c)
	w.gate.mu.Lock()
	n.frozen, n.cut = frozen, c
	w.gate.mu.Unlock()
	settle()
}

// crash ends a replica as a crash does. What it has sent may still be executed; nothing is given back.
func (w *world) crash(n *node) {
	for _, o := range w.gate.open() {
		if o.node == n && !o.work && !o.answer && n.cut == whole && chance(w.rand, 1, 3) {
			w.gate.let(o, mute)
		}
	}
	w.gate.note("%s crashes", n.name)
	w.gate.mu.Lock()
	n.crashed = true
	dying := slices.DeleteFunc(slices.Clone(w.gate.waiting), func(o *op) bool { return o.node != n })
	w.gate.waiting = slices.DeleteFunc(w.gate.waiting, func(o *op) bool { return o.node == n })
	w.gate.mu.Unlock()
	for _, o := range dying {
		o.verdict <- perish
	}
	n.end()
	<-n.served
	settle()
	w.collect()
}

// heal ends all faults.
func (w *world) heal() {
	w.gate.note("all faults end")
	w.with = faults{}
	w.gate.mu.Lock()
	for _, o := range w.gate.waiting {
		o.after = time.Time{}
	}
	w.gate.mu.Unlock()
	for _, n := range w.nodes {
		w.set(n, false, whole)
	}
	if len(w.nodes) == 0 {
		w.join()
	}
}

// flush lets through all that waits.
func (w *world) flush() {
	for ops := w.gate.open(); len(ops) > 0 && !w.gate.endless(); ops = w.gate.open() {
		w.gate.let(ops[w.rand.IntN(len(ops))], execute)
		w.collect()
	}
}

// recover waits until every task has ended or waits for input.
func (w *world) recover() {
	began := time.Now()
	for w.flush(); ; w.flush() {
		w.repeat()
		open := w.open()
		if open == "" {
			w.gate.note("all tasks are settled after %v", time.Since(began))
			return
		}
		if time.Since(began) > recovery || w.gate.endless() {
			w.gate.wrong("%v after the last fault: %s", recovery, open)
			return
		}
		time.Sleep(time.Second)
		settle()
	}
}

// repeat sends again what was not acknowledged, as clients do.
func (w *world) repeat() {
	for _, j := range w.jobs {
		if j.task == "" {
			w.send(w.living(), j, false)
			w.flush()
			continue
		}
		for _, id := range j.order {
			if in := j.inputs[id]; !in.acked && !in.refused {
				w.say(w.living(), j, id)
				w.flush()
			}
		}
	}
}

// open describes a task that has neither ended nor waits for input, "" if there is none.
func (w *world) open() string {
	for _, j := range w.jobs {
		if j.task == "" {
			return j.id + " is not acknowledged"
		}
		if len(w.db.logs[j.task]) == 0 {
			continue // check reports it
		}
		t, _, err := w.db.Task(context.Background(), runs.Key{Owner: "acme/" + j.owner, ID: j.task})
		if err != nil {
			return fmt.Sprintf("%s: %v", j.task, err)
		}
		state := t.GetStatus().GetState()
		if !taskstate.Final(state) && (state != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED || w.db.unread(j.task) > 0) || w.db.held[j.task] != nil {
			return fmt.Sprintf("task %s of %s is %v", j.task, j.id, state)
		}
	}
	return ""
}

// stop ends all replicas in order.
func (w *world) stop() {
	for _, n := range w.nodes {
		if w.gate.endless() {
			w.crash(n)
			continue
		}
		n.end()
		settle()
		for w.flush(); !closed(n.served); w.flush() {
			time.Sleep(time.Second)
			settle()
		}
	}
	w.calling.Wait()
	w.collect()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
