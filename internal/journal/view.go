// Package journal folds the events of a run into a tree of its work: what each agent was given, its
// state, its result, its questions and its costs. What the server shows of a run is computed from
// that tree.
package journal

import (
	"slices"
	"strconv"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// Detail is how much a view keeps.
type Detail int

// The levels of detail.
const (
	// Outline keeps the state and the cost of the work. It keeps no events except those of open
	// questions, and no messages of steps, so that its size does not depend on what is said.
	Outline Detail = iota
	// Messages also keeps the steps as they were decided, their inputs and replies, the changes of
	// the context and, until the run has ended, the recorded messages.
	Messages
	// Whole also keeps the decisions, attempts, questions and results of all nodes.
	Whole
)

// View is the state of a run, computed from its events. They must be applied in order, from the
// first or from any before which nothing of the run is needed. A view is not safe for concurrent
// use. What it holds is shared and must not be changed.
type View struct {
	Summary
	// Root is the id of the root task.
	Root string
	// Accepted is how the run began; nil before that event. An outline keeps only the agent, the
	// pins and the context id.
	Accepted *teamv1.Accepted
	// Seq and Now are the sequence number and the time of the last event.
	Seq int64
	Now time.Time
	// Top is the root task. It is never nil.
	Top *Node
	// Asking reports whether the run has been parked because it waits for people.
	Asking bool

	detail Detail
	texts  *Texts // always empty in an outline
}

// Change is what an event has changed.
type Change struct {
	// Node is the node that the event belongs to; nil if no decision for it was applied.
	Node *Node
	// Asked is the question that was asked, nil without one. Closed are the questions that are no
	// longer open.
	Asked  *Question
	Closed []*Question
}

// New returns the view of a run without events.
func New(root string, d Detail) *View {
	v := &View{Root: root, Top: &Node{}, detail: d, texts: &Texts{}}
	v.addDetails(v.Top)
	return v
}

// noDetails is shared by all nodes of views that keep no details. It is never changed.
var noDetails = &Details{}

// addDetails sets the details of a new node.
func (v *View) addDetails(n *Node) {
	n.Details = noDetails
	if v.detail == Whole {
		n.Details = &Details{}
	}
}

// Node returns the node of a scope, nil if no decision for it was applied.
func (v *View) Node(scope string) *Node {
	n := v.Top
	for scope != "" && n != nil {
		var id string
		id, scope, _ = strings.Cut(scope, ".")
		n = n.step(id)
	}
	return n
}

// step returns the step with an id, nil without one. It first tries the position that the id names,
// because teams number their steps from 1.
func (n *Node) step(id string) *Node {
	if i, err := strconv.Atoi(id); err == nil && i > 0 && i <= len(n.Steps) && n.Steps[i-1].Step.GetId() == id {
		return n.Steps[i-1]
	}
	i := slices.IndexFunc(n.Steps, func(child *Node) bool { return child.Step.GetId() == id })
	if i < 0 {
		return nil
	}
	return n.Steps[i]
}

// Apply applies the next event and returns what it has changed. It keeps the event, but does not
// change it.
func (v *View) Apply(ev *teamv1.Event) Change {
	v.Seq, v.Now = ev.GetSeq(), ev.GetTime().AsTime()
	c := Change{Node: v.Node(ev.GetScope())}
	c.Asked, c.Closed = v.Summary.Apply(ev)
	if v.detail != Outline {
		v.texts.Add(ev.GetSeq(), MessageOf(v.Root, ev))
	}
	v.ask(ev, c)
	if c.Node != nil {
		v.apply(c.Node, ev)
	}
	return c
}

// apply changes the node that an event belongs to.
func (v *View) apply(n *Node, ev *teamv1.Event) {
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
	case *teamv1.Event_Checked:
		v.note(n, ev)
		v.check(n, k.Checked)
	case *teamv1.Event_Received, *teamv1.Event_Noted:
		v.note(n, ev)
	case *teamv1.Event_Spawned:
		n.Spawned = k.Spawned
	case *teamv1.Event_Bound:
		if k.Bound.GetTaskId() != "" {
			n.Bound = k.Bound
		}
	case *teamv1.Event_Ended:
		v.end(n, ev, k.Ended)
	}
}

// note adds an event to the notes of a node in a view with detail Whole.
func (v *View) note(n *Node, ev *teamv1.Event) {
	if v.detail == Whole {
		n.Notes = append(n.Notes, ev)
	}
}

// accept sets how the run began.
func (v *View) accept(ev *teamv1.Event, a *teamv1.Accepted) {
	if v.Accepted != nil {
		return
	}
	v.Accepted = a
	if v.detail == Outline {
		v.Accepted = &teamv1.Accepted{Agent: a.GetAgent(), Pins: a.GetPins(), Message: &a2av1.Message{ContextId: a.GetMessage().GetContextId()}}
	}
	v.Top.Path, v.Top.Since = ev.GetAgent(), v.Now
	if v.detail != Outline {
		v.Top.Given, v.Top.input = a.GetMessage(), a.GetMessage()
	}
}

// check replaces the input of a node if a middleware has changed it.
func (v *View) check(n *Node, c *teamv1.Checked) {
	if v.detail != Outline && c.GetStage() == teamv1.Checked_STAGE_INPUT && c.GetRef() == 0 && c.GetMessage() != nil {
		n.input = c.GetMessage()
	}
}

// decide adds the steps of a decision.
func (v *View) decide(in *Node, ev *teamv1.Event, d *teamv1.Decided) {
	if d.GetRound() > 0 {
		in.Round = d.GetRound()
	}
	for _, id := range d.GetCancel() {
		if n := in.step(id); n != nil {
			n.Dropped = true
		}
	}
	if v.detail == Whole {
		in.Decisions = append(in.Decisions, ev)
	}
	first := len(in.Steps)
	for _, s := range d.GetSteps() {
		n := &Node{
			Scope: agent.Scope(in.Scope, s.GetId()), Path: ev.GetAgent(), Step: s, Parent: in, InRound: max(in.Round, 1), Seq: v.Seq, Since: v.Now,
		}
		v.addDetails(n)
		if s.GetMember() != "" {
			n.Path += "/" + s.GetMember()
		}
		if v.detail == Outline {
			n.Step = &teamv1.Step{Id: s.GetId(), Kind: s.GetKind(), Member: s.GetMember(), Name: s.GetName(), Detached: s.GetDetached(), Required: s.GetRequired()}
		} else {
			n.Given = v.Given(in, s.GetInput())
			n.input = n.Given
		}
		in.Steps = append(in.Steps, n)
	}
	if v.detail != Outline {
		in.change(d.GetUpdates(), in.Steps[first:len(in.Steps):len(in.Steps)])
	}
}

// Given returns the message that an input of a step refers to: the input's own, a recorded one, or
// the input of the node in, whose step it is. It is nil for a step without an input, such as a
// model or tool call, which sees more than one message.
func (v *View) Given(in *Node, input *teamv1.Input) *a2av1.Message {
	if input == nil {
		return nil
	}
	return v.texts.Resolve(input, in.input)
}

// Text returns the message that the event with a sequence number recorded. It is nil if there is
// none, in an outline, and in a view with detail Messages after the run has ended.
func (v *View) Text(seq int64) *a2av1.Message { return v.texts.At(seq) }

// start begins an attempt. One that was open was interrupted, and what it may have cost is booked.
func (v *View) start(n *Node, ev *teamv1.Event, s *teamv1.Started) {
	if lost := spending.LostOn(n.reserved); lost != nil {
		n.spent = agent.AddSpent(n.spent, lost)
		if a := n.last(); a != nil {
			a.Ended, a.Spent = ev.GetTime(), lost
		}
	}
	n.reserved = s.GetReserved()
	if n.Begun.IsZero() {
		n.Begun = v.Now
	}
	n.State, n.held = Running, Pending
	for above := n; above != nil; above = above.Parent {
		above.Tries = max(above.Tries, s.GetAttempt())
	}
	if v.detail == Whole {
		n.Attempts = append(n.Attempts, &Attempt{Started: ev})
	}
	if in := s.GetInput(); v.detail != Outline && (in.GetMessage() != nil || in.GetRef() > 0) {
		n.Given = v.Given(n, in)
		n.input = n.Given
	}
}

// retry ends an attempt that failed. A retry that starts the step anew unbinds it from its remote
// task.
func (v *View) retry(n *Node, ev *teamv1.Event, r *teamv1.Retried) {
	n.State, n.spent, n.reserved = Retrying, agent.AddSpent(n.spent, r.GetSpent()), nil
	if r.GetFresh() {
		n.Bound = nil
	}
	if a := n.last(); a != nil {
		a.Ended, a.Error, a.Spent = ev.GetTime(), r.GetError(), r.GetSpent()
	}
}

// command applies a command. Only a resume changes nodes.
func (v *View) command(n *Node, c *teamv1.Commanded) {
	if c.GetCommand() == teamv1.Commanded_COMMAND_RESUME && n == v.Top {
		v.release()
		v.resume(n)
	}
}

// wait marks a node that waits for people or, if the run is paused, the running nodes at and below
// it.
func (v *View) wait(n *Node, w *teamv1.Waiting) {
	if !w.GetPaused() {
		n.State = Waiting
		v.Asking = v.Asking || n == v.Top
		return
	}
	n.Walk(func(below *Node) {
		if below != v.Top && (below.State == Running || below.State == Retrying) {
			below.held, below.State = below.State, Waiting
		}
	})
}

// release restores the state of nodes that a pause has held.
func (v *View) release() {
	v.Top.Walk(func(n *Node) {
		if n.State == Waiting && n.held != Pending {
			n.State = n.held
		}
		n.held = Pending
	})
}

// resume marks a node that waited for people as running, and the nodes above it.
func (v *View) resume(n *Node) {
	v.Asking = false
	for ; n != nil; n = n.Parent {
		if n.State == Waiting && n.asks == 0 && n.held == Pending {
			n.State = Running
		}
	}
}

// end closes a node. Steps below it that have not ended are canceled.
func (v *View) end(n *Node, ev *teamv1.Event, e *teamv1.Ended) {
	n.spent, n.EndSeq, n.reserved = e.GetSpent(), ev.GetSeq(), nil
	v.shut(n, e.GetOutcome())
	if n.Parent != nil {
		n.Parent.settle(false)
	}
	if v.detail == Outline {
		return
	}
	if v.detail == Whole || n.Parent == nil || n.Delegated() {
		n.End = e
	}
	if n.Reply = e.GetReply(); e.GetReplyRef() > 0 {
		n.Reply = v.texts.At(e.GetReplyRef())
		v.texts.Add(ev.GetSeq(), n.Reply)
	}
	if v.detail == Messages && n == v.Top {
		v.texts = &Texts{} // no later event refers to the messages
	}
	if a := n.last(); a != nil && a.Ended == nil {
		a.Ended, a.Error = ev.GetTime(), e.GetError()
	}
}

// shut marks a node as ended with an outcome, and the open steps below it as canceled.
func (v *View) shut(n *Node, o teamv1.Outcome) {
	n.State, n.Outcome, n.Ended = Ended, o, v.Now
	for _, child := range n.Steps {
		if child.State != Ended {
			v.shut(child, teamv1.Outcome_OUTCOME_CANCELED)
		}
	}
	n.settle(true)
}

// Walk calls do for the node and all nodes below it, parents first.
func (n *Node) Walk(do func(*Node)) {
	do(n)
	for _, child := range n.Steps {
		child.Walk(do)
	}
}
