package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/transcript"
)

// ListQuestions prints the open questions that the caller may answer, of one team or agent, or with "" of all.
func ListQuestions(ctx context.Context, s *Shell, team string) error {
	c, err := s.Manager("questions")
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.Questions(ctx, team)
	if err != nil {
		return err
	}
	err = console.Table(&s.Console, list, "TASK\tQUESTION\tAGENT\tFOR\tEXPIRES\tTEXT", func(q *teamv1.OpenQuestion) []string {
		expires := "-"
		if at := q.GetQuestion().GetExpires(); at != nil {
			expires = at.AsTime().Format(time.RFC3339)
		}
		text, _, _ := strings.Cut(transcript.Question(q.GetQuestion().GetMessage()), "\n")
		return []string{q.GetTaskId(), q.GetQuestion().GetQuestion(), console.Line(q.GetQuestion().GetPath()), cmp.Or(strings.Join(q.GetQuestion().GetRoles(), ","), "owner"), expires, console.Line(text)}
	})
	if err == nil && !s.JSON && len(list) > 0 {
		s.Sayf("%s questions answer TASK TEXT answers one", s.Program())
	}
	return err
}

// AnswerQuestion answers a question of a task. An empty question is the only one of the task.
func AnswerQuestion(ctx context.Context, s *Shell, task, question, text string) error {
	c, err := s.Manager("questions")
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.Answer(ctx, task, question, text)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.Print(resp)
	}
	s.Sayf("answered; task %s goes on", task)
	return nil
}
