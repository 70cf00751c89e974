package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// find returns the tasks that a query selects, read in pages of two.
func (r *rig) find(q runs.TaskQuery) (all []*teamv1.FoundTask) {
	r.Helper()
	q.PageSize = 2
	if q.Account == "" {
		q.Account = "acme"
	}
	for {
		page, err := r.Find(r.ctx(), q)
		if err != nil || len(page.Tasks) > q.PageSize {
			r.Fatalf("Find(%+v) = %d tasks, %v", q, len(page.Tasks), err)
		}
		all = append(all, page.Tasks...)
		if q.PageToken = page.NextToken; q.PageToken == "" {
			return all
		}
	}
}

func foundIDs(list []*teamv1.FoundTask) []string {
	ids := []string{}
	for _, t := range list {
		ids = append(ids, t.GetTaskId())
	}
	return ids
}

// spends ends a step that has spent money.
func spends(scope string, micros int64) []*teamv1.Event {
	decided := &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: scope, Kind: teamv1.Step_KIND_MODEL}}}}}
	end := ended(scope, teamv1.Outcome_OUTCOME_SUCCEEDED)
	end.GetEnded().Spent = &teamv1.Spent{InputTokens: 7, OutputTokens: 3, CostMicros: micros, ModelCalls: 1}
	return []*teamv1.Event{decided, started(scope), end}
}

// founds tests Find with the tasks t0 to t5: of two owners of the account, and t6 of another account.
func founds(t *testing.T, open Open) {
	r := newRig(t, open)
	begin := r.clock.Now()
	texts := []string{"Refund order 17, please!", "Order status?", "Wo ist Paket Ähre", "refund REFUND refunds", "退款 order", "hello", "refund of the other account"}
	for i, text := range texts {
		n := task(fmt.Sprint("t", i))
		n.Accepted.Message = agent.UserMessage(n.MessageID, text)
		n.Accepted.Message.ContextId = []string{"c", "d"}[i%2]
		n.Accepted.Agent = []string{"a", "b", "c"}[i%3]
		n.Owner = []string{me, me, me, me, "acme/bob", "acme/bob", "other/eve"}[i]
		n.Accepted.Owner = n.Owner
		r.create(n)
		r.clock.Move(time.Second)
	}
	for _, c := range r.claims() {
		switch c.Root {
		case "t1":
			r.append(c, append([]*teamv1.Event{started("")}, spends("1", 500)...)...)
		case "t2":
			r.append(c, append([]*teamv1.Event{started("")}, append(spends("1", 300), ended("", teamv1.Outcome_OUTCOME_FAILED))...)...)
		case "t4":
			r.append(c, append([]*teamv1.Event{started("")}, spends("1", 400)...)...)
			r.append(c, append(spends("2", 400), ended("", teamv1.Outcome_OUTCOME_FAILED))...)
		}
	}
	failed := a2av1.TaskState_TASK_STATE_FAILED
	for _, c := range []struct {
		name string
		q    runs.TaskQuery
		want []string
	}{
		{"all of an account, newest first", runs.TaskQuery{}, []string{"t5", "t4", "t3", "t2", "t1", "t0"}},
		{"another account", runs.TaskQuery{Account: "other"}, []string{"t6"}},
		{"an account without tasks", runs.TaskQuery{Account: "acm"}, []string{}},
		{"an owner", runs.TaskQuery{Owner: "acme/bob"}, []string{"t5", "t4"}},
		{"an agent", runs.TaskQuery{Agent: "b"}, []string{"t4", "t1"}},
		{"an agent of an owner", runs.TaskQuery{Agent: "b", Owner: me}, []string{"t1"}},
		{"a state", runs.TaskQuery{State: failed}, []string{"t4", "t2"}},
		{"a state of an owner", runs.TaskQuery{State: failed, Owner: me}, []string{"t2"}},
		{"a conversation", runs.TaskQuery{ContextID: "d"}, []string{"t5", "t3", "t1"}},
		{"an id", runs.TaskQuery{ID: "t3"}, []string{"t3"}},
		{"an id of another account", runs.TaskQuery{ID: "t6"}, []string{}},
		{"since", runs.TaskQuery{Since: begin.Add(3 * time.Second)}, []string{"t5", "t4", "t3"}},
		{"until", runs.TaskQuery{Until: begin.Add(3 * time.Second)}, []string{"t2", "t1", "t0"}},
		{"a word", runs.TaskQuery{Text: "refund"}, []string{"t3", "t0"}},
		{"a word of an owner", runs.TaskQuery{Text: "order", Owner: "acme/bob"}, []string{"t4"}},
		{"all words", runs.TaskQuery{Text: "order 17"}, []string{"t0"}},
		{"a word with an umlaut", runs.TaskQuery{Text: "ähre"}, []string{"t2"}},
		{"a character", runs.TaskQuery{Text: "款"}, []string{"t4"}},
		{"a part of a word", runs.TaskQuery{Text: "ref"}, []string{}},
		{"a word in a time", runs.TaskQuery{Text: "order", Since: begin.Add(time.Second), Until: begin.Add(4 * time.Second)}, []string{"t1"}},
		{"costs, highest first", runs.TaskQuery{MinCostMicros: 300}, []string{"t4", "t1", "t2"}},
		{"costs of an owner", runs.TaskQuery{MinCostMicros: 301, Owner: me}, []string{"t1"}},
		{"costs with a word and a state", runs.TaskQuery{MinCostMicros: 1, Text: "order", State: failed}, []string{"t4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := foundIDs(r.find(c.q)); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
	t.Run("what is found", func(t *testing.T) {
		got := r.find(runs.TaskQuery{ID: "t4"})[0]
		if got.GetPrincipal() != "bob" || got.GetAgentId() != "b" || got.GetContextId() != "c" || got.GetText() != texts[4] || got.GetState() != failed ||
			!got.GetCreated().AsTime().Equal(begin.Add(4*time.Second)) || got.GetSpent().GetCostMicros() != 800 || got.GetSpent().GetInputTokens() != 14 || got.GetSpent().GetOutputTokens() != 6 {
			t.Errorf("found %v", got)
		}
	})
	t.Run("tokens belong to their query", func(t *testing.T) {
		page, err := r.Find(r.ctx(), runs.TaskQuery{Account: "acme", PageSize: 2})
		if err != nil || page.NextToken == "" {
			t.Fatalf("Find = %v, %v", page, err)
		}
		for _, q := range []runs.TaskQuery{{Account: "other"}, {Account: "acme", Owner: me}, {Account: "acme", Agent: "a"}, {Account: "acme", MinCostMicros: 1}, {Account: "acme", Text: "x"}} {
			q.PageToken, q.PageSize = page.NextToken, 2
			if _, err := r.Find(r.ctx(), q); err == nil {
				t.Errorf("the token is accepted for %+v", q)
			}
		}
	})
}

// kept tests tasks whose journal begins with more than one event.
func kept(t *testing.T, open Open) {
	r := newRig(t, open)
	n := task("new")
	n.Kept = append(spends("1", 0), noted("kept"))
	n.Kept[2].GetEnded().Spent = nil
	r.create(n)
	if root, existed, err := r.Create(r.ctx(), n); err != nil || !existed || root != "new" {
		t.Errorf("created again: %q, %v, %v", root, existed, err)
	}
	c := r.claim("new")
	events, err := c.Journal.Load(r.ctx())
	if err != nil || len(events) != 5 || events[4].GetNoted().GetText() != "kept" || events[4].GetSeq() != 5 {
		t.Fatalf("the journal has %v, %v", events, err)
	}
	r.append(c, started(""), succeeded())
	if all := r.events("new"); len(all) != 7 {
		t.Errorf("%d events, want 7", len(all))
	}
	if state := r.state("new"); state != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("the state is %v", state)
	}
}
