package managed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// gated is a team that asks a person before its member, a scripted agent of its own with an id, says a text. extra is
// what the team has besides, such as another member or its access.
func gated(member, agentID, says, extra string) string {
	return fmt.Sprintf("agents:\n  %s: {scripted: {steps: [{text: %q}]}}\nteams:\n  t: {%smembers: [{id: %s, agent: %s}], workflow: {steps: [{id: ask, human: {question: \"Go on?\"}}, {id: say, agent: %s}]}}\n",
		agentID, says, extra, member, agentID, member)
}

// asks begins a task of a team, which asks, and returns its id.
func asks(t *testing.T, at rig.Target, team string) string {
	t.Helper()
	sent, err := rig.NewREST(at).Send(t.Context(), rig.Text(team, uuid.NewString(), "hello"))
	if err != nil || sent.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
		t.Fatalf("%v, %v", sent, err)
	}
	return sent.GetTask().GetId()
}

// answered answers the question of a task and returns the task at its end.
func (h *house) answered(t *testing.T, id string) *a2av1.Task {
	t.Helper()
	req := rig.Text("", uuid.NewString(), "yes")
	req.Message.TaskId = id
	if _, err := h.send(t, req); err != nil {
		t.Fatalf("the answer is refused: %v", err)
	}
	return h.ended(t, id)
}

// TestS_59_WaitingRun: a task that waits for a person goes on with the members that it began with, also across a
// restart, though an update has removed or renamed them, or the team was deleted. A member that is disabled is refused.
func TestS_59_WaitingRun(t *testing.T) {
	t.Parallel()
	began := gated("old", "first", "the first text", "")
	for name, c := range map[string]struct{ now, want string }{
		"removed":          {gated("new", "second", "the second text", ""), "the first text"},
		"renamed":          {gated("new", "first", "the first text, changed", ""), "the first text"},
		"the same":         {gated("old", "first", "the first text, changed", ""), "the first text"},
		"another as well":  {strings.Replace(gated("new", "second", "the second text", ""), "members: [", "members: [{agent: parrot}, ", 1), "the first text"},
		"disabled":         {strings.Replace(strings.Replace(began, "agent: first}", "agent: first, enabled: false}, {agent: parrot}", 1), "say, agent: old", "say, agent: parrot", 1), "disabled"},
		"of a deleted one": {"", "the first text"},
	} {
		t.Run(name, func(t *testing.T) {
			rig.EachStore(t, func(t *testing.T, at rig.Place) {
				for _, again := range []bool{false, true} {
					if again && !at.Durable {
						continue
					}
					place := at.Another(t)
					h := open(t, place, base, fakellm.New(t))
					a := apis(t, h.Target)[0]
					a.create(t, began)
					id := asks(t, h.Target, "t")
					var err error
					if c.now == "" {
						_, err = a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "t"})
					} else {
						_, err = a.teams.UpdateTeam(t.Context(), update("t", "", c.now))
					}
					if err != nil {
						t.Fatal(err)
					}
					if again {
						h.stop()
						h = open(t, place, base, fakellm.New(t))
					}
					if got := answer(h.answered(t, id)); !strings.Contains(got, c.want) {
						t.Errorf("restart %t: it ends with %q, want %q", again, got, c.want)
					}
				}
			})
		})
	}
}

// TestS_59_WaitingRunOfTheFile: the same for a team of the configuration file, across a restart with another file.
func TestS_59_WaitingRunOfTheFile(t *testing.T) {
	t.Parallel()
	file := func(member, says string) string {
		return fmt.Sprintf(`version: v1
agents: {%[1]s: {scripted: {steps: [{text: %[2]q}]}}}
teams: {t: {members: [{agent: %[1]s}], workflow: {steps: [{id: ask, human: {question: "Go on?"}}, {id: say, agent: %[1]s}]}}}
server: {auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}}
`, member, says)
	}
	for _, place := range []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL} {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			h := open(t, at, file("old", "the first text"), fakellm.New(t))
			id := asks(t, h.Target, "t")
			h.stop()
			h = open(t, at, file("new", "the second text"), fakellm.New(t))
			if got := answer(h.answered(t, id)); got != "the first text" {
				t.Errorf("it ends with %q", got)
			}
		})
	}
}
