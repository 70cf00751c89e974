package step

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/pkg/agent"
)

// toolCall returns the call of a step's tool. A call whose effect must not happen twice continues
// after an answer, or not at all.
func (w *Work) toolCall(arguments json.RawMessage) agent.ToolCall {
	return agent.ToolCall{
		Arguments: arguments, Key: w.key(), Answers: w.ToolAnswers,
		Continue: w.Answered, Once: w.Answered && w.Unsafe && w.Unknown, Repeatable: !w.Unsafe,
	}
}

// applyToolAnswer folds the answer to a question that a tool has asked. a is nil if the question has
// expired.
func (p *Past) applyToolAnswer(q *teamv1.Asked, a *teamv1.Answered) {
	answer := a.GetToolAnswer()
	if answer == nil {
		answer = &teamv1.ToolAnswer{Action: teamv1.ToolAnswer_ACTION_CANCEL}
	}
	p.ToolAnswers = append(slices.Clip(p.ToolAnswers), agent.AnsweredTool{Question: q.GetToolQuestion(), State: q.GetToolState(), Answer: answer, Expired: a.GetToolAnswer() == nil})
	p.Answered = true
}

// maxToolText is the maximum number of bytes of a tool's message in the text of a question.
const maxToolText = 4000

// askForTool asks people what a tool asks. A question that people cannot be asked is the call's
// failure.
func (w *Work) askForTool(ask *agent.ToolAsk) Result {
	q := proto.CloneOf(ask.Question)
	q.By = w.by.Path
	form, err := forms.ParseToolForm(q)
	if err != nil {
		return toolFailed("%s asked a question that cannot be shown to people: %s", w.Step.GetName(), err)
	}
	text := q.GetMessage()
	if !ask.Plain {
		text = toolAsks(w.Step.GetName(), q) + form.Describe()
	}
	return w.ask(&teamv1.Asked{
		Kind: teamv1.Asked_KIND_INPUT, Roles: ask.Roles, ToolQuestion: q, ToolState: ask.State,
		Message: &a2av1.Message{Parts: QuestionParts(&teamv1.Ask{Question: text, Options: form.Options()})},
	}, ask.Expires)
}

// toolAsks says which tool of which agent asks what.
func toolAsks(tool string, q *teamv1.ToolQuestion) string {
	text := fmt.Sprintf("%s called by %q asks:\n%s\n", tool, q.GetBy(), forms.Quoted(q.GetMessage(), maxToolText))
	if q.GetServer() != "" {
		text = fmt.Sprintf("The MCP server %q, whose tool ", q.GetServer()) + text
	} else {
		text = "The tool " + text
	}
	if q.GetUrl() != "" {
		text += fmt.Sprintf("It wants you to open this address. Check it before you do, and give your data only there: %s\n", q.GetUrl())
	}
	return text
}

// releaseTool ends the call with a key that the tool keeps open, if there is one.
func releaseTool(tool agent.Tool, key string) {
	if asking, ok := tool.(agent.AskingTool); ok {
		asking.Release(key)
	}
}

// Release ends the call of a step that one of the tools or tool sets keeps open in this process for an
// answer that is no longer awaited.
func (r *Runner) Release(w *Work, sets []agent.ToolSet) {
	if w.by = r; w.Step.GetKind() != teamv1.Step_KIND_TOOL {
		return
	}
	if own, ok := r.Tools.Own[w.Step.GetName()]; ok {
		releaseTool(own, w.key())
	}
	for _, set := range sets { // which one has the tool is not known in a run that has ended
		if asking, ok := set.(interface{ Release(key string) }); ok {
			asking.Release(w.key())
		}
	}
}
