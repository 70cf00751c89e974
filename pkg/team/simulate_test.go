package team_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// dag draws a workflow whose steps come after some of those before them.
func dag(t *rapid.T) []workflow.Step {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	steps := make([]workflow.Step, n)
	for i := range steps {
		s := workflow.Step{ID: fmt.Sprintf("s%d", i), Member: "writer"}
		for j := range i {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				s.After = append(s.After, steps[j].ID)
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "skip") == 0 {
			s.When = "false"
		}
		if len(s.After) > 0 && rapid.IntRange(0, 4).Draw(t, "join") == 0 {
			s.Join, s.Quorum = workflow.JoinQuorum, rapid.IntRange(1, len(s.After)).Draw(t, "quorum")
		}
		if rapid.IntRange(0, 5).Draw(t, "again") == 0 {
			s.Repeat = &workflow.Repeat{Until: fmt.Sprintf("steps.%s.data.round >= 2", s.ID), Max: 2}
		}
		steps[i] = s
	}
	return steps
}

// TestWorkflow_AnyOrder runs random workflows, their steps ending in random
// order: each runs as often as it should, never before those it waits for, and
// the run ends with an answer.
func TestWorkflow_AnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := dag(rt)
		w, err := workflow.New(workflow.Config{Steps: steps})
		if err != nil {
			rt.Fatal(err)
		}
		m := simulate(t, w)
		rounds := map[string]int{}
		for m.reply == nil && m.err == nil {
			checkStarted(rt, m, steps)
			open := m.open()
			if len(open) == 0 {
				rt.Fatal("it waits for nothing")
			}
			name := rapid.SampledFrom(open).Draw(rt, "ends")
			rounds[name]++
			m.end(name, fmt.Sprintf(`{"by": %q, "round": %d}`, name, rounds[name]))
		}
		checkStarted(rt, m, steps)
		checkEnd(rt, m, steps)
	})
}

// checkStarted: whatever was decided had its time.
func checkStarted(t *rapid.T, m *sim, steps []workflow.Step) {
	decided := map[string]int{}
	for i, st := range m.s.Steps {
		name := st.Step.GetName()
		decided[name]++
		s := steps[slices.IndexFunc(steps, func(s workflow.Step) bool { return s.ID == name })]
		limit := 1
		if s.Repeat != nil {
			limit = s.Repeat.Max
		}
		switch {
		case decided[name] > limit:
			t.Fatalf("%s was decided %d times", name, decided[name])
		case st.Step.GetRefusal() == nil && s.When == "false":
			t.Fatalf("%s runs", name)
		case st.Dropped:
			unneeded(t, m, steps, name)
		case strings.Contains(st.Step.GetRefusal().GetError().GetMessage(), "went on without it"):
			unneeded(t, m, steps, name)
			continue
		case st.Step.GetRefusal() != nil && s.When != "false":
			t.Fatalf("%s: %v", name, st.Step)
		}
		for _, before := range s.After {
			at := slices.IndexFunc(m.s.Steps, func(o *team.StepState) bool { return o.Step.GetName() == before })
			if s.Join == "" && (at < 0 || at > i || !m.s.Steps[at].Done) {
				t.Fatalf("%s was decided before %s had ended", name, before)
			}
		}
	}
}

// unneeded: all that comes after a step was decided, and something does.
func unneeded(t *rapid.T, m *sim, steps []workflow.Step, name string) {
	after := 0
	for _, s := range steps {
		if !slices.Contains(s.After, name) {
			continue
		}
		after++
		if !slices.ContainsFunc(m.s.Steps, func(st *team.StepState) bool { return st.Step.GetName() == s.ID }) {
			t.Fatalf("%s was given up, and %s is still to come", name, s.ID)
		}
	}
	if after == 0 {
		t.Fatalf("%s was given up, and nothing comes after it", name)
	}
}

// checkEnd: every step was decided, and the answer is the last wave's.
func checkEnd(t *rapid.T, m *sim, steps []workflow.Step) {
	ran := 0
	for _, s := range steps {
		if s.When != "false" {
			ran++
		}
		if !slices.ContainsFunc(m.s.Steps, func(st *team.StepState) bool { return st.Step.GetName() == s.ID }) {
			t.Fatalf("%s was never decided", s.ID)
		}
	}
	switch {
	case ran == 0:
		if reasonOf(m.err) != agent.ReasonNoResponse {
			t.Fatalf("nothing ran: %v", m.err)
		}
	case m.err != nil || !strings.Contains(agent.Text(m.reply), `"by"`):
		t.Fatalf("%v, %v", m.reply, m.err)
	}
}
