package journal

import (
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Texts finds the messages that events name by the sequence of the event that put them on
// record. The zero value has none, and finds what is added. It is not safe for concurrent
// use.
type Texts struct {
	root     string
	recorded []*teamv1.Event // in order; searched for what was not added
	bySeq    map[int64]*a2av1.Message
	refers   bool                     // whether seqs are kept
	seqs     map[*a2av1.Message]int64 // bySeq, the other way round
}

// TextsOf returns the messages of the events of a root, which are in order, for a writer:
// it can refer to those that it adds.
func TextsOf(root string, recorded []*teamv1.Event) Texts {
	return Texts{root: root, recorded: recorded, refers: true}
}

// Add adds a message on record. It ignores nil, and a sequence of 0.
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

// At returns the message that the event with a sequence has put on record, nil without one.
func (t *Texts) At(seq int64) *a2av1.Message {
	if m, ok := t.bySeq[seq]; ok {
		return m
	}
	i, found := slices.BinarySearchFunc(t.recorded, seq, func(ev *teamv1.Event, seq int64) int { return int(ev.GetSeq() - seq) })
	if !found {
		return nil
	}
	return agent.MessageOf(t.root, t.recorded[i])
}

// Resolve returns the message that an input of a step names: one of its own, or one on
// record. An input that names none stands for own.
func (t *Texts) Resolve(in *teamv1.Input, own *a2av1.Message) *a2av1.Message {
	switch {
	case in.GetMessage() != nil:
		return in.GetMessage()
	case in.GetRef() != 0:
		return t.At(in.GetRef())
	}
	return own
}

// Refer fills in, which is empty, with what stands for a message, and returns it: the
// message's sequence where it was added, so that a text is recorded once, nothing for own,
// else the message itself.
func (t *Texts) Refer(in *teamv1.Input, m, own *a2av1.Message) *teamv1.Input {
	if seq, ok := t.seqs[m]; ok {
		in.Ref = seq
	} else if m != own {
		in.Message = m
	}
	return in
}
