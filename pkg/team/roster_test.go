package team_test

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// passes gives its only member what it is given.
type passes struct{ team.Base }

func (passes) Next(s *team.State) (team.Decision, error) {
	if s.Last != nil {
		return team.Decision{Reply: s.Last.Message}, nil
	}
	return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "member"}}}, nil
}

// changing is a registry whose agents and health change.
type changing struct {
	agents map[string]agent.Agent
	health *teamv1.Health
}

func (c *changing) Agent(id string) (agent.Agent, error) {
	if a, ok := c.agents[id]; ok {
		return a, nil
	}
	return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", id)
}

func (c *changing) Health(string) *teamv1.Health { return c.health }

// nested makes a team "top" of a team "low" of an agent.
func (c *changing) nested(t *testing.T) *team.Team {
	t.Helper()
	build := func(id, member string) *team.Team {
		tm, err := team.New(team.Config{ID: id, Scheduler: passes{}, Members: []team.Member{{ID: "member", Agent: member}}, Registry: c})
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	c.agents["low"] = build("low", "leaf")
	return build("top", "low")
}

func leafWith(id string) *agent.Func {
	return &agent.Func{ID: "leaf", Skills: []*teamv1.Skill{{Id: id}}}
}

// rosterOf returns what a run of the team puts on record of the members.
func rosterOf(t *testing.T, tm *team.Team) *teamv1.Observed {
	t.Helper()
	req := &teamv1.ProcessRequest{AgentId: "top", Message: agent.UserMessage("m", "x")}
	for ev, err := range tm.Process(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if o := ev.GetObserved(); o != nil && ev.GetScope() == "" {
			return o
		}
	}
	t.Fatal("nothing was observed")
	return nil
}

func TestTeam_MembersAreAskedAgainWhenSomethingHasChanged(t *testing.T) {
	c := &changing{agents: map[string]agent.Agent{"leaf": leafWith("one")}, health: agent.Healthy()}
	top := c.nested(t)
	if top.KnownInfo() != nil {
		t.Error("known before anybody was asked")
	}
	first := rosterOf(t, top)
	if again := rosterOf(t, top); again != first {
		t.Error("another roster, though nothing has changed")
	}
	if info, err := top.Info(t.Context()); err != nil || info != top.KnownInfo() || info.GetCapabilities()[0] != "one" {
		t.Errorf("info %v, %v", info, err)
	}

	c.agents["leaf"] = leafWith("two") // two levels below
	if top.KnownInfo() != nil {
		t.Error("known, though an agent was replaced")
	}
	second := rosterOf(t, top)
	if got := second.GetMembers()[0].GetInfo().GetCapabilities(); len(got) != 1 || got[0] != "two" {
		t.Errorf("the roster has the old agent: %v", got)
	}
	if got := first.GetMembers()[0].GetInfo().GetCapabilities(); got[0] != "one" {
		t.Errorf("the roster on record has changed: %v", got)
	}

	c.health = agent.Unhealthy("no disk")
	if got := rosterOf(t, top).GetMembers()[0].GetHealth(); got.GetHealthy() || got.GetDetail() != "no disk" {
		t.Errorf("health %v", got)
	}

	delete(c.agents, "low")
	if got := rosterOf(t, top).GetMembers()[0].GetInfo(); got != nil {
		t.Errorf("info of an agent that is gone: %v", got)
	}
}

// TestTeam_KnownMembersDoNotHideACircle: what a team knows of members does not keep a
// circle from being found.
func TestTeam_KnownMembersDoNotHideACircle(t *testing.T) {
	c := &changing{agents: map[string]agent.Agent{"leaf": leafWith("one")}, health: agent.Healthy()}
	top := c.nested(t)
	rosterOf(t, top)
	c.agents["leaf"] = top
	if _, err := top.Info(t.Context()); agent.AsError(err) == nil || agent.AsError(err).Reason != agent.ReasonMaxDepth {
		t.Errorf("error %v, want %s", err, agent.ReasonMaxDepth)
	}
}

// TestTeam_KnownMembersDoNotHideDepth: a team that is asked too deep is told so, also
// where it knows its members.
func TestTeam_KnownMembersDoNotHideDepth(t *testing.T) {
	c := &changing{agents: map[string]agent.Agent{"leaf": leafWith("one")}, health: agent.Healthy()}
	top := c.nested(t)
	rosterOf(t, top)
	for depth, deep := range map[int]bool{agent.MaxDepth - 2: false, agent.MaxDepth - 1: true} {
		_, err := top.Info(agent.WithDepth(t.Context(), depth))
		if got := err != nil && agent.AsError(err).Reason == agent.ReasonMaxDepth; got != deep {
			t.Errorf("at depth %d: %v", depth, err)
		}
	}
}
