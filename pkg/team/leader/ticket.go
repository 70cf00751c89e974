package leader

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// checkTool is the name of the tool that a leader calls to check its asynchronous delegations.
const checkTool = "check_delegated_tasks"

// maxWait is the longest wait that a check may ask for.
const maxWait = 30 * time.Second

// pollEvery is how often a waiting check asks whether a detached task has ended.
const pollEvery = time.Second

var checkSpec = agent.ToolSpec{
	Name:        checkTool,
	Description: "Tells how delegated tasks stand, and the results of those that have ended.",
	Parameters: json.RawMessage(`{"type":"object","properties":{` +
		`"task_ids":{"type":"array","items":{"type":"string"},"description":"The tickets; none is all."},` +
		`"wait_seconds":{"type":"number","minimum":0,"maximum":30,"description":"How long to wait for one of them to end."}}}`),
}

// Answer implements [team.Scheduler] for the built-in tools that check delegations and read long
// results.
func (l *leader) Answer(s *team.State, st *team.StepState, look team.Look) (*teamv1.ToolResult, time.Time) {
	switch st.Step.GetName() {
	case checkTool:
		if l.crew.anyAsync() {
			return check(s, st, look)
		}
	case prompt.ReadTool:
		return readResult(s, s.Arguments(st), look), time.Time{}
	}
	return nil, time.Time{}
}

func toolText(text string) *teamv1.ToolResult  { return &teamv1.ToolResult{Text: text} }
func toolError(text string) *teamv1.ToolResult { return &teamv1.ToolResult{Text: text, IsError: true} }

// check returns the state of delegations. It waits until the time that was asked for has passed,
// one of them has news that the leader does not know, or none can end without people.
func check(s *team.State, st *team.StepState, look team.Look) (*teamv1.ToolResult, time.Time) {
	ids, wait, err := checkArguments(s.Arguments(st))
	if err != nil {
		return toolError(err.Error()), time.Time{}
	}
	watched := watchedBy(s, ids)
	if until := st.Began.Add(wait); look.Now.Before(until) && waitsOn(s, watched, st, look) {
		if slices.ContainsFunc(watched, func(w *team.StepState) bool { return w.Step.GetDetached() }) && until.Sub(look.Now) > pollEvery {
			until = look.Now.Add(pollEvery)
		}
		return nil, until
	}
	var b strings.Builder
	for _, w := range watched {
		fmt.Fprintf(&b, "%s\n%s\n\n", s.TaskID(w), s.ResultText(w.EndedAs(look.Detached(w))))
	}
	for _, id := range ids {
		if !slices.ContainsFunc(watched, func(w *team.StepState) bool { return s.TaskID(w) == id }) {
			fmt.Fprintf(&b, "%s\nthere is no such task\n\n", agent.Quote(id))
		}
	}
	if b.Len() == 0 {
		return toolText("nothing was delegated that works by itself"), time.Time{}
	}
	return toolText(strings.TrimRight(b.String(), "\n")), time.Time{}
}

// checkArguments parses the arguments of check_delegated_tasks; all are optional.
func checkArguments(text string) (ids []string, wait time.Duration, err error) {
	args, err := prompt.Arguments(text)
	if err != nil {
		return nil, 0, fmt.Errorf(`the arguments are not a JSON object; write {"task_ids": ["…"]}`)
	}
	if raw, ok := args["task_ids"]; ok && string(raw) != "null" && json.Unmarshal(raw, &ids) != nil {
		var one string
		if json.Unmarshal(raw, &one) != nil {
			return nil, 0, fmt.Errorf("argument task_ids must be a list of strings, got %s", prompt.Kind(raw))
		}
		ids = []string{one}
	}
	var seconds float64
	if raw, ok := args["wait_seconds"]; ok && string(raw) != "null" && json.Unmarshal(raw, &seconds) != nil {
		return nil, 0, fmt.Errorf("argument wait_seconds must be a number, got %s", prompt.Kind(raw))
	}
	return ids, time.Duration(min(max(seconds, 0), maxWait.Seconds()) * float64(time.Second)), nil
}

// watchedBy returns the asynchronous delegations with the task ids; all of them if ids is empty.
func watchedBy(s *team.State, ids []string) []*team.StepState {
	var watched []*team.StepState
	for _, st := range s.Steps {
		if st.Step.GetAsync() && st.ByMember() && st.Refusal == nil && (len(ids) == 0 || slices.Contains(ids, s.TaskID(st))) {
			watched = append(watched, st)
		}
	}
	return watched
}

// waitsOn reports whether a check has to wait: one of the watched delegations can end without
// people, and none has ended that was not reported to the leader before.
func waitsOn(s *team.State, watched []*team.StepState, check *team.StepState, look team.Look) bool {
	may := false
	news := unreportedAt(s, slices.Index(s.Steps, check), s.Ended)
	for _, w := range watched {
		switch detached := w.Step.GetDetached(); {
		case detached && look.Detached(w) != nil, !detached && slices.Contains(news, w):
			return false
		case detached && w.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED, !w.Done && !w.Parked():
			may = true
		}
	}
	return may
}

// unreported returns the asynchronous delegations whose end was not reported to the leader.
func unreported(s *team.State) []*team.StepState { return unreportedAt(s, len(s.Steps), s.Ended) }

// unreportedAt returns the asynchronous delegations that were among the first ended steps to end,
// and that none of the first steps has reported to the leader.
func unreportedAt(s *team.State, steps, ended int) []*team.StepState {
	reported := map[*team.StepState]bool{}
	for _, st := range s.Steps[:steps] {
		switch {
		case st.Step.GetKind() == teamv1.Step_KIND_MODEL && (st.Step.GetName() == resultsTurn || st.Step.GetName() == finalTurn):
			for _, w := range watchedBy(s, nil) {
				reported[w] = reported[w] || w.Done && w.EndIndex < st.EndedBefore
			}
		case st.Step.GetName() == checkTool && st.Done && !st.Tool.GetIsError():
			ids, _, _ := checkArguments(s.Arguments(st)) // the check itself could read them
			for _, w := range watchedBy(s, ids) {
				reported[w] = reported[w] || w.Done && w.EndIndex < st.EndIndex
			}
		}
	}
	var left []*team.StepState
	for _, w := range watchedBy(s, nil) {
		if w.Done && w.EndIndex < ended && !reported[w] && !w.Step.GetDetached() {
			left = append(left, w)
		}
	}
	return left
}

// resultsText returns the results that have ended since the leader was last told.
func resultsText(s *team.State, turn *team.StepState) string {
	var b strings.Builder
	for _, st := range unreportedAt(s, slices.Index(s.Steps, turn), turn.EndedBefore) {
		fmt.Fprintf(&b, "\n\n%s\n%s", s.TaskID(st), s.ResultText(st))
	}
	return b.String()
}
