package tests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/tests/rig"
)

// carded serves a team of three members and returns its card.
func carded(t *testing.T, m *manager.Manager, log *zap.Logger) (skills []string, params map[string]any) {
	t.Helper()
	list := []team.Member{{Agent: "one"}, {Agent: "two"}, {Agent: "three"}}
	s, err := leader.NewCoordinator(leader.CoordinatorConfig{Members: list})
	if err != nil {
		t.Fatal(err)
	}
	tm, err := team.New(team.Config{ID: "desk", Mode: "coordinator", Scheduler: s, Members: list, Registry: m, Model: leading{}, ReportErrors: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register("desk", tm); err != nil {
		t.Fatal(err)
	}
	card, _, err := rig.PublicCard(t.Context(), rig.Serve(t, server.Config{Agents: m}), "desk")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range card.GetSkills() {
		skills = append(skills, s.GetId())
	}
	return skills, paramsOf(card)
}

func paramsOf(card *a2av1.AgentCard) map[string]any {
	for _, e := range card.GetCapabilities().GetExtensions() {
		if e.GetUri() == a2a.TeamRunURI {
			return e.GetParams().AsMap()
		}
	}
	return nil
}

func TestS_01_CardOfATeam(t *testing.T) {
	t.Parallel()
	skills, params := carded(t, rig.Manager(t, says("one", "a", "b"), says("two", "b", "c"), says("three")), nil)
	if diff := cmp.Diff([]string{"a", "b", "c"}, skills); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"type": "team", "mode": "coordinator", "member_count": "3"}, params); diff != "" {
		t.Error(diff)
	}
}

// The second member is on a server that is gone: the others' skills are there.
func TestS_02_CardWithAMemberThatIsGone(t *testing.T) {
	t.Parallel()
	far, stop := rig.Start(t, server.Config{Agents: rig.Manager(t, says("two", "b", "c"))})
	two := overService(t, "two", far, "two")
	stop()
	m := rig.Manager(t, says("one", "a", "b"), says("three"))
	if err := m.Register("two", two); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	skills, params := carded(t, m, rig.Logger(t, core))
	if n := logs.FilterMessage("member unavailable").FilterField(zap.String("member", "two")).Len(); n != 1 || logs.Len() != 1 {
		t.Errorf("R-000-11 the log says %v, want one warning", logs.All())
	}
	if diff := cmp.Diff([]string{"a", "b"}, skills); diff != "" {
		t.Error(diff)
	}
	if params["member_count"] != "3" {
		t.Error(params)
	}
}
