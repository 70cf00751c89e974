// Package a2a is the task handler: what A2A means, over any agent. It creates
// tasks, leaves inputs for those who drive their runs, and reads journals; it
// knows neither teams nor bindings, nor who drives.
package a2a

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/agent"
)

// Agents are the agents that a handler serves; the agent manager is one.
type Agents interface {
	// Get returns an agent, or an *agent.Error with the reason AGENT_NOT_FOUND.
	Get(id string) (agent.Agent, error)
	// IDs returns all ids, sorted.
	IDs() []string
}

// Pinner is what Agents can be besides: agents whose definitions change while
// they are served. A run then goes on with the one it began with, also in
// another process. Without it a run is always driven by the agent that Get returns.
// Safe for concurrent use.
type Pinner interface {
	// Pins returns the revisions that a run of the agent begins with, its own
	// among them, once Pinned can find them again: they are on record. The answer
	// is shared: read only. Errors: as of Get, else the store's.
	Pins(ctx context.Context, id string) (*teamv1.Pins, error)
	// Pinned returns an agent at the revision that a run began with; release says
	// that the run is not driven any more. An *agent.Error ends the run: the
	// revision cannot be had any more, INTERRUPTED. Any other error is tried again.
	Pinned(ctx context.Context, id string, pins *teamv1.Pins) (a agent.Agent, release func(), err error)
}

// Finder is what Agents can be besides: agents that are added while they are served,
// also in another process, of which this one may not have heard yet. Safe for
// concurrent use.
type Finder interface {
	// Find is Get for the id of a call: it looks for one that Get does not know.
	// Errors: as of Get, else why it could not look.
	Find(ctx context.Context, id string) (agent.Agent, error)
}

// Config of a Handler. Agents and Store are required.
type Config struct {
	// Agents that are served; a Pinner is asked for the pins of each new task,
	// a Finder for the agents of calls.
	Agents Agents
	// Store keeps the tasks.
	Store Store
	// Overview, Approvals, Conversations and Pushes are further parts of the store, usually
	// the same value as Store. Without Overview (nil) tasks are not listed side by side for
	// monitors and collaborations; without Approvals only the owner of a task may answer its
	// questions; without Conversations a context id has no effect on runs; without Pushes
	// push notifications are not supported.
	Overview      Overview
	Approvals     Approvals
	Conversations Conversations
	Pushes        Pushes
	// Wake tells the engine that a run is due.
	Wake func(root string)
	// DefaultAgent answers calls without a tenant; empty: the only agent there
	// is, or none.
	DefaultAgent string
	// Interfaces are where the agents are reached, for their cards.
	Interfaces Interfaces
	// Version of the program, for cards and records.
	Version string
	// Security is what cards say about how to authenticate; nil is nothing.
	Security map[string]*a2av1.SecurityScheme
	// Sign puts signatures on a card; unset: cards are not signed.
	Sign func(*a2av1.AgentCard) error
	// Extended returns the extended cards of an agent, the first for a caller being
	// the caller's; unset: there are none.
	Extended func(id string) []ExtendedCard
	// Clock tells the time; unset is time.Now.
	Clock func() time.Time
	// CancelWait is how long CancelTask waits for the end; 0 is 10 s.
	CancelWait time.Duration
	// Streams bounds the streams that are open.
	Streams Streams
	// RequireTeamRun has cards say that the team-run extension is required; who
	// serves the handler refuses calls without it.
	RequireTeamRun bool
	// ForgetMessageIDs treats every message as new, even if its id was sent before;
	// otherwise a repeated message gets the answer of the first one. Keys of the Agent
	// service are remembered in both cases.
	ForgetMessageIDs bool
	// RefuseWhileWorking refuses messages to a task that asks for nothing; without it
	// they are recorded, and seen by its agent at its next decision.
	RefuseWhileWorking bool
}

// Interfaces are addresses for cards.
type Interfaces struct {
	// HTTP is the base URL of REST and JSON-RPC, without a slash at the end.
	HTTP string
	// GRPC is host:port.
	GRPC string
	// Shown lists the bindings that cards name, the preferred one first; empty means
	// Bindings.
	Shown []string
}

// ExtendedCard is what an agent's card says besides to some callers.
type ExtendedCard struct {
	// For names whom it is for: accounts, and callers as account/principal. Empty
	// is everybody who is known.
	For []string
	// Description in place of the public one; empty is that.
	Description string
	// Skills besides the public ones; one with the id of a public one takes its place.
	Skills []*teamv1.Skill
}

// Handler answers the calls of A2A and of the Agent service, for all bindings.
// Every call has a Caller in its context. Errors are *Error and *agent.Error;
// any other is internal. Safe for concurrent use.
type Handler struct {
	c        Config
	cards    cards
	journals journals
	feeds    *feed.Feeds
	seats    *seats
}

// NewHandler returns a handler.
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
	c.Streams = c.Streams.withDefaults()
	h := &Handler{c: c, seats: &seats{most: c.Streams}, journals: journals{c.Store, c.Streams.Poll}, feeds: feed.New(feed.Config{Source: source{c.Store}, Poll: c.Streams.Poll, Closes: c.Streams.Close.at})}
	h.cards = cards{&h.c, c.Pushes != nil}
	return h
}

// caller returns who calls.
func caller(ctx context.Context) (Caller, error) {
	c, ok := CallerOf(ctx)
	if !ok {
		return c, agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "who calls is not known")
	}
	return c, nil
}

// resolve returns the agent that a tenant names; an empty one the default agent.
func (h *Handler) resolve(ctx context.Context, tenant string) (string, agent.Agent, error) {
	id := tenant
	if id == "" {
		id = h.c.DefaultAgent
	}
	if id == "" {
		ids := h.c.Agents.IDs()
		if len(ids) != 1 {
			return "", nil, Invalid(Violation{Field: "tenant", Description: "must name an agent or team, since there is no default; known are " + strings.Join(ids, ", ")})
		}
		id = ids[0]
	}
	a, err := h.Find(ctx, id)
	if err != nil {
		return "", nil, err
	}
	return id, a, nil
}

// Find returns an agent by the id of a call. Errors: see Finder.
func (h *Handler) Find(ctx context.Context, id string) (agent.Agent, error) {
	if f, ok := h.c.Agents.(Finder); ok {
		return f.Find(ctx, id)
	}
	return h.c.Agents.Get(id)
}

// storeError is a store's error for the caller. id is the task that it is about, empty if
// it is about none or many.
func storeError(id string, err error) error {
	var answered *AnsweredError
	switch {
	case errors.As(err, &answered):
		return questionAnswered(answered.First)
	case errors.Is(err, ErrNotFound):
		return TaskNotFound(id)
	case errors.Is(err, ErrReused):
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonMessageIDReused,
			"message.messageId was used before with other content; use a new id for a new message")
	case errors.Is(err, ErrTerminal):
		return UnsupportedOperation("task %q has ended; send a new message without a task id, and refer to the task in referenceTaskIds", id)
	case errors.Is(err, ErrBusy):
		return &agent.Error{Reason: agent.ReasonCollaborationInProgress, Code: agent.CodeFailedPrecondition, Retry: true, RetryAfter: busyAgain, Err: err,
			Message: "as many collaborations of the team are under way as may be at once; wait for the end of one, or stop one"}
	case errors.Is(err, ErrDeleted):
		return agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "the agent has been deleted").Because(err)
	case errors.Is(err, ErrPushTask):
		return tooManyPushes(MaxPushTask, "the task")
	case errors.Is(err, ErrPushOwner):
		return tooManyPushes(MaxPushOwner, "the caller")
	case errors.Is(err, ErrPageToken):
		return Invalid(Violation{Field: "pageToken", Description: "is not a token of this list; begin again without one"})
	case errors.Is(err, ErrDataLoss):
		text := "a record that is needed for the answer is damaged; tasks that are not can be asked for by their ids. Restore a backup; the log of the server says what is damaged"
		if id != "" {
			text = fmt.Sprintf("what is on record of task %q is damaged; other tasks are not: restore a backup, or do without it", id)
		}
		return &agent.Error{Reason: agent.ReasonDataLoss, Code: agent.CodeDataLoss, Err: err, Message: text}
	case errors.Is(err, ErrStorage):
		return &agent.Error{Reason: agent.ReasonStoreUnavailable, Code: agent.CodeUnavailable, Retry: true,
			Message: "the store is not available, and nothing was recorded; try again, with the same message id. Where that does not help, the log of the server says what to do", RetryAfter: time.Second, Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("store: %w", err)
}

// busyAgain is how long who begins a collaboration of a busy team waits before the next try.
const busyAgain = 5 * time.Second

// newID returns a fresh task, context or message id.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}
