package leader

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Sizes of results in prompts, in bytes.
const (
	leastResult = 4 << 10   // the least bound of a tool's result, however small the context of the model is
	mostResult  = 256 << 10 // the largest bound of a tool's result
)

// shortResults are the sizes to which older results are shortened if a prompt is too long, in bytes: first all
// to the first one, then all to the second.
var shortResults = []int{1 << 10, 128}

// Estimates for prompts, which need not be exact: a provider that refuses a prompt is asked again with a
// shorter one.
const (
	bytesPerToken = 3    // of a prompt; texts in English have 4, others and code less
	outputTokens  = 4096 // what is left for the answer, at most a quarter of the context
)

// shorterTurn is the name of the turn that repeats a request that was too long for the model, with the
// older results shortened.
const shorterTurn = "shorter"

// maxShorter is how often in a row a request is shortened before the run fails.
const maxShorter = 4

// resultBound returns how many bytes of a tool's result are shown to a model at once: about a quarter of
// its context.
func resultBound(window int64) int {
	if window <= 0 {
		return mostResult
	}
	return int(min(max(window, leastResult), mostResult))
}

// shownResult returns the result of a tool as the model is shown it.
func (w *promptWriter) shownResult(st *team.StepState) string {
	text, bound := st.Tool.GetText(), resultBound(w.state.Window)
	if len(text) <= bound || st.Step.GetName() == prompt.ReadTool {
		return text
	}
	w.reads = true
	return prompt.CutTo(text, bound, st.Step.GetId())
}

// result is a message of a prompt that can be shortened.
type result struct {
	text string // the whole text
	note string // what follows the rest of it
}

// fit shortens results, the oldest first, until the request fits into the context of the model, and is shorter
// than each request of the run that was too long for it.
func (w *promptWriter) fit() {
	size := prompt.Size(w.request)
	room := size
	if window := w.state.Window; window > 0 {
		room = int((window - min(window/4, outputTokens)) * bytesPerToken)
	}
	for _, st := range w.state.Steps {
		if bytes := refusedSize(st); bytes > 0 {
			room = min(room, bytes*2/3)
		}
	}
	for _, keep := range shortResults {
		for i := range w.request.Messages {
			r, ok := w.results[i]
			m := &w.request.Messages[i]
			if size <= room {
				return
			}
			if short := agent.Excerpt(r.text, keep) + r.note; ok && len(short) < len(m.Text) {
				size += len(short) - len(m.Text)
				m.Text, m.Parts = short, prompt.WithFiles(short, m.Parts)
				w.reads = w.reads || strings.Contains(r.note, prompt.ReadTool)
			}
		}
	}
}

// resultOf returns how the answer to a call can be shortened.
func (w *promptWriter) resultOf(st *team.StepState, answer string) result {
	switch {
	case st.Step.GetName() == prompt.ReadTool && st.Tool != nil:
		return result{answer, "\n\n[shortened to make room: read it again if you need it]"}
	case st.Tool != nil, st.ByMember() && st.Message != nil:
		return result{answer, fmt.Sprintf("\n\n[shortened to make room. The whole is result %q: read it with %s from offset 0]", st.Step.GetId(), prompt.ReadTool)}
	}
	return result{answer, "\n\n[shortened to make room]"}
}

// refusedSize returns the size of a request that was too long for the model; 0 for all other steps.
func refusedSize(st *team.StepState) int {
	if st.Step.GetKind() != teamv1.Step_KIND_MODEL || st.Err == nil || st.Err.Reason != agent.ReasonContextTooLong {
		return 0
	}
	n, err := strconv.Atoi(st.Err.Details[agent.DetailRequestBytes])
	if err != nil {
		return 0
	}
	return n
}

// shorter returns the decision to repeat a request that was too long for the model, if there is something
// that can be shortened; ok is false if not.
func (l *leader) shorter(s *team.State, r *round) (d team.Decision, ok bool) {
	refused, inRow := refusedSize(r.turn), 0
	for _, st := range slices.Backward(s.Steps) {
		if refusedSize(st) == 0 {
			break
		}
		inRow++
	}
	if refused == 0 || inRow > maxShorter || prompt.Size(l.Prompt(s, r.turn.Step)) >= refused {
		return d, false
	}
	d, err := l.turn(s, r, shorterTurn, "the request was too long for the model: older results are shortened")
	return d, err == nil && len(d.Steps) > 0
}

// hasCuttable reports whether the run has results that a prompt may have cut.
func hasCuttable(s *team.State) bool {
	least := 2 * shortResults[len(shortResults)-1]
	return slices.ContainsFunc(s.Steps, func(st *team.StepState) bool {
		return len(st.Tool.GetText()) > least || st.ByMember() && len(prompt.Text(st.Message)) > least
	}) || hasLong(s)
}
