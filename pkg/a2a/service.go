package a2a

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// The methods in this file implement the Agent service. It shares its tasks with A2A: Process
// creates the same tasks as SendMessage.

// Info implements the Agent service's Info: it returns the description of an agent. Errors:
// AGENT_NOT_FOUND, and those of the agent.
func (h *Handler) Info(ctx context.Context, req *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	id, a, err := h.agents.resolve(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	info, err := a.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.GetId() != id {
		info = proto.CloneOf(info)
		info.Id = id
	}
	return &teamv1.InfoResponse{Info: info}, nil
}

// HealthCheck implements the Agent service's HealthCheck: it returns the health of an agent. If
// the check fails, the agent is unhealthy. Errors: AGENT_NOT_FOUND.
func (h *Handler) HealthCheck(ctx context.Context, req *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	_, a, err := h.agents.resolve(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	health, err := a.HealthCheck(ctx)
	if err != nil {
		health = agent.Unhealthy(agent.AsError(err).Message)
	}
	return &teamv1.HealthCheckResponse{
		Healthy: health.GetHealthy(), Usable: health.GetUsable(), Members: health.GetMembers(), Detail: health.GetDetail(),
	}, nil
}

// Process implements the Agent service's Process: it sends a message to an agent and waits for
// the answer. If the run did not succeed, it returns an error with the run's reason. If the agent
// asks a question, it returns INPUT_REQUIRED, with the id of the task and the question in the
// details.
func (h *Handler) Process(ctx context.Context, req *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error) {
	s, err := h.inbox.acceptProcess(ctx, req, true)
	if err != nil {
		return nil, err
	}
	var f *project.Fold
	err = h.tasks.follow(ctx, s, func(bool) (over bool, err error) {
		root, scope := agent.SplitTask(s.key.ID)
		if f, err = h.tasks.fold(ctx, runs.Key{Owner: s.key.Owner, ID: root}, scope); err != nil {
			return false, err
		}
		return settled(f.State()), nil
	})
	if err != nil {
		return nil, err
	}
	return processed(f)
}

// processed returns the response of Process for a run that has ended or waits for input.
func processed(f *project.Fold) (*teamv1.ProcessResponse, error) {
	if !f.Terminal() && len(f.Questions()) == 0 {
		return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonInputRequired, "the agent waits for input").With("task_id", f.ID())
	}
	if !f.Terminal() {
		q := f.Questions()[0]
		return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonInputRequired, "the agent asks: %s", agent.Text(q.GetMessage())).
			With("task_id", f.ID()).With("question", q.GetQuestion())
	}
	if e := f.Ended().GetError(); e != nil {
		return nil, agent.FromProto(e).With("task_id", f.ID())
	}
	resp := &teamv1.ProcessResponse{Spent: f.Ended().GetSpent(), Transfer: f.Ended().GetTransfer()}
	if f.Answer() != nil {
		resp.Message = f.Placed(f.Answer())
	}
	return resp, nil
}

// acceptProcess validates a call of the Agent service and records its message. If the sender waits, the
// caller must call follow.
func (b *inbox) acceptProcess(ctx context.Context, req *teamv1.ProcessRequest, waits bool) (sent, error) {
	var c checker
	c.id("agentId", req.GetAgentId())
	c.message(req.GetMessage())
	c.id("contextId", req.GetContextId())
	c.id("key", req.GetKey())
	c.id("taskId", req.GetTaskId())
	if len(req.GetRecorded()) > 0 || req.GetScope() != "" {
		c.Add("recorded", "and scope are set by the server; omit both")
	}
	c.unsupported("state", len(req.GetState()))
	c.shown(req)
	if id := req.GetMessage().GetContextId(); id != "" && req.GetContextId() != "" && id != req.GetContextId() {
		c.Add("contextId", "does not match the context of the message; omit one of them")
	}
	if id := req.GetMessage().GetTaskId(); id != "" && req.GetTaskId() != "" && id != req.GetTaskId() {
		c.Add("taskId", "does not match the task of the message; omit one of them")
	}
	if err := c.Err(); err != nil {
		return sent{}, err
	}
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return sent{}, err
	}
	m := proto.CloneOf(req.GetMessage())
	if req.GetContextId() != "" {
		m.ContextId = req.GetContextId()
	}
	if req.GetTaskId() != "" {
		m.TaskId = req.GetTaskId()
	}
	s := &send{
		tenant: req.GetAgentId(), message: m, key: req.GetKey(), question: req.GetQuestion(), waits: waits,
		accepted: &teamv1.Accepted{
			Path: req.GetPath(), Trace: traceOf(ctx), Depth: max(req.GetDepth(), int32(min(agent.Depth(ctx), 1<<20))), //nolint:gosec // bounded
			Deadline: req.GetDeadline(), Limits: req.GetEnvelope(), History: req.GetHistory(), Branch: req.GetBranch(), Transfers: external(req.GetTransfers()),
			Collaboration: req.GetBrief(),
		},
	}
	if s.key == "" && !b.forgets() {
		s.key = m.GetMessageId()
	}
	return b.put(ctx, who, s)
}

// ProcessStream is like Process, but yields the events of the run as they are recorded, until the
// run ends or waits for input. The events omit the owner, pins, conversation and claims, and
// opaque data of model providers. The stream begins after the sequence number req.After. It
// counts as a stream of the caller and of the task; if there are too many, the error is
// INSUFFICIENT_RESOURCES.
//
// An error that occurs before the first event is the second result. The sequence can be read only
// once, and reading must begin before ctx ends.
func (h *Handler) ProcessStream(ctx context.Context, req *teamv1.ProcessStreamRequest) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error) {
	if req.GetRequest() == nil {
		return nil, a2aerror.Invalid(agent.Violation{Field: "request", Description: "is required"})
	}
	return stream(ctx, h.streams, func(_ identity.Caller, slot *streamSlot) (iter.Seq2[*teamv1.ProcessStreamResponse, error], error) {
		s, err := h.inbox.acceptProcess(ctx, req.GetRequest(), false)
		if err != nil {
			return nil, err
		}
		return h.tasks.process(ctx, s, req.GetAfter()), slot.acquireTask(s.key)
	})
}

// process yields the events of the run that works on a message, after a sequence number.
func (t tasks) process(ctx context.Context, s sent, after int64) iter.Seq2[*teamv1.ProcessStreamResponse, error] {
	root, scope := agent.SplitTask(s.key.ID)
	f, p := project.New(root, scope), &progress{scope: scope, inbound: s.inbound}
	return func(yield func(*teamv1.ProcessStreamResponse, error) bool) {
		tail := t.feeds.Tail(s.key.Owner, root, 0)
		defer tail.Close()
		for ev, err := range tail.Events(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			f.Apply(ev.Event)
			over := p.take(ev) && settled(f.State())
			public := f.Public(ev.Event)
			if public != nil && ev.GetSeq() > after && !yield(&teamv1.ProcessStreamResponse{Event: public, TaskId: s.key.ID}, nil) {
				return
			}
			if over && (f.Terminal() || ev.GetSeq() > after) {
				return
			}
		}
	}
}
