package build

import (
	"context"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// peer is an agent on another server.
type peer interface {
	agent.Agent
	agent.Reaper
	agent.TaskPricer
}

// override replaces parts of the description of an agent.
type override struct {
	peer
	name, description string
	skills            []*teamv1.Skill
	input, output     []string
}

// described returns an agent whose description is replaced by the one in the configuration, as far
// as the configuration has one.
func described(a peer, c *teamv1.AgentConfig) agent.Agent {
	if c.GetName() == "" && c.GetDescription() == "" && len(c.GetSkills())+len(c.GetInputModes())+len(c.GetOutputModes()) == 0 {
		return a
	}
	return &override{peer: a, name: c.GetName(), description: c.GetDescription(), skills: c.GetSkills(), input: c.GetInputModes(), output: c.GetOutputModes()}
}

// Info implements agent.Agent.
func (o *override) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	info, err := o.peer.Info(ctx)
	if err != nil {
		return nil, err
	}
	info = proto.CloneOf(info)
	if o.name != "" {
		info.Name = o.name
	}
	if o.description != "" {
		info.Description, info.External = o.description, false
	}
	if len(o.skills) > 0 {
		info.Skills, info.Capabilities, info.ExternalSkills = o.skills, nil, nil
		for _, s := range o.skills {
			info.Capabilities = append(info.Capabilities, s.GetId())
		}
	}
	if len(o.input) > 0 {
		info.InputModes = o.input
	}
	if len(o.output) > 0 {
		info.OutputModes = o.output
	}
	return info, nil
}
