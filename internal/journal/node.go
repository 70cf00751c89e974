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

// State is how a node stands.
type State int8

// States. Pending is one that has not begun, Waiting one that waits for people, or does
// not run because the run is paused.
const (
	Pending State = iota
	Running
	Retrying
	Waiting
	Ended
)

// Node is a piece of work: the root task, or a step at any level below it. Of an outline
// the fields from Given on are empty.
type Node struct {
	// Scope is its place: empty for the root.
	Scope string
	// Path is that of the agent that works on it.
	Path string
	// Step is what was decided; nil for the root. An outline keeps its id, kind, member and
	// name, and whether it is detached.
	Step *teamv1.Step
	// Parent is what it is a part of, nil for the root; Steps are its own parts, in the order
	// they were decided.
	Parent *Node
	Steps  []*Node
	// Round is the last round of revision that was begun in it; 0 is none. InRound is that of
	// its parent in which it was decided, from 1.
	Round, InRound int32
	// Tries is the number of its last attempt, or of the last one of a step below it, if that
	// is greater.
	Tries int32
	// Outcome, once it has ended, and State are how it stands.
	Outcome teamv1.Outcome
	State   State
	// Dropped reports that it was canceled because nobody needs it.
	Dropped bool
	// Seq is the sequence of the event that it was decided with, 0 of the root. EndSeq is that
	// of its own end, 0 while it has none: also when its parent has ended before it.
	Seq, EndSeq int64
	// Since is when it was decided, Begun and Ended are when it began and ended; zero is that
	// it has not.
	Since, Begun, Ended time.Time
	// Bound is its task at a peer and Spawned that of its own that it has become; nil is none.
	Bound   *teamv1.Bound
	Spawned *teamv1.Spawned

	// Given is the message that it was given; nil where it sees more than one.
	Given *a2av1.Message
	// Reply is the message that it ended with.
	Reply *a2av1.Message
	// End is how it ended; nil while it has not, and for one whose parent ended before it. It
	// is also nil for steps that no member works on, unless the view is of the whole.
	End *teamv1.Ended
	*Details

	asks    int32          // its own open questions
	held    State          // before it was held while the run is paused; Pending: it is not held
	spent   *teamv1.Spent  // what its end says; until then what failed attempts cost
	input   *a2av1.Message // Given, or what middlewares have made of it
	context *context       // what its decisions change; nil: nothing
}

// Details are what only a view of the whole keeps of a node. They are empty in other views.
type Details struct {
	// Attempts, Decisions and Asked are the node's own, in order. Decisions are events.
	Attempts  []*Attempt
	Decisions []*teamv1.Event
	Asked     []*Question
	// Notes are the events of what else happened to it: received, commanded, checked, noted,
	// expired.
	Notes []*teamv1.Event
}

// context is what the decisions of a node change of the run's context.
type context struct {
	settled map[string]*structpb.Value
	waiting []change // for the ends of their steps
}

// change is what a decision changes of the context once its steps have ended.
type change struct {
	updates map[string]*structpb.Value
	steps   []*Node
}

// Attempt is one try of a node.
type Attempt struct {
	// Started is its beginning.
	Started *teamv1.Event
	// Ended is when it ended; nil is that it has not.
	Ended *timestamppb.Timestamp
	// Error is why it failed; nil is that it did not.
	Error *teamv1.Error
	// Spent is what it cost when it failed.
	Spent *teamv1.Spent
}

func (n *Node) last() *Attempt {
	if len(n.Attempts) == 0 {
		return nil
	}
	return n.Attempts[len(n.Attempts)-1]
}

// Delegated reports whether it is work that a member was given.
func (n *Node) Delegated() bool { return agent.IsDelegation(n.Step.GetKind()) }

// Open reports whether it has not ended.
func (n *Node) Open() bool { return n.State != Ended }

// Held reports whether it does not run because the run is paused.
func (n *Node) Held() bool { return n.State == Waiting && n.held != Pending }

// Input returns what the node works on: the message that it was given, or what middlewares
// have made of that. It is nil where it sees more than one, and in an outline.
func (n *Node) Input() *a2av1.Message { return n.input }

// Spent is what it cost with everything below it: what its end says, and before that what
// is on record of it so far. Nil is nothing.
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

// Own is what it cost without what is below it.
func (n *Node) Own() *teamv1.Spent {
	own := n.Spent()
	for _, child := range n.Steps {
		own = less(own, child.Spent())
	}
	return own
}

// less is a without b, which is a part of it.
func less(a, b *teamv1.Spent) *teamv1.Spent {
	if b == nil {
		return a
	}
	return &teamv1.Spent{
		InputTokens: a.GetInputTokens() - b.GetInputTokens(), OutputTokens: a.GetOutputTokens() - b.GetOutputTokens(),
		CostMicros: a.GetCostMicros() - b.GetCostMicros(), ModelCalls: a.GetModelCalls() - b.GetModelCalls(), ToolCalls: a.GetToolCalls() - b.GetToolCalls(),
	}
}

// Context returns what all that work on the run know: what the brief says, with the changes
// of the root's decisions. Those of a decision count once its steps have ended, at the
// latest when the run has. An outline has no changes. Shared: read only.
func (v *View) Context() map[string]*structpb.Value {
	given := v.Accepted.GetCollaboration().GetContext().GetFields()
	if len(given) == 0 {
		return v.Top.Changes()
	}
	all := maps.Clone(given)
	maps.Copy(all, v.Top.Changes())
	return all
}

// Changes returns what the decisions of the node itself have changed of the context, nil
// without changes. Shared: read only.
func (n *Node) Changes() map[string]*structpb.Value {
	if n.context == nil {
		return nil
	}
	return n.context.settled
}

// change takes the updates of a decision with its steps.
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

// settle applies the changes whose steps have ended, in the order they were decided, or all.
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
