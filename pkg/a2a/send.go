package a2a

import (
	"context"
	"crypto/sha256"
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

// sent is a message on record: the task it began or was left for.
type sent struct {
	key Key
	// inbound is the inbox row of a follow-up; 0 for a task that began with the message.
	inbound int64
	// existed: the message had been sent before, or goes to a task that was there.
	existed bool
}

// send is a message on its way to a task.
type send struct {
	tenant   string
	message  *a2av1.Message
	metadata *structpb.Struct
	key      string // makes the message unique for its owner and agent; empty: a repeat is a new message
	question string // of the task, that is answered
	answer   bool   // it answers a question, or is refused
	accepted *teamv1.Accepted
	push     *a2av1.TaskPushNotificationConfig // nil: nobody is told
	// concurrent is how many collaborations of the agent may run at once; 0: it is none.
	concurrent int
	entry      string // catalog entry that defines the agent; empty: it is not in a catalog
}

// SendMessage gives an agent a message. It waits until the task has ended or
// asks for something, unless return_immediately is set; the caller going away
// does not end the task. An agent that may reply directly can answer with a
// message. Errors: INVALID_REQUEST, AGENT_NOT_FOUND, TASK_NOT_FOUND,
// UNSUPPORTED_OPERATION for a task that has ended, MESSAGE_ID_REUSED,
// QUESTION_ANSWERED for a second answer to a question,
// PERMISSION_DENIED for the answer to a question to roles that the caller has not,
// WAIT_TIMEOUT when ctx's deadline comes first.
func (h *Handler) SendMessage(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	s, err := h.accept(ctx, req)
	if err != nil {
		return nil, err
	}
	conf := req.GetConfiguration()
	f, err := h.follow(ctx, s, conf.GetReturnImmediately())
	if err != nil {
		return nil, err
	}
	if f.Ended().GetDirect() && !f.Visible() {
		return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Message{Message: f.Direct()}}, nil
	}
	return &a2av1.SendMessageResponse{Payload: &a2av1.SendMessageResponse_Task{Task: project.CutHistory(f.Snapshot(details(ctx)), historyOf(conf))}}, nil
}

func historyOf(conf *a2av1.SendMessageConfiguration) *int32 {
	if conf == nil {
		return nil
	}
	return conf.HistoryLength
}

// accept checks a message and puts it on record.
func (h *Handler) accept(ctx context.Context, req *a2av1.SendMessageRequest) (sent, error) {
	who, s, err := h.checked(ctx, req)
	if err != nil {
		return sent{}, err
	}
	return h.put(ctx, who, s)
}

// checked returns a message that is well formed, and who sends it.
func (h *Handler) checked(ctx context.Context, req *a2av1.SendMessageRequest) (Caller, *send, error) {
	var c checker
	c.send(req)
	push := req.GetConfiguration().GetTaskPushNotificationConfig()
	if push != nil && h.c.Pushes != nil {
		c.inlinePush(req, push)
	}
	if err := c.Err(); err != nil {
		return Caller{}, nil, err
	}
	if push != nil && h.c.Pushes == nil {
		return Caller{}, nil, PushNotificationNotSupported()
	}
	who, err := caller(ctx)
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
	if h.c.ForgetMessageIDs {
		s.key = ""
	}
	if run.GetDelegationId() != "" && s.question == "" {
		s.question = run.GetDelegationId()
	}
	s.accepted.MayReplyDirectly = !req.GetConfiguration().GetReturnImmediately() && push == nil
	return who, s, nil
}

// put begins a task with the message, or leaves it for the task it names.
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
			"the message has %d bytes; at most %d are taken", n, maxMessage).With("max_bytes", strconv.Itoa(maxMessage))
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
	acc.Branch = acc.GetBranch() || len(acc.GetHistory()) == 0 && len(references) > 0 // behind what it remembers
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
	root, existed, err := h.c.Store.Create(ctx, New{
		Owner: acc.Owner, Accepted: acc, MessageID: s.key, Digest: digest, Push: push, PushVersion: pushVersion(ctx), Collaborations: s.concurrent, Entry: s.entry,
	})
	h.c.Wake(root) // also after an error, and of a task that was there: it may be on record with nobody told
	if err != nil {
		return sent{}, storeError(acc.GetTaskId(), err)
	}
	return sent{key: Key{acc.Owner, root}, existed: existed}, nil
}

// infoOf is what an agent says of itself; one that cannot say it now says nothing.
// A team is not asked, since it would ask its members: its answer is always a task.
func infoOf(ctx context.Context, a agent.Agent) *teamv1.AgentInfo {
	if t, ok := a.(agent.Moded); ok {
		in, out := t.Modes()
		return &teamv1.AgentInfo{InputModes: in, OutputModes: out}
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

// digestOf returns the digest that distinguishes a repetition from another message with
// the same id. The binding is not part of it. INVALID_REQUEST for a message that cannot
// be encoded.
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

// followUp leaves a message for a task: the answer to a question, or something
// its agent sees at its next decision.
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
		return sent{}, Invalid(Violation{Field: "message.contextId", Description: "is not the context of the task; leave it out, or send " + f.ContextID()})
	}
	if err := h.c.takes(ctx, f.Agent(), s); err != nil {
		return sent{}, err
	}
	if _, err := referenced(ctx, h.c.Store, who.Owner(), s.message, true); err != nil { // its agent is at work: what they were about is not shown
		return sent{}, err
	}
	known, err := h.c.Store.Sent(ctx, who.Owner(), f.Agent(), s.key)
	again := err == nil && known == root && s.key != "" // then the answer is the earlier one
	if !again {
		if first := f.FirstAnswer(s.question); first != nil && s.question != "" {
			return sent{}, questionAnswered(first)
		}
		if f.Terminal() {
			return sent{}, storeError(id, ErrTerminal)
		}
	}
	in, err := inbound(f, who, s)
	if again {
		in = &teamv1.Inbound{Scope: scope, Key: s.key, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: s.message}}}
	} else if err != nil {
		return sent{}, err
	} else if in.GetReceived() != nil && h.c.RefuseWhileWorking {
		return sent{}, UnsupportedOperation("task %q is at work, and this server takes no messages meanwhile; wait until it asks for something or has ended", id)
	}
	n, err := h.leave(ctx, f, who, s, in, digest, again)
	h.c.Wake(root) // also after an error: it may be on record
	if err != nil {
		return sent{}, err
	}
	return sent{key: Key{who.Owner(), id}, inbound: n, existed: true}, nil
}

// takes checks a follow-up as the agent of its task would have it, where that is
// still served.
func (c *Config) takes(ctx context.Context, id string, s *send) error {
	a, err := c.Agents.Get(id)
	if err != nil {
		return nil //nolint:nilerr // the run goes on with the revision it began with
	}
	return checkMedia(infoOf(ctx, a), s.message, s.accepted.GetAcceptedOutputModes())
}

// inbound is a follow-up as the inbox takes it: an answer when something was
// asked, else a message.
func inbound(f *Fold, who Caller, s *send) (*teamv1.Inbound, error) {
	m := f.Placed(s.message)
	in := &teamv1.Inbound{Scope: f.Scope(), Key: s.key}
	q, err := question(f, s.question)
	switch {
	case s.answer && len(f.Questions()) == 0:
		return nil, UnsupportedOperation("task %q asks nothing; what its agent shall know besides is a message", f.ID())
	case err != nil:
		return nil, err
	case q != nil && len(q.GetRoles()) > 0 && !who.Has(q.GetRoles()):
		return nil, mayNot(q)
	case q != nil && !chosen(q, s.message):
		return nil, Invalid(Violation{Field: "message.parts", Description: "is no answer to the question; send one of " + strings.Join(options(q), ", ")})
	case q != nil:
		_, in.Scope = agent.SplitTask(q.GetDelegationId())
		in.Kind = &teamv1.Inbound_Answered{Answered: &teamv1.Answered{Question: q.GetQuestion(), Message: m, By: who.Owner()}}
	default:
		in.Kind = &teamv1.Inbound_Received{Received: &teamv1.Received{Message: m}}
	}
	return in, nil
}

// options are the answers that a question leaves open; none is free text.
func options(q *teamv1.Question) []string {
	var list []string
	for _, p := range q.GetMessage().GetParts() {
		for _, v := range p.GetData().GetStructValue().GetFields()["options"].GetListValue().GetValues() {
			list = append(list, v.GetStringValue())
		}
	}
	return list
}

// chosen reports whether a message answers a question with one of its options,
// where it has some.
func chosen(q *teamv1.Question, m *a2av1.Message) bool {
	list := options(q)
	closed := q.GetKind() == teamv1.Asked_KIND_APPROVAL || q.GetKind() == teamv1.Asked_KIND_OUTCOME
	return !closed || len(list) == 0 || slices.Contains(list, strings.TrimSpace(agent.Text(m)))
}

// question finds the open question that a message answers: the one it names, by
// its id or its delegation's, or the only one. A child task knows its own only.
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
	problem := "is needed, since several questions are open: "
	if len(fit) == 0 {
		problem = "names no open question; open are: "
	}
	return nil, Invalid(Violation{Field: `metadata["` + TeamRunURI + `"].question`, Description: problem + strings.Join(ids, ", ")})
}

// inlinePush is the configuration of a message that begins a task.
func inlinePush(s *send) (*a2av1.TaskPushNotificationConfig, error) {
	if s.push == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	conf := proto.CloneOf(s.push)
	if conf.GetId() == "" {
		conf.Id = newID()
	}
	conf.TaskId = s.accepted.GetTaskId()
	return conf, unmask(conf, nil, inlineField)
}

// leave puts a message for a task on record, with the configuration that comes with
// it, so that nothing that it brings about is missed. The digest is that of the message.
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
	if n, _, err = h.c.Store.Put(ctx, Key{who.Owner(), root}, in, digest, push); err != nil {
		return 0, storeError(f.ID(), err)
	}
	return n, nil
}
