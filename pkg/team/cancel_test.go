package team_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"testing"

	"go.uber.org/goleak"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// cancel leaves a cancel of the root in the inbox.
func (w *world) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inbox = append(w.inbox, &teamv1.Inbound{N: int64(len(w.inbox) + 1), Key: "cancel/", Kind: &teamv1.Inbound_Commanded{
		Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL, By: "local/local"},
	}})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// verifyCanceled checks what must hold of a run that ended after its cancel was
// on record: it is canceled, every start has its end, nothing began after the
// cancel, no task of a peer is left, and the receipt lists what was open.
func (w *world) verifyCanceled() {
	w.t.Helper()
	for _, f := range w.faults {
		w.t.Error(f)
	}
	if bad := unended(w.events); len(bad) > 0 {
		w.t.Error("I1:", bad)
	}
	end := w.events[len(w.events)-1].GetEnded()
	if end.GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED {
		w.t.Fatal("the run ended", end)
	}
	open, commanded := map[string]*teamv1.Bound{}, false
	for _, ev := range w.events {
		switch {
		case ev.GetScope() == "" && ev.GetCommanded() != nil:
			commanded = true
		case commanded || ev.GetScope() == "":
		case ev.GetStarted() != nil:
			open[ev.GetScope()] = nil
		case ev.GetRetried().GetFresh():
			open[ev.GetScope()] = nil
		case ev.GetBound() != nil:
			open[ev.GetScope()] = ev.GetBound()
		case ev.GetEnded() != nil:
			delete(open, ev.GetScope())
		}
	}
	if !commanded {
		w.t.Fatal("no cancel on record")
	}
	for _, e := range end.GetReceipt().GetEntries() {
		if e.GetAgent() == "" || e.GetLastAction() == "" {
			w.t.Error("the receipt says too little:", e)
		}
		if b := open[e.GetScope()]; b != nil {
			over := w.stopped[b.GetTaskId()] || e.GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED
			if e.GetRemoteTaskId() != b.GetTaskId() || !over {
				w.t.Error("the peer's task", b.GetTaskId(), "goes on:", e)
			}
		}
		delete(open, e.GetScope())
	}
	if len(open) > 0 {
		w.t.Error("not in the receipt:", open)
	}
}

// TestCrash_CancelOnRecord kills the process at every event of a run, cancels it
// while nobody drives it, and kills every process that goes on after some more events: each
// begins with what is on record, starts nothing, and ends what is open (S-24).
func TestCrash_CancelOnRecord(t *testing.T) {
	defer goleak.VerifyNone(t)
	n, _ := baselineRun(t)
	lives := 0
	for _, lose := range []bool{false, true} {
		for at := 1; at < n; at++ {
			for again := 1; again <= 4; again += 3 {
				w := newWorld(t)
				w.budget = at
				if w.live(true) {
					continue // it had fewer events this time
				}
				w.crash(lose)
				w.cancel()
				for budget := again; ; budget += 3 { // more, since what was not durable may be lost
					if w.budget = budget; w.live(false) {
						break
					}
					w.crash(lose)
					if lives++; budget > 10*n {
						t.Fatalf("the run does not end within %d events after its cancel", budget)
					}
				}
				w.verifyCanceled()
			}
		}
	}
	if lives < n {
		t.Errorf("only %d crashes after the cancel", lives)
	}
}

// commitHook is a journal that does something while a commit is made.
type commitHook struct {
	*world
	at       int           // which commit, from 1
	recorded chan struct{} // closed when the cancel is on record
	next     chan struct{} // closed when something else is on record after it
	once     sync.Once     // for next
	over     bool          // the run has ended
}

// Append of the cancel takes until something comes of the work that waited for the
// commit: the context of the work has not ended by then.
func (j *commitHook) Append(ctx context.Context, events ...*teamv1.Event) error {
	err := j.world.Append(ctx, events...)
	if events[0].GetCommanded() != nil {
		close(j.recorded)
		<-j.next
		return err
	}
	select {
	case <-j.recorded:
		j.once.Do(func() { close(j.next) })
	default:
	}
	j.over = j.over || events[0].GetScope() == "" && events[0].GetEnded() != nil
	return err
}

// Commit is done when the cancel is on record.
func (j *commitHook) Commit(ctx context.Context) error {
	if j.at--; j.at == 0 && !j.over {
		j.cancel()
		select {
		case <-j.recorded:
		case <-ctx.Done():
		}
	}
	return j.world.Commit(ctx)
}

// TestCrash_CancelBeforeTheCall has a cancel arrive while the start of a step is made
// durable, at every commit of a run of nested teams, models, tools and peers: the call
// is not made any more (S-24).
func TestCrash_CancelBeforeTheCall(t *testing.T) {
	defer goleak.VerifyNone(t)
	for at := 1; at < 100; at++ {
		w := newWorld(t)
		top := oneByOne(t, w)
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Replica: "r"}
		j := &commitHook{world: w, at: at, recorded: make(chan struct{}), next: make(chan struct{})}
		park, err := r.Drive(t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: j})
		if err != nil || !park.Done {
			t.Fatal(at, park, err)
		}
		if w.events[len(w.events)-1].GetEnded().GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED { // all commits have been tried
			if at < 6 {
				t.Errorf("the run has only %d commits", at)
			}
			return
		}
		w.verifyCanceled()
	}
}

// oneByOne is a team that does one thing after the other, so that nothing is under
// way while a commit is made.
func oneByOne(t *testing.T, w *world) *team.Team {
	t.Helper()
	modeled, err := leader.NewAgent(leader.AgentConfig{ID: "modeled", Model: &fakeModel{w}, Tools: []agent.Tool{&clockTool{w}}})
	if err != nil {
		t.Fatal(err)
	}
	reg := registry{"a": &worker{w: w, name: "a"}, "peer": &peer{worker{w: w, name: "peer"}}, "modeled": modeled}
	reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Registry: reg, Members: members("modeled", "peer"), Scheduler: inOrder("modeled", "peer")})
	return newTeamWith(t, team.Config{ID: "root", Registry: reg, Members: members("a", "inner"), Scheduler: inOrder("a", "inner")})
}

// ending is a team whose run is canceled just when it has parked.
type ending struct {
	*team.Team
	cancel context.CancelCauseFunc
}

func (e ending) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		for ev, err := range e.Team.Process(ctx, req) {
			if !yield(ev, err) {
				return
			}
		}
		e.cancel(agent.ErrCanceled)
	}
}

func TestCancel_S_24_AsAMemberParks(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := newWorld(t)
	reg := cast(w)
	inner := newTeamWith(t, team.Config{ID: "inner", Registry: reg, Members: members("asker"), Scheduler: inOrder("asker")})
	reg["inner"] = ending{inner, cancel}
	r := watch(ctx, newTeamWith(t, team.Config{ID: "t1", Registry: reg, Members: members("inner"), Scheduler: inOrder("inner")}), "x")
	if !errors.Is(r.err, agent.ErrCanceled) {
		t.Error(r.err)
	}
	r.complete(t)
}
