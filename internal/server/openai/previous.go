package openai

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// indexOf returns where a message is in the history of a task, -1 without it.
func indexOf(task *a2av1.Task, message string) int {
	return slices.IndexFunc(task.GetHistory(), func(m *a2av1.Message) bool { return m.GetMessageId() == message })
}

// asked reports whether a task has got an answer to a question that it has asked after the message at a place.
func asked(task *a2av1.Task, at place) bool {
	i := indexOf(task, at.message)
	return i >= 0 && slices.ContainsFunc(task.GetHistory()[i:], func(m *a2av1.Message) bool { return m.GetRole() == a2av1.Role_ROLE_AGENT })
}

// follows finds the response that a request follows, and what was said up to it: by its task and, if the request of that one
// followed another, by those before, as far as an agent takes them.
func (d *Door) follows(ctx context.Context, t *turn) error {
	room := a2a.MaxMessage - besides - sizeOf(t.messages) - sizeOf(t.system)
	for id := t.previous; id != "" && len(t.past) < maxEarlier; {
		task, at, err := d.find(ctx, id)
		gone := wire.Status(err).Code() == codes.NotFound
		switch {
		case gone && t.prior == nil:
			return wire.Invalid("previous_response_id", "must be the id of a response of this caller that still exists")
		case err != nil && !gone:
			return err
		case t.prior == nil:
			t.prior, t.forks = task, asked(task, at)
		}
		if gone { // it is older than the server keeps tasks
			break
		}
		said := saidIn(ctx, task, at)
		if room -= sizeOf(said); room < 0 {
			break
		}
		t.past = append(said, t.past...)
		id = ""
		if list := task.GetHistory(); len(list) > 0 {
			if e := echoed(list[0]); e.Previous != nil {
				id = *e.Previous
			}
		}
	}
	return nil
}

// besides is how many bytes are left for what a message has besides the text of a conversation.
const besides = 64 << 10

// sizeOf returns about how many bytes messages have.
func sizeOf(list []message) (n int) {
	for _, m := range list {
		for _, p := range m.Content {
			n += proto.Size(p)
		}
	}
	return n
}

// saidIn returns what was said in a task up to the response at a place: its messages, and its answer.
func saidIn(ctx context.Context, task *a2av1.Task, at place) (list []message) {
	history := task.GetHistory()
	if i := indexOf(task, at.message); i >= 0 {
		if n := slices.IndexFunc(history[i:], func(m *a2av1.Message) bool { return m.GetRole() == a2av1.Role_ROLE_AGENT }); n >= 0 { // the response is this question
			history = history[:i+n+1]
		}
	}
	for _, m := range history {
		role := "user"
		if m.GetRole() == a2av1.Role_ROLE_AGENT {
			role = "assistant"
		}
		list = append(list, message{role, m.GetParts()})
	}
	if len(history) < len(task.GetHistory()) {
		return list
	}
	a := answer{base: call.InboundOf(ctx).BaseURL()}
	if a.take(task); taskstate.Final(task.GetStatus().GetState()) && a.said() != "" {
		list = append(list, message{"assistant", content{textPart(a.said())}})
	}
	return list
}

// next returns the place of a message that follows a response: if its task asks, the message answers. A message that
// follows a question that has its answer begins a task of its own.
func (t *turn) next() (place, error) {
	switch state := t.prior.GetStatus().GetState(); {
	case t.forks:
		return t.fresh(), nil
	case taskstate.Interrupted(state):
		return t.fresh().answering(t.prior), nil
	case !taskstate.Final(state):
		return place{}, wire.Invalid("previous_response_id", "is in progress; wait until it has ended, or cancel it")
	}
	return t.fresh(), nil
}
