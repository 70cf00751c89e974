package scenes

import (
	"strings"
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
)

// reload has the server take over another text of its file, as it does when the
// file changes.
func (s *scene) reload(text string) error {
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := s.env[name]; return v, ok }}.Parse("team.yaml", []byte(text))
	if err != nil {
		return err
	}
	return s.live.Refresh(s.t.Context(), def)
}

// TestS_40_RefusedChange changes the file of a running server, badly and well: what
// is refused leaves nothing behind, what is good is there with the next run.
func TestS_40_RefusedChange(t *testing.T) {
	eachScene(t, deskModels, deskWith("", "", ""), func(t *testing.T, s *scene) {
		info := func() *teamv1.AgentInfo {
			t.Helper()
			resp, err := s.agents.Info(s.grpc.Context(t.Context()), &teamv1.InfoRequest{AgentId: "desk"})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetInfo()
		}
		for name, change := range map[string][2]string{
			"R-002-5.2 a bound":                       {"retry: {backoff: 1ms}", "retry: {backoff: 1ms}, max_delegations: 0"},
			"R-002-10 a member twice":                 {"{agent: c}]", "{agent: c}, {agent: c}]"},
			"R-002-11 a model that is not there":      {"leader: {model: lead", "leader: {model: elad"},
			"R-002-5.3 no members":                    {"[{agent: a}, {agent: b}, {agent: c}]", "[]"},
			"R-002-5.4 a member without an agent":     {"{agent: c}]", "{id: c}]"},
			"R-004-38 a member with the team's name":  {"{agent: c}]", "{agent: c, id: desk}]"},
			"C-11 another team with too many members": {"teams:\n", "teams:\n  new:\n    members: [" + strings.TrimSuffix(strings.Repeat("{agent: a}, ", 65), ", ") + "]\n    coordinator: {leader: {model: lead}}\n"},
		} {
			t.Run("S-40 nothing is left of it: "+name, func(t *testing.T) {
				bad := strings.Replace(s.file, change[0], change[1], 1)
				if bad == s.file {
					t.Fatal("it changes nothing")
				}
				if err := s.reload(bad); err == nil {
					t.Error("it was taken")
				}
				if got := info().GetMetadata()["member_count"]; got != "3" {
					t.Errorf("the team has %s members", got)
				}
				if _, err := s.agents.Info(s.grpc.Context(t.Context()), &teamv1.InfoRequest{AgentId: "new"}); err == nil {
					t.Error("the team of the bad file is there")
				}
				s.script("lead", speaks("as ever"))
				s.play("desk", "still there?").completed("as ever")
			})
		}
		t.Run("S-40 R-002-13 a good one is there with the next run", func(t *testing.T) {
			good := strings.Replace(s.file, "{agent: c}]", "{agent: c, enabled: false}]", 1)
			if err := s.reload(good); err != nil {
				t.Fatal(err)
			}
			s.script("lead", speaks("one less"))
			s.play("desk", "and now?").completed("one less")
			reqs := s.asked("lead")
			holds(t, strings.Join(reqs[len(reqs)-1].Tools, " "), "delegate_to_a delegate_to_b")
			if strings.Contains(reqs[len(reqs)-1].System, "- c") {
				t.Error(reqs[len(reqs)-1].System)
			}
		})
	})
}
