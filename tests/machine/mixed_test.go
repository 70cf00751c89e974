package machine

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/tests/rig"
)

// mixed is a client that makes each call over another binding.
type mixed struct {
	of []rig.Client
	on *rand.Rand
}

// anyBinding is a world in which calls are made over all of them.
const anyBinding = "any"

// mixed returns such a client.
func (w *world) mixed(target rig.Target) (rig.Client, error) {
	g, err := rig.NewGRPC(target)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() { _ = g.Close() })
	return &mixed{of: []rig.Client{g, rig.NewREST(target), rig.NewJSONRPC(target)}, on: rand.New(rand.NewPCG(w.seed, uint64(len(w.closers))))}, nil
}

func (m *mixed) one() rig.PushClient { return m.of[m.on.IntN(len(m.of))].(rig.PushClient) }

func (m *mixed) Binding() string { return anyBinding }

func (m *mixed) Send(ctx context.Context, req *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
	return m.one().Send(ctx, req)
}

func (m *mixed) Stream(ctx context.Context, req *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error] {
	return m.one().Stream(ctx, req)
}

func (m *mixed) Get(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
	return m.one().Get(ctx, req)
}

func (m *mixed) List(ctx context.Context, req *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error) {
	return m.one().List(ctx, req)
}

func (m *mixed) Cancel(ctx context.Context, req *a2av1.CancelTaskRequest) (*a2av1.Task, error) {
	return m.one().Cancel(ctx, req)
}

func (m *mixed) Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error] {
	return m.one().Subscribe(ctx, req, after)
}

func (m *mixed) Card(ctx context.Context, req *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error) {
	return m.one().Card(ctx, req)
}

func (m *mixed) CreatePush(ctx context.Context, req *a2av1.TaskPushNotificationConfig) (*a2av1.TaskPushNotificationConfig, error) {
	return m.one().CreatePush(ctx, req)
}

func (m *mixed) GetPush(ctx context.Context, req *a2av1.GetTaskPushNotificationConfigRequest) (*a2av1.TaskPushNotificationConfig, error) {
	return m.one().GetPush(ctx, req)
}

func (m *mixed) ListPushes(ctx context.Context, req *a2av1.ListTaskPushNotificationConfigsRequest) (*a2av1.ListTaskPushNotificationConfigsResponse, error) {
	return m.one().ListPushes(ctx, req)
}

func (m *mixed) DeletePush(ctx context.Context, req *a2av1.DeleteTaskPushNotificationConfigRequest) error {
	return m.one().DeletePush(ctx, req)
}

// TestA_01_MixedBindings: what was made over one binding and then another is read
// alike over all of them, to the last byte.
func TestA_01_MixedBindings(t *testing.T) {
	for _, place := range []func(testing.TB) rig.Place{rig.Memory, rig.SQLite} {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			sample.Checks(t, sequences[at.Name]/2)
			var n, reads atomic.Int64
			rapid.Check(t, func(rt *rapid.T) {
				s := newSequence(t, rt, at, n.Add(1), anyBinding)
				defer s.end()
				for range rapid.IntRange(least, least+10).Draw(rt, "actions") {
					s.act()
				}
				for _, o := range s.owners {
					reads.Add(s.readAll(o))
				}
				s.last()
			})
			t.Logf("%d histories, %d reads, each over 3 bindings", n.Load(), reads.Load())
		})
	}
}

// readAll reads all there is of an owner over each binding, and counts.
func (s *sequence) readAll(o *owner) (reads int64) {
	w := s.worlds[0]
	same := func(what string, do func(rig.PushClient) []proto.Message) {
		s.Helper()
		s.fresh()
		var first string
		for i, c := range w.clients[o.name].(*mixed).of {
			got := encoded(do(c.(rig.PushClient)))
			if i == 0 {
				first = got
			}
			if got != first {
				s.Fatalf("%s: over %s\n\t%s\nover %s\n\t%s", what, w.clients[o.name].(*mixed).of[0].Binding(), first, c.Binding(), got)
			}
		}
		reads++
	}
	for _, t := range o.tasks {
		id := w.ids[t.n]
		for _, history := range []*int32{nil, new(int32(0)), new(int32(1)), new(int32(2))} {
			for _, tenant := range []string{"", t.agent, "left"} {
				same(fmt.Sprint("get ", t), func(c rig.PushClient) []proto.Message {
					return answer(c.Get(s.ctx, &a2av1.GetTaskRequest{Tenant: tenant, Id: id, HistoryLength: history}))
				})
			}
		}
		same(fmt.Sprint("hooks of ", t), func(c rig.PushClient) []proto.Message {
			return answer(c.ListPushes(s.ctx, &a2av1.ListTaskPushNotificationConfigsRequest{TaskId: id}))
		})
		for hook := range t.hooks {
			same(fmt.Sprint("hook of ", t), func(c rig.PushClient) []proto.Message {
				return answer(c.GetPush(s.ctx, &a2av1.GetTaskPushNotificationConfigRequest{TaskId: id, Id: hook}))
			})
		}
		same(fmt.Sprint("follow ", t), func(c rig.PushClient) []proto.Message { return s.told(c, t, id) })
	}
	for _, req := range []*a2av1.ListTasksRequest{
		{}, {IncludeArtifacts: new(true)}, {PageSize: new(int32(2)), HistoryLength: new(int32(1))}, {Tenant: asks}, {ContextId: "c1"},
		{Status: stateOf(completed), IncludeArtifacts: new(false)}, {Status: stateOf(working)},
	} {
		same(fmt.Sprint("list ", req), func(c rig.PushClient) (pages []proto.Message) {
			req := proto.CloneOf(req)
			for {
				page, err := c.List(s.ctx, req)
				req.PageToken = page.GetNextPageToken()
				if req.GetPageToken() != "" {
					page.NextPageToken = "another one each time"
				}
				if pages = append(pages, answer(page, err)...); req.GetPageToken() == "" {
					return pages
				}
			}
		})
	}
	return reads
}

// told is what a reader of a task is told from its beginning, if it has ended, or
// first, if it goes on.
func (s *sequence) told(c rig.Client, t *task, id string) (all []proto.Message) {
	after := int64(0)
	if t.terminal() {
		after = 1
	}
	for u, err := range c.Subscribe(s.ctx, &a2av1.SubscribeToTaskRequest{Id: id}, after) {
		all = append(all, answer(u, err)...)
		if after == 0 {
			break
		}
	}
	return all
}

// answer is what came of a call, an error as its text.
func answer(m proto.Message, err error) []proto.Message {
	if err != nil {
		f := rig.Fault(err)
		return []proto.Message{&a2av1.Message{MessageId: fmt.Sprint(f, f.Domain, f.Fields, f.Details)}}
	}
	return []proto.Message{m}
}

// encoded is what messages say, to the last byte.
func encoded(all []proto.Message) string {
	var text string
	for _, m := range all {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		text += fmt.Sprintf("%T %q %v\n", m, b, err)
	}
	return text
}
