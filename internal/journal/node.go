package journal

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// State is the state of a node.
type State int8

// The states of a node. A Pending node has not begun. A Waiting node waits for people, or is held
// because the run is paused.
const (
	Pending State = iota
	Running
	Retrying
	Waiting
	Ended
)

// Node is a piece of work: the root task, or a step at any level below it. In an outline, the
// fields from Given on are empty.
type Node struct {
	// Scope is the place of the node in the run; it is empty for the root.
	Scope string
	// Path is the path of the agent that works on the node.
	Path string
	// Step is the step as it was decided; nil for the root. In an outline it has only the id, kind,
	// member, name, detached and required fields.
	Step *teamv1.Step
	// Parent is the node that this one is part of, nil for the root. Steps are the parts of this
	// node, in the order in which they were decided.
	Parent *Node
	Steps  []*Node
	// Round is the latest round of revision in this node, 0 without one. InRound is the round of
	// the parent in which this node was decided, starting at 1.
	Round, InRound int32
	// Tries is the highest number of an attempt of this node or of a step below it.
	Tries int32
	// Outcome is how the node ended; it is only set if State is Ended.
	Outcome teamv1.Outcome
	State   State
	// Dropped reports whether its parent canceled the node because it is no longer needed.
	Dropped bool
	// Seq is the sequence number of the event that decided the node, 0 for the root. EndSeq is that
	// of its Ended event. It is 0 without one, also if the node ended only because its parent did.
	Seq, EndSeq int64
	// Since, Begun and Ended are the times when the node was decided, when it began and when it
	// ended. They are zero if that has not happened.
	Since, Begun, Ended time.Time
	// Bound refers to the remote task of the node, and Spawned to the separate task as which it was
	// begun; nil without one.
	Bound   *teamv1.Bound
	Spawned *teamv1.Spawned

	// Given is the message that the node was given; nil for a step that sees more than one message,
	// such as a model call.
	Given *a2av1.Message
	// Reply is the message with which the node ended.
	Reply *a2av1.Message
	// End is how the node ended. It is nil while it has not, and if it ended only because its
	// parent did. In a view that is not Whole, it is also nil for steps that are not delegations.
	End *teamv1.Ended
	*Details

	asks     int32          // number of its own open questions
	held     State          // the state before a pause held the node; Pending if it is not held
	spent    *teamv1.Spent  // the costs in its end; before that, the costs of failed attempts
	reserved *teamv1.Spent  // the reservation of the attempt that is open; nil before the first attempt and between attempts
	input    *a2av1.Message // Given, or the message that a middleware has replaced it with
	context  *context       // changes of the context by its decisions; nil without any
}

// Details are kept for each node by a view with detail Whole. They are empty in other views.
type Details struct {
	// Attempts, Decisions and Asked are those of the node itself, in order. Decisions are the
	// events that hold them.
	Attempts  []*Attempt
	Decisions []*teamv1.Event
	Asked     []*Question
	// Notes are the other events of the node: Received, Commanded, Checked, Noted and Expired.
	Notes []*teamv1.Event
}

// context holds the changes that the decisions of a node make to the run's context.
type context struct {
	settled map[string]*structpb.Value
	waiting []change // until the steps of their decisions have ended
}

// change is what a decision changes in the context once its steps have ended.
type change struct {
	updates map[string]*structpb.Value
	steps   []*Node
}

// Attempt is one attempt of a node.
type Attempt struct {
	// Started is the event that began it.
	Started *teamv1.Event
	// Ended is the time when it ended; nil while it has not.
	Ended *timestamppb.Timestamp
	// Error is why it failed; nil if it has not failed.
	Error *teamv1.Error
	// Spent is what a failed attempt cost, if another one follows.
	Spent *teamv1.Spent
}

// last returns the latest attempt, nil without one.
func (n *Node) last() *Attempt {
	if len(n.Attempts) == 0 {
		return nil
	}
	return n.Attempts[len(n.Attempts)-1]
}

// Delegated reports whether the node is work that was given to a member.
func (n *Node) Delegated() bool { return agent.IsDelegation(n.Step.GetKind()) }

// Open reports whether the node has not ended.
func (n *Node) Open() bool { return n.State != Ended }

// Held reports whether the node does not run because the run is paused.
func (n *Node) Held() bool { return n.State == Waiting && n.held != Pending }

// Input returns the message that the node works on: Given, or the message that a middleware has
// replaced it with. It is nil for a step that sees more than one message, and in an outline.
func (n *Node) Input() *a2av1.Message { return n.input }

// Spent returns the cost of the node and everything below it: the one in its end or, before that,
// what is recorded so far. Nil means no cost.
func (n *Node) Spent() *teamv1.Spent {
	if n.EndSeq > 0 && n.spent != nil {
		return n.spent
	}
	sum := n.spent
	for _, child := range n.Steps {
		sum = agent.AddSpent(sum, child.Spent())
	}
	return sum
}

// Own returns the cost of the node without the cost of the steps below it. Only a node without steps
// has a cost of its own, so a part below that is estimated or claimed accounts for the whole.
func (n *Node) Own() *teamv1.Spent {
	own := n.Spent()
	for _, child := range n.Steps {
		own = agent.LessSpent(own, child.Spent())
	}
	return own
}

// Context returns the context that all agents of the run share: that of the brief, with the changes
// made by the root's decisions. The changes of a decision take effect when its steps have ended, or
// when the run has. An outline has no changes. The result is shared and must not be changed.
func (v *View) Context() map[string]*structpb.Value {
	given := v.Accepted.GetCollaboration().GetContext().GetFields()
	if len(given) == 0 {
		return v.Top.Changes()
	}
	all := maps.Clone(given)
	maps.Copy(all, v.Top.Changes())
	return all
}

// Changes returns the changes that the node's own decisions have made to the context, nil without
// any. The result is shared and must not be changed.
func (n *Node) Changes() map[string]*structpb.Value {
	if n.context == nil {
		return nil
	}
	return n.context.settled
}

// change adds the updates of a decision, which take effect when its steps have ended.
func (n *Node) change(updates map[string]*structpb.Value, steps []*Node) {
	if len(updates) == 0 {
		return
	}
	if n.context == nil {
		n.context = &context{settled: map[string]*structpb.Value{}}
	}
	n.context.waiting = append(n.context.waiting, change{updates, steps})
	n.settle(false)
}

// settle applies the changes whose steps have ended, or all changes, in the order of their
// decisions.
func (n *Node) settle(all bool) {
	if n.context == nil {
		return
	}
	n.context.waiting = slices.DeleteFunc(n.context.waiting, func(c change) bool {
		ended := all || !slices.ContainsFunc(c.steps, (*Node).Open)
		if ended {
			maps.Copy(n.context.settled, c.updates)
		}
		return ended
	})
}
