package a2a

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
)

// Fold computes a task from its events. A Store applies the events of a run to a Fold in order to
// return them as a Task. It is not safe for concurrent use.
type Fold = project.Fold

// NewFold returns the Fold of a scope of a root task before any event. An empty scope is the root
// task itself.
func NewFold(root, scope string) *Fold { return project.New(root, scope) }

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

// Key identifies a task of an owner. A store never looks a task up by its id alone.
type Key struct {
	// Owner is the owner of the task, as account/principal.
	Owner string
	// ID is the id of a root task, or that of a delegation within it: root~scope.
	ID string
}

// New describes a task to create.
type New struct {
	// Owner is the owner of the task, as account/principal.
	Owner string
	// Accepted is the first event of the task. Its TaskId is the id of the root task.
	Accepted *teamv1.Accepted
	// Kept are further events of the journal, which follow Accepted. Create sets their Seq and Time.
	Kept []*teamv1.Event
	// MessageID makes Create idempotent for the owner and the agent, for as long as the store
	// remembers message ids. If it is empty, each call creates a task.
	MessageID string
	// Digest is a digest of the message and the agent. If the MessageID is known with another
	// digest, the error is ErrReused.
	Digest []byte
	// Push is a push configuration that is created with the task. Its receiver is notified from
	// the first event on. Nil means none. It is used only if Config.Pushes is set. The
	// error is ErrPushOwner if the owner has too many.
	Push *a2av1.TaskPushNotificationConfig
	// PushVersion is the Version of Push; see the type Push.
	PushVersion string
	// Collaborations is the maximum number of running collaborations of the agent that belong to the
	// account of the owner, including this one. If it would be exceeded, the error is ErrBusy, except
	// for a known MessageID. 0 means that the task is not a collaboration. A collaboration that waits
	// for people or is paused does not count as running.
	Collaborations int
	// AccountCollaborations is the same for all agents together; the error is ErrAccountBusy. 0 means
	// no maximum.
	AccountCollaborations int
	// Entry is the catalog entry that defines the agent of a collaboration. If it no longer
	// exists, the error is ErrDeleted. It is empty if the agent is not in a catalog.
	Entry string
}

// Standing is to whom a root task belongs, and its state.
type Standing struct {
	// Agent is the id of the agent that the task was sent to, and Account the account that had made it by the API then,
	// empty for an agent of the configuration file.
	Agent, Account string
	ContextID      string
	State          a2av1.TaskState
}

// Record is a committed event with its position in the journal.
type Record struct {
	Seq   int64
	Event *teamv1.Event // shared; do not modify
}

// Filter selects tasks of an owner. The zero value selects all.
type Filter struct {
	Agent       string
	ContextID   string
	State       a2av1.TaskState
	StatusAfter time.Time // inclusive
	PageSize    int
	PageToken   string // NextToken of the previous page; if it is invalid, the error is ErrPageToken
	// Fits is called once with each task of the page, in order. It may remove from the task what
	// is not to be returned. If it returns false, the page ends before the task, unless the task
	// is the first. Nil means that all tasks fit.
	Fits func(*a2av1.Task) bool
}

// ErrPageToken means that the page token is invalid, or belongs to another owner or filter.
var ErrPageToken = errors.New("page token is not valid for this request")

// Page is a page of tasks, ordered by the time of their status, latest first, and then by id.
type Page struct {
	Tasks     []*a2av1.Task // elements of the tasks' lists are shared; do not modify them
	NextToken string        // token of the next page; empty on the last page
	Total     int           // number of all tasks that the filter selects
}

// Add appends t to the page. It returns false if t does not fit, in which case the page ends
// before t.
func (p *Page) Add(f Filter, t *a2av1.Task) bool {
	if f.Fits != nil && !f.Fits(t) && len(p.Tasks) > 0 {
		return false
	}
	p.Tasks = append(p.Tasks, t)
	return true
}

// Store stores tasks with their journals and inboxes. All methods that serve a caller take the
// owner. Implementations must be safe for concurrent use. Implementations must also pass the
// tests in internal/testkit/storetest.
type Store interface {
	// Create creates a task with its first event; its run is then due. If the owner has sent the
	// message before, existed is true and root is the task that was created then. Otherwise root
	// is the new task. See New for the errors.
	Create(ctx context.Context, n New) (root string, existed bool, err error)
	// Sent returns the root task that the message with this id created or was sent to, for as
	// long as the store remembers message ids. agent is the key of the agent that the message was for,
	// see agent.KeyOf; it is ignored if messageID contains a slash. The error is ErrNotFound if the
	// store does not know the message.
	Sent(ctx context.Context, owner, agent, messageID string) (root string, err error)
	// Put adds an input to the inbox of a task and makes its run due. It returns the number of
	// the input, and existed if an input with the same key was added before. The key of an answer
	// is that of its sender, who need not own the task. A question can have only one answer: the
	// store enforces that when it records the input, across all processes. p is a push
	// configuration of the task or of a delegation in it, or nil. It is stored together with the
	// input, as by Pushes.PutPush, unless the input is known already. Errors: ErrNotFound,
	// ErrTerminal, ErrReused, *AnsweredError, and with p also those of PutPush; after an error
	// nothing is stored.
	Put(ctx context.Context, k Key, in *teamv1.Inbound, digest []byte, p *Push) (n int64, existed bool, err error)
	// Task returns a task and the sequence number of its last event, from one consistent read.
	// Elements of the task's lists are shared; do not modify them. Errors: ErrNotFound,
	// ErrDataLoss.
	Task(ctx context.Context, k Key) (t *a2av1.Task, seq int64, err error)
	// Standing returns what is known of a visible root task without its events. Errors: ErrNotFound.
	Standing(ctx context.Context, k Key) (Standing, error)
	// Events returns up to limit committed events after the sequence number after, in order:
	// those of the scope of k and all scopes below. Errors: ErrNotFound, ErrDataLoss.
	Events(ctx context.Context, k Key, after int64, limit int) ([]Record, error)
	// List returns a page of the owner's root tasks.
	List(ctx context.Context, owner string, f Filter) (Page, error)
	// Watch returns a channel that receives a value when a root task may have new events. A value
	// is only a hint: values may be lost, so callers also poll. The caller must call stop. Watch is also
	// called before a task is created. A store that watches only existing tasks returns a nil channel then;
	// otherwise the channel receives a value when the task has events after the first one.
	Watch(root string) (wake <-chan struct{}, stop func())
}

// Journal gives the process that has claimed a run access to its events and its inbox. It is safe
// for concurrent use.
type Journal interface {
	// Load returns the recorded events that a replay needs, in order.
	Load(ctx context.Context) ([]*teamv1.Event, error)
	// Append adds events to the journal and sets the Seq and Time of each. For the event that
	// ends the run, they may be set later, but before Commit returns. The events are not durable
	// before Commit returns. Append blocks only while its queue is full. Errors: ErrFenced,
	// ErrLimit.
	Append(ctx context.Context, e ...*teamv1.Event) error
	// Commit returns when all events that have been appended are durable and visible to readers.
	// Errors: ErrFenced, ErrStorage.
	Commit(ctx context.Context) error
	// Inbound returns the inputs that no event has recorded yet, in order.
	Inbound(ctx context.Context) ([]*teamv1.Inbound, error)
	// Wake returns a channel that receives a value when the inbox may have changed.
	Wake() <-chan struct{}
}

// Claim is the exclusive right to run a root task. Epoch grows with each claim of the run; the
// store rejects writes under an earlier epoch.
type Claim struct {
	Root    string
	Owner   string
	Epoch   int64
	Journal Journal
	// Bytes is the size of the recorded events.
	Bytes int64
}

// Park says how a process gives up a claimed run. Done means that the run has ended. Otherwise
// the run is due again at Until, or when an input arrives; a zero Until means that it waits for
// an input only.
//
// Halts is not 0 if a halt has paused the run. It is the version of the halts that the process has
// seen. The run is then also due when a halt ends, and at once if the halts have another version.
type Park struct {
	Done  bool
	Until time.Time
	Halts int64
}

// Overview is the part of a store that lists all tasks of an owner or, with Find, of an account, for monitoring.
// Implementations must be safe for concurrent use.
type Overview interface {
	// Runs returns the status of the owner's visible root tasks, latest change of status first.
	// It includes only tasks that have not ended, unless f says otherwise.
	Runs(ctx context.Context, owner string, f RunFilter) ([]RunMark, error)
	// Find returns a page of the visible root tasks that a query selects, newest first; with MinCostMicros, those that
	// have spent most first. The error is ErrPageToken.
	Find(ctx context.Context, q TaskQuery) (FoundTasks, error)
	// Collaborating returns the ids of the owner's visible root tasks with a brief, newest first:
	// ids begin with the time of their creation, so the order is descending.
	Collaborating(ctx context.Context, owner string, f RootFilter) ([]string, error)
	// WatchAll returns a channel that receives a value when a root task of the owner may be new
	// or have new events, or when a board of the owner's account has changed. A value is only a
	// hint: values may be lost or arrive without a change, so callers also poll. The caller must
	// call stop.
	WatchAll(owner string) (wake <-chan struct{}, stop func())
}

// TaskQuery selects root tasks of an account. Except for Account, the zero value of a field selects all.
type TaskQuery struct {
	// Account is the account that the tasks belong to. Required.
	Account string
	// Owner is the owner of the tasks, as account/principal.
	Owner string
	// ID is the id of the only task to return.
	ID string
	// Agent is the agent that the tasks were sent to.
	Agent string
	// ContextID is the conversation of the tasks.
	ContextID string
	// State is the state of the tasks.
	State a2av1.TaskState
	// Text has words that are all in the beginning of the message of the tasks, whatever their case and order.
	Text string
	// Since and Until bound when the tasks were created. Since is included, Until is not.
	Since, Until time.Time
	// MinCostMicros is what the tasks have spent at least, in millionths of a USD.
	MinCostMicros int64
	// PageSize is the maximum number of tasks. Required.
	PageSize int
	// PageToken is the NextToken of the previous page.
	PageToken string
}

// FoundTasks is a page of tasks.
type FoundTasks struct {
	Tasks     []*teamv1.FoundTask
	NextToken string // token of the next page; empty on the last page
}

// RunFilter selects root tasks. The zero value selects all that have not ended.
type RunFilter struct {
	// Agent selects the tasks that were sent to this agent. Empty selects all.
	Agent string
	// Ended also selects tasks that have ended: all of them, or those that ended at or after
	// Since if it is set.
	Ended bool
	Since time.Time
	// Limit is the maximum number of results. 0 means no limit.
	Limit int
}

// RootFilter selects ids of root tasks. The zero value selects all.
type RootFilter struct {
	// Agent selects the tasks that were sent to this agent. Empty selects all.
	Agent string
	// Before selects the ids that sort before it. Empty selects all.
	Before string
	// Limit is the maximum number of ids. 0 means no limit.
	Limit int
}

// RunMark is the status of a root task.
type RunMark struct {
	Root     string
	Agent    string
	Seq      int64 // sequence number of the last event
	State    a2av1.TaskState
	StatusAt time.Time
}

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
