package leader

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/inputs"
)

// AgentConfig is the configuration of a model-backed agent.
type AgentConfig struct {
	// ID of the agent. Required.
	ID string
	// Name for people; empty means the ID.
	Name string
	// Description says what the agent does.
	Description string
	// InputModes are the media types that the agent accepts; nil means all.
	InputModes []string
	// OutputModes are the media types of its answers; nil means unspecified.
	OutputModes []string
	// Instructions are the system prompt, in which {{inputs.NAME}} is replaced by the value of an input.
	Instructions string
	// Inputs are values that callers give by name, in data parts of their messages.
	Inputs inputs.List
	// Skills that the agent offers. Their instructions become part of the system prompt and are not
	// published.
	Skills []*teamv1.Skill
	// Model that answers; nil means the model that the team's leader lends it.
	Model agent.Model
	// Tools that the model may call. Names must be unique.
	Tools []agent.Tool
	// ToolSets are further sources of tools, whose lists are read when a run begins.
	ToolSets []agent.ToolSet
	// Guards are the middlewares that check the agent's input and output. Delegation and Result
	// must be empty, because the agent has no members.
	Guards agent.Guards
	// Output is the format that answers must have; nil allows any.
	Output OutputFormat
	// Schema is a JSON Schema of the answers. The model is told to keep to it where its provider can.
	Schema json.RawMessage
	// AcceptTruncated takes answers whose text was cut by a limit of tokens, with a warning. If it is not
	// set, they are asked for again with a higher limit or from a fallback, and then the run fails.
	AcceptTruncated bool
	// AllowEmpty lets a run end without an answer. If it is not set, the model is asked once more, and
	// then the run fails. A run for a team that the agent is a member of may always end without an answer.
	AllowEmpty bool
	// Limits of a run. Only those that apply to a single agent have an effect, such as max_turns,
	// timeout and retry.
	Limits *teamv1.Limits
	// Memory makes the agent remember the conversation of a context id when it is the root of a
	// run. If it is not set, each run begins without memory.
	Memory bool
	// ToolMemory is how many of the last tool calls of a conversation the agent remembers with their
	// results; nil means agent.DefaultToolCalls.
	ToolMemory *int
	// Revision of the definition, for the record.
	Revision string
	// Upstreams are the circuit breakers and retry budgets; nil allows every call.
	Upstreams team.Upstreams
	// Log receives details that callers must not see; nil discards them.
	Log *zap.Logger
}

// Agent is an agent backed by a model. The model takes turns, each followed by the tool calls that
// it asks for, until it answers without calling a tool. Every turn and every call is a recorded
// step. Safe for concurrent use.
type Agent struct {
	*team.Loop
	info *teamv1.AgentInfo
	sets []agent.ToolSet
}

var (
	_ agent.Rememberer = (*Agent)(nil)
	_ agent.Describer  = (*Agent)(nil)
)

// NewAgent returns a model-backed agent. The error joins all faults of the configuration.
func NewAgent(c AgentConfig) (*Agent, error) {
	var faults []error
	specs, err := specsOf(c.Tools)
	if err != nil {
		faults = append(faults, fmt.Errorf("agent %q: %w", c.ID, err))
	}
	faults = append(faults, checkMemberless(c.ID, &c.Guards)...)
	loop, err := team.NewLoop("agent", team.Config{
		ID: c.ID, Name: c.Name, Description: c.Description, Mode: "model", Model: c.Model, Limits: c.Limits,
		InputModes: c.InputModes, OutputModes: c.OutputModes, Inputs: c.Inputs,
		Tools: c.Tools, ToolSets: c.ToolSets, Memory: c.Memory, ToolMemory: c.ToolMemory, Revision: c.Revision, ReportErrors: true, Guards: c.Guards, Upstreams: c.Upstreams, Log: c.Log,
		AcceptTruncated: c.AcceptTruncated, AllowEmpty: c.AllowEmpty,
		Scheduler: &leader{instructions: withSkills(c.Instructions, c.Skills), tools: specs, maxTurns: limit(c.Limits.GetMaxTurns(), DefaultTurns), maxRepeated: repeatedLimit(c.Limits), onLimit: onLimit(c.Limits, ""), output: c.Output, schema: c.Schema},
	})
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return &Agent{Loop: loop, info: infoOf(&c), sets: c.ToolSets}, nil
}

// infoOf returns the published info of an agent.
func infoOf(c *AgentConfig) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{
		Id: c.ID, Name: cmp.Or(c.Name, c.ID), Description: c.Description, Skills: agent.PublicSkills(c.Skills),
		Metadata: map[string]string{"type": "model"}, InputModes: c.InputModes, OutputModes: c.OutputModes, Inputs: c.Inputs.Schema(),
	}
	if c.Model != nil {
		agent.SetFiles(info, agent.FilesOf(c.Model))
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

// HealthCheck implements agent.Agent. The agent is always healthy; the model is not called. The detail names the tool
// sets that have not answered yet.
func (a *Agent) HealthCheck(context.Context) (*teamv1.Health, error) {
	h := agent.Healthy()
	var missing []string
	for _, set := range a.sets {
		if s, ok := set.(interface{ Answered() bool }); ok && !s.Answered() {
			missing = append(missing, strconv.Quote(set.Name()))
		}
	}
	if len(missing) > 0 {
		h.Detail = "tools that have not answered yet: " + strings.Join(missing, ", ")
	}
	return h, nil
}

// checkMemberless returns the fault of middlewares for members, which an agent does not have.
func checkMemberless(id string, g *agent.Guards) []error {
	if len(g.Delegation)+len(g.Result) == 0 {
		return nil
	}
	return []error{agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
		"agent %q has no members: guards.delegation and guards.result belong to a team; remove them", id)}
}
