package tests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_003_28_WorkAsAMember: who watches a team sees also what it does as a member of
// another one, with where that belongs, counted once; and nothing else of the other
// team. Behind any cursor it goes on without gap or repeat, also on a later server.
func TestR_003_28_WorkAsAMember(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		c := newCrew("c")
		m := c.members(t)
		four(t, m, "workflow")
		chain(t, m, "company", "d", "team")
		one := live(t, place, m)
		monitors := rig.Monitors(t, one.Target)
		w := watchTeam(t, monitors[0], "team", "")
		w.until(t, func(*teamv1.TeamSnapshot) bool { return true })
		cuts := map[string]int{w.cursor: 0} // how many events were told before a cursor
		root, own := one.sendNow(t, "company", "m1", "x").GetId(), one.sendNow(t, "team", "m2", "y").GetId()
		for range 2 {
			<-c.entered["c"]
		}
		for w.last.GetCounters().GetTasks().GetActive() != 2 || w.last.GetCounters().GetTasks().GetDone() != 4 {
			w.read(t)
			cuts[w.cursor] = len(w.events)
		}
		part := root + "~2"
		t.Run("R-003-29 with the task that it belongs to", func(t *testing.T) {
			active := w.last.GetActive()
			slices.SortFunc(active, func(a, b *teamv1.ActiveTask) int { return len(a.GetTaskId()) - len(b.GetTaskId()) })
			if len(active) != 2 || active[0].GetTaskId() != own || active[0].GetRootTaskId() != "" {
				t.Fatalf("active are %v", active)
			}
			a := active[1]
			if a.GetTaskId() != part || a.GetRootTaskId() != root || a.GetRootAgentId() != "company" || a.GetState() != a2av1.TaskState_TASK_STATE_WORKING ||
				len(a.GetWorkers()) != 1 || a.GetWorkers()[0].GetPath() != "company/team/c" {
				t.Errorf("the work for company is %v", a)
			}
			if tr, err := monitors[1].Trace(t.Context(), a.GetTaskId()); err != nil || tr.GetStep().GetMember() != "team" {
				t.Errorf("its trace is %v, %v", tr, err)
			}
		})
		t.Run("R-003-30 behind each cursor, while work goes on", func(t *testing.T) {
			if len(behindEach(t, monitors, w, cuts)) == 0 {
				t.Error("there are no cursors")
			}
		})
		behind, at := w.cursor, len(w.events)
		w.stop()
		one.kill(place)
		two := live(t, place, m)
		for range 2 {
			<-c.entered["c"]
		}
		c.open("c")
		again := watchTeam(t, rig.Monitors(t, two.Target)[1], "team", behind)
		last := again.until(t, ran(2))
		want := recorded(t, two.store, "team")
		records, err := two.store.Events(t.Context(), runs.Key{Owner: rig.LocalOwner, ID: root}, 0, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if agent.Within(r.Event.GetScope(), "2") {
				want = append(want, fmt.Sprint(root, " ", r.Seq))
			}
		}
		if diff := cmp.Diff(sorted(want), sorted(append(slices.Clone(w.told()[:at]), again.told()...))); diff != "" || again.snaps > 0 {
			t.Errorf("R-003-30: told by both, with %d snapshots:\n%s", again.snaps, diff)
		}
		two.until(t, root, ended)
		for _, monitor := range rig.Monitors(t, two.Target) {
			for name, want := range map[string][2]int64{"team": {2, 8}, "company": {1, 6}, "d": {3, 0}} { // runs, and work in them
				fresh := watchTeam(t, monitor, name, "")
				s := fresh.until(t, func(*teamv1.TeamSnapshot) bool { return true })
				runs, tasks := &teamv1.TaskCounts{Total: want[0], Done: want[0]}, &teamv1.TaskCounts{Total: want[1], Done: want[1]}
				if diff := cmp.Diff(runs, s.GetCounters().GetRuns(), protocmp.Transform()) + cmp.Diff(tasks, s.GetCounters().GetTasks(), protocmp.Transform()); diff != "" {
					t.Errorf("R-003-28: of %s:\n%s", name, diff)
				}
				fresh.stop()
			}
		}
		if n := last.GetCounters().GetMemberCount(); n != 4 {
			t.Errorf("%d members", n)
		}
	})
}
