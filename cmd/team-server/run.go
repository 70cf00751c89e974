package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/app"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/agent"
)

// runFlags are the flags of run.
type runFlags struct {
	file, context, task string
	answers             []string
}

func (s *shell) runCommand() *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "run TEAM TEXT",
		Short: "Runs one task of a team or agent and shows how it goes",
		Long: "Gives a team or agent a message and tells who works and why, until it is done.\n" +
			"The answer goes to standard output, the rest to standard error. Without\n" +
			"--server a server is started in process, from --file, ./team.yaml or the demo.\n" +
			"Exit code 1 when the run fails or waits for somebody.",
		Example: "  team-server run newsroom \"Write about tides\"\n" +
			"  team-server run --file examples/workflow release \"Version 2\" --answer yes",
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error { return s.run(c.Context(), args[0], args[1], f) },
	}
	c.Flags().StringVarP(&f.file, "file", "f", "", "configuration of the server in process")
	c.Flags().StringVar(&f.context, "context", "", "id of the conversation to go on with")
	c.Flags().StringVar(&f.task, "task", "", "id of the task to answer")
	c.Flags().StringArrayVar(&f.answers, "answer", nil, "answer to a question of the run; may be repeated")
	return c
}

// reach returns the address of the server to use, and what to call when done:
// the one given, or one in process.
func (s *shell) reach(ctx context.Context, file string) (base string, stop func(), err error) {
	if s.server != "" {
		return s.server, func() {}, nil
	}
	def, err := s.definition(file)
	if err != nil {
		return "", nil, err
	}
	running, err := app.StartLocal(ctx, def, s.log(zapcore.ErrorLevel))
	if err != nil {
		return "", nil, err
	}
	return "http://" + running.HTTP, func() {
		if err := running.Stop(); err != nil {
			s.sayf("%v", err)
		}
	}, nil
}

// definition loads a file, ./team.yaml, or the demo.
func (s *shell) definition(file string) (*config.Config, error) {
	if file == "" {
		if _, err := os.Stat("team.yaml"); err != nil {
			return app.Demo()
		}
		file = "team.yaml"
	}
	return config.Loader{}.Load(file)
}

func (s *shell) run(ctx context.Context, team, text string, f *runFlags) error {
	base, stop, err := s.reach(ctx, f.file)
	if err != nil {
		return err
	}
	defer stop()
	c, err := client.NewTeam(base, s.client())
	if err != nil {
		return usageError{err}
	}
	defer c.Close()
	t := &app.Transcript{Talk: s.talk}
	req := &teamv1.ProcessRequest{
		AgentId: team, ContextId: f.context, TaskId: f.task, Message: agent.UserMessage(uuid.NewString(), text),
	}
	for answers := f.answers; ; answers = answers[1:] {
		if err := s.tell(ctx, c, req, t); err != nil {
			return err
		}
		if !t.Waiting || len(answers) == 0 {
			break
		}
		req = &teamv1.ProcessRequest{
			AgentId: team, TaskId: t.TaskID, Message: agent.UserMessage(uuid.NewString(), answers[0]),
		}
		if len(t.Questions) > 0 {
			req.Question = t.Questions[0].GetQuestion()
		}
	}
	return s.outcome(t)
}

// tell tells the events of a call. A stream that breaks off is an error.
func (s *shell) tell(ctx context.Context, c *client.Team, req *teamv1.ProcessRequest, t *app.Transcript) error {
	for resp, err := range c.Process(ctx, req) {
		if err != nil {
			return asked(t, err)
		}
		if s.json() {
			if err := s.print(resp); err != nil {
				return err
			}
		}
		t.Event(resp.GetTaskId(), resp.GetEvent())
	}
	return nil
}

// asked takes the error of an agent that asks for what it is: the run waits.
func asked(t *app.Transcript, err error) error {
	var e *agent.Error
	if errors.As(err, &e) && e.Reason == agent.ReasonInputRequired {
		t.Waiting = true
		return nil
	}
	return err
}

// outcome prints the answer and the last line.
func (s *shell) outcome(t *app.Transcript) error {
	if !s.json() && !t.Failed() {
		fmt.Fprintln(s.out, t.Answer)
	}
	s.sayf("%s", t.Summary())
	switch {
	case t.Waiting:
		if s.server == "" {
			s.sayf("the server in process ends here; give the answer beforehand with --answer, or start one with team-server dev")
		} else {
			s.sayf("answer it with --task %s", t.TaskID)
		}
		return errFailed
	case t.Failed():
		if t.Err != nil {
			s.sayf("%s: %s", t.Err.GetReason(), t.Err.GetMessage())
		}
		return errFailed
	}
	return nil
}
