package tasks

import (
	"cmp"
	"context"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/transcript"
)

// ListQuestions prints the open questions that the caller may answer, of one team or agent, or with "" of all.
func (c *Commands) ListQuestions(ctx context.Context, team string) error {
	list, err := console.Ask(c.Connection, "questions", func(server *client.Team) ([]*teamv1.OpenQuestion, error) { return server.Questions(ctx, team) })
	if err != nil {
		return err
	}
	err = console.Table(c.Console, list, "TASK\tQUESTION\tAGENT\tFOR\tEXPIRES\tTEXT", func(q *teamv1.OpenQuestion) []string {
		expires := "-"
		if at := q.GetQuestion().GetExpires(); at != nil {
			expires = at.AsTime().Format(time.RFC3339)
		}
		text, _, _ := strings.Cut(transcript.Question(q.GetQuestion().GetMessage()), "\n")
		return []string{q.GetTaskId(), q.GetQuestion().GetQuestion(), console.Line(q.GetQuestion().GetPath()), cmp.Or(strings.Join(q.GetQuestion().GetRoles(), ","), "owner"), expires, console.Line(text)}
	})
	if err == nil && !c.Console.JSON && len(list) > 0 {
		c.Console.Sayf("%s questions answer TASK TEXT answers one", c.Connection.Program())
	}
	return err
}

// AnswerQuestion answers a question of a task. An empty question is the only one of the task.
func (c *Commands) AnswerQuestion(ctx context.Context, task, question, text string) error {
	resp, err := console.Ask(c.Connection, "questions", func(server *client.Team) (*teamv1.AnswerQuestionResponse, error) {
		return server.Answer(ctx, task, question, text)
	})
	if err != nil {
		return err
	}
	if c.Console.JSON {
		return c.Console.Print(resp)
	}
	c.Console.Sayf("answered; task %s goes on", task)
	return nil
}
