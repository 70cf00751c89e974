package project

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TeamRunURI is the URI of the extension under which tasks and their updates carry a
// team.v1.TeamRun as metadata.
const TeamRunURI = "https://github.com/agentteams/team-server/ext/team-run/v1"

// known is the part of a task whose changes all readers receive.
type known struct {
	state             a2av1.TaskState
	at                time.Time // time of the status
	status            *a2av1.Message
	questions, failed int
	warnings          int
	cancel, paused    bool
}

// known returns what readers know after the last event.
func (f *Fold) known() known {
	return known{f.state, f.statusAt, f.status, len(f.open()), len(f.failed), len(f.warnings), f.canceling(), f.Paused()}
}

// Project folds an event and returns the updates for readers of the task: state changes, artifacts,
// questions, failures and warnings. With details, for readers that activated the extension, these
// also include every decision and the start and end of every step.
func (f *Fold) Project(ev *teamv1.Event, details bool) []*a2av1.StreamResponse {
	before, running := f.known(), f.ended == nil
	f.tells = true
	f.Apply(ev)
	if running && f.ended != nil {
		return append(f.artifactUpdates(ev, 1), f.statusUpdate(ev, details))
	}
	if !agent.Within(ev.GetScope(), f.scope) {
		if f.Exists() && running && f.known() != before { // a command for the whole run has changed it
			return []*a2av1.StreamResponse{f.statusUpdate(ev, details)}
		}
		return nil
	}
	switch ev.GetKind().(type) {
	case *teamv1.Event_Delta, *teamv1.Event_Artifact:
		return f.artifactUpdates(ev, 0)
	case *teamv1.Event_Claimed, *teamv1.Event_Accepted:
		return nil
	}
	if details || f.known() != before {
		return append(f.artifactUpdates(ev, 1), f.statusUpdate(ev, details))
	}
	return f.artifactUpdates(ev, 0)
}

// artifactUpdates returns updates for what the event has written to artifacts. The slice has
// capacity for room more updates.
func (f *Fold) artifactUpdates(ev *teamv1.Event, room int) []*a2av1.StreamResponse {
	if len(f.pieces)+room == 0 {
		return nil
	}
	out := make([]*a2av1.StreamResponse, len(f.pieces), len(f.pieces)+room)
	for i, p := range f.pieces {
		run := &teamv1.TeamRun{Seq: ev.GetSeq(), Path: ev.GetAgent()}
		if p.by != nil {
			run.Path, run.DelegationId, run.Parent = p.by.Path, f.task(p.by), f.task(p.by.Parent)
		}
		out[i] = &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
			TaskId: f.ID(), ContextId: f.ContextID(), Artifact: p.artifact, Append: p.add, LastChunk: p.last, Metadata: Metadata(run),
		}}}
	}
	return out
}

// statusUpdate returns an update with the current status, about an event.
func (f *Fold) statusUpdate(ev *teamv1.Event, details bool) *a2av1.StreamResponse {
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_StatusUpdate{StatusUpdate: &a2av1.TaskStatusUpdateEvent{
		TaskId: f.ID(), ContextId: f.ContextID(), Status: f.taskStatus(), Metadata: f.metadata(ev, details),
	}}}
}

// metadata returns the task's TeamRun for an update about ev, or for the task itself if ev is nil.
// Details add a description of the event and, to the task itself and the update that ends it, the
// whole run.
func (f *Fold) metadata(ev *teamv1.Event, details bool) *structpb.Struct {
	r := &teamv1.TeamRun{
		Seq: f.seq, Questions: f.Questions(), Paused: f.Paused(), FailedDelegations: f.delegations(f.failed), CancelRequested: f.canceling(),
		Warnings: f.warnings, Receipt: f.ended.GetReceipt(), Error: f.ended.GetError(), Spent: f.ended.GetSpent(),
		Budgets: f.ended.GetBudgets(),
	}
	if ev != nil {
		r.Seq = ev.GetSeq()
	}
	if details && ev != nil {
		describe(r, f.view.Root, ev)
	}
	if details && (ev == nil || f.ended != nil) {
		r.Delegations, r.Context, r.Limits = f.delegations(f.members), f.context(), f.view.Accepted.GetLimits()
	}
	return Metadata(r)
}

// describe adds what an event is to r: where it comes from, and what was decided or how a
// delegation changed.
func describe(r *teamv1.TeamRun, root string, ev *teamv1.Event) {
	r.Path = ev.GetAgent()
	r.DelegationId = agent.ChildTask(root, ev.GetScope())
	if ev.GetScope() != "" {
		r.Parent = agent.ChildTask(root, agent.Parent(ev.GetScope()))
	}
	r.Kind = kindOf(ev)
	r.Decision = ev.GetDecided()
	if e := ev.GetEnded(); e != nil {
		r.Delegations = []*teamv1.Delegation{{
			Id: r.GetDelegationId(), Path: ev.GetAgent(), Outcome: e.GetOutcome(), Error: e.GetError(), Spent: e.GetSpent(),
		}}
	}
	if s := ev.GetStarted(); s != nil {
		r.Delegations = []*teamv1.Delegation{{Id: r.GetDelegationId(), Path: ev.GetAgent(), Attempts: s.GetAttempt()}}
	}
}

// kindOf returns the name of the event's kind, which is the name of its field in the oneof.
func kindOf(ev *teamv1.Event) string {
	m := ev.ProtoReflect()
	if fd := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); fd != nil {
		return string(fd.Name())
	}
	return ""
}

// Metadata returns a Struct that holds r in its JSON form under TeamRunURI. It returns nil if r has
// no JSON form, see structOf.
func Metadata(r *teamv1.TeamRun) *structpb.Struct {
	s, ok := structOf(r.ProtoReflect())
	if !ok {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{TeamRunURI: structpb.NewStructValue(s)}}
}
