package rig

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Receiver is a webhook for push notifications. Its address stays the same when it is
// restarted.
type Receiver struct {
	// URL is the URL to register.
	URL string

	t       testing.TB
	address string
	server  *http.Server
	changed chan struct{} // holds one signal

	mu     sync.Mutex
	answer func(n int) int // returns the HTTP status of the nth call; guarded by mu
	got    []Notification  // notifications answered with a 2xx status; guarded by mu
	calls  int             // guarded by mu
}

// Notification is a notification that the receiver has accepted.
type Notification struct {
	ID       string
	Header   http.Header
	Response *a2av1.StreamResponse
}

// Seq returns the cursor in the notification, 0 if it has none.
func (n Notification) Seq() int64 {
	for _, m := range []*a2av1.StreamResponse{n.Response} {
		if run := a2a.RunOf(m.GetStatusUpdate().GetMetadata()); run != nil {
			return run.GetSeq()
		}
		if run := a2a.RunOf(m.GetArtifactUpdate().GetMetadata()); run != nil {
			return run.GetSeq()
		}
	}
	return a2a.RunOf(n.Response.GetTask().GetMetadata()).GetSeq()
}

// NewReceiver starts a receiver. It is stopped when the test ends.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{t: t, address: "127.0.0.1:" + child.FreePort(t), changed: make(chan struct{}, 1)}
	r.Start()
	r.URL = "http://" + r.address + "/hook"
	t.Cleanup(r.Kill)
	return r
}

// Start starts the receiver again at its address.
func (r *Receiver) Start() {
	r.t.Helper()
	l, err := net.Listen("tcp", r.address) //nolint:noctx // does not block
	if err != nil {
		r.t.Fatal(err)
	}
	s := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = s
	go s.Serve(l) //nolint:errcheck // until it is killed
}

// Kill stops the receiver and closes its connections.
func (r *Receiver) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.Close()
}

// Answer sets the function that returns the HTTP status of a call by its number, from 1;
// nil means 200.
func (r *Receiver) Answer(f func(n int) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// ServeHTTP records a notification.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	n := Notification{ID: req.Header.Get("A2A-Notification-Id"), Header: req.Header.Clone(), Response: &a2av1.StreamResponse{}}
	if err := wire.Unmarshal(b, n.Response); err != nil {
		r.t.Errorf("an invalid notification: %v: %s", err, b)
	}
	r.mu.Lock()
	r.calls++
	code := http.StatusOK
	if r.answer != nil {
		code = r.answer(r.calls)
	}
	if code < 300 {
		r.got = append(r.got, n)
	}
	r.mu.Unlock()
	w.WriteHeader(code)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Calls returns the number of calls.
func (r *Receiver) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// Taken returns the accepted notifications in the order of their arrival.
func (r *Receiver) Taken() []Notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// Until waits until enough returns true for the accepted notifications. what describes the
// condition.
func (r *Receiver) Until(t testing.TB, what string, enough func([]Notification) bool) []Notification {
	t.Helper()
	late := time.After(60 * time.Second)
	for {
		if got := r.Taken(); enough(got) {
			return got
		}
		select {
		case <-r.changed:
		case <-late:
			t.Fatalf("after %d calls, %d accepted: still waiting for %s", r.Calls(), len(r.Taken()), what)
		}
	}
}

// Ended reports whether a notification says that its task has ended.
func Ended(n Notification) bool {
	state := n.Response.GetStatusUpdate().GetStatus().GetState()
	if t := n.Response.GetTask(); t != nil {
		state = t.GetStatus().GetState()
	}
	switch state {
	case a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED:
		return true
	default:
		return false
	}
}

// TaskOf returns the ID of the task that a notification is about.
func TaskOf(n Notification) string {
	switch p := n.Response.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		return p.Task.GetId()
	case *a2av1.StreamResponse_StatusUpdate:
		return p.StatusUpdate.GetTaskId()
	case *a2av1.StreamResponse_ArtifactUpdate:
		return p.ArtifactUpdate.GetTaskId()
	}
	return ""
}

// Once removes repeated notifications.
func Once(list []Notification) []Notification {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(n Notification) bool {
		again := seen[n.ID]
		seen[n.ID] = true
		return again
	})
}
