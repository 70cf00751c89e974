package a2a

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// sent is a message that has been recorded, and the task that it belongs to.
type sent struct {
	key Key
	// inbound is the number of the message in the inbox of a task that existed before, or 0 if
	// the message created the task.
	inbound int64
	// existed says that the message was sent before, or that the task existed before.
	existed bool
	// reader reads the task for a sender who waits. If it is nil, follow creates one.
	reader *reader
}

// send is a validated message that has not been recorded yet.
type send struct {
	tenant   string
	message  *a2av1.Message
	metadata *structpb.Struct
	key      string // identifies the message for its owner and agent; if empty, repeats are new messages
	question string // the question of the task that the message answers; may be empty
	answer   bool   // reject the message if it does not answer a question
	accepted *teamv1.Accepted
	push     *a2av1.TaskPushNotificationConfig // nil for no push notifications
	// concurrent is the maximum number of running collaborations of the agent; 0 if the message
	// does not start a collaboration.
	concurrent int
	entry      string // catalog entry that defines the agent; empty if it is not in a catalog
	waits      bool   // the sender waits for the task; follow must be called
}

// SendMessage sends a message to an agent; see A2A 1.0, section 3.1.1. It waits until the task
// has ended or waits for input or authentication, unless return_immediately is set. The task
// continues if the client disconnects. If the agent may reply directly, the response may be a
// message instead of a task.
//
// Errors: INVALID_REQUEST, AGENT_NOT_FOUND, TASK_NOT_FOUND, UNSUPPORTED_OPERATION if the task has
// ended, MESSAGE_ID_REUSED, QUESTION_ANSWERED for a second answer to a question,
// PERMISSION_DENIED for the answer to a question that is addressed to roles the caller does not
// have, HALTED if the agent, the account or the server is halted, and WAIT_TIMEOUT if the deadline of ctx passes before.
func (h *Handler) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	conf := req.GetConfiguration()
	s, err := h.accept(ctx, req, !conf.GetReturnImmediately())
	if err != nil {
		return nil, err
	}
	f, err := h.follow(ctx, s, conf.GetReturnImmediately())
	if err != nil {
		return nil, err
	}
	if f.Ended().GetDirect() && !f.Visible() {
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: f.Direct()}}, nil
	}
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: project.CutHistory(f.Snapshot(details(ctx)), historyOf(conf))}}, nil
}

// historyOf returns the history length that the client asked for, or nil if it did not.
func historyOf(conf *a2av1.SendMessageConfiguration) *int32 {
	if conf == nil {
		return nil
	}
	return conf.HistoryLength
}

// accept validates a message and records it. If the sender waits, the caller must call follow.
func (h *Handler) accept(ctx context.Context, req *a2av1.SendMessageRequest, waits bool) (sent, error) {
	who, s, err := h.checked(ctx, req)
	if err != nil {
		return sent{}, err
	}
	s.waits = waits
	return h.put(ctx, who, s)
}

// checked validates a message and returns it together with its sender.
func (h *Handler) checked(ctx context.Context, req *a2av1.SendMessageRequest) (Caller, *send, error) {
	var c checker
	c.send(req)
	now := h.now()
	push, supported := req.GetConfiguration().GetTaskPushNotificationConfig(), h.pushes(now)
	if push != nil && supported {
		c.inlinePush(req, push, now.CheckWebhook)
	}
	if err := c.Err(); err != nil {
		return Caller{}, nil, err
	}
	if push != nil && !supported {
		return Caller{}, nil, PushNotificationNotSupported()
	}
	who, err := Authenticated(ctx)
	if err != nil {
		return who, nil, err
	}
	run := RunOf(req.GetMetadata())
	if run == nil {
		run = RunOf(req.GetMessage().GetMetadata())
	}
	s := &send{
		tenant: req.GetTenant(), message: req.GetMessage(), metadata: req.GetMetadata(), key: req.GetMessage().GetMessageId(),
		question: run.GetQuestion(), push: push,
		accepted: &teamv1.Accepted{
			Metadata: req.GetMetadata(), Extensions: ExtensionsOf(ctx), Trace: traceOf(ctx), AcceptedOutputModes: req.GetConfiguration().GetAcceptedOutputModes(),
			Depth: max(run.GetDepth(), int32(min(agent.Depth(ctx), 1<<20))), Deadline: run.GetDeadline(), Limits: run.GetEnvelope(), //nolint:gosec // bounded
			Transfers: transfersOf(req.GetMessage()),
		},
	}
	if h.forgets() {
		s.key = ""
	}
	if run.GetDelegationId() != "" && s.question == "" {
		s.question = run.GetDelegationId()
	}
	s.accepted.MayReplyDirectly = !req.GetConfiguration().GetReturnImmediately() && push == nil
	return who, s, nil
}

// put creates a task with the message, or adds the message to the inbox of the task that it
// names.
func (h *Handler) put(ctx context.Context, who Caller, s *send) (sent, error) {
	n := proto.Size(s.message) + proto.Size(s.metadata) + proto.Size(s.accepted.GetCollaboration())
	for _, m := range s.accepted.GetHistory() {
		n += proto.Size(m)
	}
	for _, mode := range s.accepted.GetAcceptedOutputModes() {
		n += len(mode)
	}
	if n > maxMessage {
		return sent{}, agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"the message has %d bytes; at most %d are allowed", n, maxMessage).With("max_bytes", strconv.Itoa(maxMessage))
	}
	if s.message.GetTaskId() != "" {
		return h.followUp(ctx, who, s)
	}
	id, a, err := h.resolve(ctx, s.tenant)
	if err != nil {
		return sent{}, err
	}
	references, err := referenced(ctx, h.c.Store, who.Owner(), s.message, agent.Remembers(a))
	if err != nil {
		return sent{}, err
	}
	acc := s.accepted
	// The referenced tasks follow what the agent remembers.
	acc.Branch = acc.GetBranch() || len(acc.GetHistory()) == 0 && len(references) > 0
	acc.History = append(acc.GetHistory(), references...)
	acc.TaskId, acc.Agent, acc.Owner, acc.Seed = newID(), id, who.Owner(), rand.Int64() //nolint:gosec // jitter, not a secret
	if acc.Pins, err = h.c.pins(ctx, id); err != nil {
		return sent{}, storeError(id, err)
	}
	info := infoOf(ctx, a)
	if err := checkMedia(info, s.message, acc.GetAcceptedOutputModes()); err != nil {
		return sent{}, err
	}
	acc.MayReplyDirectly = acc.MayReplyDirectly && info.GetMayReplyDirectly()
	digest, err := digestOf(id, s.message)
	if s.concurrent > 0 {
		digest, err = digestOf(id, s.message, acc.GetCollaboration(), acc.GetLimits())
	}
	if err != nil {
		return sent{}, err
	}
	acc.Message = proto.CloneOf(s.message)
	fresh := acc.Message.GetContextId() == ""
	if fresh {
		acc.Message.ContextId = newID()
	}
	acc.Conversation = conversation(ctx, h.c.Conversations, a, Thread{acc.Owner, acc.Message.GetContextId()}, fresh)
	push, err := inlinePush(s)
	if err != nil {
		return sent{}, err
	}
	if err := h.mayBegin(ctx, who, acc.GetPins().GetAccounts()[id], id, s.key); err != nil {
		return sent{}, err
	}
	most := 0
	if s.concurrent > 0 && h.c.MaxCollaborations != nil {
		most = h.c.MaxCollaborations(who.Account)
	}
	var r *reader
	if s.waits { // from before the task exists, so that no wake-up is missed
		r = h.journals.read(Key{acc.Owner, acc.GetTaskId()}, 0)
		r.early = r.wake != nil
		defer func() {
			if r != nil { // it was not handed to the caller; also after a panic of the store
				r.stop()
			}
		}()
	}
	root, existed, err := h.c.Store.Create(ctx, New{
		AccountCollaborations: most,

		Owner: acc.Owner, Accepted: acc, MessageID: s.key, Digest: digest, Push: push, PushVersion: pushVersion(ctx), Collaborations: s.concurrent, Entry: s.entry,
	})
	// Also after an error and for an existing task: it may have been recorded without a wake-up.
	h.c.Wake(root)
	if err != nil {
		return sent{}, storeError(acc.GetTaskId(), err)
	}
	to := sent{key: Key{acc.Owner, root}, existed: existed}
	if r != nil && r.early && !existed {
		to.reader, r = r, nil
	}
	return to, nil
}

// mayBegin returns the error for a message that would begin a task: HALTED, or that the account may not
// begin another one. made is the account that has made the agent by the API, if any. A message that was sent before gets
// the answer of the first one.
func (h *Handler) mayBegin(ctx context.Context, who Caller, made, id, key string) error {
	err := h.c.Halts.Refusal(who.Owner(), made, id)
	if err == nil && h.c.Admit != nil {
		err = h.c.Admit(ctx, who.Owner())
	}
	if err == nil {
		return nil
	}
	if key != "" {
		switch _, serr := h.c.Store.Sent(ctx, who.Owner(), agent.KeyOf(made, id), key); {
		case serr == nil:
			return nil
		case !errors.Is(serr, ErrNotFound):
			return storeError("", serr)
		}
	}
	var refusal *agent.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	return storeError("", err)
}

// infoOf returns the description of an agent, or nil if it is not available. A team is only asked
// for its id and media types, because its Info would call its members; its answer is always a task.
func infoOf(ctx context.Context, a agent.Agent) *teamv1.AgentInfo {
	if t, ok := a.(agent.Moded); ok {
		return t.Modes()
	}
	if _, ok := a.(agent.Composite); ok {
		return nil
	}
	info, err := a.Info(ctx)
	if err != nil {
		return nil
	}
	return info
}

// digestOf returns a digest of the content of a message. It distinguishes a repeated message from
// a different one with the same id, and does not depend on the binding. It returns
// INVALID_REQUEST if the message cannot be encoded.
func digestOf(id string, content ...proto.Message) ([]byte, error) {
	all := []byte(id + "\x00")
	for _, m := range content {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return nil, Invalid(Violation{Field: "message", Description: "cannot be encoded; every text in it must be UTF-8"})
		}
		all = append(all, b...)
	}
	sum := sha256.Sum256(all)
	return sum[:], nil
}

// followUp adds a message to the inbox of an existing task: the answer to a question, or
// information that the agent reads before its next decision.
func (h *Handler) followUp(ctx context.Context, who Caller, s *send) (sent, error) {
	id := s.message.GetTaskId()
	root, scope := agent.SplitTask(id)
	digest, err := digestOf(id, s.message)
	if err != nil {
		return sent{}, err
	}
	f, err := h.journals.fold(ctx, Key{who.Owner(), root}, scope)
	if err != nil {
		return sent{}, notFoundAs(err, id)
	}
	if !f.Exists() || !f.Serves(s.tenant) {
		return sent{}, TaskNotFound(id)
	}
	if c := s.message.GetContextId(); c != "" && c != f.ContextID() {
		return sent{}, Invalid(Violation{Field: "message.contextId", Description: "is not the context of the task; omit it, or send " + f.ContextID()})
	}
	if err := h.takes(ctx, f, s); err != nil {
		return sent{}, err
	}
	// References are only validated: an agent that is working is not shown the referenced tasks.
	if _, err := referenced(ctx, h.c.Store, who.Owner(), s.message, true); err != nil {
		return sent{}, err
	}
	known, err := h.c.Store.Sent(ctx, who.Owner(), agent.KeyOf(f.Account(), f.Agent()), s.key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return sent{}, storeError(id, err)
	}
	again := err == nil && known == root && s.key != "" // the response is that to the earlier message
	if !again {
		if first := answeredBefore(f, s.question); first != nil {
			return sent{}, questionAnswered(first)
		}
		if f.Terminal() {
			return sent{}, storeError(id, ErrTerminal)
		}
		if err := h.c.Halts.Refusal(who.Owner(), f.Account(), f.Agent()); err != nil {
			return sent{}, err
		}
	}
	in, err := h.inbound(f, who, s)
	if again {
		in = &teamv1.Inbound{Scope: scope, Key: s.key, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: s.message}}}
	} else if err != nil {
		return sent{}, err
	} else if in.GetReceived() != nil && h.now().GetProtocol().GetRefuseWhileWorking() {
		return sent{}, UnsupportedOperation("task %q is working, and this server accepts no messages for working tasks; wait until it asks for input or ends", id)
	}
	if err := h.admitGrant(ctx, who.Owner(), in); err != nil {
		return sent{}, err
	}
	n, err := h.leave(ctx, f, who, s, in, digest, again)
	h.c.Wake(root) // also after an error: the input may have been recorded
	if err != nil {
		return sent{}, err
	}
	return sent{key: Key{who.Owner(), id}, inbound: n, existed: true}, nil
}

// answeredBefore returns the recorded answer to the question that a message names. If it names none, it may be a second
// answer as long as work goes on with the first one, and answeredBefore returns that. It returns nil without one.
func answeredBefore(f *Fold, question string) *teamv1.Answered {
	if question == "" {
		return f.InUse()
	}
	return f.FirstAnswer(question)
}

// admitGrant returns an error if an input grants a task of an owner more than its account may spend.
func (h *Handler) admitGrant(ctx context.Context, owner string, in *teamv1.Inbound) error {
	grant := in.GetAnswered().GetGrant()
	if grant == nil || h.c.AdmitGrant == nil {
		return nil
	}
	err := h.c.AdmitGrant(ctx, AccountOf(owner), agent.CostOf(grant))
	if err == nil || agent.AsError(err) != nil {
		return err
	}
	return storeError("", err)
}

// audited returns a context with which the store records an answer in the audit log, if it grants budget
// or decides an approval.
func (c *Config) audited(ctx context.Context, root string, in *teamv1.Inbound) context.Context {
	a := in.GetAnswered()
	if c.Audit == nil || a.GetGrant() == nil && a.GetApproval() == nil {
		return ctx
	}
	details := map[string]string{"question": a.GetQuestion()}
	if g := a.GetGrant(); g != nil {
		return c.Audit(ctx, "budget.grant", root, details)
	}
	details["decision"] = a.GetApproval().GetDecision().String()
	return c.Audit(ctx, "approval.answer", root, details)
}

// takes checks whether the agent of a task accepts the media types of a message. If the agent is
// no longer served, it accepts all.
func (h *Handler) takes(ctx context.Context, f *Fold, s *send) error {
	a, err := h.c.Agents.Get(f.Agent())
	if err != nil || h.accountOf(f.Agent()) != f.Account() { // its id may belong to another account now
		return nil //nolint:nilerr // the run goes on with the revision it began with
	}
	return checkMedia(infoOf(ctx, a), s.message, s.accepted.GetAcceptedOutputModes())
}

// inbound returns the message as an input for the inbox: an answer if the task has an open
// question, and otherwise a message.
func (h *Handler) inbound(f *Fold, who Caller, s *send) (*teamv1.Inbound, error) {
	m := f.Placed(s.message)
	in := &teamv1.Inbound{Scope: f.Scope(), Key: s.key}
	q, err := question(f, s.question)
	switch {
	case s.answer && len(f.Questions()) == 0:
		return nil, UnsupportedOperation("task %q has no open question; send the text as a message instead", f.ID())
	case err != nil:
		return nil, err
	case q != nil && len(q.GetRoles()) > 0 && !who.Has(q.GetRoles()):
		return nil, mayNot(q)
	case q != nil && q.GetApproval() == nil && !chosen(q, s.message):
		return nil, Invalid(Violation{Field: "message.parts", Description: "is not a valid answer to the question; send one of " + strings.Join(options(q), ", ")})
	case q != nil:
		a := &teamv1.Answered{Question: q.GetQuestion(), Message: m, By: who.Owner()}
		if err := h.read(q, s.message, a); err != nil {
			return nil, Invalid(Violation{Field: "message.parts", Description: err.Error()})
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
func (h *Handler) read(q *teamv1.Question, m *a2av1.Message, a *teamv1.Answered) (err error) {
	switch {
	case q.GetBudget() != nil:
		a.Grant, err = agent.ReadGrant(q.GetBudget(), m)
	case q.GetApproval() != nil:
		a.Approval, err = agent.ReadApproval(q.GetApproval(), m)
		rules, plan := q.GetApproval().GetPlan(), a.GetApproval().GetArguments()
		if err == nil && rules != nil && plan != "" && h.c.CheckPlan != nil {
			if err = h.c.CheckPlan(rules, plan); err != nil {
				err = fmt.Errorf("is not a valid plan: %w", err)
			}
		}
	case q.GetToolQuestion() != nil:
		a.ToolAnswer, err = agent.ReadToolAnswer(q.GetToolQuestion(), m)
	}
	return err
}

// options returns the permitted answers to a question. An empty list permits any text.
func options(q *teamv1.Question) []string {
	var list []string
	for _, p := range q.GetMessage().GetParts() {
		for _, v := range p.GetData().GetStructValue().GetFields()["options"].GetListValue().GetValues() {
			list = append(list, v.GetStringValue())
		}
	}
	return list
}

// chosen reports whether m answers q with one of its options. If q has no options or is not a
// closed question, that is always true.
func chosen(q *teamv1.Question, m *a2av1.Message) bool {
	list := options(q)
	closed := q.GetKind() == teamv1.Asked_KIND_APPROVAL || q.GetKind() == teamv1.Asked_KIND_OUTCOME
	return !closed || len(list) == 0 || slices.Contains(list, strings.TrimSpace(agent.Text(m)))
}

// question returns the open question that a message answers: the one with the id named, the one
// of the delegation with that id or, if named is empty, the only one. It returns nil if the task
// has no open question and none is named. Only questions of the task itself and of scopes below
// it count.
func question(f *Fold, named string) (*teamv1.Question, error) {
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
	return nil, Invalid(Violation{Field: `metadata["` + TeamRunURI + `"].question`, Description: problem + strings.Join(ids, ", ")})
}

// inlinePush returns the push configuration that a message brings for the task it creates, or
// nil.
func inlinePush(s *send) (*a2av1.TaskPushNotificationConfig, error) {
	if s.push == nil {
		return nil, nil //nolint:nilnil // the message brings no configuration
	}
	conf := proto.CloneOf(s.push)
	if conf.GetId() == "" {
		conf.Id = newID()
	}
	conf.TaskId = s.accepted.GetTaskId()
	return conf, unmask(conf, nil, inlineField)
}

// leave adds an input to the inbox of a task. If the message brings a push configuration, that is
// stored in the same transaction, so that no event is missed. digest is that of the message.
// again says that the message was sent before; its push configuration is then ignored.
func (h *Handler) leave(ctx context.Context, f *Fold, who Caller, s *send, in *teamv1.Inbound, digest []byte, again bool) (n int64, err error) {
	root, _ := agent.SplitTask(f.ID())
	var push *Push
	if s.push != nil && !again {
		conf := proto.CloneOf(s.push)
		if conf.GetId() == "" {
			conf.Id = uuid.NewSHA1(uuid.NameSpaceURL, []byte(f.ID()+"\x00"+s.message.GetMessageId())).String()
		}
		p, err := h.pushFor(ctx, f, who, conf, inlineField)
		if err != nil {
			return 0, err
		}
		push = &p
	}
	if n, _, err = h.c.Store.Put(h.c.audited(ctx, root, in), Key{who.Owner(), root}, in, digest, push); err != nil {
		return 0, storeError(f.ID(), err)
	}
	return n, nil
}
