package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// ann may manage teams.
func ann(t *testing.T) context.Context {
	t.Helper()
	return a2a.WithCaller(t.Context(), a2a.Caller{Account: "acme", Principal: "ann", Permissions: a2a.EveryPermission})
}

func yaml(text string) *teamv1.CreateTeamRequest {
	return &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: text}}
}

// TestR_003_17_BuildsWhatChanges: a change rebuilds only what it affects. Previous agents are
// closed once no run uses them.
func TestR_003_17_BuildsWhatChanges(t *testing.T) {
	r := serveLocal(t, file(t))
	ctx := ann(t)
	create := func(id, member string) {
		t.Helper()
		rules := "supervisor: {rules: [{id: one, when: \"turn == 1\", next: [" + member + "]}, {id: end, when: \"true\", finish: last}]}"
		if _, err := r.Teams.CreateTeam(ctx, yaml("teams: {"+id+": {members: [{agent: "+member+"}], "+rules+"}}")); err != nil {
			t.Fatal(err)
		}
	}
	servedSet := func() *servedSet { return r.Live.current.Load() }
	create("inner", "desk") // of the file, and it asks
	create("outer", "inner")
	create("aside", "echo")
	before := servedSet()
	if _, err := r.Teams.UpdateTeam(ctx, &teamv1.UpdateTeamRequest{TeamId: "inner", Form: &teamv1.UpdateTeamRequest_Yaml{
		Yaml: "teams: {inner: {name: New, workflow: {steps: [{id: a, agent: desk}]}}}",
	}}); err != nil {
		t.Fatal(err)
	}
	after := servedSet()
	for name, kept := range map[string]bool{"inner": false, "outer": false, "aside": true} {
		if (before.additions[name] == after.additions[name]) != kept {
			t.Errorf("%s is kept: %t", name, !kept)
		}
	}
	if before.file != after.file {
		t.Error("the file is built again")
	}
	if n := len(r.Live.others); n > 0 {
		t.Errorf("%d revisions are open that nobody uses", n)
	}

	run, talk, err := process(t.Context(), t, r, "outer", "x")
	if err != nil || !run.Waiting {
		t.Fatalf("the run does not wait: %v\n%s", err, talk)
	}
	old, release, err := r.Live.Pinned(t.Context(), "outer", &teamv1.Pins{Revisions: map[string]string{"outer": r.Live.Revision("outer")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Teams.Refresh(t.Context(), file(t, renewed...)); err != nil { // everything is new
		t.Fatal(err)
	}
	if n := len(r.Live.others); n != 3 { // outer, inner that it has, and the file below
		t.Errorf("%d revisions are open, want the 3 that are used", n)
	}
	if h, err := old.HealthCheck(t.Context()); err != nil || strings.Contains(h.GetDetail(), "closed") {
		t.Errorf("%v, %v", h, err)
	}
	release()
	if n := len(r.Live.others); n > 0 {
		t.Errorf("%d revisions are open that nobody uses", n)
	}
	for _, id := range []string{"outer", "inner", "aside"} {
		if _, err := r.Teams.DeleteTeam(ctx, &teamv1.DeleteTeamRequest{TeamId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(r.Live.Teams(), len(r.Live.others), len(servedSet().additions)); got != "[company desk] 0 0" {
		t.Error(got)
	}
}

// TestR_003_17_DefaultStays: teams that are made do not change where calls without a
// tenant go.
func TestR_003_17_DefaultStays(t *testing.T) {
	r := serveLocal(t, define(t, strings.Replace(far, "{KIND}", "{scripted: {steps: [{echo: true}]}}", 1), nil))
	if _, err := r.Teams.CreateTeam(ann(t), yaml("teams: {other: {workflow: {steps: [{id: a, agent: member}]}}}")); err != nil {
		t.Fatal(err)
	}
	if got := r.Live.Default(); got != "desk" {
		t.Errorf("the default is %q", got)
	}
}
