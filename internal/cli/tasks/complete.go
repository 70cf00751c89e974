package tasks

import (
	"context"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/transcript"
)

// completionTime is how long a shell waits for words to complete.
const completionTime = 2 * time.Second

// Tasks returns the ids of the newest tasks in one of some states, or in any, each with a tab and a description, for the
// completion of a shell. It returns nil if the server does not answer in time.
func (c *Commands) Tasks(ctx context.Context, in ...string) (words []string) {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	_ = c.with(func(s *client.Team) error {
		if len(in) == 0 {
			in = []string{""}
		}
		for _, word := range in {
			state, err := parseState(word)
			if err != nil {
				return err
			}
			page, err := s.FindTasks(ctx, &teamv1.FindTasksRequest{State: state})
			if err != nil {
				return err
			}
			for _, t := range page.GetTasks() {
				words = append(words, t.GetTaskId()+"\t"+console.Line(taskstate.Name(t.GetState())+" "+t.GetAgentId()+" "+transcript.Clip(t.GetText(), 40)))
			}
		}
		return nil
	})
	return words
}

// Teams returns the ids of the agents and teams of the server, each with a tab and its name, for the completion of a shell.
// It returns nil if the server does not answer in time.
func (c *Commands) Teams(ctx context.Context) (words []string) {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	_ = c.with(func(s *client.Team) error {
		list, err := s.ListAgents(ctx, "", "")
		for _, a := range list {
			words = append(words, a.GetId()+"\t"+console.Line(a.GetInfo().GetName()))
		}
		return err
	})
	return words
}
