package step

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tools are the tools that TOOL steps call, by name.
type Tools struct {
	Own map[string]agent.Tool // tools of the agent itself
	Set map[string]agent.Tool // what the tool sets currently offer
	// Missing says which tool sets do not answer, and why.
	Missing []string
}

// find returns the tool with a name. The agent's own tools take precedence.
func (t *Tools) find(name string) (agent.Tool, bool) {
	if own, ok := t.Own[name]; ok {
		return own, true
	}
	of, ok := t.Set[name]
	return of, ok
}

func (t *Tools) names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(t.Own)), maps.Keys(t.Set))
	slices.Sort(names)
	return names
}

// useTool calls a tool. A failure becomes the tool's result, so that the model can react to it.
func (w *Work) useTool(ctx context.Context) Result {
	if reply := w.ruledReply(); reply != nil {
		return Result{Reply: reply}
	}
	if w.Unsafe && w.Unknown && !w.Answered {
		return w.askOutcome("this server stopped before it ended")
	}
	tool, ok := w.by.Tools.find(w.Step.GetName())
	if !ok {
		why := append([]string{"the tools are " + strings.Join(w.by.Tools.names(), ", ")}, w.by.Tools.Missing...)
		return toolFailed("there is no tool %q; %s", w.Step.GetName(), strings.Join(why, "; "))
	}
	arguments, valid := toolArguments(w.Arguments)
	if !valid {
		return toolFailed("the arguments of %s are no JSON", w.Step.GetName())
	}
	answer, ask, err := callTool(ctx, w.by.Log, tool, w.toolCall(arguments))
	if ctx.Err() != nil {
		releaseTool(tool, w.key())
		return Result{Err: context.Cause(ctx)}
	}
	if err != nil {
		e := agent.AsError(err)
		if w.Unsafe && e.Retry && !e.Fresh {
			return w.askOutcome("it ended without a result: " + e.Message)
		}
		return Result{Err: e}
	}
	if ask != nil {
		return w.askForTool(ask)
	}
	return Result{Reply: toolReply(w.withEdit(answer))}
}

// callTool calls a tool in a goroutine, or continues the call after an answer to its question. If ctx
// ends first, it returns at once and discards the answer. Without an error it returns a result or a
// question.
func callTool(ctx context.Context, log *zap.Logger, tool agent.Tool, call agent.ToolCall) (*teamv1.ToolResult, *agent.ToolAsk, error) {
	var answer *teamv1.ToolResult
	var ask *agent.ToolAsk
	var err error
	var decided atomic.Bool // set by the first of two events: the call, or the end of ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = agent.Panicked(log, tool.Spec().Name, v)
			}
		}()
		if decided.Swap(true) {
			return
		}
		if asking, ok := tool.(agent.AskingTool); ok {
			answer, ask, err = asking.CallAsking(ctx, call)
		} else {
			answer, err = tool.Call(ctx, call.Arguments, call.Key)
		}
	}()
	select {
	case <-done:
		return answer, ask, err
	case <-ctx.Done():
		decided.Store(true) // a call that has not begun must not begin: the end goes on record
		return nil, nil, context.Cause(ctx)
	}
}

func toolReply(r *teamv1.ToolResult) *teamv1.Reply {
	return &teamv1.Reply{Result: &teamv1.Reply_Tool{Tool: r}, Spent: &teamv1.Spent{ToolCalls: 1}}
}

func toolFailed(format string, args ...any) Result {
	return Result{Reply: toolReply(&teamv1.ToolResult{Text: fmt.Sprintf(format, args...), IsError: true})}
}

// failedTool returns the result that the model gets for a failed call that is not repeated; nil if
// the step is not a TOOL step, or if the tool panicked.
func failedTool(step *teamv1.Step, err error) *teamv1.Reply {
	e := agent.AsError(err)
	if step.GetKind() != teamv1.Step_KIND_TOOL || e.Reason == agent.ReasonAgentPanic {
		return nil
	}
	text := step.GetName() + " failed: " + e.Message
	if e.Reason == agent.ReasonHalted && !e.Fresh {
		text += ". The call had begun, and it is not known what became of it"
	}
	return toolReply(&teamv1.ToolResult{Text: text, IsError: true})
}

// The options of a question about a call whose outcome is unknown.
const (
	OutcomeDone  = "it was done"
	OutcomeAgain = "call it again"
	OutcomeFail  = "fail"
)

// maxShown is the maximum number of bytes of a call's arguments that a question shows.
const maxShown = 500

// askOutcome asks people about the outcome of a call of an unsafe tool that was started and whose
// end is unknown: after a crash, or because the connection broke. The call is not repeated before
// they say so, and they are asked again about every such call.
func (w *Work) askOutcome(why string) Result {
	return w.ask(&teamv1.Asked{
		Kind: teamv1.Asked_KIND_OUTCOME, Message: &a2av1.Message{Parts: QuestionParts(&teamv1.Ask{
			Question: fmt.Sprintf("%s called %s with %s, and %s. What became of it?", w.by.ID, w.Step.GetName(), agent.Excerpt(w.Arguments, maxShown), why),
			Options:  []string{OutcomeDone, OutcomeAgain, OutcomeFail},
		})},
	}, 0)
}

// reopen applies the answer to such a question. The answer to call again starts another attempt, so
// that a crash during that attempt leads to a new question.
func (p *Past) reopen() {
	if p.Ruling != nil && p.ruledReply() == nil {
		p.Open, p.Unknown, p.Ruling = false, false, nil
	}
}

// ruledReply returns the reply of a call that people have ruled on; nil if the call is to be made.
func (p *Past) ruledReply() *teamv1.Reply {
	said := strings.TrimSpace(agent.Text(p.Ruling))
	switch {
	case p.Ruling == nil || strings.EqualFold(said, OutcomeAgain):
		return nil
	case strings.EqualFold(said, OutcomeDone):
		return toolReply(&teamv1.ToolResult{Text: "The result of this call is not known. A person has looked and says that it was done. Do not call it again."})
	}
	return toolReply(&teamv1.ToolResult{Text: "It is not known what became of this call. A person has looked and says that it counts as failed.", IsError: true})
}
