package command

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
	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/teams"
)

func collabCommand(s *cli.Shell) *cobra.Command {
	on := &teams.Commands{Console: &s.Console, Connection: &s.Connection}
	return group("collab", "Starts, shows, pauses and stops collaborations",
		"Manages collaborations on the server that --server names. A collaboration is a task with\n"+
			"a description, an expected result and limits; its id is the id of the task.",
		collabStartCommand(on),
		showCommand("status", "Prints the status of a collaboration", on.CollaborationStatus),
		showCommand("pause", "Starts no new work; running work finishes", on.PauseCollaboration),
		showCommand("resume", "Resumes a paused collaboration", on.ResumeCollaboration),
		collabStopCommand(on),
		&cobra.Command{
			Use: "ls [TEAM]", Short: "Lists your collaborations, newest first", Args: usage(atMostOne("TEAM")),
			RunE: func(c *cobra.Command, args []string) error {
				return on.ListCollaborations(c.Context(), append(args, "")[0])
			},
		})
}

func collabStartCommand(on *teams.Commands) *cobra.Command {
	req := &teamv1.StartCollaborationRequest{}
	bounds := &teamv1.CollaborationConstraints{}
	var most time.Duration
	var quality float64
	c := &cobra.Command{
		Use: "start TEAM TASK --expect TEXT", Short: "Starts a collaboration and prints its id",
		Example: "  team-server collab start newsroom \"Write about the tides.\" --expect \"Three sentences.\"",
		Args:    usage(named("TEAM", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			if req.GetExpectedOutput() == "" {
				return console.UsageError{Err: fmt.Errorf("collab start needs --expect TEXT, for example: %s", strings.TrimSpace(c.Example))}
			}
			req.TeamId, req.TaskDescription = args[0], args[1]
			if c.Flags().Changed("max-duration") {
				bounds.MaxDuration = durationpb.New(most)
			}
			if c.Flags().Changed("quality") {
				bounds.QualityThreshold = &quality
			}
			req.Constraints = bounds
			return on.StartCollaboration(c.Context(), req)
		},
	}
	c.Flags().StringVar(&req.ExpectedOutput, "expect", "", "the expected result")
	c.Flags().Var(object{&req.Context}, "context", "information for all members, a JSON object")
	c.Flags().DurationVar(&most, "max-duration", 0, "time limit; default: the timeout of the team")
	c.Flags().Float64Var(&quality, "quality", 0, "minimum score of the result, 0 to 1; default: none")
	c.Flags().StringToInt64Var(&bounds.ResourceLimits, "limit", nil, "max_tokens=N, max_delegations=N or max_parallel=N; repeatable")
	c.Flags().Var(id{&req.RequestId}, "request-id", "idempotency key: starting again with the same id returns the same collaboration")
	return c
}

// object is the value of a flag for a JSON object.
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

func collabStopCommand(on *teams.Commands) *cobra.Command {
	req := &teamv1.StopCollaborationRequest{}
	var drop bool
	c := &cobra.Command{
		Use: "stop ID", Short: "Waits for running work, then stops; prints the result",
		Example: "  team-server collab stop ID --force", Args: usage(named("ID")),
		RunE: func(c *cobra.Command, args []string) error {
			keep := !drop
			req.CollaborationId, req.SavePartial = args[0], &keep
			return on.StopCollaboration(c.Context(), req)
		},
	}
	c.Flags().BoolVar(&req.ForceStop, "force", false, "stop at once; running work is canceled")
	c.Flags().BoolVar(&drop, "drop", false, "discard the results so far")
	return c
}
