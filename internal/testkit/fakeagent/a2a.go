package fakeagent

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// a2aService serves the agent over A2A with gRPC. The handlers of the other bindings call
// its unexported methods.
type a2aService struct {
	a2av1.UnimplementedA2AServiceServer
	agent *Agent
}

func notFound() error { return protocolError(codes.NotFound, "TASK_NOT_FOUND") }

func protocolError(c codes.Code, reason string) error {
	st, err := status.New(c, reason).WithDetails(&errdetails.ErrorInfo{Domain: wire.DomainA2A, Reason: reason})
	if err != nil {
		return err
	}
	return st.Err()
}

// SendMessage implements A2AService.
func (s a2aService) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	if err := s.agent.called(ctx, "SendMessage", req); err != nil {
		return nil, err
	}
	return s.send(ctx, req)
}

func (s a2aService) send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	m := req.GetMessage()
	t, _, err := s.agent.take(m.GetMessageId(), m.GetTaskId(), m)
	if err != nil {
		return nil, err
	}
	if t.direct != nil {
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: t.direct}}, nil
	}
	wait := t.rest
	if req.GetConfiguration().GetReturnImmediately() {
		wait = t.started
	}
	if err := wait(ctx); err != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: t.project()}}, nil
}

// SendStreamingMessage implements A2AService.
func (s a2aService) SendStreamingMessage(req *a2av1.SendMessageRequest, stream grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	if err := s.agent.called(stream.Context(), "SendStreamingMessage", req); err != nil {
		return err
	}
	return s.streaming(stream.Context(), req, stream.Send)
}

func (s a2aService) streaming(ctx context.Context, req *a2av1.SendMessageRequest, send func(*a2av1.StreamResponse) error) error {
	if s.agent.cfg.NoStream {
		return protocolError(codes.FailedPrecondition, "UNSUPPORTED_OPERATION")
	}
	if s.agent.cfg.Streams != nil {
		return s.agent.cfg.Streams
	}
	m := req.GetMessage()
	t, turn, err := s.agent.take(m.GetMessageId(), m.GetTaskId(), m)
	if err != nil {
		return err
	}
	for _, text := range turn.Said {
		said := Turn{Text: text}.reply(m)
		if err := send(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: said}}); err != nil {
			return err
		}
	}
	if t.direct != nil {
		return send(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: t.direct}})
	}
	if err := t.started(ctx); err != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return t.stream(ctx, send)
}

// SubscribeToTask implements A2AService.
func (s a2aService) SubscribeToTask(req *a2av1.SubscribeToTaskRequest, stream grpc.ServerStreamingServer[a2av1.StreamResponse]) error {
	if err := s.agent.called(stream.Context(), "SubscribeToTask", req); err != nil {
		return err
	}
	return s.subscribe(stream.Context(), req, stream.Send)
}

func (s a2aService) subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, send func(*a2av1.StreamResponse) error) error {
	t, err := s.agent.find(req.GetId())
	if err != nil {
		return err
	}
	if _, resting, _ := t.after(0); resting || s.agent.cfg.NoStream || s.agent.cfg.Streams != nil {
		return protocolError(codes.FailedPrecondition, "UNSUPPORTED_OPERATION")
	}
	return t.stream(ctx, send)
}

// stream sends the task and then its events.
func (t *task) stream(ctx context.Context, send func(*a2av1.StreamResponse) error) error {
	events, _, _ := t.after(0)
	if err := send(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: t.projectOf(events)}}); err != nil {
		return err
	}
	if t.breaksAtOnce() {
		return errBreak
	}
	return t.follow(ctx, int64(len(events)), func(e *teamv1.Event) error {
		for _, r := range t.responses(e) {
			if err := send(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// GetTask implements A2AService.
func (s a2aService) GetTask(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	if err := s.agent.called(ctx, "GetTask", req); err != nil {
		return nil, err
	}
	return s.get(req)
}

func (s a2aService) get(req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	t, err := s.agent.find(req.GetId())
	if err != nil {
		return nil, err
	}
	p := t.project()
	if req.HistoryLength != nil {
		p.History = p.History[max(0, len(p.GetHistory())-int(req.GetHistoryLength())):]
	}
	return p, nil
}

// CancelTask implements A2AService.
func (s a2aService) CancelTask(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	if err := s.agent.called(ctx, "CancelTask", req); err != nil {
		return nil, err
	}
	return s.stop(ctx, req)
}

func (s a2aService) stop(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	if s.agent.cfg.NoCancel {
		return nil, protocolError(codes.Unimplemented, "UNSUPPORTED_OPERATION")
	}
	t, err := s.agent.find(req.GetId())
	if err != nil {
		return nil, err
	}
	if _, resting, _ := t.after(0); resting && t.asking == "" {
		return nil, protocolError(codes.FailedPrecondition, "TASK_NOT_CANCELABLE")
	}
	s.agent.stopTask(ctx, t)
	return t.project(), nil
}

// project returns the task in its A2A form.
func (t *task) project() *a2av1.Task {
	events, _, _ := t.after(0)
	return t.projectOf(events)
}

func (t *task) projectOf(events []*teamv1.Event) *a2av1.Task {
	p := &a2av1.Task{
		Id: t.id, ContextId: t.contextID,
		Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_WORKING},
	}
	for _, e := range events {
		switch k := e.GetKind().(type) {
		case *teamv1.Event_Accepted:
			p.History = append(p.History, k.Accepted.GetMessage())
		case *teamv1.Event_Answered:
			p.History = append(p.History, k.Answered.GetMessage())
		}
		for _, r := range t.responses(e) {
			fold(p, r)
		}
	}
	p.History = append(p.History, t.notes()...)
	return p
}

func fold(p *a2av1.Task, r *a2av1.StreamResponse) {
	if u := r.GetStatusUpdate(); u != nil {
		p.Status = u.GetStatus()
	}
	u := r.GetArtifactUpdate()
	if u == nil {
		return
	}
	if u.GetAppend() && len(p.GetArtifacts()) > 0 {
		p.Artifacts[0].Parts = append(p.Artifacts[0].Parts, u.GetArtifact().GetParts()...)
		return
	}
	p.Artifacts = []*a2av1.Artifact{proto.CloneOf(u.GetArtifact())}
}

// responses returns what a stream sends for an event.
func (t *task) responses(e *teamv1.Event) []*a2av1.StreamResponse {
	if e.GetScope() != "" {
		return nil
	}
	switch k := e.GetKind().(type) {
	case *teamv1.Event_Progress:
		return []*a2av1.StreamResponse{t.status(a2av1.TaskState_TASK_STATE_WORKING, k.Progress.GetMessage())}
	case *teamv1.Event_Delta:
		return []*a2av1.StreamResponse{t.artifact(agent.TextParts(k.Delta.GetText()), true)}
	case *teamv1.Event_Answered:
		return []*a2av1.StreamResponse{t.status(a2av1.TaskState_TASK_STATE_WORKING, nil)}
	case *teamv1.Event_Asked:
		state := a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
		if k.Asked.GetKind() == teamv1.Asked_KIND_AUTH {
			state = a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
		}
		return []*a2av1.StreamResponse{t.status(state, k.Asked.GetMessage())}
	case *teamv1.Event_Ended:
		return t.end(k.Ended)
	}
	return nil
}

func (t *task) end(e *teamv1.Ended) []*a2av1.StreamResponse {
	switch e.GetOutcome() {
	case teamv1.Outcome_OUTCOME_FAILED:
		return []*a2av1.StreamResponse{t.status(a2av1.TaskState_TASK_STATE_FAILED, agent.NewMessage(e.GetError().GetMessage()))}
	case teamv1.Outcome_OUTCOME_CANCELED:
		return []*a2av1.StreamResponse{t.status(a2av1.TaskState_TASK_STATE_CANCELED, nil)}
	default:
	}
	done := t.status(a2av1.TaskState_TASK_STATE_COMPLETED, nil)
	if len(e.GetReply().GetParts()) == 0 {
		return []*a2av1.StreamResponse{done}
	}
	return []*a2av1.StreamResponse{t.artifact(e.GetReply().GetParts(), false), done}
}

func (t *task) status(s a2av1.TaskState, m *a2av1.Message) *a2av1.StreamResponse {
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_StatusUpdate{StatusUpdate: &a2av1.TaskStatusUpdateEvent{
		TaskId: t.id, ContextId: t.contextID, Status: &a2av1.TaskStatus{State: s, Message: m},
	}}}
}

func (t *task) artifact(parts []*a2av1.Part, add bool) *a2av1.StreamResponse {
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
		TaskId: t.id, ContextId: t.contextID, Append: add, Artifact: &a2av1.Artifact{ArtifactId: "answer", Parts: parts},
	}}}
}
