package interop

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// pushes are the scenarios of push notifications.
func pushes() []scenario {
	return []scenario{
		{"push", "A-18 push configurations", "patient", playPushConfigs},
		{"receive", "A-18 a receiver of a task", "patient", playReceiver},
		{"receive", "A-18 a receiver in the send", "echo", playInlineReceiver},
	}
}

// notification is what a receiver got, as the SDK understands it.
type notification struct {
	event  a2a.Event
	header http.Header
}

// receive returns the address of a receiver, and what it gets.
func receive(t *testing.T) (url string, got <-chan notification) {
	t.Helper()
	all := make(chan notification, 100)
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		var body a2a.StreamResponse
		if err := errors.Join(err, json.Unmarshal(b, &body)); err != nil {
			t.Errorf("a notification that the SDK does not understand: %v: %s", err, b)
		}
		all <- notification{body.Event, req.Header}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r.URL + "/hook", all
}

// ended reads what a receiver gets until the task has ended.
func (s *stage) ended(got <-chan notification) (kinds []string, state a2a.TaskState) {
	s.Helper()
	for {
		var n notification
		select {
		case n = <-got:
		case <-s.ctx.Done():
			s.Fatal("the end was not told")
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer letmein", "A2A-Notification-Token": "t0ken", "X-A2A-Notification-Token": "t0ken", "Content-Type": "application/a2a+json",
		} {
			if n.header.Get(name) != want {
				s.Errorf("%s: %q, want %q", name, n.header.Get(name), want)
			}
		}
		switch ev := n.event.(type) {
		case *a2a.Task:
			kinds = append(kinds, "task")
		case *a2a.TaskArtifactUpdateEvent:
			kinds = append(kinds, "artifact")
		case *a2a.TaskStatusUpdateEvent:
			kinds = append(kinds, "status "+string(ev.Status.State))
			if ev.Status.State.Terminal() {
				return kinds, ev.Status.State
			}
		default:
			s.Fatalf("told is a %T", ev)
		}
	}
}

func hook(task a2a.TaskID, url string) *a2a.PushConfig {
	return &a2a.PushConfig{TaskID: task, URL: url, Token: "t0ken", Auth: &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: "letmein"}}
}

// playPushConfigs makes, reads, lists and deletes them.
func playPushConfigs(s *stage) any {
	task := s.waiting()
	made, err := s.CreateTaskPushConfig(s.ctx, hook(task.ID, "http://127.0.0.1:1/hook"))
	if err != nil {
		s.Fatal(err)
	}
	if made.ID == "" || made.TaskID != task.ID || made.Token == "t0ken" || made.Auth == nil || made.Auth.Credentials == "letmein" {
		s.Errorf("created is %+v", made)
	}
	named := hook(task.ID, "http://127.0.0.1:1/other")
	named.ID = "mine"
	if _, err := s.CreateTaskPushConfig(s.ctx, named); err != nil {
		s.Fatal(err)
	}
	got, err := s.GetTaskPushConfig(s.ctx, &a2a.GetTaskPushConfigRequest{TaskID: task.ID, ID: "mine"})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.CreateTaskPushConfig(s.ctx, got); err != nil { // as it was read
		s.Errorf("what was read, sent back: %v", err)
	}
	list, err := s.ListTaskPushConfigs(s.ctx, &a2a.ListTaskPushConfigRequest{TaskID: task.ID})
	if err != nil || len(list) != 2 {
		s.Errorf("%d are listed, %v", len(list), err)
	}
	for range 2 {
		if err := s.DeleteTaskPushConfig(s.ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: task.ID, ID: "mine"}); err != nil {
			s.Errorf("delete: %v", err)
		}
	}
	_, gone := s.GetTaskPushConfig(s.ctx, &a2a.GetTaskPushConfigRequest{TaskID: task.ID, ID: "mine"})
	_, foreign := s.ListTaskPushConfigs(s.ctx, &a2a.ListTaskPushConfigRequest{TaskID: "00000000-0000-7000-8000-000000000000"})
	_, bad := s.CreateTaskPushConfig(s.ctx, hook(task.ID, "ftp://example.com"))
	if _, err := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID}); err != nil {
		s.Error(err)
	}
	return []any{made, got, s.refused(gone, a2a.ErrTaskNotFound), s.refused(foreign, a2a.ErrTaskNotFound), s.invalid(bad, "url")}
}

// playReceiver has a receiver told of a task that is canceled.
func playReceiver(s *stage) any {
	url, got := receive(s.T)
	task := s.waiting()
	if _, err := s.CreateTaskPushConfig(s.ctx, hook(task.ID, url)); err != nil {
		s.Fatal(err)
	}
	if _, err := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: task.ID}); err != nil {
		s.Fatal(err)
	}
	_, state := s.ended(got)
	if state != a2a.TaskStateCanceled {
		s.Errorf("told is %s", state)
	}
	return state
}

// playInlineReceiver registers it with the message that begins the task.
func playInlineReceiver(s *stage) any {
	url, got := receive(s.T)
	req := say("one two three four")
	req.Config = &a2a.SendMessageConfig{PushConfig: hook("", url)}
	task := s.task(req)
	s.is(task, a2a.TaskStateCompleted)
	kinds, _ := s.ended(got)
	if kinds[0] != "task" {
		s.Errorf("told are %v", kinds)
	}
	return kinds
}
