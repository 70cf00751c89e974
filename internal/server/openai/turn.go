package openai

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// turn is what a request asks of an agent.
type turn struct {
	*ask
	model    string
	messages []message // without those of the system
	system   []message
	prior    *a2av1.Task // of the response that it follows; nil if it names none
	past     []message   // what was said up to that response
	forks    bool        // that response is a question that has its answer already
	key      string      // names the conversation; "" if only the history does
	context  string      // context of a new task
	digest   string      // tells a request that is posted again from others
	retry    retry
}

// retry says what a client tells about whether it has posted a request before.
type retry int

const (
	unsaid retry = iota
	first
	repeated
)

// turnOf returns what a request asks.
func (d *Door) turnOf(ctx context.Context, h http.Header, req *ask, body []byte) (*turn, error) {
	t := &turn{ask: req, model: modelID(req.Model), key: conversationKey(h, req), retry: retryOf(h)}
	for _, m := range req.all {
		if m.Role == "system" || m.Role == "developer" {
			t.system = append(t.system, m)
		} else {
			t.messages = append(t.messages, m)
		}
	}
	if t.isTitle() {
		t.key, t.model = "", cmp.Or(d.config.Settings.GetTitleModel(), t.model)
	}
	if err := req.readInputs(); err != nil {
		return nil, err
	}
	if len(t.last()) == 0 {
		return nil, wire.Invalid(req.field, "must end with a message of the user that has content")
	}
	if err := d.follows(ctx, t); err != nil {
		return nil, err
	}
	switch {
	case t.key != "":
		t.context = t.key
	case t.prior != nil:
		t.context = t.prior.GetContextId()
	default:
		t.context = historyContext(t.model, t.messages)
	}
	t.digest = digest(t.context, h.Get("X-OpenWebUI-User-Id"), h.Get("Idempotency-Key"), string(body))
	return t, nil
}

// conversationKey returns the context of the conversation that a request names, "" if it names none.
func conversationKey(h http.Header, req *ask) string {
	named, _ := req.Metadata["conversation_id"].(string)
	if id := cmp.Or(h.Get("X-Conversation-Id"), named, req.conversation); id != "" {
		return id
	}
	for _, name := range []string{"X-Session-Id", "Session-Id", "X-OpenWebUI-Chat-Id"} {
		if id := h.Get(name); id != "" {
			return mark + digest(name, id)
		}
	}
	if req.User != "" {
		return mark + digest("user", req.User)
	}
	return ""
}

// retryOf returns what the SDKs of OpenAI say in a header of theirs. A key of the client's own counts as a repeat, because it
// is part of the digest.
func retryOf(h http.Header) retry {
	switch n := h.Get("X-Stainless-Retry-Count"); {
	case h.Get("Idempotency-Key") != "":
		return repeated
	case n == "":
		return unsaid
	case n == "0":
		return first
	}
	return repeated
}

// historyContext returns the context of a conversation that only its messages name. No agent remembers anything of it.
func historyContext(model string, list []message) string {
	texts := []string{"history", model}
	for _, m := range list {
		texts = append(texts, m.Role, strings.TrimSpace(m.text()))
		for _, p := range m.Content {
			if _, ok := p.GetContent().(*a2av1.Part_Text); !ok {
				b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(p) // it was decoded from JSON
				texts = append(texts, string(b))
			}
		}
	}
	return mark + digest(texts...)
}

// digest returns a digest of texts, in 40 characters that an id may have.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(t), t) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// text returns the text of a message.
func (m message) text() string { return agent.Text(&a2av1.Message{Parts: m.Content}) }

// answered returns the number of messages up to the last one of the assistant.
func answered(list []message) int {
	for i, m := range slices.Backward(list) {
		if m.Role == "assistant" {
			return i + 1
		}
	}
	return 0
}

// last returns the parts of the messages that the assistant has not answered.
func (t *turn) last() (parts []*a2av1.Part) {
	for _, m := range t.messages[answered(t.messages):] {
		parts = append(parts, m.Content...)
	}
	return parts
}

// maxEarlier is how many of the earlier messages go along.
const maxEarlier = 100

// earlier returns the messages before the last ones: those of the system, and then what was said.
func (t *turn) earlier() []*a2av1.Message {
	said := t.past
	if t.prior == nil {
		said = t.messages[:answered(t.messages)]
	}
	var list []*a2av1.Message
	for _, m := range slices.Concat(t.system, said[max(0, len(said)-maxEarlier):]) {
		if len(m.Content) == 0 { // only calls of tools
			continue
		}
		role := a2av1.Role_ROLE_USER
		if m.Role == "assistant" {
			role = a2av1.Role_ROLE_AGENT
		}
		list = append(list, &a2av1.Message{MessageId: fmt.Sprintf("earlier-%d", len(list)+1), Role: role, Parts: m.Content})
	}
	return list
}

// titleMarks are the beginnings of texts by which chat programs ask for titles, tags and follow-up questions: Open WebUI,
// opencode, LibreChat.
var titleMarks = []string{"### Task:", "Generate a title for this conversation", "Provide a concise, 5-word-or-less title", "You are a title generator"}

// isTitle reports whether a chat program asks on its own, and not its user.
func (t *turn) isTitle() bool {
	if answered(t.messages) > 0 || len(t.messages) > 2 {
		return false
	}
	begins := func(m message) bool {
		text := strings.TrimSpace(m.text())
		return slices.ContainsFunc(titleMarks, func(mark string) bool { return strings.HasPrefix(text, mark) })
	}
	return slices.ContainsFunc(t.messages, begins) || slices.ContainsFunc(t.system, begins)
}

// place is where the message of a turn goes.
type place struct {
	message string // its id
	context string
	task    string // the task whose question it answers, "" for a new one
	after   int64  // the last event of that task when the message was sent
}

// mark is how the ids of the door's messages begin.
const mark = "oai-"

// fresh returns the place of a message that begins a task.
func (t *turn) fresh() place {
	return place{message: mark + t.digest + "-" + uuid.Must(uuid.NewV7()).String(), context: t.context}
}

// answering returns the place of a message that answers the question of a task. Its id says how far the task was, because only
// what follows answers it.
func (p place) answering(task *a2av1.Task) place {
	after := project.RunOf(task.GetMetadata()).GetSeq()
	return place{fmt.Sprintf("%s-%d", p.message, after), task.GetContextId(), task.GetId(), after}
}

// own returns the parts of the id of a message of the door, false of another one.
func own(message string) (id uuid.UUID, after int64, ok bool) {
	const digits = len(mark) + 40 + len("-")
	if !strings.HasPrefix(message, mark) || len(message) < digits+36 {
		return id, 0, false
	}
	id, err := uuid.Parse(message[digits : digits+36])
	after, _ = strconv.ParseInt(strings.TrimPrefix(message[digits+36:], "-"), 10, 64) // 0 without one
	return id, after, err == nil
}

// created returns when the message was sent first.
func (p place) created() time.Time {
	id, _, ok := own(p.message)
	if !ok {
		id, _ = uuid.Parse(p.task) // the zero time if it is no UUID
	}
	return time.Unix(id.Time().UnixTime())
}

// moment is for how long after its end a task is the answer to a request that is posted again.
const moment = 30 * time.Second

// place finds the task that a request is about: the one that it began when it was posted before, or the one whose question it
// answers. Otherwise it begins a new one.
func (d *Door) place(ctx context.Context, t *turn) (place, error) {
	if t.key != "" || t.retry != first {
		tasks, err := d.inContext(ctx, t, t.context)
		if err != nil {
			return place{}, err
		}
		if at, ok := d.before(ctx, t, tasks); ok {
			return at, nil
		}
		if t.prior == nil && t.key != "" && len(tasks) > 0 && taskstate.Interrupted(tasks[0].GetStatus().GetState()) {
			return t.fresh().answering(tasks[0]), nil
		}
	}
	switch {
	case t.prior != nil:
		return t.next()
	case t.key != "":
		return t.fresh(), nil
	}
	return d.asked(ctx, t)
}

// maxQuestions is how many questions in a row a conversation without a key may have.
const maxQuestions = 16

// asked finds the task whose question a turn without a key answers: the last message of the assistant is that question.
func (d *Door) asked(ctx context.Context, t *turn) (place, error) {
	n := answered(t.messages)
	for range maxQuestions {
		if n == 0 {
			break
		}
		tasks, err := d.inContext(ctx, t, historyContext(t.model, t.messages[:n-1]))
		if err != nil {
			return place{}, err
		}
		if at, ok := d.before(ctx, t, tasks); ok {
			return at, nil
		}
		said := strings.TrimSpace(t.messages[answered(t.messages)-1].text())
		for _, task := range tasks {
			if taskstate.Interrupted(task.GetStatus().GetState()) && strings.HasSuffix(said, strings.TrimSpace(question(task.GetStatus().GetMessage()))) {
				return t.fresh().answering(task), nil
			}
		}
		if len(tasks) > 0 {
			break
		}
		n = answered(t.messages[:n-1])
	}
	return t.fresh(), nil
}

// inContext returns the latest tasks of the caller in a context.
func (d *Door) inContext(ctx context.Context, t *turn, id string) ([]*a2av1.Task, error) {
	page, err := d.tasks.ListTasks(ctx, &a2av1.ListTasksRequest{Tenant: t.model, ContextId: id, PageSize: proto.Int32(5)})
	return page.GetTasks(), err
}

// before returns where a turn went when it was posted before. A client that says nothing of it posts a request again if it has
// got no answer: its connection has ended while the task was running, or a moment before.
func (d *Door) before(ctx context.Context, t *turn, tasks []*a2av1.Task) (at place, ok bool) {
	if t.retry == first {
		return at, false
	}
	for _, task := range tasks {
		for i, m := range task.GetHistory() {
			if !strings.HasPrefix(m.GetMessageId(), mark+t.digest+"-") {
				continue
			}
			if task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_CANCELED { // perhaps because its caller had gone
				break
			}
			at = place{message: m.GetMessageId(), context: task.GetContextId()}
			// The answer to a request in the background takes no time, so that a later one was not posted for lack of it.
			late := stale(task) || t.background && time.Since(at.created()) > moment
			if t.retry == unsaid && (late || d.open.have(ctx, m.GetMessageId())) {
				break
			}
			if i > 0 {
				at.task = task.GetId()
				_, at.after, _ = own(m.GetMessageId())
			}
			return at, true
		}
	}
	return at, false
}

// stale reports whether a task has ended so long ago, or in such a way, that the same request asks for a new one.
func stale(task *a2av1.Task) bool {
	state := task.GetStatus().GetState()
	switch {
	case state == a2av1.TaskState_TASK_STATE_COMPLETED, taskstate.Interrupted(state):
		return time.Since(task.GetStatus().GetTimestamp().AsTime()) > moment
	}
	return taskstate.Final(state)
}

// send returns the call that a turn is, with its context.
func (t *turn) send(ctx context.Context, at place) (context.Context, *a2av1.SendMessageRequest) {
	ctx = a2a.WithTranscript(ctx, a2a.Transcript{Earlier: t.earlier(), Remember: t.key != ""})
	parts := t.last()
	if t.inputs != nil && at.task == "" { // clients that send metadata send it with answers to questions too
		parts = append(parts, agent.DataPart(structpb.NewStructValue(t.inputs)))
	}
	return ctx, &a2av1.SendMessageRequest{
		Tenant: t.model,
		Message: &a2av1.Message{
			MessageId: at.message, ContextId: at.context, TaskId: at.task, Role: a2av1.Role_ROLE_USER, Parts: parts, Metadata: t.echo,
		},
		Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: t.background},
	}
}
