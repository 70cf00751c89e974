package a2a

import (
	"context"
	"encoding/hex"
	"errors"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// QuestionsFor returns a page of the open questions in tasks of other owners in the caller's
// account that the caller may answer because of its roles. It sets the Account, Roles, EveryRole
// and Except of f itself. The second result reports whether there are more.
func (h *Handler) QuestionsFor(ctx context.Context, f runs.QuestionFilter) ([]runs.RoleQuestion, bool, error) {
	who, err := identity.Authenticated(ctx)
	if err != nil {
		return nil, false, err
	}
	if h.c.Approvals == nil || len(who.Roles) == 0 && !who.EveryRole {
		return nil, false, nil
	}
	f.Account, f.Roles, f.EveryRole, f.Except = who.Account, who.Roles, who.EveryRole, who.Owner()
	list, more, err := h.c.Approvals.Questions(ctx, f)
	if err != nil {
		return nil, false, runs.StoreError("", err)
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
	who, s, err := h.inbox.checked(ctx, req)
	if err != nil {
		return nil, err
	}
	s.answer = true
	at, err := h.inbox.put(ctx, who, s)
	if a2aerror.IsNotFound(err) {
		return nil, h.inbox.answerByRole(ctx, who, s, err)
	}
	if err != nil {
		return nil, err
	}
	t, _, err := h.tasks.task(ctx, "", at.key)
	if err != nil {
		return nil, err
	}
	return project.CutHistory(t, historyOf(req.GetConfiguration())), nil
}

// answerByRole records an answer for a task of another owner. It returns the error none if the
// caller may not answer any question of the task, and never could, so that the caller does not
// learn whether there is such a task.
func (b *inbox) answerByRole(ctx context.Context, who identity.Caller, s *send, none error) error {
	root, _ := agent.SplitTask(s.message.GetTaskId())
	var err error
	if s.key, err = answerKey(s); err != nil {
		return err
	}
	known, err := b.Store.Sent(ctx, who.Owner(), "", s.key)
	switch {
	case err == nil && known == root:
		b.Wake()
		return nil
	case err != nil && !errors.Is(err, runs.ErrNotFound):
		return runs.StoreError(root, err)
	}
	key, f, err := b.askedOfRoles(ctx, who, s.message.GetTaskId(), none)
	if err != nil {
		return err
	}
	if first := f.FirstAnswer(s.question); first != nil && (s.question != "" || len(f.Questions()) == 0) {
		return runs.StoreError("", &runs.AnsweredError{First: first})
	}
	if len(f.Questions()) == 0 {
		return none
	}
	if s.message.GetContextId() != "" {
		return a2aerror.Invalid(agent.Violation{Field: "message.contextId", Description: "belongs to a task of another caller; omit it"})
	}
	if err := b.Halts.Refusal(key.Owner, f.Account(), f.Agent()); err != nil {
		return err
	}
	if err := b.takes(ctx, standingOf(f), s); err != nil {
		return err
	}
	if _, err := referenced(ctx, b.Store, who.Owner(), s.message, true); err != nil {
		return err
	}
	in, err := b.inbound(f, who, s)
	if err != nil {
		return err
	}
	if err := b.admitGrant(ctx, key.Owner, in); err != nil {
		return err
	}
	digest, err := digestOf(f.ID(), s.message)
	if err != nil {
		return err
	}
	_, _, err = b.Store.Put(b.audited(ctx, root, in), key, in, digest, nil)
	b.Wake() // also after an error: the input may have been recorded
	if errors.Is(err, runs.ErrTerminal) || errors.Is(err, runs.ErrNotFound) {
		return none
	}
	if err != nil {
		return runs.StoreError(root, err)
	}
	return nil
}

// askedOfRoles returns a task of another owner in the caller's account, with only those of its
// questions that the caller may answer because of its roles, or could have answered. It returns
// the error none if there is no such task or its record is damaged.
func (b *inbox) askedOfRoles(ctx context.Context, who identity.Caller, id string, none error) (runs.Key, *project.Fold, error) {
	if b.Approvals == nil || len(who.Roles) == 0 && !who.EveryRole {
		return runs.Key{}, nil, none
	}
	root, scope := agent.SplitTask(id)
	key, err := b.Approvals.Root(ctx, who.Account, root)
	if errors.Is(err, runs.ErrNotFound) || err == nil && key.Owner == who.Owner() {
		return runs.Key{}, nil, none
	}
	if err != nil {
		return runs.Key{}, nil, runs.StoreError(id, err)
	}
	f, err := b.tasks.fold(ctx, key, scope)
	if a2aerror.IsNotFound(err) || a2aerror.IsDamaged(err) {
		return runs.Key{}, nil, none
	}
	if err != nil {
		return runs.Key{}, nil, err
	}
	others := func(q *teamv1.Question) bool { return !who.Has(identity.FindableRoles(q.GetRoles())) }
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
