package team

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// noteTools is the code of the note that holds what the tool sets offer.
const noteTools = "TOOLS"

// offer asks the tool sets what they offer. What they say first is put on record,
// and the run keeps to it: prompts are made of it, also after a restart.
// Calls look the tool up in what is on offer now.
func (p *process) offer(ctx context.Context) error {
	sets := p.toolSets(ctx)
	if len(sets) == 0 {
		return nil
	}
	p.runner.Tools.Set = map[string]agent.Tool{}
	var specs []agent.ToolSpec
	from := map[string]string{}
	for _, set := range sets {
		tools, err := set.Tools(ctx)
		if ctx.Err() != nil {
			return p.cause(ctx)
		}
		if err != nil {
			return agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
				"agent %q cannot work: tool %q does not say what it offers; try again later", p.cfg.ID, set.Name()).Because(err)
		}
		for _, t := range tools {
			spec := t.Spec()
			if slices.Contains(p.traits.ReservedTools, spec.Name) {
				return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
					"agent %q: tool %q has %q, which is the name of a tool that the agent is given by its team; let it not allow it", p.cfg.ID, set.Name(), spec.Name)
			}
			if other, taken := from[spec.Name]; taken || p.tools[spec.Name] != nil {
				return sameName(p.cfg.ID, spec.Name, other, set.Name())
			}
			from[spec.Name], p.runner.Tools.Set[spec.Name] = set.Name(), t
			specs = append(specs, spec)
		}
	}
	if p.offered {
		return nil
	}
	return p.emit("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: toolNote(specs)}})
}

// toolSets are the agent's own, and those that it has by the team that it leads, or
// else works in.
func (p *process) toolSets(ctx context.Context) []agent.ToolSet {
	sets := slices.Clip(p.cfg.ToolSets)
	if !p.traits.UsesTools {
		return sets
	}
	if set := p.memberTools(p.cfg.ID); set != nil {
		return append(sets, set)
	}
	if c := inheritedBy(ctx); c != nil && c.tools != nil {
		return append(sets, c.tools)
	}
	return sets
}

// sameName is the error of two tools that a model cannot tell apart. one is empty
// for a tool of the agent's own.
func sameName(id, name, one, other string) error {
	whose := fmt.Sprintf("tools %q and %q both have", one, other)
	if one == "" {
		whose = fmt.Sprintf("tool %q has what is a tool already,", other)
	}
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError,
		"agent %q: %s %q; let one of them not allow it", id, whose, name)
}

// toolNote puts tools into a note.
func toolNote(specs []agent.ToolSpec) *teamv1.Noted {
	names := make([]string, len(specs))
	list := make([]*structpb.Value, len(specs))
	for i, s := range specs {
		names[i] = s.Name
		list[i] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"name": structpb.NewStringValue(s.Name), "description": structpb.NewStringValue(strings.ToValidUTF8(s.Description, "\uFFFD")),
			"parameters": structpb.NewStringValue(strings.ToValidUTF8(string(s.Parameters), "\uFFFD")), "effect": structpb.NewNumberValue(float64(s.Effect)),
		}})
	}
	return &teamv1.Noted{
		Code: noteTools, Text: "the tools are " + strings.Join(names, ", "),
		Details: &structpb.Struct{Fields: map[string]*structpb.Value{"tools": structpb.NewListValue(&structpb.ListValue{Values: list})}},
	}
}

// unsafe reports whether a second call of a tool would be a second effect. What
// was said when the run began counts.
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
