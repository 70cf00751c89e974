// Package inforce holds the halts that are in force in this process: it keeps what they cover from beginning, and ends what
// has begun.
package inforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// ErrHeld is the error of Halts.Begin for work that a halt has paused. The run is paused by then,
// and the work begins after it has been resumed.
var ErrHeld = errors.New("paused by a halt")

// sending is the time after which a call that has begun is assumed to have been sent.
const sending = time.Second

// Halts are the halts that are in force in this process, and the work that they may stop. All runs of
// a process share them. A nil *Halts never halts anything. It is safe for concurrent use.
type Halts struct {
	mu      sync.Mutex
	version int64             // guarded by mu
	list    []*teamv1.Halt    // replaced as a whole; guarded by mu
	uses    map[*Use]struct{} // what has begun and not ended; guarded by mu
	ended   chan struct{}     // closed when a use ends; nil unless a caller waits for that; guarded by mu
}

// New returns Halts without any halt.
func New() *Halts { return &Halts{uses: map[*Use]struct{}{}} }

// Subject is what is about to be used, as halts name it.
type Subject struct {
	// Kind is the kind of the subject. The id of a team or an agent has the kind HALT_KIND_AGENT, and
	// is covered by halts of teams as well.
	Kind teamv1.HaltKind
	// Names holds the names of the subject. If one of several may be used, such as a model or one of
	// its fallbacks, it has the names of each, and a halt stops the use only if all are halted.
	Names [][]string
	// Optional says that something else is used in place of a halted subject, so that a halt that
	// pauses runs does not pause the run for it.
	Optional bool
}

// ModelSubject returns the subject of a model that is about to be called.
func ModelSubject(m agent.Model) Subject {
	if a, ok := m.(interface{ Alternatives() [][]string }); ok {
		return Subject{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Names: a.Alternatives()}
	}
	return Subject{Kind: teamv1.HaltKind_HALT_KIND_MODEL, Names: [][]string{{m.Name()}}}
}

// Use is work that has begun, or is about to: a run, a call, or a step with work below it.
type Use struct {
	halts   *Halts
	above   *Use // nil for a run
	subject Subject
	run     *Run
	scope   string
	cancel  context.CancelCauseFunc // nil for a run
	began   time.Time               // guarded by halts.mu
	stopped int64                   // version of the halt that has stopped it; 0 if none has; guarded by halts.mu
}

// Run is a run that halts may stop.
type Run struct {
	// Task is the id of the root task, and Owner its owner as account/principal.
	Task, Owner string
	// Agents are the ids of the agent of the task and, if it was detached, of the team that it works
	// for.
	Agents []string
	// Accounts are the accounts that have made agents and teams of the run by the API, by id.
	Accounts map[string]string
	// Stop keeps all further steps of the run from beginning, and has the run canceled, or paused if
	// the halt says so. It must not block, and must not call Halts. It may be called again, and also
	// after the run has ended.
	Stop func(*teamv1.Halt)
	// Changed is called after each change of the halts. It must not block, and must not call Halts.
	Changed func()
}

// Stopped is a run that a halt has stopped, or a step that it has ended: the owner and the id of its
// task, and the version of the halt.
type Stopped struct {
	Owner, Task string
	Halt        int64
}

type haltKey struct{}

// Of returns the halts under which a context works, or nil.
func Of(ctx context.Context) *Halts {
	if u, ok := ctx.Value(haltKey{}).(*Use); ok {
		return u.halts
	}
	return nil
}

// Set puts halts in force in place of those before. It stops the runs and cancels the steps that they
// cover, and returns both. After Set has returned, Begin and Check refuse what the halts cover. A call
// that passed Check before that may still be about to be sent; Settle waits for it. list must not be
// modified afterwards.
func (h *Halts) Set(version int64, list []*teamv1.Halt) []Stopped {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version, h.list = version, list
	var stopped []Stopped
	for u := range h.uses {
		by := h.covering(u.subject, u)
		if u.isRun() {
			u.run.Changed()
		}
		switch {
		case by == nil || u.stopped == by.GetVersion():
		case u.isRun():
			u.stopped = by.GetVersion()
			u.run.Stop(by)
			stopped = append(stopped, Stopped{u.run.Owner, u.run.Task, by.GetVersion()})
		case !by.GetPause():
			u.stopped = by.GetVersion()
			u.cancel(halted(by, false))
			if !u.subject.Optional && u.scope != "" && u.run != nil && h.reaching(u.above) == nil {
				stopped = append(stopped, Stopped{u.run.Owner, agent.ChildTask(u.run.Task, u.scope), by.GetVersion()})
			}
		}
	}
	return stopped
}

// InForce returns the error for work that the halt with a version does not let begin, nil if that halt
// is not in force.
func (h *Halts) InForce(version int64) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, by := range h.list {
		if by.GetVersion() == version {
			return halted(by, true)
		}
	}
	return nil
}

// Version returns the version of the halts in force.
func (h *Halts) Version() int64 {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version
}

// Settle waits until nothing covered by the halts in force is about to begin: each such call has
// ended, or began so long ago that it must have been sent. That takes at most about a second.
func (h *Halts) Settle(ctx context.Context) error {
	for {
		wait, ended := h.unsettled(time.Now())
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ended:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// unsettled returns how long to wait until all covered uses have been sent, and a channel that is
// closed when a use ends.
func (h *Halts) unsettled(now time.Time) (wait time.Duration, ended <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for u := range h.uses {
		if left := sending - now.Sub(u.began); left > wait && h.reaching(u) != nil {
			wait = left
		}
	}
	if wait > 0 && h.ended == nil {
		h.ended = make(chan struct{})
	}
	return wait, h.ended
}

// Refusal returns the error for a message to an agent in the name of an owner, nil if it may be sent. account
// is the one that has made the agent by the API, empty for agents of the configuration file.
func (h *Halts) Refusal(owner, account, agentID string) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if by := h.run(&Run{Owner: owner, Agents: []string{agentID}, Accounts: map[string]string{agentID: account}}); by != nil {
		return halted(by, true)
	}
	return nil
}

// Run registers a run until End is called, and stops it if it is halted already. All uses of the run
// must begin with the context that Run returns. Check must be called before the agent of the run is.
func (h *Halts) Run(ctx context.Context, r *Run) (*Use, context.Context) {
	if h == nil {
		return nil, ctx
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	u := &Use{halts: h, run: r, began: time.Now()}
	h.uses[u] = struct{}{}
	if by := h.run(r); by != nil {
		u.stopped = by.GetVersion()
		r.Stop(by)
	}
	return u, context.WithValue(ctx, haltKey{}, u)
}

// Begin registers a use of a subject in a scope; an empty one means that of the use above. It must be called before the use is recorded, and
// Check must be called right before the use takes effect. If a halt covers the use, the error is
// HALTED, or ErrHeld if the halt pauses runs, and Use is nil. The methods of a nil Use do nothing.
func (h *Halts) Begin(ctx context.Context, scope string, s Subject) (*Use, context.Context, error) {
	if h == nil {
		return nil, ctx, nil
	}
	above, _ := ctx.Value(haltKey{}).(*Use)
	u := &Use{halts: h, above: above, subject: s, scope: scope, began: time.Now()}
	if above != nil {
		u.run, u.scope = above.run, cmp.Or(scope, above.scope)
	}
	if err := u.Check(); err != nil {
		return nil, ctx, err
	}
	ctx, u.cancel = context.WithCancelCause(context.WithValue(ctx, haltKey{}, u))
	h.mu.Lock()
	h.uses[u] = struct{}{}
	h.mu.Unlock()
	if err := u.Check(); err != nil { // Set may have missed it
		u.End()
		return nil, ctx, err
	}
	return u, ctx, nil
}

// Check returns the error of Begin if a halt covers the use by now.
func (u *Use) Check() error {
	if u == nil {
		return nil
	}
	u.halts.mu.Lock()
	defer u.halts.mu.Unlock()
	u.began = time.Now()
	by := u.halts.reaching(u)
	switch {
	case by == nil:
		return nil
	case u.subject.Optional && u.halts.reaching(u.above) == nil:
	case u.run != nil && (by.GetPause() || u.halts.run(u.run) != nil):
		u.run.Stop(by)
		return ErrHeld
	}
	return halted(by, true)
}

// End ends the use.
func (u *Use) End() {
	if u == nil {
		return
	}
	if u.cancel != nil {
		u.cancel(nil)
	}
	u.halts.mu.Lock()
	defer u.halts.mu.Unlock()
	delete(u.halts.uses, u)
	if u.halts.ended != nil {
		close(u.halts.ended)
		u.halts.ended = nil
	}
}

// isRun reports whether the use is a whole run.
func (u *Use) isRun() bool { return u.above == nil && u.run != nil }

// reaching returns the halt that stops a use: one of its run, else the one of the outermost use that
// is halted. It returns nil if the use may go on. The caller holds mu.
func (h *Halts) reaching(u *Use) *teamv1.Halt {
	if len(h.list) == 0 || u == nil {
		return nil
	}
	if by := h.reaching(u.above); by != nil {
		return by
	}
	return h.covering(u.subject, u)
}

// covering returns the halt that covers a use itself, without those above it. The caller holds mu.
func (h *Halts) covering(s Subject, u *Use) *teamv1.Halt {
	if u.isRun() {
		return h.run(u.run)
	}
	var found *teamv1.Halt
	for _, names := range s.Names {
		by := h.first(func(by *teamv1.Halt) bool {
			return kindOf(by) == s.Kind && slices.Contains(names, by.GetName()) && (s.Kind != teamv1.HaltKind_HALT_KIND_AGENT || u.run.has(by))
		})
		if by == nil {
			return nil // this one may be used
		}
		if found == nil || by.GetPause() {
			found = by
		}
	}
	return found
}

// run returns the halt that covers a whole run, or nil. The caller holds mu.
func (h *Halts) run(r *Run) *teamv1.Halt {
	account, _, _ := strings.Cut(r.Owner, "/")
	return h.first(func(by *teamv1.Halt) bool {
		switch kindOf(by) {
		case teamv1.HaltKind_HALT_KIND_SERVER:
			return true
		case teamv1.HaltKind_HALT_KIND_ACCOUNT:
			return by.GetName() == account
		case teamv1.HaltKind_HALT_KIND_OWNER:
			return by.GetName() == r.Owner
		case teamv1.HaltKind_HALT_KIND_AGENT:
			return slices.Contains(r.Agents, by.GetName()) && r.has(by)
		default:
			return false
		}
	})
}

// has reports whether a halt of an agent is of the one that the run has, and not of one of another account that has
// had the same id. A run that is nil has only agents of the configuration file.
func (r *Run) has(by *teamv1.Halt) bool {
	if r == nil {
		return by.GetAccount() == ""
	}
	return r.Accounts[by.GetName()] == by.GetAccount()
}

// first returns the first halt that covers something; one that cancels comes before those that pause.
// The caller holds mu.
func (h *Halts) first(covers func(*teamv1.Halt) bool) *teamv1.Halt {
	var found *teamv1.Halt
	for _, by := range h.list {
		if covers(by) && (found == nil || found.GetPause() && !by.GetPause()) {
			found = by
		}
	}
	return found
}

// kindOf returns the kind of a halt, with that of agents for teams, because their ids are the same.
func kindOf(by *teamv1.Halt) teamv1.HaltKind {
	if by.GetKind() == teamv1.HaltKind_HALT_KIND_TEAM {
		return teamv1.HaltKind_HALT_KIND_AGENT
	}
	return by.GetKind()
}

// Describe describes what a halt covers, such as: team "desk".
func Describe(by *teamv1.Halt) string {
	kind := strings.ToLower(strings.TrimPrefix(by.GetKind().String(), "HALT_KIND_"))
	if by.GetKind() == teamv1.HaltKind_HALT_KIND_SERVER {
		return "the " + kind
	}
	return fmt.Sprintf("%s %q", kind, by.GetName())
}

// halted returns the error for work that a halt does not let begin, if fresh is true, or has ended.
// The latter wraps ErrCanceled, and the outcome of the work is unknown.
func halted(by *teamv1.Halt, fresh bool) *agent.Error {
	at := by.GetAt().AsTime().UTC().Format(time.RFC3339)
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonHalted, "%s was halted by %s at %s: %s; try again after it has been resumed", Describe(by), by.GetBy(), at, by.GetReason())
	e.Details = map[string]string{
		"kind": strings.TrimPrefix(by.GetKind().String(), "HALT_KIND_"), "by": by.GetBy(), "at": at, "why": by.GetReason(),
	}
	if by.GetName() != "" {
		e.Details["name"] = by.GetName()
	}
	e.Fresh = fresh
	if !fresh {
		e.Err = agent.ErrCanceled
	}
	return e
}

// By returns err, the error of a call with the context ctx, as the HALTED error if a halt has
// ended the call. It keeps what the call spent and its receipt.
func By(ctx context.Context, err error) error {
	var cause *agent.Error
	if err == nil || !errors.As(context.Cause(ctx), &cause) || cause.Reason != agent.ReasonHalted {
		return err
	}
	e := agent.AsError(err)
	by := *cause
	by.Spent, by.Receipt, by.Fresh = e.Spent, e.Receipt, e.Fresh
	return &by
}

// EndedRun returns err, the error of a run that a halt has canceled, with the reason HALTED. It wraps
// ErrCanceled, and keeps what the run spent and its receipt.
func EndedRun(by *teamv1.Halt, err error) error {
	e, h := agent.AsError(err), halted(by, false)
	h.Spent, h.Receipt, h.Fresh = e.Spent, e.Receipt, e.Fresh
	return h
}
