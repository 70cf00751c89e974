package board

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// tools of a board, in their order.
var tools = []string{"add_task", "list_tasks", "claim_task", "update_task", "complete_task", "fail_task", "post_message", "read_messages"}

// scripted has the leader put work on the board and a member do it.
func scripted(llm *fakellm.Server) {
	does := func(name, arguments string) fakellm.Turn {
		return fakellm.Turn{Calls: []fakellm.Call{{Name: name, Arguments: arguments}}}
	}
	llm.Script("m",
		does("add_task", `{"title":"write it","priority":4}`), does("delegate_to_writer", `{"task":"take what is on the board"}`),
		fakellm.Turn{Text: "all done"})
	llm.Script("w",
		does("list_tasks", `{"claimable":true}`), does("claim_task", `{"item_id":"t1"}`), does("post_message", `{"text":"I have it","to":"desk"}`),
		does("complete_task", `{"item_id":"t1","result":"words"}`), fakellm.Turn{Text: "done"})
}

// TestR_003_18_R_003_20_R_003_26_MembersByTools: the leader and a member work on the
// board; people see it.
func TestR_003_18_R_003_20_R_003_26_MembersByTools(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		scripted(h.llm)
		answer, task := h.says(t, "desk", "write")
		if answer != "all done" {
			t.Errorf("answer %q", answer)
		}
		b := h.board(t, binding, "acme", "bob")
		it := b.get("t1")
		want := &teamv1.WorkItem{
			State: teamv1.WorkItem_STATE_COMPLETED, Result: "words", Priority: 4,
			CreatedBy: &teamv1.BoardActor{Principal: "acme/ann", Agent: "desk", TaskId: task.GetId()},
			Assignee:  &teamv1.BoardActor{Principal: "acme/ann", Agent: "writer", TaskId: task.GetId()},
		}
		got := &teamv1.WorkItem{State: it.GetState(), Result: it.GetResult(), Priority: it.GetPriority(), CreatedBy: it.GetCreatedBy(), Assignee: it.GetAssignee()}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		for model, want := range map[string][]string{"m": append([]string{"delegate_to_writer", "delegate_to_parrot"}, tools...), "w": tools} {
			if got := h.llm.Requests(model)[0].Tools; !slices.Equal(got, want) {
				t.Errorf("%s is offered %v, want %v", model, got, want)
			}
		}
		if last := h.llm.Requests("m")[2].Last(); !strings.Contains(last, ", from writer:\nI have it") {
			t.Errorf("R-003-26: the leader's next turn is shown %q", last)
		}
		left, err := b.ListMessages(t.Context(), &teamv1.ListMessagesRequest{TeamId: "desk", Reader: "desk", Unread: true})
		if err != nil || len(left.GetMessages()) != 0 {
			t.Errorf("R-003-26: unread by the leader: %v %v", left, err)
		}
	})
}

// journal is what happened in a run, in words.
func journal(t *testing.T, h *house, task string) []string {
	t.Helper()
	var words []string
	for m, err := range rig.Monitors(t, h.Target)[0].WatchTask(t.Context(), task, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if ev := m.GetEvent().GetEvent(); ev != nil {
			kind := ev.ProtoReflect().WhichOneof(ev.ProtoReflect().Descriptor().Oneofs().ByName("kind"))
			words = append(words, fmt.Sprintf("%s %s %s", ev.GetScope(), ev.GetAgent(), kind.Name()))
		}
	}
	return words
}

// TestR_003_27_WithoutABoard: a team without one is offered no tool, and its runs are
// as those of a team with one that nobody touches, but for the note of its tools.
func TestR_003_27_WithoutABoard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, _ int) {
		runs := map[string][]string{}
		for _, team := range []string{"plain", "desk"} {
			h.llm.Script("m", fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_writer", Arguments: `{"task":"x"}`}}}, fakellm.Turn{Text: "done"})
			h.llm.Script("w", fakellm.Turn{Text: "words"})
			answer, task := h.says(t, team, "write")
			if answer != "done" {
				t.Errorf("%s answers %q", team, answer)
			}
			for _, line := range journal(t, h, task.GetId()) {
				if team == "plain" || !strings.HasSuffix(line, " noted") || strings.Contains(line, "TEAM") {
					runs[team] = append(runs[team], strings.Replace(line, "desk", "plain", 1))
				}
			}
		}
		for _, model := range []string{"m", "w"} {
			if got := h.llm.Requests(model)[0].Tools; slices.ContainsFunc(got, func(name string) bool { return slices.Contains(tools, name) }) {
				t.Errorf("%s is offered %v", model, got)
			}
		}
		plain := slices.DeleteFunc(slices.Clone(runs["plain"]), func(line string) bool { return strings.HasSuffix(line, " noted") })
		if diff := cmp.Diff(plain, runs["desk"]); diff != "" {
			t.Error(diff)
		}
	})
}

// TestR_003_18_StepsOfTasks: what members are given in tasks stands on the board by
// itself, for whose tasks they are, and cannot be claimed.
func TestR_003_18_StepsOfTasks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		_, task := h.says(t, "flow", "tides")
		b := h.board(t, binding, "acme", "ann")
		b.team = "flow"
		b.add("mine")
		list, err := b.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "flow"})
		b.must(err)
		var steps []string
		for _, it := range list.GetSteps() {
			steps = append(steps, fmt.Sprint(it.GetId(), " ", it.GetTitle(), " ", it.GetAssignee().GetAgent(), " ", it.GetState(), " ", it.GetSource()))
		}
		want := []string{
			agent.ChildTask(task.GetId(), "1") + " one parrot STATE_COMPLETED SOURCE_STEP",
			agent.ChildTask(task.GetId(), "2") + " two parrot STATE_COMPLETED SOURCE_STEP",
		}
		if !slices.Equal(steps, want) || len(list.GetItems()) != 1 {
			t.Errorf("%q and %v", steps, list.GetItems())
		}
		fault(t, b.claim(agent.ChildTask(task.GetId(), "1")), "NotFound", "WORK_ITEM_NOT_FOUND")
		failed, err := b.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "flow", State: teamv1.WorkItem_STATE_FAILED})
		if err != nil || len(failed.GetSteps()) != 0 {
			t.Errorf("%v, %v", failed, err)
		}
		bob := h.board(t, binding, "acme", "bob")
		others, err := bob.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "flow"})
		if err != nil || len(others.GetSteps()) != 0 || len(others.GetItems()) != 1 {
			t.Errorf("bob sees %v, %v", others, err)
		}
	})
}

// steps are those on the board of a team, in words, without the task that all are in.
func (b at) steps(team, task string) (words []string) {
	b.Helper()
	list, err := b.ListWorkItems(b.Context(), &teamv1.ListWorkItemsRequest{TeamId: team})
	b.must(err)
	for _, it := range list.GetSteps() {
		scope, _ := strings.CutPrefix(it.GetId(), task+"~")
		state := strings.TrimPrefix(it.GetState().String(), "STATE_")
		words = append(words, strings.Join([]string{scope, it.GetTitle(), it.GetAssignee().GetAgent(), state}, " "))
	}
	return words
}

// TestR_003_18_StepsOfPeople: what a workflow asks people stands on the board as its other
// steps do, before it is asked, while it is, and after; and what a team does as a member
// of another one stands on its own board, too.
func TestR_003_18_StepsOfPeople(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		b, c := h.board(t, binding, "acme", "ann"), rig.Clients(t, h.Target)[binding]
		resp, err := c.Send(t.Context(), rig.Text("press", "m1", "tides"))
		if err != nil {
			t.Fatal(err)
		}
		task := resp.GetTask().GetId()
		if diff := cmp.Diff([]string{"1 draft parrot COMPLETED", "2 approve  IN_PROGRESS", "print print flow BLOCKED"}, b.steps("press", task)); diff != "" {
			t.Errorf("while people are asked:\n%s", diff)
		}
		if got := b.steps("flow", task); got != nil {
			t.Errorf("before it has begun: %v", got)
		}
		list, err := b.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "press", State: teamv1.WorkItem_STATE_IN_PROGRESS})
		if b.must(err); len(list.GetSteps()) != 1 || list.GetSteps()[0].GetDescription() != "Print parrot: tides?" || list.GetSteps()[0].GetAssignee() != nil {
			t.Errorf("what people are asked is %v", list.GetSteps())
		}
		yes := rig.Text("press", "m2", "yes")
		yes.Message.TaskId = task
		if _, err := c.Send(t.Context(), yes); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"1 draft parrot COMPLETED", "2 approve  COMPLETED", "3 print flow COMPLETED"}, b.steps("press", task)); diff != "" {
			t.Errorf("behind the answer:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"3.1 one parrot COMPLETED", "3.2 two parrot COMPLETED"}, b.steps("flow", task)); diff != "" {
			t.Errorf("of the member:\n%s", diff)
		}
	})
}

// watcher reads what a watcher of a team is told of its board.
type watcher struct {
	cursor string
	seqs   []int64
	kinds  []string
	last   *teamv1.TeamSnapshot
	snaps  int
}

// watch reads from a cursor on until something is so.
func (w *watcher) watch(t *testing.T, m rig.Monitor, enough func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for msg, err := range m.WatchTeam(ctx, "desk", w.cursor) {
		if err != nil {
			t.Fatalf("behind %v: %v", w.seqs, err)
		}
		w.cursor = msg.GetCursor()
		switch k := msg.GetKind().(type) {
		case *teamv1.WatchTeamResponse_BoardEvent:
			w.seqs = append(w.seqs, k.BoardEvent.GetSeq())
			w.kinds = append(w.kinds, strings.TrimPrefix(k.BoardEvent.GetKind().String(), "KIND_"))
		case *teamv1.WatchTeamResponse_Snapshot:
			w.snaps, w.last = w.snaps+1, k.Snapshot
		case *teamv1.WatchTeamResponse_Update:
			w.last = k.Update
		}
		if enough() {
			return
		}
	}
	t.Fatalf("the stream has ended behind %v", w.seqs)
}

// TestR_003_28_R_003_29_R_003_30_Watched: a watcher sees what is on the board, who
// works on what, and every change in its order; behind a cursor it goes on.
func TestR_003_28_R_003_29_R_003_30_Watched(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		b, m := h.board(t, binding, "acme", "ann"), rig.Monitors(t, h.Target)[binding]
		b.add("a")
		w := &watcher{}
		w.watch(t, m, func() bool { return w.last != nil })
		if want := (&teamv1.BoardCounters{Total: 1, Pending: 1}); cmp.Diff(want, w.last.GetBoard(), protocmp.Transform()) != "" || len(w.seqs) != 0 {
			t.Errorf("begins with %v, %v", w.last.GetBoard(), w.seqs)
		}
		b.add("b", "a")
		b.must(b.as("writer").claim("a"))
		_, err := b.PostMessage(t.Context(), &teamv1.PostMessageRequest{TeamId: "desk", Text: "hello"})
		b.must(err)
		w.watch(t, m, func() bool { return len(w.seqs) == 2 }) // cut off in the middle
		b.must(b.as("writer").complete("a", "x"))
		b.must(b.claim("b"))
		other := h.board(t, binding, "other", "eve")
		other.add("not-for-ann")
		w.watch(t, m, func() bool {
			return len(w.seqs) == 5 && w.last.GetBoard().GetInProgress() == 1 && w.last.GetBoard().GetCompleted() == 1
		})
		if !slices.Equal(w.seqs, []int64{2, 3, 4, 5, 6}) || fmt.Sprint(w.kinds) != "[ADDED CLAIMED MESSAGE COMPLETED CLAIMED]" || w.snaps != 1 {
			t.Errorf("told %v %v, %d snapshots", w.seqs, w.kinds, w.snaps)
		}
		if items := w.last.GetBoardItems(); len(items) != 1 || items[0].GetId() != "b" || items[0].GetAssignee().GetPrincipal() != "acme/ann" {
			t.Errorf("held are %v", items)
		}
		plain := false
		for msg, err := range m.WatchTeam(t.Context(), "plain", "") {
			if err != nil || msg.GetSnapshot().GetBoard() != nil {
				t.Errorf("of a team without a board: %v, %v", msg, err)
			}
			plain = true
			break
		}
		if !plain {
			t.Error("the team without a board was not shown")
		}
	})
}

// TestS_47_R_003_30_Replicas: what is claimed at one replica is refused at the other,
// which tells its watchers of it; a cursor of the one goes on at the other.
func TestS_47_R_003_30_Replicas(t *testing.T) {
	t.Parallel()
	place, llm := rig.PostgreSQL(t), fakellm.New(t)
	one, two := open(t, place, llm), open(t, place, llm)
	a, b := one.board(t, 0, "acme", "ann"), two.board(t, 1, "acme", "ann")
	ma, mb := rig.Monitors(t, one.Target)[0], rig.Monitors(t, two.Target)[1]
	w := &watcher{}
	w.watch(t, ma, func() bool { return w.last != nil })
	a.add("x")
	a.must(a.as("writer").claim("x"))
	fault(t, b.as("parrot").claim("x"), aborted, conflict)
	w.watch(t, mb, func() bool { return len(w.seqs) == 2 && w.last.GetBoard().GetInProgress() == 1 })
	b.must(b.as("writer").complete("x", "done"))
	var adding sync.WaitGroup
	for i := range 10 { // on both, while one of them is watched
		adding.Go(func() {
			_, err := []at{a, b}[i%2].AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "desk", Title: fmt.Sprint("one of many, ", i)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	w.watch(t, mb, func() bool { return len(w.seqs) == 13 })
	adding.Wait()
	for i, seq := range w.seqs {
		if seq != int64(i+1) {
			t.Errorf("told %v", w.seqs)
			break
		}
	}
	if w.snaps != 1 {
		t.Errorf("%d snapshots", w.snaps)
	}
}
