package client

import (
	"context"
	"net/http"
	"net/url"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Questions returns the open questions that the caller may answer, of one agent or team, or with "" of all.
func (t *Team) Questions(ctx context.Context, agentID string) ([]*teamv1.OpenQuestion, error) {
	return all(func(page url.Values) ([]*teamv1.OpenQuestion, string, error) {
		if agentID != "" {
			page.Set("agentId", agentID)
		}
		out := &teamv1.ListQuestionsResponse{}
		err := t.call(ctx, http.MethodGet, "/monitor/questions?"+page.Encode(), nil, out)
		return out.GetQuestions(), out.GetNextPageToken(), err
	})
}

// Answer answers a question of a task. An empty question is the only one of the task.
func (t *Team) Answer(ctx context.Context, task, question, text string) (*teamv1.AnswerQuestionResponse, error) {
	out := &teamv1.AnswerQuestionResponse{}
	req := &teamv1.AnswerQuestionRequest{TaskId: task, Question: question, Answer: &teamv1.AnswerQuestionRequest_Text{Text: text}}
	return out, t.call(ctx, http.MethodPost, "/monitor/tasks/"+url.PathEscape(task)+":answer", req, out)
}
