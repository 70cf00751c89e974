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
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// memoryTime bounds how long a conversation is waited for: a run can do without.
const memoryTime = 5 * time.Second

// maxWarnings is how many warnings of the store the end of a run repeats.
const maxWarnings = 20

// What a driver's note of the code NoteStorage is about, in its details.
const (
	aboutKey   = "about"
	pathKey    = "path"
	aboutRead  = "history"
	aboutWrite = "exchange"
)

// memory is what a run reads of its conversation, path by path, when it is asked
// for; each once. It implements agent.Memory.
type memory struct {
	ctx    context.Context // of the drive
	from   a2a.Conversations
	thread a2a.Thread
	upTo   int64

	mu     sync.Mutex
	paths  map[string]a2a.Recollection // guarded by mu
	faults []memoryFault               // that nobody was told of yet; guarded by mu
}

// memoryFault is a history that could not be read.
type memoryFault struct {
	path string
	err  error
}

var errUnread = errors.New("its place could not be read when the run was accepted")

// remembering prepares what the run reads; nothing where its store keeps none.
func (d *drive) remembering(ctx context.Context) {
	c := d.accepted.GetConversation()
	if c == nil { // it was accepted by a version that kept none
		return
	}
	d.run.Owner = d.accepted.GetOwner()
	if d.Conversations == nil {
		return
	}
	d.memory = &memory{
		ctx: ctx, from: d.Conversations, upTo: c.GetHistory(), paths: map[string]a2a.Recollection{},
		thread: a2a.Thread{Owner: d.accepted.GetOwner(), ContextID: c.GetContextId()},
	}
	d.run.Memory = d.memory
}

// History implements agent.Memory.
func (m *memory) History(path string) []*a2av1.Message { return m.recall(path).History }

// State implements agent.Memory.
func (m *memory) State(path string) map[string]*structpb.Value { return m.recall(path).State }

// recall reads what a path knows. What cannot be read is empty for the rest of
// the run: it is on record.
func (m *memory) recall(path string) a2a.Recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.paths[path]
	if known || m.upTo == 0 {
		return r
	}
	if m.ctx.Err() != nil {
		return r // nothing comes of it any more
	}
	err := errUnread
	if m.upTo != a2a.Unread {
		ctx, cancel := context.WithTimeout(m.ctx, memoryTime)
		defer cancel()
		r, err = m.from.Recall(ctx, m.thread, path, m.upTo)
	}
	if err != nil {
		r = a2a.Recollection{}
		m.faults = append(m.faults, memoryFault{path, err})
	}
	m.paths[path] = r
	return r
}

// missing makes a path empty: it was when the run was driven before.
func (m *memory) missing(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paths[path] = a2a.Recollection{}
}

// told returns the faults that nobody was told of.
func (m *memory) told() []memoryFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	faults := m.faults
	m.faults = nil
	return faults
}

// tellUnread puts on record which histories could not be read.
func (d *drive) tellUnread(ctx context.Context) error {
	if d.memory == nil {
		return nil
	}
	for _, f := range d.memory.told() {
		d.Log.Warn("the history of a conversation cannot be read; the run goes on without",
			zap.String("task", d.claim.Root), zap.String("path", f.path), zap.Error(f.err))
		text := "the history of " + f.path + " could not be read; it works without"
		if err := d.warn(ctx, text, map[string]string{aboutKey: aboutRead, pathKey: f.path}); err != nil {
			return err
		}
	}
	return nil
}

// warn puts a warning on record that the end of the run repeats. A run that may
// still be answered by a plain message only repeats it: the note would make it a task.
func (d *drive) warn(ctx context.Context, text string, details map[string]string) error {
	if d.accepted.GetMayReplyDirectly() {
		d.warnings = append(d.warnings, text)
		return nil
	}
	err := d.append(ctx, d.memoryNote(agent.NoteStorage, text, details))
	if err != nil && !broke(err) { // the journal is full
		d.warnings = append(d.warnings, text)
		return nil
	}
	return err
}

func (d *drive) memoryNote(code, text string, details map[string]string) *teamv1.Event {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range details {
		s.Fields[k] = structpb.NewStringValue(v)
	}
	return d.event("", &teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: code, Text: text, Details: s}}})
}

// noted takes over what a note says of the store. It reports whether the note is
// the driver's own, which agents are not shown.
func (d *drive) noted(ev *teamv1.Event) bool {
	n := ev.GetNoted()
	details := n.GetDetails().GetFields()
	about, own := details[aboutKey]
	own = own && ev.GetScope() == ""
	switch n.GetCode() {
	case agent.NoteStorage:
		if len(d.warnings) < maxWarnings {
			d.warnings = append(d.warnings, n.GetText())
		}
		if own && about.GetStringValue() == aboutRead && d.memory != nil {
			d.memory.missing(details[pathKey].GetStringValue())
		}
		return own
	case agent.NoteRemembered:
		d.kept = own
		return own
	}
	return false
}

// remember keeps the exchange with the conversation before the end of the run is
// on record. That it cannot be kept is a warning; the error is
// the journal's.
func (d *drive) remember(ctx context.Context, e *teamv1.Ended) error {
	if err := d.tellUnread(ctx); err != nil {
		return err
	}
	if !d.remembers || d.kept || d.memory == nil {
		return nil
	}
	ex := d.exchange(e)
	if len(ex.By) == 0 {
		return nil
	}
	if err := d.commit(ctx); err != nil { // another owner of the run comes to the same exchange
		return err
	}
	saving, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	if err := d.Conversations.Remember(saving, d.memory.thread, ex); err != nil {
		d.Log.Warn("an exchange cannot be kept with its conversation", zap.String("task", d.claim.Root), zap.Error(err))
		return d.warn(ctx, "the exchange could not be kept; the conversation goes on without it", map[string]string{aboutKey: aboutWrite})
	}
	if d.accepted.GetMayReplyDirectly() {
		return nil
	}
	err := d.append(ctx, d.memoryNote(agent.NoteRemembered, "the exchange is kept with the conversation", map[string]string{aboutKey: aboutWrite}))
	if !broke(err) {
		return nil
	}
	return err
}
