package team

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// offer asks the tool sets for their tools. The first list of a run is recorded, and its prompts
// use that list even after a restart. Calls look a tool up in the current list. The tools of a set
// that does not answer are missing in the run, which its prompts and its reply say.
func (p *process) offer(ctx context.Context) error {
	sets := p.toolSets(ctx)
	if len(sets) == 0 {
		return nil
	}
	p.runner.Tools.Set = map[string]agent.Tool{}
	var specs []agent.ToolSpec
	var missing []string
	from := map[string]string{}
	for _, set := range sets {
		tools, err := set.Tools(ctx)
		if ctx.Err() != nil {
			return p.cause(ctx)
		}
		if err != nil {
			p.cfg.Log.Warn("the tools of a tool set are missing in a run", zap.String("agent", p.cfg.ID), zap.String("tool", set.Name()), zap.Error(err))
			missing = append(missing, missingTools(set.Name(), err))
		}
		for _, t := range tools {
			spec := t.Spec()
			if slices.Contains(p.traits.ReservedTools, spec.Name) {
				return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
					"agent %q: tool %q has %q, which is the name of a tool that agents have in their team; set allow so that it is not offered", p.cfg.ID, set.Name(), spec.Name)
			}
			if other, taken := from[spec.Name]; taken || p.tools[spec.Name] != nil {
				return sameName(p.cfg.ID, spec.Name, other, set.Name())
			}
			from[spec.Name], p.runner.Tools.Set[spec.Name] = set.Name(), t
			specs = append(specs, spec)
		}
	}
	if p.runner.Tools.Missing = missing; p.toolsRecorded {
		return nil
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: toolNote(specs, missing)}})
}

// toolSets returns the agent's own tool sets, and the set that a team provides: the team that it
// leads, or else the one that it works in.
func (l *Loop) toolSets(ctx context.Context) []agent.ToolSet {
	sets := slices.Clip(l.cfg.ToolSets)
	if !l.traits.UsesTools {
		return sets
	}
	if set := l.memberTools(l.cfg.ID); set != nil {
		return append(sets, set)
	}
	if c := inheritedBy(ctx); c != nil && c.tools != nil {
		return append(sets, c.tools)
	}
	return sets
}

// sameName returns the error of two tools with the same name. one is the tool set that has it
// already; empty means a tool of the agent's own.
func sameName(id, name, one, other string) error {
	conflict := fmt.Sprintf("tools %q and %q both have %q", one, other, name)
	if one == "" {
		conflict = fmt.Sprintf("tool %q has %q, which is the name of another tool of the agent", other, name)
	}
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
		"agent %q: %s; set prefix of one of them, or allow so that only one of them is offered", id, conflict)
}

// missingTools returns a text that says that the tools of a set are missing, and why, as far as callers may know it.
func missingTools(set string, err error) string {
	text := fmt.Sprintf("the tools of %q are missing", set)
	var e *agent.Error
	if errors.As(err, &e) {
		why, _, _ := strings.Cut(e.Message, "; ") // what follows is advice
		text += ": " + why
	}
	return text
}

// toolNote returns a note that holds tool specs, and texts that say which tools are missing.
func toolNote(specs []agent.ToolSpec, missing []string) *teamv1.Noted {
	names := make([]string, len(specs))
	list := make([]*structpb.Value, len(specs))
	for i, s := range specs {
		names[i] = s.Name
		list[i] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"name": structpb.NewStringValue(s.Name), "description": structpb.NewStringValue(strings.ToValidUTF8(s.Description, "\uFFFD")),
			"parameters": structpb.NewStringValue(strings.ToValidUTF8(string(s.Parameters), "\uFFFD")), "effect": structpb.NewNumberValue(float64(s.Effect)),
		}})
	}
	text := "the tools are " + strings.Join(names, ", ")
	details := map[string]*structpb.Value{"tools": structpb.NewListValue(&structpb.ListValue{Values: list})}
	if len(missing) > 0 {
		text = strings.Join(append([]string{text}, missing...), "; ")
		why := make([]*structpb.Value, len(missing))
		for i, m := range missing {
			why[i] = structpb.NewStringValue(m)
		}
		details["missing"] = structpb.NewListValue(&structpb.ListValue{Values: why})
	}
	return &teamv1.Noted{Code: agent.NoteTools, Text: text, Details: &structpb.Struct{Fields: details}}
}

// unsafe reports whether a repeated call of a tool could have a second effect. For tools of a tool
// set the recorded spec decides.
func (p *process) unsafe(name string) bool {
	if t, ok := p.tools[name]; ok {
		return t.Spec().Effect == agent.EffectUnsafe
	}
	for _, s := range p.Tools {
		if s.Name == name {
			return s.Effect == agent.EffectUnsafe
		}
	}
	return false
}
