package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// decoded is a value of YAML, and the same as JSON is decoded.
func decoded(t *testing.T, text string) (asYAML, asJSON any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &asYAML); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(asYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &asJSON); err != nil {
		t.Fatal(err)
	}
	return asYAML, asJSON
}

func TestCheck(t *testing.T) {
	_, got := decoded(t, `{task: {id: t1, status: {state: WORKING}, parts: [{text: hi}, {n: 7}], type: kind}}`)
	for want, ok := range map[string]bool{
		`{task: {id: t1}}`: true,
		`{task: {id: t2}}`: false,
		`{task: {id: {type: string, starts_with: t}}}`:                                true,
		`{task: {id: {type: number}}}`:                                                false,
		`{task: {gone: {absent: true}}, gone: {absent: true}}`:                        true,
		`{task: {id: {absent: true}}}`:                                                false,
		`{task: {gone: {exists: true}}}`:                                              false,
		`{task: {status: {state: {one_of: [DONE, WORKING]}}}}`:                        true,
		`{task: {parts: {count: 2, items: [{text: hi}]}}}`:                            true,
		`{task: {parts: {count_gte: 3}}}`:                                             false,
		`{task: {parts: {items: {text: {exists: true}}}}}`:                            false,
		`{task: {parts: [{text: {contains: h}}, {n: {gte: 7}}]}}`:                     true,
		`{task: {type: {type: string}}}`:                                              true,
		`{task: {id: {any_of: [{absent: true}, {matches: "^t.$"}]}}}`:                 true,
		`{task: {id: {all_of: [{type: string}, {not: t1}]}}}`:                         false,
		`{any_of: [{error: {exists: true}}, {task: {status: {state: {not: DONE}}}}]}`: true,
	} {
		assertion, _ := decoded(t, want)
		if problem := check(assertion, got); (problem == "") != ok {
			t.Errorf("%s: %q", want, problem)
		}
	}
}

func TestPathsAndExpressions(t *testing.T) {
	_, v := decoded(t, `{task: {artifacts: [{parts: [{text: a}, {text: b}]}, {parts: [{text: c}]}], status: {state: WORKING}}}`)
	for path, want := range map[string]int{"task.artifacts[*].parts[*].text": 3, "task.artifacts[1].parts[0]": 1, "task.gone[*]": 0, "task.artifacts[9]": 0} {
		if got := at(path, v); len(got) != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	for expression, want := range map[string]bool{
		"task.status.state == WORKING": true, "task.status.state != WORKING": false, "task.status.state in [DONE, WORKING]": true, "task.status.state in [DONE]": false,
	} {
		if holds(expression, v) != want {
			t.Error(expression)
		}
	}
}

func TestStreamAssertions(t *testing.T) {
	_, list := decoded(t, `[{task: {status: {state: TASK_STATE_SUBMITTED}}}, {artifactUpdate: {artifact: {parts: [{text: hi}]}}}, {statusUpdate: {status: {state: TASK_STATE_COMPLETED}}}]`)
	events, _ := list.([]any)
	for want, ok := range map[string]bool{
		`{min_count: 3, ordering: monotonic_state, final_event: {status: {state: TASK_STATE_COMPLETED}}}`: true,
		`{min_count: 4}`: false,
		`{events: [{match: any_position, artifact_update: {artifact: {parts: {count: 1}}}}, {index: 0, task: {exists: true}}]}`: true,
		`{events: [{index: 0, status_update: {exists: true}}]}`:                                                                 false,
		`{final_event: {status: {state: TASK_STATE_FAILED}}}`:                                                                   false,
	} {
		assertion, _ := decoded(t, want)
		object, _ := assertion.(map[string]any)
		if problem := stream(object, events); (problem == "") != ok {
			t.Errorf("%s: %q", want, problem)
		}
	}
	if ordered(append([]any{events[2]}, events...)) == "" {
		t.Error("a state after the end is in order")
	}
}

func TestKitLevels(t *testing.T) {
	const said = "┌──┐\n│ Level       │ Passed │ Failed │ Skipped │ Total │\n│ MUST        │     85 │     24 │       5 │   114 │\n└──┘\n"
	if got := kitLevels(said); !strings.HasSuffix(got, "| MUST | 85 | 24 | 5 | 114 | 78.0 % |\n") {
		t.Error(got)
	}
	if got := kitLevels("1 passed\n"); got != "" {
		t.Error(got)
	}
}
