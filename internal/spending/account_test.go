package spending

import (
	"context"
	"errors"
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// fakeAccount grants what it has left, at least w.Least, and notes what was settled.
type fakeAccount struct {
	left    agent.Cost
	settled []agent.Cost
	resumed []agent.Cost
	instead []AccountHold
}

type fakeHold struct{ a *fakeAccount }

func (h *fakeHold) Settle(spent agent.Cost) { h.a.settled = append(h.a.settled, spent) }

func (a *fakeAccount) Left() agent.Cost { return a.left }

var errAccount = errors.New("the account is empty")

func (a *fakeAccount) Reserve(_ context.Context, w Want, instead AccountHold) (agent.Cost, AccountHold, error) {
	c := w.Most.Min(a.left)
	if !c.Covers(w.Least) {
		return agent.Cost{}, nil, errAccount
	}
	a.instead = append(a.instead, instead)
	return c, &fakeHold{a}, nil
}

func (a *fakeAccount) Resume(c agent.Cost) AccountHold {
	a.resumed = append(a.resumed, c)
	return &fakeHold{a}
}

func acquire(t *testing.T, b *Budget, w Want) *Budget {
	t.Helper()
	r, err := b.Acquire(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestC_07_BudgetUnderAnAccount(t *testing.T) {
	exactly := func(n int64) Want { return Want{Least: tokens(n), Enough: tokens(n), Most: tokens(n)} }
	t.Run("C-07 what the tree grants is reserved in the account, once", func(t *testing.T) {
		a := &fakeAccount{left: limitTokens(50)}
		root := NewBudget("", agent.NoLimit(), agent.Cost{}).Under(a)
		team := root.Child("t", limitTokens(100), agent.Cost{})
		if got := team.Left(); got != limitTokens(50) {
			t.Errorf("left %v", got)
		}
		part := acquire(t, team, Want{Least: tokens(1), Enough: tokens(1), Most: agent.NoLimit()})
		if got := part.Reserved(); got != limitTokens(50) {
			t.Errorf("reserved %v, of 50 in the account", got)
		}
		if got := team.Left().Tokens; got != 50 {
			t.Errorf("%d left in the team, want 50 of 100", got)
		}
		if got := part.Left(); got != limitTokens(50) {
			t.Errorf("%v left in the part", got)
		}
		acquire(t, part.Child("m", agent.NoLimit(), agent.Cost{}), exactly(30)).Settle(tokens(20))
		if len(a.instead) != 1 || len(a.settled) != 0 {
			t.Errorf("work within a part reached the account: %v", a)
		}
		part.Settle(tokens(10)) // less than what was settled below
		if len(a.settled) != 1 || a.settled[0] != tokens(20) || team.Spent() != tokens(20) {
			t.Errorf("settled %v, spent %v", a.settled, team.Spent())
		}
		acquire(t, team, exactly(10)).HandOver(tokens(10))
		if len(a.settled) != 2 || a.settled[1] != (agent.Cost{}) || team.Spent() != tokens(30) {
			t.Errorf("settled %v, spent %v", a.settled, team.Spent())
		}
		team.Resume(tokens(7), "").Settle(tokens(5))
		if len(a.resumed) != 1 || a.resumed[0] != tokens(7) || a.settled[2] != tokens(5) {
			t.Errorf("resumed %v, settled %v", a.resumed, a.settled)
		}
	})
	t.Run("C-07 an account that refuses leaves the tree as it was", func(t *testing.T) {
		a := &fakeAccount{left: limitTokens(50)}
		b := NewBudget("t", limitTokens(100), agent.Cost{}).Under(a)
		kept := acquire(t, b, Want{Least: tokens(20), Enough: tokens(20), Most: tokens(20), Keep: true})
		w := exactly(60)
		w.Instead = kept
		if _, err := b.Acquire(t.Context(), w); !errors.Is(err, errAccount) {
			t.Errorf("%v", err)
		}
		if got := b.tree.account.Left(); b.held != tokens(20) || b.keeps != tokens(20) || got != limitTokens(50) {
			t.Errorf("held %v, kept %v", b.held, b.keeps)
		}
		w = exactly(40)
		w.Keep, w.Instead = true, kept
		grown := acquire(t, b, w)
		if b.held != tokens(40) || b.keeps != tokens(40) || a.instead[1] != kept.entry {
			t.Errorf("held %v, kept %v, %v", b.held, b.keeps, a.instead)
		}
		if kept.Settle(tokens(9)); b.held != tokens(40) || len(a.settled) != 0 {
			t.Errorf("the exchanged reservation was settled: %v, %v", b.held, a.settled)
		}
		if grown.Settle(agent.Cost{}); b.held != (agent.Cost{}) || len(a.settled) != 1 {
			t.Errorf("held %v, %v", b.held, a.settled)
		}
	})
}
