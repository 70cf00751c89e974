package a2a

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// Approvals finds the open questions that roles may answer, in the tasks of all owners
// in the same store. It is the only part of a store that
// shows something to others than the owner. It has every such question from the
// commit of its Asked to that of what closes it. Safe for concurrent use.
type Approvals interface {
	// Questions returns open questions in the order of their tasks' ids, and of a
	// task as they were asked; more says that there are others behind them.
	Questions(ctx context.Context, f QuestionFilter) (list []RoleQuestion, more bool, err error)
	// Root returns the key of a root task of an account, which any owner of the account
	// may own. The caller of Root checks who may answer which of its questions. The error
	// is ErrNotFound if the account has no such task.
	Root(ctx context.Context, account, id string) (Key, error)
}

// QuestionFilter selects open questions that roles may answer.
type QuestionFilter struct {
	// Account whose tasks ask. Required.
	Account string
	// Roles: those that one of these may answer; EveryRole: all.
	Roles     []string
	EveryRole bool
	// Except leaves out the tasks of an owner.
	Except string
	// Root, where set: only of this root, of a scope and below.
	Root, Scope string
	// Agent, where set: only of roots that were given to it.
	Agent string
	// After is the root and the sequence behind which to begin.
	After    string
	AfterSeq int64
	// Limit is how many at most. Required.
	Limit int
}

// RoleQuestion is an open question that roles may answer.
type RoleQuestion struct {
	// Task is the root that asks.
	Task Key
	// Agent that the root was given to.
	Agent string
	// Asked is the event that asked. Shared: read only.
	Asked *teamv1.Event
}

// role is how roles are written, in the configuration too.
var role = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// IsRole reports whether a text can be a role: 1 to 63 of a-z, 0-9, _ and -,
// beginning with a letter or digit.
func IsRole(s string) bool { return role.MatchString(s) }

// MaxRoles is how many roles a question is found by; of one with more the first count.
const MaxRoles = 16

// FindableRoles returns the roles that a question to these is found by. What is no role,
// which a remote agent may ask, nobody has.
func FindableRoles(asked []string) []string {
	var list []string
	for _, r := range asked {
		if len(list) < MaxRoles && IsRole(r) && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}

// QuestionsFor returns a page of the open questions of other tasks of the caller's
// account that it may answer by a role. The filter's account, roles and owner are
// set here.
func (h *Handler) QuestionsFor(ctx context.Context, f QuestionFilter) ([]RoleQuestion, bool, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, false, err
	}
	if h.c.Approvals == nil || len(who.Roles) == 0 && !who.EveryRole {
		return nil, false, nil
	}
	f.Account, f.Roles, f.EveryRole, f.Except = who.Account, who.Roles, who.EveryRole, who.Owner()
	list, more, err := h.c.Approvals.Questions(ctx, f)
	if err != nil {
		return nil, false, storeError("", err)
	}
	return list, more, nil
}

// Answer is SendMessage for the answer to a question, and returns at once. Of a task
// of somebody else in the caller's account it takes the answer to a question that the
// caller may answer by a role; the task is not shown then: it is nil. Errors: those of
// SendMessage; UNSUPPORTED_OPERATION for a task that asks nothing; PERMISSION_DENIED for
// a question of the caller's own task to roles of which it has none; QUESTION_ANSWERED for
// a question that it might have answered, as long as the task is kept; TASK_NOT_FOUND for
// all that it may not answer elsewhere.
func (h *Handler) Answer(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.Task, error) {
	who, s, err := h.checked(ctx, req)
	if err != nil {
		return nil, err
	}
	s.answer = true
	at, err := h.put(ctx, who, s)
	if IsNotFound(err) {
		return nil, h.answerByRole(ctx, who, s, err)
	}
	if err != nil {
		return nil, err
	}
	f, err := h.follow(ctx, at, true)
	if err != nil {
		return nil, err
	}
	return project.CutHistory(f.Snapshot(details(ctx)), historyOf(req.GetConfiguration())), nil
}

// answerByRole leaves an answer for a task of somebody else. The error is none where
// the caller may answer nothing there, and never might: whether there is such a task is
// not said.
func (h *Handler) answerByRole(ctx context.Context, who Caller, s *send, none error) error {
	root, _ := agent.SplitTask(s.message.GetTaskId())
	var err error
	if s.key, err = answerKey(s); err != nil {
		return err
	}
	known, err := h.c.Store.Sent(ctx, who.Owner(), "", s.key)
	switch {
	case err == nil && known == root:
		h.c.Wake(root)
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return storeError(root, err)
	}
	key, f, err := h.askedOfRoles(ctx, who, s.message.GetTaskId(), none)
	if err != nil {
		return err
	}
	if first := f.FirstAnswer(s.question); first != nil && (s.question != "" || len(f.Questions()) == 0) {
		return questionAnswered(first)
	}
	if len(f.Questions()) == 0 {
		return none
	}
	if s.message.GetContextId() != "" {
		return Invalid(Violation{Field: "message.contextId", Description: "is that of somebody else's task; leave it out"})
	}
	if err := h.c.takes(ctx, f.Agent(), s); err != nil {
		return err
	}
	if _, err := referenced(ctx, h.c.Store, who.Owner(), s.message, true); err != nil {
		return err
	}
	in, err := inbound(f, who, s)
	if err != nil {
		return err
	}
	digest, err := digestOf(f.ID(), s.message)
	if err != nil {
		return err
	}
	_, _, err = h.c.Store.Put(ctx, key, in, digest, nil)
	h.c.Wake(root) // also after an error: it may be on record
	if errors.Is(err, ErrTerminal) || errors.Is(err, ErrNotFound) {
		return none
	}
	if err != nil {
		return storeError(root, err)
	}
	return nil
}

// askedOfRoles returns the fold of a task of somebody else in the caller's account, with
// those of its questions alone that the caller may answer by a role, or might have. The
// error is none where there is no such task, and where it is damaged.
func (h *Handler) askedOfRoles(ctx context.Context, who Caller, id string, none error) (Key, *Fold, error) {
	if h.c.Approvals == nil || len(who.Roles) == 0 && !who.EveryRole {
		return Key{}, nil, none
	}
	root, scope := agent.SplitTask(id)
	key, err := h.c.Approvals.Root(ctx, who.Account, root)
	if errors.Is(err, ErrNotFound) || err == nil && key.Owner == who.Owner() {
		return Key{}, nil, none
	}
	if err != nil {
		return Key{}, nil, storeError(id, err)
	}
	f, err := h.journals.fold(ctx, key, scope)
	if IsNotFound(err) || IsDamaged(err) {
		return Key{}, nil, none
	}
	if err != nil {
		return Key{}, nil, err
	}
	others := func(q *teamv1.Question) bool { return !who.Has(FindableRoles(q.GetRoles())) }
	f.Forget(others)
	return key, f, nil
}

// answerKey tells the same answer again from another one, among all that its giver
// sends. What the giver answered is not at hand once the question is closed.
func answerKey(s *send) (string, error) {
	digest, err := digestOf(s.message.GetTaskId()+"\x00"+s.question, s.message)
	return "answer/" + hex.EncodeToString(digest), err
}

// maxQuoted is the number of bytes of an answer that an error repeats.
const maxQuoted = 256
