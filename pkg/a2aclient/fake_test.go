package a2aclient_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// eachFake does the same with an agent of others over every binding in each version.
func eachFake(t *testing.T, cfg fakeagent.Config, test func(*caller, *fakeagent.Agent)) {
	for name, w := range map[string]struct {
		binding string
		old     bool
	}{
		"grpc 1.0":    {a2aclient.GRPC, false},
		"rest 1.0":    {a2aclient.REST, false},
		"jsonrpc 1.0": {a2aclient.JSONRPC, false},
		"rest 0.3":    {a2aclient.REST, true},
		"jsonrpc 0.3": {a2aclient.JSONRPC, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Bindings, cfg.Old, cfg.Token = []string{w.binding}, w.old, "secret"
			f := fakeagent.New(t, cfg)
			c, err := a2aclient.Open(t.Context(), f.URL(), a2aclient.Config{Token: secret.New("secret"), AnyGRPCPort: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if old := c.Version() == a2aclient.V03; c.Binding() != w.binding || old != w.old || (c.Conn() != nil) != (w.binding == a2aclient.GRPC) {
				t.Errorf("called is %s over %s", c.Version(), c.Binding())
			}
			test(&caller{T: t, Client: c, ctx: t.Context()}, f)
		})
	}
}

// tokens are a secret.Source whose first token is not accepted any longer.
type tokens struct{ discarded, given atomic.Int32 }

func (k *tokens) Token(context.Context) (secret.Secret, error) {
	k.given.Add(1)
	if k.discarded.Load() == 0 {
		return secret.New("expired-token"), nil
	}
	return secret.New("secret"), nil
}

func (k *tokens) Discard(used secret.Secret) {
	if used.Reveal() == "expired-token" {
		k.discarded.Add(1)
	}
}

// TestTokens: a call that is refused with a token is made once more with a new one, and tokens go where Token goes.
func TestTokens(t *testing.T) {
	for _, binding := range []string{a2aclient.GRPC, a2aclient.REST, a2aclient.JSONRPC} {
		t.Run(binding, func(t *testing.T) {
			f := fakeagent.New(t, fakeagent.Config{Bindings: []string{binding}, Token: "secret", Default: fakeagent.Turn{Text: "four"}})
			k := &tokens{}
			c, err := a2aclient.Open(t.Context(), f.URL(), a2aclient.Config{Tokens: k, AnyGRPCPort: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			k.discarded.Store(0)
			say := (&caller{T: t, Client: c, ctx: t.Context()}).say("when?")
			if resp, err := c.SendMessage(t.Context(), say); err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || k.discarded.Load() != 1 {
				t.Errorf("%v, %v, %d discarded", resp, err, k.discarded.Load())
			}
		})
	}
}

func TestA_12_OperationsOfAnotherAgent(t *testing.T) {
	eachFake(t, fakeagent.Config{Default: fakeagent.Turn{Text: "four o'clock"}}, func(c *caller, _ *fakeagent.Agent) {
		resp, err := c.SendMessage(c.ctx, c.say("when?"))
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			c.Fatalf("answer %v, %v", resp, err)
		}
		id := resp.GetTask().GetId()
		task, err := c.GetTask(c.ctx, &a2av1.GetTaskRequest{Id: id})
		if err != nil || agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}) != "four o'clock" {
			c.Errorf("task %v, %v", task, err)
		}
		last := c.last(c.StreamMessage(c.ctx, c.say("when?")))
		state := max(last.GetTask().GetStatus().GetState(), last.GetStatusUpdate().GetStatus().GetState())
		if state != a2av1.TaskState_TASK_STATE_COMPLETED || a2aclient.Cursor(last) != 0 {
			c.Errorf("the stream ends with %v", last)
		}
		_, err = c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: id})
		if !errors.Is(err, a2aclient.ErrTaskNotCancelable) {
			c.Errorf("cancel: %v", err)
		}
		if err := failure(c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0)); !errors.Is(err, a2aclient.ErrUnsupportedOperation) {
			c.Errorf("subscribe: %v", err)
		}
		if _, err := c.GetTask(c.ctx, &a2av1.GetTaskRequest{Id: "x"}); !errors.Is(err, a2aclient.ErrTaskNotFound) {
			c.Errorf("no task: %v", err)
		}
	})
}

// TestA_12_OperationsThatAnAgentLacks are refused over every binding. Over REST the fake
// takes their paths for those of tasks.
func TestA_12_OperationsThatAnAgentLacks(t *testing.T) {
	eachFake(t, fakeagent.Config{}, func(c *caller, _ *fakeagent.Agent) {
		errs := map[string]error{}
		_, errs["list"] = c.ListTasks(c.ctx, &a2av1.ListTasksRequest{})
		_, errs["create"] = c.CreateTaskPushNotificationConfig(c.ctx, &a2av1.TaskPushNotificationConfig{TaskId: "t", Url: "http://h/"})
		_, errs["webhook"] = c.GetTaskPushNotificationConfig(c.ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: "t", Id: "x"})
		_, errs["webhooks"] = c.ListTaskPushNotificationConfigs(c.ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: "t"})
		errs["delete"] = c.DeleteTaskPushNotificationConfig(c.ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: "t", Id: "x"})
		_, errs["card"] = c.GetExtendedAgentCard(c.ctx, &a2av1.GetExtendedAgentCardRequest{})
		for name, err := range errs {
			var e *a2aclient.ServerError
			if !errors.As(err, &e) || e.Code != codes.Unimplemented && e.Code != codes.NotFound {
				c.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestA_07_CancelOfAnotherAgent follows a task that is canceled meanwhile.
func TestA_07_CancelOfAnotherAgent(t *testing.T) {
	eachFake(t, fakeagent.Config{Default: fakeagent.Turn{Progress: "working", Gate: make(chan struct{})}}, func(c *caller, _ *fakeagent.Agent) {
		req := c.say("when?")
		req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
		resp, err := c.SendMessage(c.ctx, req)
		if err != nil {
			c.Fatal(err)
		}
		var states []a2av1.TaskState
		for r, err := range c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: resp.GetTask().GetId()}, 0) {
			if err != nil {
				c.Fatal(err)
			}
			states = append(states, r.GetTask().GetStatus().GetState(), r.GetStatusUpdate().GetStatus().GetState())
			if len(states) > 2 {
				continue
			}
			if _, err := c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: resp.GetTask().GetId()}); err != nil {
				c.Fatal(err)
			}
		}
		if states[len(states)-1] != a2av1.TaskState_TASK_STATE_CANCELED {
			c.Errorf("states %v", states)
		}
	})
}

// TestA_12_StreamOfAnotherAgentThatBreaks: without a cursor a stream is not resumed. The
// caller learns that it broke, and which task it was of.
func TestA_12_StreamOfAnotherAgentThatBreaks(t *testing.T) {
	eachFake(t, fakeagent.Config{Default: fakeagent.Turn{Break: -1, Gate: make(chan struct{})}}, func(c *caller, f *fakeagent.Agent) {
		n := 0
		var failed error
		for r, err := range c.StreamMessage(c.ctx, c.say("when?")) {
			if n++; n == 1 && r.GetTask().GetId() == "" {
				c.Errorf("it begins with %v, %v", r, err)
			}
			failed = err
		}
		if !errors.Is(failed, a2aclient.ErrBroken) || n < 2 || len(f.Requests("SubscribeToTask")) != 0 {
			c.Errorf("%d responses, %v, and %d subscriptions", n, failed, len(f.Requests("SubscribeToTask")))
		}
		f.Down()
		_, err := c.GetTask(c.ctx, &a2av1.GetTaskRequest{Id: "x"})
		if !errors.Is(err, a2aclient.ErrUnreachable) || errors.Is(err, a2aclient.ErrBroken) {
			c.Errorf("while it is down: %v", err)
		}
	})
}
