package step

import (
	"errors"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
)

// subject returns what an attempt at t uses, so that a halt can end it. tool is the name of the tool that a TOOL step calls,
// and tools are those that there are.
func (t *Target) subject(tool string, tools *Tools) inforce.Subject {
	switch {
	case t.Agent != nil:
		return inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_AGENT, Names: [][]string{{t.AgentID}}}
	case t.Model != nil:
		return inforce.ModelSubject(t.Model)
	case t.Check == nil:
		return tools.subject(tool)
	}
	return inforce.Subject{Kind: teamv1.HaltKind_HALT_KIND_AGENT}
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
func haltedStart(step *teamv1.Step, use *inforce.Use) (res Result, over bool) {
	switch err := use.Check(); {
	case err == nil:
		return Result{}, false
	case errors.Is(err, inforce.ErrHeld):
		return Result{paused: true, notStarted: true}, true
	default:
		return Result{Err: err, notStarted: failedTool(step, err) == nil}, true
	}
}
