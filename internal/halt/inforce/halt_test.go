package inforce_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	ofServer  = teamv1.HaltKind_HALT_KIND_SERVER
	ofAccount = teamv1.HaltKind_HALT_KIND_ACCOUNT
	ofTeam    = teamv1.HaltKind_HALT_KIND_TEAM
	ofAgent   = teamv1.HaltKind_HALT_KIND_AGENT
	ofModel   = teamv1.HaltKind_HALT_KIND_MODEL
	ofTool    = teamv1.HaltKind_HALT_KIND_TOOL
)

// haltedRun is a run of the team "crew" of the account acme under halts, as its driver registers it.
type haltedRun struct {
	*testing.T
	halts *inforce.Halts
	ctx   context.Context
	use   *inforce.Use

	mu      sync.Mutex
	stops   []int64 // the versions of the halts that have stopped it
	changes int
}

func newHaltedRun(t *testing.T, halts ...*teamv1.Halt) *haltedRun {
	r := &haltedRun{T: t, halts: inforce.New()}
	r.set(halts...)
	r.use, r.ctx = r.halts.Run(t.Context(), &inforce.Run{
		Task: "task", Owner: "acme/ann", Agents: []string{"crew"},
		Stop: func(h *teamv1.Halt) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stops = append(r.stops, h.GetVersion())
		},
		Changed: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes++
		},
	})
	return r
}

// set puts halts in force, the newest last.
func (r *haltedRun) set(halts ...*teamv1.Halt) []inforce.Stopped {
	version := r.halts.Version()
	for _, h := range halts {
		if h.GetVersion() == 0 {
			version++
			h.Version = version
		}
		version = max(version, h.GetVersion())
	}
	return r.halts.Set(version, halts)
}

// stopped fails unless these halts have stopped the run, in this order.
func (r *haltedRun) stopped(want ...*teamv1.Halt) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var versions []int64
	for _, h := range want {
		versions = append(versions, h.GetVersion())
	}
	if !slices.Equal(slices.Compact(r.stops), versions) {
		r.Errorf("stopped by %v, want %v", r.stops, versions)
	}
}

// begin begins a use, and fails if it may not.
func (r *haltedRun) begin(ctx context.Context, scope string, s inforce.Subject) (*inforce.Use, context.Context) {
	r.Helper()
	use, ctx, err := r.halts.Begin(ctx, scope, s)
	if err != nil {
		r.Fatalf("%s: %v", scope, err)
	}
	return use, ctx
}

func haltOf(kind teamv1.HaltKind, name string) *teamv1.Halt {
	return &teamv1.Halt{Kind: kind, Name: name, Reason: "wrong prices", By: "acme/bob", At: timestamppb.New(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))}
}

func pauseOf(kind teamv1.HaltKind, name string) *teamv1.Halt {
	h := haltOf(kind, name)
	h.Pause = true
	return h
}

func subject(kind teamv1.HaltKind, names ...string) inforce.Subject {
	return inforce.Subject{Kind: kind, Names: [][]string{names}}
}

// reason returns the reason of an error; "held" for ErrHeld and "" for none.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, inforce.ErrHeld):
		return "held"
	}
	return agent.AsError(err).Reason
}

// TestHalts_Covers asks for each kind of halt what may begin below a run of the team crew with the
// member pair, a team of its own.
func TestHalts_Covers(t *testing.T) {
	for _, c := range []struct {
		name                  string
		halt                  *teamv1.Halt
		member, model, tool   string // what begins: a member, and a model and a tool that it uses
		ofMember, ofModel     string // what becomes of it
		ofTool, ofNewMessages string
	}{
		{"nothing", haltOf(ofTeam, "other"), "pair", "m", "t", "", "", "", ""},
		{"the server", haltOf(ofServer, ""), "pair", "m", "t", "held", "held", "held", "HALTED"},
		{"the account", haltOf(ofAccount, "acme"), "pair", "m", "t", "held", "held", "held", "HALTED"},
		{"another account", haltOf(ofAccount, "acm"), "pair", "m", "t", "", "", "", ""},
		{"the team of the run", haltOf(ofTeam, "crew"), "pair", "m", "t", "held", "held", "held", "HALTED"},
		{"the same as an agent", haltOf(ofAgent, "crew"), "pair", "m", "t", "held", "held", "held", "HALTED"},
		{"a member", haltOf(ofTeam, "pair"), "pair", "m", "t", "HALTED", "HALTED", "HALTED", ""},
		{"a member, paused", pauseOf(ofAgent, "pair"), "pair", "m", "t", "held", "held", "held", ""},
		{"a model by its key", haltOf(ofModel, "m"), "pair", "m", "t", "", "HALTED", "", ""},
		{"a model by its name", haltOf(ofModel, "gpt"), "pair", "m", "t", "", "HALTED", "", ""},
		{"a model, paused", pauseOf(ofModel, "m"), "pair", "m", "t", "", "held", "", ""},
		{"a tool", haltOf(ofTool, "t"), "pair", "m", "t", "", "", "HALTED", ""},
		{"a tool with the name of the member", haltOf(ofTool, "pair"), "pair", "m", "t", "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, when := range []string{"before the run", "before the member", "before its calls"} {
				t.Run(when, func(t *testing.T) {
					r := newHaltedRun(t)
					if when == "before the run" {
						r = newHaltedRun(t, c.halt)
					}
					if when == "before the member" {
						r.set(c.halt)
					}
					member, in, err := r.halts.Begin(r.ctx, "1", subject(ofAgent, c.member))
					if when == "before its calls" {
						if err != nil {
							t.Fatal(err)
						}
						r.set(c.halt)
						err = member.Check()
					}
					if reason(err) != c.ofMember {
						t.Errorf("the member: %v, want %q", err, c.ofMember)
					}
					if member == nil {
						return
					}
					defer member.End()
					for kind, s := range map[teamv1.HaltKind]inforce.Subject{ofModel: subject(ofModel, c.model, "gpt"), ofTool: subject(ofTool, c.tool)} {
						want := map[teamv1.HaltKind]string{ofModel: c.ofModel, ofTool: c.ofTool}[kind]
						if use, _, err := r.halts.Begin(in, "1.1", s); reason(err) != want || (use == nil) != (err != nil) {
							t.Errorf("%s: %v, want %q", kind, err, want)
						} else {
							use.End()
						}
					}
					if err := r.halts.Refusal("acme/ann", "", "crew"); reason(err) != c.ofNewMessages {
						t.Errorf("a new message: %v, want %q", err, c.ofNewMessages)
					}
				})
			}
		})
	}
}

// TestHalts_Ends asks that a halt ends what it covers and nothing else, with an error that says who,
// when and why.
func TestHalts_Ends(t *testing.T) {
	r := newHaltedRun(t)
	_, pair := r.begin(r.ctx, "1", subject(ofAgent, "pair"))
	_, call := r.begin(pair, "1.1", subject(ofModel, "m"))
	_, other := r.begin(r.ctx, "2", subject(ofAgent, "other"))
	h := haltOf(ofTeam, "pair")
	steps := r.set(h)
	if want := []inforce.Stopped{{Owner: "acme/ann", Task: "task~1", Halt: h.GetVersion()}}; !slices.Equal(steps, want) {
		t.Errorf("stopped are %v, want %v", steps, want)
	}
	for name, ctx := range map[string]context.Context{"the member": pair, "its call": call} {
		cause := context.Cause(ctx)
		if e := agent.AsError(cause); e.Reason != agent.ReasonHalted || !errors.Is(cause, agent.ErrCanceled) {
			t.Errorf("%s: %v", name, cause)
		}
	}
	if other.Err() != nil || r.ctx.Err() != nil {
		t.Errorf("the other member: %v, the run: %v", other.Err(), r.ctx.Err())
	}
	r.stopped() // the run goes on
	if again := r.set(h); len(again) > 0 {
		t.Errorf("stopped again: %v", again)
	}
	e := agent.AsError(inforce.By(pair, &agent.Error{Reason: agent.ReasonCanceled, Err: agent.ErrCanceled, Spent: &teamv1.Spent{InputTokens: 7}}))
	if e.Reason != agent.ReasonHalted || e.Spent.GetInputTokens() != 7 || e.Details["by"] != "acme/bob" || e.Details["why"] != "wrong prices" ||
		e.Details["at"] != "2026-03-01T12:00:00Z" || e.Details["kind"] != "TEAM" || e.Details["name"] != "pair" {
		t.Errorf("the error of the step: %v, %v, %v", e, e.Details, e.Spent)
	}
	if err := inforce.By(other, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of another step: %v", err)
	}
}

// TestHalts_Run asks that halts of the whole run stop it, one after the other, and that a cancel comes
// before a pause.
func TestHalts_Run(t *testing.T) {
	pause, cancel := pauseOf(ofTeam, "crew"), haltOf(ofServer, "")
	r := newHaltedRun(t, pause)
	r.stopped(pause)
	if err := r.halts.InForce(pause.GetVersion()); reason(err) != agent.ReasonHalted {
		t.Errorf("in force: %v", err)
	}
	r.set(pause, cancel)
	r.stopped(pause, cancel)
	r.set()
	r.stopped(pause, cancel)
	if err := r.halts.InForce(pause.GetVersion()); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if r.changes != 2 {
		t.Errorf("the run was told of %d changes, want 2", r.changes)
	}
	r.use.End()
	r.set(cancel)
	r.stopped(pause, cancel)
}

// TestHalts_Detached asks that a halt of a team stops the tasks that it has detached.
func TestHalts_Detached(t *testing.T) {
	halts := inforce.New()
	stops := 0
	use, ctx := halts.Run(t.Context(), &inforce.Run{
		Task: "task", Owner: "acme/ann", Agents: []string{"writer", "crew"}, Stop: func(*teamv1.Halt) { stops++ }, Changed: func() {},
	})
	defer use.End()
	h := haltOf(ofTeam, "crew")
	h.Version = 1
	if got, want := halts.Set(1, []*teamv1.Halt{h}), []inforce.Stopped{{Owner: "acme/ann", Task: "task", Halt: 1}}; !slices.Equal(got, want) || stops != 1 {
		t.Errorf("stopped are %v, want %v; stopped %d times", got, want, stops)
	}
	if _, _, err := halts.Begin(ctx, "1", subject(ofModel, "m")); reason(err) != "held" {
		t.Errorf("a call: %v", err)
	}
}

// TestHalts_Alternatives asks that a model with fallbacks is stopped only if all are halted.
func TestHalts_Alternatives(t *testing.T) {
	r := newHaltedRun(t, haltOf(ofModel, "first"))
	both := inforce.Subject{Kind: ofModel, Names: [][]string{{"first"}, {"second"}}}
	use, ctx := r.begin(r.ctx, "1", both)
	defer use.End()
	optional := inforce.Subject{Kind: ofModel, Names: [][]string{{"second"}}, Optional: true}
	second, _ := r.begin(ctx, "", optional)
	second.End()
	r.set(haltOf(ofModel, "first"), pauseOf(ofModel, "second"))
	if err := use.Check(); reason(err) != "held" {
		t.Errorf("both: %v", err)
	}
	r = newHaltedRun(t, pauseOf(ofModel, "second"))
	if _, _, err := r.halts.Begin(r.ctx, "1", optional); reason(err) != agent.ReasonHalted {
		t.Errorf("the second alone: %v", err)
	}
	r.stopped() // what is used in its place does not need the run to be paused
}

// TestHalts_Settle asks that Settle waits for calls that have just begun, and not for others.
func TestHalts_Settle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHaltedRun(t)
		old, _ := r.begin(r.ctx, "1", subject(ofModel, "m"))
		defer old.End()
		time.Sleep(5 * time.Second)
		_, _ = r.begin(r.ctx, "2", subject(ofModel, "other"))
		took := func() time.Duration {
			began := time.Now()
			if err := r.halts.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		r.set(pauseOf(ofModel, "m"))
		if d := took(); d != 0 {
			t.Errorf("with an old call it took %v", d)
		}
		r.set()
		_, _ = r.begin(r.ctx, "3", subject(ofModel, "m"))
		r.set(pauseOf(ofModel, "m"))
		if d := took(); d < time.Second/2 || d > 2*time.Second {
			t.Errorf("with a new call it took %v", d)
		}
		r.set()
		fresh, ctx := r.begin(r.ctx, "4", subject(ofModel, "m"))
		r.set(haltOf(ofModel, "m"))
		go func() {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			fresh.End()
		}()
		if d := took(); d != 100*time.Millisecond {
			t.Errorf("with a call that ends it took %v", d)
		}
		waiting, stop := context.WithCancelCause(t.Context())
		r.set()
		_, _ = r.begin(r.ctx, "5", subject(ofModel, "m"))
		r.set(pauseOf(ofModel, "m"))
		stop(agent.ErrShutdown)
		if err := r.halts.Settle(waiting); !errors.Is(err, agent.ErrShutdown) {
			t.Errorf("canceled: %v", err)
		}
	})
}

// TestHalts_Race begins calls at the same time as halts are set: none is under way that Set has not
// canceled, and none begins afterwards.
func TestHalts_Race(t *testing.T) {
	for range 200 {
		r := newHaltedRun(t)
		h := haltOf(ofModel, "m")
		h.Version = 1
		var wg sync.WaitGroup
		contexts := make([]context.Context, 8)
		for i := range contexts {
			wg.Go(func() {
				if _, ctx, err := r.halts.Begin(r.ctx, "1", subject(ofModel, "m")); err == nil {
					contexts[i] = ctx
				}
			})
		}
		wg.Go(func() { r.halts.Set(1, []*teamv1.Halt{h}) })
		wg.Wait()
		for _, ctx := range contexts {
			if ctx != nil && ctx.Err() == nil {
				t.Fatal("a call goes on that is halted")
			}
		}
	}
}

// TestHalts_Nil asks that there are no halts without Halts.
func TestHalts_Nil(t *testing.T) {
	var h *inforce.Halts
	use, ctx, err := h.Begin(t.Context(), "1", subject(ofModel, "m"))
	if err != nil || use.Check() != nil || ctx != t.Context() || h.Refusal("acme/ann", "", "crew") != nil || h.Version() != 0 || h.InForce(1) != nil {
		t.Errorf("%v", err)
	}
	use.End()
	run, _ := h.Run(t.Context(), &inforce.Run{})
	run.End()
}
