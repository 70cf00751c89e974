package step

import (
	"bytes"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/pkg/agent"
)

// Upper bounds of what a provider adds to the text of a prompt, in tokens.
const (
	perRequest = 64
	perMessage = 16
	perTool    = 64
	perFile    = 64
	withTools  = 512
)

// meter computes an upper bound for the tokens of a prompt before it is sent. A token covers at
// least one byte, so a prompt has at most as many tokens as bytes of text, plus those of its files,
// plus what the provider adds. If a prompt continues one that the same model has counted, only the new
// part is bounded in this way. A count says nothing about other models, whose tokens may be shorter.
// Safe for concurrent use.
type meter struct {
	mu     sync.Mutex
	last   *agent.ModelRequest // prompt that was counted last; guarded by mu
	model  agent.Model         // model that counted it; guarded by mu
	tokens int64               // tokens of last; guarded by mu
}

// bound returns an upper bound for the tokens of a prompt of a model.
func (m *meter) bound(model agent.Model, req *agent.ModelRequest) int64 {
	files := agent.FilesOf(model)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil && sameModel(model, m.model) && continues(req, m.last) {
		more := req.Messages[len(m.last.Messages):]
		return filesIn(&files, more, m.tokens+messages(more))
	}
	n := perRequest + int64(len(req.Instructions)+len(req.Force)+len(req.Schema)) + messages(req.Messages)
	if len(req.Tools) > 0 {
		n += withTools
	}
	for _, t := range req.Tools {
		n += perTool + int64(len(t.Name)+len(t.Description)+len(t.Parameters))
	}
	return filesIn(&files, req.Messages, n)
}

// filesIn returns an upper bound for the tokens of messages with their files. n is that without
// them.
func filesIn(files *agent.Files, list []agent.ModelMessage, n int64) int64 {
	window := int64(0)
	for _, msg := range list {
		for _, p := range msg.Parts {
			if !agent.IsFile(p) {
				continue
			}
			tokens, windowBound := files.Tokens(p)
			if windowBound {
				window, tokens = tokens, 0
			}
			n += perFile + tokens + int64(len(p.GetFilename())+len(p.GetUrl()))
		}
	}
	return max(n, window)
}

// learn stores a model's count for a prompt. It ignores a count of 0, and counts that do not hold for
// a later prompt: those of a model with alternatives, because another one may answer next, and those of
// a prompt with a URL, because the content behind it may change.
func (m *meter) learn(model agent.Model, req *agent.ModelRequest, tokens int64) {
	if tokens <= 0 || len(inforce.ModelSubject(model).Names) > 1 || slices.ContainsFunc(req.Messages, hasURL) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.model, m.tokens = req, model, tokens
}

func hasURL(msg agent.ModelMessage) bool {
	return slices.ContainsFunc(msg.Parts, func(p *a2av1.Part) bool { return p.GetUrl() != "" })
}

// sameModel reports whether two models are the same value. Models that cannot be compared are not.
func sameModel(a, b agent.Model) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// messages returns an upper bound for the tokens of messages.
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

// continues reports whether a prompt begins with all of an earlier one. It may do without the tools,
// which only makes it shorter.
func continues(req, earlier *agent.ModelRequest) bool {
	return req.Instructions == earlier.Instructions && req.Force == earlier.Force &&
		len(req.Messages) >= len(earlier.Messages) &&
		slices.EqualFunc(req.Messages[:len(earlier.Messages)], earlier.Messages, sameMessage) &&
		(len(req.Tools) == 0 || slices.EqualFunc(req.Tools, earlier.Tools, sameTool))
}

func sameMessage(a, b agent.ModelMessage) bool {
	return a.Role == b.Role && a.Text == b.Text && a.CallID == b.CallID && a.Tool == b.Tool && bytes.Equal(a.State, b.State) &&
		slices.EqualFunc(a.ToolCalls, b.ToolCalls, sameProto[*teamv1.ToolCall]) && slices.EqualFunc(a.Parts, b.Parts, sameProto[*a2av1.Part])
}

// sameProto reports whether two protobuf messages are equal. Most are the same one.
func sameProto[M interface {
	comparable
	proto.Message
}](a, b M) bool {
	return a == b || proto.Equal(a, b)
}

func sameTool(a, b agent.ToolSpec) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Parameters, b.Parameters)
}
