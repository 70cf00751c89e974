package a2a

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// inbox records the messages of all operations that send one: a message creates a task, or is an input of one.
type inbox struct {
	*Config
	agents *directory
	tasks  tasks
	hooks  webhooks
}

// sent is a message that has been recorded, and the task that it belongs to.
type sent struct {
	key runs.Key
	// inbound is the number of the message in the inbox of a task that existed before, or 0 if
	// the message created the task.
	inbound int64
	// existed says that the message was sent before, or that the task existed before.
	existed bool
	// tail reads the task for a sender who waits. If it is nil, follow opens one.
	tail *feed.Tail
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

// put creates a task with the message, or adds the message to the inbox of the task that it
// names. If the sender waits, the caller must call follow.
func (b *inbox) put(ctx context.Context, who identity.Caller, s *send) (sent, error) {
	if n := s.size(); n > MaxMessage {
		return sent{}, agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"the message has %d bytes; at most %d are allowed", n, MaxMessage).With("max_bytes", strconv.Itoa(MaxMessage))
	}
	if s.message.GetTaskId() != "" {
		return b.followUp(ctx, who, s)
	}
	n, err := b.begins(ctx, who, s)
	if err != nil {
		return sent{}, err
	}
	return b.create(ctx, n, s.waits)
}

// size returns the number of bytes that an event has to hold.
func (s *send) size() int {
	n := proto.Size(s.message) + proto.Size(s.metadata) + proto.Size(s.accepted.GetCollaboration())
	for _, m := range s.accepted.GetHistory() {
		n += proto.Size(m)
	}
	for _, mode := range s.accepted.GetAcceptedOutputModes() {
		n += len(mode)
	}
	return n
}

// begins returns the task that a message creates.
func (b *inbox) begins(ctx context.Context, who identity.Caller, s *send) (n runs.New, err error) {
	id, a, err := b.agents.resolve(ctx, s.tenant)
	if err != nil {
		return n, err
	}
	references, err := referenced(ctx, b.Store, who.Owner(), s.message, agent.Remembers(a))
	if err != nil {
		return n, err
	}
	acc := s.accepted
	// The referenced tasks follow what the agent remembers.
	acc.Branch = acc.GetBranch() || len(acc.GetHistory()) == 0 && len(references) > 0
	acc.History = append(acc.GetHistory(), references...)
	acc.TaskId, acc.Agent, acc.Owner, acc.Seed = newID(), id, who.Owner(), rand.Int64() //nolint:gosec // jitter, not a secret
	if acc.Pins, err = b.agents.pins(ctx, id); err != nil {
		return n, runs.StoreError(id, err)
	}
	info := infoOf(ctx, a)
	if err := checkMedia(info, s.message, acc.GetAcceptedOutputModes()); err != nil {
		return n, err
	}
	if err := checkInputs(a, s.message); err != nil {
		return n, err
	}
	acc.MayReplyDirectly = acc.MayReplyDirectly && info.GetMayReplyDirectly()
	digest, err := digestOf(id, s.message)
	if s.concurrent > 0 {
		digest, err = digestOf(id, s.message, acc.GetCollaboration(), acc.GetLimits())
	}
	if err != nil {
		return n, err
	}
	acc.Message = proto.CloneOf(s.message)
	fresh := acc.Message.GetContextId() == ""
	if fresh {
		acc.Message.ContextId = newID()
	}
	script := transcriptOf(ctx)
	acc.Conversation = conversation(ctx, b.Conversations, a, runs.Thread{Owner: acc.Owner, ContextID: acc.Message.GetContextId()}, fresh || script.forgets())
	if script != nil && acc.GetConversation().GetHistory() != 0 { // the agent remembers what was said earlier
		acc.History, acc.Branch = references, len(references) > 0
	}
	push, err := inlinePush(s)
	if err != nil {
		return n, err
	}
	if err := b.mayBegin(ctx, who, acc.GetPins().GetAccounts()[id], id, s.key); err != nil {
		return n, err
	}
	n = runs.New{Owner: acc.Owner, Accepted: acc, MessageID: s.key, Digest: digest, Push: push, PushVersion: pushVersion(ctx), Collaborations: s.concurrent, Entry: s.entry}
	if s.concurrent > 0 && b.MaxCollaborations != nil {
		n.AccountCollaborations = b.MaxCollaborations(who.Account)
	}
	return n, nil
}

// create records a new task. If its sender waits, the result has a tail that was opened before, so that no signal is
// missed.
func (b *inbox) create(ctx context.Context, n runs.New, waits bool) (sent, error) {
	var tail *feed.Tail
	if waits {
		tail = b.tasks.feeds.Early(n.Owner, n.Accepted.GetTaskId())
	}
	defer func() {
		if tail != nil { // it was not handed to the caller; also after a panic of the store
			tail.Close()
		}
	}()
	root, existed, err := b.Store.Create(ctx, n)
	// Also after an error and for an existing task: it may have been recorded without a wake-up.
	b.Wake()
	if err != nil {
		return sent{}, runs.StoreError(n.Accepted.GetTaskId(), err)
	}
	to := sent{key: runs.Key{Owner: n.Owner, ID: root}, existed: existed}
	if !existed {
		to.tail, tail = tail, nil
	}
	return to, nil
}

// mayBegin returns the error for a message that would begin a task: HALTED, or that the account may not
// begin another one. made is the account that has made the agent by the API, if any. A message that was sent before gets
// the answer of the first one.
func (b *inbox) mayBegin(ctx context.Context, who identity.Caller, made, id, key string) error {
	err := b.Halts.Refusal(who.Owner(), made, id)
	if err == nil && b.Admit != nil {
		err = b.Admit(ctx, who.Owner())
	}
	if err == nil {
		return nil
	}
	if key != "" {
		switch _, serr := b.Store.Sent(ctx, who.Owner(), agent.KeyOf(made, id), key); {
		case serr == nil:
			return nil
		case !errors.Is(serr, runs.ErrNotFound):
			return runs.StoreError("", serr)
		}
	}
	var refusal *agent.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	return runs.StoreError("", err)
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
			return nil, a2aerror.Invalid(agent.Violation{Field: "message", Description: "cannot be encoded; every text in it must be UTF-8"})
		}
		all = append(all, b...)
	}
	sum := sha256.Sum256(all)
	return sum[:], nil
}

// byKey returns the id of the task that was created with the key in req.
func (b *inbox) byKey(ctx context.Context, req *teamv1.CancelRequest) (string, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return "", err
	}
	if req.GetKey() == "" {
		return "", a2aerror.Invalid(agent.Violation{Field: "taskId", Description: "or key is required"})
	}
	of := req.GetAgentId()
	if of == "" {
		if of, _, err = b.agents.resolve(ctx, ""); err != nil {
			return "", err
		}
	}
	for _, account := range []string{b.agents.accountOf(of), who.Account, ""} { // the agent may have been deleted since
		id, err := b.Store.Sent(ctx, who.Owner(), agent.KeyOf(account, of), req.GetKey())
		if err == nil {
			return id, nil
		}
		if !errors.Is(err, runs.ErrNotFound) {
			return "", runs.StoreError(req.GetKey(), err)
		}
	}
	return "", a2aerror.TaskNotFound(req.GetKey())
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
