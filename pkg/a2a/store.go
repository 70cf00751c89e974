package a2a

import (
	"context"
	"errors"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
)

// Fold computes a task from its events. A Store applies the events of a run to one to say
// what Task returns. Not safe for concurrent use.
type Fold = project.Fold

// NewFold returns the fold of a scope of a root task before its first event. An empty scope
// is the root itself.
func NewFold(root, scope string) *Fold { return project.New(root, scope) }

// Errors of a Store.
var (
	// ErrNotFound: no such task for this owner. A foreign task is not found either.
	ErrNotFound = errors.New("not found")
	// ErrReused: the message id is known with other content.
	ErrReused = errors.New("message id reused with other content")
	// ErrTerminal: the task has ended; nothing more is taken.
	ErrTerminal = errors.New("task has ended")
	// ErrLimit: the journal is full.
	ErrLimit = errors.New("journal limit reached")
	// ErrDataLoss: what is on record of a task is damaged; other tasks are not.
	ErrDataLoss = errors.New("the record is damaged")
	// ErrStorage: the store cannot record now; nothing is acknowledged.
	ErrStorage = errors.New("store cannot record")
	// ErrAnswered means that the question has an answer; an *AnsweredError has it.
	ErrAnswered = errors.New("question has an answer")
	// ErrBusy: as many collaborations of the agent are under way as may be at once.
	ErrBusy = errors.New("collaboration in progress")
	// ErrDeleted means that the agent of a task to create has been deleted.
	ErrDeleted = errors.New("agent has been deleted")
)

// AnsweredError is the error of Put for a second answer to a question.
type AnsweredError struct {
	// First is the answer that was recorded first. It is shared: do not modify it.
	First *teamv1.Answered
}

// Error returns the text of ErrAnswered: not every caller may see who answered.
func (*AnsweredError) Error() string { return ErrAnswered.Error() }

// Is reports whether target is ErrAnswered.
func (*AnsweredError) Is(target error) bool { return target == ErrAnswered }

// Key names a task of an owner. There is no access by id alone.
type Key struct {
	// Owner is account/principal.
	Owner string
	// ID is a root's id, or a child's: root~scope.
	ID string
}

// New is a task to create.
type New struct {
	Owner string
	// Accepted is the first event; its task_id is the root's id.
	Accepted *teamv1.Accepted
	// MessageID makes the creation unique for its owner and agent as long as message ids
	// are remembered; empty means that a repeated message creates another task.
	MessageID string
	// Digest of the message and the agent: the same id with another digest is ErrReused.
	Digest []byte
	// Push is a configuration that the task begins with; nil is none. Its receiver is
	// told from the first event on. Only if the store implements Pushes. ErrPushOwner.
	Push *a2av1.TaskPushNotificationConfig
	// PushVersion is its Push.Version.
	PushVersion string
	// Collaborations is how many of the agent's collaborations may run at once, this
	// one included; 0: it is none. ErrBusy; a message that is known begins nothing,
	// and is never refused so.
	Collaborations int
	// Entry is the catalog entry that defines the agent of a collaboration. It must still
	// exist, else ErrDeleted. Empty if the agent is not in a catalog.
	Entry string
}

// Record is a committed event and where it stands.
type Record struct {
	Seq   int64
	Event *teamv1.Event // shared: read only
}

// Filter selects tasks of an owner; the zero value selects all.
type Filter struct {
	Agent       string
	ContextID   string
	State       a2av1.TaskState
	StatusAfter time.Time // inclusive
	PageSize    int
	PageToken   string // of the page before; ErrPageToken when it is none
	// Fits is given each task of a page in order, once, and may cut it to what is
	// shown. False ends the page before the task, unless it is the first. Nil: all fit.
	Fits func(*a2av1.Task) bool
}

// ErrPageToken: the page token is none of this owner and filter.
var ErrPageToken = errors.New("page token is not valid for this request")

// Page is a page of tasks, newest status first, then by id.
type Page struct {
	Tasks     []*a2av1.Task // whole tasks, what their lists hold is shared: the handler cuts them to what was asked for
	NextToken string        // empty on the last page
	Total     int           // before paging
}

// Add puts a task at the end of the page. False: it does not fit, and the page ends
// before it.
func (p *Page) Add(f Filter, t *a2av1.Task) bool {
	if f.Fits != nil && !f.Fits(t) && len(p.Tasks) > 0 {
		return false
	}
	p.Tasks = append(p.Tasks, t)
	return true
}

// Store keeps tasks, their journals and their inboxes. Every method that serves
// a caller takes the owner. Safe for concurrent use.
type Store interface {
	// Create makes a task with its first event, due to run. existed reports that
	// the owner has sent the message before: root is then the task made from it.
	Create(ctx context.Context, n New) (root string, existed bool, err error)
	// Sent returns the root that a message id of the owner began or was left for,
	// within the time that message ids are remembered. agent is the one that the message
	// was for; it is ignored for a key with a slash. ErrNotFound.
	Sent(ctx context.Context, owner, agent, messageID string) (root string, err error)
	// Put leaves an input in the inbox of a task and makes it due. existed reports that
	// the input's key is known. The key of an answer belongs to its sender, whoever owns
	// the task. A question takes one answer; the store decides this where it records the
	// input, across all processes. p is a configuration of the task or of a child that is
	// kept with the input as by Pushes.PutPush, nil if there is none: both are recorded, or
	// with an error neither, and with an input that is known no configuration is.
	// ErrNotFound, ErrTerminal, ErrReused, *AnsweredError; with p also those of PutPush.
	Put(ctx context.Context, k Key, in *teamv1.Inbound, digest []byte, p *Push) (n int64, existed bool, err error)
	// Task returns the A2A task and the sequence it shows, from one read. What
	// the task's lists hold is shared: read only.
	Task(ctx context.Context, k Key) (t *a2av1.Task, seq int64, err error)
	// Events returns committed events after a sequence, in order, of the key's
	// scope and below; at most limit.
	Events(ctx context.Context, k Key, after int64, limit int) ([]Record, error)
	// List returns a page of the owner's root tasks.
	List(ctx context.Context, owner string, f Filter) (Page, error)
	// Watch returns a channel that receives when a root may have new events. A
	// hint: losing one costs time, never an event. stop must be called.
	Watch(root string) (wake <-chan struct{}, stop func())
}

// Journal is what the owner of one claimed run holds. Safe for concurrent use.
type Journal interface {
	// Load returns the events on record that a replay needs, in order.
	Load(ctx context.Context) ([]*teamv1.Event, error)
	// Append gives each event its place: it sets Seq and Time, those of the end of the run
	// at the latest before Commit returns. It blocks only while the queue is full.
	// ErrFenced, ErrLimit.
	Append(ctx context.Context, e ...*teamv1.Event) error
	// Commit returns when everything appended is durable and can be read. ErrFenced, ErrStorage.
	Commit(ctx context.Context) error
	// Inbound returns the inbox rows that no event has named yet, in order.
	Inbound(ctx context.Context) ([]*teamv1.Inbound, error)
	// Wake receives when the inbox may have changed.
	Wake() <-chan struct{}
}

// Claim is the right to run a root task, fenced by its epoch.
type Claim struct {
	Root    string
	Owner   string
	Epoch   int64
	Journal Journal
}

// Park says how a drive ended: Done, or until when it waits; the zero Until
// waits for an input.
type Park struct {
	Done  bool
	Until time.Time
}
