package drive

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// The timeouts of reading from and writing to a conversation. A run works without what it cannot read, and reads it
// again next time; an exchange that is not stored is lost. Runs that end at the same time in one context, with much to
// store, wait for each other.
const (
	recallTime   = 5 * time.Second
	rememberTime = 30 * time.Second
)

// maxWarnings is how many storage warnings are repeated in the end of the run.
const maxWarnings = 20

// Keys and values in the details of the driver's notes about storage.
const (
	aboutKey   = "about"
	pathKey    = "path"
	aboutRead  = "history"
	aboutWrite = "exchange"
)

// memory reads the conversation of a run, one path at a time when it is first needed. It implements
// agent.Memory and is safe for concurrent use.
type memory struct {
	ctx     context.Context // of the drive; recall has no context of its own
	from    runs.Conversations
	thread  runs.Thread
	account string // that has made the run's agent by the API; part of the keys of paths, see key
	upTo    int64  // position up to which the conversation is read; 0 means that it is empty

	mu     sync.Mutex
	paths  map[string]runs.Recollection // guarded by mu
	faults []memoryFault                // not yet recorded; guarded by mu
}

// memoryFault is a history that could not be read, and why.
type memoryFault struct {
	path string
	err  error
}

// conversation is what a run reads from its conversation and adds to it.
type conversation struct {
	rec   *record
	store runs.Conversations // nil if agents remember nothing
	log   *zap.Logger

	memory    *memory  // what the run reads; nil means nothing
	remembers bool     // the root's agent remembers its conversation
	tools     int      // how many of its last tool calls as well
	kept      bool     // the exchange is stored
	warnings  []string // for the end of the run
}

// errUnread is the fault of every path if the position in the conversation is runs.Unread.
var errUnread = errors.New("its position could not be read when the run was accepted")

// open gives the run its memory. Without a conversation or a store for it, the run has none.
func (c *conversation) open(ctx context.Context) {
	in := c.rec.accepted.GetConversation()
	if in == nil { // the run was accepted by a version without conversations
		return
	}
	c.rec.run.Owner = c.rec.accepted.GetOwner()
	if c.store == nil {
		return
	}
	c.memory = &memory{
		ctx: ctx, from: c.store, upTo: in.GetHistory(), paths: map[string]runs.Recollection{},
		thread: runs.Thread{Owner: c.rec.accepted.GetOwner(), ContextID: in.GetContextId()}, account: c.rec.accepted.GetPins().GetAccounts()[c.rec.accepted.GetAgent()],
	}
	c.rec.run.Memory = c.memory
}

// History returns the messages that a path remembers. It implements agent.Memory.
func (m *memory) History(path string) []*a2av1.Message { return m.recall(path).History }

// State returns the conversation state of a path. It implements agent.Memory.
func (m *memory) State(path string) map[string]*structpb.Value { return m.recall(path).State }

// recall returns what a path remembers. If that cannot be read, it is empty for the rest of the run
// and a fault is kept for the journal, so that a later drive uses the same empty history.
func (m *memory) recall(path string) runs.Recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.paths[path]
	if known || m.upTo == 0 {
		return r
	}
	if m.ctx.Err() != nil {
		return r // the result would not be used
	}
	err := errUnread
	if m.upTo != runs.Unread {
		ctx, cancel := context.WithTimeout(m.ctx, recallTime)
		defer cancel()
		r, err = m.from.Recall(ctx, m.thread, m.key(path), m.upTo)
	}
	if err != nil {
		r = runs.Recollection{}
		m.faults = append(m.faults, memoryFault{path, err})
	}
	m.paths[path] = r
	return r
}

// key returns the name under which a conversation keeps what a path remembers. Agents of other accounts that have had the
// same id remember something else.
func (m *memory) key(path string) string { return agent.KeyOf(m.account, path) }

// missing makes the memory of a path empty, as it was in an earlier drive that could not read it.
func (m *memory) missing(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paths[path] = runs.Recollection{}
}

// told returns the faults since the last call.
func (m *memory) told() []memoryFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	faults := m.faults
	m.faults = nil
	return faults
}

// tellUnread records which histories could not be read. The error is the journal's.
func (c *conversation) tellUnread(ctx context.Context) error {
	if c.memory == nil {
		return nil
	}
	for _, f := range c.memory.told() {
		c.log.Warn("cannot read the history of a conversation; the run continues without it",
			zap.String("path", f.path), zap.Error(f.err))
		text := "the history of " + f.path + " could not be read; the agent works without it"
		if err := c.warn(ctx, text, map[string]string{aboutKey: aboutRead, pathKey: f.path}); err != nil {
			return err
		}
	}
	return nil
}

// warn records a warning, which the end of the run repeats. For a run that may still be answered by
// a plain message it only adds the warning to the end, because a recorded note would make the run a
// task.
func (c *conversation) warn(ctx context.Context, text string, details map[string]string) error {
	if c.rec.accepted.GetMayReplyDirectly() {
		c.warnings = append(c.warnings, text)
		return nil
	}
	err := c.rec.append(ctx, c.memoryNote(agent.NoteStorage, text, details))
	if err != nil && !broke(err) { // the journal is full
		c.warnings = append(c.warnings, text)
		return nil
	}
	return err
}

// memoryNote returns a note of the driver with text details.
func (c *conversation) memoryNote(code, text string, details map[string]string) *teamv1.Event {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range details {
		s.Fields[k] = structpb.NewStringValue(v)
	}
	return c.rec.event("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Text: text, Details: s}}})
}

// noted applies a recorded note about storage. It reports whether the driver wrote the note, in
// which case agents do not see it.
func (c *conversation) noted(ev *teamv1.Event) bool {
	n := ev.GetNoted()
	details := n.GetDetails().GetFields()
	about, own := details[aboutKey]
	own = own && ev.GetScope() == ""
	switch n.GetCode() {
	case agent.NoteStorage:
		if len(c.warnings) < maxWarnings {
			c.warnings = append(c.warnings, n.GetText())
		}
		if own && about.GetStringValue() == aboutRead && c.memory != nil {
			c.memory.missing(details[pathKey].GetStringValue())
		}
		return own
	case agent.NoteRemembered:
		c.kept = own
		return own
	}
	return false
}

// remember stores the exchange in the conversation before the end of the run is recorded. If that
// fails, the run ends with a warning. The error is the journal's.
func (c *conversation) remember(ctx context.Context, e *teamv1.Ended) error {
	if err := c.tellUnread(ctx); err != nil {
		return err
	}
	if !c.remembers || c.kept || c.memory == nil {
		return nil
	}
	ex := c.exchange(e)
	if len(ex.By) == 0 {
		return nil
	}
	for i := range ex.By {
		ex.By[i].Path = c.memory.key(ex.By[i].Path)
	}
	if err := c.rec.commit(ctx); err != nil { // fails if the run has another owner, which stores the same exchange
		return err
	}
	saving, cancel := context.WithTimeout(ctx, rememberTime)
	defer cancel()
	if err := c.store.Remember(saving, c.memory.thread, ex); err != nil {
		c.log.Warn("cannot store an exchange in its conversation", zap.Error(err))
		return c.warn(ctx, "the exchange could not be stored; the conversation continues without it", map[string]string{aboutKey: aboutWrite})
	}
	if c.rec.accepted.GetMayReplyDirectly() {
		return nil
	}
	err := c.rec.append(ctx, c.memoryNote(agent.NoteRemembered, "the exchange is stored in the conversation", map[string]string{aboutKey: aboutWrite}))
	if !broke(err) {
		return nil
	}
	return err
}
