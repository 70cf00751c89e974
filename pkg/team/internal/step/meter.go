package step

import (
	"slices"
	"sync"

	"github.com/agentteams/team-server/pkg/agent"
)

// What a provider adds to the text of a prompt, in tokens, and more than that.
const (
	perRequest = 64
	perMessage = 16
	perTool    = 64
	withTools  = 512
)

// meter bounds how many tokens a prompt has before it is sent. A token stands for
// at least one byte of text, so a prompt has no more tokens than bytes, and what
// is put around them. Of a prompt that continues one whose tokens the provider
// has counted, only what is new is bounded in this way. Safe for concurrent use.
type meter struct {
	mu     sync.Mutex
	last   *agent.ModelRequest // that was counted; guarded by mu
	tokens int64               // it had; guarded by mu
}

// bound returns how many tokens a prompt can have at most.
func (m *meter) bound(req *agent.ModelRequest) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil && continues(req, m.last) {
		return m.tokens + messages(req.Messages[len(m.last.Messages):])
	}
	n := perRequest + int64(len(req.Instructions)+len(req.Force)) + messages(req.Messages)
	if len(req.Tools) > 0 {
		n += withTools
	}
	for _, t := range req.Tools {
		n += perTool + int64(len(t.Name)+len(t.Description)+len(t.Parameters))
	}
	return n
}

// learn keeps what the provider counted; 0 is nothing.
func (m *meter) learn(req *agent.ModelRequest, tokens int64) {
	if tokens <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.tokens = req, tokens
}

// messages bounds the tokens of messages.
func messages(list []agent.ModelMessage) int64 {
	n := int64(0)
	for _, msg := range list {
		n += perMessage + int64(len(msg.Text)+len(msg.CallID)+len(msg.Tool)+len(msg.State))
		for _, c := range msg.ToolCalls {
			n += perMessage + int64(len(c.GetId())+len(c.GetName())+len(c.GetArguments()))
		}
	}
	return n
}

// continues reports whether a prompt begins with another one.
func continues(req, earlier *agent.ModelRequest) bool {
	return req.Instructions == earlier.Instructions && req.Force == earlier.Force &&
		len(req.Messages) >= len(earlier.Messages) && len(req.Tools) == len(earlier.Tools) &&
		slices.EqualFunc(req.Messages[:len(earlier.Messages)], earlier.Messages, sameMessage) &&
		slices.EqualFunc(req.Tools, earlier.Tools, sameTool)
}

func sameMessage(a, b agent.ModelMessage) bool {
	return a.Role == b.Role && a.Text == b.Text && a.CallID == b.CallID && len(a.ToolCalls) == len(b.ToolCalls)
}

func sameTool(a, b agent.ToolSpec) bool {
	return a.Name == b.Name && a.Description == b.Description && len(a.Parameters) == len(b.Parameters)
}
