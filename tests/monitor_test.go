package tests

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// teamWatch reads what a watcher of a team is told, one thing at a time.
type teamWatch struct {
	next   func() (*teamv1.WatchTeamResponse, error, bool)
	stop   func()
	cursor string               // behind what was read
	last   *teamv1.TeamSnapshot // that was read
	events []*teamv1.MonitorEvent
	snaps  int // snapshots that were read
}

// behindEach watches a team behind cursors, each with how many events w was told before
// it: what w was told since is told again, by turns over each binding. It returns how the
// team is then.
func behindEach(t *testing.T, monitors []rig.Monitor, w *teamWatch, cuts map[string]int) (lasts []*teamv1.TeamSnapshot) {
	t.Helper()
	for cursor, at := range cuts {
		again := watchTeam(t, monitors[len(lasts)%len(monitors)], "team", cursor)
		for len(again.events) < len(w.events)-at || again.last == nil {
			again.read(t)
		}
		if diff := cmp.Diff(sorted(w.told()[at:]), sorted(again.told())); diff != "" || again.snaps > 0 {
			t.Fatalf("behind %d of %d events, with %d snapshots:\n%s", at, len(w.events), again.snaps, diff)
		}
		again.stop()
		lasts = append(lasts, again.last)
	}
	return lasts
}

func watchTeam(t testing.TB, m rig.Monitor, team, cursor string) *teamWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	next, stop := iter.Pull2(m.WatchTeam(ctx, team, cursor))
	w := &teamWatch{next: next, stop: func() { stop(); cancel() }}
	t.Cleanup(w.stop)
	return w
}

// read reads one more thing.
func (w *teamWatch) read(t testing.TB) {
	t.Helper()
	m, err, ok := w.next()
	if err != nil || !ok {
		t.Fatalf("the watch has ended behind %d events: %v; the team is %v", len(w.events), err, w.last)
	}
	w.cursor = m.GetCursor()
	switch k := m.GetKind().(type) {
	case *teamv1.WatchTeamResponse_Snapshot:
		w.last = k.Snapshot
		w.snaps++
	case *teamv1.WatchTeamResponse_Update:
		w.last = k.Update
	case *teamv1.WatchTeamResponse_Event:
		w.events = append(w.events, k.Event)
	}
}

// until reads on until the team is as it should be.
func (w *teamWatch) until(t testing.TB, is func(*teamv1.TeamSnapshot) bool) *teamv1.TeamSnapshot {
	t.Helper()
	for w.last == nil || !is(w.last) {
		w.read(t)
	}
	return w.last
}

// ran: so many runs of a team have ended, and none is open.
func ran(n int64) func(*teamv1.TeamSnapshot) bool {
	return func(s *teamv1.TeamSnapshot) bool {
		c := s.GetCounters().GetRuns()
		return c.GetTotal() == n && c.GetActive()+c.GetPending() == 0
	}
}

// ends are the agents whose work has ended, in the order in which that was told.
func (w *teamWatch) ends() []string {
	var list []string
	for _, e := range w.events {
		if ev := e.GetEvent(); ev.GetEnded() != nil && ev.GetEnded().GetTurn() == nil {
			list = append(list, ev.GetAgent())
		}
	}
	return list
}

const story = `
models: {web: MODEL(web), coder: MODEL(coder), boss: MODEL(boss)}
agents:
  web: {description: Searches., model: web}
  coder: {description: Writes scripts., model: coder}
teams:
  office:
    name: Office
    description: Searches and writes.
    members: [{agent: web}, {agent: coder}]
    coordinator: {leader: {model: boss}}
`

// TestS_21_R_003_32_Story: a message comes, the leader has the web agent search and
// the coding agent write, and whoever watches the team sees all of it.
func TestS_21_R_003_32_Story(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		for n, binding := range []string{"grpc", "rest"} {
			t.Run("S-21 C-29 R-003-28 R-003-29 R-003-30 R-003-31 "+binding, func(t *testing.T) {
				s := play(t, place, story)
				s.sent = 10 * n // on the same store
				search, write := fakellm.NewGate(), fakellm.NewGate()
				s.llm.Script("boss",
					fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_web", Arguments: `{"task":"search the tides"}`}}},
					fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_coder", Arguments: `{"task":"write a script"}`}}},
					fakellm.Turn{Text: "Here is your script."})
				s.llm.Script("web", fakellm.Turn{Text: "tides: high at noon", Gate: search})
				s.llm.Script("coder", fakellm.Turn{Text: "print(12)", Gate: write})
				m := rig.Monitors(t, s.Target)[n]

				w := watchTeam(t, m, "office", "")
				first := w.until(t, func(*teamv1.TeamSnapshot) bool { return true })
				before := first.GetCounters().GetRuns().GetTotal() // of the binding before, on the same store
				doneBefore := first.GetCounters().GetTasks().GetDone()
				if first.GetName() != "Office" || first.GetMode() != "coordinator" || !first.GetHealthy() || first.GetCounters().GetMemberCount() != 2 || len(first.GetActive()) != 0 {
					t.Errorf("R-003-28: at first the team is %v", first)
				}
				var rows []string
				for _, row := range first.GetMembers() {
					rows = append(rows, row.GetId()+" "+row.GetRole().String()+" "+row.GetActivity().String()+" "+row.GetBreaker().String())
				}
				want := []string{
					"office ROLE_LEAD ACTIVITY_IDLE BREAKER_UNSPECIFIED", "web ROLE_MEMBER ACTIVITY_IDLE BREAKER_CLOSED", "coder ROLE_MEMBER ACTIVITY_IDLE BREAKER_CLOSED",
				}
				if diff := cmp.Diff(want, rows); diff != "" {
					t.Errorf("C-29 members:\n%s", diff)
				}

				resp, err := s.client(t, false).Send(t.Context(), atOnce(s.message("office", "search and write a script")))
				if err != nil {
					t.Fatal(err)
				}
				id := resp.GetTask().GetId()
				doing := func(member string, done int64) func(*teamv1.TeamSnapshot) bool {
					return func(now *teamv1.TeamSnapshot) bool {
						if len(now.GetActive()) != 1 || len(now.GetActive()[0].GetWorkers()) != 1 {
							return false
						}
						at := now.GetActive()[0].GetWorkers()[0]
						return at.GetPath() == "office/"+member && at.GetKind() == teamv1.Step_KIND_MODEL && at.GetState() == teamv1.TraceStep_STATE_RUNNING &&
							now.GetCounters().GetTasks().GetDone() == doneBefore+done
					}
				}
				now := w.until(t, doing("web", 0))
				if a := now.GetActive()[0]; a.GetTaskId() != id || a.GetText() != "search and write a script" || a.GetSince() == nil || a.GetWorkers()[0].GetText() != "search the tides" {
					t.Errorf("R-003-29: active is %v", a)
				}
				if c := now.GetCounters(); c.GetTasks().GetActive() != 1 || c.GetRuns().GetActive() != 1 {
					t.Errorf("R-003-28: %v", c)
				}
				if m := now.GetMembers()[1]; m.GetActivity() != teamv1.MemberStatus_ACTIVITY_WORKING || m.GetTasks().GetActive() != 1 {
					t.Errorf("web is %v", m)
				}
				search.Open()
				w.until(t, doing("coder", 1))
				write.Open()
				end := w.until(t, ran(before+1))
				c := end.GetCounters()
				if c.GetTasks().GetDone() != doneBefore+2 || c.GetRunP95() == nil || c.GetSpent().GetOutputTokens() == 0 || len(end.GetActive()) != 0 {
					t.Errorf("S-21: in the end %v", c)
				}
				if m := end.GetMembers()[1]; m.GetTasks().GetDone() != before+1 || m.GetLatencyP50() == nil || m.GetSpent().GetModelCalls() != before+1 {
					t.Errorf("web has done %v", m)
				}
				if diff := cmp.Diff([]string{"office/web", "office/coder", "office"}, w.ends()); diff != "" {
					t.Errorf("S-21: completions as they were told:\n%s", diff)
				}
				seq := int64(0)
				for _, e := range w.events {
					if e.GetRootTaskId() != id || e.GetEvent().GetSeq() <= seq {
						t.Fatalf("R-003-30: behind %d comes %v", seq, e)
					}
					seq = e.GetEvent().GetSeq()
				}
				var told []*teamv1.Event // R-003-31: the same by the id of the task
				for resp, err := range m.WatchTask(t.Context(), id, 0) {
					if err != nil {
						t.Fatal(err)
					}
					if snap := resp.GetSnapshot(); snap != nil && (snap.GetTask().GetStatus().GetState() != completedTask || snap.GetTrace().GetStep().GetReply() == nil) {
						t.Errorf("R-003-31: %v", snap)
					}
					told = append(told, resp.GetEvent().GetEvent())
				}
				if len(told) != 1 {
					t.Errorf("R-003-31: of a task that has ended there are %d answers", len(told))
				}
			})
		}
	})
}

// recorded are the events of a team's tasks that watchers may see, from the store:
// root and sequence.
func recorded(t testing.TB, store runs.Store, team string) []string {
	t.Helper()
	var list []string
	f := runs.Filter{Agent: team, PageSize: 100}
	for {
		page, err := store.List(t.Context(), rig.LocalOwner, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Tasks {
			records, err := store.Events(t.Context(), runs.Key{Owner: rig.LocalOwner, ID: task.GetId()}, 0, 100_000)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				if r.Event.GetClaimed() == nil {
					list = append(list, fmt.Sprint(task.GetId(), " ", r.Seq))
				}
			}
		}
		if f.PageToken = page.NextToken; f.PageToken == "" {
			slices.Sort(list)
			return list
		}
	}
}

func (w *teamWatch) told() []string {
	list := []string{}
	for _, e := range w.events {
		list = append(list, fmt.Sprint(e.GetRootTaskId(), " ", e.GetEvent().GetSeq()))
	}
	return list
}

// TestR_003_30_Cursor: who leaves a team behind any event, and comes back over
// another binding, to another server, is told all that follows, once.
func TestR_003_30_Cursor(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		c := newCrew("c")
		m := c.members(t)
		four(t, m, "workflow")
		one := live(t, place, m)
		monitors := rig.Monitors(t, one.Target)
		w := watchTeam(t, monitors[0], "team", "")
		w.until(t, func(*teamv1.TeamSnapshot) bool { return true })
		cuts := map[string]int{w.cursor: 0} // how many events were told before a cursor
		var ids []string
		for i := range 3 {
			ids = append(ids, one.sendNow(t, "team", fmt.Sprint("m", i), "x").GetId())
		}
		for range ids {
			<-c.entered["c"]
		}
		for w.last.GetCounters().GetTasks().GetActive() != 3 || w.last.GetCounters().GetTasks().GetDone() != 6 {
			w.read(t)
			cuts[w.cursor] = len(w.events)
		}
		t.Run("R-003-30 behind each cursor, while work goes on", func(t *testing.T) {
			for _, last := range behindEach(t, monitors, w, cuts) {
				if diff := cmp.Diff(w.last, last, protocmp.Transform(), protocmp.IgnoreFields(&teamv1.TeamSnapshot{}, "time")); diff != "" {
					t.Fatalf("the team, watched from the beginning and behind a cursor:\n%s", diff)
				}
			}
		})
		behind, at := w.cursor, len(w.events)
		w.stop()
		one.kill(place)
		two := live(t, place, m)
		for range ids {
			<-c.entered["c"]
		}
		c.open("c")
		t.Run("R-003-30 on a server that comes after", func(t *testing.T) {
			again := watchTeam(t, rig.Monitors(t, two.Target)[1], "team", behind)
			last := again.until(t, ran(3))
			for _, id := range ids {
				two.until(t, id, ended)
			}
			want := recorded(t, two.store, "team")
			if diff := cmp.Diff(want, sorted(append(slices.Clone(w.told()[:at]), again.told()...))); diff != "" || again.snaps > 0 {
				t.Errorf("told by both, with %d snapshots:\n%s", again.snaps, diff)
			}
			if n := last.GetCounters().GetTasks(); n.GetDone() != 12 || n.GetTotal() != 12 {
				t.Errorf("R-003-28: %v", n)
			}
			first := 0 // one from the very beginning
			for cursor, n := range cuts {
				if n == 0 {
					all := watchTeam(t, rig.Monitors(t, two.Target)[0], "team", cursor)
					all.until(t, func(*teamv1.TeamSnapshot) bool { return len(all.events) == len(want) })
					if diff := cmp.Diff(want, sorted(all.told())); diff != "" {
						t.Error(diff)
					}
					first++
				}
			}
			if first == 0 {
				t.Error("no cursor is behind nothing")
			}
		})
		t.Run("R-003-30 an unknown cursor begins with a snapshot", func(t *testing.T) {
			for _, cursor := range []string{"x", "-", behind + "A", strings.ToUpper(behind)} {
				for _, m := range rig.Monitors(t, two.Target) {
					again := watchTeam(t, m, "team", cursor)
					again.read(t)
					if again.snaps != 1 || again.last.GetCounters().GetRuns().GetDone() != 3 {
						t.Errorf("%q: %v", cursor, again.last)
					}
					again.stop()
				}
			}
			other := watchTeam(t, rig.Monitors(t, two.Target)[0], "a", behind) // that of another team
			if other.read(t); other.snaps != 1 {
				t.Error("the cursor of another team is taken")
			}
		})
	})
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// TestR_003_30_SecondReplica: a team that works on one server is watched on another
// one on the same store, and who moves between them misses nothing.
func TestR_003_30_SecondReplica(t *testing.T) {
	t.Parallel()
	place := rig.PostgreSQL(t)
	c := newCrew("c")
	m := c.members(t)
	four(t, m, "workflow")
	one, two := live(t, place, m), live(t, place, m)
	here, there := rig.Monitors(t, one.Target), rig.Monitors(t, two.Target)
	w := watchTeam(t, there[1], "team", "")
	w.until(t, func(*teamv1.TeamSnapshot) bool { return true })
	ids := []string{one.sendNow(t, "team", "m1", "x").GetId(), two.sendNow(t, "team", "m2", "y").GetId()}
	for range ids {
		<-c.entered["c"]
	}
	w.until(t, func(s *teamv1.TeamSnapshot) bool { return s.GetCounters().GetTasks().GetActive() == 2 })
	w.stop()
	again := watchTeam(t, here[0], "team", w.cursor)
	c.open("c")
	again.until(t, ran(2))
	if diff := cmp.Diff(recorded(t, one.store, "team"), sorted(append(w.told(), again.told()...))); diff != "" || again.snaps > 0 {
		t.Errorf("told by both, with %d snapshots:\n%s", again.snaps, diff)
	}
	for n, id := range ids {
		one.until(t, id, ended)
		var traces []*teamv1.Trace
		for _, m := range append(slices.Clone(here), there...) {
			tr, err := m.Trace(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			traces = append(traces, tr)
		}
		for _, tr := range traces[1:] {
			if diff := cmp.Diff(traces[0], tr, protocmp.Transform()); diff != "" {
				t.Errorf("task %d, on the other server:\n%s", n, diff)
			}
		}
	}
}

// TestS_25_WatchTask: who drops the watch of a task behind any event goes on there
// without gap or repeat; also of a delegation, and over a restart.
func TestS_25_WatchTask(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		c := newCrew("c")
		m := c.members(t)
		four(t, m, "supervisor")
		one := live(t, place, m)
		id := one.sendNow(t, "team", "m", "x").GetId()
		<-c.entered["c"]
		monitor := rig.Monitors(t, one.Target)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var at int64
		for resp, err := range monitor[0].WatchTask(ctx, id, 0) {
			if err != nil || resp.GetSnapshot() == nil {
				t.Fatalf("first comes %v, %v", resp, err)
			}
			at = resp.GetSeq()
			tr := resp.GetSnapshot().GetTrace()
			if tr.GetSeq() != at || tr.GetState() != resp.GetSnapshot().GetTask().GetStatus().GetState() || tr.GetStep().GetSteps()[0].GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED {
				t.Errorf("the snapshot is %v", tr)
			}
			break
		}
		one.kill(place)
		two := live(t, place, m)
		<-c.entered["c"]
		c.open("c")
		two.until(t, id, ended)
		records, err := two.store.Events(t.Context(), runs.Key{Owner: rig.LocalOwner, ID: id}, 0, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		for n, child := range []string{id, id + "~3", id} {
			_, scope := agent.SplitTask(child)
			for after := int64(1); after <= int64(len(records)); after++ {
				if n == 2 && after != at {
					continue // the sequence of the snapshot, on the server before
				}
				var want, got []int64
				for _, r := range records {
					if r.Seq > after && agent.Within(r.Event.GetScope(), scope) && r.Event.GetClaimed() == nil {
						want = append(want, r.Seq)
					}
				}
				for resp, err := range rig.Monitors(t, two.Target)[int(after)%2].WatchTask(ctx, child, after) {
					if err != nil || resp.GetEvent() == nil || resp.GetSeq() != resp.GetEvent().GetEvent().GetSeq() {
						t.Fatalf("S-25: behind %d comes %v, %v", after, resp, err)
					}
					got = append(got, resp.GetSeq())
				}
				if !slices.Equal(got, want) {
					t.Fatalf("S-25: of %s behind %d come %v, want %v", child, after, got, want)
				}
			}
		}
		for resp, err := range rig.Monitors(t, two.Target)[1].WatchTask(ctx, id, int64(len(records)+1)) { // that nobody was told
			if err != nil || resp.GetSnapshot() == nil {
				t.Errorf("S-25: %v, %v", resp, err)
			}
		}
	})
}

// answerable are the open questions of the caller, page by page.
func answerable(t testing.TB, m rig.Monitor, req *teamv1.ListQuestionsRequest) []*teamv1.OpenQuestion {
	t.Helper()
	var list []*teamv1.OpenQuestion
	for {
		page, err := m.Questions(t.Context(), req)
		if err != nil || req.GetPageSize() > 0 && len(page.GetQuestions()) > int(req.GetPageSize()) {
			t.Fatalf("%d questions: %v", len(page.GetQuestions()), err)
		}
		list = append(list, page.GetQuestions()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return list
		}
	}
}

// TestS_51_Approvals: two members side by side, deep inside and on another server,
// ask; both questions are listed, the second is answered first, over a restart.
func TestS_51_Approvals(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		far := newCrew("c")
		farAgents := far.members(t)
		if err := farAgents.Register("right", script(t, "right", asking("right?")...)); err != nil {
			t.Fatal(err)
		}
		peer := rig.Serve(t, server.Config{Agents: farAgents})

		c := newCrew()
		m := c.members(t)
		if err := m.Register("left", script(t, "left", asking("left?")...)); err != nil {
			t.Fatal(err)
		}
		if err := m.Register("right", overA2A(t, "right", peer, "right", remote.BindingGRPC)); err != nil {
			t.Fatal(err)
		}
		panel(t, m, "workflow")
		chain(t, m, "company", "team")
		one := live(t, place, m)
		ids := []string{one.sendNow(t, "company", "m1", "x").GetId(), one.sendNow(t, "team", "m2", "y").GetId()}
		for _, id := range ids {
			one.until(t, id, func(task *a2av1.Task) bool {
				return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && len(questions(task)) == 2
			})
		}
		said := func(list []*teamv1.OpenQuestion) []string {
			var out []string
			for _, q := range list {
				if q.GetSince() == nil || q.GetContextId() == "" {
					t.Errorf("S-51: %v", q)
				}
				out = append(out, q.GetQuestion().GetPath()+" "+agent.Text(q.GetQuestion().GetMessage()))
			}
			slices.Sort(out)
			return out
		}
		all := []string{"company/team/left left?", "company/team/right right?", "team/left left?", "team/right right?"}
		for _, monitor := range rig.Monitors(t, one.Target) {
			for size := range int32(5) {
				if diff := cmp.Diff(all, said(answerable(t, monitor, &teamv1.ListQuestionsRequest{PageSize: size}))); diff != "" {
					t.Errorf("S-51 pages of %d:\n%s", size, diff)
				}
			}
			if diff := cmp.Diff(all[2:], said(answerable(t, monitor, &teamv1.ListQuestionsRequest{AgentId: "team"}))); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(all[:2], said(answerable(t, monitor, &teamv1.ListQuestionsRequest{TaskId: ids[0] + "~1", PageSize: 1}))); diff != "" {
				t.Error(diff)
			}
			w := watchTeam(t, monitor, "company", "")
			now := w.until(t, func(*teamv1.TeamSnapshot) bool { return true })
			if len(now.GetQuestions()) != 2 || !now.GetActive()[0].GetWaiting() || now.GetMembers()[0].GetActivity() != teamv1.MemberStatus_ACTIVITY_WAITING ||
				now.GetCounters().GetRuns().GetWaiting() != 1 {
				t.Errorf("S-51: the team is %v", now)
			}
			w.stop()
		}
		one.kill(place)

		two := live(t, place, m)
		monitors := rig.Monitors(t, two.Target)
		list := answerable(t, monitors[0], &teamv1.ListQuestionsRequest{AgentId: "company"})
		slices.SortFunc(list, func(a, b *teamv1.OpenQuestion) int {
			return strings.Compare(b.GetQuestion().GetPath(), a.GetQuestion().GetPath())
		})
		for n, q := range list { // the right one first
			req := &teamv1.AnswerQuestionRequest{TaskId: q.GetTaskId(), Question: q.GetQuestion().GetQuestion(), Answer: &teamv1.AnswerQuestionRequest_Text{
				Text: q.GetQuestion().GetPath(),
			}}
			for range 2 { // the same again is taken once
				if resp, err := monitors[n].Answer(t.Context(), req); err != nil || resp.GetTask().GetId() != q.GetTaskId() {
					t.Fatalf("S-51: %v, %v", resp, err)
				}
			}
			two.until(t, ids[0], func(task *a2av1.Task) bool { return ended(task) || n == 0 && len(questions(task)) == 1 })
		}
		task := two.until(t, ids[0], ended)
		text := agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()})
		for _, want := range []string{"told company/team/left", "told company/team/right", "c(x)"} {
			if !strings.Contains(text, want) {
				t.Errorf("S-51: the answer lacks %q: %q", want, text)
			}
		}
		if left := answerable(t, monitors[1], &teamv1.ListQuestionsRequest{}); len(left) != 2 || left[0].GetTaskId() != ids[1] {
			t.Errorf("S-51: left are %v", left)
		}
		tr, err := monitors[0].Trace(t.Context(), ids[0]+"~1")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range tr.GetStep().GetSteps()[:2] {
			if q := s.GetQuestions(); len(q) != 1 || agent.Text(q[0].GetAnswer()) != s.GetPath() || q[0].GetBy() != rig.LocalOwner || q[0].GetClosed() == nil {
				t.Errorf("S-51: the trace says of %s: %v", s.GetPath(), q)
			}
		}
		for name, fail := range map[string]struct {
			req  *teamv1.AnswerQuestionRequest
			want string
		}{
			"a question that is answered": {
				&teamv1.AnswerQuestionRequest{TaskId: ids[1], Question: list[0].GetQuestion().GetQuestion(), Answer: &teamv1.AnswerQuestionRequest_Text{Text: "x"}}, agent.ReasonInvalidRequest,
			},
			"which of two":          {&teamv1.AnswerQuestionRequest{TaskId: ids[1], Answer: &teamv1.AnswerQuestionRequest_Text{Text: "x"}}, agent.ReasonInvalidRequest},
			"nothing":               {&teamv1.AnswerQuestionRequest{TaskId: ids[1]}, agent.ReasonInvalidRequest},
			"an unknown task":       {&teamv1.AnswerQuestionRequest{TaskId: "none", Answer: &teamv1.AnswerQuestionRequest_Text{Text: "x"}}, a2aerror.ReasonTaskNotFound},
			"a task that has ended": {&teamv1.AnswerQuestionRequest{TaskId: ids[0], Answer: &teamv1.AnswerQuestionRequest_Text{Text: "x"}}, a2aerror.ReasonUnsupportedOperation},
		} {
			for _, monitor := range monitors {
				if _, err := monitor.Answer(t.Context(), fail.req); rig.Fault(err).Reason != fail.want {
					t.Errorf("S-51 %s over %s: %v, want %s", name, monitor.Binding(), err, fail.want)
				}
			}
		}
	})
}

// TestS_51_AnswerToNothing: what answers no question is refused, and told nobody; an
// answer that was taken may come again.
func TestS_51_AnswerToNothing(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		entered, leave := make(chan struct{}), make(chan struct{})
		works := &agent.Func{ID: "works", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			entered <- struct{}{}
			select {
			case <-leave:
				return agent.NewMessage("done"), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}}
		m := rig.Manager(t, script(t, "asks", asking("which?")...), works)
		chain(t, m, "team", "asks", "works")
		l := live(t, place, m)
		monitors := rig.Monitors(t, l.Target)
		say := func(id, question string) *teamv1.AnswerQuestionRequest {
			return &teamv1.AnswerQuestionRequest{TaskId: id, Question: question, Answer: &teamv1.AnswerQuestionRequest_Text{Text: "that"}}
		}
		for i, monitor := range monitors {
			id := l.sendNow(t, "team", fmt.Sprint("m", i), "x").GetId()
			l.until(t, id, func(task *a2av1.Task) bool { return len(questions(task)) == 1 })
			taken := say(id, answerable(t, monitor, &teamv1.ListQuestionsRequest{TaskId: id})[0].GetQuestion().GetQuestion())
			if _, err := monitor.Answer(t.Context(), taken); err != nil {
				t.Fatal(err)
			}
			<-entered
			own := say(id, "")
			own.Answer = &teamv1.AnswerQuestionRequest_Message{Message: &a2av1.Message{MessageId: "own", Parts: agent.TextParts("that")}}
			for _, req := range []*teamv1.AnswerQuestionRequest{say(id, ""), say(id, "q9"), say(id+"~1", ""), own} {
				_, err := monitor.Answer(t.Context(), req)
				if f := rig.Fault(err); f == nil || f.Reason != a2aerror.ReasonUnsupportedOperation || f.Code != "FailedPrecondition" || req.GetTaskId() == id && !strings.Contains(f.Message, "has no open question") {
					t.Errorf("%s: %v: %v", monitor.Binding(), req, err)
				}
			}
			if _, err := monitor.Answer(t.Context(), taken); err != nil {
				t.Errorf("%s: once more: %v", monitor.Binding(), err)
			}
			leave <- struct{}{}
			task := l.until(t, id, ended)
			if _, err := monitor.Answer(t.Context(), taken); err != nil {
				t.Errorf("%s: after the end: %v", monitor.Binding(), err)
			}
			said := 0
			for _, msg := range task.GetHistory() {
				if agent.Text(msg) == "that" {
					said++
				}
			}
			if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || said != 1 {
				t.Errorf("%s: %d answers in %v", monitor.Binding(), said, task)
			}
		}
	})
}

// TestA_05_MonitorOfOthers: nobody is shown the tasks of somebody else.
func TestA_05_MonitorOfOthers(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		m := rig.Manager(t, script(t, "asks", asking("who?")...))
		store, _ := place.Open(t)
		target := rig.Serve(t, server.Config{Agents: m, Store: store, Settings: rig.Keys(rig.Key("acme", "ann"), rig.Key("acme", "bob"))})
		resp, err := rig.Clients(t, target.As("acme", "ann"))[0].Send(t.Context(), rig.Text("asks", "m", "x"))
		if err != nil {
			t.Fatal(err)
		}
		id := resp.GetTask().GetId()
		for _, mine := range rig.Monitors(t, target.As("acme", "ann")) {
			if list := answerable(t, mine, &teamv1.ListQuestionsRequest{}); len(list) != 1 || list[0].GetTaskId() != id {
				t.Errorf("ann is shown %v", list)
			}
			tr, err := mine.Trace(t.Context(), id)
			if err != nil || tr.GetCost().GetAccounts()[0].GetPath() != "acme" {
				t.Errorf("ann is shown %v, %v", tr, err)
			}
		}
		for _, other := range rig.Monitors(t, target.As("acme", "bob")) {
			_, traced := other.Trace(t.Context(), id)
			_, answered := other.Answer(t.Context(), &teamv1.AnswerQuestionRequest{TaskId: id, Answer: &teamv1.AnswerQuestionRequest_Text{Text: "me"}})
			_, listed := other.Questions(t.Context(), &teamv1.ListQuestionsRequest{TaskId: id})
			var watched error
			for _, watched = range other.WatchTask(t.Context(), id, 0) {
				break
			}
			for _, err := range []error{traced, answered, listed, watched} {
				if rig.Fault(err).Reason != a2aerror.ReasonTaskNotFound {
					t.Errorf("A-05 over %s: bob gets %v", other.Binding(), err)
				}
			}
			if list := answerable(t, other, &teamv1.ListQuestionsRequest{}); len(list) != 0 {
				t.Errorf("A-05: bob is shown %v", list)
			}
			w := watchTeam(t, other, "asks", "")
			if now := w.until(t, func(*teamv1.TeamSnapshot) bool { return true }); now.GetCounters().GetRuns().GetTotal() != 0 {
				t.Errorf("A-05: bob is shown %v", now)
			}
			w.stop()
			for _, err := range other.WatchTeam(t.Context(), "nobody", "") {
				if rig.Fault(err).Reason != agent.ReasonAgentNotFound {
					t.Errorf("an unknown team: %v", err)
				}
			}
		}
		for _, nobody := range rig.Monitors(t, target) {
			if _, err := nobody.Trace(t.Context(), id); rig.Fault(err).Reason != agent.ReasonUnauthenticated {
				t.Errorf("without a key: %v", err)
			}
		}
	})
}
