package team_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// anyCall draws a call: good ones, and those that are none.
func anyCall(t *rapid.T) *teamv1.ToolCall {
	task := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "task")
	return rapid.SampledFrom([]*teamv1.ToolCall{
		give("quick", task), give("slow", task), give("late", task), give("bad", task), give("empty", task), give("off", task), give("nobody", task),
		tool("echo", "{}"), tool("foo", "{}"), tool("delegate_to_quick", "junk"), tool(checkTool, "{}"), tool(checkTool, `{"wait_seconds":20}`),
		tool(prompt.ReadTool, `{"id":"2","offset":0}`), tool("delegate_task_to_member", `{"member_id":"slow","task":"x"}`),
	}).Draw(t, "call")
}

// anyLead draws what a leader does: turns of calls, each with or without a text,
// then answers.
func anyLead(t *rapid.T, tt *testing.T) *scriptedLead {
	m := leads(tt)
	for range rapid.IntRange(0, 6).Draw(t, "turns") {
		var list []*teamv1.ToolCall
		for range rapid.IntRange(1, 5).Draw(t, "calls") {
			list = append(list, proto.CloneOf(anyCall(t)))
		}
		turn := calls(list...)
		m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return turn })
	}
	for range 10 {
		m.turns = append(m.turns, func(*agent.ModelRequest) *teamv1.Turn { return says("done") })
	}
	return m
}

// anyTeam draws the policies of a team around a leader.
func anyTeam(t *rapid.T, tt *testing.T, m *scriptedLead) *team.Team {
	reg := registry{}
	works := func(id string, wait time.Duration, text string, err error) {
		reg[id] = &agent.Func{ID: id, Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			if err := agent.Sleep(ctx, wait); err != nil {
				return nil, err
			}
			return agent.NewMessage(text), err
		}}
	}
	works("quick", 0, "quick says", nil)
	works("slow", 3*time.Second, "slow says", nil)
	works("late", 100*time.Second, "late says", nil)
	works("bad", time.Second, "", agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no such book"))
	works("empty", time.Second, "", nil)
	works("off", 0, "never", nil)
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	return ledBy(tt, m, reg, member("off", func(m *team.Member) { m.Disabled = true }), func(c *leader.CoordinatorConfig, cfg *team.Config) {
		c.AllowParallel, c.Async, c.StrictCycles, c.Tools = flag("parallel"), flag("async"), flag("strict"), []agent.Tool{echoTool{}}
		if flag("cancel") {
			c.OpenDelegations = leader.CancelOpen
		}
		if flag("finalize") {
			c.OnLimit = leader.Finalize
		}
		cfg.ReportErrors = flag("report")
		cfg.Limits.MaxParallel = proto.Int32(rapid.Int32Range(1, 4).Draw(t, "max_parallel"))
		cfg.Limits.MaxDelegations = proto.Int32(rapid.Int32Range(1, 8).Draw(t, "max_delegations"))
		for i := range c.Members {
			c.Members[i].SkipSummarization = flag("skip")
			if flag("own") {
				c.Members[i].Async = proto.Bool(flag("mode"))
			}
		}
	})
}

// TestLeader_Anything runs leaders that do anything, under any policy: prompts
// are always such as providers take, limits hold, every start has its end, and the
// run ends, also when it is resumed from any place of its record.
func TestLeader_Anything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := anyLead(rt, t)
		tm := anyTeam(rt, t, m)
		place := rapid.IntRange(0, 1000).Draw(rt, "crash")
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = runTwice(t, tm, m, place) })
		if len(faults) > 0 || t.Failed() {
			rt.Fatal(strings.Join(faults, "\n"))
		}
	})
}

// runTwice runs a leader, and once more from a place of its record.
func runTwice(t *testing.T, tm *team.Team, m *scriptedLead, place int) []string {
	r := watch(t.Context(), tm, "x")
	faults := faultsOf(r, tm)

	at := len(r.events) * place / 1000
	m.requests, m.turns = nil, m.turns[turnsIn(r.events[:at]):]
	again := watchRequest(t.Context(), tm, &teamv1.ProcessRequest{AgentId: "t1", Message: agent.UserMessage("m-1", "x"), Recorded: r.events[:at]})
	again.events = append(r.events[:at:at], again.events...)
	faults = append(faults, faultsOf(again, tm)...)
	time.Sleep(time.Hour) // the bubble's: for what was left behind
	return faults
}

// turnsIn counts the turns that have ended.
func turnsIn(events []*teamv1.Event) int {
	n := 0
	for _, ev := range events {
		if ev.GetEnded().GetTurn() != nil {
			n++
		}
	}
	return n
}

// faultsOf is what must not be of a run, however it ended.
func faultsOf(r *recorded, tm *team.Team) []string {
	lead := tm.Config().Scheduler.(forwarder).to.(*leader.Coordinator)
	faults := r.incomplete()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if (r.reply == nil) == (r.err == nil) {
		fault("it ended with %v and %v", r.reply, r.err)
	}
	may := []string{agent.ReasonMaxDelegations, agent.ReasonCycleDetected, agent.ReasonDelegationFailed, agent.ReasonAgentNotFound, agent.ReasonTimeout}
	if lead.Traits().FinalTurn != "" {
		may = append(may, agent.ReasonNoResponse) // the last turn has calls and no text
	}
	if r.err != nil && !slices.Contains(may, agent.AsError(r.err).Reason) {
		fault("it ended with %v", r.err)
	}
	begun, peak, open := 0, 0, map[string]bool{}
	for _, ev := range r.events {
		if ev.GetStarted().GetAttempt() == 1 && ev.GetAgent() != "t1" {
			begun++
			open[ev.GetScope()] = true
		}
		if ev.GetEnded() != nil {
			delete(open, ev.GetScope())
		}
		peak = max(peak, len(open))
	}
	if peak > tm.MaxParallel() {
		fault("%d members worked at the same time, the most is %d: %v", peak, tm.MaxParallel(), r.events)
	}
	most := cmp.Or(int(tm.Config().Limits.GetMaxDelegations()), 10)
	if begun > most {
		fault("%d delegations, the most is %d", begun, most)
	}
	return faults
}
