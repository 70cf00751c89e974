package serve

import (
	"context"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
)

// ann may manage teams.
func ann(t *testing.T) context.Context {
	t.Helper()
	return identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann", Permissions: identity.EveryPermission})
}

func yaml(text string) *teamv1.CreateTeamRequest {
	return &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: text}}
}

// TestR_003_17_DefaultStays: teams that are made do not change where calls without a
// tenant go.
func TestR_003_17_DefaultStays(t *testing.T) {
	r := serveLocal(t, define(t, strings.Replace(far, "{KIND}", "{scripted: {steps: [{echo: true}]}}", 1), nil))
	if _, err := r.Teams.CreateTeam(ann(t), yaml("teams: {other: {workflow: {steps: [{id: a, agent: member}]}}}")); err != nil {
		t.Fatal(err)
	}
	if got := r.Agents.Served().DefaultAgent(); got != "desk" {
		t.Errorf("the default is %q", got)
	}
}
