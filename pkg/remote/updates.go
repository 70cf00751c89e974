package remote

import (
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// take converts a response of the peer and yields what belongs on our record. It reports whether
// the call is done. Responses about other tasks are ignored.
func (x *exchange) take(r *a2av1.StreamResponse) (done bool, err error) {
	if m := r.GetMessage(); m != nil {
		return false, x.message(m)
	}
	fresh := !x.answered // the first response after an answer may still show its question
	x.answered = false
	id, contextID := taskOf(r)
	if x.bound == nil || id == x.bound.GetTaskId() {
		x.hear(r)
	}
	if ours, err := x.meet(id, contextID); err != nil || !ours {
		return false, err
	}
	if !x.tasked {
		x.tasked = true
		for _, m := range x.said {
			if err := x.progress(m); err != nil {
				return false, err
			}
		}
	}
	switch k := r.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		ended := k.Task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED
		if x.gap && ended {
			x.output.only(k.Task.GetArtifacts())
		}
		for _, a := range k.Task.GetArtifacts() {
			if err := x.artifact(a, false, ended); err != nil {
				return false, err
			}
		}
		if !fresh && taskstate.Interrupted(k.Task.GetStatus().GetState()) {
			return false, nil
		}
		return x.status(k.Task.GetStatus(), k.Task.GetMetadata())
	case *a2av1.StreamResponse_StatusUpdate:
		return x.status(k.StatusUpdate.GetStatus(), k.StatusUpdate.GetMetadata())
	case *a2av1.StreamResponse_ArtifactUpdate:
		u := k.ArtifactUpdate
		return false, x.artifact(u.GetArtifact(), u.GetAppend(), u.GetLastChunk())
	}
	return false, nil
}

// hear remembers the state of the peer's task.
func (x *exchange) hear(r *a2av1.StreamResponse) {
	if s := max(r.GetTask().GetStatus().GetState(), r.GetStatusUpdate().GetStatus().GetState()); s != 0 {
		x.state = s
	}
}

// meet handles the task id of a response, and reports whether the response belongs to our task, as one
// without an id does. The first one is recorded as the peer's task.
func (x *exchange) meet(id, contextID string) (ours bool, err error) {
	switch {
	case x.bound != nil:
		return id == "" || id == x.bound.GetTaskId(), nil
	case id == "":
		return false, senseless(x.agent.cfg.ID, "responds with neither a task nor a message", nil)
	}
	x.bound = &teamv1.Bound{Peer: x.peer(), TaskId: id, ContextId: contextID}
	return true, x.bind(proto.CloneOf(x.bound))
}

// message keeps a message until it is known whether a task follows: then the message is
// progress of the task, otherwise part of the answer.
func (x *exchange) message(m *a2av1.Message) error {
	x.nothing = true
	if x.saidSize += proto.Size(m); x.saidSize > maxArtifactSize || len(x.said) >= maxArtifacts {
		return senseless(x.agent.cfg.ID, errTooMuch.Error(), nil)
	}
	x.said = append(x.said, m)
	if x.tasked {
		return x.progress(m)
	}
	return nil
}

// direct replies with the messages that arrived without a task: the newest one, with
// the parts of all.
func (x *exchange) direct() error {
	for _, m := range x.said {
		if to := transferOf(m.GetMetadata()); to != nil {
			return x.reply(&teamv1.Reply{Result: &teamv1.Reply_Transfer{Transfer: to}})
		}
	}
	return x.reply(&teamv1.Reply{Result: &teamv1.Reply_Message{Message: x.joined()}})
}

// joined returns the newest message with the parts of all; nil if there are no
// messages.
func (x *exchange) joined() *a2av1.Message {
	if len(x.said) == 0 {
		return nil
	}
	m := own(x.said[len(x.said)-1])
	m.Parts = nil
	for _, s := range x.said {
		m.Parts = append(m.Parts, own(s).GetParts()...)
	}
	return m
}

// status handles a status of the task. It reports whether the call is done.
func (x *exchange) status(s *a2av1.TaskStatus, metadata *structpb.Struct) (done bool, err error) {
	switch s.GetState() {
	case a2av1.TaskState_TASK_STATE_COMPLETED:
		return true, x.complete(s, metadata)
	case a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_REJECTED, a2av1.TaskState_TASK_STATE_CANCELED:
		return true, x.unsuccessful(s, metadata)
	case a2av1.TaskState_TASK_STATE_INPUT_REQUIRED:
		return true, x.ask(teamv1.Asked_KIND_INPUT, s, metadata)
	case a2av1.TaskState_TASK_STATE_AUTH_REQUIRED:
		return true, x.ask(teamv1.Asked_KIND_AUTH, s, metadata)
	case a2av1.TaskState_TASK_STATE_SUBMITTED, a2av1.TaskState_TASK_STATE_WORKING, a2av1.TaskState_TASK_STATE_UNSPECIFIED:
	}
	if m := s.GetMessage(); m.GetRole() == a2av1.Role_ROLE_AGENT && len(m.GetParts()) > 0 {
		x.latest = m
	}
	return false, x.progress(s.GetMessage())
}

// progress yields a status message, unless it is recorded already.
func (x *exchange) progress(m *a2av1.Message) error {
	if len(m.GetParts()) == 0 {
		return nil
	}
	if id := m.GetMessageId(); id != "" {
		if x.past.progress[id] {
			return nil
		}
		x.past.progress[id] = true
	}
	return x.emit(&teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: own(m)}}})
}

// ofPeer separates our number of a question in its id from the id that a peer gave it.
const ofPeer = "/"

// ask yields the peer's question as ours. It has the same kind and is for the same roles as at a peer
// that is a team-server. If such a peer asks several questions, they are asked one after the other.
func (x *exchange) ask(kind teamv1.Asked_Kind, s *a2av1.TaskStatus, metadata *structpb.Struct) error {
	m := own(s.GetMessage())
	if len(m.GetParts()) == 0 {
		m = &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: x.output.newest}
	}
	if m.Parts = explained(m.GetParts()); len(m.GetParts()) == 0 {
		m = agent.NewMessage("more input is needed")
		if kind == teamv1.Asked_KIND_AUTH {
			m = agent.NewMessage("authentication is needed")
		}
	}
	ours := &teamv1.Asked{Question: x.question(questionID(len(x.past.asked) + 1)), Kind: kind, Message: m}
	if theirs := teamRunOf(metadata).GetQuestions(); len(theirs) > 0 {
		q := theirs[0]
		ours.Question += ofPeer + q.GetQuestion()
		ours.Roles = q.GetRoles()
		if kind == teamv1.Asked_KIND_INPUT && q.GetKind() != teamv1.Asked_KIND_UNSPECIFIED {
			ours.Kind, ours.Budget, ours.Approval, ours.ToolQuestion = q.GetKind(), x.budget(q.GetBudget()), x.approval(q.GetApproval()), x.toolQuestion(q.GetToolQuestion())
		}
		if len(theirs) > 1 && len(q.GetMessage().GetParts()) > 0 {
			m.Parts = q.GetMessage().GetParts()
		}
	}
	return x.asked(ours)
}

// complete replies with the artifacts. If there are none, it replies with the last
// status text, else with the messages that arrived beside the task, else with the last
// message of the agent while it worked.
func (x *exchange) complete(s *a2av1.TaskStatus, metadata *structpb.Struct) error {
	r := &teamv1.Reply{Spent: claimed(teamRunOf(metadata).GetSpent())}
	if to := transferOf(append(x.output.metadata(), metadata, s.GetMessage().GetMetadata())...); to != nil {
		r.Result = &teamv1.Reply_Transfer{Transfer: to}
		return x.reply(r)
	}
	end := s.GetMessage()
	if x.gap {
		var err error
		if end, err = x.answerAfterGap(end, r.GetSpent()); err != nil {
			return err
		}
	}
	m := &a2av1.Message{
		MessageId: x.run.ID(x.req.GetScope(), "reply/"+x.bound.GetTaskId(), 1),
		Role:      a2av1.Role_ROLE_AGENT, Parts: x.output.parts(),
	}
	if len(m.GetParts()) == 0 && end != nil {
		m = own(end)
	}
	if len(m.GetParts()) == 0 && len(x.said) > 0 {
		m = x.joined()
	}
	if len(m.GetParts()) == 0 && len(x.output.order) == 0 {
		last, err := x.last()
		if err != nil {
			return err
		}
		if last != nil {
			m = own(last)
		}
	}
	r.Result = &teamv1.Reply_Message{Message: m}
	return x.reply(r)
}

// answerAfterGap returns the message that is the answer of a completed task whose updates may be missing, nil if
// its artifacts are. end is the message of its last status. The task is read once more: a peer that makes up a text
// when a task is read gives it another id each time, and that text is an answer only if it goes on after what was
// received, or if nothing was and the history has no other. A message of the history is the answer if it goes on after
// what was received, or if there is no end and it was not received while the peer worked. Artifacts are whole after
// their last chunk. The error is cutOff if the answer is not there.
func (x *exchange) answerAfterGap(end *a2av1.Message, spent *teamv1.Spent) (*a2av1.Message, error) {
	if len(x.output.order) > 0 {
		if x.output.closed() {
			return nil, nil //nolint:nilnil // the artifacts are the answer
		}
		return nil, cutOff(x.agent.cfg.ID, spent)
	}
	if x.goesOn(end) {
		return end, nil
	}
	task, err := x.reread()
	if err != nil {
		return nil, err
	}
	last, isNew := lastOfAgent(task), false
	if last != nil {
		isNew = agent.Text(last) != agent.Text(x.latest) && (x.goesOn(last) || !x.past.progress[last.GetMessageId()])
	}
	switch made := task.GetStatus().GetMessage(); {
	case isNew && x.goesOn(last):
		return last, nil
	case x.past.streamed:
	case len(end.GetParts()) == 0 && isNew:
		return last, nil
	case len(end.GetParts()) > 0 && made != nil && made.GetMessageId() == end.GetMessageId():
		return end, nil
	case !x.begun() && (last == nil || agent.Text(last) == agent.Text(end)):
		return end, nil
	}
	return nil, cutOff(x.agent.cfg.ID, spent)
}

// goesOn reports whether a message begins with the latest text in a status.
func (x *exchange) goesOn(m *a2av1.Message) bool {
	begun := agent.Text(x.latest)
	return begun != "" && strings.HasPrefix(agent.Text(m), begun)
}

// begun reports whether the peer has sent text of the task.
func (x *exchange) begun() bool {
	return agent.Text(x.latest) != "" || len(x.said) > 0 || x.past.begun || x.past.streamed
}

// last returns the last message of the agent: in a status of this call, else at the end
// of the task's history; nil if that is not a message of the agent, or if the peer
// sends no history.
func (x *exchange) last() (*a2av1.Message, error) {
	if x.latest != nil {
		return x.latest, nil
	}
	task, err := x.reread()
	return lastOfAgent(task), err
}

// reread gets the task with the last message of its history, nil if the peer refuses that.
func (x *exchange) reread() (*a2av1.Task, error) {
	r, err := x.glance(1)
	if err != nil && (x.ctx.Err() != nil || unfinished(x.agent.cfg.ID, err)) {
		return nil, err
	}
	return r.GetTask(), nil
}

// lastOfAgent returns the last message of a task's history, nil if that is not one of the agent.
func lastOfAgent(t *a2av1.Task) *a2av1.Message {
	h := t.GetHistory()
	if len(h) == 0 || h[len(h)-1].GetRole() != a2av1.Role_ROLE_AGENT {
		return nil
	}
	return h[len(h)-1]
}

// unsuccessful returns the error of a task that did not succeed: the one in its metadata, or one
// with its status text. Its outcome is known, so a retry begins a new task.
func (x *exchange) unsuccessful(s *a2av1.TaskStatus, metadata *structpb.Struct) error {
	if x.past.silent && s.GetState() == a2av1.TaskState_TASK_STATE_CANCELED {
		return x.afterSilence(x.agent.cfg.ID, claimed(teamRunOf(metadata).GetSpent()))
	}
	if e := agent.FromProto(teamRunOf(metadata).GetError()); e != nil {
		e.Message, e.Fresh, e.Answered, e.Spent = clip(e.Message), true, true, claimed(teamRunOf(metadata).GetSpent())
		return e
	}
	state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "TASK_STATE_"))
	e := agent.Errorf(agent.CodeInternal, agent.ReasonDelegationFailed, "agent %q ended: %s", x.agent.cfg.ID, state)
	if text := clip(agent.Text(s.GetMessage())); text != "" {
		e.Message = text
	}
	if s.GetState() == a2av1.TaskState_TASK_STATE_CANCELED {
		e.Reason, e.Code = agent.ReasonCanceled, agent.CodeAborted
	}
	e.Fresh, e.Answered, e.Retry = true, true, s.GetState() == a2av1.TaskState_TASK_STATE_FAILED
	return e.With("remote_task_id", x.bound.GetTaskId()).With("state", state)
}

// artifact yields what an update adds to an artifact. Text is yielded as streamed text, and other
// parts as an artifact of ours.
func (x *exchange) artifact(a *a2av1.Artifact, add, last bool) error {
	if ofMember(a) {
		return nil
	}
	d, rest, err := x.output.fold(a, add, last)
	if err != nil {
		return senseless(x.agent.cfg.ID, err.Error(), nil)
	}
	id := x.run.ID(x.req.GetScope(), "artifact/"+x.bound.GetTaskId()+"/"+x.output.find(a.GetArtifactId()).first, 1)
	if d.text != "" || d.anew {
		delta := &teamv1.Delta{ArtifactId: id, Text: d.text, Restart: d.anew || d.first && x.resumed}
		if err := x.emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: delta}}); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return nil
	}
	ours := &a2av1.Artifact{ArtifactId: id, Name: a.GetName(), Description: a.GetDescription(), Parts: rest, Metadata: a.GetMetadata()}
	return x.emit(&teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: ours, Append: add, LastChunk: last}}})
}

// teamRunMetadata returns metadata with a TeamRun, for peers that are team-servers.
func teamRunMetadata(run *teamv1.TeamRun) *structpb.Struct {
	b, err := protojson.Marshal(run)
	if err != nil {
		return nil
	}
	s := &structpb.Struct{}
	if protojson.Unmarshal(b, s) != nil {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{teamRunURI: structpb.NewStructValue(s)}}
}

// ofMember reports whether an artifact is the output of a member of the peer's team. It is ignored,
// because the peer's answer includes as much of it as the peer wants.
func ofMember(a *a2av1.Artifact) bool {
	_, ok := a.GetMetadata().GetFields()[teamRunURI].GetStructValue().GetFields()["delegationId"]
	return ok
}

// teamRunOf returns the TeamRun in metadata of a peer that is a team-server, nil without one.
func teamRunOf(metadata *structpb.Struct) *teamv1.TeamRun {
	run := &teamv1.TeamRun{}
	if !extension(metadata, teamRunURI, run) {
		return nil
	}
	return run
}

// addRouting adds the possible targets of a transfer to a message, for a peer that supports the
// extension.
func addRouting(m *a2av1.Message, transfers []*teamv1.TransferTarget) {
	var targets []any
	for _, t := range transfers {
		targets = append(targets, map[string]any{"id": t.GetId(), "description": t.GetDescription()})
	}
	s, err := structpb.NewStruct(map[string]any{"transfers": targets})
	if err != nil {
		return
	}
	if m.GetMetadata().GetFields() == nil {
		m.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	m.Metadata.Fields[routingURI] = structpb.NewStructValue(s)
	m.Extensions = append(m.Extensions, routingURI)
}

// transferOf returns the first transfer that one of the metadata asks for, nil without one.
func transferOf(metadata ...*structpb.Struct) *teamv1.Transfer {
	for _, m := range metadata {
		r := &teamv1.RoutingReply{}
		if extension(m, routingURI, r) && r.GetTransferTo() != "" {
			return &teamv1.Transfer{To: r.GetTransferTo(), Message: r.GetMessage()}
		}
	}
	return nil
}

// extension reads the metadata of an extension into m, and reports whether there is any.
func extension(metadata *structpb.Struct, uri string, m proto.Message) bool {
	s := metadata.GetFields()[uri].GetStructValue()
	if s == nil {
		return false
	}
	b, err := protojson.Marshal(s)
	return err == nil && protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m) == nil
}
