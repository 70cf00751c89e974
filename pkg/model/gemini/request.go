package gemini

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// unnamed is the prefix of the ids that toolCall generates for calls without an id of the provider.
// Generated ids are not sent to the provider.
const unnamed = "unnamed-"

// unsigned replaces the signature of a call that another model made, because the provider rejects
// calls without a signature. The provider defines this value.
const unsigned = "skip_thought_signature_validator"

// The roles of messages.
const (
	roleUser  = "user"
	roleModel = "model"
)

// lenient matches the models that do not require signatures.
var lenient = regexp.MustCompile(`^(models/)?gemini-[12]\b`)

// request converts a request, without what the endpoint has refused.
func (m *Model) request(req *agent.ModelRequest, without map[string]bool) *generateRequest {
	r := &generateRequest{Contents: m.contents(req), GenerationConfig: m.generation(req, without)}
	if req.Instructions != "" {
		r.SystemInstruction = &content{roleUser, []*part{{Text: model.Text(req.Instructions)}}}
	}
	if len(req.Tools) > 0 {
		var t tools
		for _, spec := range req.Tools { // the schema is passed on unchanged
			t.FunctionDeclarations = append(t.FunctionDeclarations, functionDeclaration{spec.Name, spec.Description, spec.Parameters})
		}
		r.Tools = []tools{t}
	}
	if req.Force != "" {
		r.ToolConfig = &toolConfig{functionCallingConfig{"ANY", []string{req.Force}}}
	}
	return r
}

// generation returns the settings of the answer. Models before Gemini 3 refuse a schema together with
// functions.
func (m *Model) generation(req *agent.ModelRequest, without map[string]bool) generationConfig {
	s := m.config.Settings
	if s == nil {
		s = &teamv1.ModelSettings{}
	}
	c := generationConfig{
		MaxOutputTokens: m.config.Output(req.MaxOutput), Temperature: s.Temperature, TopP: s.TopP, Seed: s.Seed, StopSequences: s.GetStop(),
	}
	if effort := s.GetReasoningEffort(); effort != "" {
		c.ThinkingConfig = &thinkingConfig{effort}
	}
	if len(req.Schema) > 0 && !without[string(req.Schema)] && (len(req.Tools) == 0 || !lenient.MatchString(m.config.Name)) {
		c.ResponseMIMEType, c.ResponseSchema = "application/json", req.Schema
	}
	return c
}

// contents converts the conversation. The results of the calls of a turn form one message, and the
// first message is the user's.
func (m *Model) contents(req *agent.ModelRequest) []*content {
	var out []*content
	names := map[string]string{}
	results := false
	for _, msg := range req.Messages {
		for _, c := range msg.ToolCalls {
			names[c.GetId()] = c.GetName()
		}
		role := roleUser
		if msg.Role == agent.RoleAssistant {
			role = roleModel
		}
		if len(out) == 0 && role == roleModel {
			out = append(out, &content{roleUser, []*part{{Text: model.Nothing}}})
		}
		parts := m.parts(msg, names)
		if msg.Role == agent.RoleTool && results {
			last := out[len(out)-1]
			last.Parts = append(last.Parts, parts...)
			continue
		}
		results = msg.Role == agent.RoleTool
		out = append(out, &content{role, parts})
	}
	return out
}

func (m *Model) parts(msg agent.ModelMessage, names map[string]string) []*part {
	switch msg.Role {
	case agent.RoleTool:
		name := msg.Tool
		if name == "" {
			name = names[msg.CallID]
		}
		return append([]*part{{FunctionResponse: &functionResponse{
			ID: sentID(msg.CallID), Name: name, Response: response{msg.Text},
		}}}, files(msg.Parts)...)
	case agent.RoleAssistant:
		return m.modelParts(msg)
	default:
		if msg.Parts != nil {
			return contents(msg.Parts)
		}
		return []*part{{Text: model.Text(msg.Text)}}
	}
}

// modelParts returns the parts of a turn, unchanged if this model made it.
func (m *Model) modelParts(msg agent.ModelMessage) []*part {
	var parts []*part
	if model.UnpackState(msg.State, provider, m.config.Name, &parts) && len(parts) > 0 {
		return parts
	}
	parts = nil
	if strings.TrimSpace(msg.Text) != "" || len(msg.ToolCalls) == 0 {
		parts = append(parts, &part{Text: model.Text(msg.Text)})
	}
	for i, c := range msg.ToolCalls {
		p := &part{FunctionCall: &functionCall{ID: sentID(c.GetId()), Name: c.GetName(), Args: model.Arguments(c.GetArguments())}}
		if i == 0 && !lenient.MatchString(m.config.Name) {
			p.ThoughtSignature = []byte(unsigned)
		}
		parts = append(parts, p)
	}
	return parts
}

// sentID returns the id of a call as the provider knows it, or "".
func sentID(id string) string {
	if strings.HasPrefix(id, unnamed) {
		return ""
	}
	return id
}

// toolCall converts a call.
func toolCall(c *functionCall, turn, n int) *teamv1.ToolCall {
	out := &teamv1.ToolCall{Id: c.ID, Name: c.Name, Arguments: "{}"}
	if out.Id == "" {
		out.Id = unnamed + strconv.Itoa(turn) + "-" + strconv.Itoa(n)
	}
	if b, err := json.Marshal(c.Args); err == nil && len(c.Args) > 0 {
		out.Arguments = string(b)
	}
	return out
}
