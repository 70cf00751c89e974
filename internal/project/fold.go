// Package project folds the events of a run into the A2A task that callers see, and into the
// updates that they receive. Both are computed from the events alone.
package project

import (
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Fold computes the A2A task of a scope from the events of its root, which must be applied in order
// from the first. It is not safe for concurrent use. Project also returns the updates that a reader
// of the task receives for each event; a reader who applies them has the same task.
type Fold struct {
	standing
	remarks
	history []*a2av1.Message
	visible bool
	ended   *teamv1.Ended
	answer  *a2av1.Message // the message in ended, with references resolved
	seq     int64          // sequence number of the last event of the scope

	failed   []*journal.Node // delegations that did not succeed, in the order in which they ended
	streamed string          // id of the artifact that holds the scope's own streamed text
	joins    []string        // ids of the steps whose results the answer combines
	handedIn *a2av1.Message  // the last result given to a judge; nil if readers see it already or must not
	kept     *a2av1.Message  // handedIn, if it is shown in place of an answer

	questions
	memberWork
}

// New returns the fold of a scope of a root task before the first event.
func New(root, scope string) *Fold {
	f := &Fold{}
	f.place = place{view: journal.New(root, journal.Messages), scope: scope}
	f.at = &f.place
	return f
}

// Apply folds one event, and returns what it has changed in the run. It keeps the event, but does not change it.
func (f *Fold) Apply(ev *teamv1.Event) journal.Change {
	f.pieces = f.pieces[:0]
	begun := f.view.Accepted != nil
	c := f.view.Apply(ev)
	if d := ev.GetDecided(); d != nil && c.Node != nil {
		f.decided(c.Node, ev, d)
	}
	switch {
	case !begun && ev.GetAccepted() != nil:
		f.accept(ev)
	case !agent.Within(ev.GetScope(), f.scope):
		f.outside(ev)
	default:
		f.seq = ev.GetSeq()
		f.reveal(ev)
		if ev.GetScope() == f.scope {
			f.own(ev, c)
		} else {
			f.below(ev, c)
		}
	}
	return c
}

// outside folds an event of a scope above the task's, or beside it.
func (f *Fold) outside(ev *teamv1.Event) {
	if ev.GetCommanded() != nil && ev.GetScope() == "" {
		f.above(ev)
	}
	if ev.GetEnded() != nil && agent.Within(f.scope, ev.GetScope()) {
		f.abandon(ev)
	}
}

// accept begins the task of the root. The task of a child begins with a decision of its parent.
func (f *Fold) accept(ev *teamv1.Event) {
	acc := ev.GetAccepted()
	if f.scope != "" {
		return
	}
	f.seq = ev.GetSeq()
	f.visible = !acc.GetMayReplyDirectly()
	f.say(acc.GetMessage())
	f.turn(a2av1.TaskState_TASK_STATE_SUBMITTED, ev, nil)
}

// reveal makes a run visible as a task once an event reveals it.
func (f *Fold) reveal(ev *teamv1.Event) {
	f.visible = f.visible || Reveals(ev)
}

// Reveals reports whether an event of a task shows that its run is not answered by a plain message.
func Reveals(ev *teamv1.Event) bool {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Claimed, *teamv1.Event_Started:
		return false
	case *teamv1.Event_Ended:
		return !k.Ended.GetDirect()
	default:
		return true
	}
}

// decided folds a decision of a node: the delegations in it and, if it creates the task of this
// fold, the beginning of that task.
func (f *Fold) decided(in *journal.Node, ev *teamv1.Event, d *teamv1.Decided) {
	f.use(in)
	own := in.Scope == f.scope
	if own {
		f.joins = d.GetJoins()
	}
	for _, n := range in.Steps[len(in.Steps)-len(d.GetSteps()):] {
		if f.has(n) {
			f.members = append(f.members, n)
		}
		if own && n.Step.GetKind() == teamv1.Step_KIND_JUDGE && !n.Step.GetWithheld() {
			f.handedIn = n.Given
		}
		if n.Scope != f.scope {
			continue
		}
		f.visible = true
		f.seq = ev.GetSeq()
		f.say(f.firstMessage(in, n))
		f.turn(a2av1.TaskState_TASK_STATE_SUBMITTED, ev, nil)
	}
}

// own folds an event of the scope itself.
func (f *Fold) own(ev *teamv1.Event, c journal.Change) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		f.given(k.Started.GetInput())
		f.turn(a2av1.TaskState_TASK_STATE_WORKING, ev, nil)
	case *teamv1.Event_Checked:
		f.checked(k.Checked)
	case *teamv1.Event_Asked:
		f.ask(ev)
	case *teamv1.Event_Answered:
		f.answered(ev, c)
	case *teamv1.Event_Received:
		f.say(k.Received.GetMessage())
	case *teamv1.Event_Commanded:
		f.commanded(ev)
	case *teamv1.Event_Waiting:
		if !k.Waiting.GetPaused() {
			f.turn(WaitingState(f.open()), ev, questionText(f.open()))
		}
	case *teamv1.Event_Expired:
		f.expire(ev, k.Expired)
	case *teamv1.Event_Progress:
		f.progress(ev, k.Progress)
	case *teamv1.Event_Artifact:
		f.handedIn = nil
		f.put(piece{artifact: k.Artifact.GetArtifact(), add: k.Artifact.GetAppend(), last: k.Artifact.GetLastChunk()})
	case *teamv1.Event_Delta:
		f.stream(k.Delta)
	case *teamv1.Event_Ended:
		f.end(ev, k.Ended)
	default:
	}
}

// below folds an event of a step of the scope, or deeper.
func (f *Fold) below(ev *teamv1.Event, c journal.Change) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Expired:
		f.expire(ev, k.Expired)
	case *teamv1.Event_Progress:
		f.progress(ev, k.Progress)
	case *teamv1.Event_Asked:
		f.ask(ev)
	case *teamv1.Event_Answered:
		f.answered(ev, c)
	case *teamv1.Event_Received:
		if k.Received.GetTooLate() { // its receipt was confirmed to the sender, who must see it
			f.say(k.Received.GetMessage())
		}
	case *teamv1.Event_Checked:
		f.checked(k.Checked)
	case *teamv1.Event_Delta:
		if f.speaks(c.Node) {
			f.stream(k.Delta)
		} else {
			f.innerText(c.Node, k.Delta)
		}
	case *teamv1.Event_Artifact:
		f.innerArtifact(c.Node, k.Artifact)
	case *teamv1.Event_Ended:
		f.stepEnded(c.Node)
		f.toolFiles(c.Node, k.Ended.GetTool())
	default:
	}
}

// stream adds streamed text to the artifact that the answer will replace.
func (f *Fold) stream(d *teamv1.Delta) {
	f.streamed = d.GetArtifactId()
	f.put(piece{artifact: deltaArtifact(d), add: !d.GetRestart()})
}

// progress sets the status message of a working task. Progress of steps below it counts as well.
func (f *Fold) progress(ev *teamv1.Event, p *teamv1.Progress) {
	if !taskstate.Interrupted(f.state) {
		f.turn(f.state, ev, p.GetMessage())
	}
}

// stepEnded shows how a delegation ended. A task lists each delegation that did not succeed, even
// if its answer does not mention it.
func (f *Fold) stepEnded(n *journal.Node) {
	if n == nil || !f.has(n) {
		return
	}
	f.finished(n)
	if n.Step.GetRequired() && n.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED && n.Outcome != teamv1.Outcome_OUTCOME_SKIPPED {
		f.failed = append(f.failed, n) // an empty reply and a cancel on purpose are failures too
		return
	}
	if n.Dropped && n.Outcome == teamv1.Outcome_OUTCOME_CANCELED {
		return // canceled on purpose: it is not a failure
	}
	switch n.Outcome {
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT, teamv1.Outcome_OUTCOME_REJECTED, teamv1.Outcome_OUTCOME_CANCELED:
		f.failed = append(f.failed, n)
	case teamv1.Outcome_OUTCOME_UNSPECIFIED, teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_SKIPPED:
	}
}

// turn sets the status of the task as of an event. m is the status message; nil means none.
func (f *Fold) turn(state a2av1.TaskState, ev *teamv1.Event, m *a2av1.Message) {
	f.state, f.status = state, f.Placed(m)
	f.statusAt = ev.GetTime().AsTime().Truncate(time.Millisecond)
}

// say adds a message to the history. It does nothing if m is nil.
func (f *Fold) say(m *a2av1.Message) {
	if m != nil {
		f.history = append(f.history, f.Placed(m))
	}
}

// Task returns the task in its current state. The elements of its lists are shared and must not be
// changed.
func (f *Fold) Task() *a2av1.Task { return f.Snapshot(false) }

// Snapshot returns the task like Task does. With details, the metadata also holds what is only
// shown to callers that activated the team-run extension.
func (f *Fold) Snapshot(details bool) *a2av1.Task {
	return Copy(&a2av1.Task{
		Id: f.ID(), ContextId: f.ContextID(), Status: f.taskStatus(), Metadata: f.metadata(nil, details), Artifacts: f.artifacts, History: f.history,
	})
}

// Copy returns a copy of a task, whose fields, artifacts and lists can be changed. The elements of the lists are shared.
func Copy(t *a2av1.Task) *a2av1.Task {
	to := &a2av1.Task{
		Id: t.GetId(), ContextId: t.GetContextId(), Status: t.GetStatus(), Metadata: t.GetMetadata(),
		Artifacts: make([]*a2av1.Artifact, len(t.GetArtifacts())), History: slices.Clip(t.GetHistory()),
	}
	for i, a := range t.GetArtifacts() {
		to.Artifacts[i] = &a2av1.Artifact{
			ArtifactId: a.GetArtifactId(), Name: a.GetName(), Description: a.GetDescription(), Parts: slices.Clip(a.GetParts()),
			Metadata: a.GetMetadata(), Extensions: a.GetExtensions(),
		}
	}
	return to
}

// Visible reports whether the owner sees the run as a task. It does not while the run may still be
// answered by a plain message.
func (f *Fold) Visible() bool { return f.Exists() && f.visible }

// Terminal reports whether the task has ended.
func (f *Fold) Terminal() bool { return f.ended != nil }

// Last returns the sequence number of the last event in the scope of the task.
func (f *Fold) Last() int64 { return f.seq }

// maxHistory is the maximum number of history messages in a task that is shown.
const maxHistory = 100

// CutHistory removes all but the last messages of a task's history and returns t. It keeps as many
// as history says, at most maxHistory; nil means maxHistory.
func CutHistory(t *a2av1.Task, history *int32) *a2av1.Task {
	n := maxHistory
	if history != nil {
		n = min(int(*history), maxHistory)
	}
	if extra := len(t.GetHistory()) - n; extra > 0 {
		t.History = slices.Clone(t.GetHistory()[extra:]) // does not keep the removed messages in memory
	}
	if n == 0 {
		t.History = nil
	}
	return t
}

// Answer returns the message with which the run ended, nil without one. The result must not be
// changed.
func (f *Fold) Answer() *a2av1.Message { return f.answer }

// Ended returns how the run ended, nil if it has not. The result must not be changed.
func (f *Fold) Ended() *teamv1.Ended { return f.ended }

// given replaces the first message of the history if a middleware has changed it before the task
// began.
func (f *Fold) given(in *teamv1.Input) {
	m := in.GetMessage()
	if m == nil {
		m = f.view.Text(in.GetRef())
	}
	if m != nil && len(f.history) > 0 {
		f.history[0] = f.Placed(m)
	}
}
