package workflow

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// FuzzPlan reads plans as models and people write them: what is accepted is recorded as it is, and runs.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{
		`{"steps": [{"id": "x", "member": "a", "task": "go"}]}`, `"{\"steps\": [{\"id\": \"x\", \"member\": \"a\", \"task\": \"go\"}]}"`,
		`{"steps": [{"id": "x", "member": "a", "task": "{{input}}"}, {"id": "y", "member": "b", "task": "<go> & {{steps.x.text}}", "after": ["x", "old"], "when": "steps.x.data.ok"}]}`,
		`{"steps": [{"id": "x", "member": "a", "task": "go", "after": "x"}]}`, `{"steps": null}`, `{"steps": [null]}`, `{"steps": [{}], "why": 1}`, `[]`, ``,
		`{"steps": [{"id": "é", "member": "a", "task": "\ud800"}]}`, `{"steps": [{"id": "x", "member": "a", "task": "go", "when": "1"}]}`,
	} {
		f.Add(seed)
	}
	old := planSteps{Steps: []planStep{{ID: "old", Member: "a", Task: "went"}}}
	rules := &teamv1.PlanRules{Members: []string{"a", "b"}, MaxSteps: 4, Finished: old.record()}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readPlan(rules, text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("a fault on several lines: %q", err)
			}
			return
		}
		if len(p.Steps) > 4 || len(p.all.Steps) != len(p.Steps)+1 {
			t.Errorf("%d of %d steps", len(p.Steps), len(p.all.Steps))
		}
		record := p.all.record()
		if again := stepsOf(record); !cmp.Equal(again, p.all, cmpopts.EquateEmpty()) {
			t.Errorf("recorded as %v, written as %v", again, p.all)
		}
		var kept flows
		if _, err := kept.of(record); err != nil {
			t.Errorf("the record of a valid plan has faults: %v", err)
		}
		if err := CheckPlan(rules, p.json()); err != nil {
			t.Errorf("its own form has faults: %v", err)
		}
	})
}

// TestFlows_KeepsSome makes more plans than are kept; the content decides which workflow a plan has.
func TestFlows_KeepsSome(t *testing.T) {
	var kept flows
	of := func(task string) *Workflow {
		p := planSteps{Steps: []planStep{{ID: "x", Member: "a", Task: task}}}
		w, err := kept.of(p.record())
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := of("a")
	if of("a") != first || of("b") == first {
		t.Error("a plan has another workflow than its content")
	}
	for i := range 3 * maxFlows {
		if task := strings.Repeat("x", i+1); of(task).nodes[0].Task != task {
			t.Error("another plan's workflow")
		}
	}
	if len(kept.kept) != maxFlows || len(kept.ids) != maxFlows || of("a") == first || of("a").nodes[0].Task != "a" {
		t.Errorf("%d workflows are kept, of %d", len(kept.kept), maxFlows)
	}
}
