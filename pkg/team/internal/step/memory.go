package step

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/pkg/team/prompt"
)

// memory waits until there is memory for what an attempt gives to its target, and returns it when the attempt
// has ended. An attempt whose target has steps of its own needs none: these do.
func memory(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		if w.by.Run.CallMemory == nil || !w.Target.Leaf {
			return next(ctx, w)
		}
		ctx, end, err := w.by.Run.BeginCall(ctx, w.size())
		if err != nil {
			return Result{Err: err, notStarted: true}
		}
		defer end()
		return next(ctx, w)
	}
}

// size returns the size in bytes of what an attempt gives to its target.
func (w *Work) size() int64 {
	n := len(w.Arguments) + proto.Size(w.Input)
	for _, m := range w.History {
		n += proto.Size(m)
	}
	if w.Prompt != nil {
		n += prompt.Size(w.Prompt)
		for _, m := range w.Prompt.Messages {
			for _, part := range m.Parts {
				n += proto.Size(part)
			}
		}
	}
	return int64(n)
}
