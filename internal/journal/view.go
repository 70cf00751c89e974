// Package journal folds the events of a run into one tree: who was given what, how it
// stands, what it brought, what it asks and what it cost. What the server shows of a run
// is a function of that tree.
package journal

import (
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Detail is how much a view keeps.
type Detail int

// Details.
const (
	// Outline keeps how the work stands and what it cost. It keeps no event but those that
	// ask, and of a step no message: what it keeps is small, whatever is said.
	Outline Detail = iota
	// Whole keeps also what was said and decided: messages, decisions, attempts, results.
	Whole
)

// View is a run as its events have it. It takes them in order, from the first one or from
// any before which nothing of the run is asked for. It is not safe for concurrent use;
// what it holds is shared and must not be changed.
type View struct {
	// Root is the id of the root task.
	Root string
	// Accepted is how the run began; nil until that was read. An outline keeps none of its
	// messages.
	Accepted *teamv1.Accepted
	// Seq and Now are the sequence and the time of the last event.
	Seq int64
	Now time.Time
	// Top is the root task itself. It is there from the beginning.
	Top *Node
	// Parked reports that nothing runs: the run waits for people, or is paused.
	Parked bool
	// Asking reports that the run waits for people since it was parked.
	Asking bool

	detail    Detail
	questions Questions
	nodes     map[string]*Node         // by scope
	texts     map[int64]*a2av1.Message // messages on record, by sequence; nil in an outline
}

// New returns the view of a run without events.
func New(root string, d Detail) *View {
	top := &Node{}
	v := &View{Root: root, Top: top, detail: d, nodes: map[string]*Node{"": top}}
	if d == Whole {
		v.texts = map[int64]*a2av1.Message{}
	}
	return v
}

// Node returns the node of a scope; nil if nothing was decided for it.
func (v *View) Node(scope string) *Node { return v.nodes[scope] }

// Apply takes the next event and returns the node that it belongs to; nil is one of which
// no decision was read. It keeps the event and does not change it.
func (v *View) Apply(ev *teamv1.Event) *Node {
	v.Seq, v.Now = ev.GetSeq(), ev.GetTime().AsTime()
	v.park(ev)
	if v.texts != nil {
		if m := agent.MessageOf(v.Root, ev); m != nil {
			v.texts[ev.GetSeq()] = m
		}
	}
	n := v.nodes[ev.GetScope()]
	v.ask(n, ev)
	if n == nil {
		return nil
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted:
		v.accept(ev, k.Accepted)
	case *teamv1.Event_Decided:
		v.decide(n, ev, k.Decided)
	case *teamv1.Event_Started:
		v.start(n, ev, k.Started)
	case *teamv1.Event_Retried:
		v.retry(n, ev, k.Retried)
	case *teamv1.Event_Answered:
		v.resume(n)
	case *teamv1.Event_Expired:
		v.note(n, ev)
		if k.Expired.GetLimit() == agent.LimitQuestion {
			v.resume(n)
		}
	case *teamv1.Event_Waiting:
		v.wait(n, k.Waiting)
	case *teamv1.Event_Commanded:
		v.note(n, ev)
		v.command(n, k.Commanded)
	case *teamv1.Event_Received, *teamv1.Event_Checked, *teamv1.Event_Noted:
		v.note(n, ev)
	case *teamv1.Event_Spawned:
		n.Spawned = k.Spawned
	case *teamv1.Event_Bound:
		n.Bound = k.Bound
	case *teamv1.Event_Ended:
		v.end(n, ev, k.Ended)
	}
	return n
}

// note keeps an event for readers who want to know more.
func (v *View) note(n *Node, ev *teamv1.Event) {
	if v.detail == Whole {
		n.Notes = append(n.Notes, ev)
	}
}

// accept begins the run.
func (v *View) accept(ev *teamv1.Event, a *teamv1.Accepted) {
	if v.Accepted != nil {
		return
	}
	v.Accepted = a
	if v.detail == Outline {
		v.Accepted = &teamv1.Accepted{Agent: a.GetAgent(), Pins: a.GetPins(), Message: &a2av1.Message{ContextId: a.GetMessage().GetContextId()}}
	}
	v.Top.Path, v.Top.Since = ev.GetAgent(), v.Now
	if v.detail == Whole {
		v.Top.Given = a.GetMessage()
	}
}

// decide adds the steps of a decision.
func (v *View) decide(in *Node, ev *teamv1.Event, d *teamv1.Decided) {
	if d.GetRound() > 0 {
		in.Round = d.GetRound()
	}
	for _, id := range d.GetCancel() {
		if n := v.nodes[agent.Scope(in.Scope, id)]; n != nil {
			n.Dropped = true
		}
	}
	if v.detail == Whole {
		in.Decisions = append(in.Decisions, ev)
	}
	for _, s := range d.GetSteps() {
		n := &Node{
			Scope: agent.Scope(in.Scope, s.GetId()), Path: ev.GetAgent(), Step: s, Parent: in, InRound: max(in.Round, 1), Seq: v.Seq, Since: v.Now,
		}
		if s.GetMember() != "" {
			n.Path += "/" + s.GetMember()
		}
		if v.detail == Whole {
			n.Given = v.given(in, s.GetInput())
		} else {
			n.Step = &teamv1.Step{Id: s.GetId(), Kind: s.GetKind(), Member: s.GetMember(), Name: s.GetName(), Detached: s.GetDetached()}
		}
		in.Steps = append(in.Steps, n)
		v.nodes[n.Scope] = n
	}
}

// given is the message that an input of a step names: one of its own, one on record, or
// what the step was given that it is part of. A model and a tool, which see more than one
// message, have no input.
func (v *View) given(in *Node, input *teamv1.Input) *a2av1.Message {
	switch {
	case input == nil:
		return nil
	case input.GetMessage() != nil:
		return input.GetMessage()
	case input.GetRef() > 0:
		return v.texts[input.GetRef()]
	}
	return in.Given
}

// Text returns the message that the event with a sequence has put on record; nil if that
// is none.
func (v *View) Text(seq int64) *a2av1.Message { return v.texts[seq] }

// start opens an attempt.
func (v *View) start(n *Node, ev *teamv1.Event, s *teamv1.Started) {
	if n.Begun.IsZero() {
		n.Begun = v.Now
	}
	n.State, n.held = Running, Pending
	if v.detail == Outline {
		return
	}
	n.Attempts = append(n.Attempts, &Attempt{Started: ev})
	if in := s.GetInput(); in.GetMessage() != nil || in.GetRef() > 0 {
		n.Given = v.given(n, in)
	}
}

// retry closes an attempt that failed. A known failure begins anew.
func (v *View) retry(n *Node, ev *teamv1.Event, r *teamv1.Retried) {
	n.State, n.wasted = Retrying, agent.AddSpent(n.wasted, r.GetSpent())
	if r.GetFresh() {
		n.Bound = nil
	}
	if a := n.last(); a != nil {
		a.Ended, a.Error, a.Spent = ev.GetTime(), r.GetError(), r.GetSpent()
	}
}

// command takes a command.
func (v *View) command(n *Node, c *teamv1.Commanded) {
	switch c.GetCommand() {
	case teamv1.Commanded_COMMAND_CANCEL:
		n.canceled = true
	case teamv1.Commanded_COMMAND_STOP:
		n.canceled = n.canceled || n == v.Top
	case teamv1.Commanded_COMMAND_RESUME:
		if n == v.Top {
			v.release()
			v.resume(n)
		}
	case teamv1.Commanded_COMMAND_PAUSE, teamv1.Commanded_COMMAND_UNSPECIFIED:
	}
}

// park notes whether anything of the run goes on.
func (v *View) park(ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Waiting:
		v.Parked = v.Parked || ev.GetScope() == ""
	case *teamv1.Event_Claimed:
	case *teamv1.Event_Commanded:
		if k.Commanded.GetCommand() == teamv1.Commanded_COMMAND_RESUME {
			v.Parked = false
		}
	default:
		v.Parked = false
	}
}

// wait notes that nothing of a node can go on without people, or while the run is paused.
func (v *View) wait(n *Node, w *teamv1.Waiting) {
	if !w.GetPaused() {
		n.State = Waiting
		v.Asking = v.Asking || n == v.Top
		return
	}
	for _, below := range v.nodes {
		if below != v.Top && agent.Within(below.Scope, n.Scope) && (below.State == Running || below.State == Retrying) {
			below.held, below.State = below.State, Waiting
		}
	}
}

// release has go on what did not run while the run was paused.
func (v *View) release() {
	for _, n := range v.nodes {
		if n.State == Waiting && n.held != Pending {
			n.State = n.held
		}
		n.held = Pending
	}
}

// resume has a node go on that waited, and what it works for.
func (v *View) resume(n *Node) {
	v.Asking = false
	for ; n != nil; n = n.Parent {
		if n.State == Waiting && n.asks == 0 && n.held == Pending {
			n.State = Running
		}
	}
}

// end closes a node. What was decided in it and has no end of its own is not needed any
// more.
func (v *View) end(n *Node, ev *teamv1.Event, e *teamv1.Ended) {
	n.spent, n.wasted = e.GetSpent(), nil
	v.shut(n, e.GetOutcome())
	if v.detail == Outline {
		return
	}
	n.End = e
	if n.Reply = e.GetReply(); e.GetReplyRef() > 0 {
		n.Reply = v.texts[e.GetReplyRef()]
		v.texts[ev.GetSeq()] = n.Reply
	}
	if a := n.last(); a != nil && a.Ended == nil {
		a.Ended, a.Error = ev.GetTime(), e.GetError()
	}
}

func (v *View) shut(n *Node, o teamv1.Outcome) {
	n.State, n.Outcome, n.Ended = Ended, o, v.Now
	for _, child := range n.Steps {
		if child.State != Ended {
			v.shut(child, teamv1.Outcome_OUTCOME_CANCELED)
		}
	}
}

// Walk calls do with a node and all below it, each before what is below it.
func (n *Node) Walk(do func(*Node)) {
	do(n)
	for _, child := range n.Steps {
		child.Walk(do)
	}
}

// pending reports whether a step of the node that is one of a decision has not ended.
func (n *Node) pending(steps []*teamv1.Step) bool {
	return slices.ContainsFunc(n.Steps, func(child *Node) bool {
		return child.State != Ended && slices.ContainsFunc(steps, func(s *teamv1.Step) bool { return s.GetId() == child.Step.GetId() })
	})
}
