package team

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// ModelAgentConfig is what a model-backed agent is made of.
type ModelAgentConfig struct {
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
	// nobody else (R-003-34).
	Skills []*teamv1.Skill
	// Model that answers; unset: the one of the team's leader it works for (R-003-14).
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
	Upstreams Upstreams
	// Log gets what callers must not see; nil is none.
	Log *zap.Logger
}

// ModelAgent is an agent that a model answers for: turn, tool calls, results,
// next turn, until the model answers without calling a tool. Every turn and
// call is a step on record. Safe for concurrent use.
type ModelAgent struct {
	loop
	info *teamv1.AgentInfo
}

var _ agent.Rememberer = (*ModelAgent)(nil)

// NewModelAgent returns a model-backed agent. The error lists every fault.
func NewModelAgent(c ModelAgentConfig) (*ModelAgent, error) {
	var faults []error
	specs, err := specsOf(c.Tools)
	if err != nil {
		faults = append(faults, fmt.Errorf("agent %q: %w", c.ID, err))
	}
	cfg := &Config{
		ID: c.ID, Name: c.Name, Description: c.Description, Mode: "model", Model: c.Model, Limits: c.Limits,
		InputModes: c.InputModes, OutputModes: c.OutputModes,
		Tools: c.Tools, ToolSets: c.ToolSets, Memory: c.Memory, Revision: c.Revision, ReportErrors: true, Guards: c.Guards, Upstreams: c.Upstreams,
		Log: c.Log, output: c.Output,
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Name == "" {
		cfg.Name = c.ID
	}
	cfg.Scheduler = &leader{instructions: withSkills(c.Instructions, c.Skills), tools: specs, maxTurns: effective(c.Limits).maxTurns, output: c.Output}
	faults = append(faults, checkMemberless(c.ID, &c.Guards)...)
	if err := errors.Join(append(faults, cfg.validate())...); err != nil {
		return nil, err
	}
	return &ModelAgent{loop: newLoop("agent", cfg), info: modelInfo(cfg, shown(c.Skills))}, nil
}

func modelInfo(c *Config, skills []*teamv1.Skill) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{
		Id: c.ID, Name: c.Name, Description: c.Description, Skills: skills,
		Metadata: map[string]string{"type": "model"}, InputModes: c.InputModes, OutputModes: c.OutputModes,
	}
	for _, s := range skills {
		info.Capabilities = append(info.Capabilities, s.GetId())
	}
	return info
}

// Info implements agent.Agent.
func (a *ModelAgent) Info(context.Context) (*teamv1.AgentInfo, error) { return a.info, nil }

// HealthCheck implements agent.Agent: an agent that can describe itself is
// healthy (R-000-03). It makes no model call.
func (a *ModelAgent) HealthCheck(context.Context) (*teamv1.Health, error) {
	return agent.Healthy(), nil
}
