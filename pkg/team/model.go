package team

import (
	"context"
	"errors"
	"strings"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
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
	// Instructions are its system text.
	Instructions string
	// Skills it offers. A skill's instructions belong in Instructions.
	Skills []*teamv1.Skill
	// Model that answers. Required.
	Model agent.Model
	// Tools the model may call, each name once.
	Tools []agent.Tool
	// Limits: max_turns, timeout and retry count here.
	Limits *teamv1.Limits
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

var _ agent.Agent = (*ModelAgent)(nil)

// NewModelAgent returns a model-backed agent. The error lists every fault.
func NewModelAgent(c ModelAgentConfig) (*ModelAgent, error) {
	tools := map[string]agent.Tool{}
	specs := make([]agent.ToolSpec, len(c.Tools))
	var faults []error
	for i, t := range c.Tools {
		specs[i] = t.Spec()
		if _, twice := tools[specs[i].Name]; twice {
			faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
				"agent %q: two tools are named %q", c.ID, specs[i].Name))
		}
		tools[specs[i].Name] = t
	}
	if c.Model == nil {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "agent %q has no model", c.ID))
	}
	cfg := &Config{
		ID: c.ID, Name: c.Name, Description: c.Description, Mode: "model", Model: c.Model, Limits: c.Limits,
		Revision: c.Revision, ReportErrors: true, Upstreams: c.Upstreams, Log: c.Log,
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Name == "" {
		cfg.Name = c.ID
	}
	cfg.Scheduler = &turns{instructions: c.Instructions, tools: specs, max: effective(c.Limits).maxTurns}
	if err := errors.Join(append(faults, cfg.validate())...); err != nil {
		return nil, err
	}
	return &ModelAgent{loop: newLoop(cfg, tools), info: modelInfo(cfg, c.Skills)}, nil
}

func modelInfo(c *Config, skills []*teamv1.Skill) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{
		Id: c.ID, Name: c.Name, Description: c.Description, Skills: skills,
		Metadata: map[string]string{"type": "model"},
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

// turns is the scheduler of a model-backed agent. The leader of a coordinator
// team is the same loop with members among its tools.
type turns struct {
	instructions string
	tools        []agent.ToolSpec
	max          int
}

var _ Prompter = (*turns)(nil)

// Next implements Scheduler: a turn, the tools it calls one after the other,
// the next turn.
func (t *turns) Next(s *State) (Decision, error) {
	if len(s.Steps) == 0 {
		return modelStep("the message is new"), nil
	}
	last := s.Steps[len(s.Steps)-1]
	if last.Err != nil {
		return Decision{}, last.Err
	}
	turn, called := t.lastTurn(s)
	if calls := turn.Turn.GetToolCalls(); called < len(calls) {
		c := calls[called]
		return Decision{
			Steps:  []*teamv1.Step{{Kind: teamv1.Step_KIND_TOOL, Name: c.GetName(), CallId: c.GetId()}},
			Reason: "the model calls " + c.GetName(),
		}, nil
	}
	if len(turn.Turn.GetToolCalls()) == 0 && turn.heard == len(s.Received) {
		return Decision{Reply: turn.Message, Reason: "the model answered"}, nil
	}
	if t.count(s) >= t.max {
		return Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonMaxIterations,
			"agent %q took %d model turns without an answer, the most it may (limits.max_turns)", s.Team.ID, t.max)
	}
	if turn.heard < len(s.Received) {
		return modelStep("the user has said more"), nil
	}
	return modelStep("the tools have answered"), nil
}

func modelStep(reason string) Decision {
	return Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_MODEL}}, Reason: reason}
}

// lastTurn returns the last turn and how many of its calls have been made.
func (t *turns) lastTurn(s *State) (turn *StepState, called int) {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		if s.Steps[i].Step.GetKind() == teamv1.Step_KIND_MODEL {
			return s.Steps[i], called
		}
		called++
	}
	return nil, called
}

func (t *turns) count(s *State) int {
	n := 0
	for _, st := range s.Steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL {
			n++
		}
	}
	return n
}

// Prompt implements Prompter: the conversation so far, with tool results under
// the calls they answer, and what the user said meanwhile before the turn that
// heard it.
func (t *turns) Prompt(s *State, _ *teamv1.Step) *agent.ModelRequest {
	req := &agent.ModelRequest{Agent: s.Team.ID, Instructions: t.instructions, Tools: t.tools}
	for _, m := range s.History {
		req.Messages = append(req.Messages, said(m))
	}
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleUser, Text: promptText(s.Input)})
	heard := 0
	for _, st := range s.Steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL {
			for ; heard < st.heard; heard++ {
				req.Messages = append(req.Messages, said(s.Received[heard]))
			}
		}
		switch {
		case st.Turn != nil:
			req.Messages = append(req.Messages, agent.ModelMessage{
				Role: agent.RoleAssistant, Text: st.Turn.GetText(), ToolCalls: st.Turn.GetToolCalls(),
			})
		case st.Tool != nil:
			req.Messages = append(req.Messages, agent.ModelMessage{
				Role: agent.RoleTool, Text: st.Tool.GetText(), CallID: st.Step.GetCallId(),
			})
		}
	}
	return req
}

func said(m *a2av1.Message) agent.ModelMessage {
	role := agent.RoleUser
	if m.GetRole() == a2av1.Role_ROLE_AGENT {
		role = agent.RoleAssistant
	}
	return agent.ModelMessage{Role: role, Text: promptText(m)}
}

// promptText is a message as a model reads it: its texts, its data as JSON, and
// a line for what it cannot see.
func promptText(m *a2av1.Message) string {
	var b strings.Builder
	for _, p := range m.GetParts() {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		b.WriteString(partText(p))
	}
	return b.String()
}

func partText(p *a2av1.Part) string {
	switch c := p.GetContent().(type) {
	case *a2av1.Part_Text:
		return c.Text
	case *a2av1.Part_Data:
		data, err := c.Data.MarshalJSON()
		if err != nil {
			return "[data that cannot be shown]"
		}
		return string(data)
	case *a2av1.Part_Url:
		return "[file " + p.GetFilename() + " at " + c.Url + "]"
	case *a2av1.Part_Raw:
		return "[file " + p.GetFilename() + " of type " + p.GetMediaType() + "]"
	}
	return ""
}
