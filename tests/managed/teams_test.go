package managed

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/testing/protocmp"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_001_01_R_003_22_Teams: create, get, list, update, delete, and what callers see of it.
func TestR_001_01_R_003_22_Teams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		made := a.create(t, team("pair", "one {{input}}"))
		if made.GetOrigin() != teamv1.Origin_ORIGIN_API || made.GetEtag() == "" || made.GetRevision() == "" || made.GetState() != teamv1.TeamState_TEAM_STATE_READY ||
			made.GetChangedBy() != "acme/ann" || made.GetMode() != "supervisor" || made.GetYaml() != team("pair", "one {{input}}") || made.GetCreated() == nil {
			t.Errorf("made %v", made)
		}
		h.says(t, "pair", "x", "one x")
		if diff := cmp.Diff(made, a.get(t, "pair"), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		if card, _, err := rig.PublicCard(t.Context(), h.Target, "pair"); err != nil || card.GetName() != "pair" {
			t.Errorf("card %v, %v", card, err)
		}
		changed, err := a.teams.UpdateTeam(t.Context(), update("pair", made.GetEtag(), team("pair", "two {{input}}")))
		if err != nil {
			t.Fatal(err)
		}
		now := changed.GetTeam()
		if now.GetEtag() == made.GetEtag() || now.GetRevision() == made.GetRevision() || !now.GetCreated().AsTime().Equal(made.GetCreated().AsTime()) {
			t.Errorf("changed %v", now)
		}
		h.says(t, "pair", "x", "two x")
		h.says(t, "desk", "x", "parrot: x")
		a.create(t, team("other", "three"))
		var ids []string
		for token := ""; ; {
			page, err := a.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{PageSize: 2, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range page.GetTeams() {
				ids = append(ids, one.GetId()+" "+one.GetOrigin().String())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if want := []string{"desk ORIGIN_FILE", "other ORIGIN_API", "pair ORIGIN_API"}; !slices.Equal(ids, want) {
			t.Errorf("listed %v", ids)
		}
		status, err := a.teams.GetTeamStatus(t.Context(), &teamv1.GetTeamStatusRequest{TeamId: "pair"})
		if err != nil || status.GetState() != teamv1.TeamState_TEAM_STATE_READY || len(status.GetMembers()) != 1 || status.GetMembers()[0].GetAgentId() != "pair_one" || !status.GetMembers()[0].GetHealth().GetHealthy() {
			t.Errorf("status %v, %v", status, err)
		}
		a.create(t, "teams: {flow: {workflow: {steps: [{id: one, agent: parrot}]}}}")
		led := a.create(t, "teams: {led: {members: [{agent: parrot, id: bird, enabled: false}, {agent: writer}], coordinator: {leader: {model: m, instructions: Lead.}}}}")
		var roles []string
		for _, id := range []string{"flow", led.GetId()} {
			status, err := a.teams.GetTeamStatus(t.Context(), &teamv1.GetTeamStatusRequest{TeamId: id})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range status.GetMembers() {
				roles = append(roles, fmt.Sprint(one.GetId(), " ", one.GetAgentId(), " ", one.GetRole(), " ", one.GetHealth().GetHealthy(), one.GetHealth().GetDisabled()))
			}
		}
		if want := []string{"parrot parrot ROLE_MEMBER true false", "led  ROLE_LEAD true false", "bird parrot ROLE_MEMBER false true", "writer writer ROLE_MEMBER true false"}; !slices.Equal(roles, want) {
			t.Errorf("members %q", roles)
		}
		if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "pair", Etag: now.GetEtag()}); err != nil {
			t.Fatal(err)
		}
		_, err = a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: "pair"})
		fault(t, err, "NotFound", "TEAM_NOT_FOUND")
		_, err = h.send(t, rig.Text("pair", "gone", "x"))
		fault(t, err, "NotFound", "AGENT_NOT_FOUND")
	})
}

// TestR_002_01_Config: a team as a message; without an id it is given one.
func TestR_002_01_Config(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		c := &teamv1.TeamConfig{Name: "Echo", Members: []*teamv1.MemberConfig{{Agent: "parrot"}}, Supervisor: &teamv1.SupervisorConfig{
			Rules: []*teamv1.RuleConfig{{Id: "one", When: "turn == 1", Next: []string{"parrot"}}, {Id: "end", When: "true", Finish: "last"}},
		}}
		for _, id := range []string{"echo", ""} {
			resp, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{TeamId: id, Form: &teamv1.CreateTeamRequest_Config{Config: c}})
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.GetTeam().GetId(); got == "" || id != "" && got != id {
				t.Errorf("id %q, want %q", got, id)
			}
			if !strings.Contains(resp.GetTeam().GetYaml(), "agent: parrot") {
				t.Errorf("yaml %s", resp.GetTeam().GetYaml())
			}
			h.says(t, resp.GetTeam().GetId(), "x", "parrot: x")
		}
		c.Members = append(c.Members, &teamv1.MemberConfig{Agent: "parot"})
		_, err := a.teams.UpdateTeam(t.Context(), &teamv1.UpdateTeamRequest{TeamId: "echo", Form: &teamv1.UpdateTeamRequest_Config{Config: c}})
		fault(t, err, "InvalidArgument", "INVALID_TEAM_CONFIG", "config.members[1].agent")
		c.Members[1] = &teamv1.MemberConfig{Agent: "writer", HistoryScope: 99}
		_, err = a.teams.UpdateTeam(t.Context(), &teamv1.UpdateTeamRequest{TeamId: "echo", Form: &teamv1.UpdateTeamRequest_Config{Config: c}})
		if err == nil {
			t.Error("an unknown word is taken")
		}
	})
}

// TestR_003_17_Agents: agents are registered, listed by skill and kind, changed and
// unregistered.
func TestR_003_17_Agents(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		echo := func(text string) *teamv1.AgentConfig {
			return &teamv1.AgentConfig{
				Skills:   []*teamv1.Skill{{Id: "law", Name: "Law", Description: "Knows it."}},
				Scripted: &teamv1.ScriptedAgent{Steps: []*teamv1.ScriptedStep{{Do: &teamv1.ScriptedStep_Text{Text: text}}}},
			}
		}
		made, err := a.agents.RegisterAgent(t.Context(), &teamv1.RegisterAgentRequest{AgentId: "lawyer", Config: echo("law: {{input}}")})
		if err != nil {
			t.Fatal(err)
		}
		if one := made.GetAgent(); one.GetKind() != "scripted" || one.GetOrigin() != teamv1.Origin_ORIGIN_API || one.GetEtag() == "" || !one.GetHealth().GetHealthy() {
			t.Errorf("made %v", one)
		}
		h.says(t, "lawyer", "x", "law: x")
		a.create(t, "teams: {court: {members: [{agent: lawyer}], "+rules("lawyer")+"}}")
		h.says(t, "court", "x", "law: x")
		for _, c := range []struct{ skill, kind, want string }{{"law", "", "lawyer"}, {"", "model", "writer"}, {"", "team", "court desk"}, {"none", "", ""}} {
			list, err := a.agents.ListAgents(t.Context(), &teamv1.ListAgentsRequest{Skill: c.skill, Kind: c.kind})
			var ids []string
			for _, one := range list.GetAgents() {
				ids = append(ids, one.GetId())
			}
			if got := strings.Join(ids, " "); err != nil || c.skill == "" && got != c.want || c.skill != "" && !strings.Contains(" "+got+" ", " "+c.want+" ") {
				t.Errorf("of skill %q and kind %q: %s, %v", c.skill, c.kind, got, err)
			}
		}
		if _, err := a.agents.UpdateAgent(t.Context(), &teamv1.UpdateAgentRequest{AgentId: "lawyer", Etag: made.GetAgent().GetEtag(), Config: echo("new law: {{input}}")}); err != nil {
			t.Fatal(err)
		}
		h.says(t, "court", "x", "new law: x") // whoever works with it, works with the new one
		_, err = a.agents.UpdateAgent(t.Context(), &teamv1.UpdateAgentRequest{AgentId: "lawyer", Etag: made.GetAgent().GetEtag(), Config: echo("x")})
		fault(t, err, "Aborted", "VERSION_CONFLICT")
		_, err = a.agents.UnregisterAgent(t.Context(), &teamv1.UnregisterAgentRequest{AgentId: "lawyer"})
		if f := fault(t, err, "InvalidArgument", "INVALID_TEAM_CONFIG"); !strings.Contains(f.Message, `"court" depends on`) {
			t.Error(f.Message)
		}
		if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "court"}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.agents.UnregisterAgent(t.Context(), &teamv1.UnregisterAgentRequest{AgentId: "lawyer"}); err != nil {
			t.Fatal(err)
		}
		_, err = a.agents.GetAgent(t.Context(), &teamv1.GetAgentRequest{AgentId: "lawyer"})
		fault(t, err, "NotFound", "AGENT_NOT_FOUND")
	})
}

// TestS_40_Refused: what is refused names its place, and nothing is kept.
func TestS_40_Refused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		mine := a.create(t, team("mine", "x"))
		agents := func(id string, c *teamv1.AgentConfig) func() error {
			return func() error {
				_, err := a.agents.RegisterAgent(t.Context(), &teamv1.RegisterAgentRequest{AgentId: id, Config: c})
				return err
			}
		}
		create := func(yaml string) func() error {
			return func() error { _, err := a.teams.CreateTeam(t.Context(), yamlOf(yaml)); return err }
		}
		change := func(id, etag, yaml string) func() error {
			return func() error { _, err := a.teams.UpdateTeam(t.Context(), update(id, etag, yaml)); return err }
		}
		drop := func(id, etag string) func() error {
			return func() error {
				_, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: id, Etag: etag})
				return err
			}
		}
		flow := &teamv1.TeamConfig{Members: []*teamv1.MemberConfig{{Agent: "parrot"}}, Workflow: &teamv1.WorkflowConfig{Steps: []*teamv1.WorkflowStep{{Id: "one", Agent: "parrot"}}}}
		named := func(id string, c *teamv1.TeamConfig) func() error {
			return func() error {
				_, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{TeamId: id, Form: &teamv1.CreateTeamRequest_Config{Config: c}})
				return err
			}
		}
		const bad, config = "InvalidArgument", "INVALID_TEAM_CONFIG"
		for _, c := range []struct {
			name         string
			do           func() error
			code, reason string
			fields       []string
			says         string
		}{
			{"R-002-5.3 no members", create("teams:\n  t: {supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}"), bad, config, []string{"yaml:2:6"}, "1 to 64 members"},
			{"R-002-5.4 a member that is not there", create("teams:\n  t: {members: [{agent: nobody}], " + rules("nobody") + "}"), bad, config, []string{"yaml:2:25"}, "nobody"},
			{"R-001-07 an unknown model", create("agents:\n  w: {model: gpt, instructions: x}\nteams:\n  t: {members: [{agent: w}], " + rules("w") + "}"), bad, config, []string{"yaml:2:14"}, `uses model "gpt"`},
			{"R-001-08 an unknown tool", create("agents:\n  w: {model: m, instructions: x, tools: [saw]}\nteams:\n  t: {members: [{agent: w}], " + rules("w") + "}"), bad, config, []string{"yaml:2:42"}, "saw"},
			{"C-10 a zero", create("teams:\n  t:\n    members: [{agent: writer}]\n    coordinator: {leader: {model: m, instructions: x}}\n    limits: {max_delegations: 0}"), bad, config, []string{"yaml:5:31"}, "max_delegations"},
			{"C-10 a negative", create("teams:\n  t:\n    members: [{agent: writer}]\n    coordinator: {leader: {model: m, instructions: x}}\n    limits: {max_steps: -1}"), bad, config, []string{"yaml:5:25"}, "max_steps"},
			{"C-11 65 members", create("teams:\n  t:\n    members: [" + strings.Repeat("{agent: writer, id: m}, ", 65) + "]\n    coordinator: {leader: {model: m, instructions: x}}"), bad, config, nil, "64"},
			{"two faults", create("teams:\n  t: {members: [{agent: no}, {agent: none}], " + rules("writer") + "}"), bad, config, []string{"yaml:2:103", "yaml:2:25", "yaml:2:38"}, ""},
			{"no YAML", create("teams: ["), bad, config, []string{"yaml:1:9"}, ""},
			{"nothing", create(""), bad, config, []string{"yaml:1:1"}, ""},
			{"two teams", create(team("a", "x") + "  b: {members: [{agent: parrot}], " + rules("parrot") + "}"), bad, config, []string{"yaml"}, "it defines 2 teams and 1 agents"},
			{"no team", create("agents: {a: {scripted: {steps: [{echo: true}]}}}"), bad, config, []string{"yaml"}, ""},
			{"a model", create("models: {n: {provider: openai}}\n" + team("t", "x")), bad, config, []string{"yaml:1:1"}, "belongs in the server's configuration file"},
			{"a variable", create(team("t", "${HOME}")), bad, config, []string{"yaml:2:37"}, ""},
			{"an id of the file", create(team("desk", "x")), bad, config, []string{"yaml:4:3"}, "already exists"},
			{"an agent's id of the file", create("agents:\n  parrot: {scripted: {steps: [{echo: true}]}}\nteams:\n  t: {members: [{agent: parrot}], " + rules("parrot") + "}"), bad, config, []string{"yaml:2:3"}, "already exists"},
			{"an id that is taken", create(team("mine", "y")), bad, config, []string{"yaml"}, "already exists"},
			{"an agent's id that is taken", create("agents:\n  mine_one: {scripted: {steps: [{echo: true}]}}\nteams:\n  t: {members: [{agent: mine_one}], " + rules("mine_one") + "}"), bad, config, []string{"yaml"}, "already exists"},
			{"too large", create("# " + strings.Repeat("x", 1<<20) + "\n" + team("t", "x")), bad, config, []string{"yaml"}, "1 MiB"},
			{"update of what is not there", change("none", "", team("none", "x")), "NotFound", "TEAM_NOT_FOUND", nil, ""},
			{"update of a team of the file", change("desk", "", team("desk", "x")), bad, config, nil, "change it there"},
			{"update with another team", change("mine", "", team("other", "x")), bad, config, []string{"yaml"}, `defines team "other"`},
			{"update with another etag", change("mine", mine.GetEtag()+"0", team("mine", "y")), "Aborted", "VERSION_CONFLICT", nil, mine.GetEtag()},
			{"update with faults", change("mine", mine.GetEtag(), "teams:\n  mine: {members: [{agent: nobody}], "+rules("nobody")+"}"), bad, config, []string{"yaml:2:28"}, ""},
			{"delete of what is not there", drop("none", ""), "NotFound", "TEAM_NOT_FOUND", nil, ""},
			{"delete of a team of the file", drop("desk", ""), bad, config, nil, "change it there"},
			{"delete of an agent", drop("mine_one", ""), bad, config, nil, `is part of team "mine"`},
			{"delete with another etag", drop("mine", "x"), "Aborted", "VERSION_CONFLICT", nil, ""},
			{"S-40 a token that is none", func() error {
				_, err := a.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{PageToken: "{}"})
				return err
			}, bad, "INVALID_REQUEST", []string{"pageToken"}, "is not a page token of this list; omit it to start with the first page"},
			{"S-40 a token of agents that is none", func() error {
				_, err := a.agents.ListAgents(t.Context(), &teamv1.ListAgentsRequest{PageToken: "No id"})
				return err
			}, bad, "INVALID_REQUEST", []string{"pageToken"}, "is not a page token of this list; omit it to start with the first page"},
			{"an agent without an id", agents("", &teamv1.AgentConfig{}), bad, "INVALID_REQUEST", []string{"agentId"}, ""},
			{"an agent without a definition", agents("a", nil), bad, "INVALID_REQUEST", []string{"config"}, ""},
			{"an agent of no kind", agents("a", &teamv1.AgentConfig{Name: "x"}), bad, config, []string{"config", "config.name"}, ""},
			{"an agent of an unknown model", agents("a", &teamv1.AgentConfig{Model: "gpt", Instructions: "x"}), bad, config, []string{"config.model"}, ""},
			{"an agent with a reserved id", agents("rpc", &teamv1.AgentConfig{Model: "m", Instructions: "x"}), bad, config, []string{"agentId"}, "reserved"},
			{"an agent with an id that is taken", agents("mine", &teamv1.AgentConfig{Model: "m", Instructions: "x"}), bad, config, []string{"agentId"}, "already exists"},
			{"R-001-13 a reserved id", named("rpc", flow), bad, config, []string{"teamId"}, "reserved"},
			{"R-001-13 an id that can be none, of what is no team", named("A\nb", &teamv1.TeamConfig{}), bad, config, []string{"config", "config", "teamId"}, "cannot be the id of a team"},
			{"R-001-13 an id of the file, as a message", named("desk", flow), bad, config, []string{"teamId"}, "already exists"},
			{"R-001-13 an id that is taken, as a message", named("mine_one", flow), bad, config, []string{"teamId"}, "already exists"},
			{"R-001-13 an id of a contract", func() error {
				_, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{TeamId: "A b", Form: &teamv1.CreateTeamRequest_Contract{Contract: &teamv1.ContractTeam{
					TeamType: "research", WorkflowConfig: &teamv1.ContractWorkflow{Type: "parallel"}, AgentRoles: []*teamv1.ContractRole{
						{RoleName: "writer", AgentConfig: &teamv1.ContractAgent{Model: "m"}}, {RoleName: "editor", AgentConfig: &teamv1.ContractAgent{Model: "m"}},
					},
				}}})
				return err
			}, bad, config, []string{"teamId", "team_name"}, `"A b" cannot be the id of a team`},
			{"an agent with a secret", agents("a", &teamv1.AgentConfig{A2A: &teamv1.A2AAgent{Card: "http://127.0.0.1:1", Auth: &teamv1.AgentAuth{Bearer: "s"}}}), bad, config, []string{"config.a2a.auth"}, "secret"},
		} {
			t.Run(c.name, func(t *testing.T) {
				err := c.do()
				fields := c.fields
				if fields == nil {
					fields = rig.Fault(err).Fields
				}
				if f := fault(t, err, c.code, c.reason, fields...); !strings.Contains(f.Message, c.says) {
					t.Errorf("it says %q, not %q", f.Message, c.says)
				}
			})
		}
		list, err := a.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{})
		if err != nil || len(list.GetTeams()) != 2 || a.get(t, "mine").GetEtag() != mine.GetEtag() {
			t.Errorf("%d teams, mine is %v: %v", len(list.GetTeams()), a.get(t, "mine"), err)
		}
		h.says(t, "mine", "y", "x")
		if list, err = a.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{PageToken: "gone"}); err != nil || len(list.GetTeams()) != 1 {
			t.Errorf("R-003-22 behind one that has been deleted: %v, %v", list, err)
		}
	})
}

// TestR_001_13_ValidateOnly: what could be made is said, and not made.
func TestR_001_13_ValidateOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *house, a api) {
		made := a.create(t, team("mine", "x"))
		dry := yamlOf(team("t", "x"))
		dry.ValidateOnly = true
		if resp, err := a.teams.CreateTeam(t.Context(), dry); err != nil || resp.GetTeam().GetId() != "t" || resp.GetTeam().GetEtag() != "" {
			t.Errorf("%v, %v", resp, err)
		}
		again := update("mine", made.GetEtag(), team("mine", "y"))
		again.ValidateOnly = true
		if resp, err := a.teams.UpdateTeam(t.Context(), again); err != nil || resp.GetTeam().GetYaml() != team("mine", "y") {
			t.Errorf("%v, %v", resp, err)
		}
		again.Etag = "x"
		_, err := a.teams.UpdateTeam(t.Context(), again)
		fault(t, err, "Aborted", "VERSION_CONFLICT")
		_, err = a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: "t"})
		fault(t, err, "NotFound", "TEAM_NOT_FOUND")
		if now := a.get(t, "mine"); now.GetEtag() != made.GetEtag() {
			t.Errorf("it is %v", now)
		}
	})
}

// TestR_003_17_Permission: everybody may read; a key changes something only if it may.
func TestR_003_17_Permission(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	for i, ann := range apis(t, h.Target) {
		t.Run(ann.binding, func(t *testing.T) {
			id := "mine_" + ann.binding
			ann.create(t, team(id, "x"))
			bob := apis(t, h.As("acme", "bob"))[i]
			nobody := apis(t, rig.Target{GRPC: h.GRPC, HTTP: h.HTTP})[i]
			a := &teamv1.AgentConfig{Model: "m", Instructions: "x"}
			for name, do := range map[string]func(api) error{
				"create": func(a api) error { _, err := a.teams.CreateTeam(t.Context(), yamlOf(team("t", "x"))); return err },
				"validate": func(a api) error {
					r := yamlOf(team("t", "x"))
					r.ValidateOnly = true
					_, err := a.teams.CreateTeam(t.Context(), r)
					return err
				},
				"update": func(a api) error {
					_, err := a.teams.UpdateTeam(t.Context(), update(id, "", team(id, "y")))
					return err
				},
				"delete": func(a api) error {
					_, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: id})
					return err
				},
				"register": func(p api) error {
					_, err := p.agents.RegisterAgent(t.Context(), &teamv1.RegisterAgentRequest{AgentId: "a", Config: a})
					return err
				},
				"change": func(p api) error {
					_, err := p.agents.UpdateAgent(t.Context(), &teamv1.UpdateAgentRequest{AgentId: "a", Config: a})
					return err
				},
				"unregister": func(p api) error {
					_, err := p.agents.UnregisterAgent(t.Context(), &teamv1.UnregisterAgentRequest{AgentId: "a"})
					return err
				},
			} {
				t.Run(name, func(t *testing.T) {
					fault(t, do(bob), "PermissionDenied", "PERMISSION_DENIED")
					fault(t, do(nobody), "Unauthenticated", "UNAUTHENTICATED")
				})
			}
			if got := bob.get(t, id); got.GetId() != id {
				t.Errorf("bob reads %v", got)
			}
			if list, err := bob.agents.ListAgents(t.Context(), &teamv1.ListAgentsRequest{}); err != nil || len(list.GetAgents()) < 4 {
				t.Errorf("bob lists %v, %v", list, err)
			}
		})
	}
}

// TestR_003_17_Concurrent: of changes of one version one wins, over both bindings.
func TestR_003_17_Concurrent(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := open(t, at, base, fakellm.New(t))
		all := apis(t, h.Target)
		etag := all[0].create(t, team("mine", "0")).GetEtag()
		for round := range 3 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			var won []*teamv1.Team
			for i := range 20 {
				wg.Go(func() {
					resp, err := all[i%2].teams.UpdateTeam(t.Context(), update("mine", etag, team("mine", fmt.Sprint(round, i))))
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won = append(won, resp.GetTeam())
						return
					}
					fault(t, err, "Aborted", "VERSION_CONFLICT")
				})
			}
			wg.Wait()
			if len(won) != 1 {
				t.Fatalf("round %d: %d won", round, len(won))
			}
			if now := all[0].get(t, "mine"); now.GetYaml() != won[0].GetYaml() || now.GetEtag() != won[0].GetEtag() {
				t.Errorf("it is %v, and %v has won", now, won[0])
			}
			etag = won[0].GetEtag()
		}
		var wg sync.WaitGroup
		for i := range 20 { // without an etag all come about, one after the other
			wg.Go(func() {
				if _, err := all[i%2].teams.UpdateTeam(t.Context(), update("mine", "", team("mine", fmt.Sprint(i)))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// TestR_001_15_NotThere: an agent that cannot be reached is named, soon, and nothing is
// kept. Others make changes meanwhile.
func TestR_001_15_NotThere(t *testing.T) {
	each(t, func(t *testing.T, h *house, a api) {
		silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		doc := fmt.Sprintf("agents:\n  near: {scripted: {steps: [{echo: true}]}}\n  refused: {a2a: {card: \"http://127.0.0.1:1\"}}\n  silent: {grpc: {address: %q, agent_id: x}}\n"+
			"teams:\n  t: {members: [{agent: near}, {agent: refused}, {agent: silent}], %s}", silent.Addr().String(), rules("near"))
		done := make(chan error, 1)
		start := time.Now()
		go func() { _, err := a.teams.CreateTeam(t.Context(), yamlOf(doc)); done <- err }()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := a.teams.CreateTeam(ctx, yamlOf(team("mine", "x"))); err != nil {
			t.Errorf("meanwhile: %v", err)
		}
		f := fault(t, <-done, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED")
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
		if f.Details["refused"] == "" || f.Details["silent"] == "" || f.Details["near"] != "" {
			t.Errorf("details %v", f.Details)
		}
		_, err = a.agents.GetAgent(t.Context(), &teamv1.GetAgentRequest{AgentId: "near"})
		fault(t, err, "NotFound", "AGENT_NOT_FOUND")
		_, err = a.agents.RegisterAgent(t.Context(), &teamv1.RegisterAgentRequest{AgentId: "far", Config: &teamv1.AgentConfig{A2A: &teamv1.A2AAgent{Card: "http://127.0.0.1:1"}}})
		fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED")
		for what, far := range map[string]*teamv1.GrpcAgent{"refuses": {Address: "127.0.0.1:1", AgentId: "x"}, "wants a key": {Address: h.GRPC, AgentId: "desk"}} {
			_, err = a.agents.RegisterAgent(t.Context(), &teamv1.RegisterAgentRequest{AgentId: "far", Config: &teamv1.AgentConfig{Grpc: far}})
			if f := fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED"); f.Details["far"] == "" {
				t.Errorf("one that %s: %v", what, f.Details)
			}
		}
	})
}

// TestR_001_15_NoKey: a model of the file whose key is not set cannot be used.
func TestR_001_15_NoKey(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), strings.Replace(base, "models: {", "models: {bare: {api: true, provider: openai, name: n}, ", 1), fakellm.New(t))
	for _, a := range apis(t, h.Target) {
		_, err := a.teams.CreateTeam(t.Context(), yamlOf("agents:\n  w: {model: bare, instructions: x}\nteams:\n  t: {members: [{agent: w}], "+rules("w")+"}"))
		if f := fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED"); !strings.Contains(f.Message, `agent "w" needs OPENAI_API_KEY, which is not set`) {
			t.Error(f.Message)
		}
		_, err = a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: "t"})
		fault(t, err, "NotFound", "TEAM_NOT_FOUND")
	}
}

// TestR_001_15_NoTool: a tool of the file that does not start cannot be used, and what
// was built with it is closed.
func TestR_001_15_NoTool(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), strings.Replace(base, "agents:\n", "tools: {saw: {api: true, mcp: {required: true, command: [\"/no/such/program\"]}}}\nagents:\n", 1), fakellm.New(t))
	for _, a := range apis(t, h.Target) {
		doc := "agents:\n  w: {model: m, instructions: x, tools: [saw]}\nteams:\n  t: {members: [{agent: w}], " + rules("w") + "}"
		_, err := a.teams.CreateTeam(t.Context(), yamlOf(doc))
		if f := fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED"); strings.Contains(f.Message, "/no/such") {
			t.Error(f.Message)
		}
		dry := yamlOf(doc)
		dry.ValidateOnly = true
		_, err = a.teams.CreateTeam(t.Context(), dry)
		fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED")
		_, err = a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: "t"})
		fault(t, err, "NotFound", "TEAM_NOT_FOUND")
		a.create(t, team("after_"+a.binding, "x"))
	}
}

// TestR_001_15_WhoseTool: of those with tools the one is named whose tool does not
// start, or that has two which cannot be told apart; by its role, of a contract.
func TestR_001_15_WhoseTool(t *testing.T) {
	t.Parallel()
	tools := mcp.NewServer(&mcp.Implementation{Name: "sea", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "height"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	sea := newServer(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil).ServeHTTP)
	h := open(t, rig.Memory(t), strings.Replace(base, "agents:\n",
		fmt.Sprintf("tools: {saw: {api: true, mcp: {required: true, command: [\"/no/such/program\"]}}, sea: {api: true, mcp: {url: %[1]q}}, twin: {api: true, mcp: {url: %[1]q}}}\nagents:\n", sea), 1), fakellm.New(t))
	role := func(name string, tools ...string) *teamv1.ContractRole {
		return &teamv1.ContractRole{RoleName: name, AgentConfig: &teamv1.ContractAgent{Model: "m", Instructions: "x", Tools: tools}}
	}
	for _, a := range apis(t, h.Target) {
		_, err := a.teams.CreateTeam(t.Context(), yamlOf("agents:\n  w: {model: m, instructions: x, tools: [sea, saw]}\n  v: {model: m, instructions: x, tools: [sea]}\nteams:\n  t: {members: [{agent: v}, {agent: w}], "+rules("w")+"}"))
		if f := fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED"); !maps.Equal(f.Details, map[string]string{"w": `tool "saw" does not start`}) || !strings.Contains(f.Message, `"w": tool "saw" does not start`) {
			t.Errorf("%v: %s", f.Details, f.Message)
		}
		_, err = a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Contract{Contract: &teamv1.ContractTeam{
			TeamName: "x", TeamType: "research", WorkflowConfig: &teamv1.ContractWorkflow{Type: "parallel"},
			AgentRoles: []*teamv1.ContractRole{role("one", "sea"), role("The other", "saw"), role("third")},
		}}})
		if f := fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED"); !maps.Equal(f.Details, map[string]string{"The other": `tool "saw" does not start`}) {
			t.Error(f.Details)
		}
		_, err = a.teams.CreateTeam(t.Context(), yamlOf("agents:\n  w: {model: m, instructions: x, tools: [sea, twin]}\n  v: {model: m, instructions: x, tools: [sea]}\nteams:\n  t: {members: [{agent: v}, {agent: w}], "+rules("w")+"}"))
		if f := fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED"); len(f.Details) != 1 || !strings.Contains(f.Details["w"], `both have "height"`) {
			t.Error(f.Details)
		}
	}
}

// TestR_001_51_BackSoon: where all of them say that they are back soon, so does the error.
func TestR_001_51_BackSoon(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	soon := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for _, a := range apis(t, h.Target) {
		agents := func(other string) string {
			return fmt.Sprintf("agents:\n  soon: {a2a: {card: %q}}\n  other: {a2a: {card: %q}}\nteams:\n  t: {members: [{agent: soon}, {agent: other}], %s}", soon, other, rules("soon"))
		}
		_, err := a.teams.CreateTeam(t.Context(), yamlOf(agents(soon)))
		fault(t, err, "Unavailable", "AGENT_INITIALIZATION_FAILED")
		_, err = a.teams.CreateTeam(t.Context(), yamlOf(agents("http://127.0.0.1:1")))
		fault(t, err, "FailedPrecondition", "AGENT_INITIALIZATION_FAILED")
	}
}

// TestS_37_Nesting: a loop is refused and its path named; what another team needs stays.
func TestS_37_Nesting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, a api) {
		nested := func(id, member string) string {
			return "teams:\n  " + id + ": {members: [{agent: " + member + "}], " + rules(member) + "}"
		}
		a.create(t, team("b", "b: {{input}}"))
		a.create(t, nested("a", "b"))
		a.create(t, nested("top", "a"))
		h.says(t, "top", "x", "b: x")
		_, err := a.teams.UpdateTeam(t.Context(), update("b", "", nested("b", "a")))
		if f := fault(t, err, "InvalidArgument", "INVALID_TEAM_CONFIG", "yaml:2:25"); !strings.Contains(f.Message, "teams form a cycle: b -> a -> b") {
			t.Error(f.Message)
		}
		_, err = a.teams.UpdateTeam(t.Context(), update("b", "", nested("b", "b")))
		fault(t, err, "InvalidArgument", "INVALID_TEAM_CONFIG", "yaml:2:25")
		h.says(t, "top", "x", "b: x")
		if _, err := a.teams.UpdateTeam(t.Context(), update("b", "", team("b", "new b: {{input}}"))); err != nil {
			t.Fatal(err)
		}
		h.says(t, "top", "x", "new b: x")
		_, err = a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "b"})
		if f := fault(t, err, "InvalidArgument", "INVALID_TEAM_CONFIG"); !strings.Contains(f.Message, `"a" depends on`) && !strings.Contains(f.Message, `"top" depends on`) {
			t.Error(f.Message)
		}
		for _, id := range []string{"top", "a", "b"} {
			if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: id}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestR_001_01_YAMLBody: a file is sent as it is.
func TestR_001_01_YAMLBody(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	yaml := map[string]string{"Content-Type": "application/yaml; charset=utf-8"}
	do := func(method, path, body string, headers map[string]string, want int) *teamv1.Team {
		t.Helper()
		answer, err := h.Do(t.Context(), method, path, []byte(body), headers)
		if err != nil {
			t.Fatal(err)
		}
		resp := &teamv1.CreateTeamResponse{}
		if err := answer.Read(resp); answer.Status != want {
			t.Errorf("%s %s: %d, %v", method, path, answer.Status, err)
		}
		return resp.GetTeam()
	}
	do(http.MethodPost, "/team/v1/teams?validate_only=true", team("mine", "a"), yaml, http.StatusOK)
	made := do(http.MethodPost, "/team/v1/teams", team("mine", "a"), yaml, http.StatusOK)
	h.says(t, "mine", "x", "a")
	do(http.MethodPut, "/team/v1/teams/mine?etag=x", team("mine", "b"), yaml, http.StatusConflict)
	do(http.MethodPut, "/team/v1/teams/mine?etag="+made.GetEtag(), team("mine", "b"), yaml, http.StatusOK)
	h.says(t, "mine", "x", "b")
	do(http.MethodPut, "/team/v1/teams/mine", "teams: {mine: {}}", yaml, http.StatusBadRequest)
	do(http.MethodPut, "/team/v1/teams/mine?validateOnly=perhaps", team("mine", "c"), yaml, http.StatusBadRequest)
	do(http.MethodPost, "/team/v1/teams", "a: \xff", yaml, http.StatusBadRequest)
	do(http.MethodPost, "/team/v1/registry/agents", "a: b", yaml, http.StatusUnsupportedMediaType)
	do(http.MethodPost, "/message:send", "a: b", yaml, http.StatusUnsupportedMediaType)
	for path, takes := range map[string]bool{"/team/v1/teams": true, "/message:send": false} {
		answer, err := h.Do(t.Context(), http.MethodPost, path, []byte("a: b"), map[string]string{"Content-Type": "text/plain"})
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Read(&teamv1.CreateTeamResponse{}); answer.Status != http.StatusUnsupportedMediaType || strings.Contains(err.Error(), "application/yaml") != takes {
			t.Errorf("%s: %d, %v", path, answer.Status, err)
		}
	}
	h.says(t, "mine", "x", "b")
}

// TestA_01_TeamNamedTeam: a team may be called as the path is.
func TestA_01_TeamNamedTeam(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	for _, a := range apis(t, h.Target)[:1] {
		a.create(t, team("team", "I am {{input}}"))
	}
	rig.Each(t, h.Target, func(t *testing.T, c rig.Client) {
		resp, err := c.Send(t.Context(), rig.Text("team", "m-"+c.Binding(), "x"))
		if err != nil || answer(resp.GetTask()) != "I am x" {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// TestR_002_5_1_Adjusted: a time of members that is longer than their team's is told.
func TestR_002_5_1_Adjusted(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	for _, a := range apis(t, h.Target) {
		a.create(t, "teams: {slow_"+a.binding+": {members: [{agent: parrot}], limits: {timeout: 60s, member_timeout: 120s}, "+rules("parrot")+"}}")
		got := a.get(t, "slow_"+a.binding).GetAdjusted()
		want := []*teamv1.AdjustedLimit{{
			Path: "teams.slow_" + a.binding + ".limits.member_timeout", Set: "2m0s", Effective: "1m0s", Because: "teams.slow_" + a.binding + ".limits.timeout",
		}}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestR_001_13_Thousand: ids are unique over 1000 creates, no model is asked
// (R-002-14), and all of the teams are served after a restart.
func TestR_001_13_Thousand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	at := rig.SQLite(t)
	h := open(t, at, base, fakellm.New(t))
	a := apis(t, h.Target)[0]
	ids := map[string]bool{}
	many := 1000 / sample.Stride()
	for i := range many {
		resp, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Config{Config: &teamv1.TeamConfig{
			Name: fmt.Sprint("Team ", i), Members: []*teamv1.MemberConfig{{Agent: "writer"}},
			Coordinator: &teamv1.CoordinatorConfig{Leader: &teamv1.LeaderConfig{Model: "m", Instructions: "Lead."}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		ids[resp.GetTeam().GetId()] = true
	}
	if len(ids) != many {
		t.Errorf("%d ids", len(ids))
	}
	if asked := len(h.llm.Requests()); asked > 0 {
		t.Errorf("models were asked %d times", asked)
	}
	h.stop()
	h = open(t, at, base, h.llm)
	if n := len(h.running.Agents.Served().TeamIDs()); n != many+1 {
		t.Errorf("%d teams are served after a restart", n)
	}
}

// TestS_51_RolesOfNobody: of a team that is made by a call it is said as well which of
// its steps ask people whom no key makes.
func TestS_51_RolesOfNobody(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	for _, a := range apis(t, h.Target) {
		made := a.create(t, "teams: {asks_"+a.binding+": {workflow: {steps: [{id: say, agent: parrot}, {id: sign, after: [say], human: {question: \"Sign?\", roles: [legal]}}]}}}")
		want := []string{"teams.asks_" + a.binding + ".workflow.steps[1].human.roles"}
		if now := a.get(t, made.GetId()); !slices.Equal(made.GetUnheld(), want) || !slices.Equal(now.GetUnheld(), want) {
			t.Errorf("%v, then %v; want %v", made.GetUnheld(), now.GetUnheld(), want)
		}
	}
}
