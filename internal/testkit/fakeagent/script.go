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

// Turn says how the agent handles one message. An answer to a question plays the next turn
// in the same task.
type Turn struct {
	// Refuse is the error with which the call fails, without a task.
	Refuse error
	// Before delays the first event until it is closed.
	Before <-chan struct{}
	// Progress is the text of a status update.
	Progress string
	// Noted is the text of a message that the agent adds only to the history of the task.
	Noted string
	// Chunks are pieces of text that are streamed. They begin the answer.
	Chunks []string
	// Gate delays the end until it is closed or the task is canceled.
	Gate <-chan struct{}
	// Break ends the first stream after this many events; the task continues. -1 ends a
	// stream of A2A right after its task, before the first event.
	Break int
	// Ask and Auth end the turn with a question: for input, or for authentication.
	Ask, Auth string
	// Fail makes the task FAILED with this text.
	Fail string
	// Text ends the answer. If neither text nor parts are set, the answer echoes the
	// message.
	Text string
	// Parts follow the text in the answer.
	Parts []*a2av1.Part
	// Direct answers over A2A with a message instead of a task.
	Direct bool
	// Said are messages that an A2A stream sends before its task or direct answer, in
	// violation of the protocol.
	Said []string
	// Transfer hands the conversation over to another member.
	Transfer *teamv1.Transfer
	// Spent is the cost of the turn.
	Spent *teamv1.Spent
	// Steps are additional events of the journal, for the Agent service only.
	Steps []*teamv1.Event
	// Deaf makes the agent ignore cancellation.
	Deaf bool
}

// task is a task with its journal.
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
	noted    []*a2av1.Message // messages of the agent while working; guarded by mu
}

func newTask(key string) *task {
	return &task{
		id: uuid.NewString(), contextID: uuid.NewString(), keys: []string{key},
		changed: make(chan struct{}), canceled: make(chan struct{}),
	}
}

// append appends events to the journal atomically.
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

// notes returns the messages of the agent while working.
func (t *task) notes() []*a2av1.Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.noted)
}

// add appends an event to the journal. The caller holds mu.
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

// after returns the events after a sequence number, whether the task is at rest (it has
// ended or asks a question), and a channel that is closed at the next change.
func (t *task) after(seq int64) (events []*teamv1.Event, resting bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events[min(int(seq), len(t.events)):], t.ended || t.waiting(), t.changed
}

// waiting reports whether the task waits for an answer. The caller holds mu.
func (t *task) waiting() bool {
	return t.asking != "" && t.events[len(t.events)-1].GetWaiting() != nil
}

// asks reports whether the task has not ended and waits for an answer.
func (t *task) asks() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended && t.waiting()
}

// rest waits until the task has ended or asks a question.
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

// started waits until the task has an event.
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

// takeBreak returns after how many events the stream must end. It returns 0, which means
// never, from the second call on.
func (t *task) takeBreak() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.breaks
	t.breaks = 0
	return n
}

// breaksAtOnce reports whether the stream must end right after the task. It returns false
// from the second call on.
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
	errBreak   = status.Error(codes.Unavailable, "the script ends the stream here")
)

// play plays a turn.
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

// hold waits until gate is closed, the task is canceled or the agent stops.
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

// reply returns the answer of a turn.
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
