package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

func (r *rig) list(t testing.TB, req *a2av1.ListTasksRequest) *a2av1.ListTasksResponse {
	t.Helper()
	resp, err := r.ListTasks(ann(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestA_05_List(t *testing.T) {
	r := start(t, echo("echo"), echo("other"), script(t, "ask", ask("who?")))
	var wg sync.WaitGroup
	for i := range 250 {
		wg.Go(func() { r.send(t, ann(t), message("echo", fmt.Sprint(i))) })
	}
	wg.Wait()
	t.Run("each task once, newest first", func(t *testing.T) {
		seen := map[string]bool{}
		var last *a2av1.Task
		req := &a2av1.ListTasksRequest{PageSize: proto.Int32(7)}
		for {
			page := r.list(t, req)
			if page.GetPageSize() != 7 || page.GetTotalSize() != 250 {
				t.Fatalf("page size %d, total %d", page.GetPageSize(), page.GetTotalSize())
			}
			for _, task := range page.GetTasks() {
				if seen[task.GetId()] {
					t.Fatalf("%s comes twice", task.GetId())
				}
				seen[task.GetId()] = true
				if last != nil && !inOrder(last, task) {
					t.Fatalf("%v comes before %v", last, task)
				}
				last = task
			}
			if page.GetNextPageToken() == "" {
				break
			}
			req.PageToken = page.GetNextPageToken()
		}
		if len(seen) != 250 {
			t.Errorf("%d tasks", len(seen))
		}
	})
	t.Run("pages of 1 and of 100", func(t *testing.T) {
		for _, size := range []int32{1, 100} {
			if page := r.list(t, &a2av1.ListTasksRequest{PageSize: &size}); len(page.GetTasks()) != int(size) || page.GetPageSize() != size {
				t.Errorf("a page of %d has %d tasks", size, len(page.GetTasks()))
			}
		}
	})
	t.Run("all four fields, artifacts on request", func(t *testing.T) {
		page := r.list(t, &a2av1.ListTasksRequest{ContextId: "none"})
		if page.GetTasks() == nil || page.GetPageSize() != 50 || page.GetTotalSize() != 0 || page.GetNextPageToken() != "" {
			t.Errorf("an empty list is %v", page)
		}
		for _, task := range r.list(t, &a2av1.ListTasksRequest{}).GetTasks() {
			if task.GetArtifacts() != nil {
				t.Fatalf("unasked artifacts: %v", task)
			}
		}
		for _, task := range r.list(t, &a2av1.ListTasksRequest{IncludeArtifacts: proto.Bool(true)}).GetTasks() {
			answer(t, task)
		}
	})
	t.Run("filters", func(t *testing.T) {
		req := message("other", "x")
		req.Message.ContextId = "special"
		one := r.send(t, ann(t), req)
		two := r.send(t, ann(t), message("ask", "x"))
		for name, filter := range map[string]*a2av1.ListTasksRequest{
			"tenant":  {Tenant: "other"},
			"context": {ContextId: "special"},
			"all":     {Tenant: "other", ContextId: "special", Status: completed, StatusTimestampAfter: one.GetStatus().GetTimestamp()},
		} {
			page := r.list(t, filter)
			if len(page.GetTasks()) != 1 || page.GetTasks()[0].GetId() != one.GetId() || page.GetTotalSize() != 1 {
				t.Errorf("%s: %v", name, page)
			}
		}
		page := r.list(t, &a2av1.ListTasksRequest{Status: inputRequired})
		if len(page.GetTasks()) != 1 || page.GetTasks()[0].GetId() != two.GetId() {
			t.Errorf("status: %v", page)
		}
		after := timestamppb.New(two.GetStatus().GetTimestamp().AsTime().Add(time.Hour))
		if page := r.list(t, &a2av1.ListTasksRequest{StatusTimestampAfter: after}); len(page.GetTasks()) != 0 {
			t.Errorf("after: %v", page)
		}
		_, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{Tenant: "nobody"})
		wantError(t, err, agent.ReasonAgentNotFound)
	})
	t.Run("A-21 another owner sees nothing", func(t *testing.T) {
		page, err := r.ListTasks(bob(t), &a2av1.ListTasksRequest{ContextId: "special"})
		if err != nil || len(page.GetTasks()) != 0 || page.GetTotalSize() != 0 {
			t.Errorf("got %v, %v", page, err)
		}
		token := r.list(t, &a2av1.ListTasksRequest{}).GetNextPageToken()
		_, err = r.ListTasks(bob(t), &a2av1.ListTasksRequest{PageToken: token})
		wantFields(t, err, "pageToken")
	})
}

// inOrder reports whether b may follow a: newest status first, then by id.
func inOrder(a, b *a2av1.Task) bool {
	at, bt := a.GetStatus().GetTimestamp().AsTime(), b.GetStatus().GetTimestamp().AsTime()
	return at.After(bt) || at.Equal(bt) && a.GetId() > b.GetId()
}

func TestA_06_HistoryLength(t *testing.T) {
	r := start(t, script(t, "ask", ask("1?"), ask("2?"), ask("3?")))
	first := message("ask", "x")
	id := r.send(t, ann(t), first).GetId()
	r.send(t, ann(t), reply(id, "1!"))
	r.send(t, ann(t), reply(id, "2!"))
	all := []string{"x", "1?", "1!", "2?", "2!"}
	cases := map[string]struct {
		n    *int32
		want []string
	}{
		"unset": {nil, all},
		"0":     {proto.Int32(0), nil},
		"1":     {proto.Int32(1), all[4:]},
		"3":     {proto.Int32(3), all[2:]},
		"100":   {proto.Int32(100), all},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := func(where string, task *a2av1.Task) {
				t.Helper()
				if got := texts(task.GetHistory()); !slices.Equal(got, c.want) {
					t.Errorf("%s: %q, want %q", where, got, c.want)
				}
			}
			task, err := r.GetTask(ann(t), &a2av1.GetTaskRequest{Id: id, HistoryLength: c.n})
			if err != nil {
				t.Fatal(err)
			}
			want("get", task)
			want("list", r.list(t, &a2av1.ListTasksRequest{HistoryLength: c.n}).GetTasks()[0])
			again := proto.CloneOf(first)
			again.Configuration = &a2av1.SendMessageConfiguration{HistoryLength: c.n}
			want("send", r.send(t, ann(t), again))
			again.Configuration.ReturnImmediately = true
			want("send at once", r.send(t, ann(t), again))
			for u, err := range r.stream(t, again) {
				if err != nil {
					t.Fatal(err)
				}
				if n := len(u.Response.GetTask().GetHistory()); c.n != nil && n > int(*c.n) {
					t.Errorf("stream: %d messages", n)
				}
				break
			}
		})
	}
}

func TestCancel(t *testing.T) {
	cancel := func(t *testing.T, r *rig, id string) *a2av1.Task {
		t.Helper()
		task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		return task
	}
	t.Run("a working task ends, and again", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		id := r.send(t, ann(t), atOnce(message("gate", "x"))).GetId()
		<-g.entered
		task := wantState(t, cancel(t, r, id), canceled)
		equal(t, task, r.get(t, id))
		equal(t, task, cancel(t, r, id))
	})
	t.Run("a task that waits ends", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?")))
		id := r.send(t, ann(t), message("ask", "x")).GetId()
		wantState(t, cancel(t, r, id), canceled)
		_, err := r.SendMessage(ann(t), reply(id, "me"))
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
	t.Run("what does not end in time is returned as it is", func(t *testing.T) {
		a, begun, letGo := stubborn("stubborn")
		r := startWith(t, a2a.Config{CancelWait: 20 * time.Millisecond}, a)
		defer letGo()
		id := r.send(t, ann(t), atOnce(message("stubborn", "x"))).GetId()
		r.until(t, id, working)
		<-begun // a cancel before that would end it at once
		task := wantState(t, cancel(t, r, id), working)
		if !project.RunOf(task.GetMetadata()).GetCancelRequested() {
			t.Errorf("the cancel does not show: %v", task.GetMetadata())
		}
		letGo()
		r.until(t, id, canceled)
	})
}

// A long journal is read in several pieces, and the end is in the last.
func TestGet_OfALongJournal(t *testing.T) {
	var steps []*teamv1.ScriptedStep
	for range 600 {
		steps = append(steps, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Progress{Progress: "step"}})
	}
	steps = append(steps, &teamv1.ScriptedStep{Do: &teamv1.ScriptedStep_Text{Text: "the end"}})
	r := start(t, script(t, "long", steps...))
	task := r.send(t, ann(t), message("long", "x"))
	got, err := r.GetTask(ann(t), &a2av1.GetTaskRequest{Tenant: "long", Id: task.GetId()}) // a tenant: it is folded anew
	if err != nil || got.GetStatus().GetState() != completed || len(got.GetArtifacts()) != 1 {
		t.Errorf("%v, %v", got.GetStatus(), err)
	}
}

// unfolded is a store that counts how often events are read.
type unfolded struct {
	runs.Store
	reads atomic.Int64
}

func (s *unfolded) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	s.reads.Add(1)
	return s.Store.Events(ctx, k, after, limit)
}

// TestGetTaskReadsTheStoredTask: a task is read as it is stored, also below the URL of its agent.
func TestGetTaskReadsTheStoredTask(t *testing.T) {
	t.Parallel()
	r := start(t, echo("echo"), echo("other"))
	resp, err := r.SendMessage(ann(t), message("echo", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	id := resp.GetTask().GetId()
	s := &unfolded{Store: r.store}
	h := a2a.NewHandler(a2a.Config{Agents: r.agents, Store: s, Wake: r.wake})
	for tenant, found := range map[string]bool{"": true, "echo": true, "other": false, "nobody": false} {
		task, err := h.GetTask(ann(t), &a2av1.GetTaskRequest{Tenant: tenant, Id: id})
		switch {
		case found && (err != nil || task.GetStatus().GetState() != completed || s.reads.Load() != 0):
			t.Errorf("for %q: %v, %v, events were read %d times", tenant, task, err, s.reads.Load())
		case !found && !a2aerror.IsNotFound(err):
			t.Errorf("for %q: %v, %v", tenant, task, err)
		}
		s.reads.Store(0)
	}
}

// TestEndedTasksAreReadAsStored: no call about a task that has ended reads its events, but for the first one, which says
// to whom a message was sent.
func TestEndedTasksAreReadAsStored(t *testing.T) {
	t.Parallel()
	r := start(t, echo("echo"))
	id := r.send(t, ann(t), message("echo", "hello")).GetId()
	s := &unfolded{Store: r.store}
	h := a2a.NewHandler(a2a.Config{Agents: r.agents, Store: s, Pushes: r.store, Wake: r.wake})
	to := func(tenant, id string) *a2av1.SendMessageRequest {
		req := reply(id, "more")
		req.Tenant = tenant
		return req
	}
	hook := &a2av1.TaskPushNotificationConfig{Tenant: "echo", TaskId: id, Id: "hook", Url: "https://203.0.113.7/hook"}
	calls := map[string]func(ctx context.Context) error{
		"CancelTask": func(ctx context.Context) error {
			_, err := h.CancelTask(ctx, &a2av1.CancelTaskRequest{Tenant: "echo", Id: id})
			return as(err, a2aerror.ReasonTaskNotCancelable)
		},
		"CancelTask of another agent": func(ctx context.Context) error {
			_, err := h.CancelTask(ctx, &a2av1.CancelTaskRequest{Tenant: "other", Id: id})
			return as(err, a2aerror.ReasonTaskNotFound)
		},
		"Cancel": func(ctx context.Context) error {
			resp, err := h.Cancel(ctx, &teamv1.CancelRequest{AgentId: "echo", TaskId: id})
			if resp.GetState() != completed {
				return fmt.Errorf("%v, %w", resp, err)
			}
			return err
		},
		"a follow-up": func(ctx context.Context) error {
			_, err := h.SendMessage(ctx, to("echo", id))
			return as(err, a2aerror.ReasonUnsupportedOperation)
		},
		"a follow-up to another agent": func(ctx context.Context) error {
			_, err := h.SendMessage(ctx, to("other", id))
			return as(err, a2aerror.ReasonTaskNotFound)
		},
		"a follow-up in another context": func(ctx context.Context) error {
			_, err := h.SendMessage(ctx, inContext("elsewhere", to("echo", id)))
			return as(err, agent.ReasonInvalidRequest)
		},
		"Pause": func(ctx context.Context) error { _, err := h.Pause(ctx, id); return err },
		"Stop":  func(ctx context.Context) error { _, err := h.Stop(ctx, id, a2a.Stop{}); return err },
		"Owned": func(ctx context.Context) error { _, err := h.Owned(ctx, id); return err },
		"push": func(ctx context.Context) error {
			if _, err := h.CreateTaskPushNotificationConfig(ctx, hook); err != nil {
				return err
			}
			if _, err := h.GetTaskPushNotificationConfig(ctx, &a2av1.GetTaskPushNotificationConfigRequest{Tenant: "echo", TaskId: id, Id: "hook"}); err != nil {
				return err
			}
			_, err := h.DeleteTaskPushNotificationConfig(ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: id, Id: "hook"})
			return err
		},
		"a part": func(ctx context.Context) error {
			_, err := h.Part(ctx, "echo", id, func(p *a2av1.Part) bool { return p.GetText() == "echo: hello" })
			return err
		},
	}
	for name, call := range calls {
		s.reads.Store(0)
		if err := call(ann(t)); err != nil || s.reads.Load() != 0 {
			t.Errorf("%s: %v, events were read %d times", name, err, s.reads.Load())
		}
	}
}

// stored is a store in which the task as it is stored can be told from one that was computed from events. It says of
// a waiting task once that it works, as if someone had answered between the event and the read.
type stored struct {
	runs.Store
	late chan struct{} // closed when it has said so; nil for never
	once sync.Once
}

func (s *stored) Task(ctx context.Context, k runs.Key) (*a2av1.Task, int64, error) {
	t, seq, err := s.Store.Task(ctx, k)
	if s.late != nil && t.GetStatus().GetState() == inputRequired {
		s.once.Do(func() {
			t.Status = &a2av1.TaskStatus{State: working}
			close(s.late)
		})
	}
	if t != nil {
		t.History = []*a2av1.Message{agent.UserMessage("stored", "")}
	}
	return t, seq, err
}

// TestSendAnswersWithTheTaskAsStored: a waiting send applies no events, and waits on for a task that works again.
func TestSendAnswersWithTheTaskAsStored(t *testing.T) {
	t.Parallel()
	r := start(t, echo("echo"), script(t, "ask", ask("who?")))
	s := &stored{Store: r.store}
	h := a2a.NewHandler(a2a.Config{Agents: r.agents, Store: s, Wake: r.wake})
	sent := func(req *a2av1.SendMessageRequest, want a2av1.TaskState) string {
		t.Helper()
		resp, err := h.SendMessage(ann(t), req)
		task := resp.GetTask()
		if err != nil || task.GetStatus().GetState() != want || len(task.GetHistory()) != 1 || task.GetHistory()[0].GetMessageId() != "stored" {
			t.Errorf("%v, %v; want the stored task in state %v", task, err, want)
		}
		return task.GetId()
	}
	sent(message("echo", "hello"), completed)
	sent(message("ask", "hello"), inputRequired)

	s.late = make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { sent(message("ask", "hello again"), completed) })
	select {
	case <-s.late:
	case <-time.After(10 * time.Second):
		t.Error("the stored task is not read")
	}
	for _, task := range r.list(t, &a2av1.ListTasksRequest{Tenant: "ask"}).GetTasks() {
		sent(reply(task.GetId(), "ann"), completed)
	}
	wg.Wait()
}

// as returns nil if an error has a reason.
func as(err error, reason string) error {
	if e := agent.AsError(err); e != nil && e.Reason == reason {
		return nil
	}
	var e *a2aerror.Error
	if errors.As(err, &e) && e.Reason == reason {
		return nil
	}
	return fmt.Errorf("got %w, want %s", err, reason)
}
