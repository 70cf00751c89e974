package storetest

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// sharedBudgets tests account.Shares, and what package account does with it.
func sharedBudgets(t *testing.T, open Open) {
	for name, test := range map[string]func(*testing.T, store.Store){
		"a part belongs to its owner": shareParts, "parts are changed one after the other": sharesAtOnce, "runs of a message draw from one budget": purses,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, NewClock().Now)) })
	}
}

// shareOf is the part of a run in a budget of 100.
func shareOf(task, run string, epoch int64) account.Share {
	return account.Share{Task: task, Limit: amount(100), Run: run, Epoch: epoch}
}

// shareParts changes parts in turn.
func shareParts(t *testing.T, s store.Store) {
	set := func(of account.Share, to, wantOwn, wantOthers account.Part) {
		t.Helper()
		var had account.Part
		own, others, err := s.ChangeShare(t.Context(), of, func(own, _ account.Part) account.Part { had = own; return to })
		if err != nil || had != wantOwn || own != to || others != wantOthers {
			t.Errorf("%s had %+v and has %+v, others %+v, %v; want %+v, others %+v", of.Run, had, own, others, err, wantOwn, wantOthers)
		}
	}
	all := account.Part{Held: amount(100)}
	set(shareOf("task", "child", 0), account.Part{Held: amount(30)}, account.Part{}, all)
	set(shareOf("task", "task", 4), account.Part{Held: amount(70)}, all, account.Part{Held: amount(30)})
	set(shareOf("task", "child", 1), account.Part{Spent: amount(20)}, account.Part{Held: amount(30)}, account.Part{Held: amount(70)})
	inner := shareOf("task", "child", 1)
	inner.Scope = "0"
	set(inner, account.Part{Held: amount(1)}, account.Part{}, all)
	set(shareOf("other", "child", 0), account.Part{Held: amount(1)}, account.Part{}, all)
	_, _, err := s.ChangeShare(t.Context(), shareOf("task", "child", 0), func(_, _ account.Part) account.Part { return all })
	if !errors.Is(err, agent.ErrFenced) {
		t.Errorf("an owner that was replaced changed a part: %v", err)
	}
	set(shareOf("task", "task", 4), account.Part{Spent: amount(50)}, account.Part{Held: amount(70)}, account.Part{Spent: amount(20)})
}

// sharesAtOnce draws more than there is, in many runs.
func sharesAtOnce(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	of := func(run string) account.Share { return shareOf("crowd", run, 1) }
	if _, _, err := s.ChangeShare(t.Context(), of("crowd"), func(_, _ account.Part) account.Part { return account.Part{} }); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		wg.Go(func() {
			_, _, err := s.ChangeShare(t.Context(), of(strconv.Itoa(i)), func(_, others account.Part) account.Part {
				if others.Held.Tokens > 90 {
					return account.Part{}
				}
				return account.Part{Held: amount(10)}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, others, err := s.ChangeShare(t.Context(), of("crowd"), func(own, _ account.Part) account.Part { return own }); err != nil || others.Held != amount(100) {
		t.Errorf("all hold %+v, %v", others, err)
	}
}

// purses has a run give a part to a task that wakes it, and both end, with owners that are replaced.
func purses(t *testing.T, s store.Store) {
	budget := &budgetOf{t: t, s: s}
	first := budget.open("first", 1, false)
	budget.give(first, "task", 40)
	task := budget.open("task", 1, true)
	if task.Limit() != amount(40) || task.Left() != (agent.Cost{}) {
		t.Errorf("the task has %+v and may draw %+v", task.Limit(), task.Left())
	}
	if _, err := task.Draw(t.Context(), spending.Want{Least: amount(1), Most: amount(1)}, false); agent.AsError(err).Reason != agent.ReasonBudgetExceeded {
		t.Errorf("a task has drawn what the first run may spend: %v", err)
	}
	budget.settle(first, 10, 10, 40) // it leaves 50
	if c, err := task.Draw(t.Context(), spending.Want{Least: amount(1), Most: agent.NoLimit(), Part: true}, false); err != nil || c != amount(25) {
		t.Errorf("a part of 50 is %+v, %v", c, err)
	}
	task = budget.open("task", 2, true)
	if task.Limit() != amount(65) || task.Left() != amount(25) {
		t.Errorf("after a crash the task has %+v and may draw %+v", task.Limit(), task.Left())
	}
	budget.settle(task, 60, 70, 0)
	task = budget.open("task", 3, true)
	if task.Limit() != amount(60) {
		t.Errorf("a task that has ended has %+v when it ends again", task.Limit())
	}
	woken := budget.open("woken", 1, true)
	if c, err := woken.Draw(t.Context(), spending.Want{Least: amount(5), Most: amount(20)}, true); err != nil || c != amount(20) {
		t.Errorf("drew %+v, %v", c, err)
	}
	done := make(chan error, 1)
	go func() {
		c, err := task.Draw(t.Context(), spending.Want{Least: amount(15), Most: amount(15)}, true)
		if err == nil && c != amount(15) {
			err = errors.New("drew something else")
		}
		done <- err
	}()
	budget.settle(woken, 12, 82, 0)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a draw waits although another run has ended")
	}
	budget.settle(task, 99, 121, 0) // also what was not foreseen
}

// budgetOf opens purses of runs that share the budget of the run first.
type budgetOf struct {
	t *testing.T
	s store.Store
}

// of is the budget, which is 100.
func (b *budgetOf) of() []*teamv1.SharedBudget {
	limit := amount(100)
	return []*teamv1.SharedBudget{{TaskId: "first", SetBy: "desk", MaxTokens: &limit.Tokens, MaxCostMicros: &limit.Micros}}
}

func (b *budgetOf) open(run string, epoch int64, caused bool) *account.Purse {
	b.t.Helper()
	o := account.PurseOpening{Shares: b.s, Run: run, Epoch: epoch, Agent: "desk", Fail: func(err error) error { return err }}
	if caused {
		o.Inherited = b.of()
	}
	p, err := account.OpenPurse(b.t.Context(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// give has a run give a part to a task that it begins.
func (b *budgetOf) give(p *account.Purse, task string, n int64) {
	b.t.Helper()
	if err := errors.Join(p.Give(b.t.Context(), task, amount(n), b.of()), p.Gave(b.t.Context(), task, amount(n), b.of())); err != nil {
		b.t.Fatal(err)
	}
}

// settle ends a run that has spent n, after which all runs have spent and hold so much.
func (b *budgetOf) settle(p *account.Purse, n, spent, held int64) {
	b.t.Helper()
	list, err := p.Settle(b.t.Context(), func(string) agent.Cost { return amount(n) })
	if err != nil || len(list) != 1 {
		b.t.Fatal(list, err)
	}
	if l := list[0]; l.GetSpentTokens() != spent || l.GetSpentCostMicros() != 10*spent || l.GetHeldTokens() != held || l.GetHeldCostMicros() != 10*held {
		b.t.Errorf("all runs have %v, want %d spent and %d held", l, spent, held)
	}
}
