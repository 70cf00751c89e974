package runs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Errors of a Store.
var (
	// ErrNotFound means that the owner has no such task. The same error is returned for a task of
	// another owner.
	ErrNotFound = errors.New("not found")
	// ErrReused means that the message id was used before for a message with other content.
	ErrReused = errors.New("message id reused with other content")
	// ErrTerminal means that the task has ended and accepts no more inputs.
	ErrTerminal = errors.New("task has ended")
	// ErrLimit means that the journal of the run is full.
	ErrLimit = errors.New("journal limit reached")
	// ErrDataLoss means that the record of a task is damaged. Other tasks are not affected.
	ErrDataLoss = errors.New("the record is damaged")
	// ErrNewer means that a later version of the program has written the record, which this one would misread.
	ErrNewer = errors.New("written by a later version of team-server")
	// ErrStorage means that the store cannot write at the moment. Nothing was recorded.
	ErrStorage = errors.New("store cannot record")
	// ErrAnswered means that the question has been answered before. The error is an
	// *AnsweredError.
	ErrAnswered = errors.New("question has an answer")
	// ErrBusy means that the maximum number of collaborations of the agent are running, and
	// ErrAccountBusy that of the account.
	ErrBusy        = errors.New("collaboration in progress")
	ErrAccountBusy = errors.New("too many collaborations of the account are in progress")
	// ErrDeleted means that the agent of the task to create has been deleted.
	ErrDeleted = errors.New("agent has been deleted")
)

// AnsweredError is the error of Put for a second answer to a question.
type AnsweredError struct {
	// First is the answer that was recorded first. It is shared; do not modify it.
	First *teamv1.Answered
}

// Error returns the text of ErrAnswered. It does not include the answer, because not all callers
// may see it.
func (*AnsweredError) Error() string { return ErrAnswered.Error() }

// Is reports whether target is ErrAnswered.
func (*AnsweredError) Is(target error) bool { return target == ErrAnswered }

// StoreError returns an error of the store as the caller of the API sees it. id is the task that the
// call is about; it is empty for calls about several tasks or about no task.
func StoreError(id string, err error) error {
	var answered *AnsweredError
	switch {
	case errors.As(err, &answered):
		return questionAnswered(answered.First)
	case errors.Is(err, ErrNotFound):
		return a2aerror.TaskNotFound(id)
	case errors.Is(err, ErrReused):
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonMessageIDReused,
			"message.messageId was already used with different content; use a new id")
	case errors.Is(err, ErrTerminal):
		return a2aerror.UnsupportedOperation("task %q has ended; send a new message without a task id, and refer to the task in referenceTaskIds", id)
	case errors.Is(err, ErrBusy):
		return &agent.Error{Reason: agent.ReasonCollaborationInProgress, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: busyAgain, Err: err,
			Message: "the team has reached its maximum of concurrent collaborations; wait for one to end, or stop one"}
	case errors.Is(err, ErrAccountBusy):
		e := &agent.Error{Reason: agent.ReasonInsufficientResources, Code: agent.CodeResourceExhausted, Retry: true, RetryAfter: busyAgain, Err: err,
			Message: "the account has reached its max_collaborations; wait for a collaboration to end, or stop one"}
		return e.With(agent.DetailLimit, "max_collaborations").With(agent.DetailSetBy, agent.SetByAccount)
	case errors.Is(err, ErrDeleted):
		return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "the agent has been deleted").Because(err)
	case errors.Is(err, ErrPushTask):
		return tooManyPushes(MaxPushTask, "the task")
	case errors.Is(err, ErrPushOwner):
		e := tooManyPushes(MaxPushOwner, "the caller")
		e.Retry, e.RetryAfter = true, pushAgain
		return e
	case errors.Is(err, ErrPageToken):
		return a2aerror.Invalid(agent.Violation{Field: "pageToken", Description: "is not a page token of this list; omit it to start with the first page"})
	case errors.Is(err, ErrDataLoss):
		text := "stored data needed for the response is damaged; undamaged tasks can still be read by their ids. Restore a backup; the server log names the damaged data"
		if id != "" {
			text = fmt.Sprintf("the stored data of task %q is damaged; other tasks are not affected. Restore a backup to recover the task", id)
		}
		return &agent.Error{Reason: agent.ReasonDataLoss, Code: agent.CodeDataLoss, Err: err, Message: text}
	case errors.Is(err, ErrStorage):
		return &agent.Error{Reason: agent.ReasonStoreUnavailable, Code: agent.CodeUnavailable, Retry: true,
			Message: "the store is unavailable, and nothing was recorded; retry with the same message id. If the error persists, see the server log", RetryAfter: time.Second, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("store: %w", err)
}

// questionAnswered returns the error for a second answer to a question. The caller must be
// permitted to read the task or to have given the first answer, because the error repeats that
// answer.
func questionAnswered(first *teamv1.Answered) error {
	text := agent.Quote(agent.Text(first.GetMessage()))
	return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonQuestionAnswered,
		"the question was answered by %s first: %q; this answer was not recorded", a2aerror.Clip(first.GetBy()), text).
		With("question", a2aerror.Clip(first.GetQuestion())).With("answered_by", a2aerror.Clip(first.GetBy())).With("answer", text)
}

// tooManyPushes returns the error for one push configuration more than permitted.
func tooManyPushes(most int, of string) *agent.Error {
	return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
		"%s has %d push configurations, the maximum; delete one, or replace one by sending its id", of, most).With("max_push_configs", strconv.Itoa(most))
}

// busyAgain is the time to wait before a collaboration of a busy team is started again.
const busyAgain = 5 * time.Second

// pushAgain is the time to wait before a caller whose webhooks have too much to receive names another one.
const pushAgain = time.Minute
