package managed

import (
	"net/http"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// TestS_40_UnknownKeys: nothing in a definition is ignored, be it JSON; beside it
// unknown keys are.
func TestS_40_UnknownKeys(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	const (
		teams, agents, contract = "/team/v1/teams", "/team/v1/registry/agents", "/team/v1/contract/create_team"

		flow  = `"members":[{"agent":"parrot"}],"workflow":{"steps":[{"id":"one","agent":"parrot"}]}`
		roles = `"teamName":"Duet","teamType":"research","workflowConfig":{"type":"sequential"},"agentRoles":[{"roleName":"researcher","agentConfig":{"model":"m"}},`
		duet  = `"team_name":"Duet","team_type":"research","workflow_config":{"type":"sequential"},"agent_roles":[{"role_name":"researcher","agent_config":{"model":"m"}},`
	)
	for _, c := range []struct{ name, method, path, body, says string }{
		{"R-002-01 of a team", "POST", teams, `{"teamId":"a","config":{"nope":1,` + flow + `}}`, "config.nope is unknown; known here: access, allowEmpty, api, board"},
		{"R-002-01 null", "POST", teams, `{"teamId":"a","config":{"nope":null,` + flow + `}}`, "config.nope is unknown"},
		{"R-002-01 within", "POST", teams, `{"teamId":"a","config":{` + strings.Replace(flow, `"agent":"parrot"}]}`, `"agnet":"parrot"}]}`, 1) + `}}`, `config.workflow.steps[0].agnet is unknown; did you mean "agent"?`},
		{"R-002-01 two", "POST", teams, `{"teamId":"a","config":{"membres":[],"limits":{"maxStep":1},` + flow + `}}`, `config.limits.maxStep is unknown; did you mean "maxSteps"?; config.membres is unknown; did you mean "members"?`},
		{"R-002-01 an update", "PUT", teams + "/a", `{"config":{"nope":1,` + flow + `}}`, "config.nope is unknown"},
		{"R-001-01 of a contract", "POST", teams, `{"contract":{` + roles + `{"roleName":"writer","agentConfig":{"model":"m","tempo":1}}]}}`, "contract.agentRoles[1].agentConfig.tempo is unknown; known here: instructions, model, tools"},
		{"R-001-01 R-001-50 C-32 in the contract", "POST", contract, `{` + duet + `{"role_name":"writer","agent_config":{"model":"m","instruction":"x"}}]}`, `agent_roles[1].agent_config.instruction is unknown; did you mean \"instructions\"?`},
		{"C-32 the contract has names of its own", "POST", contract, `{"teamType":"research",` + duet + `{"role_name":"writer","agent_config":{"model":"m"}}]}`, `teamType is unknown; did you mean \"team_type\"?`},
		{"R-003-17 of an agent", "POST", agents, `{"agentId":"b","config":{"model":"m","instructions":"x","temprature":1}}`, `config.temprature is unknown`},
		{"R-003-17 an update of one", "PUT", agents + "/b", `{"config":{"modle":"m"}}`, `config.modle is unknown; did you mean "model"?`},
		{"R-002-01 snake case is known", "POST", teams, `{"teamId":"a","config":{"max_concurrent_collaborations":2,` + flow + `}}`, ""},
		{"R-002-01 beside the definition", "POST", teams, `{"nope":1,"teamId":"c","config":{` + flow + `}}`, ""},
		{"C-32 in the contract as it is", "POST", contract, `{` + duet + `{"role_name":"writer","agent_config":{"model":"m"}}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, err := h.Do(t.Context(), c.method, c.path, []byte(c.body), map[string]string{"Content-Type": "application/json"})
			if err != nil {
				t.Fatal(err)
			}
			b, err := answer.Body()
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			if c.path != contract {
				text = strings.ReplaceAll(text, `\"`, `"`)
			}
			if c.says == "" {
				if answer.Status != http.StatusOK {
					t.Errorf("%d %s", answer.Status, text)
				}
				return
			}
			if answer.Status != http.StatusBadRequest || !strings.Contains(text, c.says) || !strings.Contains(text, "INVALID_TEAM_CONFIG") {
				t.Errorf("%d %s", answer.Status, text)
			}
		})
	}
}
