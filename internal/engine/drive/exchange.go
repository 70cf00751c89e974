package drive

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of a remembered answer: the number of delegations listed with it, and the number of
// characters of the message that each delegation was given.
const (
	maxDelegated = 100
	maxTask      = 200
	maxFailure   = 300 // bytes of the error of a run that failed
)

// exchange returns what the run adds to its conversation if it ends with e. A run that succeeds
// adds what each remembering agent was asked and what it answered. A run that fails adds the messages of the
// user, why it failed, and the tool calls that it made. One that was rejected or canceled adds nothing.
func (c *conversation) exchange(e *teamv1.Ended) runs.Exchange {
	v := journal.New(c.rec.claim.Root, journal.Whole)
	v.Apply(&teamv1.Event{Agent: c.rec.accepted.GetAgent(), Kind: &teamv1.Event_Accepted{Accepted: c.rec.accepted}})
	for _, ev := range c.rec.events {
		v.Apply(ev)
	}
	ex := runs.Exchange{Task: v.Root}
	switch {
	case blocked(v.Top), e.GetOutcome() == teamv1.Outcome_OUTCOME_REJECTED, e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED:
	case e.GetError() != nil:
		failed := agent.NewMessage("[This request was not completed: " + agent.Excerpt(e.GetError().GetReason()+": "+e.GetError().GetMessage(), maxFailure) + "]")
		failed.MessageId = (&agent.Run{Root: v.Root}).ID(v.Top.Scope, "failed", 1)
		ex.By = []runs.Contribution{{Path: v.Top.Path, Messages: entries(v, v.Top, failed, c.tools)}}
	default:
		answer := e.GetReply()
		if ref := e.GetReplyRef(); ref > 0 {
			answer = v.Text(ref)
		}
		ex.By = append(contributions(v), runs.Contribution{Path: v.Top.Path, Messages: entries(v, v.Top, answer, c.tools), State: state(v.Top)})
	}
	return ex
}

// blocked reports whether a middleware has blocked the input of a node or its answer.
func blocked(n *journal.Node) bool {
	return slices.ContainsFunc(n.Notes, func(ev *teamv1.Event) bool { return ev.GetChecked().GetBlocked() })
}

// contributions returns what each remembering member that has answered adds to the conversation, in
// the order in which they answered.
func contributions(v *journal.View) []runs.Contribution {
	var ended []*journal.Node
	for _, n := range members(v.Top) {
		if yes, _ := remembers(n); yes && n.End != nil && n.End.GetError() == nil {
			ended = append(ended, n)
		}
	}
	slices.SortFunc(ended, func(a, b *journal.Node) int { return cmp.Compare(a.EndSeq, b.EndSeq) })
	var list []runs.Contribution
	for _, n := range ended {
		_, tools := remembers(n)
		if s := state(n); len(n.Reply.GetParts())+len(s) > 0 {
			list = append(list, runs.Contribution{Path: n.Path, Messages: entries(v, n, n.Reply, tools), State: s})
		}
	}
	return list
}

// members returns the delegations at all levels below a node. Of a delegation whose results were judged
// it returns the last round as well, if its result was accepted. Judges are not included.
func members(n *journal.Node) []*journal.Node {
	var list []*journal.Node
	var round *journal.Node
	for _, child := range n.Steps {
		switch {
		case child.Delegated():
			list = append(list, child)
			list = append(list, members(child)...)
		case child.Step.GetKind() == teamv1.Step_KIND_ROUND:
			round = child
		}
	}
	if round != nil && n.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED {
		list = append(list, round)
		list = append(list, members(round)...)
	}
	return list
}

// remembers reports whether a member has noted that its conversation is remembered under its path, with the last
// so many tool calls.
func remembers(n *journal.Node) (yes bool, tools int) {
	for _, ev := range n.Notes {
		if note := ev.GetNoted(); note.GetCode() == agent.NoteTeamPrepared {
			details := note.GetDetails().GetFields()
			yes, tools = details["memory"].GetBoolValue(), int(details["tools"].GetNumberValue())
		}
	}
	return yes, tools
}

// state returns the values that the decisions of a node have written to the state of its
// conversation.
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

// entries returns the messages that an agent remembers: its input, the questions and messages that
// followed, and its answer with a list of the delegations and of the last tool calls behind it. Only the last
// agent.HistoryLength messages are returned.
func entries(v *journal.View, n *journal.Node, answer *a2av1.Message, tools int) []*a2av1.Message {
	list := append([]*a2av1.Message{remembered(n.Input(), a2av1.Role_ROLE_USER)}, said(n)...)
	if len(answer.GetParts()) > 0 {
		m := remembered(answer, a2av1.Role_ROLE_AGENT)
		m.Metadata = delegations(v, n)
		if calls := callsBehind(n, tools); len(calls) > 0 {
			if m.Metadata == nil {
				m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
			}
			m.Metadata.Fields[agent.ToolCallsKey] = structpb.NewListValue(&structpb.ListValue{Values: calls})
		}
		list = append(list, m)
	}
	list = list[max(0, len(list)-agent.HistoryLength):]
	for _, m := range list {
		m.TaskId, m.ContextId = agent.ChildTask(v.Root, n.Scope), v.Accepted.GetConversation().GetContextId()
	}
	return list
}

// said returns the questions of a node, their answers and the follow-up messages in order. Messages
// that a middleware has changed are returned as changed.
func said(n *journal.Node) []*a2av1.Message {
	events := slices.Clone(n.Notes)
	for _, q := range n.Asked {
		events = append(events, q.Event)
		if q.Answer != nil {
			events = append(events, q.Answer)
		}
	}
	slices.SortFunc(events, func(a, b *teamv1.Event) int { return cmp.Compare(a.GetSeq(), b.GetSeq()) })
	events = slices.Compact(events) // one answer may close two questions with the same id
	var list []*a2av1.Message
	at := map[int64]int{} // index in list, by the sequence number of the event
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

// remembered returns a message as it is remembered: its id, role and parts, without the bytes of
// files.
func remembered(m *a2av1.Message, role a2av1.Role) *a2av1.Message {
	parts := slices.Clone(m.GetParts())
	for i, p := range parts {
		if _, raw := p.GetContent().(*a2av1.Part_Raw); raw {
			parts[i] = &a2av1.Part{Content: &a2av1.Part_Raw{}, Filename: p.GetFilename(), MediaType: p.GetMediaType()}
		}
	}
	return &a2av1.Message{MessageId: m.GetMessageId(), Role: role, Parts: parts}
}

// delegations returns metadata that lists the delegations behind the answer of a node, nil without
// any.
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

// toolCall is a tool call of a run.
type toolCall struct {
	by   *journal.Node // the agent's
	node *journal.Node
	call *teamv1.ToolCall
}

// callsBehind returns the last tool calls behind the answer of a node, at most most, in the form of
// agent.ToolCallsKey.
func callsBehind(n *journal.Node, most int) []*structpb.Value {
	calls := toolCalls(n)
	slices.SortStableFunc(calls, func(a, b toolCall) int { return cmp.Compare(a.node.EndSeq, b.node.EndSeq) })
	calls = calls[max(len(calls)-most, 0):]
	values := make([]*structpb.Value, len(calls))
	for i, c := range calls {
		text := func(s string) *structpb.Value { return structpb.NewStringValue(agent.Excerpt(s, agent.MaxRemembered)) }
		fields := map[string]*structpb.Value{"tool": text(c.call.GetName()), "arguments": text(c.call.GetArguments()), "result": text(c.node.End.GetTool().GetText())}
		if c.node.End.GetTool().GetIsError() {
			fields["error"] = structpb.NewBoolValue(true)
		}
		if c.by != n {
			fields["agent"] = text(c.by.Step.GetMember())
		}
		values[i] = structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	return values
}

// toolCalls returns the tool calls of a node that have a result. A node without a model has those of its
// members, whose results nothing else in the conversation has.
func toolCalls(n *journal.Node) []toolCall {
	var calls []toolCall
	var asked []*teamv1.ToolCall // of the last turn, which the next steps answer in order
	led := false
	for _, child := range n.Steps {
		if child.Step.GetKind() == teamv1.Step_KIND_MODEL {
			led, asked = true, child.End.GetTurn().GetToolCalls()
			continue
		}
		if len(asked) > 0 {
			if child.Step.GetKind() == teamv1.Step_KIND_TOOL && child.End.GetTool() != nil {
				calls = append(calls, toolCall{n, child, asked[0]})
			}
			asked = asked[1:]
		}
	}
	if led {
		return calls
	}
	for _, child := range n.Steps {
		if child.Delegated() {
			calls = append(calls, toolCalls(child)...)
		}
	}
	return calls
}

// outcome describes how a delegation ended. For one that was begun as a task of its own it names
// that task, because its result is not known here. It is empty if there is neither an end nor a
// refusal.
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

// clipTask returns the first maxTask characters of a text, with an ellipsis if some were cut.
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
