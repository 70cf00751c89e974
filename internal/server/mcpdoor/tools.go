package mcpdoor

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/server/service"
)

// inputSchema is that of a tool without inputs.
var inputSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"message":{"type":"string","description":"What the agent shall do, or, with task, the answer to its question. Empty with task: waits for the answer of that task."},` +
	`"files":{"type":"array","description":"Files for the agent.","items":{"type":"object","properties":{` +
	`"name":{"type":"string"},"media_type":{"type":"string","description":"Such as image/png."},` +
	`"data":{"type":"string","description":"The content in base64."},"text":{"type":"string","description":"The content as text."},"url":{"type":"string","description":"Where the content is."}},` +
	`"additionalProperties":false}},` +
	`"context":{"type":"string","description":"Id of the conversation to continue; leave it out to begin a new one."},` +
	`"task":{"type":"string","description":"Id of a task that runs or waits for an answer; leave it out to begin a new one."}},` +
	`"required":["message"],"additionalProperties":false}`)

// tools is the result of tools/list.
type tools struct {
	ResultType string     `json:"resultType,omitempty"`
	Tools      []mcp.Tool `json:"tools"`
	TTL        *int       `json:"ttlMs,omitempty"`
	CacheScope string     `json:"cacheScope,omitempty"`
}

// list returns the agents and teams that the caller may see.
func (d *Door) list(ctx context.Context, q *request) (any, error) {
	result := tools{ResultType: q.resultType(), Tools: []mcp.Tool{}}
	if q.modern {
		result.TTL, result.CacheScope = new(int), "private"
	}
	req := &teamv1.ListAgentsRequest{PageSize: 100}
	for {
		resp, err := invoke[*teamv1.ListAgentsResponse](ctx, d, teamv1.RegistryService_ListAgents_FullMethodName, req)
		if err != nil {
			return nil, err
		}
		for _, a := range resp.GetAgents() {
			result.Tools = append(result.Tools, mcp.Tool{Name: a.GetId(), Title: a.GetInfo().GetName(), Description: describe(a.GetInfo()), InputSchema: schemaOf(a.GetInfo())})
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return result, nil
		}
	}
}

// schemaOf returns the schema of the arguments of the tool that is an agent: those that all have, and the values that the agent
// wants by name.
func schemaOf(info *teamv1.AgentInfo) any {
	if info.GetInputs() == nil {
		return inputSchema
	}
	var s struct {
		Type       string         `json:"type"`
		Properties map[string]any `json:"properties"`
		Required   []string       `json:"required"`
		Additional bool           `json:"additionalProperties"`
	}
	_ = json.Unmarshal(inputSchema, &s) // it is ours
	inputs := info.GetInputs().AsMap()
	inputs["description"] = "Values that the agent wants by name."
	s.Properties["inputs"] = inputs
	if inputs["required"] != nil {
		s.Required = append(s.Required, "inputs")
	}
	return s
}

// describe returns the description of an agent with its skills.
func describe(info *teamv1.AgentInfo) string {
	lines := []string{info.GetDescription()}
	for _, s := range info.GetSkills() {
		if s.GetDescription() != "" && s.GetDescription() != info.GetDescription() {
			lines = append(lines, "- "+s.GetName()+": "+s.GetDescription())
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// invoke calls a method of the services that has one response.
func invoke[Resp any](ctx context.Context, d *Door, method string, req any) (resp Resp, err error) {
	out, err := d.Table.Invoke(ctx, method, func(v any) error { return service.Share(v, req) })
	if err == nil {
		resp, _ = out.(Resp)
	}
	return resp, err
}
