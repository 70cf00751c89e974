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

// checkTool is the tool by which a leader looks after its tickets.
const checkTool = "check_delegated_tasks"

// maxWait is how long a leader may wait for work that is under way.
const maxWait = 30 * time.Second

// pollEvery is how often a check that waits looks for the end of a task of its own.
const pollEvery = time.Second

var checkSpec = agent.ToolSpec{
	Name:        checkTool,
	Description: "Tells how delegated tasks stand, and the results of those that have ended.",
	Parameters: json.RawMessage(`{"type":"object","properties":{` +
		`"task_ids":{"type":"array","items":{"type":"string"},"description":"The tickets; none is all."},` +
		`"wait_seconds":{"type":"number","minimum":0,"maximum":30,"description":"How long to wait for one of them to end."}}}`),
}

// Answer implements [team.Scheduler]: a leader's look at its tickets, and at a long result.
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

// check tells how delegations stand. It waits while the time asked for has not
// passed, one of them may still end, and there is no end that the leader does not
// know of.
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

// checkArguments reads the arguments of check_delegated_tasks; all are optional.
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

// watchedBy are the asynchronous delegations that a check is about.
func watchedBy(s *team.State, ids []string) []*team.StepState {
	var watched []*team.StepState
	for _, st := range s.Steps {
		if st.Step.GetAsync() && st.ByMember() && st.Refusal == nil && (len(ids) == 0 || slices.Contains(ids, s.TaskID(st))) {
			watched = append(watched, st)
		}
	}
	return watched
}

// waitsOn reports whether one of them can end without people, and none has ended
// that no turn or check before has told of.
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

// unreported are the asynchronous delegations whose end the leader has not been told.
func unreported(s *team.State) []*team.StepState { return unreportedAt(s, len(s.Steps), s.Ended) }

// unreportedAt are those that had ended when so many steps had, and that no turn
// or check among the first steps has told of.
func unreportedAt(s *team.State, steps, ended int) []*team.StepState {
	told := map[*team.StepState]bool{}
	for _, st := range s.Steps[:steps] {
		switch {
		case st.Step.GetKind() == teamv1.Step_KIND_MODEL && (st.Step.GetName() == resultsTurn || st.Step.GetName() == finalTurn):
			for _, w := range watchedBy(s, nil) {
				told[w] = told[w] || w.Done && w.EndIndex < st.EndedBefore
			}
		case st.Step.GetName() == checkTool && st.Done && !st.Tool.GetIsError():
			ids, _, _ := checkArguments(s.Arguments(st)) // the check itself could read them
			for _, w := range watchedBy(s, ids) {
				told[w] = told[w] || w.Done && w.EndIndex < st.EndIndex
			}
		}
	}
	var left []*team.StepState
	for _, w := range watchedBy(s, nil) {
		if w.Done && w.EndIndex < ended && !told[w] && !w.Step.GetDetached() {
			left = append(left, w)
		}
	}
	return left
}

// resultsText tells a leader what has ended since it last looked.
func resultsText(s *team.State, turn *team.StepState) string {
	var b strings.Builder
	for _, st := range unreportedAt(s, slices.Index(s.Steps, turn), turn.EndedBefore) {
		fmt.Fprintf(&b, "\n\n%s\n%s", s.TaskID(st), s.ResultText(st))
	}
	return b.String()
}
