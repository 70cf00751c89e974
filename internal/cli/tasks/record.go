package tasks

import (
	"context"
	"fmt"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Journal is the record of a task that has ended, as far as callers see it.
type Journal struct {
	Found *teamv1.FoundTask
	Trace *teamv1.Trace
	// Events are the events after the first one, in order.
	Events []*teamv1.Event
}

// maxConversation is the maximum number of tasks of a conversation that are read.
const maxConversation = 100

// Conversation returns the record of a task, after those of the tasks before it that belong to the same conversation
// with the same team, oldest first.
func (c *Commands) Conversation(ctx context.Context, id string) (all []Journal, err error) {
	err = c.with(func(s *client.Team) error {
		if root, scope := agent.SplitTask(id); scope != "" {
			return console.Usagef("%s is a part of a task; name the whole task, %s", console.Line(id), console.Line(root))
		}
		found, err := find(ctx, s, id)
		if err != nil {
			return err
		}
		page, err := s.FindTasks(ctx, &teamv1.FindTasksRequest{
			AgentId: found.GetAgentId(), Principal: found.GetPrincipal(), ContextId: found.GetContextId(), PageSize: maxConversation,
		})
		if err != nil {
			return err
		}
		if page.GetNextPageToken() != "" {
			return fmt.Errorf("the conversation of task %s has more than %d tasks; record one of a shorter conversation", console.Line(id), maxConversation)
		}
		i := slices.IndexFunc(page.GetTasks(), func(t *teamv1.FoundTask) bool { return t.GetTaskId() == id })
		if i < 0 {
			return fmt.Errorf("task %s is not in its conversation any more", console.Line(id))
		}
		for _, t := range slices.Backward(page.GetTasks()[i:]) { // the newest is first
			j, err := read(ctx, s, t)
			if err != nil {
				return err
			}
			all = append(all, j)
		}
		return nil
	})
	return all, err
}

// read reads the record of a task.
func read(ctx context.Context, s *client.Team, found *teamv1.FoundTask) (Journal, error) {
	j := Journal{Found: found}
	id := found.GetTaskId()
	var err error
	if j.Trace, err = s.GetTrace(ctx, id); err != nil {
		return j, err
	}
	switch {
	case !taskstate.Final(j.Trace.GetState()):
		return j, fmt.Errorf("task %s is %s; wait until it has ended: team-server tasks watch %s", console.Line(id), taskstate.Name(j.Trace.GetState()), console.Line(id))
	case j.Trace.GetRetries() != "":
		return j, fmt.Errorf("task %s retries task %s and has results of it, so its own record is not whole; record a task that ran from its beginning", console.Line(id), console.Line(j.Trace.GetRetries()))
	}
	for resp, err := range s.WatchTask(ctx, id, 1) {
		switch {
		case err != nil:
			return j, err
		case resp.GetSnapshot() != nil:
			return j, fmt.Errorf("the record of task %s is not whole any more", console.Line(id))
		}
		j.Events = append(j.Events, resp.GetEvent().GetEvent())
	}
	return j, nil
}
