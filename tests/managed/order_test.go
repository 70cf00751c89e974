package managed

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// stepsOf is which step of a team follows which.
func stepsOf(team *teamv1.Team) string {
	var all []string
	for _, s := range team.GetSteps() {
		all = append(all, strings.TrimRight(s.GetId()+"<"+strings.Join(s.GetAfter(), ","), "<"))
	}
	return strings.Join(all, " ")
}

// TestC_02_RecordsOfThePreviousVersion: a team that was stored when a step without after began
// with the run keeps that meaning, says so when it is read, and loses it only by somebody's word.
func TestC_02_RecordsOfThePreviousVersion(t *testing.T) {
	old, err := os.ReadFile("../../internal/config/testdata/order/stored.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := strings.ReplaceAll(base, "writer", "author") // the document brings a writer
	const was, listed = "draft approve publish<draft,approve", "draft approve<draft publish<draft,approve"
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		if !at.Durable {
			t.Skip("it keeps no records")
		}
		s, done := at.Open(t)
		put := catalog.Entry{ID: "release", Data: old, Created: time.UnixMilli(1), Changed: time.UnixMilli(1), ChangedBy: "acme/ann"}
		if _, err := s.ChangeCatalog(t.Context(), 0, catalog.Change{Put: []catalog.Entry{put}}); err != nil {
			t.Fatal(err)
		}
		done()
		h := open(t, at, file, fakellm.New(t))
		for i := range apis(t, h.Target) {
			a := apis(t, h.Target)[i]
			now := a.get(t, "release")
			if stepsOf(now) != was || !strings.Contains(now.GetYaml(), "parallel:") {
				t.Fatalf("%s: it runs %s\n%s", a.binding, stepsOf(now), now.GetYaml())
			}
			list, err := a.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{})
			if i := slices.IndexFunc(list.GetTeams(), func(x *teamv1.Team) bool { return x.GetId() == "release" }); err != nil || i < 0 || stepsOf(list.GetTeams()[i]) != was {
				t.Errorf("%s: listed as %v: %v", a.binding, list, err)
			}
			_, err = a.teams.UpdateTeam(t.Context(), update("release", "", string(old)))
			if f := fault(t, err, "InvalidArgument", "INVALID_TEAM_CONFIG", "yaml:10:11"); !strings.Contains(f.Message, `step "approve" starts with the run in the stored team, but would start after draft here`) {
				t.Errorf("%s: %s", a.binding, f.Message)
			}
			// What was read is written back with a change in another place.
			edited := strings.Replace(now.GetYaml(), "Writes, asks, prints.", "Writes and prints, "+a.binding+".", 1)
			if _, err := a.teams.UpdateTeam(t.Context(), update("release", now.GetEtag(), edited)); err != nil {
				t.Fatal(err)
			}
			if now := a.get(t, "release"); stepsOf(now) != was || now.GetYaml() != edited {
				t.Errorf("%s: after an edit it runs %s\n%s", a.binding, stepsOf(now), now.GetYaml())
			}
			h.stop()
			s, done := at.Open(t)
			snap, err := s.Catalog(t.Context())
			if err == nil {
				_, err = s.ChangeCatalog(t.Context(), snap.Version, catalog.Change{Put: []catalog.Entry{put}})
			}
			if err != nil {
				t.Fatal(err)
			}
			done()
			h = open(t, at, file, fakellm.New(t))
		}
		a := apis(t, h.Target)[0]
		meant := "version: v2\n" + string(old)
		if _, err := a.teams.UpdateTeam(t.Context(), update("release", "", meant)); err != nil {
			t.Fatal(err)
		}
		h.stop()
		s, done = at.Open(t)
		snap, err := s.Catalog(t.Context())
		if err != nil || len(snap.Entries) != 1 || !bytes.HasPrefix(snap.Entries[0].Data, []byte("format: 2\n---\n")) {
			t.Errorf("the record is %v: %v", snap.Entries, err)
		}
		done()
		h = open(t, at, file, fakellm.New(t))
		if now := apis(t, h.Target)[0].get(t, "release"); stepsOf(now) != listed || now.GetYaml() != meant {
			t.Errorf("after a restart it runs %s\n%s", stepsOf(now), now.GetYaml())
		}
		asked, err := h.send(t, rig.Text("release", uuid.NewString(), "tides"))
		if err != nil || asked.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
			t.Fatalf("%v, %v", asked, err)
		}
	})
}

// TestC_02_RequestsRunInListedOrder: every form of a request means what a file means; a contract
// says itself how its roles work together (C-32).
func TestC_02_RequestsRunInListedOrder(t *testing.T) {
	each(t, func(t *testing.T, h *house, a api) {
		steps := []*teamv1.WorkflowStep{{Id: "one", Agent: "parrot"}, {Id: "two", Agent: "parrot"}}
		resp, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{TeamId: "sent", Form: &teamv1.CreateTeamRequest_Config{
			Config: &teamv1.TeamConfig{Workflow: &teamv1.WorkflowConfig{Steps: steps}},
		}})
		if err != nil || stepsOf(resp.GetTeam()) != "one two<one" {
			t.Errorf("a message runs %s: %v", stepsOf(resp.GetTeam()), err)
		}
		text := a.create(t, "teams: {text: {workflow: {steps: [{id: one, agent: parrot}, {id: two, agent: parrot, task: \"again: {{steps.one.text}}\"}]}}}")
		if stepsOf(text) != "one two<one" {
			t.Errorf("a text runs %s", stepsOf(text))
		}
		h.says(t, "text", "x", "parrot: again: parrot: x")
		for kind, want := range map[string]string{"sequential": "a b<a c<b", "parallel": "a b c", "hybrid": "a b<a c<b"} {
			role := func(name string) *teamv1.ContractRole {
				return &teamv1.ContractRole{RoleName: name, AgentConfig: &teamv1.ContractAgent{Model: "m", Instructions: "Work."}}
			}
			resp, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{TeamId: kind, Form: &teamv1.CreateTeamRequest_Contract{Contract: &teamv1.ContractTeam{
				TeamName: kind, TeamType: "research", WorkflowConfig: &teamv1.ContractWorkflow{Type: kind}, AgentRoles: []*teamv1.ContractRole{role("a"), role("b"), role("c")},
			}}})
			if err != nil || stepsOf(resp.GetTeam()) != want {
				t.Errorf("C-32 %s runs %s, want %s: %v", kind, stepsOf(resp.GetTeam()), want, err)
			}
		}
	})
}
