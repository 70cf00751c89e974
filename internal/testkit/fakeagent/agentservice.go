package fakeagent

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// agentService serves the agent over the Agent service.
type agentService struct {
	teamv1.UnimplementedAgentServiceServer
	agent *Agent
}

// Info implements AgentService.
func (s agentService) Info(ctx context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	if err := s.agent.called(ctx, "Info", req); err != nil {
		return nil, err
	}
	info, err := s.agent.info(withDepth(ctx))
	if err != nil {
		return nil, wire.Status(err).Err()
	}
	return &teamv1.InfoResponse{Info: info}, nil
}

func (a *Agent) info(ctx context.Context) (*teamv1.AgentInfo, error) {
	if a.cfg.Agent != nil {
		return a.cfg.Agent.Info(ctx)
	}
	info := &teamv1.AgentInfo{Id: "fake", Name: "Fake", Description: "follows its script", Skills: a.cfg.Skills}
	for _, s := range a.cfg.Skills {
		info.Capabilities = append(info.Capabilities, s.GetId())
	}
	return info, nil
}

// withDepth returns the context of a call with the depth of nesting in its metadata.
func withDepth(ctx context.Context) context.Context {
	for _, v := range metadata.ValueFromIncomingContext(ctx, "team-path") {
		if n, err := strconv.Atoi(v); err == nil {
			return agent.WithDepth(ctx, n)
		}
	}
	return ctx
}

// HealthCheck implements AgentService.
func (s agentService) HealthCheck(ctx context.Context, req *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	if err := s.agent.called(ctx, "HealthCheck", req); err != nil {
		return nil, err
	}
	if s.agent.cfg.NoHealth {
		return nil, status.Error(codes.Unimplemented, "no health")
	}
	h := agent.Healthy()
	if s.agent.cfg.Agent != nil {
		var err error
		if h, err = s.agent.cfg.Agent.HealthCheck(withDepth(ctx)); err != nil {
			return nil, wire.Status(err).Err()
		}
	}
	return &teamv1.HealthCheckResponse{Healthy: h.GetHealthy(), Usable: h.GetUsable(), Members: h.GetMembers(), Detail: h.GetDetail()}, nil
}

func keyOf(req *teamv1.ProcessRequest) string {
	if req.GetKey() != "" {
		return req.GetKey()
	}
	return req.GetMessage().GetMessageId()
}

// Process implements AgentService.
func (s agentService) Process(ctx context.Context, req *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error) {
	if err := s.agent.called(ctx, "Process", req); err != nil {
		return nil, err
	}
	t, _, err := s.agent.take(keyOf(req), req.GetTaskId(), req.GetMessage())
	if err != nil {
		return nil, err
	}
	if err := t.rest(ctx); err != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return t.response()
}

// response returns the answer of a task at rest: its reply, its error, or INPUT_REQUIRED.
func (t *task) response() (*teamv1.ProcessResponse, error) {
	events, _, _ := t.after(0)
	var asked *teamv1.Asked
	for _, e := range events {
		if e.GetAsked() != nil {
			asked = e.GetAsked()
		}
	}
	end := events[len(events)-1].GetEnded()
	switch {
	case end == nil:
		st, err := status.New(codes.FailedPrecondition, agent.Text(asked.GetMessage())).WithDetails(&errdetails.ErrorInfo{
			Domain: wire.DomainTeam, Reason: agent.ReasonInputRequired,
			Metadata: map[string]string{"task_id": t.id, "question": asked.GetQuestion()},
		})
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	case end.GetError() != nil:
		return nil, wire.Status(agent.FromProto(end.GetError())).Err()
	case end.GetOutcome() == teamv1.Outcome_OUTCOME_CANCELED:
		return nil, status.Error(codes.Aborted, "canceled")
	}
	reply := end.GetReply()
	if ref := end.GetReplyRef(); ref > 0 {
		reply = events[ref-1].GetEnded().GetReply()
	}
	return &teamv1.ProcessResponse{Message: reply, Transfer: end.GetTransfer(), Spent: end.GetSpent()}, nil
}

// ProcessStream implements AgentService.
func (s agentService) ProcessStream(req *teamv1.ProcessStreamRequest, stream grpc.ServerStreamingServer[teamv1.ProcessStreamResponse]) error {
	if s.agent.cfg.NoStream {
		return status.Error(codes.Unimplemented, "no streams")
	}
	if err := s.agent.called(stream.Context(), "ProcessStream", req); err != nil {
		return err
	}
	r := req.GetRequest()
	t, _, err := s.agent.take(keyOf(r), r.GetTaskId(), r.GetMessage())
	if err != nil {
		return err
	}
	return t.follow(stream.Context(), req.GetAfter(), func(e *teamv1.Event) error {
		return stream.Send(&teamv1.ProcessStreamResponse{Event: e, TaskId: t.id})
	})
}

// follow sends the events after a sequence number until the task ends or asks a question.
func (t *task) follow(ctx context.Context, after int64, send func(*teamv1.Event) error) error {
	stopAfter, sent := t.takeBreak(), 0
	for {
		events, resting, changed := t.after(after)
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			after = e.GetSeq()
			if sent++; sent == stopAfter {
				return errBreak
			}
		}
		if resting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Cancel implements AgentService.
func (s agentService) Cancel(ctx context.Context, req *teamv1.CancelRequest) (*teamv1.CancelResponse, error) {
	if err := s.agent.called(ctx, "Cancel", req); err != nil {
		return nil, err
	}
	if s.agent.cfg.NoCancel {
		return nil, status.Error(codes.Unimplemented, "no cancel")
	}
	t, err := s.agent.find(req.GetTaskId())
	if req.GetKey() != "" {
		s.agent.mu.Lock()
		if t = s.agent.keys[req.GetKey()]; t != nil {
			err = nil
		}
		s.agent.mu.Unlock()
	}
	if err != nil {
		return nil, err
	}
	s.agent.stopTask(ctx, t)
	return &teamv1.CancelResponse{State: t.state()}, nil
}

func (t *task) state() a2av1.TaskState { return t.project().GetStatus().GetState() }
