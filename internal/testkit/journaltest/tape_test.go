package journaltest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

// tape is a journal that holds the beginning of a recording, and goes on from
// there: what callers did later comes in when the run waits for it.
type tape struct {
	mu     sync.Mutex
	events []*teamv1.Event   // guarded by mu
	inbox  []*teamv1.Inbound // guarded by mu
	later  []*teamv1.Inbound // in their order; guarded by mu
	wake   chan struct{}
	state  journal.Summary // of the first folded events; guarded by mu
	folded int             // guarded by mu
}

// cut returns a tape that holds the first n events of a recording.
func cut(events []*teamv1.Event, n int) *tape {
	t := &tape{wake: make(chan struct{}, 1)}
	for _, ev := range events[:n] {
		t.events = append(t.events, proto.CloneOf(ev))
	}
	for _, ev := range events[n:] {
		if in := inboundOf(proto.CloneOf(ev)); in != nil {
			t.later = append(t.later, in)
		}
	}
	return t
}

// inboundOf is the inbox row that an event has consumed.
func inboundOf(ev *teamv1.Event) *teamv1.Inbound {
	in := &teamv1.Inbound{Scope: ev.GetScope()}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Received:
		in.N, in.Kind = k.Received.GetInbound(), &teamv1.Inbound_Received{Received: k.Received}
		k.Received.TooLate = false
	case *teamv1.Event_Answered:
		in.N, in.Kind = k.Answered.GetInbound(), &teamv1.Inbound_Answered{Answered: k.Answered}
		k.Answered.Waited = nil
	case *teamv1.Event_Commanded:
		in.N, in.Kind = k.Commanded.GetInbound(), &teamv1.Inbound_Commanded{Commanded: k.Commanded}
		k.Commanded.Waited = nil
	}
	if in.GetN() == 0 {
		return nil
	}
	return in
}

// next has the next thing that a caller did come in; false when there is none.
func (t *tape) next() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.later) == 0 {
		return false
	}
	t.inbox, t.later = append(t.inbox, t.later[0]), t.later[1:]
	return true
}

// Load implements runs.Journal.
func (t *tape) Load(context.Context) ([]*teamv1.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var events []*teamv1.Event
	for _, ev := range t.events {
		if ev.GetDelta() == nil { // as a store does that keeps it for readers only
			events = append(events, proto.CloneOf(ev))
		}
	}
	return events, nil
}

// Append implements runs.Journal. Time goes on from the recording.
func (t *tape) Append(_ context.Context, events ...*teamv1.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ev := range events {
		if ended(t.events) {
			return runs.ErrTerminal
		}
		ev.Seq, ev.Time = int64(len(t.events)+1), timestamppb.New(t.now())
		t.events = append(t.events, ev)
		t.consume(ev)
	}
	return nil
}

// consume takes what an event names out of the inbox. The caller holds mu.
func (t *tape) consume(ev *teamv1.Event) {
	for i, in := range t.inbox {
		if n := in.GetN(); n == ev.GetReceived().GetInbound() || n == ev.GetAnswered().GetInbound() || n == ev.GetCommanded().GetInbound() {
			t.inbox = append(t.inbox[:i:i], t.inbox[i+1:]...)
			return
		}
	}
}

// now is the time of what comes next. The caller holds mu.
func (t *tape) now() time.Time {
	last := t.events[len(t.events)-1].GetTime().AsTime()
	if now := time.Now(); now.After(last) {
		return now
	}
	return last
}

// State implements runs.Journal.
func (t *tape) State(read func(*journal.Summary)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.folded < len(t.events); t.folded++ {
		t.state.Apply(t.events[t.folded])
	}
	read(&t.state)
}

// Commit implements runs.Journal.
func (t *tape) Commit(ctx context.Context) error { return ctx.Err() }

// Inbound implements runs.Journal.
func (t *tape) Inbound(context.Context) ([]*teamv1.Inbound, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rows []*teamv1.Inbound
	for _, in := range t.inbox {
		rows = append(rows, proto.CloneOf(in))
	}
	return rows, nil
}

// Wake implements runs.Journal.
func (t *tape) Wake() <-chan struct{} { return t.wake }

// drive drives the run until it has ended, one claim after the other.
func (t *tape) drive(ctx context.Context, find func(string) (agent.Agent, error)) error {
	t.mu.Lock()
	root := t.events[0].GetAccepted().GetTaskId()
	clock := func() time.Time {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.now()
	}
	t.mu.Unlock()
	r := &drive.Runner{Agent: find, Replica: "replay", Clock: clock}
	for epoch := int64(100); ; epoch++ {
		park, err := r.Drive(ctx, runs.Claim{Root: root, Owner: owner, Epoch: epoch, Journal: t})
		if err != nil || park.Done {
			return err
		}
		if !t.next() {
			return context.DeadlineExceeded
		}
	}
}

func ended(events []*teamv1.Event) bool {
	last := events[len(events)-1]
	return last.GetEnded() != nil && last.GetScope() == ""
}
