package teams

import (
	"context"
	"fmt"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
)

// StartCollaboration starts a collaboration and prints its id.
func (c *Commands) StartCollaboration(ctx context.Context, req *teamv1.StartCollaborationRequest) error {
	return c.Connection.With("collab", func(server *client.Team) error {
		resp, err := server.Start(ctx, req)
		if err != nil {
			return err
		}
		if c.Console.JSON {
			return c.Console.Print(resp)
		}
		c.Console.Sayf("%s, expected to complete by %s", resp.GetWorkflowStatus(), resp.GetEstimatedCompletion().AsTime().Local().Format("15:04:05"))
		_, err = fmt.Fprintln(c.Console.Out, resp.GetCollaborationId())
		return err
	})
}

// CollaborationStatus prints the status of a collaboration.
func (c *Commands) CollaborationStatus(ctx context.Context, id string) error {
	return c.show(ctx, id, (*client.Team).Collaboration)
}

// PauseCollaboration pauses a collaboration and prints its status. Work that is running finishes.
func (c *Commands) PauseCollaboration(ctx context.Context, id string) error {
	return c.show(ctx, id, (*client.Team).Pause)
}

// ResumeCollaboration resumes a paused collaboration and prints its status.
func (c *Commands) ResumeCollaboration(ctx context.Context, id string) error {
	return c.show(ctx, id, (*client.Team).Resume)
}

func (c *Commands) show(ctx context.Context, id string, call func(*client.Team, context.Context, string) (*teamv1.GetCollaborationStatusResponse, error)) error {
	return c.Connection.With("collab", func(server *client.Team) error {
		st, err := call(server, ctx, id)
		if err != nil {
			return err
		}
		if c.Console.JSON {
			return c.Console.Print(st)
		}
		p := st.GetProgress()
		if _, err := fmt.Fprintf(c.Console.Out, "%s  %d of %d, %s\n", st.GetStatus(), p.GetCompletedTasks(), p.GetTotalTasks(), p.GetCurrentPhase()); err != nil {
			return err
		}
		return console.Table(c.Console, st.GetAgents(), "AGENT\tROLE\tSTATUS\tTASK", func(a *teamv1.CollaborationAgent) []string {
			return []string{a.GetAgentId(), a.GetRole(), a.GetStatus(), strings.Join(strings.Fields(a.GetCurrentTask()), " ")}
		})
	})
}

// StopCollaboration stops a collaboration and prints its result.
func (c *Commands) StopCollaboration(ctx context.Context, req *teamv1.StopCollaborationRequest) error {
	return c.Connection.With("collab", func(server *client.Team) error {
		resp, err := server.Stop(ctx, req)
		if err != nil {
			return err
		}
		if c.Console.JSON {
			return c.Console.Print(resp)
		}
		c.Console.Sayf("%s after %s, %d messages", resp.GetFinalStatus(), resp.GetMetrics().GetTotalDuration().AsDuration(), resp.GetMetrics().GetMessagesExchanged())
		for _, part := range resp.GetResults().GetContributions() {
			c.Console.Sayf("%s: %s", part.GetAgentId(), part.GetText())
		}
		_, err = fmt.Fprintln(c.Console.Out, resp.GetResults().GetOutput())
		return err
	})
}

// ListCollaborations prints the caller's collaborations: those of one team, or all if team is "".
func (c *Commands) ListCollaborations(ctx context.Context, team string) error {
	return c.Connection.With("collab", func(server *client.Team) error {
		list, err := server.Collaborations(ctx, team)
		if err != nil {
			return err
		}
		return console.Table(c.Console, list, "ID\tTEAM\tSTATUS\tDONE\tTASK", func(st *teamv1.GetCollaborationStatusResponse) []string {
			p := st.GetProgress()
			return []string{st.GetCollaborationId(), st.GetTeamId(), st.GetStatus(), fmt.Sprintf("%d/%d", p.GetCompletedTasks(), p.GetTotalTasks()), st.GetBrief().GetTaskDescription()}
		})
	})
}
