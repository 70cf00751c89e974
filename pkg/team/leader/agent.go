package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// AgentConfig is what a model-backed agent is made of.
type AgentConfig struct {
	// ID of the agent. Required.
	ID string
	// Name for people; default: the ID.
	Name string
	// Description says what the agent does.
	Description string
	// InputModes are the media types that it takes; nil takes everything.
	InputModes []string
	// OutputModes are the media types that it answers with; nil says nothing.
	OutputModes []string
	// Instructions are its system text.
	Instructions string
	// Skills it offers. Their instructions are part of its system text, and shown to
	// nobody else.
	Skills []*teamv1.Skill
	// Model that answers; unset: the one of the team's leader it works for.
	Model agent.Model
	// Tools the model may call, each name once.
	Tools []agent.Tool
	// ToolSets hold tools whose lists are not known beforehand.
	ToolSets []agent.ToolSet
	// Guards look at what the agent is given and what it answers; none. It has no
	// members, so those of delegations are refused.
	Guards agent.Guards
	// Output is what answers must fit; nil is anything.
	Output OutputFormat
	// Limits: max_turns, timeout and retry count here.
	Limits *teamv1.Limits
	// Memory: the agent remembers the conversation that a context id names, where
	// it is the root of a run. Unset: each run begins from nothing.
	Memory bool
	// Revision of the definition, for the record.
	Revision string
	// Upstreams knows how calls went of late; nil: every call is made.
	Upstreams team.Upstreams
	// Log gets what callers must not see; nil is none.
	Log *zap.Logger
}

// Agent is an agent that a model answers for: turn, tool calls, results,
// next turn, until the model answers without calling a tool. Every turn and
// call is a step on record. Safe for concurrent use.
type Agent struct {
	*team.Loop
	info *teamv1.AgentInfo
}

var (
	_ agent.Rememberer = (*Agent)(nil)
	_ agent.Describer  = (*Agent)(nil)
)

// NewAgent returns a model-backed agent. The error lists every fault.
func NewAgent(c AgentConfig) (*Agent, error) {
	var faults []error
	specs, err := specsOf(c.Tools)
	if err != nil {
		faults = append(faults, fmt.Errorf("agent %q: %w", c.ID, err))
	}
	faults = append(faults, checkMemberless(c.ID, &c.Guards)...)
	loop, err := team.NewLoop("agent", team.Config{
		ID: c.ID, Name: c.Name, Description: c.Description, Mode: "model", Model: c.Model, Limits: c.Limits,
		InputModes: c.InputModes, OutputModes: c.OutputModes,
		Tools: c.Tools, ToolSets: c.ToolSets, Memory: c.Memory, Revision: c.Revision, ReportErrors: true, Guards: c.Guards, Upstreams: c.Upstreams, Log: c.Log,
		Scheduler: &leader{instructions: withSkills(c.Instructions, c.Skills), tools: specs, maxTurns: limit(c.Limits.GetMaxTurns(), defaultTurns), output: c.Output},
	})
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return &Agent{Loop: loop, info: infoOf(&c)}, nil
}

func infoOf(c *AgentConfig) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{
		Id: c.ID, Name: cmp.Or(c.Name, c.ID), Description: c.Description, Skills: agent.PublicSkills(c.Skills),
		Metadata: map[string]string{"type": "model"}, InputModes: c.InputModes, OutputModes: c.OutputModes,
	}
	for _, s := range c.Skills {
		info.Capabilities = append(info.Capabilities, s.GetId())
	}
	return info
}

// Info implements agent.Agent.
func (a *Agent) Info(context.Context) (*teamv1.AgentInfo, error) { return a.info, nil }

// KnownInfo implements agent.Describer.
func (a *Agent) KnownInfo() *teamv1.AgentInfo { return a.info }

// HealthCheck implements agent.Agent: an agent that can describe itself is
// healthy. It makes no model call.
func (a *Agent) HealthCheck(context.Context) (*teamv1.Health, error) {
	return agent.Healthy(), nil
}

// checkMemberless refuses middlewares for members that an agent does not have.
func checkMemberless(id string, g *agent.Guards) []error {
	if len(g.Delegation)+len(g.Result) == 0 {
		return nil
	}
	return []error{agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
		"agent %q has no members: guards.delegation and guards.result belong to a team; remove them", id)}
}
