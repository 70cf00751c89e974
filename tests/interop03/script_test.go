package interop03

import (
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/agentteams/team-server/tests/interoprig"
)

// The whole script, with the Go SDK of 0.3 as the client.
func TestA_25_GoSDK03_A_12(t *testing.T) {
	s := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	for _, sc := range []struct {
		step, name, agent string
		play              func(*stage)
	}{
		{"card", "card", "echo", playCard},
		{"card", "extended card", "echo", playExtendedCard},
		{"send", "send and get", "relay", playSend},
		{"send", "send without waiting", "patient", playAtOnce},
		{"send", "messages that are refused", "relay", playRefused},
		{"stream", "stream", "echo", playStream},
		{"get", "parts of all kinds", "echo", playParts},
		{"get", "history", "relay", playHistory},
		{"list", "list", "relay", playList},
		{"cancel", "cancel", "bureau", playCancel},
		{"subscribe", "resubscribe", "desk", playResubscribe},
		{"question", "input-required", "curious", playQuestion},
		{"question", "input-required, of a member, streamed", "desk", playStreamedQuestion},
		{"push", "push notification configurations", "relay", playPush},
		{"receive", "push notifications", "bureau", playReceive},
		{"unknown", "a task that is not there", "relay", playUnknown},
		{"ended", "a task that has ended", "relay", playEnded},
	} {
		t.Run(sc.name, func(t *testing.T) {
			goSDK(t).Records(t, sc.step)
			sc.play(newStage(t, s, sc.agent))
		})
	}
}

func TestMain(m *testing.M) { os.Exit(interoprig.Main(m)) }

// goSDK is the SDK that this program is linked with, in the matrix. Its other binding
// is gRPC, over which 0.3 is not served.
func goSDK(t *testing.T) interoprig.Column {
	t.Helper()
	return interoprig.Column{Client: "a2a-go", Version: interoprig.Pinned(t, "go.mod", "a2a-go"), Binding: "JSONRPC 0.3"}
}

func playCard(s *stage) {
	c := s.card
	if c.ProtocolVersion != "0.3.0" || c.PreferredTransport != a2a.TransportProtocolJSONRPC || !c.Capabilities.Streaming || len(c.Skills) == 0 {
		s.Errorf("card %+v", c)
	}
	first := a2a.AgentInterface{Transport: c.PreferredTransport, URL: c.URL}
	if len(c.AdditionalInterfaces) != 2 || c.AdditionalInterfaces[0] != first || c.AdditionalInterfaces[1].Transport != a2a.TransportProtocolHTTPJSON {
		s.Errorf("interfaces %+v at %s", c.AdditionalInterfaces, c.URL)
	}
}

func playSend(s *stage) {
	task := s.task(say("Hello"))
	s.is(task, a2a.TaskStateCompleted)
	s.answered(task, "Hello")
	if task.Status.Timestamp == nil || len(task.History) != 1 || task.History[0].Role != a2a.MessageRoleUser {
		s.Errorf("task %+v", task)
	}
	got := s.get(task.ID)
	s.is(got, a2a.TaskStateCompleted)
	s.answered(got, "Hello")
}

// playParts has what is sent come back in the history.
func playParts(s *stage) {
	parts := a2a.ContentParts{
		a2a.TextPart{Text: "All kinds", Metadata: map[string]any{"n": 1.0}},
		a2a.DataPart{Data: map[string]any{"key": "value", "list": []any{1.0, nil, true}}},
		a2a.FilePart{File: a2a.FileBytes{Bytes: "aGVsbG8=", FileMeta: a2a.FileMeta{Name: "hello.txt", MimeType: "text/plain"}}},
		a2a.FilePart{File: a2a.FileURI{URI: "https://example.com/a.png", FileMeta: a2a.FileMeta{MimeType: "image/png"}}},
	}
	p := &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser, parts...)}
	task := s.get(s.task(p).ID)
	if len(task.History) != 1 || !alike(task.History[0].Parts, parts) {
		s.Errorf("history %+v, want the parts %+v", task.History, parts)
	}
}

func playHistory(s *stage) {
	none := 0
	p := say("Hello")
	p.Config = &a2a.MessageSendConfig{HistoryLength: &none}
	task := s.task(p)
	got, err := s.GetTask(s.ctx, &a2a.TaskQueryParams{ID: task.ID, HistoryLength: &none})
	if err != nil || len(task.History)+len(got.History) != 0 {
		s.Errorf("history %v and %v, error %v, want none", task.History, got.History, err)
	}
	less := -1
	_, err = s.GetTask(s.ctx, &a2a.TaskQueryParams{ID: task.ID, HistoryLength: &less})
	s.refused(err, a2a.ErrInvalidParams)
}

func playAtOnce(s *stage) {
	task := s.task(atOnce(say("Take your time")))
	if task.Status.State.Terminal() {
		s.Errorf("state %s right away", task.Status.State)
	}
	ended, err := s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	s.is(ended, a2a.TaskStateCanceled)
}

func playStream(s *stage) {
	events := s.collect(s.SendStreamingMessage(s.ctx, say("one two three four")))
	task, ok := events[0].(*a2a.Task)
	if !ok {
		s.Fatalf("the first event is a %T, not a task", events[0])
	}
	if got := fold(events); got != "one two three four" {
		s.Errorf("artifact %q", got)
	}
	for i, ev := range events[1:] {
		u, ok := ev.(*a2a.TaskStatusUpdateEvent)
		last := i == len(events)-2
		if ok && u.Final != last || last && (!ok || u.Status.State != a2a.TaskStateCompleted) {
			s.Errorf("event %d of %d is %+v", i+2, len(events), ev)
		}
		if info := ev.TaskInfo(); info.TaskID != task.ID || info.ContextID != task.ContextID {
			s.Errorf("event %d is of task %s, want %s", i+2, info.TaskID, task.ID)
		}
	}
	s.answered(s.get(task.ID), "one two three four")
}

// fold is the text of the only artifact of a stream.
func fold(events []a2a.Event) string {
	all := ""
	for _, ev := range events {
		if u, ok := ev.(*a2a.TaskArtifactUpdateEvent); ok {
			if !u.Append {
				all = ""
			}
			all += text(u.Artifact.Parts)
		}
	}
	return all
}

func playList(s *stage) {
	first := s.task(say("one"))
	p := say("two")
	p.Message.ContextID = first.ContextID
	second := s.task(p)
	page, err := s.ListTasks(s.ctx, &a2a.ListTasksRequest{ContextID: first.ContextID, Status: a2a.TaskStateCompleted, PageSize: 1})
	if err != nil {
		s.Fatal(err)
	}
	if len(page.Tasks) != 1 || page.Tasks[0].ID != second.ID || page.TotalSize != 2 || page.NextPageToken == "" {
		s.Errorf("page %+v, want the second task of two", page)
	}
	page, err = s.ListTasks(s.ctx, &a2a.ListTasksRequest{ContextID: first.ContextID, Status: a2a.TaskStateCompleted, PageSize: 1, PageToken: page.NextPageToken})
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != first.ID {
		s.Errorf("page %+v, error %v, want the first task", page, err)
	}
}

// playResubscribe watches a question, and sees what its answer leads to.
func playResubscribe(s *stage) {
	asked := s.task(say("High tide"))
	s.is(asked, a2a.TaskStateInputRequired)
	next, stop := iter.Pull2(s.ResubscribeToTask(s.ctx, &a2a.TaskIDParams{ID: asked.ID}))
	defer stop()
	ev, err, _ := next()
	task, ok := ev.(*a2a.Task)
	if err != nil || !ok {
		s.Fatalf("the first event is %+v, error %v", ev, err)
	}
	s.is(task, a2a.TaskStateInputRequired)
	s.is(s.task(to(asked.ID, say("Brest"))), a2a.TaskStateCompleted)
	var rest []a2a.Event
	for ev, err, ok := next(); ok; ev, err, ok = next() {
		if err != nil {
			s.Fatal(err)
		}
		rest = append(rest, ev)
	}
	end, ok := rest[len(rest)-1].(*a2a.TaskStatusUpdateEvent)
	if !ok || !end.Final || end.Status.State != a2a.TaskStateCompleted {
		s.Errorf("the last event is %+v", rest[len(rest)-1])
	}
	s.refused(s.failure(s.ResubscribeToTask(s.ctx, &a2a.TaskIDParams{ID: asked.ID})), a2a.ErrUnsupportedOperation)
}

func playCancel(s *stage) {
	task := s.task(atOnce(say("Wait")))
	ended, err := s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	s.is(ended, a2a.TaskStateCanceled)
	again, err := s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: task.ID})
	if err != nil {
		s.Fatal(err)
	}
	s.is(again, a2a.TaskStateCanceled)
}

func playQuestion(s *stage) {
	asked := s.task(say("High tide"))
	s.is(asked, a2a.TaskStateInputRequired)
	if asked.Status.Message == nil || text(asked.Status.Message.Parts) != "Which city?" || asked.Status.Message.Role != a2a.MessageRoleAgent {
		s.Errorf("status %+v, want the question", asked.Status)
	}
	done := s.task(to(asked.ID, say("Brest")))
	s.is(done, a2a.TaskStateCompleted)
	s.answered(done, "High tide in Brest")
	if done.ID != asked.ID || done.ContextID != asked.ContextID {
		s.Errorf("answered by %s in %s", done.ID, done.ContextID)
	}
}

// playStreamedQuestion streams up to the question, which is final, and then the
// answer.
func playStreamedQuestion(s *stage) {
	events := s.collect(s.SendStreamingMessage(s.ctx, say("High tide")))
	end, ok := events[len(events)-1].(*a2a.TaskStatusUpdateEvent)
	if !ok || !end.Final || end.Status.State != a2a.TaskStateInputRequired {
		s.Fatalf("the last event is %+v", events[len(events)-1])
	}
	events = s.collect(s.SendStreamingMessage(s.ctx, to(end.TaskID, say("Brest"))))
	var finals []a2a.TaskState
	for _, ev := range events {
		if u, ok := ev.(*a2a.TaskStatusUpdateEvent); ok && u.Final {
			finals = append(finals, u.Status.State)
		}
	}
	if !slices.Equal(finals, []a2a.TaskState{a2a.TaskStateCompleted}) || fold(events) != "High tide in Brest" {
		s.Errorf("final states %v, artifact %q", finals, fold(events))
	}
}

// playPush sets, reads and deletes webhooks.
func playPush(s *stage) {
	task := s.task(say("Hello"))
	config := &a2a.TaskPushConfig{TaskID: task.ID, Config: a2a.PushConfig{
		ID: "one", URL: "https://example.com/hook", Token: "t", Auth: &a2a.PushAuthInfo{Schemes: []string{"Bearer"}, Credentials: "c"},
	}}
	set, err := s.SetTaskPushConfig(s.ctx, config)
	if err != nil || set.TaskID != task.ID || set.Config.ID != "one" || set.Config.URL != config.Config.URL {
		s.Fatalf("set %+v, error %v", set, err)
	}
	for _, id := range []string{"one", ""} {
		got, err := s.GetTaskPushConfig(s.ctx, &a2a.GetTaskPushConfigParams{TaskID: task.ID, ConfigID: id})
		if err != nil || got.Config.ID != "one" {
			s.Errorf("get %q: %+v, error %v", id, got, err)
		}
	}
	list, err := s.ListTaskPushConfig(s.ctx, &a2a.ListTaskPushConfigParams{TaskID: task.ID})
	if err != nil || len(list) != 1 || list[0].Config.ID != "one" {
		s.Errorf("list %+v, error %v", list, err)
	}
	for range 2 { // the second time is no error
		if err := s.DeleteTaskPushConfig(s.ctx, &a2a.DeleteTaskPushConfigParams{TaskID: task.ID, ConfigID: "one"}); err != nil {
			s.Error(err)
		}
	}
	if list, err := s.ListTaskPushConfig(s.ctx, &a2a.ListTaskPushConfigParams{TaskID: task.ID}); err != nil || len(list) != 0 {
		s.Errorf("after the end: %+v, error %v", list, err)
	}
}

// playExtendedCard: the client asks for it only where the card offers it.
func playExtendedCard(s *stage) {
	card, err := s.GetAgentCard(s.ctx)
	if err != nil || card.URL != s.card.URL {
		s.Errorf("card %+v, error %v", card, err)
	}
}

// playReceive has a receiver told of a task that is canceled: each time the whole task.
func playReceive(s *stage) {
	type notification struct {
		header http.Header
		task   a2a.Task
	}
	got := make(chan notification, 100)
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := notification{header: req.Header}
		if err := json.NewDecoder(req.Body).Decode(&n.task); err != nil {
			s.Errorf("a notification that the SDK does not understand: %v", err)
		}
		got <- n
		w.WriteHeader(http.StatusNoContent)
	}))
	defer r.Close()
	task := s.task(atOnce(say("Wait")))
	if _, err := s.SetTaskPushConfig(s.ctx, &a2a.TaskPushConfig{TaskID: task.ID, Config: a2a.PushConfig{
		URL: r.URL, Token: "t0ken", Auth: &a2a.PushAuthInfo{Schemes: []string{"Bearer"}, Credentials: "letmein"},
	}}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: task.ID}); err != nil {
		s.Fatal(err)
	}
	for ended := false; !ended; {
		select {
		case n := <-got:
			if n.task.ID != task.ID || n.header.Get("X-A2A-Notification-Token") != "t0ken" || n.header.Get("Authorization") != "Bearer letmein" {
				s.Errorf("told is %+v with %v", n.task, n.header)
			}
			ended = n.task.Status.State == a2a.TaskStateCanceled
		case <-s.ctx.Done():
			s.Fatal("the end was not told")
		}
	}
}

func playUnknown(s *stage) {
	const nobody = "00000000-0000-7000-8000-000000000000"
	_, err := s.GetTask(s.ctx, &a2a.TaskQueryParams{ID: nobody})
	s.refused(err, a2a.ErrTaskNotFound)
	_, err = s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: nobody})
	s.refused(err, a2a.ErrTaskNotFound)
	_, err = s.SendMessage(s.ctx, to(nobody, say("more")))
	s.refused(err, a2a.ErrTaskNotFound)
	s.refused(s.failure(s.SendStreamingMessage(s.ctx, to(nobody, say("more")))), a2a.ErrTaskNotFound)
	s.refused(s.failure(s.ResubscribeToTask(s.ctx, &a2a.TaskIDParams{ID: nobody})), a2a.ErrTaskNotFound)
}

func playEnded(s *stage) {
	done := s.task(say("Hello"))
	_, err := s.CancelTask(s.ctx, &a2a.TaskIDParams{ID: done.ID})
	s.refused(err, a2a.ErrTaskNotCancelable)
	_, err = s.SendMessage(s.ctx, to(done.ID, say("more")))
	s.refused(err, a2a.ErrUnsupportedOperation)
	s.refused(s.failure(s.SendStreamingMessage(s.ctx, to(done.ID, say("more")))), a2a.ErrUnsupportedOperation)
}

func playRefused(s *stage) {
	_, err := s.SendMessage(s.ctx, &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser)})
	s.refused(err, a2a.ErrInvalidParams)
	_, err = s.SendMessage(s.ctx, &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: "x"})})
	s.refused(err, a2a.ErrInvalidParams)
	_, err = s.SendMessage(s.ctx, &a2a.MessageSendParams{Message: a2a.NewMessage("robot", a2a.TextPart{Text: "x"})})
	s.refused(err, a2a.ErrInvalidParams)
}

// await waits for a task to come to a state.
func (s *stage) await(id a2a.TaskID, want func(*a2a.Task) bool) *a2a.Task {
	s.Helper()
	for {
		task := s.get(id)
		if want(task) {
			return task
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
			s.Fatalf("the task stays %+v", task.Status)
		}
	}
}
