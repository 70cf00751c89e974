package monitor

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// ListQuestions returns the open questions of the caller's tasks, including those of nested
// and remote members, and the questions to roles of the caller in other tasks of its
// account. They are sorted by task, then by the time they were asked. A question that is
// answered between two pages is omitted. The errors include INVALID_REQUEST, and
// TASK_NOT_FOUND for the requested task.
func (m *Monitor) ListQuestions(ctx context.Context, req *teamv1.ListQuestionsRequest) (*teamv1.ListQuestionsResponse, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, err
	}
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	if err != nil {
		return nil, err
	}
	after, err := parseToken(req)
	if err != nil {
		return nil, err
	}
	list, more, err := m.byRole(ctx, req, after, size)
	if err != nil {
		return nil, err
	}
	own, err := m.own(ctx, who.Owner(), req, after, size+1)
	if a2aerror.IsNotFound(err) && (len(list) > 0 || after != place{}) { // a task of another principal that asks a role
		own, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	list = append(list, own...)
	slices.SortFunc(list, func(a, b question) int { return a.compare(b.place) })
	resp, room := &teamv1.ListQuestionsResponse{}, runs.MaxPageBytes
	for _, q := range list {
		if room -= proto.Size(q.OpenQuestion); len(resp.GetQuestions()) == size || room < 0 && len(resp.GetQuestions()) > 0 {
			more = true
			break
		}
		resp.Questions, after = append(resp.Questions, q.OpenQuestion), q.place
	}
	if more {
		resp.NextPageToken = after.token(req)
	}
	return resp, nil
}

// byRole returns a page of the questions to roles of the caller in tasks of others.
func (m *Monitor) byRole(ctx context.Context, req *teamv1.ListQuestionsRequest, after place, limit int) (list []question, more bool, err error) {
	root, scope := agent.SplitTask(req.GetTaskId())
	open, more, err := m.h.QuestionsFor(ctx, runs.QuestionFilter{
		Root: root, Scope: scope, Agent: req.GetAgentId(), After: after.root, AfterSeq: after.seq, Limit: limit,
	})
	if err != nil {
		return nil, false, err
	}
	for _, q := range open {
		list = append(list, question{place{q.Task.ID, q.Asked.GetSeq()}, &teamv1.OpenQuestion{
			TaskId: q.Task.ID, AgentId: q.Agent, Question: project.QuestionOf(q.Task.ID, q.Asked), Since: q.Asked.GetTime(), ByRole: true,
		}})
	}
	return list, more, nil
}

// own returns the questions of the caller's own tasks after a place. It returns all
// questions of the last task, so there may be more than limit.
func (m *Monitor) own(ctx context.Context, owner string, req *teamv1.ListQuestionsRequest, after place, limit int) (list []question, err error) {
	roots, scope, err := m.asking(ctx, owner, req)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if root < after.root {
			continue
		}
		open, err := m.questionsOf(ctx, runs.Key{Owner: owner, ID: root}, scope)
		if err != nil {
			return nil, err
		}
		for _, q := range open {
			if q.compare(after) > 0 {
				list = append(list, q)
			}
		}
		if len(list) >= limit {
			break
		}
	}
	return list, nil
}

// asking returns the IDs of the root tasks that may have open questions, sorted, and the
// requested scope.
func (m *Monitor) asking(ctx context.Context, owner string, req *teamv1.ListQuestionsRequest) (roots []string, scope string, err error) {
	if req.GetTaskId() != "" {
		of, err := m.h.Owned(ctx, req.GetTaskId())
		if err != nil {
			return nil, "", err
		}
		root, scope := agent.SplitTask(req.GetTaskId())
		if req.GetAgentId() != "" && req.GetAgentId() != of {
			return nil, scope, nil
		}
		return []string{root}, scope, nil
	}
	o, err := m.overview()
	if err != nil {
		return nil, "", err
	}
	marks, err := o.Runs(ctx, owner, runs.RunFilter{Agent: req.GetAgentId()})
	if err != nil {
		return nil, "", runs.StoreError("", err)
	}
	for _, mark := range marks {
		if mark.State != a2av1.TaskState_TASK_STATE_SUBMITTED {
			roots = append(roots, mark.Root)
		}
	}
	slices.Sort(roots)
	return roots, "", nil
}

// question is an open question with its place in the list.
type question struct {
	place
	*teamv1.OpenQuestion
}

// questionsOf returns the open questions of a scope of a root task and of the scopes below. It
// reads the journal only if the task lists questions, which few tasks do.
func (m *Monitor) questionsOf(ctx context.Context, root runs.Key, scope string) ([]question, error) {
	task, err := m.h.GetTask(ctx, &a2av1.GetTaskRequest{Id: root.ID, HistoryLength: proto.Int32(0)})
	if a2aerror.IsNotFound(err) || a2aerror.IsDamaged(err) { // deleted meanwhile, or unreadable; list the others
		return nil, nil
	}
	if err != nil || len(project.RunOf(task.GetMetadata()).GetQuestions()) == 0 {
		return nil, err
	}
	r, asked := newRun(root.ID, "", journal.Outline), map[string]int64{}
	err = m.each(ctx, root, 0, func(ev *teamv1.Event) bool {
		r.apply(ev)
		if q := ev.GetAsked().GetQuestion(); q != "" {
			asked[q] = ev.GetSeq()
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	var list []question
	for _, q := range r.open(scope) {
		list = append(list, question{place{root.ID, asked[q.GetQuestion().GetQuestion()]}, q})
	}
	return list, nil
}

// place is the position of a question in the list.
type place struct {
	root string
	seq  int64
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.root, o.root), cmp.Compare(p.seq, o.seq))
}

// token returns the page token for the questions after p. It includes the filters of the
// request, which must not change between pages.
func (p place) token(req *teamv1.ListQuestionsRequest) string {
	text := strings.Join([]string{p.root, strconv.FormatInt(p.seq, 10), req.GetAgentId(), req.GetTaskId()}, "\n")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// parseToken parses the page token of a request. Without one it returns the zero place,
// which is before all questions.
func parseToken(req *teamv1.ListQuestionsRequest) (place, error) {
	if req.GetPageToken() == "" {
		return place{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	parts := strings.Split(string(b), "\n")
	if err != nil || len(parts) != 4 || parts[2] != req.GetAgentId() || parts[3] != req.GetTaskId() {
		return place{}, invalidToken()
	}
	seq, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return place{}, invalidToken()
	}
	return place{parts[0], seq}, nil
}

func invalidToken() error {
	return a2aerror.Invalid(agent.Violation{Field: "pageToken", Description: "is not a page token of this list; omit it to start with the first page"})
}

// AnswerQuestion answers an open question of a task of the caller, or one that the caller
// may answer because of a role. It sends the answer as a message that names the question in
// its metadata, and does not wait for the task. An answer without a message ID gets one
// that is derived from the question and the answer, so that repeating a call has no effect.
// The errors are those of Handler.Answer.
func (m *Monitor) AnswerQuestion(ctx context.Context, req *teamv1.AnswerQuestionRequest) (*teamv1.AnswerQuestionResponse, error) {
	msg, err := answer(req)
	if err != nil {
		return nil, err
	}
	send := &a2av1.SendMessageRequest{Message: msg, Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: true}}
	if q := req.GetQuestion(); q != "" {
		send.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			project.TeamRunURI: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"question": structpb.NewStringValue(q)}}),
		}}
	}
	task, err := m.h.Answer(ctx, send)
	if err != nil {
		return nil, answerError(req, err)
	}
	return &teamv1.AnswerQuestionResponse{Task: task}, nil
}

// answerError maps the field names in an error of the sent message to the fields of the
// request.
func answerError(req *teamv1.AnswerQuestionRequest, err error) error {
	var e *a2aerror.Error
	if !errors.As(err, &e) || len(e.Violations) == 0 {
		return err
	}
	faults := slices.Clone(e.Violations)
	for i, f := range faults {
		switch {
		case strings.HasPrefix(f.Field, "metadata"):
			faults[i].Field = "question"
		case f.Field == "message.taskId":
			faults[i].Field = "taskId"
		case req.GetMessage() == nil:
			faults[i].Field = "text"
		}
	}
	named := a2aerror.Invalid(faults...)
	named.Reason, named.Code, named.Details = e.Reason, e.Code, e.Details
	return named
}

// answer returns the message that carries the answer.
func answer(req *teamv1.AnswerQuestionRequest) (*a2av1.Message, error) {
	m := &a2av1.Message{Role: a2av1.Role_ROLE_USER}
	switch a := req.GetAnswer().(type) {
	case *teamv1.AnswerQuestionRequest_Text:
		m.Parts = agent.TextParts(a.Text)
	case *teamv1.AnswerQuestionRequest_Message:
		m = proto.CloneOf(a.Message)
		if m.GetRole() == a2av1.Role_ROLE_UNSPECIFIED {
			m.Role = a2av1.Role_ROLE_USER
		}
	}
	switch {
	case len(m.GetParts()) == 0 || req.GetText() == "" && req.GetMessage() == nil:
		return nil, a2aerror.Invalid(agent.Violation{Field: "text", Description: "is required, unless the answer is a message with parts"})
	case req.GetTaskId() == "":
		return nil, a2aerror.Invalid(agent.Violation{Field: "taskId", Description: "is required"})
	case m.GetTaskId() != "" && m.GetTaskId() != req.GetTaskId():
		return nil, a2aerror.Invalid(agent.Violation{Field: "taskId", Description: "does not match the task of the message; omit one of them"})
	}
	m.TaskId = req.GetTaskId()
	if m.GetMessageId() != "" {
		return m, nil
	}
	if req.GetQuestion() == "" { // the same text may answer the next question, too
		m.MessageId = uuid.NewString()
		return m, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, errors.New("encoding an answer: " + err.Error())
	}
	m.MessageId = uuid.NewSHA1(uuid.NameSpaceOID, append([]byte(req.GetTaskId()+"\x00"+req.GetQuestion()+"\x00"), b...)).String()
	return m, nil
}
