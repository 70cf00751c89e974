// Package memory implements a store in the memory of the process.
package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// DefaultMaxFinished is how many finished runs are kept if Config.MaxFinished is not set.
const DefaultMaxFinished = 10_000

// Fold computes the A2A task of one scope from the events of its root.
type Fold interface {
	// Apply applies the root's next event.
	Apply(ev *teamv1.Event)
	// Task returns the task. The caller may change the result.
	Task() *a2av1.Task
	// State returns the state of the task.
	State() a2av1.TaskState
	// StatusAt returns when the status last changed.
	StatusAt() time.Time
	// Visible reports whether callers may see the task. A visible task remains visible.
	Visible() bool
	// Terminal reports whether the task has ended.
	Terminal() bool
}

// FoldFunc returns the fold of a scope of a root before the first event.
type FoldFunc func(root, scope string) Fold

// Config configures a Store.
type Config struct {
	// Clock returns the current time; nil means time.Now.
	Clock func() time.Time
	// MaxFinished limits the number of finished runs that are kept, of all owners together; those
	// that finished first are dropped first. 0 means DefaultMaxFinished.
	MaxFinished int
	// Deduplicate is how long a message id is remembered; 0 means store.RequestWindow.
	Deduplicate time.Duration
	// Keep says how long conversations, boards and audit records are kept.
	Keep store.Keep
	// Fold computes tasks; nil means project.New.
	Fold FoldFunc
	// Log receives details that callers must not see; nil means no log.
	Log *zap.Logger
}

// Store holds everything in the memory of this process, and loses it when the process exits. It
// implements store.Store and is safe for concurrent use.
type Store struct {
	clock       func() time.Time
	maxFinished int
	deduplicate time.Duration
	retained    store.Keep
	swept       atomic.Int64 // time of the last sweep that a task has caused, in milliseconds
	fold        FoldFunc
	log         *zap.Logger
	tokens      store.Sealer
	due         dueQueue
	all         store.Bell // rung when a root is new or has new events, or when a board has changed

	sizes         sharedSizes
	conversations conversations
	pushes        pushes
	catalog       entries
	boards        boards
	accounts      accounts
	apiKeys       apiKeys
	rights        rights
	costs         costs
	halts         halts
	audit         chains

	// mu may be acquired while the lock of a run is held, but not the other way round.
	mu       sync.RWMutex
	runs     map[string]*run        // by root; guarded by mu
	owners   map[string]*owner      // guarded by mu
	asking   map[*run]struct{}      // runs with open questions for roles; guarded by mu
	requests map[requestKey]request // guarded by mu
	finished []*run                 // oldest first; guarded by mu
	expiries []expiry               // of requests, oldest first; guarded by mu

	definitions map[string]*definition // by revision; guarded by mu

	busy map[string][]*run // collaborations that have not ended, by agent; guarded by mu
}

var _ store.Store = (*Store)(nil)

// owner is the data of one owner.
type owner struct {
	// runs is the number of the owner's runs.
	runs    int
	listed  index
	briefed *btree.BTreeG[*run] // listed runs that were begun with a brief, by root id
}

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.MaxFinished <= 0 {
		cfg.MaxFinished = DefaultMaxFinished
	}
	if cfg.Fold == nil {
		cfg.Fold = func(root, scope string) Fold { return project.New(root, scope) }
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return &Store{
		clock: cfg.Clock, maxFinished: cfg.MaxFinished, deduplicate: cfg.Deduplicate, retained: cfg.Keep, fold: cfg.Fold, log: cfg.Log, tokens: store.NewSealer(key),
		runs: map[string]*run{}, owners: map[string]*owner{}, asking: map[*run]struct{}{}, requests: map[requestKey]request{},
		definitions: map[string]*definition{}, busy: map[string][]*run{},
		sizes:         sharedSizes{seed: maphash.MakeSeed()},
		pushes:        newPushes(),
		conversations: conversations{max: entriesOf * cfg.MaxFinished, threads: map[a2a.Thread]*conversation{}},
	}
}

// Create creates a task with its first event, due to run. If the message was received before, it
// returns the root that the message began, and existed is true.
func (s *Store) Create(ctx context.Context, n a2a.New) (root string, existed bool, err error) {
	root = n.Accepted.GetTaskId()
	if root == "" || n.Owner == "" {
		return "", false, errors.New("create a task: it needs an id and an owner")
	}
	now := s.clock()
	s.sweepSoon(ctx, now)
	r := s.newRun(n, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := requestKey{owner: n.Owner, agent: store.AgentOf(n.MessageID, r.key()), id: n.MessageID}
	if q, known := s.request(key, now); known {
		root, _, err = q.again("", n.Digest)
		return root, err == nil, err
	}
	if _, taken := s.runs[root]; taken {
		return "", false, fmt.Errorf("create task %s: the id is taken", root)
	}
	if n.Entry != "" && !s.catalog.has(n.Entry) {
		return "", false, a2a.ErrDeleted
	}
	if err := s.room(n); err != nil {
		return "", false, err
	}
	if n.Push != nil {
		p := a2a.Push{Task: a2a.Key{Owner: n.Owner, ID: root}, Config: n.Push, Version: n.PushVersion}
		if err := s.pushes.put(p, root, now); err != nil {
			return "", false, err
		}
		r.pushed = true
	}
	if n.Collaborations > 0 {
		r.collab = true
		s.busy[r.key()] = append(s.busy[r.key()], r)
	}
	s.runs[root] = r
	s.ownerOf(n.Owner).runs++
	s.tie(r, n.Accepted)
	s.remember(r, key, request{root: root, digest: n.Digest}, now)
	s.list(r)
	s.due.set(r, now)
	s.all.Ring(n.Owner)
	return root, false, nil
}

// Sent returns the root task that a message of the owner created or was put into, within the time
// for which message ids are remembered. The error is a2a.ErrNotFound.
func (s *Store) Sent(_ context.Context, owner, agent, messageID string) (string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	q, known := s.request(requestKey{owner: owner, agent: store.AgentOf(messageID, agent), id: messageID}, s.clock())
	if !known {
		return "", a2a.ErrNotFound
	}
	return q.root, nil
}

// ownerOf returns the data of an owner, which it creates if needed. The caller must hold mu.
func (s *Store) ownerOf(name string) *owner {
	o := s.owners[name]
	if o == nil {
		o = &owner{listed: index{}, briefed: btree.NewBTreeGOptions(func(a, b *run) bool { return a.root < b.root }, btree.Options{NoLocks: true})}
		s.owners[name] = o
	}
	return o
}

// find returns the run of a key and the scope in the key. The error is a2a.ErrNotFound.
func (s *Store) find(k a2a.Key) (*run, string, error) {
	root, scope := agent.SplitTask(k.ID)
	s.mu.RLock()
	r := s.runs[root]
	s.mu.RUnlock()
	if r == nil || r.owner != k.Owner {
		return nil, "", a2a.ErrNotFound
	}
	return r, scope, nil
}

// Put puts an input into the inbox of a task and makes its run due. Unless p is nil, it also stores
// that push configuration.
func (s *Store) Put(ctx context.Context, k a2a.Key, in *teamv1.Inbound, digest []byte, p *a2a.Push) (n int64, existed bool, err error) {
	if in.GetKind() == nil {
		return 0, false, errors.New("put an input: it has no kind")
	}
	r, scope, err := s.find(k)
	if err != nil {
		return 0, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := s.clock()
	key := putKey(r, in, digest)
	if n, existed, err = s.known(r, key, digest, now); existed || err != nil {
		return n, existed, err
	}
	if err := r.unanswered(in); err != nil {
		return 0, false, err
	}
	if err := s.open(r, scope); err != nil {
		return 0, false, err
	}
	if p != nil {
		if err := s.keep(r, *p); err != nil {
			return 0, false, err
		}
	}
	n = r.leave(proto.CloneOf(in))
	s.mu.Lock()
	s.remember(r, key, request{root: r.root, n: n, digest: digest}, now)
	s.mu.Unlock()
	if r.claimed {
		store.Poke(r.wake)
	} else {
		s.due.set(r, now)
	}
	return n, false, s.audited(ctx)
}

// open returns an error if the run or the child has ended, or if the child does not exist. The
// caller must hold r.mu.
func (s *Store) open(r *run, scope string) error {
	if r.ended {
		return a2a.ErrTerminal
	}
	if scope == "" {
		return nil
	}
	f := s.child(r.root, scope, r.record.all())
	switch {
	case !f.Visible():
		return a2a.ErrNotFound
	case f.Terminal():
		return a2a.ErrTerminal
	}
	return nil
}

// child computes the task of a scope.
func (s *Store) child(root, scope string, events []*teamv1.Event) Fold {
	f := s.fold(root, scope)
	for _, ev := range events {
		f.Apply(ev)
	}
	return f
}

// Task returns the A2A task and the sequence number of the last event that it includes.
func (s *Store) Task(_ context.Context, k a2a.Key) (*a2av1.Task, int64, error) {
	r, scope, err := s.find(k)
	if err != nil {
		return nil, 0, err
	}
	t, events := r.snapshot(scope == "")
	if events.len() == 0 {
		return nil, 0, a2a.ErrNotFound
	}
	if scope != "" {
		f := s.child(r.root, scope, events.all())
		if !f.Visible() {
			return nil, 0, a2a.ErrNotFound
		}
		t = f.Task()
	}
	return t, events.len(), nil
}

// Agent returns the id of the agent that a root task was sent to.
func (s *Store) Agent(_ context.Context, k a2a.Key) (string, error) {
	r, _, err := s.find(k)
	if err != nil {
		return "", err
	}
	return r.agent, nil
}

// Events returns events after a sequence number, of the key's scope and below. It also returns
// those of a task that is not visible yet, because the sender of its message waits for them.
func (s *Store) Events(_ context.Context, k a2a.Key, after int64, maxEvents int) ([]a2a.Record, error) {
	r, scope, err := s.find(k)
	if err != nil {
		return nil, err
	}
	events := r.recorded()
	records := make([]a2a.Record, 0, max(min(events.len()-max(after, 0), int64(maxEvents)), 0))
	for ev := range events.after(after) {
		if len(records) >= maxEvents {
			break
		}
		if agent.Within(ev.GetScope(), scope) {
			records = append(records, a2a.Record{Seq: ev.GetSeq(), Event: ev})
		}
	}
	return records, nil
}

// Watch returns a channel that receives when a root may have new events. The id of a child stands
// for its root. For an unknown id the channel is nil.
func (s *Store) Watch(id string) (wake <-chan struct{}, stop func()) {
	root, _ := agent.SplitTask(id)
	s.mu.RLock()
	r := s.runs[root]
	s.mu.RUnlock()
	if r == nil {
		return nil, func() {}
	}
	return r.watch()
}

// Ready returns nil: memory accepts all writes.
func (s *Store) Ready() error { return nil }

// Failed returns nil, a channel that is never closed: memory does not fail.
func (s *Store) Failed() <-chan struct{} { return nil }

// Err returns nil.
func (s *Store) Err() error { return nil }

// Close does nothing, because nothing outlives the process.
func (s *Store) Close() error { return nil }
