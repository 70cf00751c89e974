package openai

import (
	"context"
	"net/http"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// Words for what endpoints refuse, see model.Refusals. OpenAI takes all of it.
const (
	usageInStream = "stream_options"
	maxTokens     = "max_tokens"    // max_completion_tokens is sent instead
	jsonSchema    = "json_schema "  // response_format of the schema that follows has the type json_object
	jsonObject    = "json_object "  // there is no response_format for the schema that follows
	systemRole    = "system"        // the instructions are part of the first message of the user
	emptyContent  = "empty content" // of turns with calls
	beside        = "beside"        // what was sent beside a turn is not sent back
	noReasoning   = "reasoning"     // turns with calls that have no reasoning get a text in its place
)

// reasoningContent is the field for the reasoning of DeepSeek and Moonshot.
const reasoningContent = "reasoning_content"

// send makes the request.
func (m *Model) send(ctx context.Context, c *model.Call, req *agent.ModelRequest) error {
	h := m.header()
	h.Set("Accept", "text/event-stream")
	return m.refused.Post(ctx, c, "/chat/completions", h,
		func(without map[string]bool) any { return model.WithExtra(m.request(req, without), m.config.Settings) },
		func(without map[string]bool, why *model.Rejection) string { return m.blame(req, without, why) })
}

// header returns the headers of all requests.
func (m *Model) header() http.Header {
	h := http.Header{}
	if key := m.config.APIKey.Reveal(); key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
	return h
}

// blame returns what to send differently after a rejection, or "". Nothing but its text says so.
func (m *Model) blame(req *agent.ModelRequest, without map[string]bool, why *model.Rejection) string {
	r := m.request(req, without)
	format := why.Blames("response_format", "json_schema", "json_object", "guided", "grammar", "structured output") ||
		why.BlamesAs500("response_format", "validation error") // llama-cpp-python 0.3.36, see docs/models.md
	switch {
	case r.StreamOptions != nil && why.Blames("stream_options", "include_usage"):
		return usageInStream
	case r.ResponseFormat != nil && format && !without[jsonSchema+string(req.Schema)]:
		return jsonSchema + string(req.Schema)
	case r.ResponseFormat != nil && format:
		return jsonObject + string(req.Schema)
	case r.MaxTokens != 0 && why.Blames("max_completion_tokens") && why.Blames("'max_tokens' is not supported", "unsupported parameter", "unsupported_parameter"):
		return maxTokens
	case why.Blames("reasoning_content") && lacks(r):
		return noReasoning
	case has(r) && why.Blames("reasoning", "extra_content", "thinking", "extra_forbidden", "extra inputs", "additional properties", "unexpected field", "unrecognized"):
		return beside
	case r.Messages[0].Role == roleSystem && why.Blames("system role not supported", "system role is not supported"):
		return systemRole
	case why.Blames("content") && why.Blames("non-empty", "must not be empty", "cannot be empty", "non-whitespace", "at least one character"):
		return emptyContent
	}
	return ""
}

// lacks reports whether a turn with calls has no reasoning.
func lacks(r *request) bool {
	for _, m := range r.Messages {
		if _, ok := m.more[reasoningContent]; !ok && m.ToolCalls != nil {
			return true
		}
	}
	return false
}

// has reports whether something is sent back that is not a part of the turn.
func has(r *request) bool {
	for _, m := range r.Messages {
		if len(m.more) > 0 {
			return true
		}
		for _, c := range m.ToolCalls {
			if len(c.more) > 0 {
				return true
			}
		}
	}
	return false
}
