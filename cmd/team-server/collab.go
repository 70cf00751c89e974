package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

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
	bounds := &teamv1.CollaborationConstraints{}
	var most time.Duration
	var quality float64
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
				bounds.MaxDuration = durationpb.New(most)
			}
			if c.Flags().Changed("quality") {
				bounds.QualityThreshold = &quality
			}
			req.Constraints = bounds
			return s.StartCollaboration(c.Context(), req)
		},
	}
	c.Flags().StringVar(&req.ExpectedOutput, "expect", "", "what is to come out of it")
	c.Flags().Var(object{&req.Context}, "context", "what all members know from the start, a JSON object")
	c.Flags().DurationVar(&most, "max-duration", 0, "how long it may take; default as long as the team may")
	c.Flags().Float64Var(&quality, "quality", 0, "the least score of its result, 0 to 1; default any")
	c.Flags().StringToInt64Var(&bounds.ResourceLimits, "limit", nil, "max_tokens=N, max_delegations=N or max_parallel=N; repeatable")
	c.Flags().Var(id{&req.RequestId}, "request-id", "id of the start: the same once more is the same collaboration")
	return c
}

// object is a flag for a JSON object.
type object struct{ of **structpb.Struct }

func (o object) Type() string { return "object" }

func (o object) String() string {
	if o.of == nil || *o.of == nil {
		return ""
	}
	return protojson.Format(*o.of)
}

func (o object) Set(text string) error {
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		return errors.New("must be a JSON object")
	}
	*o.of = s
	return nil
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
	c.Flags().BoolVar(&drop, "drop", false, "drop the results so far")
	return c
}
