package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/agent"
)

// leave are the words that end a chat.
var leave = map[string]bool{"/quit": true, "/exit": true, "/q": true}

// Chat has a conversation with a team or agent: each line of the standard input is a message, or the answer to the question
// that the run asks, until the input ends or /quit is read. A run that fails does not end the chat.
func (s *Shell) Chat(ctx context.Context, team string, f *Run) error {
	if s.In == nil || s.JSON {
		return console.Usagef("chat is for people; use run with -o json")
	}
	if err := f.addInputs(&a2av1.Message{}); err != nil {
		return err
	}
	c, _, stop, err := s.dial(ctx, f.File)
	if err != nil {
		return err
	}
	defer stop()
	if err := f.checkInputs(ctx, c, team); err != nil {
		return err
	}
	input := lines{from: bufio.NewReader(s.In)}
	talk := &chat{shell: s, client: c, team: team, context: f.Context, run: f}
	if talk.context == "" {
		talk.context = uuid.NewString()
	}
	s.Sayf("a conversation with %s; /quit ends it", team)
	for {
		if s.Terminal {
			fmt.Fprint(s.Talk, talk.prompt())
		}
		line, err := input.next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if text := strings.TrimSpace(line); leave[text] {
			break
		} else if text != "" {
			if err := talk.say(ctx, text); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading standard input: %w", err)
		}
	}
	if s.Server != "" {
		s.Sayf("to go on: %s chat %s --context %s", s.Program(), team, talk.context)
	}
	return nil
}

// chat is a conversation.
type chat struct {
	shell   *Shell
	client  *client.Team
	team    string
	context string
	run     *Run
	waiting *transcript.Printer // the run that waits for an answer; nil if none does
}

// prompt returns what is shown before a line is read.
func (c *chat) prompt() string {
	if c.waiting != nil {
		return "answer> "
	}
	return c.team + "> "
}

// say sends a message, or an answer, and prints how its run goes. The error is one that ends the chat.
func (c *chat) say(ctx context.Context, text string) error {
	t := c.waiting
	var req *teamv1.ProcessRequest
	if t != nil {
		req, t.Waiting = answerTo(t, c.team, text), false
	} else {
		req = &teamv1.ProcessRequest{AgentId: c.team, ContextId: c.context, Message: agent.UserMessage(uuid.NewString(), text)}
		if err := c.run.addInputs(req.GetMessage()); err != nil {
			return err
		}
		t = &transcript.Printer{Talk: console.Plain{To: c.shell.Talk}, Cause: c.shell.causes.of}
	}
	err := c.shell.process(ctx, c.client, req, t)
	switch refused := agent.AsError(err); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && c.waiting != nil && refused.Code == agent.CodeInvalidArgument: // the question is still open
		c.shell.Sayf("%s", console.Line(aboutAnswer("the answer", refused.Message)))
		return nil
	case err != nil:
		c.waiting = nil
		return c.shell.notServed(err, c.team, c.run.File)
	case t.Waiting:
		c.waiting = t
		return nil
	}
	c.waiting = nil
	if err := c.shell.outcome(t, c.team); !errors.Is(err, console.ErrFailed) {
		return err
	}
	return nil
}
