package drive

import (
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Of a remembered answer: how many of the delegations behind it are listed, and
// how many characters of what they were asked.
const (
	maxDelegated = 100
	maxTask      = 200
)

// scribe reads from a run's record what its agents were asked, what they had
// others do, and what they answered.
type scribe struct {
	*drive
	parts map[string]*part // of agents, by scope
	by    []a2a.Contribution
}

// part is one agent's part in a run.
type part struct {
	path      string
	keeps     bool           // it is remembered under its path
	spawned   string         // the task of its own that its work is; empty: it is none
	blocked   bool           // what it was given, or its answer, was held back
	asked     *a2av1.Message // what it was given
	said      []*a2av1.Message
	saidAt    map[int64]int // where in said, by the sequence of the event
	delegated []*delegated  // by it
	task      *delegated    // that it works for
	state     map[string]*structpb.Value
}

// delegated is a piece of work that was given to a member.
type delegated struct{ member, task, outcome string }

// exchange is what the run adds to its conversation. A run that ends with an
// answer adds what each agent that remembers was asked and answered; one that
// fails, what the user said; one that was refused or canceled, nothing.
func (d *drive) exchange(e *teamv1.Ended) a2a.Exchange {
	s := &scribe{drive: d, parts: map[string]*part{}}
	root := &part{path: d.accepted.GetAgent(), keeps: true, asked: d.accepted.GetMessage()}
	s.parts[""] = root
	for _, ev := range d.recorded {
		s.take(ev)
	}
	ex := a2a.Exchange{Task: d.claim.Root}
	switch {
	case root.blocked, e.GetOutcome() == teamv1.Outcome_OUTCOME_REJECTED, e.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED:
	case e.GetError() != nil:
		ex.By = []a2a.Contribution{{Path: root.path, Messages: s.entries("", root, nil)}}
	default:
		s.close("", root, e)
		ex.By = s.by
	}
	return ex
}

// take reads one event.
func (s *scribe) take(ev *teamv1.Event) {
	scope := ev.GetScope()
	p := s.parts[scope]
	if p == nil {
		return // of a step that is no agent's
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		s.decided(ev, p, k.Decided)
	case *teamv1.Event_Started:
		if k.Started.GetInput() != nil {
			p.asked = s.resolve(k.Started.GetInput(), p.asked)
		}
	case *teamv1.Event_Noted:
		if scope != "" && k.Noted.GetCode() == agent.NoteTeamPrepared {
			p.keeps = k.Noted.GetDetails().GetFields()["memory"].GetBoolValue()
		}
	case *teamv1.Event_Checked:
		p.blocked = p.blocked || k.Checked.GetBlocked()
		if k.Checked.GetStage() == teamv1.Checked_STAGE_INPUT && k.Checked.GetMessage() != nil {
			p.changed(k.Checked)
		}
	case *teamv1.Event_Asked:
		p.say(ev, k.Asked.GetMessage(), a2av1.Role_ROLE_AGENT)
	case *teamv1.Event_Answered:
		p.say(ev, k.Answered.GetMessage(), a2av1.Role_ROLE_USER)
	case *teamv1.Event_Received:
		if !k.Received.GetTooLate() {
			p.say(ev, k.Received.GetMessage(), a2av1.Role_ROLE_USER)
		}
	case *teamv1.Event_Spawned:
		p.spawned = k.Spawned.GetTaskId()
	case *teamv1.Event_Ended:
		p.task.outcome = strings.TrimPrefix(k.Ended.GetOutcome().String(), "OUTCOME_")
		if p.spawned != "" && k.Ended.GetError() == nil { // that it has begun is all that is known
			p.task.outcome = "begun as task " + p.spawned
		}
		if p.keeps && k.Ended.GetError() == nil {
			s.close(scope, p, k.Ended)
		}
	default:
	}
}

// say adds what was said meanwhile.
func (p *part) say(ev *teamv1.Event, m *a2av1.Message, role a2av1.Role) {
	if m == nil {
		return
	}
	if p.saidAt == nil {
		p.saidAt = map[int64]int{}
	}
	p.saidAt[ev.GetSeq()] = len(p.said)
	p.said = append(p.said, remembered(m, role))
}

// changed puts what a middleware made of an input, or of what was said meanwhile,
// in its place.
func (p *part) changed(c *teamv1.Checked) {
	if c.GetRef() == 0 {
		p.asked = c.GetMessage()
	} else if i, ok := p.saidAt[c.GetRef()]; ok {
		p.said[i] = remembered(c.GetMessage(), a2av1.Role_ROLE_USER)
	}
}

// decided begins the parts of the members that a decision gives work to.
func (s *scribe) decided(ev *teamv1.Event, p *part, d *teamv1.Decided) {
	for key, v := range d.GetUpdates() {
		if strings.HasPrefix(key, agent.ConversationPrefix) {
			if p.state == nil {
				p.state = map[string]*structpb.Value{}
			}
			p.state[key] = v
		}
	}
	for _, step := range d.GetSteps() {
		if !agent.IsDelegation(step.GetKind()) {
			continue
		}
		asked := s.resolve(step.GetInput(), p.asked)
		task := &delegated{member: step.GetMember(), task: clipTask(agent.Text(asked))}
		if r := step.GetRefusal(); r != nil {
			task.outcome = strings.TrimPrefix(r.GetOutcome().String(), "OUTCOME_")
		}
		p.delegated = append(p.delegated, task)
		s.parts[agent.Scope(ev.GetScope(), step.GetId())] = &part{path: ev.GetAgent() + "/" + step.GetMember(), asked: asked, task: task}
	}
}

// close adds the part of an agent that has answered.
func (s *scribe) close(scope string, p *part, e *teamv1.Ended) {
	answer := e.GetReply()
	if ref := e.GetReplyRef(); ref > 0 {
		answer = s.message(ref)
	}
	if len(answer.GetParts()) == 0 && len(p.state) == 0 && scope != "" {
		return
	}
	s.by = append(s.by, a2a.Contribution{Path: p.path, Messages: s.entries(scope, p, answer), State: p.state})
}

// entries are what an agent was asked, what was said meanwhile, and its answer,
// with the delegations behind it.
func (s *scribe) entries(scope string, p *part, answer *a2av1.Message) []*a2av1.Message {
	list := make([]*a2av1.Message, 0, 2+len(p.said))
	list = append(list, remembered(p.asked, a2av1.Role_ROLE_USER))
	list = append(list, p.said...)
	if len(answer.GetParts()) > 0 {
		m := remembered(answer, a2av1.Role_ROLE_AGENT)
		m.Metadata = delegations(p.delegated)
		list = append(list, m)
	}
	list = list[max(0, len(list)-agent.HistoryLength):]
	for _, m := range list {
		m.TaskId, m.ContextId = agent.ChildTask(s.claim.Root, scope), s.memory.thread.ContextID
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

// delegations is the metadata that lists who worked for an answer.
func delegations(list []*delegated) *structpb.Struct {
	if len(list) == 0 {
		return nil
	}
	values := make([]*structpb.Value, 0, min(len(list), maxDelegated))
	for _, t := range list[:min(len(list), maxDelegated)] {
		values = append(values, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"member": structpb.NewStringValue(t.member), "task": structpb.NewStringValue(t.task), "outcome": structpb.NewStringValue(t.outcome),
		}}))
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		agent.DelegationsKey: structpb.NewListValue(&structpb.ListValue{Values: values}),
	}}
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

// resolve returns the message that an input names; none is own.
func (s *scribe) resolve(in *teamv1.Input, own *a2av1.Message) *a2av1.Message {
	switch {
	case in.GetMessage() != nil:
		return in.GetMessage()
	case in.GetRef() > 0:
		return s.message(in.GetRef())
	}
	return own
}

// message returns the message that the event with that sequence holds.
func (s *scribe) message(seq int64) *a2av1.Message {
	i := sort.Search(len(s.recorded), func(i int) bool { return s.recorded[i].GetSeq() >= seq })
	if i == len(s.recorded) || s.recorded[i].GetSeq() != seq {
		return nil
	}
	return agent.MessageOf(s.claim.Root, s.recorded[i])
}
