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

// Run is shared by everything that works for one root task; it travels in the
// context. Without one there is no journal and no inbox: a team can be used as
// a plain library. The fields are set once, before use; all methods are safe
// for concurrent use.
type Run struct {
	// Root is the id of the root task; every id made in the run derives from it.
	Root string
	// Seed makes what is random in the run repeatable.
	Seed int64
	// Committer makes durable what was yielded so far. Unset: nothing is kept.
	Committer func(context.Context) error
	// Clock tells the time; unset is time.Now.
	Clock func() time.Time
	// Memory is what the run reads of its conversation; unset is nothing.
	Memory Memory
	// Detacher begins tasks of their own; unset: there can be none.
	Detacher Detacher
	// Owner is whose run it is, for ids that must not be another's; see ConversationID.
	Owner string

	mu        sync.Mutex
	listeners map[string]*Listener               // by scope; guarded by mu
	cancels   map[string]context.CancelCauseFunc // by scope of a running step; guarded by mu
	canceled  map[string]bool                    // scopes whose cancel was asked for; guarded by mu
	fenced    map[string]bool                    // scopes in which nothing may begin; guarded by mu
	pause     pause                              // guarded by mu
	timeouts  map[*timeout]struct{}              // guarded by mu
}

// Limits that an Expired event names.
const (
	// LimitTimeout: the time of a whole run.
	LimitTimeout = "timeout"
	// LimitMemberTimeout: the time of a step with its retries.
	LimitMemberTimeout = "member_timeout"
	// LimitNodeTimeout: the time of a member that was handed over to.
	LimitNodeTimeout = "node_timeout"
	// LimitQuestion: nobody has answered a question of the event's scope in time.
	LimitQuestion = "question"
)

type runKey struct{}

// With returns a context that carries r.
func With(ctx context.Context, r *Run) context.Context {
	if has, ok := ctx.Value(runKey{}).(*Run); ok && has == r {
		return ctx
	}
	return context.WithValue(ctx, runKey{}, r)
}

// From returns the run of ctx. Without one it is a run of its own that keeps nothing.
func From(ctx context.Context) *Run {
	if r, ok := ctx.Value(runKey{}).(*Run); ok {
		return r
	}
	return &Run{Root: uuid.NewString(), Seed: rand.Int64()} //nolint:gosec // jitter, not a secret
}

// Commit returns when everything yielded so far is durable, or with an error
// when it cannot be made so; the caller then has no effect outside. Without a
// journal it returns ctx.Err().
func Commit(ctx context.Context) error {
	if r, ok := ctx.Value(runKey{}).(*Run); ok && r.Committer != nil {
		return r.Committer(ctx)
	}
	return ctx.Err()
}

// Now is the run's time.
func (r *Run) Now() time.Time {
	if r.Clock != nil {
		return r.Clock()
	}
	return time.Now()
}

// ID returns the n-th id of a kind in a scope, a UUID of version 5: the same on
// every replay. Every step makes some, so it is made on the stack.
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

// Listener receives what the inbox holds for the scopes of one live loop.
type Listener struct {
	run   *Run
	scope string
	wake  chan struct{}
	in    []*teamv1.Inbound // guarded by run.mu
}

// Listen registers the live loop of scope until Close. Inputs for a scope go to
// the deepest live loop above it; a message for the loop's own scope goes to
// the loop itself. One loop a scope at a time.
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

// Close ends the listening. What was not taken goes to the next live loop above,
// or stays in the run's inbox.
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

// Wake receives when there may be something to take.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// poke leaves one signal.
func (l *Listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Take returns what has arrived since the last call, in order. The loop records
// each one with an event that names its inbox row.
func (l *Listener) Take() []*teamv1.Inbound {
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	in := l.in
	l.in = nil
	return in
}

// Deliver hands an inbox row to the live loop it is for. It reports false when
// there is none: the driver then keeps the row until its agent's sequence ends.
func (r *Run) Deliver(in *teamv1.Inbound) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliver(in)
}

// deliver is Deliver; the caller holds mu.
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

// RegisterCancel registers the cancel function of the running step of a scope, so that
// Cancel reaches the step until UnregisterCancel is called with the scope.
func (r *Run) RegisterCancel(scope string, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels == nil {
		r.cancels = map[string]context.CancelCauseFunc{}
	}
	r.cancels[scope] = cancel
	if r.canceled[scope] {
		cancel(ErrCanceled)
	}
}

// UnregisterCancel removes what RegisterCancel registered for a scope.
func (r *Run) UnregisterCancel(scope string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cancels, scope)
}

// Cancel ends the step of scope with cause ErrCanceled: at once, also one that
// waits for people, or when it would start.
func (r *Run) Cancel(scope string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canceled == nil {
		r.canceled = map[string]bool{}
	}
	r.canceled[scope] = true
	if cancel, ok := r.cancels[scope]; ok {
		cancel(ErrCanceled)
	}
	for above, l := range r.listeners {
		if Within(scope, above) {
			l.poke()
		}
	}
}

// Canceled reports whether Cancel was called for scope or one above it.
func (r *Run) Canceled(scope string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; scope != ""; scope = Parent(scope) {
		if r.canceled[scope] {
			return true
		}
	}
	return false
}

// CancelsIn reports whether Cancel was called for scope, or one above or below it.
func (r *Run) CancelsIn(scope string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for canceled := range r.canceled {
		if Within(scope, canceled) || Within(canceled, scope) {
			return true
		}
	}
	return false
}

// Scope returns the scope of step id in parent.
func Scope(parent, id string) string {
	if parent == "" {
		return id
	}
	return parent + "." + id
}

// Parent returns the scope that scope is a step of; the root's is itself.
func Parent(scope string) string {
	if i := strings.LastIndexByte(scope, '.'); i >= 0 {
		return scope[:i]
	}
	return ""
}

// Within reports whether scope is top or below it.
func Within(scope, top string) bool {
	return top == "" || scope == top || strings.HasPrefix(scope, top) && scope[len(top)] == '.'
}

// IsDelegation reports whether a member works on steps of a kind.
func IsDelegation(k teamv1.Step_Kind) bool {
	return k == teamv1.Step_KIND_DELEGATE || k == teamv1.Step_KIND_TRANSFER || k == teamv1.Step_KIND_STEP
}

// ChildTask returns the id of the child task of a scope.
func ChildTask(root, scope string) string {
	if scope == "" {
		return root
	}
	return root + "~" + scope
}

// SplitTask returns the root and the scope that a task id names. An id without a
// scope behind its ~ is that of no task.
func SplitTask(id string) (root, scope string) {
	root, scope, child := strings.Cut(id, "~")
	if child && scope == "" {
		return id, ""
	}
	return root, scope
}
