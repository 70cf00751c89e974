// Package a2a implements the operations of A2A 1.0, section 3, and those of the Agent service,
// for any agent. It creates tasks, sends them inputs and reads their journals. It does not run
// agents: the engine does, and both communicate through the Store. The package does not depend on
// teams or on protocol bindings.
package a2a

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
)

// Agents is the set of agents that a handler serves. The agent manager implements it.
type Agents interface {
	// Get returns an agent, or an *agent.Error with the reason AGENT_NOT_FOUND.
	Get(id string) (agent.Agent, error)
	// IDs returns the ids of all agents, sorted.
	IDs() []string
}

// Pinner is an optional interface of Agents whose definitions may change while they are served.
// It ties a run to the revisions with which it began, also if another process continues it. If
// Agents does not implement it, a run always uses the agent that Get returns. Implementations
// must be safe for concurrent use.
type Pinner interface {
	// Pins returns the current revisions of the agent and of all agents that it uses. They must
	// be stored before Pins returns, so that Pinned can find them. The result is shared; do not
	// modify it. Errors are those of Get and of the store.
	Pins(ctx context.Context, id string) (*teamv1.Pins, error)
	// Pinned returns the agent at the revision in pins. The caller must call release when it has
	// stopped driving the run. If the error is an *agent.Error, the revision is no longer
	// available, and the run ends as INTERRUPTED; after any other error the call is repeated
	// later.
	Pinned(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error)
}

// Finder is an optional interface of Agents to which agents may be added while they are served,
// by this process or by another one. Implementations must be safe for concurrent use.
type Finder interface {
	// Find is like Get, but also looks for an agent that this process does not know yet. Errors
	// are those of Get, or why the search failed.
	Find(ctx context.Context, id string) (agent.Agent, error)
}

// Access is an optional interface of Agents that limits who may use an agent. Without it every
// caller may use every agent, and all cards are public. Implementations must be safe for concurrent
// use.
type Access interface {
	// Allows reports whether a caller may use an agent.
	Allows(who Caller, id string) bool
	// AllowsRuns reports whether runs of an account may begin tasks of an agent, which may be only a
	// member of a team.
	AllowsRuns(account, id string) bool
	// AccountOf returns the account that has made an agent by the API, empty for one of the configuration file.
	AccountOf(id string) string
	// HasPublicCard reports whether the card of an agent may be read without authentication.
	HasPublicCard(id string) bool
}

// Config configures a Handler. Agents and Store are required.
type Config struct {
	// Agents is the set of agents to serve. If it implements Pinner, each new task is tied to the
	// current revisions; if it implements Finder, calls also reach agents that were added
	// elsewhere. Required.
	Agents Agents
	// Store stores tasks, journals and inboxes. Required.
	Store Store
	// Overview, Approvals, Conversations and Pushes are further parts of the store, usually the
	// same value as Store. Each may be nil: without Overview the tasks of an owner are not listed
	// for monitors and collaborations; without Approvals only the owner of a task may answer its
	// questions; without Conversations a context id has no effect on runs; without Pushes push
	// notifications are not supported.
	Overview      Overview
	Approvals     Approvals
	Conversations Conversations
	Pushes        Pushes
	// Settings are those in effect, which may be replaced; nil means the defaults.
	Settings *settings.Live
	// Admit returns an error if an owner may not begin another task: an *agent.Error for the caller, or an error of
	// the store. It is not called for messages to existing tasks. If it is nil, every owner may.
	Admit func(ctx context.Context, owner string) error
	// CheckPlan returns what is wrong with a plan, as JSON, that people send in place of the one that
	// they are asked to approve. If it is nil, such plans are not checked before the run reads them.
	CheckPlan func(rules *teamv1.PlanRules, plan string) error
	// MaxCollaborations returns how many collaborations of an account may be running; 0 means no limit.
	// Nil means that no account has a limit.
	MaxCollaborations func(account string) int
	// AdmitGrant returns an error, as Admit does, if an account may not spend what the answer to a question
	// for more budget grants to one of its tasks. If it is nil, every account may.
	AdmitGrant func(ctx context.Context, account string, grant agent.Cost) error
	// Audit returns a context with which the store records an action in the audit log, in the transaction
	// of the change that it makes. If it is nil, nothing is recorded.
	Audit func(ctx context.Context, action, subject string, details map[string]string) context.Context
	// Halts has the halts in force. A message that one of them covers is refused with HALTED. If Halts is
	// nil, no message is refused.
	Halts *agent.Halts
	// Memory is the budget of what the streams of tasks keep in memory. If it is nil, that has no limit.
	Memory *inflight.Budget
	// Wake tells the engine that the run of this root task has work to do. It may be called more
	// often than necessary and must not block. Nil means that nothing is called.
	Wake func(root string)
	// Version is the version of the program, for agent cards and records. The default is "dev".
	Version string
	// Extended returns the extended cards of an agent. The first one that is for the caller is
	// used. If it is nil, there are no extended cards.
	Extended func(id string) []ExtendedCard
	// Clock returns the current time. The default is time.Now.
	Clock func() time.Time
	// CancelWait is the maximum time for which CancelTask, Stop, Pause and Resume wait for their
	// effect. The default is 10 seconds.
	CancelWait time.Duration
	// Poll is the interval at which a journal is read if no notification of new events arrives.
	// The default is a minute.
	Poll time.Duration
}

// ExtendedCard is what the card of an agent says in addition, to some callers.
type ExtendedCard struct {
	// For lists the accounts, and the callers as account/principal, that may see the card. Empty
	// means all authenticated callers.
	For []string
	// Description replaces the public description unless it is empty.
	Description string
	// Skills are added to the public skills. A skill with the id of a public one replaces it.
	Skills []*teamv1.Skill
}

// Handler implements the operations of A2A and of the Agent service, for all bindings. Each call
// needs a Caller in its context; see WithCaller. Errors are *Error and *agent.Error; any other
// error is internal and must not be shown to users. It is safe for concurrent use.
type Handler struct {
	c        Config
	journals journals
	feeds    *feed.Feeds
	streams  *streamLimiter
}

// NewHandler returns a handler for c, with defaults for the fields that are not set.
func NewHandler(c Config) *Handler {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Wake == nil {
		c.Wake = func(string) {}
	}
	if c.CancelWait == 0 {
		c.CancelWait = 10 * time.Second
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Poll == 0 {
		c.Poll = time.Minute
	}
	if c.Settings == nil {
		c.Settings = settings.Of(nil)
	}
	h := &Handler{c: c, journals: journals{c.Store, c.Poll}}
	h.streams = &streamLimiter{limits: func() *teamv1.StreamSettings { return h.now().GetStreams() }}
	h.feeds = feed.New(feed.Config{Source: source{c.Store}, Memory: c.Memory, Poll: c.Poll, Closes: func(s a2av1.TaskState) bool { return closesAt(h.now().GetStreams().GetClose(), s) }})
	return h
}

// now returns the settings that are in effect.
func (h *Handler) now() *settings.Snapshot { return h.c.Settings.Load() }

// pushes reports whether push notifications are supported.
func (h *Handler) pushes(now *settings.Snapshot) bool {
	return h.c.Pushes != nil && now.GetPush().GetEnabled()
}

// forgets reports whether each message is new, even if one with the same id was sent before. Otherwise a repeated message
// gets the answer of the first one. The keys of the Agent service are remembered in either case.
func (h *Handler) forgets() bool { return h.now().GetDeduplicate() == "off" }

// resolve returns the agent that tenant names and its id. An empty tenant means the default
// agent.
func (h *Handler) resolve(ctx context.Context, tenant string) (string, agent.Agent, error) {
	id, err := h.idOf(ctx, tenant)
	if err != nil {
		return "", nil, err
	}
	a, err := h.Find(ctx, id)
	if err != nil {
		return "", nil, err
	}
	return id, a, nil
}

// storeError returns an error of the store as the caller of the API sees it. id is the task that the
// call is about; it is empty for calls about several tasks or about no task.
func storeError(id string, err error) error {
	var answered *AnsweredError
	switch {
	case errors.As(err, &answered):
		return questionAnswered(answered.First)
	case errors.Is(err, ErrNotFound):
		return TaskNotFound(id)
	case errors.Is(err, ErrReused):
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonMessageIDReused,
			"message.messageId was already used with different content; use a new id")
	case errors.Is(err, ErrTerminal):
		return UnsupportedOperation("task %q has ended; send a new message without a task id, and refer to the task in referenceTaskIds", id)
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
		return Invalid(Violation{Field: "pageToken", Description: "is not a page token of this list; omit it to start with the first page"})
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

// busyAgain is the time to wait before a collaboration of a busy team is started again.
const busyAgain = 5 * time.Second

// pushAgain is the time to wait before a caller whose webhooks have too much to receive names another one.
const pushAgain = time.Minute

// newID returns a new id for a task, a context or a message.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}
