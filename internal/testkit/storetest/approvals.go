package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// askedOf returns the event of a question that a scope asks roles.
func askedOf(scope, question string, roles ...string) *teamv1.Event {
	ev := asked(question, time.Time{})
	ev.Scope, ev.GetAsked().Roles = scope, roles
	return ev
}

// answered returns the event of the answer that closes a question.
func answered(question string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: question}}}
}

func lapsed(scope string) *teamv1.Event {
	return &teamv1.Event{Scope: scope, Agent: "a", Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitQuestion}}}
}

// toRole returns the filter for the questions to a role of the account, for all owners.
func toRole(role string) runs.QuestionFilter {
	return runs.QuestionFilter{Account: "acme", Roles: []string{role}, Limit: 100}
}

// open returns the open questions as texts of the form root/question, and whether there are more.
func (r *rig) open(f runs.QuestionFilter) string {
	r.Helper()
	list, more, err := r.Questions(r.ctx(), f)
	if err != nil {
		r.Fatalf("Questions(%+v): %v", f, err)
	}
	var out []string
	for _, q := range list {
		out = append(out, q.Task.ID+"/"+q.Asked.GetAsked().GetQuestion())
	}
	if more {
		out = append(out, "…")
	}
	return strings.Join(out, " ")
}

func (r *rig) wantOpen(f runs.QuestionFilter, want string) {
	r.Helper()
	if got := r.open(f); got != want {
		r.Fatalf("Questions(%+v) = %q, want %q", f, got, want)
	}
}

// approvals tests open questions that roles may answer.
func approvals(t *testing.T, open Open) {
	closings(t, open)
	findings(t, open)
	answers(t, open)
	oneAnswer(t, open)
}

// closings tests which events open and close a question.
func closings(t *testing.T, open Open) {
	t.Run("S-51 a question is found by its roles until it is closed", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.append(c, started(""), askedOf("", "q1", "editor", "boss"), askedOf("", "q2"), askedOf("1", "q3", "boss"))
		r.wantOpen(toRole("boss"), "one/q1 one/q3")
		r.wantOpen(toRole("editor"), "one/q1")
		r.wantOpen(toRole("other"), "")
		both := toRole("boss")
		both.Roles = append(both.Roles, "editor")
		r.wantOpen(both, "one/q1 one/q3")
		list, _, err := r.Questions(r.ctx(), toRole("editor"))
		if err != nil || list[0].Task != key("one") || list[0].Agent != "a" || list[0].Asked.GetSeq() != 3 || list[0].Asked.GetTime() == nil {
			t.Fatalf("Questions = %v, %v", list, err)
		}
		r.append(c, answered("q2"))
		r.wantOpen(toRole("boss"), "one/q1 one/q3")
		r.append(c, answered("q1"))
		r.wantOpen(both, "one/q3")
		r.append(c, succeeded())
		r.wantOpen(both, "")
	})
	t.Run("S-51 what ends or lapses closes what it and those below it ask", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.append(c, started(""), askedOf("1", "q1", "x"), askedOf("1.2", "q2", "x"), askedOf("1.2.1", "q3", "x"), askedOf("12", "q4", "x"), askedOf("", "q5", "x"))
		r.append(c, &teamv1.Event{Scope: "1", Agent: "a", Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: "timeout"}}})
		r.wantOpen(toRole("x"), "one/q1 one/q2 one/q3 one/q4 one/q5")
		r.append(c, lapsed("1.2.1"))
		r.wantOpen(toRole("x"), "one/q1 one/q2 one/q4 one/q5")
		r.append(c, ended("1", teamv1.Outcome_OUTCOME_FAILED))
		r.wantOpen(toRole("x"), "one/q4 one/q5")
		r.append(c, askedOf("3", "q6", "x"), ended("3", teamv1.Outcome_OUTCOME_FAILED), askedOf("4", "q7", "x"))
		r.wantOpen(toRole("x"), "one/q4 one/q5 one/q7")
		r.append(c, ended("", teamv1.Outcome_OUTCOME_CANCELED))
		r.wantOpen(toRole("x"), "")
	})
	t.Run("S-51 who drives the run next closes what was asked before", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.append(c, started(""), askedOf("", "q1", "x"), askedOf("", "q2", "x"))
		r.park(c, runs.Park{})
		r.wantOpen(toRole("x"), "one/q1 one/q2")
		r.put("one", followUp("f"))
		c = r.claim("one")
		r.append(c, answered("q2"))
		r.wantOpen(toRole("x"), "one/q1")
		if _, err := r.Release(r.ctx(), c, time.Time{}); err != nil {
			t.Fatal(err)
		}
		r.append(r.claim("one"), succeeded())
		r.wantOpen(toRole("x"), "")
	})
}

// findings tests which filters find a question.
func findings(t *testing.T, open Open) {
	t.Run("A-05 questions of other accounts are not found", func(t *testing.T) {
		r := newRig(t, open)
		for _, owner := range []string{"acme/ann", "acme/bob", "acm/ann", "acme2/ann"} {
			n := task(strings.ReplaceAll(owner, "/", "-"))
			n.Owner, n.Accepted.Owner = owner, owner
			r.create(n)
		}
		for _, c := range r.claims() {
			r.append(c, started(""), askedOf("", "q", "x"))
		}
		f := toRole("x")
		r.wantOpen(f, "acme-ann/q acme-bob/q")
		f.Except = "acme/bob"
		r.wantOpen(f, "acme-ann/q")
		f.Account = "acm"
		r.wantOpen(f, "acm-ann/q")
		f.Account = "acme%"
		r.wantOpen(f, "")
	})
	t.Run("A-05 roots of other accounts are not found", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		if k, err := r.Root(r.ctx(), "acme", "one"); err != nil || k != key("one") {
			t.Errorf("Root = %v, %v", k, err)
		}
		for account, id := range map[string]string{"acm": "one", "": "one", "acme/ann": "one", "acme": "two"} {
			if k, err := r.Root(r.ctx(), account, id); !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("Root(%q, %q) = %v, %v", account, id, k, err)
			}
		}
	})
	t.Run("S-51 questions are selected, and listed page by page", func(t *testing.T) {
		r := newRig(t, open)
		other := task("two")
		other.Accepted.Agent = "b"
		r.create(task("one"), other)
		for _, c := range r.claims() {
			r.append(c, started(""), askedOf("", "q1", "x", "y"), askedOf("1", "q2", "x"), askedOf("1.1", "q3", "y", "x"), askedOf("12", "q4", "x"))
		}
		for _, c := range []struct {
			change func(*runs.QuestionFilter)
			want   string
		}{
			{func(*runs.QuestionFilter) {}, "one/q1 one/q2 one/q3 one/q4 two/q1 two/q2 two/q3 two/q4"},
			{func(f *runs.QuestionFilter) { f.Agent = "b" }, "two/q1 two/q2 two/q3 two/q4"},
			{func(f *runs.QuestionFilter) { f.Root = "one" }, "one/q1 one/q2 one/q3 one/q4"},
			{func(f *runs.QuestionFilter) { f.Root, f.Scope = "one", "1" }, "one/q2 one/q3"},
			{func(f *runs.QuestionFilter) { f.Root, f.Agent = "one", "b" }, ""},
			{func(f *runs.QuestionFilter) { f.Roles, f.EveryRole, f.Limit = nil, true, 3 }, "one/q1 one/q2 one/q3 …"},
			{func(f *runs.QuestionFilter) { f.Roles = append(f.Roles, "y"); f.Limit = 8 }, "one/q1 one/q2 one/q3 one/q4 two/q1 two/q2 two/q3 two/q4"},
		} {
			f := toRole("x")
			c.change(&f)
			r.wantOpen(f, c.want)
		}
		for limit := 1; limit < 9; limit++ {
			f, all := toRole("x"), []string{}
			f.Limit = limit
			for more := true; more; {
				list, next, err := r.Questions(r.ctx(), f)
				if err != nil || len(list) > limit {
					t.Fatalf("%d questions, %v", len(list), err)
				}
				for _, q := range list {
					all = append(all, q.Task.ID+"/"+q.Asked.GetAsked().GetQuestion())
					f.After, f.AfterSeq = q.Task.ID, q.Asked.GetSeq()
				}
				more = next
			}
			if want := strings.Fields("one/q1 one/q2 one/q3 one/q4 two/q1 two/q2 two/q3 two/q4"); !slices.Equal(all, want) {
				t.Errorf("pages of %d: %v", limit, all)
			}
		}
	})
	t.Run("S-51 questions are not found by invalid roles", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		odd := []string{"", "x\x00", "X", "a b", "é", strings.Repeat("x", 5000)}
		many := make([]string, 3*identity.MaxRoles)
		for i := range many {
			many[i] = fmt.Sprintf("r%d", i)
		}
		r.append(c, started(""), askedOf("", "q1", odd...), askedOf("", "q2", append(odd, "x", "x")...), askedOf("", "q3", many...))
		for _, role := range append(odd[:1:1], odd[2:]...) {
			r.wantOpen(toRole(role), "")
		}
		r.wantOpen(toRole("x"), "one/q2")
		r.wantOpen(toRole("r0"), "one/q3")
		r.wantOpen(toRole(many[identity.MaxRoles]), "")
	})
}

// answers tests inputs of callers who do not own the task, also concurrent ones.
func answers(t *testing.T, open Open) {
	t.Run("A-15 the key of an answer is its giver's own", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		r.put("one", followUp("k"))
		in := &teamv1.Inbound{Key: "k", Kind: &teamv1.Inbound_Answered{Answered: &teamv1.Answered{Question: "q", By: "acme/bob"}}}
		n, existed, err := r.Put(r.ctx(), key("one"), in, []byte("d"), nil)
		if err != nil || existed {
			t.Fatalf("Put = %d, %v, %v", n, existed, err)
		}
		if again, existed, err := r.Put(r.ctx(), key("one"), in, []byte("d"), nil); again != n || !existed || err != nil {
			t.Fatalf("Put again = %d, %v, %v, want %d", again, existed, err, n)
		}
		if _, _, err := r.Put(r.ctx(), key("one"), in, []byte("e"), nil); !errors.Is(err, runs.ErrReused) {
			t.Fatalf("Put of other content: %v, want ErrReused", err)
		}
		if root, err := r.Sent(r.ctx(), "acme/bob", "a", "k"); root != "one" || err != nil {
			t.Fatalf("Sent = %q, %v", root, err)
		}
		theirs := task("two")
		theirs.Owner, theirs.MessageID = "acme/carl", "k"
		r.create(theirs)
		r.clock.Move(24 * time.Hour)
		if _, err := r.Sent(r.ctx(), "acme/bob", "a", "k"); !errors.Is(err, runs.ErrNotFound) {
			t.Fatalf("Sent after the window: %v", err)
		}
	})
	t.Run("S-51 questions that are asked and answered meanwhile are there or not", func(t *testing.T) {
		r := newRig(t, open)
		const n = 8
		for i := range n {
			r.create(task(id(i)))
		}
		claims := r.claims()
		var wg sync.WaitGroup
		for _, c := range claims {
			wg.Go(func() {
				for i := range 10 {
					q := fmt.Sprint("q", i)
					for _, ev := range []*teamv1.Event{askedOf("", q, "x"), answered(q)} {
						if err := errors.Join(c.Journal.Append(r.ctx(), ev), c.Journal.Commit(r.ctx())); err != nil {
							t.Error(err)
						}
					}
				}
				if err := errors.Join(c.Journal.Append(r.ctx(), askedOf("", "last", "x")), c.Journal.Commit(r.ctx())); err != nil {
					t.Error(err)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for going := true; going; {
			select {
			case <-done:
				going = false
			default:
			}
			list, _, err := r.Questions(r.ctx(), toRole("x"))
			if err != nil {
				t.Error(err)
			}
			seen := map[string]bool{}
			for _, q := range list {
				if seen[q.Task.ID] {
					t.Errorf("two questions of %s are open at once", q.Task.ID)
				}
				seen[q.Task.ID] = true
			}
			if !going && len(seen) != n {
				t.Errorf("%d tasks ask, want %d", len(seen), n)
			}
		}
	})
}

// oneAnswer tests a question that is answered more than once.
func oneAnswer(t *testing.T, open Open) {
	give := func(id, question, by, text string) *teamv1.Inbound {
		return &teamv1.Inbound{Key: id, Kind: &teamv1.Inbound_Answered{Answered: &teamv1.Answered{
			Question: question, By: by, Message: agent.UserMessage(id, text),
		}}}
	}
	t.Run("A-15 a question takes one answer", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.append(c, started(""), askedOf("", "q"), askedOf("", "other"))
		r.put("one", give("a1", "q", me, "yes"))
		refused := func(id, by string) {
			t.Helper()
			_, _, err := r.Put(r.ctx(), key("one"), give(id, "q", by, "no"), []byte(id), nil)
			var e *runs.AnsweredError
			if !errors.As(err, &e) || e.First.GetBy() != me || agent.Text(e.First.GetMessage()) != "yes" {
				t.Fatalf("Put(%s) = %v, want the first answer", id, err)
			}
		}
		refused("a2", me)
		refused("a3", "acme/bob")
		r.put("one", give("a4", "other", me, "yes"))
		taken := r.inbound(c)[0]
		r.append(c, &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{
			Question: "q", By: me, Message: taken.GetAnswered().GetMessage(), Inbound: taken.GetN(),
		}}})
		refused("a5", "acme/bob")
		r.append(c, askedOf("", "q")) // the agent breaks the contract and asks again with the same id
		r.put("one", give("a6", "q", "acme/bob", "later"))
	})
	t.Run("A-15 of many answers at one moment one is taken", func(t *testing.T) {
		r := newRig(t, open)
		c := r.run("one")
		r.append(c, started(""))
		for round := range 20 {
			q := fmt.Sprint("q", round)
			r.append(c, askedOf("", q))
			var wg sync.WaitGroup
			var taken atomic.Int32
			for i := range 4 {
				wg.Go(func() {
					id := fmt.Sprint(q, "-", i)
					_, _, err := r.Put(r.ctx(), key("one"), give(id, q, fmt.Sprint("acme/", i), id), []byte(id), nil)
					if err == nil {
						taken.Add(1)
					} else if !errors.Is(err, runs.ErrAnswered) {
						t.Errorf("Put: %v", err)
					}
				})
			}
			wg.Wait()
			if taken.Load() != 1 {
				t.Fatalf("%d answers to %s were taken, want 1", taken.Load(), q)
			}
		}
	})
}
