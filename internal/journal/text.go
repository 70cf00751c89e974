package journal

import (
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Texts finds messages by the sequence number of the event that recorded them. The zero value has
// none until some are added. It is not safe for concurrent use.
type Texts struct {
	root     string
	recorded []*teamv1.Event // in order; searched for messages that were not added
	bySeq    map[int64]*a2av1.Message
	refers   bool                     // keep seqs
	seqs     map[*a2av1.Message]int64 // the inverse of bySeq
}

// TextsOf returns the messages of the events of a root task, which must be in order. It is meant
// for a writer: Refer can refer to the messages that are added.
func TextsOf(root string, recorded []*teamv1.Event) Texts {
	return Texts{root: root, recorded: recorded, refers: true}
}

// Add adds a recorded message. It does nothing if seq is 0 or m is nil.
func (t *Texts) Add(seq int64, m *a2av1.Message) {
	if seq == 0 || m == nil {
		return
	}
	if t.bySeq == nil {
		t.bySeq = map[int64]*a2av1.Message{}
	}
	t.bySeq[seq] = m
	if !t.refers {
		return
	}
	if t.seqs == nil {
		t.seqs = map[*a2av1.Message]int64{}
	}
	t.seqs[m] = seq
}

// At returns the message that the event with a sequence number recorded, nil without one.
func (t *Texts) At(seq int64) *a2av1.Message {
	if m, ok := t.bySeq[seq]; ok {
		return m
	}
	i, found := slices.BinarySearchFunc(t.recorded, seq, func(ev *teamv1.Event, seq int64) int { return int(ev.GetSeq() - seq) })
	if !found {
		return nil
	}
	return MessageOf(t.root, t.recorded[i])
}

// Resolve returns the message that an input of a step refers to: the input's own, or a recorded
// one. If the input refers to none, it returns own, the message that the parent of the step works
// on.
func (t *Texts) Resolve(in *teamv1.Input, own *a2av1.Message) *a2av1.Message {
	switch {
	case in.GetMessage() != nil:
		return in.GetMessage()
	case in.GetRef() != 0:
		return t.At(in.GetRef())
	}
	return own
}

// Refer sets the empty input in to refer to m, and returns it. If m was added, the input holds its
// sequence number, so that a text is recorded only once. If m is own, the input remains empty.
// Otherwise it holds m.
func (t *Texts) Refer(in *teamv1.Input, m, own *a2av1.Message) *teamv1.Input {
	if seq, ok := t.seqs[m]; ok {
		in.Ref = seq
	} else if m != own {
		in.Message = m
	}
	return in
}

// MessageOf returns the message that an event holds, so that other events can refer to it by
// sequence number: a reply, an answer, a follow-up, a turn of a model, the message that a
// middleware has returned, a result that is to be judged, or the input of a round of revision. It
// returns nil if the event holds none. root is the id of the root task.
func MessageOf(root string, ev *teamv1.Event) *a2av1.Message {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Ended:
		if t := k.Ended.GetTurn(); t != nil {
			m := agent.NewMessage(t.GetText())
			if len(t.GetFiles()) > 0 && t.GetText() == "" {
				m.Parts = nil
			}
			m.Parts = append(m.Parts, t.GetFiles()...)
			m.MessageId = (&agent.Run{Root: root}).ID(ev.GetScope(), "reply", 1)
			return m
		}
		return k.Ended.GetReply()
	case *teamv1.Event_Answered:
		return k.Answered.GetMessage()
	case *teamv1.Event_Received:
		return k.Received.GetMessage()
	case *teamv1.Event_Checked:
		return k.Checked.GetMessage()
	case *teamv1.Event_Decided:
		for _, step := range k.Decided.GetSteps() {
			if step.GetKind() == teamv1.Step_KIND_JUDGE {
				return step.GetInput().GetMessage()
			}
		}
		return k.Decided.GetInput()
	}
	return nil
}
