package collab

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_001_58_C_32_Functions: what the contract wants of a team, in one story of a
// hybrid one: the first role, those in the middle side by side, the last role.
func TestR_001_58_C_32_Functions(t *testing.T) {
	llm := fakellm.New(t)
	h := open(t, rig.SQLite(t), base, llm)
	a := apis(t, h.Target)[1]
	roles := []struct{ role, model, instructions string }{
		{"researcher", "a", "Find the facts."}, {"analyst", "b", "Weigh the facts."},
		{"illustrator", "c", "Draw the facts."}, {"editor", "lead", "Put it together."},
	}
	gates := h.gated(t, "a", "b", "c")
	h.judged("lead", "Said by the editor.", "0.9")
	var made, id string
	t.Run("F1 team formation", func(t *testing.T) {
		made = h.form(t, roles)
	})
	t.Run("F3 workflow orchestration", func(t *testing.T) {
		_, resp := h.contract(t, "start_collaboration", `{"team_id":"`+made+`",`+work+`}`)
		id, _ = resp["collaboration_id"].(string)
		held(t, gates["a"])
		gates["a"].Open()
		held(t, gates["b"])
		held(t, gates["c"]) // beside b, which has not answered
		if n := len(llm.Requests("lead")); n != 0 {
			t.Errorf("the last role was asked %d times while others work", n)
		}
		gates["b"].Open()
		gates["c"].Open()
		a.ended(t, id)
	})
	t.Run("F2 role specialisation", func(t *testing.T) {
		for _, r := range roles {
			for _, other := range roles {
				if got := strings.Contains(llm.Requests(r.model)[0].System, other.instructions); got != (r == other) {
					t.Errorf("%s has the instructions of %s: %t", r.role, other.role, got)
				}
			}
		}
	})
	t.Run("F4 communication coordination", func(t *testing.T) {
		for model, heard := range map[string][]string{"b": {"said by a"}, "c": {"said by a"}, "lead": {"said by b", "said by c"}} {
			for _, text := range heard {
				if body := string(llm.Requests(model)[0].Body); !strings.Contains(body, text) {
					t.Errorf("%s was not told %q: %s", model, text, body)
				}
			}
		}
	})
	_, resp := h.contract(t, "stop_collaboration", `{"collaboration_id":"`+id+`"}`)
	results, _ := resp["results"].(map[string]any)
	t.Run("F6 quality control", func(t *testing.T) {
		if results["quality_score"] != 0.9 {
			t.Errorf("%v", resp)
		}
	})
	t.Run("F7 result integration", func(t *testing.T) {
		var who []string
		list, _ := results["contributions"].([]any)
		for _, c := range list {
			one, _ := c.(map[string]any)
			name, _ := one["role"].(string)
			who = append(who, name)
		}
		slices.Sort(who)
		if results["output"] != "Said by the editor." || !slices.Equal(who, []string{"analyst", "editor", "illustrator", "researcher"}) {
			t.Errorf("%v", resp)
		}
	})
}

// form makes a hybrid team of roles by the contract, and returns its id.
func (h *house) form(t *testing.T, roles []struct{ role, model, instructions string }) string {
	t.Helper()
	var list []any
	for _, r := range roles {
		list = append(list, map[string]any{"role_name": r.role, "agent_config": map[string]any{"model": r.model, "tools": []any{}, "instructions": r.instructions}})
	}
	body, err := json.Marshal(map[string]any{
		"team_name": "Quartet", "team_type": "research", "agent_roles": list,
		"workflow_config": map[string]any{"type": "hybrid", "max_iterations": 1, "timeout_minutes": 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	status, resp := h.contract(t, "create_team", string(body))
	if status != 200 || resp["success"] != true || resp["status"] != "ready" {
		t.Fatalf("%d %v", status, resp)
	}
	id, _ := resp["team_id"].(string)
	return id
}
