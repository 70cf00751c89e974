package a2a

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// followUp adds a message to the inbox of an existing task: the answer to a question, or
// information that the agent reads before its next decision.
func (b *inbox) followUp(ctx context.Context, who identity.Caller, s *send) (sent, error) {
	to, err := b.addressed(ctx, who, s)
	if err != nil {
		return sent{}, err
	}
	digest, err := digestOf(to.ID, s.message)
	if err != nil {
		return sent{}, err
	}
	if c := s.message.GetContextId(); c != "" && c != to.ContextID {
		return sent{}, a2aerror.Invalid(agent.Violation{Field: "message.contextId", Description: "is not the context of the task; omit it, or send " + to.ContextID})
	}
	if err := b.takes(ctx, to.Standing, s); err != nil {
		return sent{}, err
	}
	// References are only validated: an agent that is working is not shown the referenced tasks.
	if _, err := referenced(ctx, b.Store, who.Owner(), s.message, true); err != nil {
		return sent{}, err
	}
	in, again, err := b.input(ctx, who, to, s)
	if err != nil {
		return sent{}, err
	}
	n, err := b.leave(ctx, to, s, in, digest, again)
	b.Wake() // also after an error: the input may have been recorded
	if err != nil {
		return sent{}, err
	}
	return sent{key: to.Key, inbound: n, existed: true}, nil
}

// addressee is the task that a message names.
type addressee struct {
	runs.Key
	runs.Standing
	fold *project.Fold // nil for a task that has ended, if the message names no question: then only its standing counts
}

// addressed returns the task that a message names, which must belong to its sender and be served by the tenant.
func (b *inbox) addressed(ctx context.Context, who identity.Caller, s *send) (to addressee, err error) {
	to.Key = runs.Key{Owner: who.Owner(), ID: s.message.GetTaskId()}
	root, scope := agent.SplitTask(to.ID)
	if scope == "" && s.question == "" {
		if to.Standing, err = b.tasks.standing(ctx, s.tenant, to.Key); err != nil || taskstate.Final(to.State) {
			return to, err
		}
	}
	f, err := b.tasks.fold(ctx, runs.Key{Owner: to.Owner, ID: root}, scope)
	if err != nil {
		return to, notFoundAs(err, to.ID)
	}
	if !f.Exists() || !f.Serves(s.tenant) {
		return to, a2aerror.TaskNotFound(to.ID)
	}
	to.Standing, to.fold = standingOf(f), f
	return to, nil
}

// input returns what a message to a task is for its inbox. again reports whether the message was sent before; the
// response is then that to the earlier one.
func (b *inbox) input(ctx context.Context, who identity.Caller, to addressee, s *send) (in *teamv1.Inbound, again bool, err error) {
	root, scope := agent.SplitTask(to.ID)
	known, err := b.Store.Sent(ctx, to.Owner, agent.KeyOf(to.Account, to.Agent), s.key)
	switch {
	case err != nil && !errors.Is(err, runs.ErrNotFound):
		return nil, false, runs.StoreError(to.ID, err)
	case err == nil && known == root && s.key != "":
		return &teamv1.Inbound{Scope: scope, Key: s.key, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: s.message}}}, true, nil
	}
	if to.fold != nil {
		if first := answeredBefore(to.fold, s.question); first != nil {
			return nil, false, runs.StoreError("", &runs.AnsweredError{First: first})
		}
	}
	if to.fold == nil || to.fold.Terminal() {
		return nil, false, runs.StoreError(to.ID, runs.ErrTerminal)
	}
	if err := b.Halts.Refusal(to.Owner, to.Account, to.Agent); err != nil {
		return nil, false, err
	}
	if in, err = b.inbound(to.fold, who, s); err != nil {
		return nil, false, err
	}
	if in.GetReceived() != nil && b.Settings.Load().GetProtocol().GetRefuseWhileWorking() {
		return nil, false, a2aerror.UnsupportedOperation("task %q is working, and this server accepts no messages for working tasks; wait until it asks for input or ends", to.ID)
	}
	return in, false, b.admitGrant(ctx, to.Owner, in)
}

// answeredBefore returns the recorded answer to the question that a message names. If it names none, it may be a second
// answer as long as work goes on with the first one, and answeredBefore returns that. It returns nil without one.
func answeredBefore(f *project.Fold, question string) *teamv1.Answered {
	if question == "" {
		return f.InUse()
	}
	return f.FirstAnswer(question)
}

// admitGrant returns an error if an input grants a task of an owner more than its account may spend.
func (b *inbox) admitGrant(ctx context.Context, owner string, in *teamv1.Inbound) error {
	grant := in.GetAnswered().GetGrant()
	if grant == nil || b.AdmitGrant == nil {
		return nil
	}
	err := b.AdmitGrant(ctx, identity.AccountOf(owner), agent.CostOf(grant))
	if err == nil || agent.AsError(err) != nil {
		return err
	}
	return runs.StoreError("", err)
}

// audited returns a context with which the store records an answer in the audit log, if it grants budget
// or decides an approval.
func (b *inbox) audited(ctx context.Context, root string, in *teamv1.Inbound) context.Context {
	a := in.GetAnswered()
	if b.Audit == nil || a.GetGrant() == nil && a.GetApproval() == nil {
		return ctx
	}
	details := map[string]string{"question": a.GetQuestion()}
	if g := a.GetGrant(); g != nil {
		return b.Audit(ctx, "budget.grant", root, details)
	}
	details["decision"] = a.GetApproval().GetDecision().String()
	return b.Audit(ctx, "approval.answer", root, details)
}

// takes checks whether the agent of a task accepts the media types of a message. If the agent is
// no longer served, it accepts all.
func (b *inbox) takes(ctx context.Context, of runs.Standing, s *send) error {
	a, err := b.Agents.Get(of.Agent)
	if err != nil || b.agents.accountOf(of.Agent) != of.Account { // its id may belong to another account now
		return nil //nolint:nilerr // the run goes on with the revision it began with
	}
	return checkMedia(infoOf(ctx, a), s.message, s.accepted.GetAcceptedOutputModes())
}

// inbound returns the message as an input for the inbox: an answer if the task has an open
// question, and otherwise a message.
func (b *inbox) inbound(f *project.Fold, who identity.Caller, s *send) (*teamv1.Inbound, error) {
	m := f.Placed(s.message)
	in := &teamv1.Inbound{Scope: f.Scope(), Key: s.key}
	q, err := question(f, s.question)
	switch {
	case s.answer && len(f.Questions()) == 0:
		return nil, a2aerror.UnsupportedOperation("task %q has no open question; send the text as a message instead", f.ID())
	case err != nil:
		return nil, err
	case q != nil && len(q.GetRoles()) > 0 && !who.Has(q.GetRoles()):
		return nil, mayNot(q)
	case q != nil && q.GetApproval() == nil && !chosen(q, s.message):
		return nil, a2aerror.Invalid(agent.Violation{Field: "message.parts", Description: "is not a valid answer to the question; send one of " + strings.Join(OptionsOf(q.GetMessage()), ", ")})
	case q != nil:
		a := &teamv1.Answered{Question: q.GetQuestion(), Message: m, By: who.Owner()}
		if err := b.read(q, s.message, a); err != nil {
			return nil, a2aerror.Invalid(agent.Violation{Field: "message.parts", Description: err.Error()})
		}
		_, in.Scope = agent.SplitTask(q.GetDelegationId())
		in.Kind = &teamv1.Inbound_Answered{Answered: a}
	default:
		in.Kind = &teamv1.Inbound_Received{Received: &teamv1.Received{Message: m}}
	}
	return in, nil
}

// read sets what the message m says in answer to a question for more budget, for an approval, or of a
// tool. The error says what was expected.
func (b *inbox) read(q *teamv1.Question, m *a2av1.Message, a *teamv1.Answered) (err error) {
	switch {
	case q.GetBudget() != nil:
		a.Grant, err = forms.ReadGrant(q.GetBudget(), m)
	case q.GetApproval() != nil:
		a.Approval, err = forms.ReadApproval(q.GetApproval(), m)
		rules, plan := q.GetApproval().GetPlan(), a.GetApproval().GetArguments()
		if err == nil && rules != nil && plan != "" && b.CheckPlan != nil {
			if err = b.CheckPlan(rules, plan); err != nil {
				err = fmt.Errorf("is not a valid plan: %w", err)
			}
		}
	case q.GetToolQuestion() != nil:
		a.ToolAnswer, err = forms.ReadToolAnswer(q.GetToolQuestion(), m)
	}
	return err
}

// OptionsOf returns the answers that the message of a question permits. An empty list permits any text.
func OptionsOf(question *a2av1.Message) []string {
	var list []string
	for _, p := range question.GetParts() {
		for _, v := range p.GetData().GetStructValue().GetFields()["options"].GetListValue().GetValues() {
			list = append(list, v.GetStringValue())
		}
	}
	return list
}

// chosen reports whether m answers q with one of its options. If q has no options or is not a
// closed question, that is always true.
func chosen(q *teamv1.Question, m *a2av1.Message) bool {
	list := OptionsOf(q.GetMessage())
	closed := q.GetKind() == teamv1.Asked_KIND_APPROVAL || q.GetKind() == teamv1.Asked_KIND_OUTCOME
	return !closed || len(list) == 0 || slices.Contains(list, strings.TrimSpace(agent.Text(m)))
}

// question returns the open question that a message answers: the one with the id named, the one
// of the delegation with that id or, if named is empty, the only one. It returns nil if the task
// has no open question and none is named. Only questions of the task itself and of scopes below
// it count.
func question(f *project.Fold, named string) (*teamv1.Question, error) {
	fit := f.Named(named)
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0 && named == "":
		return nil, nil
	}
	ids := make([]string, len(f.Questions()))
	for i, q := range f.Questions() {
		ids[i] = q.GetQuestion() + " (" + q.GetPath() + ": " + agent.Text(q.GetMessage()) + ")"
	}
	problem := "is required, because several questions are open: "
	if len(fit) == 0 {
		problem = "is not an open question; open questions: "
	}
	return nil, a2aerror.Invalid(agent.Violation{Field: `metadata["` + TeamRunURI + `"].question`, Description: problem + strings.Join(ids, ", ")})
}

// leave adds an input to the inbox of a task. If the message brings a push configuration, that is
// stored in the same transaction, so that no event is missed. digest is that of the message.
// again says that the message was sent before; its push configuration is then ignored.
func (b *inbox) leave(ctx context.Context, to addressee, s *send, in *teamv1.Inbound, digest []byte, again bool) (n int64, err error) {
	root, _ := agent.SplitTask(to.ID)
	var push *runs.Push
	if s.push != nil && !again {
		conf := proto.CloneOf(s.push)
		if conf.GetId() == "" {
			conf.Id = uuid.NewSHA1(uuid.NameSpaceURL, []byte(to.ID+"\x00"+s.message.GetMessageId())).String()
		}
		p, err := b.hooks.of(ctx, to.Key, to.fold.Last(), conf, inlineField)
		if err != nil {
			return 0, err
		}
		push = &p
	}
	if n, _, err = b.Store.Put(b.audited(ctx, root, in), runs.Key{Owner: to.Owner, ID: root}, in, digest, push); err != nil {
		return 0, runs.StoreError(to.ID, err)
	}
	return n, nil
}

// maxRequestID is the maximum number of bytes of the id of a request.
const maxRequestID = 256

// Retry begins a task that does the work of an ended root task of the caller again, and keeps the results of the steps
// that have succeeded; see journal.Keep. The new task has the message, the conversation and the pins of the old one, and
// its limits. It begins like that of a message: the caller must be allowed to use the agent, and nothing of it may be
// halted. Errors: INVALID_REQUEST, TASK_NOT_FOUND, UNSUPPORTED_OPERATION for a task that cannot be retried,
// AGENT_NOT_FOUND, HALTED, MESSAGE_ID_REUSED, and that the account may not begin another task.
func (h *Handler) Retry(ctx context.Context, req *teamv1.RetryTaskRequest) (*teamv1.RetryTaskResponse, error) {
	id := req.GetTaskId()
	if len(req.GetRequestId()) > maxRequestID {
		return nil, a2aerror.Invalid(agent.Violation{Field: "requestId", Description: "must have at most 256 bytes"})
	}
	k, err := keyOf(ctx, "", id)
	if err != nil {
		return nil, err
	}
	if _, scope := agent.SplitTask(id); scope != "" {
		return nil, a2aerror.Invalid(agent.Violation{Field: "taskId", Description: "is that of a step; retry its root task"})
	}
	st, err := h.tasks.standing(ctx, "", k)
	if err != nil {
		return nil, err
	}
	if !taskstate.Final(st.State) {
		return nil, a2aerror.UnsupportedOperation("task %q has not ended; cancel it first", a2aerror.Clip(id))
	}
	key := ""
	if req.GetRequestId() != "" {
		key = "retry/" + id + "/" + req.GetRequestId()
	}
	if err := h.inbox.mayRetry(ctx, st, key); err != nil { // before the journal is read, which may be large
		return nil, err
	}
	var events []*teamv1.Event
	for ev, err := range h.feeds.Recorded(ctx, k.Owner, k.ID) {
		switch {
		case err != nil:
			return nil, err
		case ev.GetDelta() == nil:
			events = append(events, ev)
		}
	}
	if err := retryable(id, st, events[0].GetAccepted()); err != nil {
		return nil, err
	}
	kept, err := journal.Keep(events)
	if err != nil {
		return nil, a2aerror.UnsupportedOperation("task %q cannot be retried: %v; send its message again", a2aerror.Clip(id), err)
	}
	return h.inbox.retry(ctx, k, req, key, events[0].GetAccepted(), kept)
}

// retryable returns UNSUPPORTED_OPERATION if a task that has ended cannot be retried.
func retryable(id string, st runs.Standing, acc *teamv1.Accepted) error {
	var why string
	switch {
	case st.State == a2av1.TaskState_TASK_STATE_COMPLETED:
		why = "has completed; to run it once more, send its message again"
	case acc.GetCollaboration() != nil:
		why = "is a collaboration; start it again"
	case acc.GetDetached() != nil || len(acc.GetBudgets()) > 0:
		why = "was begun by another task, whose budget it shares; retry that one"
	default:
		return nil
	}
	return a2aerror.UnsupportedOperation("task %q %s", a2aerror.Clip(id), why)
}

// mayRetry returns nil if the caller may begin a task of the agent of another one, which is still the same. key is that of the
// new task's message.
func (b *inbox) mayRetry(ctx context.Context, old runs.Standing, key string) error {
	id := old.Agent
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return err
	}
	if _, err := b.agents.find(ctx, id); err != nil {
		return err
	}
	now, err := b.agents.pins(ctx, id)
	if err != nil {
		return runs.StoreError(id, err)
	}
	if now.GetAccounts()[id] != old.Account {
		return b.agents.notFound(ctx, id)
	}
	return b.mayBegin(ctx, who, old.Account, id, key)
}

// retry begins the task that retries another one, of which it keeps something.
func (b *inbox) retry(ctx context.Context, old runs.Key, req *teamv1.RetryTaskRequest, key string, before *teamv1.Accepted, kept journal.Kept) (*teamv1.RetryTaskResponse, error) {
	acc := proto.CloneOf(before)
	acc.TaskId, acc.Retries, acc.Deadline, acc.MayReplyDirectly, acc.Trace = newID(), old.ID, nil, false, traceOf(ctx)
	n := runs.New{Owner: old.Owner, Accepted: acc, MessageID: key, Kept: kept.Events}
	if key != "" {
		var err error
		if n.Digest, err = digestOf(old.ID, req); err != nil {
			return nil, err
		}
	}
	made, err := b.create(ctx, n, false)
	if err != nil {
		return nil, err
	}
	resp := &teamv1.RetryTaskResponse{TaskId: made.key.ID}
	for _, scope := range kept.Steps {
		resp.Kept = append(resp.Kept, agent.ChildTask(old.ID, scope))
	}
	for _, scope := range kept.Repeated {
		resp.Repeated = append(resp.Repeated, agent.ChildTask(old.ID, scope))
	}
	return resp, nil
}
