package a2a

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// Start describes a collaboration to start: a task of a team, with a brief.
type Start struct {
	// Agent is the id of the team.
	Agent string
	// Message is the message to the team. Its id makes the start idempotent, as for SendMessage.
	// It must not name a task.
	Message *a2av1.Message
	// Brief is the description of the collaboration that all its agents may read. It is required.
	Brief *teamv1.Brief
	// Limits apply to this collaboration in addition to those of the team. Nil means no further
	// limits.
	Limits *teamv1.Limits
	// Deadline is the time by which the collaboration must have ended. Zero means no deadline;
	// see also the maximum duration in Brief.
	Deadline time.Time
	// Concurrent is the maximum number of collaborations of the team that may run at the same
	// time, including this one. Values below 1 count as 1.
	Concurrent int
	// Entry is the catalog entry that defines the team. It is empty if the team is not in a
	// catalog.
	Entry string
}

// Start starts a collaboration and returns the id of its task without waiting for it. Errors are those of
// SendMessage and, besides: COLLABORATION_IN_PROGRESS if s.Concurrent collaborations of the team
// are running, and AGENT_NOT_FOUND if the catalog entry has been deleted.
func (h *Handler) Start(ctx context.Context, s Start) (id string, err error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return "", err
	}
	var c checker
	c.send(&a2av1.SendMessageRequest{Tenant: s.Agent, Message: s.Message})
	if s.Message.GetTaskId() != "" {
		c.Add("message.taskId", "names an existing task; omit it, because a collaboration creates a new task")
	}
	if s.Brief == nil {
		c.Add("brief", "is required; say in its TaskDescription what the collaboration is to do")
	}
	if err := c.Err(); err != nil {
		return "", err
	}
	in, err := h.inbox.put(ctx, who, &send{
		tenant: s.Agent, message: s.Message, key: s.Message.GetMessageId(), concurrent: max(s.Concurrent, 1), entry: s.Entry,
		accepted: &teamv1.Accepted{
			Collaboration: s.Brief, Limits: s.Limits, Deadline: s.deadline(h.c.Clock()), Extensions: ExtensionsOf(ctx), Trace: traceOf(ctx),
		},
	})
	if err != nil {
		return "", err
	}
	return in.key.ID, nil
}

// deadline returns the earlier of the deadline and the end of the maximum duration, or nil if
// there is neither.
func (s *Start) deadline(now time.Time) *timestamppb.Timestamp {
	at := s.Deadline
	if most := s.Brief.GetMaxDuration().AsDuration(); most > 0 && (at.IsZero() || now.Add(most).Before(at)) {
		at = now.Add(most)
	}
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(at)
}
