package step

import (
	"context"
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
)

// use registers what the attempt is about to use, so that a halt can end it. The error is that of
// Halts.Begin.
func (w *Work) use(ctx context.Context) (*inforce.Use, context.Context, error) {
	s := inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_AGENT}
	switch {
	case w.Target.Agent != nil:
		s.Names = [][]string{{w.Target.AgentID}}
	case w.Target.Model != nil:
		s = inforce.ModelSubject(w.Target.Model)
	case w.Target.Check == nil:
		s = w.by.Tools.subject(w.Step.GetName())
	}
	return inforce.Of(ctx).Begin(ctx, w.Scope, s)
}

// subject returns the subject of a call of a tool.
func (t *Tools) subject(name string) inforce.Subject {
	names := []string{name}
	tool, _ := t.find(name)
	if member, ok := tool.(interface{ ToolSet() string }); ok {
		names = append(names, member.ToolSet())
	}
	return inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_TOOL, Names: [][]string{names}}
}

// haltedStart returns the result of an attempt whose start is on record, if it was halted meanwhile:
// over is true then, and the attempt is not made.
func (w *Work) haltedStart(use *inforce.Use) (res Result, over bool) {
	switch err := use.Check(); {
	case err == nil:
		return Result{}, false
	case errors.Is(err, inforce.ErrHeld):
		return Result{paused: true, notStarted: true}, true
	default:
		return Result{Err: err, notStarted: w.failedTool(err) == nil}, true
	}
}
