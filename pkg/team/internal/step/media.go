package step

import (
	"context"
	"fmt"

	"github.com/agentteams/team-server/pkg/agent"
)

// media refuses files that a member does not take, before the first attempt.
func media(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if !agent.IsDelegation(w.Step.GetKind()) || w.Attempts > 0 {
			return next(ctx, w)
		}
		if err := agent.CheckFiles(w.Accepts, w.Input); err != nil {
			e := agent.AsError(err).With("member", w.Step.GetMember())
			e.Message = fmt.Sprintf("member %q was given a file that it does not take: %s", w.Step.GetMember(), e.Message)
			return Result{Err: e, rejected: true}
		}
		return next(ctx, w)
	}
}
