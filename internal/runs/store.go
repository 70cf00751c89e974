package runs

import (
	"context"
	"errors"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

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

// MaxPageBytes is the maximum size of the entries of a list in one response, encoded as Protocol
// Buffers. gRPC clients accept 4 MiB by default.
const MaxPageBytes = 3 << 20
