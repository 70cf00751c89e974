package journaltest

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/supervisor"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// flows are runs in which results stand side by side, work is dropped, or only
// part of it succeeds.
func flows() []scenario {
	echo := func(c *cast, ids ...string) {
		for _, id := range ids {
			c.add(leaves["echo"](c, id))
		}
	}
	return []scenario{
		{name: "joined_wave", anywhere: true, agents: func(c *cast) {
			echo(c, "a", "b")
			c.workflow("root", workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "b", After: []string{"1"}}, workflow.Step{ID: "3", Member: "a", After: []string{"1"}})
		}},
		{name: "joined_recipients", anywhere: true, agents: func(c *cast) {
			echo(c, "a", "b")
			c.supervisor("root", []string{"a", "b"}, supervisor.Rule{When: "turn == 1", Next: []string{"b", "a"}}, supervisor.Rule{Finish: supervisor.FinishLast})
		}},
		{name: "losers", anywhere: true, agents: func(c *cast) {
			echo(c, "a", "b")
			c.add(blocks("never"), leaves["ask"](c, "asks"), slow("slow", 30*time.Second)) // by then the others have begun
			c.workflow("inner", workflow.Step{ID: "1", Member: "a"}, workflow.Step{ID: "2", Member: "never", After: []string{"1"}})
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
				{ID: "1", Member: "never"}, {ID: "2", Member: "inner"}, {ID: "3", Member: "asks"}, {ID: "4", Member: "b", After: []string{"2"}},
				{ID: "5", Member: "slow"}, {ID: "6", Member: "b", After: []string{"1", "3", "4", "5"}, Join: workflow.JoinAny},
			}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, Limits: &teamv1.Limits{MaxParallel: new(int32(9))}}, err, "never", "inner", "asks", "slow", "b")
		}},
		{name: "partial_workflow", agents: func(c *cast) {
			echo(c, "a", "b")
			c.add(leaves["fail"](c, "bad"))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
				{ID: "1", Member: "a"}, {ID: "2", Member: "bad", After: []string{"1"}, Retry: &teamv1.Retry{Attempts: new(int32(1))}},
				{ID: "3", Member: "b", After: []string{"2"}}, {ID: "4", Member: "b", After: []string{"1"}},
			}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, ReportErrors: true}, err, "a", "b", "bad")
		}},
		{name: "results_of_a_timeout", agents: func(c *cast) {
			echo(c, "a")
			c.add(slow("slow", time.Hour))
			w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "a"}, {ID: "2", Member: "slow", After: []string{"1"}, Timeout: 2 * time.Hour}}})
			c.teamOf(team.Config{ID: "root", Scheduler: w, Limits: &teamv1.Limits{Timeout: durationpb.New(time.Minute)}}, err, "a", "slow")
		}},
		{name: "streamed_inner", agents: func(c *cast) { c.streaming("root", false) }},
		{name: "streamed_inner_without_text", agents: func(c *cast) { c.streaming("root", true) }},
		{name: "broadcast", anywhere: true, agents: func(c *cast) { c.broadcast("a", "b") }},
		{name: "broadcast_partial", agents: func(c *cast) { c.broadcast("a", "bad") }},
	}
}

// streaming registers a team that shows what a streaming member and one with
// artifacts put out.
func (c *cast) streaming(id string, hidden bool) {
	c.add(leaves["stream"](c, "a"), leaves["artifact"](c, "b"))
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{{ID: "1", Member: "a"}, {ID: "2", Member: "b", After: []string{"1"}}}})
	c.teamOf(team.Config{ID: id, Scheduler: w, Members: []team.Member{
		{Agent: "a", StreamInner: true, HideText: hidden}, {Agent: "b", StreamInner: true, HideText: hidden},
	}}, err)
}

// broadcast registers a team that asks all and has a model answer.
func (c *cast) broadcast(members ...string) {
	for _, id := range members {
		kind := "echo"
		if id == "bad" {
			kind = "fail"
		}
		c.add(leaves[kind](c, id))
	}
	m := model{c, func(req *agent.ModelRequest) (*teamv1.Turn, error) {
		return &teamv1.Turn{Text: "In sum: " + req.Messages[len(req.Messages)-1].Text, FinishReason: "stop", Model: "golden-1"}, nil
	}}
	c.teamOf(team.Config{ID: "root", Scheduler: broadcast.New(broadcast.Config{}), Model: m, ReportErrors: true}, nil, members...)
}
