// Package a2a implements the operations of A2A 1.0, section 3, and those of the Agent service,
// for any agent. It creates tasks, sends them inputs and reads their journals. It does not run
// agents: the engine does, and both communicate through the Store. The package does not depend on
// teams or on protocol bindings.
package a2a

import (
	"context"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
)

// Config configures a Handler. Agents and Store are required.
type Config struct {
	// Agents is the set of agents to serve. If it implements Pinner, each new task is tied to the
	// current revisions; if it implements Finder, calls also reach agents that were added
	// elsewhere. Required.
	Agents Agents
	// Store stores tasks, journals and inboxes. Required.
	Store runs.Store
	// Overview, Approvals, Conversations and Pushes are further parts of the store, usually the
	// same value as Store. Each may be nil: without Overview the tasks of an owner are not listed
	// for monitors and collaborations; without Approvals only the owner of a task may answer its
	// questions; without Conversations a context id has no effect on runs; without Pushes push
	// notifications are not supported.
	Overview      runs.Overview
	Approvals     runs.Approvals
	Conversations runs.Conversations
	Pushes        runs.Pushes
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
	Halts *inforce.Halts
	// Memory is the budget of what the streams of tasks keep in memory. If it is nil, that has no limit.
	Memory *inflight.Budget
	// Wake tells the engine that the run of this root task has work to do. It may be called more
	// often than necessary and must not block. Nil means that nothing is called.
	Wake func()
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
// needs a caller in its context; see identity.WithCaller. Errors are *a2aerror.Error and *agent.Error; any other
// error is internal and must not be shown to users. It is safe for concurrent use.
type Handler struct {
	c       Config
	agents  *directory
	feeds   *feed.Feeds
	streams *streamLimiter
	tasks   tasks
	inbox   *inbox
	control control
	hooks   webhooks
}

// NewHandler returns a handler for c, with defaults for the fields that are not set.
func NewHandler(c Config) *Handler {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Wake == nil {
		c.Wake = func() {}
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
	h := &Handler{c: c, agents: &directory{c.Agents, c.Settings, c.Version}}
	streams := func() *teamv1.StreamSettings { return c.Settings.Load().GetStreams() }
	h.streams = &streamLimiter{limits: streams}
	h.feeds = feed.New(feed.Config{Source: source{c.Store}, Memory: c.Memory, Poll: c.Poll, Closes: func(s a2av1.TaskState) bool { return closesAt(streams().GetClose(), s) }})
	h.tasks = tasks{c.Store, h.feeds}
	h.hooks = webhooks{c.Pushes, c.Settings, h.tasks}
	h.inbox = &inbox{Config: &h.c, agents: h.agents, tasks: h.tasks, hooks: h.hooks}
	h.control = control{h.tasks, c.Halts, c.Wake, c.Clock, c.CancelWait}
	return h
}

// Overview returns the Overview of the configuration, or nil if it has none.
func (h *Handler) Overview() runs.Overview { return h.c.Overview }

// Agents returns the agents that the handler serves.
func (h *Handler) Agents() Agents { return h.c.Agents }

// newID returns a new id for a task, a context or a message.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}
