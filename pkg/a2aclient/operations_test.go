package a2aclient_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// scene has an agent for each thing that tasks do. The key is "open".
const scene = `version: v1
agents:
  echo:
    description: Gives back what it is told.
    scripted: {steps: [{chunks: 2}, {echo: true}]}
    extended_card: [{description: Gives back what it is told by friends.}]
  talker: {scripted: {steps: [{progress: One.}, {delay_ms: 20}, {progress: Two.}, {delay_ms: 20}, {progress: Three.}, {chunks: 4}, {text: high tide at four}]}}
  patient: {scripted: {steps: [{progress: "Waiting."}, {delay_ms: 600000}, {text: "Too late."}]}}
server:
  egress: {allow: [127.0.0.0/8]}
  default_agent: echo
  auth: {api_keys: [{name: ci, sha256: 2348f998744212575d85959674f9607ab26f67708a917157472832386337c904}]}
`

const callTime = 30 * time.Second

func serveScene(t *testing.T) *serve.Running {
	t.Helper()
	def, err := config.Loader{}.Parse("team.yaml", []byte(scene))
	if err != nil {
		t.Fatal(err)
	}
	r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// way is how an agent is called.
type way struct {
	name   string
	noCard bool
	cfg    a2aclient.Config
}

// ways are all ways to call an agent. With a secret that is gRPC without a card: the
// card has it at another port.
func ways(secret bool) []way {
	list := []way{
		{"grpc 1.0 without a card", true, a2aclient.Config{}},
		{"rest 1.0", false, a2aclient.Config{Bindings: []string{a2aclient.REST}, Version: a2aclient.V1}},
		{"jsonrpc 1.0", false, a2aclient.Config{Bindings: []string{a2aclient.JSONRPC}}},
		{"rest 0.3", false, a2aclient.Config{Bindings: []string{a2aclient.REST}, Version: a2aclient.V03}},
		{"jsonrpc 0.3", false, a2aclient.Config{Version: a2aclient.V03}},
	}
	if !secret {
		list = append(list, way{"grpc 1.0", false, a2aclient.Config{Bindings: []string{a2aclient.GRPC}}})
	}
	return list
}

// each does the same in every way, with an agent.
func each(t *testing.T, tenant, token string, test func(*caller)) {
	r := serveScene(t)
	for _, w := range ways(token != "") {
		t.Run(w.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), callTime)
			defer cancel()
			target := "http://" + r.HTTP + "/" + tenant
			if w.noCard {
				target = "grpc://" + r.GRPC + "/" + tenant
			}
			w.cfg.Token = secret.New(token)
			c, err := a2aclient.Open(ctx, target, w.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			test(&caller{T: t, Client: c, ctx: ctx})
		})
	}
}

type caller struct {
	*testing.T
	*a2aclient.Client
	ctx context.Context
}

// say is a message that nobody has sent yet.
func (c *caller) say(text string) *a2av1.SendMessageRequest {
	return &a2av1.SendMessageRequest{Message: agent.UserMessage(uuid.NewString(), text)}
}

// waiting begins a task that takes forever, and returns once its agent works on it,
// with the cursor of that.
func (c *caller) waiting() (task *a2av1.Task, seq int64) {
	c.Helper()
	req := c.say("wait")
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := c.SendMessage(c.ctx, req)
	if err != nil {
		c.Fatal(err)
	}
	for r, err := range c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: resp.GetTask().GetId()}, 0) {
		if err != nil {
			c.Fatal(err)
		}
		status, metadata := r.GetTask().GetStatus(), r.GetTask().GetMetadata()
		if u := r.GetStatusUpdate(); u != nil {
			status, metadata = u.GetStatus(), u.GetMetadata()
		}
		if agent.Text(status.GetMessage()) == "Waiting." {
			return resp.GetTask(), project.RunOf(metadata).GetSeq()
		}
	}
	c.Fatal("the stream ended before the agent began")
	return nil, 0
}

var sentinels = map[string]error{
	"TASK_NOT_FOUND": a2aclient.ErrTaskNotFound, "UNSUPPORTED_OPERATION": a2aclient.ErrUnsupportedOperation,
}

// refused checks the reason of an error, as words and as an error.
func (c *caller) refused(err error, reason string) {
	c.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Reason != reason || !strings.HasPrefix(err.Error(), reason+": ") {
		c.Errorf("error %v, want %s", err, reason)
	}
	var told *a2aclient.ServerError
	if !errors.As(err, &told) || told.Reason != reason || told.Message == "" || errors.Is(err, a2aclient.ErrUnreachable) {
		c.Errorf("error %#v, want %s", err, reason)
	}
	if sentinel, ok := sentinels[reason]; ok && !errors.Is(err, sentinel) || errors.Is(err, a2aclient.ErrVersionNotSupported) {
		c.Errorf("error %#v is not %v", err, sentinel)
	}
}

// last reads a stream to its end and returns what it said last.
func (c *caller) last(responses iter.Seq2[*a2av1.StreamResponse, error]) (last *a2av1.StreamResponse) {
	c.Helper()
	for r, err := range responses {
		if err != nil {
			c.Fatal(err)
		}
		last = r
	}
	return last
}

func failure(responses iter.Seq2[*a2av1.StreamResponse, error]) error {
	for r, err := range responses {
		if err != nil {
			return err
		}
		return errors.New("got " + r.String())
	}
	return errors.New("the stream ended without an error")
}

func TestA_01_SendAndStream(t *testing.T) {
	each(t, "echo", "open", func(c *caller) {
		resp, err := c.SendMessage(c.ctx, c.say("high tide"))
		if err != nil {
			c.Fatal(err)
		}
		task := resp.GetTask()
		if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || task.GetArtifacts()[0].GetParts()[0].GetText() != "high tide" {
			c.Errorf("task %v", task)
		}
		var text string
		var first, last *a2av1.StreamResponse
		for r, err := range c.StreamMessage(c.ctx, c.say("high tide")) {
			if err != nil {
				c.Fatal(err)
			}
			if first == nil {
				first = r
			}
			if u := r.GetArtifactUpdate(); u != nil {
				if !u.GetAppend() {
					text = ""
				}
				text += agent.Text(&a2av1.Message{Parts: u.GetArtifact().GetParts()})
			}
			last = r
		}
		if first.GetTask() == nil || text != "high tide" || last.GetStatusUpdate().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			c.Errorf("streamed %q from %v to %v", text, first, last)
		}
		c.refused(func() error { _, err := c.SendMessage(c.ctx, c.say("")); return err }(), "INVALID_REQUEST")
		c.refused(failure(c.StreamMessage(c.ctx, c.say(""))), "INVALID_REQUEST")
	})
}

func TestA_05_GetAndList(t *testing.T) {
	each(t, "echo", "open", func(c *caller) {
		var context string
		for range 3 {
			req := c.say("tide")
			req.Message.ContextId = context
			resp, err := c.SendMessage(c.ctx, req)
			if err != nil {
				c.Fatal(err)
			}
			context = resp.GetTask().GetContextId()
		}
		req := &a2av1.ListTasksRequest{ContextId: context, PageSize: proto.Int32(2), Status: a2av1.TaskState_TASK_STATE_COMPLETED}
		page, err := c.ListTasks(c.ctx, req)
		if err != nil || len(page.GetTasks()) != 2 || page.GetTotalSize() != 3 || page.GetNextPageToken() == "" || page.GetTasks()[0].GetArtifacts() != nil {
			c.Fatalf("page %v, %v", page, err)
		}
		id := page.GetTasks()[0].GetId()
		req.PageToken, req.IncludeArtifacts, req.HistoryLength = page.GetNextPageToken(), proto.Bool(true), proto.Int32(1)
		page, err = c.ListTasks(c.ctx, req)
		if err != nil || len(page.GetTasks()) != 1 || page.GetNextPageToken() != "" || len(page.GetTasks()[0].GetArtifacts()) != 1 || len(page.GetTasks()[0].GetHistory()) != 1 {
			c.Errorf("second page %v, %v", page, err)
		}
		none, err := c.ListTasks(c.ctx, &a2av1.ListTasksRequest{ContextId: context, Status: a2av1.TaskState_TASK_STATE_WORKING})
		if err != nil || len(none.GetTasks()) != 0 {
			c.Errorf("working are %v, %v", none, err)
		}
		for length, want := range map[int32]int{0: 0, 1: 1} {
			task, err := c.GetTask(c.ctx, &a2av1.GetTaskRequest{Id: id, HistoryLength: proto.Int32(length)})
			if err != nil || task.GetId() != id || len(task.GetHistory()) != want {
				c.Errorf("history %d: %v, %v", length, task, err)
			}
		}
	})
}

func TestA_07_CancelAndSubscribe(t *testing.T) {
	each(t, "patient", "open", func(c *caller) {
		task, seq := c.waiting()
		if seq == 0 {
			c.Fatal("the update has no cursor")
		}
		canceled := make(chan error, 1)
		begun := func(yield func(*a2av1.StreamResponse, error) bool) { // cancels once it is followed
			first := true
			for r, err := range c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, 0) {
				if first {
					_, err := c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: task.GetId()})
					canceled <- err
				}
				if first = false; !yield(r, err) {
					return
				}
			}
		}
		last := c.last(begun)
		if err := <-canceled; err != nil || last.GetStatusUpdate().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
			c.Errorf("last is %v; cancel: %v", last, err)
		}
		again, err := c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: task.GetId()})
		if err != nil || again.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
			c.Errorf("canceled again: %v, %v", again, err)
		}
		c.refused(failure(c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, 0)), "UNSUPPORTED_OPERATION")
	})
}

// Behind a cursor comes what was missed, and no task.
func TestA_14_SubscribeBehindACursor(t *testing.T) {
	each(t, "patient", "open", func(c *caller) {
		task, seq := c.waiting()
		if _, err := c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: task.GetId()}); err != nil {
			c.Fatal(err)
		}
		var kinds []string
		var last *a2av1.StreamResponse
		for r, err := range c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, seq) {
			if err != nil {
				c.Fatal(err)
			}
			kinds = append(kinds, fmt.Sprintf("%T", r.GetPayload()))
			if got := project.RunOf(r.GetStatusUpdate().GetMetadata()).GetSeq(); got <= seq {
				c.Errorf("an update with cursor %d", got)
			}
			last = r
		}
		if slices.Contains(kinds, "*a2av1.StreamResponse_Task") || last.GetStatusUpdate().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
			c.Errorf("behind %d are %v, the last %v", seq, kinds, last)
		}
	})
}

func TestA_18_Webhooks(t *testing.T) {
	each(t, "patient", "open", func(c *caller) {
		task, _ := c.waiting()
		const hook = "http://127.0.0.1:1/hook"
		made, err := c.CreateTaskPushNotificationConfig(c.ctx, &a2av1.TaskPushNotificationConfig{
			TaskId: task.GetId(), Id: "mine", Url: hook, Token: "t0ken",
			Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "letmein"},
		})
		if err != nil || made.GetId() != "mine" || made.GetTaskId() != task.GetId() || made.GetUrl() != hook || made.GetAuthentication().GetScheme() != "Bearer" {
			c.Fatalf("made is %v, %v", made, err)
		}
		got, err := c.GetTaskPushNotificationConfig(c.ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task.GetId(), Id: "mine"})
		if err != nil || !proto.Equal(got, made) {
			c.Errorf("got %v, %v, made was %v", got, err, made)
		}
		all, err := c.ListTaskPushNotificationConfigs(c.ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task.GetId()})
		if err != nil || len(all.GetConfigs()) != 1 || !proto.Equal(all.GetConfigs()[0], made) {
			c.Errorf("listed are %v, %v, made was %v", all, err, made)
		}
		for range 2 {
			if err := c.DeleteTaskPushNotificationConfig(c.ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: task.GetId(), Id: "mine"}); err != nil {
				c.Errorf("delete: %v", err)
			}
		}
		_, err = c.GetTaskPushNotificationConfig(c.ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: task.GetId(), Id: "mine"})
		c.refused(err, "TASK_NOT_FOUND")
		all, err = c.ListTaskPushNotificationConfigs(c.ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: task.GetId()})
		if err != nil || len(all.GetConfigs()) != 0 {
			c.Errorf("left are %v, %v", all, err)
		}
		if _, err := c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: task.GetId()}); err != nil {
			c.Error(err)
		}
	})
}

// Nobody's task is unknown to every operation, in the same words.
func TestA_02_UnknownTask(t *testing.T) {
	each(t, "echo", "open", func(c *caller) {
		const nobody = "00000000-0000-7000-8000-000000000000"
		errs := map[string]error{}
		_, errs["get"] = c.GetTask(c.ctx, &a2av1.GetTaskRequest{Id: nobody})
		_, errs["cancel"] = c.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: nobody})
		_, errs["set"] = c.CreateTaskPushNotificationConfig(c.ctx, &a2av1.TaskPushNotificationConfig{TaskId: nobody, Url: "http://127.0.0.1:1/"})
		_, errs["webhook"] = c.GetTaskPushNotificationConfig(c.ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: nobody, Id: "x"})
		_, errs["webhooks"] = c.ListTaskPushNotificationConfigs(c.ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: nobody})
		errs["delete"] = c.DeleteTaskPushNotificationConfig(c.ctx, &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: nobody, Id: "x"})
		errs["subscribe"] = failure(c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: nobody}, 0))
		req := c.say("more")
		req.Message.TaskId = nobody
		_, errs["send"] = c.SendMessage(c.ctx, req)
		for _, err := range errs {
			c.refused(err, "TASK_NOT_FOUND")
		}
	})
}

func TestA_10_ExtendedCardOverEveryBinding(t *testing.T) {
	each(t, "echo", "open", func(c *caller) {
		card, err := c.GetExtendedAgentCard(c.ctx, &a2av1.GetExtendedAgentCardRequest{})
		if err != nil || card.GetDescription() != "Gives back what it is told by friends." {
			c.Errorf("card %v, %v", card, err)
		}
	})
	each(t, "patient", "open", func(c *caller) {
		_, err := c.GetExtendedAgentCard(c.ctx, &a2av1.GetExtendedAgentCardRequest{})
		c.refused(err, "UNSUPPORTED_OPERATION")
	})
}

// A header is as good as a token, and where there is none every call is refused.
func TestA_21_HeadersGoAlong(t *testing.T) {
	each(t, "echo", "", func(c *caller) {
		_, err := c.ListTasks(c.ctx, &a2av1.ListTasksRequest{})
		c.refused(err, "UNAUTHENTICATED")
		c.refused(failure(c.StreamMessage(c.ctx, c.say("tide"))), "UNAUTHENTICATED")
	})
	r := serveScene(t)
	for _, w := range ways(true) {
		w.cfg.Header = http.Header{"Authorization": {"Bearer open"}}
		target := "http://" + r.HTTP + "/echo"
		if w.noCard {
			target = "grpc://" + r.GRPC + "/echo"
		}
		c, err := a2aclient.Open(t.Context(), target, w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListTasks(t.Context(), &a2av1.ListTasksRequest{}); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
		_ = c.Close()
	}
}
