package a2a

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// placeTime is the maximum time to wait for the position of a conversation, since a run can do
// without it.
const placeTime = 5 * time.Second

// conversation returns what a new run of an agent reads of its conversation. kept may be nil. fresh
// says that the context is new, so that there is nothing to read.
func conversation(ctx context.Context, kept runs.Conversations, a agent.Agent, t runs.Thread, fresh bool) *teamv1.Conversation {
	v := &teamv1.Conversation{ContextId: t.ContextID}
	if kept == nil || fresh || !agent.Remembers(a) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	n, err := kept.Position(ctx, t)
	if err != nil {
		n = runs.Unread // the run reports that its history could not be read
	}
	v.History = n
	return v
}
