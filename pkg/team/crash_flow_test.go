package team_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// blocker has its effect and then works until its context ends.
type blocker struct{ worker }

func (k *blocker) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if ctx.Err() == nil {
			k.w.effect(k.name, req.GetKey())
			<-ctx.Done()
		}
		yield(nil, context.Cause(ctx))
	}
}

// crashFlow is a workflow that goes on after errors: two of five end, which is the
// quorum, and the losers, a leaf, a team, a peer's task and one that asks, are
// canceled; a step fails, and what comes after it is skipped.
func crashFlow(t *testing.T, w *world) *team.Team {
	t.Helper()
	reg := registry{}
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		reg[n] = &worker{w: w, name: n}
	}
	reg["never"] = &blocker{worker{w: w, name: "never"}}
	reg["deep"] = &blocker{worker{w: w, name: "deep"}}
	reg["asker"] = &asker{worker{w: w, name: "asker"}}
	reg["peer"] = &peer{worker{w: w, name: "peer"}}
	reg["broken"] = &worker{w: w, name: "broken", do: func(*teamv1.ProcessRequest) (string, error) {
		return "", &agent.Error{Reason: agent.ReasonUnavailable, Retry: true, Fresh: true, Message: "out of ink"}
	}}
	limits := &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(time.Microsecond)}, MaxParallel: proto.Int32(9)}
	flow := func(id string, steps ...workflow.Step) *team.Team {
		s, err := workflow.New(workflow.Config{Steps: steps})
		if err != nil {
			t.Fatal(err)
		}
		tm, err := team.New(team.Config{ID: id, Registry: reg, ReportErrors: true, Limits: limits, Scheduler: s, Members: members(sortedKeys(reg)...)})
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	reg["inner"] = flow("inner", workflow.Step{ID: "far", Member: "peer"}, workflow.Step{ID: "deep", Member: "deep", After: []string{"far"}})
	return flow("root",
		workflow.Step{ID: "a", Member: "a"}, workflow.Step{ID: "b", Member: "b"}, workflow.Step{ID: "never", Member: "never"},
		workflow.Step{ID: "inner", Member: "inner"}, workflow.Step{ID: "late", Member: "e", After: []string{"inner"}},
		workflow.Step{ID: "ask", Member: "asker"},
		workflow.Step{ID: "join", Member: "c", After: []string{"a", "b", "never", "late", "ask"}, Join: workflow.JoinQuorum, Quorum: 2},
		workflow.Step{ID: "broken", Member: "broken", After: []string{"join"}, Retry: &teamv1.Retry{Attempts: proto.Int32(2)}},
		workflow.Step{ID: "lost", Member: "f", After: []string{"broken"}},
		workflow.Step{ID: "end", Member: "d", After: []string{"join"}, Task: "{{steps.join.text}} end"},
	)
}

// TestCrash_AtEveryEventOfAWorkflow kills the process at every event of a workflow
// with losers and failures: nobody who was dropped works on, each has its end.
func TestCrash_AtEveryEventOfAWorkflow(t *testing.T) {
	crashEverywhere(t, crashFlow, "OUTCOME_SUCCEEDED: d(c(## a\n\na(tides)\n\n## b\n\nb(tides)) end)")
}
