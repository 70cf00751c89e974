package a2a

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Limits of push configurations.
const (
	// MaxPushTask is how many configurations a task may have.
	MaxPushTask = 16
	// MaxPushOwner is how many an owner may have that may still be told something.
	MaxPushOwner = 1000
)

// Errors of Pushes.
var (
	// ErrPushTask: the task has as many configurations as it may have.
	ErrPushTask = errors.New("too many push configurations of the task")
	// ErrPushOwner: the owner has.
	ErrPushOwner = errors.New("too many push configurations of the owner")
	// ErrPushLost: the configuration is not the claim's any more: it was replaced,
	// deleted, or claimed by somebody else.
	ErrPushLost = errors.New("the push configuration was taken over")
)

// Push is a configuration as a store keeps it, with how far its receiver was told.
type Push struct {
	// Task is the task that it is about, a root or a child.
	Task Key
	// Config holds secrets and is never shown as it is. Its id is unique within the
	// task. Shared: read only.
	Config *a2av1.TaskPushNotificationConfig
	// Version of the protocol that the receiver is told in; empty is ProtocolVersion.
	Version string
	PushState
}

// Origin is whom the configuration's calls go to: scheme, host and port, the same
// for all spellings.
func (p Push) Origin() string { return originOf(p.Config.GetUrl()) }

// originOf is whom calls of an address go to; empty of what is none.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// TaskFirst as PushState.Seen: the receiver is told the task as it is, then what follows.
const TaskFirst = -1

// PushState is how far a receiver was told.
type PushState struct {
	// Seen is the sequence of the last event that was dealt with.
	Seen int64
	// Part is how many notifications of the next event were dealt with already.
	Part int
	// Tries is how often the next notification was tried in vain.
	Tries int
	// Since is when the first of these tries was made.
	Since time.Time
	// Failing: a notification was given up and none was taken since.
	Failing bool
	// Error is why the last try failed, for the owner; empty after a success.
	Error string
	// Ended: nothing comes any more.
	Ended bool
}

// PushClaim is the right to tell a receiver for a while, fenced by its epoch.
type PushClaim struct {
	Push
	// Epoch of the claim; no other one of the task and the configuration's id has it,
	// whether it was replaced or deleted and made again.
	Epoch int64
	// Until is when the claim lapses, by the store's clock.
	Until time.Time
}

// DeadPush is a notification that was given up.
type DeadPush struct {
	// Config is the id of the configuration.
	Config string
	// Seq is that of its event, Part its number among the notifications of the event.
	Seq  int64
	Part int
	// Tries is how many there were.
	Tries int
	// Error is why the last one failed.
	Error string
	// At is when it was given up.
	At time.Time
}

// PushThen is what comes after a step of a claim.
type PushThen int

// What comes after a step.
const (
	// PushHold keeps the claim; PushStep.At is when it lapses.
	PushHold PushThen = iota
	// PushDue gives the claim up: the configuration is due at PushStep.At.
	PushDue
	// PushIdle gives it up until something happens behind PushState.Seen.
	PushIdle
)

// PushStep is what a holder puts on record.
type PushStep struct {
	PushState
	// Dead is a notification that is given up; nil is none.
	Dead *DeadPush
	Then PushThen
	At   time.Time
}

// Pushes keeps the push configurations of tasks. A configuration is due when
// it is made, and when an event is put on record of a task with an idle one, in
// the same transaction; with its task it is deleted. Safe for concurrent use.
type Pushes interface {
	// PutPush keeps a configuration, in the place of the one with its id: the
	// receiver is then told what the one before had not dealt with. Of the state a
	// new one takes Seen. ErrNotFound, ErrPushTask, ErrPushOwner.
	PutPush(ctx context.Context, p Push) error
	// Push returns a configuration of a task. ErrNotFound, ErrDataLoss.
	Push(ctx context.Context, k Key, id string) (Push, error)
	// ListPushes returns up to limit configurations of a task, by id, behind an id,
	// without those that are damaged. ErrNotFound when there is no such task.
	ListPushes(ctx context.Context, k Key, after string, limit int) ([]Push, error)
	// DeletePush deletes a configuration and what was given up of it; one that is
	// not there is no error. ErrNotFound when there is no such task.
	DeletePush(ctx context.Context, k Key, id string) error
	// DeadPushes returns the notifications of a task that were given up, the latest
	// first, at most limit, and how many there are.
	DeadPushes(ctx context.Context, k Key, limit int) (list []DeadPush, total int, err error)

	// ClaimPushes takes up to limit configurations that are due, of all owners, for
	// a lease. next is when to ask again at the latest; zero is when told.
	ClaimPushes(ctx context.Context, limit int, lease time.Duration) (claims []PushClaim, next time.Time, err error)
	// HoldsPush reports whether a claim is still its holder's.
	HoldsPush(ctx context.Context, c PushClaim) (bool, error)
	// SettlePush puts a step on record. ErrPushLost.
	SettlePush(ctx context.Context, c PushClaim, s PushStep) error
	// PushWake receives when something may be due that was not. A hint.
	PushWake() <-chan struct{}
	// Now is the time by which things are due.
	Now() time.Time
}
