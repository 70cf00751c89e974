package team

import (
	"context"
	"iter"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
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
func crashFlow(t *testing.T, w *world) *Team {
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
	flow := func(id string, steps ...WorkflowStep) *Team {
		s, err := NewWorkflow(WorkflowConfig{Steps: steps})
		if err != nil {
			t.Fatal(err)
		}
		tm, err := New(Config{ID: id, Registry: reg, ReportErrors: true, Limits: limits, Scheduler: s, Members: members(sortedKeys(reg)...)})
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	reg["inner"] = flow("inner", WorkflowStep{ID: "far", Member: "peer"}, WorkflowStep{ID: "deep", Member: "deep", After: []string{"far"}})
	return flow("root",
		WorkflowStep{ID: "a", Member: "a"}, WorkflowStep{ID: "b", Member: "b"}, WorkflowStep{ID: "never", Member: "never"},
		WorkflowStep{ID: "inner", Member: "inner"}, WorkflowStep{ID: "late", Member: "e", After: []string{"inner"}},
		WorkflowStep{ID: "ask", Member: "asker"},
		WorkflowStep{ID: "join", Member: "c", After: []string{"a", "b", "never", "late", "ask"}, Join: JoinQuorum, Quorum: 2},
		WorkflowStep{ID: "broken", Member: "broken", After: []string{"join"}, Retry: &teamv1.Retry{Attempts: proto.Int32(2)}},
		WorkflowStep{ID: "lost", Member: "f", After: []string{"broken"}},
		WorkflowStep{ID: "end", Member: "d", After: []string{"join"}, Task: "{{steps.join.text}} end"},
	)
}

// TestCrash_AtEveryEventOfAWorkflow kills the process at every event of a workflow
// with losers and failures: nobody who was dropped works on, each has its end.
func TestCrash_AtEveryEventOfAWorkflow(t *testing.T) {
	crashEverywhere(t, crashFlow, "OUTCOME_SUCCEEDED: d(c(## a\n\na(tides)\n\n## b\n\nb(tides)) end)")
}
