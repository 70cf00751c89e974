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

// Approvals is the part of a store that finds open questions that are addressed to
// roles, in the tasks of all owners of an account. It is the only part of a store that returns
// data of other owners than the caller. A question can be found from the commit of its Asked
// event until the commit of the event that closes it. Implementations must be safe for concurrent
// use.
type Approvals interface {
	// Questions returns the open questions that f selects, ordered by the id of the root task
	// and, within a task, in the order in which they were asked. more reports whether there are
	// further questions after the last one.
	Questions(ctx context.Context, f QuestionFilter) (list []RoleQuestion, more bool, err error)
	// Root returns the key of a root task in an account, whoever in the account owns it. The
	// caller must check which questions of the task the user may answer. Root returns ErrNotFound
	// if the account has no such task.
	Root(ctx context.Context, account, id string) (Key, error)
}

// QuestionFilter selects open questions that are addressed to roles.
type QuestionFilter struct {
	// Account is the account whose tasks are searched. Required.
	Account string
	// Roles selects the questions addressed to at least one of these roles. EveryRole selects the
	// questions to any role instead.
	Roles     []string
	EveryRole bool
	// Except is an owner whose tasks are left out. Empty leaves out none.
	Except string
	// Root selects one root task, and Scope a scope in it and all below. An empty Root selects
	// all tasks.
	Root, Scope string
	// Agent selects the root tasks that were sent to this agent. Empty selects all.
	Agent string
	// After and AfterSeq are the root id and the sequence number of the last question of the
	// previous page. An empty After selects the first page.
	After    string
	AfterSeq int64
	// Limit is the maximum number of questions. Required.
	Limit int
}

// RoleQuestion is an open question that is addressed to roles.
type RoleQuestion struct {
	// Task is the root task in which the question was asked.
	Task Key
	// Agent is the id of the agent that the root task was sent to.
	Agent string
	// Asked is the event that asked the question. It is shared; do not modify it.
	Asked *teamv1.Event
}

// role matches valid names of roles, here and in the configuration.
var role = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// IsRole reports whether s is a valid name of a role: 1 to 63 of the characters a-z, 0-9, "_" and
// "-", beginning with a letter or digit.
func IsRole(s string) bool { return role.MatchString(s) }

// MaxRoles is the maximum number of roles by which a question can be found. If a question names
// more, the first MaxRoles are used.
const MaxRoles = 16

// FindableRoles returns the roles by which a question to the given roles can be found: without
// duplicates, invalid names and those above MaxRoles. Invalid names can come from remote agents;
// nobody has such a role.
func FindableRoles(asked []string) []string {
	var list []string
	for _, r := range asked {
		if len(list) < MaxRoles && IsRole(r) && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}

// QuestionsFor returns a page of the open questions in tasks of other owners in the caller's
// account that the caller may answer because of its roles. It sets the Account, Roles, EveryRole
// and Except of f itself. The second result reports whether there are more.
func (h *Handler) QuestionsFor(ctx context.Context, f QuestionFilter) ([]RoleQuestion, bool, error) {
	who, err := Authenticated(ctx)
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

// Answer is like SendMessage with the answer to a question, and returns without waiting for the
// task. It also accepts the answer to a question in a task of another owner in the account, if
// the caller has one of the roles that the question is addressed to. The task is then not shown:
// the result is nil.
//
// Errors are those of SendMessage and, besides: UNSUPPORTED_OPERATION if the task has no open
// question; PERMISSION_DENIED if the question in the caller's own task is addressed to roles that
// the caller does not have; QUESTION_ANSWERED if the caller could have answered the question but
// another answer came first, as long as the task is stored; and TASK_NOT_FOUND for any other
// question that the caller may not answer.
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

// answerByRole records an answer for a task of another owner. It returns the error none if the
// caller may not answer any question of the task, and never could, so that the caller does not
// learn whether there is such a task.
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
		return Invalid(Violation{Field: "message.contextId", Description: "belongs to a task of another caller; omit it"})
	}
	if err := h.c.Halts.Refusal(key.Owner, f.Account(), f.Agent()); err != nil {
		return err
	}
	if err := h.takes(ctx, f, s); err != nil {
		return err
	}
	if _, err := referenced(ctx, h.c.Store, who.Owner(), s.message, true); err != nil {
		return err
	}
	in, err := h.inbound(f, who, s)
	if err != nil {
		return err
	}
	if err := h.admitGrant(ctx, key.Owner, in); err != nil {
		return err
	}
	digest, err := digestOf(f.ID(), s.message)
	if err != nil {
		return err
	}
	_, _, err = h.c.Store.Put(h.c.audited(ctx, root, in), key, in, digest, nil)
	h.c.Wake(root) // also after an error: the input may have been recorded
	if errors.Is(err, ErrTerminal) || errors.Is(err, ErrNotFound) {
		return none
	}
	if err != nil {
		return storeError(root, err)
	}
	return nil
}

// askedOfRoles returns a task of another owner in the caller's account, with only those of its
// questions that the caller may answer because of its roles, or could have answered. It returns
// the error none if there is no such task or its record is damaged.
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

// answerKey returns the key that identifies an answer among everything that its sender sends, so
// that a repeated answer is recognized. It is derived from the task, the question and the
// message, because the answer that was recorded cannot be read once the question is closed.
func answerKey(s *send) (string, error) {
	digest, err := digestOf(s.message.GetTaskId()+"\x00"+s.question, s.message)
	return "answer/" + hex.EncodeToString(digest), err
}

// maxQuoted is the maximum number of bytes of an answer that an error repeats.
const maxQuoted = 256
