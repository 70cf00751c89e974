package step

import (
	"context"

	"github.com/agentteams/team-server/pkg/agent"
)

// attempt makes one attempt of a step. It calls the step's target: an agent, a model, a check or a
// tool.
func attempt(ctx context.Context, w *Work) Result {
	ctx = w.by.Run.InSpan(ctx, w.Scope, agent.Given{Prompt: w.Prompt, Message: w.Input, Arguments: w.Arguments})
	switch {
	case w.Target.Agent != nil && w.Step.GetDetached():
		return w.detach(ctx)
	case w.Target.Agent != nil:
		return w.delegate(w.Target.HandDown(ctx))
	case w.Target.Model != nil:
		return w.generate(ctx)
	case w.Target.Check != nil:
		return Result{Reply: w.Target.Check()}
	}
	return w.useTool(ctx)
}

// recovered turns a panic of a called agent into its error. A panic of the loop or of its consumer
// also unwinds through the agent's frames, and is not recovered.
func (w *Work) recovered(member string, res *Result) {
	if w.yielding {
		return
	}
	if v := recover(); v != nil {
		*res = Result{Err: agent.Panicked(w.by.Log, member, v)}
	}
}
