package leader

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Sizes of results in prompts, in bytes.
const (
	leastResult = 4 << 10   // the least bound of a tool's result, however small the context of the model is
	mostResult  = 256 << 10 // the largest bound of a tool's result
	shortResult = 1 << 10   // what remains of an older result when a prompt is too long
)

// Estimates for prompts, which need not be exact: a provider that refuses a prompt is asked again with a
// shorter one.
const (
	bytesPerToken = 3    // of a prompt; texts in English have 4, others and code less
	outputTokens  = 4096 // what is left for the answer, at most a quarter of the context
)

// pastCalls stands for the name of a message about the tool calls of earlier runs, which cannot be read on.
const pastCalls = "past calls"

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

// fit shortens the results of tools and members, the oldest first, until the request fits into the context
// of the model, and so that each request after one that was too long for it is shorter.
func (w *promptWriter) fit() {
	size := sizeOf(w.request)
	room := size
	if window := w.state.Window; window > 0 {
		room = int((window - min(window/4, outputTokens)) * bytesPerToken)
	}
	room = min(room, size>>tooLong(w.state.Steps))
	for i := range w.request.Messages {
		m, name := &w.request.Messages[i], w.results[i]
		if size <= room {
			return
		}
		if name == "" || len(m.Text) <= 2*shortResult {
			continue
		}
		size -= len(m.Text)
		if name == pastCalls {
			m.Text = agent.Excerpt(m.Text, shortResult) + "\n[cut, because the conversation is too long]"
		} else {
			m.Text = prompt.CutTo(m.Text, shortResult, name)
			m.Parts = prompt.WithFiles(m.Text, m.Parts)
			w.reads = true
		}
		size += len(m.Text)
	}
}

// hasCuttable reports whether the run has results that a prompt may have cut.
func hasCuttable(s *team.State) bool {
	return slices.ContainsFunc(s.Steps, func(st *team.StepState) bool {
		return len(st.Tool.GetText()) > 2*shortResult || st.ByMember() && len(prompt.Text(st.Message)) > 2*shortResult
	}) || hasLong(s)
}

// sizeOf returns the size of the texts of a request, in bytes.
func sizeOf(req *agent.ModelRequest) int {
	n := len(req.Instructions)
	for _, m := range req.Messages {
		n += len(m.Text) + len(m.State)
		for _, c := range m.ToolCalls {
			n += len(c.GetName()) + len(c.GetArguments())
		}
	}
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}

// tooLong returns how many requests of the run were too long for the model.
func tooLong(steps []*team.StepState) (n int) {
	for _, st := range steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL && st.Err != nil && st.Err.Reason == agent.ReasonContextTooLong {
			n++
		}
	}
	return n
}

// shorter returns the decision to repeat a request that was too long for the model, if there are results
// that can be shortened; ok is false if not.
func (l *leader) shorter(s *team.State, r *round) (d team.Decision, ok bool) {
	if r.turn.Err == nil || r.turn.Err.Reason != agent.ReasonContextTooLong || tooLong(s.Steps) > maxShorter {
		return d, false
	}
	if !hasCuttable(s) {
		return d, false
	}
	d, err := l.turn(s, r, shorterTurn, "the request was too long for the model: older results are shortened")
	return d, err == nil && len(d.Steps) > 0
}
