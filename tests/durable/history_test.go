//go:build linux

package durable

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Ops of an entry.
const (
	opStart  = "start"  // the server is started: a new life; Both says that the last one goes on for a while
	opReady  = "ready"  // it says so; Took
	opKill   = "kill"   // it was killed: Text says when, Count how many tasks were under way
	opSend   = "send"   // a message is going to be sent: Message, Agent, Text
	opTask   = "task"   // acknowledged: the task of a message
	opReply  = "reply"  // acknowledged: a question's answer was taken
	opSee    = "see"    // a subscriber has seen what Body holds, of Seq; 0 where more of the same event follows
	opEnd    = "end"    // acknowledged: the task has ended, with State and Text
	opCall   = "call"   // a member was called: Member, Key, Text
	opLeak   = "leak"   // somebody else's task was shown
	opFailed = "failed" // the client saw what it must not see: Text
)

// entry is one thing that happened.
type entry struct {
	At      time.Time     `json:"at"`
	Op      string        `json:"op"`
	Life    int           `json:"life"` // of the server, from 1
	Owner   int           `json:"owner,omitempty"`
	Message string        `json:"message,omitempty"`
	Agent   string        `json:"agent,omitempty"`
	Task    string        `json:"task,omitempty"`
	Member  string        `json:"member,omitempty"`
	Key     string        `json:"key,omitempty"`
	State   string        `json:"state,omitempty"`
	Text    string        `json:"text,omitempty"`
	Seq     int64         `json:"seq,omitempty"`
	Body    []byte        `json:"body,omitempty"` // a StreamResponse
	Both    bool          `json:"both,omitempty"`
	Snap    bool          `json:"snap,omitempty"`   // it is a whole task
	Stream  int           `json:"stream,omitempty"` // which of its client's streams told it
	Open    int64         `json:"open,omitempty"`   // the cursor that the stream began behind
	Count   int           `json:"count,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Late    bool          `json:"late,omitempty"` // a call that may be of the life before: what a process sent just before it died can come in behind its end

	reader *watch // who saw it
}

// historyFile is where a history is kept.
const historyFile = "history.json"

// history is everything that happened, in order. It is on disk before it
// counts. Safe for concurrent use.
type history struct {
	path string

	mu      sync.Mutex
	file    *os.File
	entries []entry
	life    int
	acks    int           // since the server was started
	open    int           // tasks that were acknowledged and have not ended
	changed chan struct{} // closed and replaced at each acknowledgement
	err     error         // of the file
}

func newHistory(t testing.TB) *history {
	t.Helper()
	path := filepath.Join(t.ArtifactDir(), historyFile)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{path: path, file: f, changed: make(chan struct{})}
	t.Cleanup(func() { f.Close() })
	return h
}

// add records an entry; of the life there is now where it names none.
func (h *history) add(e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Op == opStart {
		h.life++
		h.acks = 0
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Life == 0 {
		e.Life = h.life
	}
	b, err := json.Marshal(e)
	if err == nil {
		_, err = h.file.Write(append(b, '\n'))
	}
	if err != nil && h.err == nil {
		h.err = err
	}
	h.entries = append(h.entries, e)
	h.count(e.Op)
}

func (h *history) count(op string) {
	switch op {
	case opTask:
		h.open++
	case opEnd:
		h.open--
	case opSee, opReply:
	default:
		return
	}
	h.acks++
	close(h.changed)
	h.changed = make(chan struct{})
}

// lifeNow is the number of the server's life.
func (h *history) lifeNow() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life
}

// standing is how many acknowledgements this life has seen, and how many tasks
// are under way; changed is closed when that changes.
func (h *history) standing() (acks, open int, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acks, h.open, h.changed
}

// all is the history so far.
func (h *history) all() ([]entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.entries[:len(h.entries):len(h.entries)], h.err
}

// read reads the file of a history.
func read(path string) ([]entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []entry
	for d := json.NewDecoder(f); d.More(); {
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}
