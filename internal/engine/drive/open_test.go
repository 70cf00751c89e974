package drive_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/pkg/agent"
)

// leaving begins a step with a step in it, and a third, ends that, and goes.
type leaving struct {
	*agent.Func
	goes func(yield func(*teamv1.Event, error) bool)
}

func (a leaving) Process(context.Context, *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		began := func() *teamv1.Event {
			return &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}
		}
		for _, step := range []struct {
			scope string
			ev    *teamv1.Event
		}{
			{"1", began()},
			{"1.1", began()},
			{"2", began()},
			{"2", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED}}}},
		} {
			step.ev.Scope, step.ev.Agent = step.scope, "leaving/"+step.scope
			if !yield(step.ev, nil) {
				return
			}
		}
		a.goes(yield)
	}
}

// TestI1_WhatAnAgentLeavesOpenIsEnded has an agent leave steps open: the run ends
// them before it ends, the deepest first, with its own reason.
func TestI1_WhatAnAgentLeavesOpenIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		goes func(func(*teamv1.Event, error) bool)
		ends string
		is   a2av1.TaskState
	}{
		"an error": {func(yield func(*teamv1.Event, error) bool) { yield(nil, errors.New("no")) }, "OUTCOME_FAILED INTERNAL", failed},
		"a timeout": {func(yield func(*teamv1.Event, error) bool) {
			yield(nil, agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "late"))
		}, "OUTCOME_TIMED_OUT TIMEOUT_EXCEEDED", failed},
		"a panic":        {func(func(*teamv1.Event, error) bool) { panic("no") }, "OUTCOME_FAILED AGENT_PANIC", failed},
		"nothing at all": {func(func(*teamv1.Event, error) bool) {}, "OUTCOME_FAILED NO_RESPONSE", failed},
		"an answer": {func(yield func(*teamv1.Event, error) bool) {
			yield(&teamv1.Event{Kind: &teamv1.Event_Reply{Reply: &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("done")}}}}, nil)
		}, "OUTCOME_CANCELED ", completed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSingle(t, "leaving")
			all := newAgents(t, leaving{&agent.Func{ID: "leaving"}, c.goes})
			if park, err := all.runner().Drive(t.Context(), s.take(t)); err != nil || !park.Done {
				t.Fatal(park, err)
			}
			wantState(t, s.task(t), c.is)
			var ends []string
			for _, ev := range s.events(t) {
				if e := ev.GetEnded(); e != nil && ev.GetScope() != "2" && ev.GetScope() != "" {
					ends = append(ends, fmt.Sprintf("%s %s %s %s", ev.GetScope(), ev.GetAgent(), e.GetOutcome(), e.GetError().GetReason()))
				}
			}
			if diff := cmp.Diff([]string{"1.1 leaving/1.1 " + c.ends, "1 leaving/1 " + c.ends}, ends); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestS_60_TheAgentIsGoneAfterAKill: the steps that a killed process had begun count what their attempts
// have cost, also if their agent was removed before the run went on.
func TestS_60_TheAgentIsGoneAfterAKill(t *testing.T) {
	s := newSingle(t, "desk")
	began := func(scope string, attempt int32) *teamv1.Event {
		return &teamv1.Event{Scope: scope, Agent: "desk/" + scope, Kind: &teamv1.Event_Started{Started: &teamv1.Started{
			Attempt: attempt, Model: "m", Reserved: &teamv1.Spent{InputTokens: 90, OutputTokens: 10, CostMicros: 100, ModelCalls: 1},
		}}}
	}
	claim := s.take(t)
	if _, err := claim.Journal.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	decided := &teamv1.Event{Scope: "1", Agent: "desk/1", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_MODEL}}}}}
	err := claim.Journal.Append(t.Context(),
		&teamv1.Event{Agent: "desk", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{{Id: "1", Kind: teamv1.Step_KIND_DELEGATE}, {Id: "2", Kind: teamv1.Step_KIND_MODEL}}}}},
		&teamv1.Event{Scope: "1", Agent: "desk/1", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}, decided,
		began("1.1", 1),
		&teamv1.Event{Scope: "1.1", Agent: "desk/1.1", Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Spent: &teamv1.Spent{CostMicros: 7, ModelCalls: 1}}}},
		began("1.1", 2),
		began("2", 1),
	)
	if err == nil {
		err = claim.Journal.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	s.die(t)
	if park, err := newAgents(t).runner().Drive(t.Context(), s.take(t)); err != nil || !park.Done {
		t.Fatal(park, err)
	}
	wantState(t, s.task(t), failed)
	got := map[string]int64{}
	for _, ev := range s.events(t) {
		if e := ev.GetEnded(); e != nil {
			got[ev.GetScope()] = e.GetSpent().GetCostMicros()
		}
	}
	if diff := cmp.Diff(map[string]int64{"1.1": 107, "1": 0, "2": 100, "": 207}, got); diff != "" {
		t.Errorf("cost by scope (-want +got):\n%s", diff)
	}
	if sums, err := s.Costs(t.Context(), cost.Query{Until: 1 << 40}); err != nil || len(sums) != 2 || sums[0].Spent().GetCostMicros()+sums[1].Spent().GetCostMicros() != 207 {
		t.Errorf("the costs across tasks are %v, %v, want 207 micros of two steps", sums, err)
	}
}
