package drive

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of a remembered answer: how many of the delegations behind it are listed, and how
// many characters of the message that each was given.
const (
	maxDelegated = 100
	maxTask      = 200
)

// exchange returns what the run adds to its conversation when it ends with e. A run that
// ends with an answer adds what each agent that remembers was asked and answered. One that
// fails adds what the user said; one that was refused or canceled adds nothing.
func (d *drive) exchange(e *teamv1.Ended) a2a.Exchange {
	v := journal.New(d.claim.Root, journal.Whole)
	v.Apply(&teamv1.Event{Agent: d.accepted.GetAgent(), Kind: &teamv1.Event_Accepted{Accepted: d.accepted}})
	for _, ev := range d.recorded {
		v.Apply(ev)
	}
	ex := a2a.Exchange{Task: v.Root}
	switch {
	case blocked(v.Top), e.GetOutcome() == teamv1.Outcome_OUTCOME_REJECTED, e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED:
	case e.GetError() != nil:
		ex.By = []a2a.Contribution{{Path: v.Top.Path, Messages: entries(v, v.Top, nil)}}
	default:
		answer := e.GetReply()
		if ref := e.GetReplyRef(); ref > 0 {
			answer = v.Text(ref)
		}
		ex.By = append(contributions(v), a2a.Contribution{Path: v.Top.Path, Messages: entries(v, v.Top, answer), State: state(v.Top)})
	}
	return ex
}

// blocked reports whether a middleware has held back what a node was given, or its answer.
func blocked(n *journal.Node) bool {
	return slices.ContainsFunc(n.Notes, func(ev *teamv1.Event) bool { return ev.GetChecked().GetBlocked() })
}

// contributions returns the parts of the members that remember and have answered, in the
// order they did.
func contributions(v *journal.View) []a2a.Contribution {
	var ended []*journal.Node
	for _, n := range members(v.Top) {
		if n.End != nil && n.End.GetError() == nil && remembers(n) {
			ended = append(ended, n)
		}
	}
	slices.SortFunc(ended, func(a, b *journal.Node) int { return cmp.Compare(a.EndSeq, b.EndSeq) })
	var list []a2a.Contribution
	for _, n := range ended {
		if s := state(n); len(n.Reply.GetParts())+len(s) > 0 {
			list = append(list, a2a.Contribution{Path: n.Path, Messages: entries(v, n, n.Reply), State: s})
		}
	}
	return list
}

// members returns the work of members below a node. Agents that judge are no members.
func members(n *journal.Node) []*journal.Node {
	var list []*journal.Node
	for _, child := range n.Steps {
		if child.Delegated() {
			list = append(list, child)
			list = append(list, members(child)...)
		}
	}
	return list
}

// remembers reports whether a member has said that it is remembered under its path.
func remembers(n *journal.Node) (yes bool) {
	for _, ev := range n.Notes {
		if note := ev.GetNoted(); note.GetCode() == agent.NoteTeamPrepared {
			yes = note.GetDetails().GetFields()["memory"].GetBoolValue()
		}
	}
	return yes
}

// state returns what the decisions of a node have put into its conversation's state.
func state(n *journal.Node) map[string]*structpb.Value {
	var s map[string]*structpb.Value
	for _, ev := range n.Decisions {
		for key, value := range ev.GetDecided().GetUpdates() {
			if !strings.HasPrefix(key, agent.ConversationPrefix) {
				continue
			}
			if s == nil {
				s = map[string]*structpb.Value{}
			}
			s[key] = value
		}
	}
	return s
}

// entries returns what an agent was asked, what was said meanwhile, and its answer, with
// the delegations behind it.
func entries(v *journal.View, n *journal.Node, answer *a2av1.Message) []*a2av1.Message {
	list := append([]*a2av1.Message{remembered(n.Input(), a2av1.Role_ROLE_USER)}, said(n)...)
	if len(answer.GetParts()) > 0 {
		m := remembered(answer, a2av1.Role_ROLE_AGENT)
		m.Metadata = delegations(v, n)
		list = append(list, m)
	}
	list = list[max(0, len(list)-agent.HistoryLength):]
	for _, m := range list {
		m.TaskId, m.ContextId = agent.ChildTask(v.Root, n.Scope), v.Accepted.GetConversation().GetContextId()
	}
	return list
}

// said returns the questions of a node, the answers, and the follow-ups, in order, as
// middlewares have left them.
func said(n *journal.Node) []*a2av1.Message {
	events := slices.Clone(n.Notes)
	for _, q := range n.Asked {
		events = append(events, q.Event)
		if q.Answer != nil {
			events = append(events, q.Answer)
		}
	}
	slices.SortFunc(events, func(a, b *teamv1.Event) int { return cmp.Compare(a.GetSeq(), b.GetSeq()) })
	events = slices.Compact(events) // an answer may close a question that was asked twice
	var list []*a2av1.Message
	at := map[int64]int{} // in list, by the sequence of the event
	say := func(ev *teamv1.Event, m *a2av1.Message, role a2av1.Role) {
		if m != nil {
			at[ev.GetSeq()] = len(list)
			list = append(list, remembered(m, role))
		}
	}
	for _, ev := range events {
		switch k := ev.GetKind().(type) {
		case *teamv1.Event_Asked:
			say(ev, k.Asked.GetMessage(), a2av1.Role_ROLE_AGENT)
		case *teamv1.Event_Answered:
			say(ev, k.Answered.GetMessage(), a2av1.Role_ROLE_USER)
		case *teamv1.Event_Received:
			if !k.Received.GetTooLate() {
				say(ev, k.Received.GetMessage(), a2av1.Role_ROLE_USER)
			}
		case *teamv1.Event_Checked:
			if i, is := at[k.Checked.GetRef()]; is && k.Checked.GetStage() == teamv1.Checked_STAGE_INPUT && k.Checked.GetMessage() != nil {
				list[i] = remembered(k.Checked.GetMessage(), a2av1.Role_ROLE_USER)
			}
		}
	}
	return list
}

// remembered is a message as it is remembered: what was said, by whom, without the
// bytes of files and what else came along.
func remembered(m *a2av1.Message, role a2av1.Role) *a2av1.Message {
	parts := slices.Clone(m.GetParts())
	for i, p := range parts {
		if _, raw := p.GetContent().(*a2av1.Part_Raw); raw {
			parts[i] = &a2av1.Part{Content: &a2av1.Part_Raw{}, Filename: p.GetFilename(), MediaType: p.GetMediaType()}
		}
	}
	return &a2av1.Message{MessageId: m.GetMessageId(), Role: role, Parts: parts}
}

// delegations returns the metadata that lists who worked for the answer of a node, nil if
// nobody did.
func delegations(v *journal.View, n *journal.Node) *structpb.Struct {
	var values []*structpb.Value
	for _, child := range n.Steps {
		if child.Delegated() && len(values) < maxDelegated {
			values = append(values, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"member": structpb.NewStringValue(child.Step.GetMember()), "outcome": structpb.NewStringValue(outcome(child)),
				"task": structpb.NewStringValue(clipTask(agent.Text(v.Given(n, child.Step.GetInput())))),
			}}))
		}
	}
	if len(values) == 0 {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		agent.DelegationsKey: structpb.NewListValue(&structpb.ListValue{Values: values}),
	}}
}

// outcome says what became of a delegation: its outcome, that of its refusal while it has
// no end, or the task of its own that it was begun as, of which no more is known.
func outcome(n *journal.Node) string {
	switch refused := n.Step.GetRefusal(); {
	case n.End != nil && n.Spawned.GetTaskId() != "" && n.End.GetError() == nil:
		return "begun as task " + n.Spawned.GetTaskId()
	case n.End != nil:
		return strings.ToUpper(taskstate.Word(n.Outcome))
	case refused != nil:
		return strings.ToUpper(taskstate.Word(refused.GetOutcome()))
	}
	return ""
}

// clipTask is the beginning of a text.
func clipTask(s string) string {
	if len(s) <= maxTask {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > maxTask {
			return s[:i] + "…"
		}
	}
	return s
}
