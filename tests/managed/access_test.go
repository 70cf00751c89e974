package managed

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// guardedFile has agents with each kind of access, and callers of two accounts who all manage teams.
const guardedFile = `version: v1
models:
  m: {provider: openai, name: m, base_url: "${LLM}", api_key: k}
  open: {api: true, provider: openai, name: m, base_url: "${LLM}", api_key: k}
agents:
  worker: {scripted: {steps: [{text: "worker: {{input}}"}]}}
  parrot: {api: true, scripted: {steps: [{text: "parrot: {{input}}"}]}}
  spare: {api: true, scripted: {steps: [{text: "spare: {{input}}"}]}}
  secret: {api: true, access: {accounts: [other]}, scripted: {steps: [{text: "secret: {{input}}"}]}}
teams:
  desk: {members: [{agent: worker}], workflow: {steps: [{id: say, agent: worker}]}}
  annes: {access: {principals: [acme/ann]}, members: [{agent: parrot}], workflow: {steps: [{id: say, agent: parrot}]}}
  foreign: {access: {accounts: [other]}, members: [{agent: secret}], workflow: {steps: [{id: say, agent: secret}]}}
  chiefs: {access: {accounts: [acme], roles: [chief]}, card: PRIVATE, members: [{agent: parrot}], workflow: {steps: [{id: say, agent: parrot}]}}
server:
  default_agent: desk
  auth:
    api_keys:
      - {name: ann, account: acme, sha256: "${ANN}", manage: true}
      - {name: bob, account: acme, sha256: "${BOB}", manage: true, roles: [chief]}
      - {name: eve, account: other, sha256: "${EVE}", manage: true}
`

// sameAsUnknown checks that a call says of an id what it says of an id that does not exist.
func sameAsUnknown(t *testing.T, what, id string, call func(id string) error) {
	t.Helper()
	const random = "no-such-thing"
	got, want := rig.Fault(call(id)), rig.Fault(call(random))
	if got == nil || want == nil {
		t.Errorf("%s of %q: %v; of an unknown id: %v", what, id, got, want)
		return
	}
	plain := func(e *rig.Error, id string) string {
		return e.Code + e.Reason + strings.ReplaceAll(e.Message, id, "ID") + strings.Join(e.Fields, " ")
	}
	if plain(got, id) != plain(want, random) {
		t.Errorf("%s of %q: %s; of an unknown id: %s", what, id, got.Message, want.Message)
	}
}

// keyless is a target without a key.
func keyless(t rig.Target) rig.Target { return rig.Target{GRPC: t.GRPC, HTTP: t.HTTP} }

// get returns the error of a GET request.
func get(t *testing.T, target rig.Target, path string) error {
	t.Helper()
	resp, err := target.Do(t.Context(), http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	return resp.Read(&a2av1.ListTasksResponse{})
}

// calls are those that name an agent or team.
func (a api) calls(t *testing.T, target rig.Target) map[string]func(id string) error {
	ctx, sender := t.Context(), rig.NewREST(target)
	halts := teamv1.NewHaltServiceClient(rig.Services(t, target)[0])
	boards := teamv1.NewBoardServiceClient(rig.Services(t, target)[0])
	agents := teamv1.NewAgentServiceClient(rig.Services(t, target)[0])
	collab := teamv1.NewCollaborationServiceClient(rig.Services(t, target)[0])
	return map[string]func(id string) error{
		"GetTeam": func(id string) error { _, err := a.teams.GetTeam(ctx, &teamv1.GetTeamRequest{TeamId: id}); return err },
		"GetTeamStatus": func(id string) error {
			_, err := a.teams.GetTeamStatus(ctx, &teamv1.GetTeamStatusRequest{TeamId: id})
			return err
		},
		"UpdateTeam": func(id string) error { _, err := a.teams.UpdateTeam(ctx, update(id, "", team(id, "mine"))); return err },
		"DeleteTeam": func(id string) error {
			_, err := a.teams.DeleteTeam(ctx, &teamv1.DeleteTeamRequest{TeamId: id, Force: true})
			return err
		},
		"GetAgent": func(id string) error {
			_, err := a.agents.GetAgent(ctx, &teamv1.GetAgentRequest{AgentId: id})
			return err
		},
		"UpdateAgent": func(id string) error {
			_, err := a.agents.UpdateAgent(ctx, &teamv1.UpdateAgentRequest{AgentId: id, Config: &teamv1.AgentConfig{Model: "open"}})
			return err
		},
		"UnregisterAgent": func(id string) error {
			_, err := a.agents.UnregisterAgent(ctx, &teamv1.UnregisterAgentRequest{AgentId: id})
			return err
		},
		"SendMessage": func(id string) error { _, err := sender.Send(ctx, rig.Text(id, "m-"+id, "hello")); return err },
		"ListTasks":   func(id string) error { return get(t, target, "/"+id+"/tasks") },
		"Card": func(id string) error {
			_, _, err := rig.PublicCard(ctx, target, id)
			return err
		},
		"Halt": func(id string) error {
			_, err := halts.Halt(ctx, &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: id, Reason: "x"})
			return err
		},
		"ListWorkItems": func(id string) error {
			_, err := boards.ListWorkItems(ctx, &teamv1.ListWorkItemsRequest{TeamId: id})
			return err
		},
		"Info": func(id string) error { _, err := agents.Info(ctx, &teamv1.InfoRequest{AgentId: id}); return err },
		"HealthCheck": func(id string) error {
			_, err := agents.HealthCheck(ctx, &teamv1.HealthCheckRequest{AgentId: id})
			return err
		},
		"Process": func(id string) error {
			_, err := agents.Process(ctx, &teamv1.ProcessRequest{AgentId: id, Message: rig.Text(id, "p", "hello").GetMessage()})
			return err
		},
		"StreamingMessage": func(id string) error {
			_, err := rig.Collect(rig.NewJSONRPC(target).Stream(ctx, rig.Text(id, "st-"+id, "hello")))
			return err
		},
		"GetExtendedAgentCard": func(id string) error { return get(t, target, "/"+id+"/extendedAgentCard") },
		"WatchTeam":            func(id string) error { return get(t, target, "/team/v1/monitor/teams/"+id+":watch") },
		"StartCollaboration": func(id string) error {
			_, err := collab.StartCollaboration(ctx, &teamv1.StartCollaborationRequest{TeamId: id, TaskDescription: "Write about the tides.", ExpectedOutput: "A sentence."})
			return err
		},
	}
}

// TestT_13_TeamsOfAnAccount: what an account makes by the API does not exist for others.
func TestT_13_TeamsOfAnAccount(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := open(t, at, guardedFile, fakellm.New(t))
		eve := h.As("other", "eve")
		for i, ann := range apis(t, h.Target) {
			id := "crew" + ann.binding
			ann.create(t, team(id, "crew"))
			foreign := apis(t, eve)[i]
			for what, call := range foreign.calls(t, eve) {
				sameAsUnknown(t, ann.binding+" "+what, id, call)
				sameAsUnknown(t, ann.binding+" "+what+" of its agent", id+"_one", call)
			}
			sameAsUnknown(t, "the card without a key", id, func(id string) error {
				_, _, err := rig.PublicCard(t.Context(), keyless(h.Target), id)
				return err
			})
			listed, err := foreign.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{})
			if err != nil || slices.ContainsFunc(listed.GetTeams(), func(t *teamv1.Team) bool { return t.GetId() == id }) {
				t.Errorf("%s: the list of another account has it: %v, %v", ann.binding, listed, err)
			}
			if agents, err := foreign.agents.ListAgents(t.Context(), &teamv1.ListAgentsRequest{}); err != nil || strings.Contains(agents.String(), id) {
				t.Errorf("%s: the agents of another account have it: %v, %v", ann.binding, agents, err)
			}
			if got, err := rig.NewREST(h.As("acme", "bob")).Send(t.Context(), rig.Text(id, "bob-"+id, "hello")); err != nil {
				t.Errorf("%s: a caller of the account: %v, %v", ann.binding, got, err)
			}
			if got := ann.get(t, id); got.GetChangedBy() != "acme/ann" {
				t.Errorf("%s: it was changed by %s", ann.binding, got.GetChangedBy())
			}
		}
	})
}

// TestT_25_WhatTeamsMayUse: teams that are made by the API use only what the file marks for them.
func TestT_25_WhatTeamsMayUse(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), guardedFile, fakellm.New(t))
	for _, ann := range apis(t, h.Target) {
		for name, doc := range map[string]string{
			`agent "worker" may not be used by teams and agents that are made by the API`: "teams:\n  x: {members: [{agent: worker}], " + rules("worker") + "}\n",
			`model "m" may not be used by teams and agents that are made by the API`:      "agents:\n  y: {model: m, instructions: x}\nteams:\n  x: {members: [{agent: y}], " + rules("y") + "}\n",
			`team "desk" may not be used by teams and agents that are made by the API`:    "teams:\n  x: {members: [{agent: desk}], " + rules("desk") + "}\n",
			`team "x" has member "secret", which is not defined`:                          "teams:\n  x: {members: [{agent: secret}], " + rules("secret") + "}\n",
			`"api" is only allowed in the server's configuration file`:                    "agents:\n  y: {api: true, model: open}\nteams:\n  x: {members: [{agent: y}], " + rules("y") + "}\n",
		} {
			_, err := ann.teams.CreateTeam(t.Context(), yamlOf(doc))
			if f := rig.Fault(err); f == nil || f.Reason != "INVALID_TEAM_CONFIG" || !strings.Contains(f.Message, name) {
				t.Errorf("%s: %v, want %s", ann.binding, f, name)
			}
		}
	}
	a := apis(t, h.Target)[0]
	a.create(t, "teams:\n  x: {members: [{agent: spare}], "+rules("spare")+"}\n")
	if _, err := rig.NewREST(h.Target).Send(t.Context(), rig.Text("x", "m1", "hello")); err != nil {
		t.Error(err)
	}
	for _, target := range []rig.Target{h.Target, h.As("other", "eve")} {
		sameAsUnknown(t, "an agent that the file does not serve", "spare", func(id string) error {
			_, err := rig.NewREST(target).Send(t.Context(), rig.Text(id, "s-"+id, "hello"))
			return err
		})
	}
}

// TestAccess_File: access in the file names accounts, principals and roles, and card who may read the
// card without a key.
func TestAccess_File(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), guardedFile, fakellm.New(t))
	ann, bob, eve := h.Target, h.As("acme", "bob"), h.As("other", "eve")
	for id, allowed := range map[string]map[string]bool{
		"desk": {"ann": true, "bob": true, "eve": true}, "annes": {"ann": true}, "foreign": {"eve": true}, "chiefs": {"bob": true},
	} {
		for name, target := range map[string]rig.Target{"ann": ann, "bob": bob, "eve": eve} {
			if !allowed[name] {
				for i, a := range apis(t, target) {
					calls := a.calls(t, target)
					sameAsUnknown(t, name+" "+a.binding+" sends", id, calls["SendMessage"])
					sameAsUnknown(t, name+" "+a.binding+" reads", id, calls["GetTeam"])
					sameAsUnknown(t, name+" "+a.binding+" changes", id, calls["UpdateTeam"])
					if i == 0 {
						sameAsUnknown(t, name+" collaborates", id, calls["StartCollaboration"])
					}
				}
				continue
			}
			if _, err := rig.NewREST(target).Send(t.Context(), rig.Text(id, "m-"+name+id, "hello")); err != nil {
				t.Errorf("%s to %s: %v", name, id, err)
			}
		}
	}
	for id, public := range map[string]bool{"desk": true, "annes": false, "chiefs": false, "worker": false, "parrot": false} {
		_, resp, err := rig.PublicCard(t.Context(), keyless(h.Target), id)
		if public != (err == nil) {
			t.Errorf("the card of %s without a key: %v", id, err)
		}
		if public && !strings.Contains(resp.Header.Get("Cache-Control"), "public") {
			t.Errorf("the card of %s: %v", id, resp.Header)
		}
	}
	if _, answer, err := rig.PublicCard(t.Context(), bob, "chiefs"); err != nil || answer.Header.Get("Cache-Control") != "private, no-store" || answer.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a private card: %v, %v", answer, err)
	}
	_, err := rig.NewREST(eve).Send(t.Context(), rig.Text("des", "near", "hello"))
	if f := rig.Fault(err); f == nil || !strings.Contains(f.Message, `did you mean "desk"?`) {
		t.Errorf("a similar id: %v", f)
	}
	_, _, err = rig.PublicCard(t.Context(), keyless(h.Target), "des")
	if f := rig.Fault(err); f == nil || strings.Contains(f.Message, "desk") {
		t.Errorf("without a key: %v", f)
	}
}
