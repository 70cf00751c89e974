package gemini

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/genai"

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

// lenient matches the models that do not require signatures.
var lenient = regexp.MustCompile(`^(models/)?gemini-[12]\b`)

func (m *Model) options(req *agent.ModelRequest) *genai.GenerateContentConfig {
	c := &genai.GenerateContentConfig{
		MaxOutputTokens:       int32(m.config.Output(req.MaxOutput)), //nolint:gosec // G115: at most MaxInt32
		AutomaticContinuation: new(bool),                             // a continuation would be a second request
	}
	if req.Instructions != "" {
		c.SystemInstruction = &genai.Content{Parts: []*genai.Part{{Text: model.Text(req.Instructions)}}}
	}
	if len(req.Tools) > 0 {
		t := &genai.Tool{}
		for _, spec := range req.Tools {
			t.FunctionDeclarations = append(t.FunctionDeclarations, declaration(spec))
		}
		c.Tools = []*genai.Tool{t}
	}
	if req.Force != "" {
		c.ToolConfig = &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{
			Mode: genai.FunctionCallingConfigModeAny, AllowedFunctionNames: []string{req.Force},
		}}
	}
	return c
}

// declaration converts a tool. The schema is passed on unchanged.
func declaration(t agent.ToolSpec) *genai.FunctionDeclaration {
	d := &genai.FunctionDeclaration{Name: t.Name, Description: t.Description}
	if len(t.Parameters) > 0 {
		d.ParametersJsonSchema = t.Parameters
	}
	return d
}

// contents converts the conversation. The results of the calls of a turn form one message, and the
// first message is the user's.
func (m *Model) contents(req *agent.ModelRequest) []*genai.Content {
	var out []*genai.Content
	names := map[string]string{}
	results := false
	for _, msg := range req.Messages {
		for _, c := range msg.ToolCalls {
			names[c.GetId()] = c.GetName()
		}
		role := genai.RoleUser
		if msg.Role == agent.RoleAssistant {
			role = genai.RoleModel
		}
		if len(out) == 0 && role == genai.RoleModel {
			out = append(out, genai.NewContentFromText(model.Nothing, genai.RoleUser))
		}
		parts := m.parts(msg, names)
		if msg.Role == agent.RoleTool && results {
			last := out[len(out)-1]
			last.Parts = append(last.Parts, parts...)
			continue
		}
		results = msg.Role == agent.RoleTool
		out = append(out, &genai.Content{Role: role, Parts: parts})
	}
	return out
}

func (m *Model) parts(msg agent.ModelMessage, names map[string]string) []*genai.Part {
	switch msg.Role {
	case agent.RoleTool:
		name := msg.Tool
		if name == "" {
			name = names[msg.CallID]
		}
		return append([]*genai.Part{{FunctionResponse: &genai.FunctionResponse{
			ID: sentID(msg.CallID), Name: name, Response: map[string]any{"output": msg.Text},
		}}}, files(msg.Parts)...)
	case agent.RoleAssistant:
		return m.modelParts(msg)
	default:
		if msg.Parts != nil {
			return contents(msg.Parts)
		}
		return []*genai.Part{{Text: model.Text(msg.Text)}}
	}
}

// modelParts returns the parts of a turn, unchanged if this model made it.
func (m *Model) modelParts(msg agent.ModelMessage) []*genai.Part {
	var parts []*genai.Part
	if model.UnpackState(msg.State, provider, m.config.Name, &parts) && len(parts) > 0 {
		return parts
	}
	parts = nil
	if strings.TrimSpace(msg.Text) != "" || len(msg.ToolCalls) == 0 {
		parts = append(parts, &genai.Part{Text: model.Text(msg.Text)})
	}
	for i, c := range msg.ToolCalls {
		p := &genai.Part{FunctionCall: &genai.FunctionCall{ID: sentID(c.GetId()), Name: c.GetName(), Args: model.Arguments(c.GetArguments())}}
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

// validSchemas reports whether all schemas are valid JSON. With an invalid one, the library would
// send an empty request.
func validSchemas(tools []agent.ToolSpec) bool {
	for _, t := range tools {
		if len(t.Parameters) > 0 && !json.Valid(t.Parameters) {
			return false
		}
	}
	return true
}

// toolCall converts a call.
func toolCall(c *genai.FunctionCall, turn, n int) *teamv1.ToolCall {
	out := &teamv1.ToolCall{Id: c.ID, Name: c.Name, Arguments: "{}"}
	if out.Id == "" {
		out.Id = unnamed + strconv.Itoa(turn) + "-" + strconv.Itoa(n)
	}
	if b, err := json.Marshal(c.Args); err == nil && len(c.Args) > 0 {
		out.Arguments = string(b)
	}
	return out
}
