package project

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// place is the run of a task, and where in it the task is.
type place struct {
	view  *journal.View
	scope string // of the task; empty for the root
}

// ID returns the id of the task.
func (p *place) ID() string { return agent.ChildTask(p.view.Root, p.scope) }

// Root returns the id of the root task.
func (p *place) Root() string { return p.view.Root }

// Scope returns the scope of the task, which is empty for the root.
func (p *place) Scope() string { return p.scope }

// ContextID returns the id of the task's context.
func (p *place) ContextID() string { return p.view.Accepted.GetMessage().GetContextId() }

// Agent returns the id of the root's agent.
func (p *place) Agent() string { return p.view.Accepted.GetAgent() }

// Account returns the account that had made the agent by the API when the task began, empty for an agent of the
// configuration file.
func (p *place) Account() string { return p.view.Accepted.GetPins().GetAccounts()[p.Agent()] }

// Serves reports whether a request for a tenant may access the task: an empty tenant, the root's
// agent, or the member that works on the task of a child.
func (p *place) Serves(tenant string) bool {
	if tenant == "" || tenant == p.Agent() {
		return true
	}
	n := p.view.Node(p.scope)
	return n != nil && n.Delegated() && n.Path[strings.LastIndexByte(n.Path, '/')+1:] == tenant
}

// firstMessage returns the first message of the task for step n of the node in. A step whose input
// refers to no message works on that of its parent. If that is what the caller of the run sent, it
// is shown with the id that the caller gave it.
func (p *place) firstMessage(in, n *journal.Node) *a2av1.Message {
	if given := n.Step.GetInput(); given.GetMessage() != nil || given.GetRef() != 0 {
		return n.Given
	}
	sent, input := p.view.Accepted.GetMessage(), in.Input()
	if in.Parent == nil || slices.EqualFunc(input.GetParts(), sent.GetParts(), func(a, b *a2av1.Part) bool { return proto.Equal(a, b) }) {
		return sent
	}
	return input
}

// Placed returns a copy of a message with the ids of the task and its context, nil for nil.
func (p *place) Placed(m *a2av1.Message) *a2av1.Message {
	if m == nil {
		return nil
	}
	return &a2av1.Message{
		MessageId: m.GetMessageId(), ContextId: p.ContextID(), TaskId: p.ID(), Role: m.GetRole(), Parts: m.GetParts(),
		Metadata: m.GetMetadata(), Extensions: m.GetExtensions(), ReferenceTaskIds: m.GetReferenceTaskIds(),
	}
}

// Switches returns how often the run has been paused and resumed so far.
func (p *place) Switches() int { return p.view.Switches }

// PausedBy returns the halt that has paused the run, nil if none has. The result must not be changed.
func (p *place) PausedBy() *teamv1.Halt { return p.view.PausedBy }

// Stop returns the command that stopped the run, nil if it is not stopped. The result must not be
// changed.
func (p *place) Stop() *teamv1.Commanded { return p.view.Stop }

// context returns the context that the task works with, besides its input: for the root with that
// of the brief. It is nil without any.
func (p *place) context() map[string]*structpb.Value {
	if p.scope == "" {
		return p.view.Context()
	}
	if n := p.view.Node(p.scope); n != nil {
		return n.Changes()
	}
	return nil
}

// task returns the id of the task of a node.
func (p *place) task(n *journal.Node) string { return agent.ChildTask(p.view.Root, n.Scope) }
