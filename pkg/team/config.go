package team

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/inputs"
)

// Members finds agents by id. The agent manager implements it.
type Members interface {
	// Agent returns the agent registered under id, or an *agent.Error.
	Agent(id string) (agent.Agent, error)
	// Health returns the last known health of the agent, at most 5 s old. It never blocks.
	Health(id string) *teamv1.Health
}

// Staff is a Members that knows which members were disabled since a run began. A run keeps the
// roster that it began with. A member that is gone gets no new work, but finishes the work that it
// has begun.
type Staff interface {
	Members
	// Gone returns why the member of a team gets no more work; nil if it does.
	Gone(team, member string) *agent.Error
}

// Member is an agent's place in a team.
type Member struct {
	// ID of the member in the team; default: Agent.
	ID string
	// Agent is the id of the agent in Members. Required.
	Agent string
	// Role of the member, shown to people and models.
	Role string
	// Description replaces the agent's own description in this team.
	Description string
	// Priority orders the roster, highest first.
	Priority int32
	// Disabled members get no work and do not count for health.
	Disabled bool
	// Timeout of one delegation including its retries; 0 means the team's member_timeout.
	Timeout time.Duration
	// Retry overrides the retry policy of the team.
	Retry *teamv1.Retry
	// StreamInner streams the member's output to readers of the team's task, as an artifact named
	// by the member's path.
	StreamInner bool
	// HideText leaves the texts out of that stream.
	HideText bool
	// History is what the member sees of earlier messages; empty means the default of the mode.
	History HistoryScope
	// SkipSummarization makes the member's reply the team's: the leader is not asked again.
	SkipSummarization bool
	// Async overrides the coordinator's setting: whether the leader continues while the member
	// works.
	Async *bool
	// Handoff lists the members that it may hand over to in a swarm; empty means all others.
	Handoff []string
	// HandoffAfter is the member of a swarm that takes over after this one's reply; if it is empty,
	// the reply is the swarm's.
	HandoffAfter string
	// Output is the name of the member's last result, which later members read; empty means that it has no name.
	Output string
	// Required says that the work of the member is part of every result of the team: a run that
	// would end without it fails with REQUIRED_WORK_FAILED.
	Required bool
	// Approve returns who decides whether a delegation with this message may begin, or nil if it needs no
	// approval. It must return the same for the same message. A nil function means that no delegation
	// needs approval.
	Approve func(input *a2av1.Message) *agent.Approvers
	// Accept has a judge decide on each result of the member before the team is given it; nil means
	// that every result is accepted. A result that is not accepted goes back to the member with the
	// judge's feedback. If that of the last round is not accepted either, the delegation fails with
	// QUALITY_THRESHOLD_NOT_MET. Without a judge the team's model judges, or in a team without a model
	// a check that the result is not empty. The default Threshold of a Check or Format is 1; other
	// judges require one. The time and the budget of the delegation bound all rounds together. A
	// transfer is not judged, and neither is the work of a detached task.
	Accept *Review
}

// Config is the configuration of a Team.
type Config struct {
	// ID of the team. Required.
	ID string
	// Name for people; empty means the ID.
	Name string
	// Description says what the team does.
	Description string
	// InputModes are the media types that the team accepts; nil means all.
	InputModes []string
	// OutputModes are the media types of its replies; nil means unspecified.
	OutputModes []string
	// Inputs are values that callers give by name, in data parts of their messages. A message that lacks one, or has a wrong
	// one, is rejected.
	Inputs inputs.List
	// Mode is shown in the team's metadata: supervisor, workflow, or a name of your own.
	Mode string
	// Scheduler decides which steps run. Required.
	Scheduler Scheduler
	// Members of the team. Each id must be unique.
	Members []Member
	// Registry finds the members' agents when they are dispatched. Required if there are members.
	Registry Members
	// Model answers the MODEL steps of the scheduler. Members without a model use it too.
	Model agent.Model
	// Tools that the model of a coordinator may call besides its members. Names must be unique.
	Tools []agent.Tool
	// ToolSets are further sources of tools, whose lists are read when a run begins.
	ToolSets []agent.ToolSet
	// MemberTools returns the tools that the team provides to a member, by the member's id, or to
	// its leader, by the team's id. A nil function or a nil result means none.
	MemberTools func(id string) agent.ToolSet
	// Skills of the leader itself; Info lists them before those of the members.
	Skills []*teamv1.Skill
	// Limits of a run; unset fields take their defaults.
	Limits *teamv1.Limits
	// Review has a judge score every result of a run. nil means no judge, unless the brief of a run
	// asks for one.
	Review *Review
	// Memory makes the team remember the conversation of a context id, as a root and, under its
	// path, as a member. If it is not set, each run begins without memory.
	Memory bool
	// ToolMemory is how many of the last tool calls of a conversation the team remembers with their
	// results; nil means agent.DefaultToolCalls.
	ToolMemory *int
	// Revision of the definition, for the record.
	Revision string
	// ReportErrors passes failures of members to the scheduler. If it is not set, the first failure
	// ends the run with the member's error.
	ReportErrors bool
	// AcceptTruncated takes turns of the model whose text was cut by a limit of tokens, with a warning. If
	// it is not set, such a turn is asked for again with a higher limit or from a fallback, and then fails.
	AcceptTruncated bool
	// AllowEmpty lets a run end with an empty answer. If it is not set, such a run fails with NO_RESPONSE.
	// A run for a team that the agent is a member of may always end so.
	AllowEmpty bool
	// Guards are the middlewares that check the messages of the team and its members.
	Guards agent.Guards
	// Upstreams are the circuit breakers and retry budgets; nil allows every call.
	Upstreams Upstreams
	// Log receives warnings; nil discards them.
	Log *zap.Logger
}

// HistoryScope says what a member is shown of earlier messages.
type HistoryScope string

// The history scopes. The default is HistoryParent with a supervisor or a coordinator,
// HistoryConversation in a swarm, and HistoryLastResult in all other modes.
const (
	// HistoryLastResult shows nothing besides the message that the member is given.
	HistoryLastResult HistoryScope = "LAST_RESULT"
	// HistoryParent shows the request, and what the deciding agent has said and seen in this run.
	HistoryParent HistoryScope = "PARENT_BRANCH"
	// HistoryIsolated shows only the task, without the results of earlier members in the same turn.
	HistoryIsolated HistoryScope = "ISOLATED"
	// HistoryConversation shows the same as HistoryParent, and the conversation before this run.
	HistoryConversation HistoryScope = "CONVERSATION"
)

// Upstreams are circuit breakers and retry budgets, shared by all teams of a process: they stop
// calls of agents that are down, and bound the share of retries. Each account has its own, so that the failures of one
// do not concern the calls of another; the account of a run without an owner is empty. *upstream.Guard implements it.
// Implementations are safe for concurrent use and never block.
type Upstreams interface {
	// Allow asks whether an account may call the agent registered under an id. If not, the error is
	// BREAKER_OPEN. Otherwise the caller calls done exactly once, with the judgement of the call.
	Allow(account, agentID string) (done func(agent.Judgement), err error)
	// Open returns why an account does not call an agent now; empty if it may. The text does not change while
	// the breaker stays open.
	Open(account, agentID string) string
	// Called counts the first attempt of a call of an agent, model or tool.
	Called(account, upstream string)
	// Retry counts a retry, and returns how long it has to wait at least. The error says that the retry budget is
	// exhausted, and that the call is not retried.
	Retry(account, upstream string) (wait time.Duration, err error)
}

// Fault is one fault in the rules of a supervisor or the steps of a workflow. As an *agent.Error it
// is INVALID_TEAM_CONFIG.
type Fault struct {
	// Path of the field below the mode's key in the configuration file, such as rules[2].when or
	// steps[1].parallel[0].after[0].
	Path string
	// Subject names the rule or step for people, such as: rule "rewrite".
	Subject string
	// Err says what is wrong. It is an *expr.Error if the fault has a position in a text or a list
	// of valid names.
	Err error
}

// Error returns the subject and what is wrong with it.
func (f *Fault) Error() string { return f.Subject + ": " + f.Err.Error() }

// Unwrap returns Err, and the fault as an *agent.Error.
func (f *Fault) Unwrap() []error {
	return []error{f.Err, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "%s", f.Error())}
}

// Faults collects faults. The zero value is empty and ready to use.
type Faults []error

// Add adds a fault; it does nothing if err is nil.
func (fs *Faults) Add(path, subject string, err error) {
	if err != nil {
		*fs = append(*fs, &Fault{Path: path, Subject: subject, Err: err})
	}
}

// Addf adds a fault with a formatted message.
func (fs *Faults) Addf(path, subject, format string, args ...any) {
	fs.Add(path, subject, fmt.Errorf(format, args...))
}

// Err returns the faults joined into one error; nil if there are none.
func (fs Faults) Err() error { return errors.Join(fs...) }
