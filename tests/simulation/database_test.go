package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	lease  = 3 * 5_003_337_001 // about 15 s; heartbeats do not coincide with other timers
	polls  = 5 * time.Second   // how often a replica looks for runs
	giveUp = 8 * time.Second   // how long the client of the store tries
)

// flaw is a fault of the simulated database that the checks must find.
type flaw string

const (
	noFlaw          flaw = ""
	unfenced        flaw = "a replica that has lost its lease may write"
	losesCommits    flaw = "a commit is acknowledged and lost"
	losesInputs     flaw = "an input is acknowledged and lost"
	forgetsMessages flaw = "message ids are not remembered"
)

// database is what the replicas share: a store in memory, to which it adds the leases. All of its
// operations pass the gate, so that only one is executed at a time.
type database struct {
	*sqlstore.Store
	gate *gate
	flaw flaw
	seed int64

	mu       sync.Mutex
	at       time.Time              // the time of the events that are being written, or zero; guarded by mu
	expires  map[string]time.Time   // leases, by replica
	held     map[string]*journal    // claims, by root
	logs     map[string][]*recorded // by root: what was written, by whom
	creates  int
	releases int
	sends    map[string][]string // roots, by owner and message id
	inputs   map[string]int      // accepted inputs, by root
}

// recorded is an event and the epoch that has written it.
type recorded struct {
	*teamv1.Event
	epoch int64
}

func newDatabase(t *testing.T, g *gate, seed int64, f flaw) *database {
	d := &database{gate: g, flaw: f, seed: seed, expires: map[string]time.Time{}, held: map[string]*journal{}, logs: map[string][]*recorded{}, sends: map[string][]string{}, inputs: map[string]int{}}
	d.Store = memstore.OpenAt(t, d.clock)
	return d
}

func (d *database) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		return d.at
	}
	return time.Now()
}

// stamp sets the time of the events that are written next.
func (d *database) stamp(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
}

// flawed reports whether the nth operation meets the flaw.
func (d *database) flawed(f flaw, n int) bool { return d.flaw == f && (int64(n)+d.seed)%3 == 0 }

// create creates a task. Its ids and its seed, which are random, become those of the simulation.
func (d *database) create(ctx context.Context, n runs.New) (string, bool, error) {
	d.creates++
	n.Accepted = proto.CloneOf(n.Accepted)
	id := fmt.Sprint(n.MessageID, "/", d.creates)
	n.Accepted.TaskId, n.Accepted.Seed = uuid.NewSHA1(uuid.NameSpaceURL, []byte(id)).String(), d.seed
	if d.flaw == forgetsMessages {
		n.MessageID = ""
	}
	root, existed, err := d.Create(ctx, n)
	if err == nil && !existed {
		key := n.Owner + " " + n.Accepted.GetMessage().GetMessageId()
		d.sends[key] = append(d.sends[key], root)
		d.logs[root] = []*recorded{{Event: d.events(n.Owner, root)[0]}}
	}
	return root, existed, err
}

// events are those of a root.
func (d *database) events(owner, root string) []*teamv1.Event {
	records, err := d.Events(context.Background(), runs.Key{Owner: owner, ID: root}, 0, 100_000)
	if err != nil {
		d.gate.wrong("the events of %s: %v", root, err)
	}
	var list []*teamv1.Event
	for _, r := range records {
		list = append(list, r.Event)
	}
	return list
}

// put puts an input, and tells the replica that has the run if that is reached.
func (d *database) put(ctx context.Context, k runs.Key, in *teamv1.Inbound, digest []byte, p *runs.Push) (int64, bool, error) {
	d.creates++
	root, _ := agent.SplitTask(k.ID)
	m := in.GetReceived().GetMessage()
	if m == nil {
		m = in.GetAnswered().GetMessage()
	}
	if m != nil && d.flawed(losesInputs, d.creates) {
		return 1, false, nil
	}
	n, existed, err := d.Put(ctx, k, in, digest, p)
	if err == nil && !existed {
		d.inputs[root]++
	}
	if j := d.held[root]; err == nil && j != nil {
		j.poke()
	}
	return n, existed, err
}

// beat extends a lease. As the client of a real store does, the replica then looks for inputs of which
// it was not told, and gives back what it was given without hearing of it.
func (d *database) beat(n *node) {
	d.expires[n.name] = time.Now().Add(lease)
	for _, root := range slices.Sorted(maps.Keys(d.held)) {
		switch j := d.held[root]; {
		case j.node != n:
		case j.unheard:
			d.release(j)
		default:
			j.poke()
		}
	}
}

// claim claims what is due, and what replicas hold whose leases have expired.
func (d *database) claim(ctx context.Context, n *node, room *engine.Room) ([]runs.Claim, time.Time, error) {
	if !time.Now().Before(d.expires[n.name]) {
		d.beat(n)
	}
	for _, root := range slices.Sorted(maps.Keys(d.held)) {
		if j := d.held[root]; j.node != n && !time.Now().Before(d.expires[j.node.name]) {
			d.gate.note("the lease of %s on %s is over", j.node.name, root)
			d.release(j)
			j.poke()
		}
	}
	claims, next, err := d.Claim(ctx, n.name, room)
	if err != nil {
		return nil, time.Time{}, err
	}
	for i, c := range claims {
		j := &journal{Journal: c.Journal, db: d, node: n, claim: c, seq: int64(len(d.logs[c.Root])), wake: make(chan struct{}, 1), named: map[int64]bool{}, unheard: true}
		if held := d.held[c.Root]; held != nil {
			d.gate.wrong("%s has two owners: epoch %d of %s and epoch %d of %s", c.Root, held.claim.Epoch, held.node.name, c.Epoch, n.name)
		}
		d.held[c.Root] = j
		claims[i].Journal = j
		d.gate.note("%s claims %s, epoch %d", n.name, c.Root, c.Epoch)
	}
	if soon := time.Now().Add(polls); next.IsZero() || next.After(soon) {
		next = soon
	}
	return claims, next, nil
}

// settled ends a claim with one of the functions of the store.
func (d *database) settled(j *journal, end func(runs.Claim) error) error {
	err := end(j.claim)
	if err == nil && d.held[j.claim.Root] == j {
		delete(d.held, j.claim.Root)
	}
	return err
}

// release makes the run of a claim due.
func (d *database) release(j *journal) {
	at := d.apart(time.Now().Add(-time.Millisecond))
	_ = d.settled(j, func(c runs.Claim) error {
		_, err := d.Release(context.Background(), c, at)
		return err
	})
}

// apart makes times of releases different: runs that are due at the same time have no order.
func (d *database) apart(at time.Time) time.Time {
	d.releases++
	return at.Add(time.Duration(d.releases))
}

// unread is how many inputs of a task no event has recorded.
func (d *database) unread(root string) int {
	n := d.inputs[root]
	for _, ev := range d.logs[root] {
		if store.Consumes(ev.Event) > 0 {
			n--
		}
	}
	return n
}

// write writes what a journal holds, event by event.
func (d *database) write(j *journal, events []*teamv1.Event) error {
	root := j.claim.Root
	to, held := j.Journal, d.held[root]
	if d.flaw == unfenced && held != nil {
		to = held.Journal
	}
	var current int64
	if held != nil {
		current = held.claim.Epoch
	}
	before := len(d.logs[root])
	if d.flawed(losesCommits, before) {
		return nil
	}
	for i, ev := range events {
		c := proto.CloneOf(ev)
		d.stamp(ev.GetTime().AsTime())
		err := to.Append(context.Background(), c)
		if err == nil {
			err = to.Commit(context.Background())
		}
		d.stamp(time.Time{})
		if err != nil {
			if i > 0 {
				d.gate.wrong("%s: half of a change is recorded: %v", root, err)
			}
			return err
		}
		if current != j.claim.Epoch {
			d.gate.wrong("%s: epoch %d of %s writes in epoch %d", root, j.claim.Epoch, j.node.name, current)
		}
		if taskstate.EndsRun(c) {
			ev.Seq, ev.Time = c.GetSeq(), c.GetTime()
		} else if c.GetSeq() != ev.GetSeq() {
			d.gate.wrong("%s: event %d is recorded as %d", root, ev.GetSeq(), c.GetSeq())
		}
	}
	all := d.events(j.claim.Owner, root)
	for _, ev := range all[min(before, len(all)):] {
		d.logs[root] = append(d.logs[root], &recorded{Event: ev, epoch: j.claim.Epoch})
		d.gate.note("%s: event %d by epoch %d: %T %s", root, ev.GetSeq(), j.claim.Epoch, ev.GetKind(), ev.GetScope())
	}
	return nil
}

// view is the store as a replica sees it.
type view struct {
	*sqlstore.Store
	db   *database
	node *node
}

// through executes a request to the store as the gate says. Once it is let through, it is executed even if the time of
// its caller is over.
func through[T any](ctx context.Context, v *view, key string, do func(ctx context.Context) (T, error)) (T, error) {
	var none T
	key = v.node.name + " " + key
	if n, ok := ctx.Value(callKey{}).(int); ok {
		key += fmt.Sprint(" for call ", n)
	}
	said, err := v.db.gate.pass(ctx, &op{key: key, node: v.node})
	if err != nil {
		return none, err
	}
	got, err := do(context.WithoutCancel(ctx))
	v.db.gate.note("  %s: %v", key, brief(err))
	switch {
	case said == lie && err == nil:
		return none, fmt.Errorf("%s is reported as failed on purpose: %w", key, runs.ErrStorage)
	case said == mute:
		if _, late := v.db.gate.pass(ctx, &op{key: key + " answers", node: v.node, answer: true}); late != nil {
			return none, late
		}
	}
	return got, err
}

// brief is an error without ids that are random.
func brief(err error) string {
	for _, e := range []error{runs.ErrStorage, runs.ErrTerminal, runs.ErrNotFound, runs.ErrReused, runs.ErrAnswered, agent.ErrFenced, errCrashed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

// Watch watches only tasks that exist, because create changes the ids of new ones.
func (v *view) Watch(id string) (wake <-chan struct{}, stop func()) {
	root, _ := agent.SplitTask(id)
	v.db.mu.Lock()
	_, exists := v.db.logs[root]
	v.db.mu.Unlock()
	if !exists {
		return nil, func() {}
	}
	return v.Store.Watch(id)
}

func (v *view) Now() time.Time       { return time.Now() }
func (v *view) Lease() time.Duration { return lease }

type created struct {
	root    string
	existed bool
}

func (v *view) Create(ctx context.Context, n runs.New) (string, bool, error) {
	got, err := through(ctx, v, "creates "+n.MessageID, func(ctx context.Context) (c created, err error) {
		c.root, c.existed, err = v.db.create(ctx, n)
		return c, err
	})
	return got.root, got.existed, err
}

func (v *view) Sent(ctx context.Context, owner, agent, id string) (string, error) {
	return through(ctx, v, "looks for "+id, func(ctx context.Context) (string, error) { return v.Store.Sent(ctx, owner, agent, id) })
}

func (v *view) Put(ctx context.Context, k runs.Key, in *teamv1.Inbound, digest []byte, p *runs.Push) (int64, bool, error) {
	type put struct {
		n       int64
		existed bool
	}
	got, err := through(ctx, v, "puts "+in.GetKey()+" "+k.ID, func(ctx context.Context) (r put, err error) {
		r.n, r.existed, err = v.db.put(ctx, k, in, digest, p)
		return r, err
	})
	return got.n, got.existed, err
}

func (v *view) Task(ctx context.Context, k runs.Key) (*a2av1.Task, int64, error) {
	type read struct {
		task *a2av1.Task
		seq  int64
	}
	got, err := through(ctx, v, "gets "+k.ID, func(ctx context.Context) (r read, err error) {
		r.task, r.seq, err = v.Store.Task(ctx, k)
		return r, err
	})
	return got.task, got.seq, err
}

func (v *view) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	return through(ctx, v, fmt.Sprint("reads ", k.ID, " after ", after), func(ctx context.Context) ([]runs.Record, error) { return v.Store.Events(ctx, k, after, limit) })
}

func (v *view) Beat(ctx context.Context, _ string) error {
	_, err := through(ctx, v, "beats", func(context.Context) (struct{}, error) {
		v.db.beat(v.node)
		return struct{}{}, nil
	})
	return err
}

func (v *view) Claim(ctx context.Context, _ string, room *engine.Room) ([]runs.Claim, time.Time, error) {
	type claimed struct {
		claims []runs.Claim
		next   time.Time
	}
	got, err := through(ctx, v, "claims", func(ctx context.Context) (c claimed, err error) {
		c.claims, c.next, err = v.db.claim(ctx, v.node, room)
		return c, err
	})
	for _, c := range got.claims {
		v.db.gate.mu.Lock()
		c.Journal.(*journal).unheard = false
		v.db.gate.mu.Unlock()
	}
	return got.claims, got.next, err
}

func (v *view) Park(ctx context.Context, c runs.Claim, p runs.Park) (engine.Next, error) {
	return v.end(ctx, "parks", c, func(ctx context.Context, c runs.Claim) (engine.Next, error) { return v.Store.Park(ctx, c, p) })
}

func (v *view) Release(ctx context.Context, c runs.Claim, at time.Time) (engine.Next, error) {
	return v.end(ctx, "releases", c, func(ctx context.Context, c runs.Claim) (engine.Next, error) {
		if !at.IsZero() {
			at = v.db.apart(at)
		}
		return v.Store.Release(ctx, c, at)
	})
}

func (v *view) Suspend(ctx context.Context, c runs.Claim, reason string) error {
	_, err := v.end(ctx, "suspends", c, func(ctx context.Context, c runs.Claim) (engine.Next, error) {
		return engine.Next{}, v.Store.Suspend(ctx, c, reason)
	})
	return err
}

// end ends a claim. Nothing is written under it any more.
func (v *view) end(ctx context.Context, what string, c runs.Claim, end func(context.Context, runs.Claim) (engine.Next, error)) (engine.Next, error) {
	j := c.Journal.(*journal)
	next, err := through(ctx, v, fmt.Sprint(what, " ", c.Root, " epoch ", c.Epoch), func(ctx context.Context) (next engine.Next, err error) {
		err = v.db.settled(j, func(c runs.Claim) (err error) {
			next, err = end(ctx, c)
			return err
		})
		return next, err
	})
	if err == nil {
		j.fail(agent.ErrFenced)
	}
	return next, err
}
