package memory

import (
	"container/list"
	"context"
	"errors"
	"sort"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// entriesOf is how many conversation entries are kept for each finished run that is kept.
const entriesOf = 4

// conversations holds the conversations of all owners. Beyond max entries, the least recently used
// conversations are removed as a whole.
type conversations struct {
	max int // the maximum number of entries

	mu      sync.Mutex
	threads map[a2a.Thread]*conversation // guarded by mu, like what it holds
	used    list.List                    // of *conversation, most recently used first; guarded by mu
	entries int                          // the number in all conversations; guarded by mu
}

// conversation is one conversation.
type conversation struct {
	thread a2a.Thread
	place  *list.Element // in conversations.used
	last   int64         // number of the last entry
	added  time.Time     // when something was added last
	// tasks counts the entries of each task.
	tasks map[string]int
	paths map[string]*past
}

// past is what the agent at a path remembers of a conversation.
type past struct {
	entries []entryAt // appended to and cut at the head only, so that readers may keep a subslice
	states  []stateAt // likewise; each one is the whole state
}

// entryAt is a message with its number in the conversation and the task that it comes from.
type entryAt struct {
	n       int64
	task    string
	message *a2av1.Message
}

// stateAt is the state of a conversation from entry n on.
type stateAt struct {
	n      int64
	values map[string]*structpb.Value
}

// Position implements a2a.Conversations.
func (s *Store) Position(_ context.Context, t a2a.Thread) (int64, error) {
	c := &s.conversations
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.threads[t]; v != nil {
		return v.last, nil
	}
	return 0, nil
}

// Recall implements a2a.Conversations.
func (s *Store) Recall(_ context.Context, t a2a.Thread, path string, upTo int64) (a2a.Recollection, error) {
	c := &s.conversations
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.threads[t]
	if v == nil || v.paths[path] == nil {
		return a2a.Recollection{}, nil
	}
	return v.paths[path].upTo(upTo), nil
}

// upTo returns what the agent remembered after entry n.
func (p *past) upTo(n int64) a2a.Recollection {
	var r a2a.Recollection
	end := sort.Search(len(p.entries), func(i int) bool { return p.entries[i].n > n })
	for _, e := range p.entries[max(0, end-agent.HistoryLength):end] {
		r.History = append(r.History, e.message)
	}
	if i := sort.Search(len(p.states), func(i int) bool { return p.states[i].n > n }); i > 0 {
		r.State = p.states[i-1].values
	}
	return r
}

// Remember implements a2a.Conversations.
func (s *Store) Remember(_ context.Context, t a2a.Thread, e a2a.Exchange) error {
	if t.Owner == "" || t.ContextID == "" || e.Task == "" {
		return errors.New("remember an exchange: it needs an owner, a context and a task")
	}
	c := &s.conversations
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.thread(t)
	if v.tasks[e.Task] > 0 {
		return nil
	}
	v.added = s.clock()
	for _, by := range e.By {
		c.entries += v.add(e.Task, by)
	}
	for _, by := range e.By { // numbered like the last entry, so that readers see all or nothing
		if len(by.State) > 0 {
			v.paths[by.Path].set(v.last, by.State)
		}
	}
	for c.entries > c.max && c.used.Len() > 1 {
		c.drop(c.used.Back().Value.(*conversation)) //nolint:forcetypeassert // the list holds nothing else
	}
	return nil
}

// thread returns a conversation, which it creates if needed, and marks it as used. The caller must
// hold mu.
func (c *conversations) thread(t a2a.Thread) *conversation {
	v := c.threads[t]
	if v == nil {
		v = &conversation{thread: t, tasks: map[string]int{}, paths: map[string]*past{}}
		v.place = c.used.PushFront(v)
		c.threads[t] = v
	}
	c.used.MoveToFront(v.place)
	return v
}

// drop removes a conversation. The caller must hold mu.
func (c *conversations) drop(v *conversation) {
	c.used.Remove(v.place)
	delete(c.threads, v.thread)
	for _, p := range v.paths {
		c.entries -= len(p.entries)
	}
}

// add appends a contribution and returns by how many entries the conversation has grown.
func (v *conversation) add(task string, by a2a.Contribution) int {
	p := v.paths[by.Path]
	if p == nil {
		p = &past{}
		v.paths[by.Path] = p
	}
	before := len(p.entries)
	for _, m := range by.Messages {
		v.last++
		v.tasks[task]++
		p.entries = append(p.entries, entryAt{v.last, task, proto.CloneOf(m)})
	}
	if n := len(p.entries) - a2a.KeptEntries; n > 0 {
		for _, e := range p.entries[:n] {
			v.forget(e.task)
		}
		p.entries = append([]entryAt(nil), p.entries[n:]...)
	}
	return len(p.entries) - before
}

// set stores the state as changed at entry n.
func (p *past) set(n int64, changes map[string]*structpb.Value) {
	var have map[string]*structpb.Value
	if len(p.states) > 0 {
		have = p.states[len(p.states)-1].values
	}
	own := make(map[string]*structpb.Value, len(changes))
	for k, value := range changes {
		own[k] = proto.CloneOf(value)
	}
	p.states = append(p.states, stateAt{n, a2a.Merged(have, own)})
	if n := len(p.states) - a2a.KeptEntries; n > 0 {
		p.states = append([]stateAt(nil), p.states[n:]...)
	}
}

// forget reduces the number of entries of a task.
func (v *conversation) forget(task string) {
	if v.tasks[task]--; v.tasks[task] == 0 {
		delete(v.tasks, task)
	}
}
