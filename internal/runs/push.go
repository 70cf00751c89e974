package runs

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Pushes is the part of a store that stores push configurations and the state of
// their delivery. Without it, push notifications are not supported. A
// configuration is due when it has been created. If it is idle, it becomes due in the transaction
// that records an event of its task. It is deleted with its task. Implementations must be safe
// for concurrent use.
type Pushes interface {
	// PutPush stores a configuration. If there is one with the same id, it is replaced, and the
	// receiver gets the notifications that the previous one had not received. For a new
	// configuration only the field Seen of the state is used. Errors: ErrNotFound, ErrPushTask,
	// ErrPushOwner.
	PutPush(ctx context.Context, p Push) error
	// Push returns a configuration of a task. Errors: ErrNotFound, ErrDataLoss.
	Push(ctx context.Context, k Key, id string) (Push, error)
	// ListPushes returns up to limit configurations of a task, ordered by id and beginning after
	// the id after. Damaged configurations are left out. It returns ErrNotFound if there is no
	// such task.
	ListPushes(ctx context.Context, k Key, after string, limit int) ([]Push, error)
	// DeletePush deletes a configuration and its abandoned notifications. It does nothing if
	// there is no such configuration. It returns ErrNotFound if there is no such task.
	DeletePush(ctx context.Context, k Key, id string) error
	// DeadPushes returns up to limit abandoned notifications of a task, the latest first, and
	// their total number.
	DeadPushes(ctx context.Context, k Key, limit int) (list []DeadPush, total int, err error)

	// ClaimPushes claims up to limit configurations that are due, of all owners, each for the
	// duration of lease. next is the time at which the caller should call again at the latest; if
	// it is zero, the caller waits for PushWake.
	ClaimPushes(ctx context.Context, limit int, lease time.Duration) (claims []PushClaim, next time.Time, err error)
	// HoldsPush reports whether a claim is still valid.
	HoldsPush(ctx context.Context, c PushClaim) (bool, error)
	// SettlePush records a step of the holder of a claim. It returns ErrPushLost if the claim is
	// no longer valid.
	SettlePush(ctx context.Context, c PushClaim, s PushStep) error
	// PushWake returns a channel that receives a value when a configuration may have become due.
	// A value is only a hint.
	PushWake() <-chan struct{}
	// Now returns the time of the clock that decides what is due.
	Now() time.Time
}

// Limits of push configurations.
const (
	// MaxPushTask is the maximum number of configurations of a task.
	MaxPushTask = 16
	// MaxPushOwner is the maximum number of configurations of an owner that may still receive
	// notifications.
	MaxPushOwner = 1000
)

// Errors of Pushes.
var (
	// ErrPushTask means that the task has MaxPushTask configurations.
	ErrPushTask = errors.New("too many push configurations of the task")
	// ErrPushOwner means that the owner has MaxPushOwner configurations.
	ErrPushOwner = errors.New("too many push configurations of the owner")
	// ErrPushLost means that a claim is no longer valid: the configuration was replaced, deleted
	// or claimed by another process.
	ErrPushLost = errors.New("the push configuration was taken over")
)

// Push is a push configuration as it is stored, with the state of its delivery.
type Push struct {
	// Task is the root task or delegation that the configuration is for.
	Task Key
	// Config is the configuration, including its secrets, which must never be shown. Its id is
	// unique within the task. It is shared; do not modify it.
	Config *a2av1.TaskPushNotificationConfig
	// Version is the version of the protocol in which notifications are sent. Empty means
	// ProtocolVersion.
	Version string
	PushState
}

// Origin returns the receiver's scheme, host and port in a normal form, so that equal receivers
// have equal origins.
func (p Push) Origin() string { return Origin(p.Config.GetUrl()) }

// originOf returns the origin of a URL, or "" if it cannot be parsed.
func Origin(address string) string {
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

// TaskFirst is the value of PushState.Seen with which the first notification is the task as it
// is, followed by its further changes.
const TaskFirst = -1

// PushState is the state of the delivery of a configuration's notifications.
type PushState struct {
	// Seen is the sequence number of the last event whose notifications have all been delivered
	// or abandoned, or TaskFirst.
	Seen int64
	// Part is the number of notifications of the next event that have been delivered or
	// abandoned.
	Part int
	// Tries is the number of failed attempts to deliver the next notification.
	Tries int
	// Since is the time of the first of these attempts.
	Since time.Time
	// Failing says that a notification was abandoned and none has been delivered since.
	Failing bool
	// Error describes, for the owner, why the last attempt failed. It is empty after a success.
	Error string
	// Ended says that there will be no more notifications.
	Ended bool
}

// PushClaim is the exclusive right to deliver a configuration's notifications for a limited time.
type PushClaim struct {
	Push
	// Epoch identifies the claim. It is never used again for a configuration of this task with
	// this id, even if the configuration is replaced, or deleted and created again.
	Epoch int64
	// Until is the time at which the claim expires, by the clock of the store.
	Until time.Time
}

// DeadPush is a notification that was abandoned after too many failed attempts.
type DeadPush struct {
	// Config is the id of the configuration.
	Config string
	// Seq is the sequence number of the event, and Part the number of the notification among
	// those of the event.
	Seq  int64
	Part int
	// Tries is the number of attempts.
	Tries int
	// Error describes why the last attempt failed.
	Error string
	// At is the time at which the notification was abandoned.
	At time.Time
}

// PushThen says what happens to a claim after a step.
type PushThen int

// The possible effects of a step on its claim.
const (
	// PushHold extends the claim until PushStep.At.
	PushHold PushThen = iota
	// PushDue releases the claim. The configuration is due again at PushStep.At.
	PushDue
	// PushIdle releases the claim. The configuration is due again when there is an event after
	// PushState.Seen.
	PushIdle
)

// PushStep is the progress that the holder of a claim records.
type PushStep struct {
	PushState
	// Dead is a notification that has been abandoned. Nil means none.
	Dead *DeadPush
	Then PushThen
	At   time.Time
}
