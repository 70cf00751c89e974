package team

import (
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Members finds agents by id; the agent manager is one.
type Members interface {
	// Agent returns the agent registered under id, or an *agent.Error.
	Agent(id string) (agent.Agent, error)
	// Health returns what is known of the agent's health, at most 5 s old. It never blocks.
	Health(id string) *teamv1.Health
}

// Staff is a Members that knows of changes since a run began. The run keeps the
// members that it began with for its choices; who was disabled or removed since is
// refused when it is to begin something, and goes on with what it has begun.
type Staff interface {
	Members
	// Gone says why the member of a team gets no more work; nil: it does.
	Gone(team, member string) *agent.Error
}

// Member is an agent's place in a team.
type Member struct {
	// ID of the member in the team; default: Agent.
	ID string
	// Agent is its id in Members. Required.
	Agent string
	// Role it plays, for people and models.
	Role string
	// Description overrides the agent's own for this team.
	Description string
	// Priority orders the roster, highest first.
	Priority int32
	// Disabled members get no work and do not count for health.
	Disabled bool
	// Timeout of one delegation with its retries; 0 is the team's member_timeout.
	Timeout time.Duration
	// Retry overrides the team's.
	Retry *teamv1.Retry
	// StreamInner shows what the member puts out to the readers of the team's task
	// as it comes, as an artifact named by its path.
	StreamInner bool
	// HideText leaves the texts out of that.
	HideText bool
	// History is what it sees of what was said before; default: the mode's.
	History HistoryScope
	// SkipSummarization makes its reply the team's: the leader is not asked again.
	SkipSummarization bool
	// Async overrides the coordinator's: the leader goes on while it works.
	Async *bool
	// Handoff are the members that it may hand over to in a swarm; none is all others.
	Handoff []string
	// HandoffAfter is the member of a swarm that takes over after its reply; empty:
	// its reply is the swarm's.
	HandoffAfter string
}

// Config is what a Team is made of.
type Config struct {
	// ID of the team. Required.
	ID string
	// Name for people; default: the ID.
	Name string
	// Description says what the team does.
	Description string
	// InputModes are the media types that it takes; nil takes everything.
	InputModes []string
	// OutputModes are the media types that it answers with; nil says nothing.
	OutputModes []string
	// Mode is shown in the team's metadata: supervisor, workflow, or a name of your own.
	Mode string
	// Scheduler decides. Required.
	Scheduler Scheduler
	// Members of the team, each id once.
	Members []Member
	// Registry finds the members' agents at dispatch. Required with members.
	Registry Members
	// Model answers the MODEL steps of a scheduler that has some; members without
	// a model take it, too.
	Model agent.Model
	// Tools that the model of a coordinator may call besides its members, each name once.
	Tools []agent.Tool
	// ToolSets hold tools besides Tools whose lists are not known beforehand.
	ToolSets []agent.ToolSet
	// MemberTools are the tools that somebody has by working in the team: a member with
	// a model by its id, the leader by the team's. nil is none.
	MemberTools func(id string) agent.ToolSet
	// Skills of the leader itself; its Info lists them before the members'.
	Skills []*teamv1.Skill
	// Limits of a run; unset ones take their defaults.
	Limits *teamv1.Limits
	// Review has a judge look at every result of a run; nil: none does, unless the
	// brief of a run asks for it.
	Review *Review
	// Memory: the team remembers the conversation that a context id names: as a root,
	// and as a member under its path. Unset: each run begins from nothing.
	Memory bool
	// Revision of the definition, for the record.
	Revision string
	// ReportErrors leaves failed members to the scheduler. Not set: the first
	// failure ends the run with the member's own error.
	ReportErrors bool
	// Guards look at the messages of the team and of its members; none.
	Guards agent.Guards
	// Upstreams knows how calls went of late; nil: every call is made.
	Upstreams Upstreams
	// Log gets warnings; nil is none.
	Log *zap.Logger
}

// HistoryScope is what a member is shown of what was said before.
type HistoryScope string

// The scopes; empty is the mode's: HistoryParent in a coordinator,
// HistoryConversation in a swarm, else HistoryLastResult.
const (
	// HistoryLastResult: the message it is given, and nothing else.
	HistoryLastResult HistoryScope = "LAST_RESULT"
	// HistoryParent: the request, and what the one who decided has said and seen
	// in this run.
	HistoryParent HistoryScope = "PARENT_BRANCH"
	// HistoryIsolated: the task it is given, without the results of those that
	// worked before it in the same turn.
	HistoryIsolated HistoryScope = "ISOLATED"
	// HistoryConversation: as HistoryParent, and the conversation before this run.
	HistoryConversation HistoryScope = "CONVERSATION"
)

// Upstreams knows how calls went of late, of all teams of a process: it keeps
// them from calling what does not work, and from repeating too much.
// A *upstream.Guard is one. Safe for concurrent use; it never blocks.
type Upstreams interface {
	// Allow asks whether the agent registered under an id may be called. The error
	// is BREAKER_OPEN; else done is called once, with what came of the call.
	Allow(agentID string) (done func(agent.Judgement), err error)
	// Open says why an agent is not called now, in words that stay the same as
	// long as that holds; empty: it is called.
	Open(agentID string) string
	// Called counts the first attempt of a call of an agent, model or tool.
	Called(upstream string)
	// MayRetry counts a further one, unless there were too many of them.
	MayRetry(upstream string) bool
}
