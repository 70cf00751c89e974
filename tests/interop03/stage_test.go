// Package interop03 drives the server, as a process, with the clients of the
// official SDKs for A2A 0.3, and has the server drive their servers. It is a module
// of its own: both lines of the Go SDK define the same messages, and cannot be in
// one program.
package interop03

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"

	"github.com/agentteams/team-server/tests/interoprig"
)

// callTime bounds each scenario.
const callTime = 30 * time.Second

// stage is a scenario's place: an agent, and a client of 0.3 that found it by its
// card.
type stage struct {
	*testing.T
	*a2aclient.Client
	ctx  context.Context
	card *a2a.AgentCard
}

func newStage(t *testing.T, s interoprig.Server, id string) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	t.Cleanup(cancel)
	card, err := agentcard.DefaultResolver.Resolve(ctx, s.URL+"/"+id)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a2aclient.NewFromCard(ctx, card)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Destroy() })
	return &stage{T: t, Client: client, ctx: ctx, card: card}
}

// say is a message of the user.
func say(text string) *a2a.MessageSendParams {
	return &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.TextPart{Text: text})}
}

// to makes a message a follow-up for a task.
func to(task a2a.TaskID, p *a2a.MessageSendParams) *a2a.MessageSendParams {
	p.Message.TaskID = task
	return p
}

// atOnce makes a send return as soon as the task is there.
func atOnce(p *a2a.MessageSendParams) *a2a.MessageSendParams {
	no := false
	p.Config = &a2a.MessageSendConfig{Blocking: &no}
	return p
}

// task sends a message that has to be answered with a task.
func (s *stage) task(p *a2a.MessageSendParams) *a2a.Task {
	s.Helper()
	result, err := s.SendMessage(s.ctx, p)
	if err != nil {
		s.Fatal(err)
	}
	task, ok := result.(*a2a.Task)
	if !ok {
		s.Fatalf("answered with a %T, not a task", result)
	}
	return task
}

func (s *stage) get(id a2a.TaskID) *a2a.Task {
	s.Helper()
	task, err := s.GetTask(s.ctx, &a2a.TaskQueryParams{ID: id})
	if err != nil {
		s.Fatal(err)
	}
	return task
}

// is checks the state of a task.
func (s *stage) is(task *a2a.Task, want a2a.TaskState) {
	s.Helper()
	if task.Status.State != want {
		s.Errorf("state %s, want %s", task.Status.State, want)
	}
}

// answered checks the text of a task's only artifact.
func (s *stage) answered(task *a2a.Task, want string) {
	s.Helper()
	if len(task.Artifacts) != 1 || text(task.Artifacts[0].Parts) != want {
		s.Errorf("artifacts %+v, want one that says %q", task.Artifacts, want)
	}
}

// refused checks which error of the protocol one is.
func (s *stage) refused(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("error %v, want %v", err, want)
	}
}

// collect reads a stream to its end.
func (s *stage) collect(events iter.Seq2[a2a.Event, error]) []a2a.Event {
	s.Helper()
	var all []a2a.Event
	for ev, err := range events {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, ev)
	}
	if len(all) == 0 {
		s.Fatal("the stream is empty")
	}
	return all
}

// failure is the error of a stream that has to be refused.
func (s *stage) failure(events iter.Seq2[a2a.Event, error]) error {
	s.Helper()
	for ev, err := range events {
		if err != nil {
			return err
		}
		s.Errorf("got %+v, want an error", ev)
	}
	return errors.New("the stream ended without an error")
}

// text joins the text of parts.
func text(parts a2a.ContentParts) string {
	var b strings.Builder
	for _, p := range parts {
		if t, ok := p.(a2a.TextPart); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}
