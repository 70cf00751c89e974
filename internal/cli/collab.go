package cli

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
)

// collaborate calls do with a client for the server that --server names.
func (s *Shell) collaborate(ctx context.Context, do func(context.Context, *client.Team) error) error {
	c, err := s.Manager("collab")
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}

// StartCollaboration starts a collaboration and prints its id.
func (s *Shell) StartCollaboration(ctx context.Context, req *teamv1.StartCollaborationRequest) error {
	return s.collaborate(ctx, func(ctx context.Context, c *client.Team) error {
		resp, err := c.Start(ctx, req)
		if err != nil || s.JSON {
			return s.printed(err, resp)
		}
		s.Sayf("%s, expected to complete by %s", resp.GetWorkflowStatus(), resp.GetEstimatedCompletion().AsTime().Local().Format("15:04:05"))
		_, err = fmt.Fprintln(s.Out, resp.GetCollaborationId())
		return err
	})
}

// CollaborationStatus prints the status of a collaboration.
func (s *Shell) CollaborationStatus(ctx context.Context, id string) error {
	return s.show(ctx, id, (*client.Team).Collaboration)
}

// PauseCollaboration pauses a collaboration and prints its status. Work that is running finishes.
func (s *Shell) PauseCollaboration(ctx context.Context, id string) error {
	return s.show(ctx, id, (*client.Team).Pause)
}

// ResumeCollaboration resumes a paused collaboration and prints its status.
func (s *Shell) ResumeCollaboration(ctx context.Context, id string) error {
	return s.show(ctx, id, (*client.Team).Resume)
}

func (s *Shell) show(ctx context.Context, id string, call func(*client.Team, context.Context, string) (*teamv1.GetCollaborationStatusResponse, error)) error {
	return s.collaborate(ctx, func(ctx context.Context, c *client.Team) error {
		st, err := call(c, ctx, id)
		if err != nil || s.JSON {
			return s.printed(err, st)
		}
		p := st.GetProgress()
		if _, err := fmt.Fprintf(s.Out, "%s  %d of %d, %s\n", st.GetStatus(), p.GetCompletedTasks(), p.GetTotalTasks(), p.GetCurrentPhase()); err != nil {
			return err
		}
		return console.Table(&s.Console, st.GetAgents(), "AGENT\tROLE\tSTATUS\tTASK", func(a *teamv1.CollaborationAgent) []string {
			return []string{a.GetAgentId(), a.GetRole(), a.GetStatus(), strings.Join(strings.Fields(a.GetCurrentTask()), " ")}
		})
	})
}

// StopCollaboration stops a collaboration and prints its result.
func (s *Shell) StopCollaboration(ctx context.Context, req *teamv1.StopCollaborationRequest) error {
	return s.collaborate(ctx, func(ctx context.Context, c *client.Team) error {
		resp, err := c.Stop(ctx, req)
		if err != nil || s.JSON {
			return s.printed(err, resp)
		}
		s.Sayf("%s after %s, %d messages", resp.GetFinalStatus(), resp.GetMetrics().GetTotalDuration().AsDuration(), resp.GetMetrics().GetMessagesExchanged())
		for _, part := range resp.GetResults().GetContributions() {
			s.Sayf("%s: %s", part.GetAgentId(), part.GetText())
		}
		_, err = fmt.Fprintln(s.Out, resp.GetResults().GetOutput())
		return err
	})
}

// ListCollaborations prints the caller's collaborations: those of one team, or all if team is "".
func (s *Shell) ListCollaborations(ctx context.Context, team string) error {
	return s.collaborate(ctx, func(ctx context.Context, c *client.Team) error {
		list, err := c.Collaborations(ctx, team)
		if err != nil {
			return err
		}
		return console.Table(&s.Console, list, "ID\tTEAM\tSTATUS\tDONE\tTASK", func(st *teamv1.GetCollaborationStatusResponse) []string {
			p := st.GetProgress()
			return []string{st.GetCollaborationId(), st.GetTeamId(), st.GetStatus(), fmt.Sprintf("%d/%d", p.GetCompletedTasks(), p.GetTotalTasks()), st.GetBrief().GetTaskDescription()}
		})
	})
}

// printed prints a message as JSON, or returns err if it is not nil.
func (s *Shell) printed(err error, m proto.Message) error {
	if err != nil {
		return err
	}
	return s.Print(m)
}
