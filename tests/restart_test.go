package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// crew are members that answer with their name around what they get. Their calls
// are counted outside of any server; one with a gate waits until it is open.
type crew struct {
	mu      sync.Mutex
	calls   map[string]int           // guarded by mu
	gates   map[string]chan struct{} // set before use
	entered map[string]chan struct{} // of those with a gate
}

func newCrew(gated ...string) *crew {
	c := &crew{calls: map[string]int{}, gates: map[string]chan struct{}{}, entered: map[string]chan struct{}{}}
	for _, id := range gated {
		c.gates[id], c.entered[id] = make(chan struct{}), make(chan struct{}, 100)
	}
	return c
}

// open opens a gate for good.
func (c *crew) open(id string) { close(c.gates[id]) }

// called returns how often each was called since the last time.
func (c *crew) called() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = map[string]int{}
	return calls
}

// member is one of them.
func (c *crew) member(id string) agent.Agent {
	return act(id, func(ctx context.Context, text string) (string, error) {
		c.mu.Lock()
		c.calls[id]++
		c.mu.Unlock()
		if c.gates[id] != nil {
			c.entered[id] <- struct{}{}
			select {
			case <-c.gates[id]:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return id + "(" + text + ")", nil
	})
}

// members are a, b, c and d.
func (c *crew) members(t testing.TB) *manager.Manager {
	return rig.Manager(t, c.member("a"), c.member("b"), c.member("c"), c.member("d"))
}

// modes are ways to have four members work one after the other.
var modes = []string{"workflow", "supervisor"}

// four is a team of all four.
func four(t testing.TB, m *manager.Manager, mode string) {
	t.Helper()
	list := []team.Member{{Agent: "a"}, {Agent: "b"}, {Agent: "c"}, {Agent: "d"}}
	var s team.Scheduler
	var err error
	if mode == "workflow" {
		s, err = workflow.New(workflow.Config{Steps: []workflow.Step{
			{ID: "1", Member: "a"}, {ID: "2", Member: "b", After: []string{"1"}}, {ID: "3", Member: "c", After: []string{"2"}}, {ID: "4", Member: "d", After: []string{"3"}},
		}})
	} else {
		s, err = supervisor.New(supervisor.Config{Members: list, Rules: []supervisor.Rule{
			{When: "turn == 1", Next: []string{"a"}}, {When: "turn == 2", Next: []string{"b"}}, {When: "turn == 3", Next: []string{"c"}},
			{When: "turn == 4", Next: []string{"d"}}, {Finish: supervisor.FinishLast},
		}})
	}
	register(t, m, mode, s, err, list...)
}

// register adds a team to a manager.
func register(t testing.TB, m *manager.Manager, mode string, s team.Scheduler, err error, members ...team.Member) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: "team", Mode: mode, Scheduler: s, Members: members, Registry: m})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("team", tm); err != nil {
		t.Fatal(err)
	}
}

// life is a server on a store, that ends hard: nothing it does from then on
// reaches the store.
type life struct {
	rig.Target
	store   *faulty.Store
	stop    func() // in good order
	close   func() // of the store
	clients []rig.Client
}

// live serves agents on what a place keeps; they ask models.
func live(t testing.TB, at rig.Place, agents a2a.Agents, models ...rig.Models) *life {
	t.Helper()
	inner, done := at.Open(t)
	l := &life{store: faulty.New(inner), close: done}
	l.Target, l.stop = rig.Start(t, server.Config{Agents: agents, Store: l.store}, models...)
	l.clients = rig.Clients(t, l.Target)
	return l
}

// kill ends the server: its store is gone before it knows. Where nothing outlives
// the process it stops in good order.
func (l *life) kill(at rig.Place) {
	if at.Durable {
		l.store.Break(faulty.Always(faulty.Fail))
	}
	l.stop()
	l.close()
}

// sendNow begins a task and does not wait for it.
func (l *life) sendNow(t testing.TB, tenant, messageID, text string) *a2av1.Task {
	t.Helper()
	resp, err := l.clients[0].Send(t.Context(), atOnce(rig.Text(tenant, messageID, text)))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask()
}

// get gets a task over some binding.
func (l *life) get(t testing.TB, id string) *a2av1.Task {
	t.Helper()
	task, err := l.clients[len(id)%len(l.clients)].Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// until follows a task until it is as it should be.
func (l *life) until(t testing.TB, id string, is func(*a2av1.Task) bool) *a2av1.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	target := l.Target
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	task := l.get(t, id)
	for !is(task) && !ended(task) && ctx.Err() == nil { // a stream ends where people are asked, also when the answer is on its way
		for _, err := range rig.NewREST(target).Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0) {
			if task = l.get(t, id); err != nil || is(task) {
				break
			}
		}
		if !is(task) {
			task = l.get(t, id)
		}
	}
	if !is(task) {
		t.Fatalf("the task is not as it should be: %v", task)
	}
	return task
}

// ended reports whether a task has ended.
func ended(task *a2av1.Task) bool {
	return slices.Contains([]a2av1.TaskState{
		a2av1.TaskState_TASK_STATE_COMPLETED, a2av1.TaskState_TASK_STATE_FAILED, a2av1.TaskState_TASK_STATE_CANCELED, a2av1.TaskState_TASK_STATE_REJECTED,
	}, task.GetStatus().GetState())
}

func TestS_50_Restart(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			t.Run("S-50 A-13 two of four steps are done: "+mode, func(t *testing.T) {
				c := newCrew("c")
				m := c.members(t)
				four(t, m, mode)
				first := live(t, at, m)
				id := first.sendNow(t, "team", "m", "x").GetId()
				<-c.entered["c"]
				first.kill(at)
				if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1}, c.called()); diff != "" {
					t.Fatalf("calls before:\n%s", diff)
				}
				second := live(t, at, m)
				<-c.entered["c"] // it runs again: its end was not on record
				c.open("c")
				wantText(t, second.until(t, id, ended), "d(c(b(a(x))))")
				if diff := cmp.Diff(map[string]int{"c": 1, "d": 1}, c.called()); diff != "" {
					t.Errorf("calls after:\n%s", diff)
				}
			})
		})
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			t.Run("S-50 the team is gone: "+mode, func(t *testing.T) {
				c := newCrew("c")
				m := c.members(t)
				four(t, m, mode)
				first := live(t, at, m)
				id := first.sendNow(t, "team", "m", "x").GetId()
				<-c.entered["c"]
				first.kill(at)
				task := live(t, at, c.members(t)).until(t, id, ended)
				e := a2a.RunOf(task.GetMetadata()).GetError()
				if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED || e.GetReason() != agent.ReasonInterrupted {
					t.Errorf("%v: %v, want FAILED(%s)", task.GetStatus(), e, agent.ReasonInterrupted)
				}
			})
		})
	}
}

// TestA_13_WhatIsKept restarts a server that has tasks in every state.
func TestA_13_WhatIsKept(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		c := newCrew("c")
		m := c.members(t)
		if err := m.Register("asks", script(t, "asks", asking("who?")...)); err != nil {
			t.Fatal(err)
		}
		first := live(t, at, m)
		for i := range 5 {
			if _, err := first.clients[i%3].Send(t.Context(), rig.Text("a", fmt.Sprint("done", i), "x")); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := first.clients[0].Send(t.Context(), rig.Text("asks", "ask", "x"))
		if err != nil {
			t.Fatal(err)
		}
		asks, works := resp.GetTask(), first.sendNow(t, "c", "works", "x")
		<-c.entered["c"]
		first.until(t, works.GetId(), func(task *a2av1.Task) bool { return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_WORKING })
		req := &a2av1.ListTasksRequest{PageSize: new(int32(3)), IncludeArtifacts: new(true)}
		pages := first.pages(t, req, nil)
		if len(pages) != 7 {
			t.Fatalf("%d tasks before, want 7", len(pages))
		}
		var second *life
		between := func() *life {
			first.kill(at)
			second = live(t, at, m)
			<-c.entered["c"]
			return second
		}
		if diff := cmp.Diff(pages, first.pages(t, req, between), protocmp.Transform(), protocmp.IgnoreFields(&a2av1.Task{}, "metadata")); diff != "" {
			t.Errorf("A-13 tasks, histories, artifacts, and a page token across the restart (-before +after):\n%s", diff)
		}
		answer := rig.Text("asks", "answer", "me")
		answer.Message.TaskId = asks.GetId()
		resp, err = second.clients[1].Send(t.Context(), answer)
		if err != nil {
			t.Fatalf("A-13 an interrupted task takes the next message: %v", err)
		}
		wantText(t, resp.GetTask(), "told me")
		c.open("c")
		wantText(t, second.until(t, works.GetId(), ended), "c(x)")
	})
}

// pages lists everything; between the first page and the next the server may become another.
func (l *life) pages(t *testing.T, req *a2av1.ListTasksRequest, between func() *life) []*a2av1.Task {
	t.Helper()
	req.PageToken = ""
	var all []*a2av1.Task
	for {
		page, err := l.clients[1].List(t.Context(), req)
		if err != nil {
			t.Fatalf("A-13 page behind %d tasks: %v", len(all), err)
		}
		all = append(all, page.GetTasks()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all
		}
		if between != nil {
			l, between = between(), nil
		}
	}
}

func script(t testing.TB, id string, steps ...*teamv1.ScriptedStep) agent.Agent {
	t.Helper()
	a, err := scripted.New(scripted.Config{ID: id, Steps: steps})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func asking(question string) []*teamv1.ScriptedStep {
	return []*teamv1.ScriptedStep{
		{Do: &teamv1.ScriptedStep_Ask{Ask: question}}, {Do: &teamv1.ScriptedStep_Text{Text: "told {{answer}}"}},
	}
}

// panel is a team whose members left, right and c work at the same time; the
// first two ask. d then gets what they said.
func panel(t testing.TB, m *manager.Manager, mode string) {
	t.Helper()
	list := []team.Member{{Agent: "left"}, {Agent: "right"}, {Agent: "c"}, {Agent: "d"}}
	var s team.Scheduler
	var err error
	if mode == "workflow" {
		s, err = workflow.New(workflow.Config{Steps: []workflow.Step{
			{ID: "l", Member: "left"}, {ID: "r", Member: "right"}, {ID: "c", Member: "c"}, {ID: "end", Member: "d", After: []string{"l", "r", "c"}},
		}})
	} else {
		s, err = supervisor.New(supervisor.Config{Members: list, Rules: []supervisor.Rule{
			{When: "turn == 1", Next: []string{"left", "right", "c"}}, {When: "turn == 2", Next: []string{"d"}}, {Finish: supervisor.FinishLast},
		}})
	}
	register(t, m, mode, s, err, list...)
}

// questions are those a task lists: who asks what.
func questions(task *a2av1.Task) []string {
	var list []string
	for _, q := range a2a.RunOf(task.GetMetadata()).GetQuestions() {
		list = append(list, strings.TrimPrefix(q.GetDelegationId(), task.GetId())+" "+q.GetPath()+" "+agent.Text(q.GetMessage()))
	}
	slices.Sort(list)
	return list
}

func TestS_51_TwoQuestions(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			t.Run("S-51 the second is answered first: "+mode, func(t *testing.T) {
				c := newCrew("c")
				m := c.members(t)
				for _, id := range []string{"left", "right"} {
					if err := m.Register(id, script(t, id, asking(id+"?")...)); err != nil {
						t.Fatal(err)
					}
				}
				panel(t, m, mode)
				both := []string{"~1 team/left left?", "~2 team/right right?"}
				one := live(t, at, m)
				id := one.sendNow(t, "team", "m", "x").GetId()
				<-c.entered["c"]
				one.until(t, id, func(task *a2av1.Task) bool { // while c works
					return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_WORKING && slices.Equal(questions(task), both)
				})
				c.open("c")
				one.until(t, id, func(task *a2av1.Task) bool { return waits(task, both...) })
				one.kill(at)

				two := live(t, at, m)
				if task := two.get(t, id); !waits(task, both...) {
					t.Fatalf("after a restart: %v", task)
				}
				two.answer(t, 1, id+"~2", "right answer")
				two.until(t, id, func(task *a2av1.Task) bool { return waits(task, both[0]) })
				two.kill(at)

				three := live(t, at, m)
				if task := three.get(t, id); !waits(task, both[0]) {
					t.Fatalf("after another restart: %v", task)
				}
				three.answer(t, 2, id, "left answer") // the only one left
				task := three.until(t, id, ended)
				text := agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()})
				for _, want := range []string{"told left answer", "told right answer", "c(x)"} {
					if !strings.Contains(text, want) {
						t.Errorf("the answer lacks %q: %q", want, text)
					}
				}
				for child, want := range map[string]string{"~1": "told left answer", "~2": "told right answer"} {
					wantText(t, three.get(t, id+child), want)
				}
				if diff := cmp.Diff(map[string]int{"c": 1, "d": 1}, c.called()); diff != "" {
					t.Errorf("calls:\n%s", diff)
				}
			})
		})
	}
}

// TestS_50_StopWhileOneAsks: a server stops while one member of a nested team waits
// for people and another one works. That one's work goes on before the answer.
func TestS_50_StopWhileOneAsks(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		c := newCrew("c")
		m := c.members(t)
		for _, id := range []string{"left", "right"} {
			if err := m.Register(id, script(t, id, asking(id+"?")...)); err != nil {
				t.Fatal(err)
			}
		}
		panel(t, m, "workflow")
		chain(t, m, "company", "team")
		one := live(t, at, m)
		id := one.sendNow(t, "company", "m", "x").GetId()
		<-c.entered["c"]
		both := []string{"~1.1 company/team/left left?", "~1.2 company/team/right right?"}
		one.until(t, id, func(task *a2av1.Task) bool { return slices.Equal(questions(task), both) })
		one.stop() // in good order
		one.close()

		two := live(t, at, m)
		select {
		case <-c.entered["c"]:
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody works; the task is %v", two.get(t, id))
		}
		c.open("c")
		two.until(t, id, func(task *a2av1.Task) bool { return waits(task, both...) })
	})
}

// waits reports whether a task waits for these questions.
func waits(task *a2av1.Task, open ...string) bool {
	return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && slices.Equal(questions(task), open)
}

// answer sends an answer over one binding.
func (l *life) answer(t *testing.T, binding int, id, text string) {
	t.Helper()
	req := rig.Text("", "answer-"+strings.ReplaceAll(text, " ", "-"), text)
	req.Message.TaskId = id
	if _, err := l.clients[binding].Send(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}
