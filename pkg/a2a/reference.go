package a2a

import (
	"context"
	"errors"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxReference bounds, in bytes, what is shown of each side of a referenced task.
const maxReference = 8 << 10

// referenced returns what the tasks were about that a message refers to, oldest
// reference first: what was asked and what came of it. A task of the same
// conversation is left out where the agent remembers that anyway. The error is
// TASK_NOT_FOUND for one that does not exist or is not the owner's.
func referenced(ctx context.Context, store Store, owner string, m *a2av1.Message, remembers bool) ([]*a2av1.Message, error) {
	var shown []*a2av1.Message
	for i, id := range m.GetReferenceTaskIds() {
		t, _, err := store.Task(ctx, Key{owner, id})
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, TaskNotFound(id)
		case err != nil:
			return nil, storeError(id, err)
		case slices.Contains(m.GetReferenceTaskIds()[:i], id):
		case remembers && t.GetContextId() == m.GetContextId():
		default:
			shown = append(shown, about(t)...)
		}
	}
	return shown, nil
}

// about is a task in two messages: its request and its result. Of one that has no
// result it is the text of its status.
func about(t *a2av1.Task) []*a2av1.Message {
	var asked, came string
	for _, m := range t.GetHistory() {
		if m.GetRole() == a2av1.Role_ROLE_USER {
			asked = agent.Text(m)
			break
		}
	}
	for _, a := range t.GetArtifacts() {
		if a.GetName() == "result" {
			came = agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
	}
	if came == "" {
		came = agent.Text(t.GetStatus().GetMessage())
	}
	list := []*a2av1.Message{agent.UserMessage(t.GetId()+"-request", clipTo(asked, maxReference))}
	if came != "" {
		m := agent.NewMessage(clipTo(came, maxReference))
		m.MessageId = t.GetId() + "-result"
		list = append(list, m)
	}
	return list
}
