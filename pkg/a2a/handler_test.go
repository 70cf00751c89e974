package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestSend(t *testing.T) {
	t.Run("R-000-14 the answer is the artifact of the task", func(t *testing.T) {
		r := start(t, echo("echo"))
		req := message("echo", "hi")
		task := wantState(t, r.send(t, ann(t), req), completed)
		if got := answer(t, task); got != "echo: hi" {
			t.Errorf("answer is %q", got)
		}
		if len(task.GetHistory()) != 1 {
			t.Fatalf("history is %v", task.GetHistory())
		}
		m := task.GetHistory()[0]
		if m.GetTaskId() != task.GetId() || m.GetContextId() != task.GetContextId() || m.GetMessageId() != req.GetMessage().GetMessageId() {
			t.Errorf("message in history is %v", m)
		}
		equal(t, task, r.get(t, task.GetId()))
	})
	t.Run("R-000-40 return_immediately gives a task that is polled to its end", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		task := r.send(t, ann(t), atOnce(message("gate", "x")))
		if s := task.GetStatus().GetState(); s != submitted && s != working {
			t.Errorf("task is %s", s)
		}
		<-g.entered
		r.until(t, task.GetId(), working)
		g.open()
		r.until(t, task.GetId(), completed)
	})
	t.Run("R-000-41 calls without a context share nothing", func(t *testing.T) {
		r := start(t, echo("echo"))
		one, two := r.send(t, ann(t), message("echo", "1")), r.send(t, ann(t), message("echo", "2"))
		if one.GetId() == two.GetId() || one.GetContextId() == two.GetContextId() || one.GetContextId() == "" {
			t.Errorf("tasks %q and %q, contexts %q and %q", one.GetId(), two.GetId(), one.GetContextId(), two.GetContextId())
		}
	})
	t.Run("a context of the client's is kept", func(t *testing.T) {
		r := start(t, echo("echo"))
		req := message("echo", "hi")
		req.Message.ContextId = "my-context"
		if task := r.send(t, ann(t), req); task.GetContextId() != "my-context" {
			t.Errorf("context is %q", task.GetContextId())
		}
	})
	t.Run("agents", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		_, err := r.SendMessage(ann(t), message("three", "hi"))
		wantError(t, err, agent.ReasonAgentNotFound)
		_, err = r.SendMessage(ann(t), message("", "hi"))
		wantFields(t, err, "tenant")
		if !strings.Contains(err.Error(), "one, two") {
			t.Errorf("the error lists no agents: %v", err)
		}
		only := start(t, echo("only"))
		wantState(t, only.send(t, ann(t), message("", "hi")), completed)
		chosen := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{DefaultAgent: "two"})}, echo("one"), failing("two", nil), echo("three"))
		wantState(t, chosen.send(t, ann(t), message("", "hi")), completed)
	})
	t.Run("a call that names its agent does not list all of them", func(t *testing.T) {
		agents := &listed{Agents: start(t, echo("one"), echo("two")).agents}
		h := a2a.NewHandler(a2a.Config{Agents: agents, Store: memstore.Open(t), Settings: settings.Of(&teamv1.ServerSettings{DefaultAgent: "two"})})
		for _, id := range []string{"one", ""} {
			if _, err := h.SendMessage(ann(t), atOnce(message(id, "hi"))); err != nil {
				t.Fatal(err)
			}
		}
		if agents.lists != 0 {
			t.Errorf("all ids were listed %d times", agents.lists)
		}
	})
	t.Run("R-000-41 messages that cannot be encoded are refused, and none is taken for another", func(t *testing.T) {
		r := start(t, echo("echo"))
		for _, text := range []string{"a\xff", "b\xfe"} {
			req := atOnce(message("echo", text))
			req.Message.MessageId = "m-1"
			_, err := r.SendMessage(ann(t), req)
			wantFields(t, err, "message")
		}
		id := r.send(t, ann(t), atOnce(message("echo", "hi"))).GetId()
		_, err := r.SendMessage(ann(t), reply(id, "c\xff"))
		wantFields(t, err, "message")
	})
	t.Run("nobody calls", func(t *testing.T) {
		_, err := start(t, echo("echo")).SendMessage(t.Context(), message("echo", "hi"))
		wantError(t, err, agent.ReasonUnauthenticated)
	})
}

// listed counts how often all ids are asked for.
type listed struct {
	a2a.Agents
	lists int
}

func (l *listed) IDs() []string {
	l.lists++
	return l.Agents.IDs()
}

func TestA_09_Waiting(t *testing.T) {
	t.Run("blocking waits for the end", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		done := make(chan *a2av1.Task)
		go func() {
			resp, err := r.SendMessage(ann(t), message("gate", "x"))
			if err != nil {
				t.Error(err)
			}
			done <- resp.GetTask()
		}()
		<-g.entered
		select {
		case task := <-done:
			t.Fatalf("it did not wait: %v", task)
		default:
		}
		g.open()
		wantState(t, <-done, completed)
	})
	t.Run("blocking waits no longer than for a question", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?")))
		task := wantState(t, r.send(t, ann(t), message("ask", "x")), inputRequired)
		if got := agent.Text(task.GetStatus().GetMessage()); got != "who?" {
			t.Errorf("status says %q", got)
		}
	})
	t.Run("WAIT_TIMEOUT names the task, which goes on", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		ctx, cancel := context.WithCancel(ann(t))
		defer cancel()
		ctx, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		_, err := r.SendMessage(ctx, message("gate", "x"))
		wantError(t, err, agent.ReasonWaitTimeout)
		id := agent.AsError(err).Details["task_id"]
		g.open()
		r.until(t, id, completed)
	})
	t.Run("WAIT_TIMEOUT names no task while the answer may be a message, which another send gets", func(t *testing.T) {
		g := newGate("gate")
		g.MayReplyDirectly = true
		r := start(t, g)
		for _, stream := range []bool{false, true} {
			ctx, stop := context.WithTimeout(ann(t), 50*time.Millisecond)
			var err error
			req := message("gate", "x")
			req.Message.MessageId = "m"
			if stream {
				all, serr := r.SendStreamingMessage(ctx, req)
				if err = serr; err == nil {
					for _, err = range all {
					}
				}
			} else {
				_, err = r.SendMessage(ctx, req)
			}
			stop()
			wantError(t, err, agent.ReasonWaitTimeout)
			if e := agent.AsError(err); e.Details["task_id"] != "" || !strings.Contains(e.Message, "send it again with the same messageId") {
				t.Errorf("stream %v: %v", stream, e)
			}
		}
		g.open()
		req := message("gate", "x")
		req.Message.MessageId = "m"
		resp, err := r.SendMessage(ann(t), req)
		if err != nil || resp.GetMessage() == nil || len(g.entered) != 1 {
			t.Errorf("got %v, %v after %d calls", resp, err, len(g.entered))
		}
	})
	t.Run("a client that leaves ends nothing", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		ctx, leave := context.WithCancel(ann(t))
		done := make(chan error)
		go func() {
			_, err := r.SendMessage(ctx, message("gate", "x"))
			done <- err
		}()
		<-g.entered
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		task := r.onlyTask(t)
		r.until(t, task.GetId(), working)
		g.open()
		r.until(t, task.GetId(), completed)
	})
	t.Run("the caller's deadline for the run holds", func(t *testing.T) {
		r := start(t, newGate("gate"))
		req := message("gate", "x")
		about(req, "deadline", time.Now().Add(50*time.Millisecond).UTC().Format(time.RFC3339Nano))
		task := wantState(t, r.send(t, ann(t), req), failed)
		if e := project.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonTimeout {
			t.Errorf("error is %v", e)
		}
	})
}

// onlyTask is the one task there is.
func (r *rig) onlyTask(t testing.TB) *a2av1.Task {
	t.Helper()
	resp, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.GetTasks()) != 1 {
		t.Fatalf("there are %d tasks", len(resp.GetTasks()))
	}
	return resp.GetTasks()[0]
}

func TestDirectReplies(t *testing.T) {
	t.Run("an answer without a task", func(t *testing.T) {
		r := start(t, direct("direct"))
		req := message("direct", "hi")
		resp, err := r.SendMessage(ann(t), req)
		if err != nil {
			t.Fatal(err)
		}
		m := resp.GetMessage()
		if agent.Text(m) != "echo: hi" || m.GetRole() != a2av1.Role_ROLE_AGENT || m.GetMessageId() == "" || m.GetContextId() == "" || m.GetTaskId() != "" {
			t.Errorf("message is %v", m)
		}
		again, err := r.SendMessage(ann(t), req)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, resp, again)
		list, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{})
		if err != nil || len(list.GetTasks()) != 0 {
			t.Errorf("list is %v, %v", list, err)
		}
	})
	t.Run("a stream is exactly one message", func(t *testing.T) {
		r := start(t, direct("direct"))
		updates, err := r.SendStreamingMessage(ann(t), message("direct", "hi"))
		if err != nil {
			t.Fatal(err)
		}
		v := follow(t, updates)
		if v.task != nil || agent.Text(v.message) != "echo: hi" {
			t.Errorf("told %v and %v", v.task, v.message)
		}
	})
	t.Run("return_immediately needs a task", func(t *testing.T) {
		r := start(t, direct("direct"))
		task := r.send(t, ann(t), atOnce(message("direct", "hi")))
		if got := answer(t, r.until(t, task.GetId(), completed)); got != "echo: hi" {
			t.Errorf("answer is %q", got)
		}
	})
	t.Run("a failure is a task", func(t *testing.T) {
		f := failing("direct", errors.New("x"))
		f.MayReplyDirectly = true
		r := start(t, f)
		task := wantState(t, r.send(t, ann(t), message("direct", "hi")), failed)
		r.get(t, task.GetId())
	})
}

// forgetful is a store that cannot say what was sent before.
type forgetful struct{ runs.Store }

func (forgetful) Sent(context.Context, string, string, string) (string, error) {
	return "", fmt.Errorf("%w: connection reset", runs.ErrStorage)
}

// TestA_15_RepetitionUnknown: while the store cannot say whether a message was sent before, it is
// not treated as a new one.
func TestA_15_RepetitionUnknown(t *testing.T) {
	r := start(t, &agent.Func{ID: "a", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) { return m, nil }})
	task := wantState(t, r.send(t, ann(t), message("a", "hi")), a2av1.TaskState_TASK_STATE_COMPLETED)
	h := a2a.NewHandler(a2a.Config{Agents: r.agents, Store: forgetful{r.store}})
	_, err := h.SendMessage(ann(t), reply(task.GetId(), "again"))
	wantError(t, err, agent.ReasonStoreUnavailable)
}

func TestA_15_Repetition(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	counted := &agent.Func{ID: "counted", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		return m, nil
	}}
	r := start(t, counted)
	req := message("counted", "hi")
	first := r.send(t, ann(t), req)
	t.Run("the same message reaches the same task", func(t *testing.T) {
		equal(t, first, r.send(t, ann(t), req))
		mu.Lock()
		defer mu.Unlock()
		if calls != 1 {
			t.Errorf("the agent was called %d times", calls)
		}
	})
	t.Run("other content", func(t *testing.T) {
		other := message("counted", "bye")
		other.Message.MessageId = req.GetMessage().GetMessageId()
		_, err := r.SendMessage(ann(t), other)
		wantError(t, err, agent.ReasonMessageIDReused)
	})
	t.Run("another owner", func(t *testing.T) {
		if task := r.send(t, bob(t), req); task.GetId() == first.GetId() {
			t.Error("bob reached ann's task")
		}
	})
	t.Run("at the same time", func(t *testing.T) {
		req := message("counted", "race")
		ids := make([]string, 20)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				if resp, err := r.SendMessage(ann(t), req); err != nil {
					t.Error(err)
				} else {
					ids[i] = resp.GetTask().GetId()
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("tasks %v", ids)
			}
		}
	})
	t.Run("the newest state, not an earlier one", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("hello {{answer}}")))
		req := message("ask", "x")
		task := wantState(t, r.send(t, ann(t), req), inputRequired)
		back := reply(task.GetId(), "me")
		wantState(t, r.send(t, ann(t), back), completed)
		wantState(t, r.send(t, ann(t), req), completed)
		wantState(t, r.send(t, ann(t), back), completed)
		updates, err := r.SendStreamingMessage(ann(t), req)
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, follow(t, updates).task, completed)
	})
}

func TestA_22_T_43_ErrorsShowNothingInternal(t *testing.T) {
	public := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "the peer is gone").Because(errors.New("secret address"))
	r := start(t, panicking("panic"), failing("internal", errors.New("secret text")), failing("public", public), echo("echo"))
	for id, want := range map[string]struct{ reason, text string }{
		"panic":    {agent.ReasonAgentPanic, `agent "panic" crashed on this message; the server's log says where ("agent panicked"): correct the agent, or leave this work to another one`},
		"internal": {agent.ReasonInternal, "internal error"},
		"public":   {agent.ReasonUnavailable, "the peer is gone"},
	} {
		t.Run(id, func(t *testing.T) {
			task := wantState(t, r.send(t, ann(t), message(id, "x")), failed)
			if strings.Contains(task.String(), "secret") {
				t.Errorf("the task shows what is internal: %v", task)
			}
			e := project.RunOf(task.GetMetadata()).GetError()
			if e.GetReason() != want.reason || e.GetMessage() != want.text {
				t.Errorf("metadata says %v", e)
			}
			if got := agent.Text(task.GetStatus().GetMessage()); !strings.Contains(got, want.text) {
				t.Errorf("status says %q", got)
			}
			wantState(t, r.send(t, ann(t), message("echo", "still here")), completed)
		})
	}
}

func TestA_02_TasksThatHaveEnded(t *testing.T) {
	r := start(t, echo("echo"))
	task := r.send(t, ann(t), message("echo", "hi"))
	t.Run("send", func(t *testing.T) {
		_, err := r.SendMessage(ann(t), reply(task.GetId(), "more"))
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
	t.Run("stream", func(t *testing.T) {
		_, err := r.SendStreamingMessage(ann(t), reply(task.GetId(), "more"))
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
	t.Run("subscribe", func(t *testing.T) {
		_, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, 0)
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
	t.Run("cancel", func(t *testing.T) {
		_, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: task.GetId()})
		wantError(t, err, a2aerror.ReasonTaskNotCancelable)
	})
}

// TestUnknownTasks: a foreign task is like one that is not there.
func TestUnknownTasks(t *testing.T) {
	r := start(t, echo("echo"), echo("other"))
	mine := r.send(t, ann(t), message("echo", "hi")).GetId()
	ops := map[string]func(ctx context.Context, tenant, id string) error{
		"send": func(ctx context.Context, tenant, id string) error {
			req := reply(id, "more")
			req.Tenant = tenant
			_, err := r.SendMessage(ctx, req)
			return err
		},
		"stream": func(ctx context.Context, tenant, id string) error {
			req := reply(id, "more")
			req.Tenant = tenant
			_, err := r.SendStreamingMessage(ctx, req)
			return err
		},
		"get": func(ctx context.Context, tenant, id string) error {
			_, err := r.GetTask(ctx, &a2av1.GetTaskRequest{Tenant: tenant, Id: id})
			return err
		},
		"cancel": func(ctx context.Context, tenant, id string) error {
			_, err := r.CancelTask(ctx, &a2av1.CancelTaskRequest{Tenant: tenant, Id: id})
			return err
		},
		"subscribe": func(ctx context.Context, tenant, id string) error {
			_, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Tenant: tenant, Id: id}, 0)
			return err
		},
		"Agent service cancel": func(ctx context.Context, tenant, id string) error {
			_, err := r.Cancel(ctx, &teamv1.CancelRequest{AgentId: tenant, TaskId: id})
			return err
		},
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			unknown := op(ann(t), "", "no-such-task")
			wantError(t, unknown, a2aerror.ReasonTaskNotFound)
			foreign := op(bob(t), "", mine)
			wantError(t, foreign, a2aerror.ReasonTaskNotFound)
			if want := strings.ReplaceAll(unknown.Error(), "no-such-task", mine); foreign.Error() != want {
				t.Errorf("a foreign task answers %q, an unknown one %q", foreign, want)
			}
			wantError(t, op(ann(t), "other", mine), a2aerror.ReasonTaskNotFound)
			wantError(t, op(ann(t), "", mine+"~1"), a2aerror.ReasonTaskNotFound)
		})
	}
	t.Run("references", func(t *testing.T) {
		req := message("echo", "see there")
		req.Message.ReferenceTaskIds = []string{mine}
		r.send(t, ann(t), req)
		_, err := r.SendMessage(bob(t), req)
		wantError(t, err, a2aerror.ReasonTaskNotFound)
	})
}

func TestFollowUps(t *testing.T) {
	t.Run("an answer goes to the only question", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("hello {{answer}}")))
		task := r.send(t, ann(t), message("ask", "x"))
		q := project.RunOf(task.GetMetadata()).GetQuestions()
		if len(q) != 1 || agent.Text(q[0].GetMessage()) != "who?" || q[0].GetDelegationId() != task.GetId() {
			t.Fatalf("questions are %v", q)
		}
		done := wantState(t, r.send(t, ann(t), reply(task.GetId(), "me")), completed)
		if got := answer(t, done); got != "hello me" {
			t.Errorf("answer is %q", got)
		}
		if diff := cmp.Diff([]string{"x", "who?", "me"}, texts(done.GetHistory())); diff != "" {
			t.Errorf("history:\n%s", diff)
		}
		if q := project.RunOf(done.GetMetadata()).GetQuestions(); len(q) > 0 {
			t.Errorf("still open: %v", q)
		}
	})
	t.Run("A-17 what nobody took is on record as too late", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		id := r.send(t, ann(t), atOnce(message("gate", "x"))).GetId()
		<-g.entered
		r.send(t, ann(t), atOnce(reply(id, "more")))
		g.open()
		r.until(t, id, completed)
		var late []bool
		for _, ev := range r.record(t, id) {
			if m := ev.GetReceived(); m != nil {
				late = append(late, m.GetTooLate())
			}
		}
		if diff := cmp.Diff([]bool{true}, late); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("one question after the other", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), ask("why?"), say("{{answer}}")))
		task := r.send(t, ann(t), message("ask", "x"))
		task = wantState(t, r.send(t, ann(t), reply(task.GetId(), "me")), inputRequired)
		if got := agent.Text(task.GetStatus().GetMessage()); got != "why?" {
			t.Errorf("status says %q", got)
		}
		done := wantState(t, r.send(t, ann(t), reply(task.GetId(), "because")), completed)
		if got := answer(t, done); got != "because" {
			t.Errorf("answer is %q", got)
		}
	})
	t.Run("a question that is named", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("hello {{answer}}")))
		task := r.send(t, ann(t), message("ask", "x"))
		_, err := r.SendMessage(ann(t), about(reply(task.GetId(), "me"), "question", "another"))
		wantError(t, err, agent.ReasonInvalidRequest)
		q := project.RunOf(task.GetMetadata()).GetQuestions()[0].GetQuestion()
		req := about(reply(task.GetId(), "me"), "question", q)
		done := wantState(t, r.send(t, ann(t), req), completed)
		equal(t, done, r.send(t, ann(t), req)) // the answer again
	})
	t.Run("another context is refused", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?")))
		task := r.send(t, ann(t), message("ask", "x"))
		req := reply(task.GetId(), "me")
		req.Message.ContextId = "another"
		_, err := r.SendMessage(ann(t), req)
		wantFields(t, err, "message.contextId")
		req = reply(task.GetId(), "me")
		req.Message.ContextId = task.GetContextId()
		wantState(t, r.send(t, ann(t), req), completed)
	})
	t.Run("A-17 a message to a working task is never lost", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		task := r.send(t, ann(t), atOnce(message("gate", "x")))
		<-g.entered
		r.until(t, task.GetId(), working)
		wantState(t, r.send(t, ann(t), atOnce(reply(task.GetId(), "by the way"))), working)
		g.open()
		done := r.until(t, task.GetId(), completed)
		if diff := cmp.Diff([]string{"x", "by the way"}, texts(done.GetHistory())); diff != "" {
			t.Errorf("history:\n%s", diff)
		}
	})
	t.Run("a stream goes on behind the answer", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("hello {{answer}}")))
		task := r.send(t, ann(t), message("ask", "x"))
		updates, err := r.SendStreamingMessage(ann(t), reply(task.GetId(), "me"))
		if err != nil {
			t.Fatal(err)
		}
		sameTask(t, follow(t, updates).task, wantState(t, r.get(t, task.GetId()), completed))
	})
}
