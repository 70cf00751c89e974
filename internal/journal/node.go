package journal

import (
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// State is how a node stands.
type State int

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
	// State and, once it has ended, Outcome are how it stands.
	State   State
	Outcome teamv1.Outcome
	// Dropped reports that it was canceled because nobody needs it.
	Dropped bool
	// Seq is the sequence of the event that it was decided with; 0 of the root.
	Seq int64
	// Since is when it was decided, Begun and Ended are when it began and ended; zero is that
	// it has not.
	Since, Begun, Ended time.Time
	// Bound is its task at a peer and Spawned that of its own that it has become; nil is none.
	Bound   *teamv1.Bound
	Spawned *teamv1.Spawned

	// Given is the message that it was given; nil where it sees more than one.
	Given *a2av1.Message
	// End is how it ended; nil while it has not, and for one whose parent ended before it.
	End *teamv1.Ended
	// Reply is the message that it ended with.
	Reply *a2av1.Message
	// Attempts, Decisions and Asked are its own, in order. Decisions are events.
	Attempts  []*Attempt
	Decisions []*teamv1.Event
	Asked     []*Question
	// Notes are the events of what else happened to it: received, commanded, checked, noted,
	// expired.
	Notes []*teamv1.Event

	asks     int   // its own open questions
	canceled bool  // that is under way
	held     State // before it was held while the run is paused; Pending: it is not held
	spent    *teamv1.Spent
	wasted   *teamv1.Spent // by failed attempts, until its end includes them
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

// Canceling reports whether it, or what it works for, is being canceled.
func (n *Node) Canceling() bool {
	return n.canceled || n.Parent != nil && n.Parent.Canceling()
}

// Spent is what it cost with everything below it: what its end says, and before that what
// is on record of it so far. Nil is nothing.
func (n *Node) Spent() *teamv1.Spent {
	if !n.Open() && n.spent != nil {
		return n.spent
	}
	sum := n.wasted
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

// Context is what all that work on the run know: what the brief says, with the changes of
// the root's decisions. Those of a decision count once its steps have ended, at the latest
// when the run has.
func (v *View) Context() map[string]*structpb.Value {
	all := map[string]*structpb.Value{}
	maps.Copy(all, v.Accepted.GetCollaboration().GetContext().GetFields())
	for _, ev := range v.Top.Decisions {
		if d := ev.GetDecided(); len(d.GetUpdates()) > 0 && (!v.Top.Open() || !v.Top.pending(d.GetSteps())) {
			maps.Copy(all, d.GetUpdates())
		}
	}
	return all
}
