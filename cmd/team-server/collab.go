package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/app"
)

func collabCommand(s *app.Shell) *cobra.Command {
	return group("collab", "Starts, shows, pauses and stops collaborations",
		"Has a team of the server given with --server work on a described task. A collaboration\n"+
			"is a task, under the same id, with a description, what is expected, and bounds.",
		collabStartCommand(s),
		showCommand("status", "Says how a collaboration stands", s.CollaborationStatus),
		showCommand("pause", "Has nothing more of it begin; what runs goes on to its end", s.PauseCollaboration),
		showCommand("resume", "Has a paused one go on", s.ResumeCollaboration),
		collabStopCommand(s),
		&cobra.Command{
			Use: "ls [TEAM]", Short: "Lists your collaborations, the newest first", Args: usage(atMostOne("TEAM")),
			RunE: func(c *cobra.Command, args []string) error {
				return s.ListCollaborations(c.Context(), append(args, "")[0])
			},
		})
}

func collabStartCommand(s *app.Shell) *cobra.Command {
	req := &teamv1.StartCollaborationRequest{}
	var most time.Duration
	c := &cobra.Command{
		Use: "start TEAM TASK --expect TEXT", Short: "Has a team begin to work; prints the id",
		Example: "  team-server collab start newsroom \"Write about the tides.\" --expect \"Three sentences.\"",
		Args:    usage(named("TEAM", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			if req.GetExpectedOutput() == "" {
				return app.UsageError{Err: fmt.Errorf("collab start needs --expect TEXT, for example: %s", strings.TrimSpace(c.Example))}
			}
			req.TeamId, req.TaskDescription = args[0], args[1]
			if c.Flags().Changed("max-duration") {
				req.Constraints = &teamv1.CollaborationConstraints{MaxDuration: durationpb.New(most)}
			}
			return s.StartCollaboration(c.Context(), req)
		},
	}
	c.Flags().StringVar(&req.ExpectedOutput, "expect", "", "what is to come out of it")
	c.Flags().DurationVar(&most, "max-duration", 0, "how long it may take; default as long as the team may")
	return c
}

func showCommand(name, short string, show func(context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " ID", Short: short, Example: "  team-server collab " + name + " ID", Args: usage(named("ID")),
		RunE: func(c *cobra.Command, args []string) error { return show(c.Context(), args[0]) },
	}
}

func collabStopCommand(s *app.Shell) *cobra.Command {
	req := &teamv1.StopCollaborationRequest{}
	var drop bool
	c := &cobra.Command{
		Use: "stop ID", Short: "Ends it when what runs has ended; prints its result",
		Example: "  team-server collab stop ID --force", Args: usage(named("ID")),
		RunE: func(c *cobra.Command, args []string) error {
			keep := !drop
			req.CollaborationId, req.SavePartial = args[0], &keep
			return s.StopCollaboration(c.Context(), req)
		},
	}
	c.Flags().BoolVar(&req.ForceStop, "force", false, "at once: what runs is cut")
	c.Flags().BoolVar(&drop, "drop", false, "hide the results so far")
	return c
}
