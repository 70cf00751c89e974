package build

import (
	"fmt"

	"github.com/agentteams/team-server/internal/askuser"
	"github.com/agentteams/team-server/pkg/agent"
)

// part returns a part of the program that has loaded the file. It lacks one only if a run began with another definition,
// before the program changed.
func part[V any](of map[string]V, what, name string) (V, error) {
	p, has := of[name]
	if !has {
		return p, fmt.Errorf("the program no longer has the %s %q", what, name)
	}
	return p, nil
}

// ownTools returns the tools in a list of names that the server itself or the program has.
func (b *builder) ownTools(names []string) (tools []agent.Tool, err error) {
	for _, name := range names {
		var t agent.Tool
		switch {
		case name == askuser.Name:
			t = askuser.Tool{}
		case b.server.GetTools()[name].GetProgram() != nil:
			if t, err = part(b.Definition.Program.Tools, "tool", name); err != nil {
				return nil, err
			}
		default: // of a tool set
			continue
		}
		tools = append(tools, t)
	}
	return tools, nil
}
