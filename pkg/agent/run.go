package agent

import (
	"context"
	"crypto/sha1" //nolint:gosec // UUIDs of version 5 are made so
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Run holds what all agents, teams and steps that work for one root task share: the identity of
// the run, its clock, and the functions of the driver that make it durable, deliver inputs to it,
// cancel and pause it. It travels in the context; see With and From. If the context has no Run,
// there is no journal and no inbox, so that a team can be used as a library. The exported fields
// are set before first use and must not change afterwards. All methods are safe for concurrent
// use.
//
// A scope identifies a step within the run. It is the dot-separated list of step ids from the
// root to the step; the scope of the root is empty. See Scope, Parent and Within.
type Run struct {
	// Root is the id of the root task. All ids that are made in the run are derived from it.
	Root string
	// Seed is the seed of random decisions in the run, so that they are the same when the run is
	// replayed.
	Seed int64
	// Committer makes all events yielded so far durable; Commit calls it. If it is nil, nothing
	// is made durable.
	Committer func(context.Context) error
	// Clock returns the current time. The default is time.Now.
	Clock func() time.Time
	// Memory gives access to the conversation of the run. If it is nil, the conversation is
	// empty.
	Memory Memory
	// Detacher starts detached tasks. If it is nil, the run cannot start any.
	Detacher Detacher
	// Spans are the spans of the run. If it is nil, the run has none.
	Spans Spans
	// CallMemory waits until there is memory for bytes of content of a call; BeginCall and LargeAnswer call it.
	// The room is nil for few bytes. The error is INSUFFICIENT_RESOURCES if that takes too long. If it is nil,
	// calls may use as much as they need.
	CallMemory func(ctx context.Context, bytes int64) (Room, error)
	// Owner identifies whose run it is, as account/principal. It is part of ids that must differ
	// between owners; see ConversationID.
	Owner string

	mu        sync.Mutex
	listeners map[string]*Listener               // by scope; guarded by mu
	cancels   map[string]context.CancelCauseFunc // by scope of the running step; guarded by mu
	canceled  map[string]bool                    // scopes that were canceled; guarded by mu
	fenced    map[string]bool                    // scopes in which no step may begin; guarded by mu
	pause     pause                              // guarded by mu
	timeouts  map[*timeout]struct{}              // guarded by mu
	allowed   map[string]bool                    // keys given to Allow; guarded by mu
}

// Account returns the account whose run it is, empty if it has no owner.
func (r *Run) Account() string {
	account, _, _ := strings.Cut(r.Owner, "/")
	return account
}

// Allow records that people have approved all later calls with a key, which says who makes them and
// what is called.
func (r *Run) Allow(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.allowed == nil {
		r.allowed = map[string]bool{}
	}
	r.allowed[key] = true
}

// Allowed reports whether Allow was called with key.
func (r *Run) Allowed(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allowed[key]
}

type runKey struct{}

// With returns a copy of ctx that carries r. It returns ctx itself if ctx already carries r.
func With(ctx context.Context, r *Run) context.Context {
	if has, ok := ctx.Value(runKey{}).(*Run); ok && has == r {
		return ctx
	}
	return context.WithValue(ctx, runKey{}, r)
}

// From returns the Run that ctx carries. If ctx carries no Run, From returns a new one with a random id,
// which keeps nothing.
func From(ctx context.Context) *Run {
	if r, ok := ctx.Value(runKey{}).(*Run); ok {
		return r
	}
	return &Run{Root: uuid.NewString(), Seed: rand.Int64()} //nolint:gosec // jitter, not a secret
}

// Commit makes all events that have been yielded so far durable and returns once they are. If it
// returns an error, the caller must not have any effect outside of the process. If ctx carries no
// Run with a Committer, it returns ctx.Err().
func Commit(ctx context.Context) error {
	if r, ok := ctx.Value(runKey{}).(*Run); ok && r.Committer != nil {
		return r.Committer(ctx)
	}
	return ctx.Err()
}

// Now returns the current time of the run: that of Clock, if it is set.
func (r *Run) Now() time.Time {
	if r.Clock != nil {
		return r.Clock()
	}
	return time.Now()
}

// ID returns the id of the n-th thing of a kind in a scope, a version 5 UUID. It is a function of
// Root and the arguments, so that a replay makes the same ids. Every step calls ID, so it does
// its work in an array on the stack.
func (r *Run) ID(scope, kind string, n int64) string {
	root, err := uuid.Parse(r.Root)
	if err != nil {
		root = uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.Root))
	}
	var room [128]byte
	b := append(room[:0], root[:]...)
	b = append(b, scope...)
	b = append(b, '/')
	b = append(b, kind...)
	b = append(b, '/')
	sum := sha1.Sum(strconv.AppendInt(b, n, 10)) //nolint:gosec // UUIDs of version 5 are made so
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Listener receives inputs of the run's inbox, such as follow-ups and answers, for one loop: the
// team or agent that works in the scope. See Listen.
type Listener struct {
	run   *Run
	scope string
	wake  chan struct{}
	in    []*teamv1.Inbound // guarded by run.mu
}

// Listen registers the loop that works in scope, until Close is called. A follow-up message for
// the loop's own scope goes to this loop. All other inputs, such as answers, go to the innermost
// registered loop above their scope. At most one loop may be registered for a scope at a time.
func (r *Run) Listen(scope string) *Listener {
	l := &Listener{run: r, scope: scope, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil {
		r.listeners = map[string]*Listener{}
	}
	r.listeners[scope] = l
	return l
}

// Close unregisters the loop. Inputs that Take has not returned go to the innermost registered
// loop above; without such a loop, the driver reads them from the inbox again after the agent's
// sequence has ended.
func (l *Listener) Close() {
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	if l.run.listeners[l.scope] == l {
		delete(l.run.listeners, l.scope)
	}
	for _, in := range l.in {
		l.run.deliver(in)
	}
	l.in = nil
}

// Wake returns a channel that receives a value when Take may return something, when the run is
// paused or resumed, or when a step below the loop is canceled.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// poke sends a value on the wake channel, unless one is waiting there already.
func (l *Listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Take returns the inputs that have arrived since the last call, in order of arrival. The caller
// records each of them with an event that has the input's inbox number.
func (l *Listener) Take() []*teamv1.Inbound {
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	in := l.in
	l.in = nil
	return in
}

// Deliver passes an input to the registered loop that it is for; see Listen. It returns false if no
// registered loop takes it. The driver then keeps the input until the agent's sequence has ended. Only the
// driver calls Deliver.
func (r *Run) Deliver(in *teamv1.Inbound) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliver(in)
}

// deliver does the work of Deliver. The caller holds r.mu.
func (r *Run) deliver(in *teamv1.Inbound) bool {
	scope := in.GetScope()
	if in.GetReceived() == nil {
		if scope == "" {
			return false
		}
		scope = Parent(scope)
	}
	for {
		if l, ok := r.listeners[scope]; ok {
			l.in = append(l.in, in)
			l.poke()
			return true
		}
		if scope == "" {
			return false
		}
		scope = Parent(scope)
	}
}
