package workflow

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/team"
)

// FuzzP17_Plan reads plans as models and people write them: what is accepted is recorded as it is, and runs.
func FuzzP17_Plan(f *testing.F) {
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

// TestS_62_LargePlans checks plans that would take much memory if all of their faults were collected.
func TestS_62_LargePlans(t *testing.T) {
	var many, after, shared strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `,{"id":"s%d","member":"a","after":["q"]}`, i)
	}
	for i := range 256 {
		after.WriteString(`,{"id":"s` + strconv.Itoa(i) + `","member":"a","task":"go","after":["x"`)
		for k := range 130 {
			fmt.Fprintf(&after, `,"%x"`, i*16+k)
		}
		after.WriteString("]}")
	}
	for i := range 36000 {
		fmt.Fprintf(&shared, `,"%x"`, i%4096)
	}
	rules := &teamv1.PlanRules{Members: []string{"a"}, MaxSteps: 256}
	for name, c := range map[string]struct{ plan, want string }{
		"more steps than are allowed": {`{"steps":[` + many.String()[1:] + `]}`, "the plan has 5000 steps, but at most 256 are allowed"},
		"unknown steps":               {`{"steps":[` + after.String()[1:] + `]}`, `step "s0": runs after "x", which is not a step`},
		"a step after too many":       {`{"steps":[{"id":"x","member":"a","task":"go","after":[` + shared.String()[1:] + `]}]}`, `step "x": runs after 4096 steps, but there are at most 256`},
		"a long id":                   {`{"steps":[{"id":"` + strings.Repeat("x", 250<<10) + `","member":"b"}]}`, "the id must be 1 to 63 letters"},
	} {
		t.Run("S-62 "+name, func(t *testing.T) {
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			err := CheckPlan(rules, c.plan)
			runtime.ReadMemStats(&now)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > (maxFaults+1)*(maxFault+10) {
				t.Errorf("a plan of %d bytes: %s", len(c.plan), cut(fmt.Sprint(err), 2000))
			}
			if got := (now.TotalAlloc - before.TotalAlloc) >> 20; got > 64 {
				t.Errorf("a plan of %d KiB takes %d MiB", len(c.plan)>>10, got)
			}
		})
	}
}

// TestS_62_NotApproved has the ways in which a question about a plan ends without a decision.
func TestS_62_NotApproved(t *testing.T) {
	for outcome, want := range map[teamv1.Outcome]string{
		teamv1.Outcome_OUTCOME_TIMED_OUT: "because it was not approved in time;",
		teamv1.Outcome_OUTCOME_CANCELED:  "because the question about it was canceled;",
		teamv1.Outcome_OUTCOME_FAILED:    "because people could not be asked about it;",
	} {
		st := &team.StepState{Step: &teamv1.Step{Kind: teamv1.Step_KIND_HUMAN, Name: approval}, Done: true, Outcome: outcome}
		s := &team.State{Team: &team.Config{ID: "t1", Members: []team.Member{{Agent: "a"}}}, Steps: []*team.StepState{st}}
		if _, err := (&Planned{}).Next(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", outcome, err)
		}
	}
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
