package anthropic

import (
	"slices"

	"github.com/agentteams/team-server/pkg/agent"
)

// cacheControl marks the end of a prefix of the prompt that the provider keeps for some minutes, so that a
// later request that begins with it costs less. The order of a prompt is tools, system text, messages; see
// https://platform.claude.com/docs/en/build-with-claude/prompt-caching.
type cacheControl struct {
	Type string `json:"type"`
}

// cached is the mark. Short prefixes are not cached, at no cost.
var cached = &cacheControl{"ephemeral"}

// caches marks what later requests repeat: the tools and the system text, and the conversation if the run can
// have another turn. The last two messages of the user are marked, because the provider looks for the end of
// an earlier prefix among few blocks only.
func (r *messagesRequest) caches(req *agent.ModelRequest) {
	switch {
	case len(r.System) > 0:
		r.System[len(r.System)-1].Cache = cached
	case len(r.Tools) > 0:
		r.Tools[len(r.Tools)-1].Cache = cached
	}
	answered := slices.ContainsFunc(req.Messages, func(m agent.ModelMessage) bool { return m.Role == agent.RoleAssistant })
	if req.Force != "" || len(r.Tools) == 0 && !answered {
		return // writing costs more than reading, and nothing will be read
	}
	marks := 2
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" && marks > 0 {
			marks--
			m.Content[len(m.Content)-1] = marked(m.Content[len(m.Content)-1])
		}
	}
}

// marked returns a block of the user with the mark.
func marked(block any) any {
	switch b := block.(type) {
	case textBlock:
		b.Cache = cached
		return b
	case toolResultBlock:
		b.Cache = cached
		return b
	case fileBlock:
		b.Cache = cached
		return b
	}
	return block
}
