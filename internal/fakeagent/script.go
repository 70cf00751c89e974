package fakeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Turn is what the agent does with one message. A message that answers a
// question takes the next turn of the same task.
type Turn struct {
	// Refuse answers the call with this error; there is no task.
	Refuse error
	// Before holds the first event back until it is closed.
	Before <-chan struct{}
	// Progress is a status text.
	Progress string
	// Noted is text that the agent adds only to the history of its task.
	Noted string
	// Chunks are streamed pieces of text, and the beginning of the answer.
	Chunks []string
	// Gate holds the end back until it is closed, or the task is cancelled.
	Gate <-chan struct{}
	// Break ends the first stream after this many events; the task continues. -1 ends a
	// stream of A2A right after its task, before the first event.
	Break int
	// Ask ends the turn with a question; Auth asks for authentication.
	Ask, Auth string
	// Fail ends the task FAILED with this text.
	Fail string
	// Text ends the answer. A turn without anything echoes the message.
	Text string
	// Parts follow the text.
	Parts []*a2av1.Part
	// Direct answers with a message, without a task, over A2A.
	Direct bool
	// Said are messages that a stream of A2A sends, against the protocol, before its task
	// or its direct answer.
	Said []string
	// Transfer hands over to another member.
	Transfer *teamv1.Transfer
	// Spent is what the turn cost.
	Spent *teamv1.Spent
	// Steps are further events of the record, for AgentService only.
	Steps []*teamv1.Event
	// Deaf takes a cancel and goes on.
	Deaf bool
}

// task is one task and its record.
type task struct {
	id, contextID string

	mu       sync.Mutex
	events   []*teamv1.Event  // guarded by mu
	changed  chan struct{}    // closed at each change; guarded by mu
	canceled chan struct{}    // closed by a cancel; guarded by mu
	asking   string           // the open question; guarded by mu
	ended    bool             // guarded by mu
	breaks   int              // guarded by mu
	direct   *a2av1.Message   // guarded by mu
	keys     []string         // ids of the messages received; guarded by mu
	noted    []*a2av1.Message // messages of the agent while it worked; guarded by mu
}

func newTask(key string) *task {
	return &task{
		id: uuid.NewString(), contextID: uuid.NewString(), keys: []string{key},
		changed: make(chan struct{}), canceled: make(chan struct{}),
	}
}

// append puts events on record; nobody sees one of them without the others.
func (t *task) append(events ...*teamv1.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		t.add(e)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// note adds a message to the history.
func (t *task) note(m *a2av1.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noted = append(t.noted, m)
}

// notes returns the messages of the agent while it worked.
func (t *task) notes() []*a2av1.Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.noted)
}

// add puts an event on record. The caller holds mu.
func (t *task) add(e *teamv1.Event) {
	e.Seq, e.Time = int64(len(t.events)+1), timestamppb.Now()
	t.events = append(t.events, e)
	switch k := e.GetKind().(type) {
	case *teamv1.Event_Asked:
		t.asking = k.Asked.GetQuestion()
	case *teamv1.Event_Answered:
		t.asking = ""
	case *teamv1.Event_Ended:
		t.ended = t.ended || e.GetScope() == ""
	}
}

// after returns what follows a sequence, whether nothing more will come for
// now, and what is closed when that changes.
func (t *task) after(seq int64) (events []*teamv1.Event, resting bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events[min(int(seq), len(t.events)):], t.ended || t.waiting(), t.changed
}

// waiting reports whether the question is asked and the record says so.
func (t *task) waiting() bool {
	return t.asking != "" && t.events[len(t.events)-1].GetWaiting() != nil
}

// asks reports whether the task waits for an answer.
func (t *task) asks() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended && t.waiting()
}

// rest waits until the task has ended or asks.
func (t *task) rest(ctx context.Context) error {
	for {
		_, resting, changed := t.after(0)
		if resting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// started waits until there is something to show.
func (t *task) started(ctx context.Context) error {
	for {
		events, _, changed := t.after(0)
		if len(events) > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeBreak returns after how many events a stream is to end, once.
func (t *task) takeBreak() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.breaks
	t.breaks = 0
	return n
}

// breaksAtOnce reports, once, whether a stream must end right after its task.
func (t *task) breaksAtOnce() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.breaks >= 0 {
		return false
	}
	t.breaks = 0
	return true
}

func (t *task) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.canceled:
	default:
		close(t.canceled)
	}
}

var (
	errStopped = errors.New("stopped")
	errBreak   = status.Error(codes.Unavailable, "the stream breaks as the script says")
)

// play runs a turn.
func (t *task) play(ctx context.Context, turn Turn, m *a2av1.Message) {
	if hold(ctx, nil, turn.Before) != nil {
		return
	}
	if events, _, _ := t.after(0); len(events) == 0 {
		t.append(&teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: t.id, Message: m}}})
	}
	if turn.Progress != "" {
		p := agent.NewMessage(turn.Progress)
		p.MessageId = uuid.NewString()
		t.note(p)
		t.append(&teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: p}}})
	}
	if turn.Noted != "" {
		t.note(agent.NewMessage(turn.Noted))
	}
	for _, e := range turn.Steps {
		t.append(proto.CloneOf(e))
	}
	for _, c := range turn.Chunks {
		t.append(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "answer", Text: c}}})
	}
	canceled := t.canceled
	if turn.Deaf {
		canceled = nil
	}
	switch err := hold(ctx, canceled, turn.Gate); {
	case errors.Is(err, errStopped):
		t.append(ended(teamv1.Outcome_OUTCOME_CANCELED, &teamv1.Ended{Spent: turn.Spent}))
	case err == nil:
		t.finish(turn, m)
	}
}

// hold waits for gate, the cancel or the end of the server.
func hold(ctx context.Context, canceled <-chan struct{}, gate <-chan struct{}) error {
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-canceled:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *task) finish(turn Turn, m *a2av1.Message) {
	switch {
	case turn.Ask != "":
		t.ask(teamv1.Asked_KIND_INPUT, turn.Ask)
	case turn.Auth != "":
		t.ask(teamv1.Asked_KIND_AUTH, turn.Auth)
	case turn.Fail != "":
		e := &teamv1.Error{Reason: agent.ReasonTeamError, Message: turn.Fail, Code: int32(agent.CodeInternal)}
		t.append(ended(teamv1.Outcome_OUTCOME_FAILED, &teamv1.Ended{Error: e, Spent: turn.Spent}))
	case turn.Transfer != nil:
		t.append(ended(teamv1.Outcome_OUTCOME_SUCCEEDED, &teamv1.Ended{Result: &teamv1.Ended_Transfer{Transfer: turn.Transfer}, Spent: turn.Spent}))
	default:
		reply := &teamv1.Ended_Reply{Reply: turn.reply(m)}
		t.append(ended(teamv1.Outcome_OUTCOME_SUCCEEDED, &teamv1.Ended{Result: reply, Spent: turn.Spent}))
	}
}

func (t *task) ask(kind teamv1.Asked_Kind, text string) {
	q := uuid.NewString()
	m := agent.NewMessage(text)
	m.MessageId = uuid.NewString()
	t.append(
		&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: q, Kind: kind, Message: m}}},
		&teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: []string{q}}}},
	)
}

func ended(o teamv1.Outcome, e *teamv1.Ended) *teamv1.Event {
	e.Outcome = o
	return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: e}}
}

// reply is the answer of a turn.
func (turn Turn) reply(m *a2av1.Message) *a2av1.Message {
	text := ""
	for _, c := range turn.Chunks {
		text += c
	}
	text += turn.Text
	if text == "" && turn.Parts == nil {
		text = fmt.Sprintf("echo: %s", agent.Text(m))
	}
	reply := &a2av1.Message{MessageId: uuid.NewString(), Role: a2av1.Role_ROLE_AGENT, Parts: turn.Parts}
	if text != "" {
		reply.Parts = append(agent.TextParts(text), turn.Parts...)
	}
	return reply
}
