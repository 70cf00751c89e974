package mcpdoor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// inputRequired is the result of a call of version 2026-07-28 whose task asks. The state is the id of the task.
type inputRequired struct {
	ResultType    string                  `json:"resultType"`
	InputRequests map[string]inputRequest `json:"inputRequests"`
	RequestState  string                  `json:"requestState"`
}

// inputRequest asks a person.
type inputRequest struct {
	Method string `json:"method"`
	Params form   `json:"params"`
}

// form is what a person is asked.
type form struct {
	Mode    string `json:"mode"`
	Message string `json:"message"`
	Schema  any    `json:"requestedSchema"`
}

// elicitation is what a person has answered.
type elicitation struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content"`
}

const elicit = "elicitation/create"

// questionsOf returns the open questions of a task that a form can ask.
func questionsOf(task *a2av1.Task) []*teamv1.Question {
	return slices.DeleteFunc(project.RunOf(task.GetMetadata()).GetQuestions(), func(q *teamv1.Question) bool {
		return q.GetKind() == teamv1.Asked_KIND_AUTH
	})
}

// questionText returns what a task that waits asks, with the options.
func questionText(task *a2av1.Task) string {
	lines := []string{agent.Text(task.GetStatus().GetMessage())}
	open := project.RunOf(task.GetMetadata()).GetQuestions()
	for _, q := range open {
		if o := a2a.OptionsOf(q.GetMessage()); len(o) > 0 {
			lines = append(lines, "Options: "+strings.Join(o, ", "))
		}
		if len(open) > 1 {
			lines = append(lines, fmt.Sprintf("To answer %q, use task %q.", agent.Text(q.GetMessage()), q.GetDelegationId()))
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// inputRequests returns the forms of questions, by their ids.
func inputRequests(open []*teamv1.Question) map[string]inputRequest {
	all := map[string]inputRequest{}
	for _, q := range open {
		all[q.GetQuestion()] = inputRequest{elicit, formOf(q)}
	}
	return all
}

// formOf returns the form of a question: that of the tool that asks, or one with a text.
func formOf(q *teamv1.Question) form {
	if tool := q.GetToolQuestion(); json.Valid([]byte(tool.GetSchema())) && tool.GetSchema() != "" {
		return form{"form", tool.GetMessage(), json.RawMessage(tool.GetSchema())}
	}
	field := map[string]any{"type": "string", "title": "Answer"}
	if o := a2a.OptionsOf(q.GetMessage()); len(o) > 0 {
		field["enum"] = o
	}
	return form{"form", agent.Text(q.GetMessage()), map[string]any{
		"type": "object", "properties": map[string]any{"answer": field}, "required": []string{"answer"},
	}}
}

// text returns the answer as tasks take it.
func (e elicitation) text() string {
	if s, ok := e.Content["answer"].(string); ok && len(e.Content) == 1 {
		return s
	}
	b, _ := json.Marshal(e.Content) // it was decoded from JSON
	return string(b)
}

// answerTo returns the request that answers a question. Its message id is that of the question, so that an answer counts once.
func answerTo(owner, tool, task, question, text string) *a2av1.SendMessageRequest {
	m := agent.UserMessage((*repeats)(nil).id(owner+"\x00"+task+"\x00"+question+"\x00"+text, 0), text)
	m.TaskId = task
	return &a2av1.SendMessageRequest{
		Tenant: tool, Message: m, Metadata: answersTo(question), Configuration: &a2av1.SendMessageConfiguration{HistoryLength: new(int32)},
	}
}

// answer sends the answers that people have given to the questions of a task, and returns the task when it has ended or
// waits again. What people have declined stays open.
func (t *toolCall) answer(ctx context.Context, task string, answers map[string]elicitation) (*a2av1.Task, error) {
	var last *a2av1.SendMessageRequest
	for _, question := range slices.Sorted(maps.Keys(answers)) {
		if answers[question].Action != "accept" {
			continue
		}
		if last != nil {
			if err := t.sendAnswer(ctx, last); err != nil {
				return nil, err
			}
		}
		last = answerTo(t.owner, t.tool, task, question, answers[question].text())
	}
	if last == nil {
		t.meta.Capabilities.Elicitation = nil // do not ask again at once
		return t.get(ctx, task)
	}
	return t.post(ctx, last)
}

// sendAnswer sends an answer without waiting for what becomes of the task.
func (d *Door) sendAnswer(ctx context.Context, req *a2av1.SendMessageRequest) error {
	req.Configuration.ReturnImmediately = true
	_, err := invoke[*a2av1.SendMessageResponse](ctx, d, a2av1.A2AService_SendMessage_FullMethodName, req)
	return err
}

// clientAnswer is a response of a client of version 2025-11-25 to an elicitation.
type clientAnswer struct {
	ID     string      `json:"id"`
	Result elicitation `json:"result"`
}

// parseAnswer parses the response of a client. An error of it is like a cancel.
func parseAnswer(b []byte) (a clientAnswer, ok bool) {
	var shape struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(b, &shape) != nil || shape.Method != nil || shape.Result == nil && shape.Error == nil {
		return a, false
	}
	_ = json.Unmarshal(shape.ID, &a.ID)         // another id belongs to no elicitation
	_ = json.Unmarshal(shape.Result, &a.Result) // an answer of another form is like a cancel
	return a, true
}

// elicited takes the answer to an elicitation, whose id names the task and the question: any replica can take it.
func (d *Door) elicited(ctx context.Context, owner string, a clientAnswer) {
	id := strings.SplitN(a.ID, "/", 3)
	if !d.waiting.answer(owner+" "+a.ID, a.Result) && len(id) == 3 && a.Result.Action == "accept" {
		_ = d.sendAnswer(ctx, answerTo(owner, id[0], id[1], id[2], a.Result.text())) // the call that waits elsewhere looks again
	}
}

// lookInterval is how often a call looks whether a question was answered elsewhere.
const lookInterval = 5 * time.Second

// elicit asks a person over the stream of a call of version 2025-11-25, and returns the task when it has ended or waits
// again. It reports false if no answer is given. As long as it waits it counts as a call that is worked on.
func (t *toolCall) elicit(ctx context.Context, task *a2av1.Task, question *teamv1.Question) (*a2av1.Task, bool, error) {
	id := t.tool + "/" + task.GetId() + "/" + question.GetQuestion()
	ctx, cancel := context.WithTimeout(ctx, call.MaxTime)
	defer cancel()
	leave, err := t.Chain.OccupyToAsk(call.InboundOf(ctx))
	if err != nil {
		return nil, false, err
	}
	leave = sync.OnceFunc(leave)
	defer leave()
	answers, forget := t.waiting.ask(t.owner + " " + id)
	defer forget()
	t.reply.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": elicit, "params": formOf(question)})
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case a := <-answers:
			if a.Action != "accept" {
				return task, false, nil
			}
			leave() // the next call counts itself
			next, err := t.post(ctx, answerTo(t.owner, t.tool, task.GetId(), question.GetQuestion(), a.text()))
			return next, err == nil, err
		case <-look.C:
			if err := t.Chain.Still(call.InboundOf(ctx)); err != nil {
				return nil, false, err
			}
			next, err := t.wait(ctx, task.GetId())
			if err != nil || taskstate.Final(next.GetStatus().GetState()) || !asks(next, question) {
				return next, err == nil, err
			}
		case <-t.Chain.Closing().Done():
			return nil, false, wire.Status(agent.ErrShutdown).Err()
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func asks(task *a2av1.Task, question *teamv1.Question) bool {
	return slices.ContainsFunc(questionsOf(task), func(q *teamv1.Question) bool { return q.GetQuestion() == question.GetQuestion() })
}

// waiting holds what this process waits for: calls that clients may cancel, and answers of people. It is safe for
// concurrent use.
type waiting struct {
	mu      sync.Mutex
	calls   map[string]*func()          // guarded by mu
	answers map[string]chan elicitation // guarded by mu
}

func newWaiting() waiting {
	return waiting{calls: map[string]*func(){}, answers: map[string]chan elicitation{}}
}

// begin adds a call until end is called.
func (w *waiting) begin(key string, cancel func()) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := &cancel
	w.calls[key] = own
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.calls[key] == own {
			delete(w.calls, key)
		}
	}
}

// cancel cancels a call, if it lasts.
func (w *waiting) cancel(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel, ok := w.calls[key]; ok {
		(*cancel)()
	}
}

// ask returns where the answer to an elicitation arrives, until forget is called.
func (w *waiting) ask(key string) (answers <-chan elicitation, forget func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan elicitation, 1)
	w.answers[key] = c
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.answers, key)
	}
}

// answer passes an answer on to the call that waits for it, and reports whether it does so here.
func (w *waiting) answer(key string, e elicitation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.answers[key] <- e: // a nil channel takes nothing
		return true
	default:
		return false
	}
}
