package team_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// budgetQuestions returns the open questions for more budget, and how often people were asked.
func (w *world) budgetQuestions() (open []*teamv1.Event, asked int) {
	closed := map[string]bool{}
	for _, ev := range w.events {
		if a := ev.GetAnswered(); a != nil {
			closed[a.GetQuestion()] = true
		}
	}
	for _, ev := range w.events {
		if ev.GetAsked().GetBudget() == nil {
			continue
		}
		asked++
		if !closed[ev.GetAsked().GetQuestion()] {
			open = append(open, ev)
		}
	}
	return open, asked
}

// reply puts the answer text to a question into the inbox.
func (w *world) reply(q *teamv1.Event, text string) {
	w.t.Helper()
	w.inbox = append(w.inbox, &teamv1.Inbound{
		N: int64(len(w.inbox) + 1), Scope: q.GetScope(), Key: q.GetAsked().GetQuestion(),
		Kind: &teamv1.Inbound_Answered{Answered: answerWith(w.t, q.GetAsked(), text)},
	})
}

// process runs a new process of the team until it parks or ends.
func (w *world) process(top agent.Agent, now func() time.Time) runs.Park {
	w.t.Helper()
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return top, nil }, Clock: now}
	park, err := r.Drive(w.t.Context(), runs.Claim{Root: crashRoot, Epoch: 1, Journal: w})
	if err != nil {
		w.t.Fatal(err)
	}
	return park
}

// end returns the end of the run.
func (w *world) end() *teamv1.Ended { return w.events[len(w.events)-1].GetEnded() }

// answered returns the text that the run answered with.
func (w *world) answered() string {
	if ref := w.end().GetReplyRef(); ref > 0 {
		return agent.Text(journal.MessageOf(crashRoot, w.events[ref-1]))
	}
	return agent.Text(w.end().GetReply())
}

func TestC_07_AskAtTheLimit(t *testing.T) {
	spent := func() []*teamv1.Spent { return []*teamv1.Spent{{InputTokens: 200, OutputTokens: 300}} }
	model := func(texts ...string) *priced {
		m := &priced{spent: spent()}
		for _, text := range texts {
			m.turns = append(m.turns, &teamv1.Turn{Text: text})
		}
		return m
	}
	asking := func(tokens int64) *teamv1.Limits {
		return &teamv1.Limits{MaxTokens: &tokens, OnLimit: teamv1.OnLimit_ASK}
	}
	one := func(t *testing.T, l *teamv1.Limits) agent.Agent { return limitedAgent(t, "root", model("found"), l) }

	for _, mode := range []struct {
		name  string
		setBy string
		build func(t *testing.T) agent.Agent
	}{
		{"an agent", "root", func(t *testing.T) agent.Agent { return one(t, asking(20)) }},
		{"a coordinator", "root", func(t *testing.T) agent.Agent {
			return ledBy(t, model("found"), registry{}, func(_ *leader.CoordinatorConfig, c *team.Config) { c.ID, c.Limits = "root", asking(20) })
		}},
		{"a scheduler of its own", "root", func(t *testing.T) agent.Agent {
			reg := registry{"a": limitedAgent(t, "a", model("found"), nil)}
			return newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Limits: asking(20)})
		}},
		{"a broadcast", "root", func(t *testing.T) agent.Agent {
			reg := registry{"a": limitedAgent(t, "a", model("found"), nil)}
			return newTeamWith(t, team.Config{ID: "root", Scheduler: broadcast.New(broadcast.Config{}), Model: model("found"), Members: members("a"), Registry: reg, Limits: asking(20)})
		}},
		{"a nested team with the limit of the team above", "root", func(t *testing.T) agent.Agent {
			reg := registry{"a": limitedAgent(t, "a", model("found"), nil)}
			reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("a"), Members: members("a"), Registry: reg})
			return newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("inner"), Members: members("inner"), Registry: reg, Limits: asking(20)})
		}},
		{"a nested team with a limit of its own", "root/inner", func(t *testing.T) agent.Agent {
			reg := registry{"a": limitedAgent(t, "a", model("found"), nil)}
			reg["inner"] = newTeamWith(t, team.Config{ID: "inner", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Limits: asking(20)})
			return newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("inner"), Members: members("inner"), Registry: reg})
		}},
		{"a member with a limit of its own", "root/a", func(t *testing.T) agent.Agent {
			reg := registry{"a": limitedAgent(t, "a", model("found"), asking(20))}
			return newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a"), Members: members("a"), Registry: reg})
		}},
	} {
		t.Run("C-07 "+mode.name+" waits for a grant, and is continued by another process", func(t *testing.T) {
			w := newWorld(t)
			if park := w.process(mode.build(t), nil); park.Done {
				t.Fatal("it did not wait", w.end())
			}
			open, asked := w.budgetQuestions()
			if len(open) != 1 || asked != 1 || open[0].GetAsked().GetBudget().GetSetBy() != mode.setBy {
				t.Fatal(open)
			}
			w.reply(open[0], "5 tokens") // not enough
			if park := w.process(mode.build(t), nil); park.Done {
				t.Fatal("it did not wait again", w.end())
			}
			open, asked = w.budgetQuestions()
			if len(open) != 1 || asked != 2 || open[0].GetAsked().GetBudget().GetValue() != 25 {
				t.Fatal(open)
			}
			w.reply(open[0], "8000 tokens")
			if park := w.process(mode.build(t), nil); !park.Done || w.end().GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
				t.Fatal(park, w.end())
			}
			if got := agent.CostOf(w.end().GetSpent()).Tokens; got != 500 && got != 1000 { // a broadcast has its results joined
				t.Error(got)
			}
		})
		t.Run("C-07 "+mode.name+" ends when people decline", func(t *testing.T) {
			w := newWorld(t)
			w.process(mode.build(t), nil)
			open, _ := w.budgetQuestions()
			w.reply(open[0], "no")
			if park := w.process(mode.build(t), nil); !park.Done || w.end().GetError().GetReason() != agent.ReasonBudgetExceeded {
				t.Fatal(park, w.end())
			}
			if _, asked := w.budgetQuestions(); asked != 1 {
				t.Error("asked again", asked)
			}
		})
		t.Run("C-07 "+mode.name+" ends when nobody answers", func(t *testing.T) {
			w, now := newWorld(t), time.Now()
			w.clock = func() time.Time { return now }
			w.process(mode.build(t), w.clock)
			now = now.Add(8 * 24 * time.Hour)
			if park := w.process(mode.build(t), w.clock); !park.Done || w.end().GetError().GetReason() != agent.ReasonBudgetExceeded {
				t.Fatal(park, w.end())
			}
		})
	}

	t.Run("C-07 the question says what was spent, by whom, and what comes next", func(t *testing.T) {
		m := model("", "found")
		m.turns[0] = echoCall()
		m.price = agent.Price{Input: agent.MicrosPerMillion(1), Output: agent.MicrosPerMillion(2)}
		m.spent[0].CostMicros = 800
		a := limitedAgent(t, "root", m, &teamv1.Limits{MaxCost: proto.Float64(0.00106), OnLimit: teamv1.OnLimit_ASK, AskRoles: []string{"finance"}})
		w := newWorld(t)
		w.process(a, nil)
		open, _ := w.budgetQuestions()
		if len(open) != 1 || len(open[0].GetAsked().GetRoles()) != 1 || open[0].GetAsked().GetKind() != teamv1.Asked_KIND_BUDGET {
			t.Fatal(open, w.end())
		}
		text, b := agent.Text(open[0].GetAsked().GetMessage()), open[0].GetAsked().GetBudget()
		for _, want := range []string{`max_cost of "root"`, "Of 0.00106 USD, 0.0008 USD are spent (root 0.0008 USD)", "a call of model", "at most", `"2 USD"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
		if b.GetMost() < b.GetLeast() || b.GetSpentBy()["root"] != 800 || b.GetValue() != 1060 {
			t.Error(b)
		}
	})
	t.Run("C-07 what is granted raises the limit that was reached, and no other", func(t *testing.T) {
		reg := registry{"a": limitedAgent(t, "a", model("found"), asking(20))}
		top := newTeamWith(t, team.Config{ID: "root", Scheduler: inOrder("a"), Members: members("a"), Registry: reg, Limits: &teamv1.Limits{MaxTokens: proto.Int64(30)}})
		w := newWorld(t)
		w.process(top, nil)
		if _, asked := w.budgetQuestions(); asked != 0 || w.end().GetError().GetReason() != agent.ReasonBudgetExceeded || w.end().GetError().GetDetails()[agent.DetailSetBy] != "root" {
			t.Error("people were asked for what they cannot grant", asked, w.end())
		}
	})
	t.Run("C-07 steps that work at the same time ask for themselves", func(t *testing.T) {
		build := func() agent.Agent {
			reg := registry{"a": limitedAgent(t, "a", model("found"), nil), "b": limitedAgent(t, "b", model("found"), nil)}
			return newTeamWith(t, team.Config{ID: "root", Scheduler: batches([]*teamv1.Step{to("a"), to("b")}), Members: members("a", "b"), Registry: reg, Limits: asking(20)})
		}
		w := newWorld(t)
		w.process(build(), nil)
		open, _ := w.budgetQuestions()
		if len(open) != 2 {
			t.Fatal(open)
		}
		w.reply(open[0], "5000 tokens")
		w.process(build(), nil)
		if open, _ = w.budgetQuestions(); len(open) != 1 {
			t.Fatal("the other question is closed, or the first step asked again", open)
		}
		w.reply(open[0], "5000 tokens")
		if park := w.process(build(), nil); !park.Done || w.end().GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
			t.Fatal(park, w.end())
		}
	})
	t.Run("C-07 a leader that finalizes answers when people decline", func(t *testing.T) {
		build := func() agent.Agent {
			m := &priced{spent: []*teamv1.Spent{{InputTokens: 200, OutputTokens: 30}}}
			for range 50 {
				m.turns = append(m.turns, echoCall())
			}
			return finalizing(t, &finalModel{m}, team.Config{ID: "root", Limits: asking(6000)})
		}
		w := newWorld(t)
		w.process(build(), nil)
		open, _ := w.budgetQuestions()
		if len(open) != 1 {
			t.Fatal(open, w.end())
		}
		w.reply(open[0], "no")
		if park := w.process(build(), nil); !park.Done || w.end().GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
			t.Fatal(park, w.end())
		}
		if text := w.answered(); text != "summed up" {
			t.Error(text)
		}
	})
}
