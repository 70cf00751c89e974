package managed

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// mining is a team whose leader gives work to a task of its own and is told of its end.
const mining = `
agents:
  digger: {model: open, instructions: Dig.}
teams:
  mine: {members: [{agent: digger}], coordinator: {leader: {model: open}, async: true, on_open_delegations: DETACH, wake_on_completion: true}}
`

// TestT_13_ReusedID: a team is deleted while a task that it began works, and another account makes a team
// with the same id. The end of the task, with its text, is not told to that team. To a new team of the
// same account it is.
func TestT_13_ReusedID(t *testing.T) {
	for by, tasks := range map[string]int32{"other": 2, "acme": 3} {
		t.Run(by, func(t *testing.T) {
			llm, gate := fakellm.New(t), fakellm.NewGate()
			t.Cleanup(gate.Open)
			llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
				switch {
				case strings.Contains(r.System, "Dig."):
					return fakellm.Turn{Text: "gold at the creek", Gate: gate}
				case strings.Contains(r.System, "Listen."):
					return fakellm.Turn{Text: "heard"}
				case r.Messages[len(r.Messages)-1].ToolCallID == "":
					return fakellm.Turn{Calls: []fakellm.Call{{ID: "1", Name: "delegate_to_digger", Arguments: `{"task": "dig"}`}}}
				}
				return fakellm.Turn{Text: "It digs."}
			})
			h := open(t, rig.Memory(t), guardedFile, llm)
			ann := apis(t, h.Target)[0]
			ann.create(t, mining)
			c := rig.NewREST(h.Target)
			if _, err := c.Send(t.Context(), rig.Text("mine", "m1", "find gold")); err != nil {
				t.Fatal(err)
			}
			if _, err := ann.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "mine", Force: true}); err != nil {
				t.Fatal(err)
			}
			apis(t, h.As(by, map[string]string{"other": "eve", "acme": "bob"}[by]))[0].create(t, `
agents:
  ear: {model: open, instructions: Listen.}
teams:
  mine: {members: [{agent: ear}], coordinator: {leader: {model: open, instructions: Listen.}}}
`)
			gate.Open()
			for seen := int32(0); ; {
				list, err := c.List(t.Context(), &a2av1.ListTasksRequest{PageSize: proto.Int32(10)})
				if err != nil {
					t.Fatal(err)
				}
				ended := int32(0)
				for _, task := range list.GetTasks() {
					if task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_COMPLETED {
						ended++
					}
				}
				// The next task begins before the end of the last one is recorded, but a list that was counted before
				// may show that end. So the same tasks have to be listed twice.
				if ended < 2 || ended < list.GetTotalSize() || ended != seen {
					seen = ended
					continue
				}
				if ended != tasks {
					t.Errorf("%d tasks, want %d: %v", ended, tasks, list.GetTasks())
				}
				break
			}
			for _, r := range llm.Requests() {
				if by == "other" && strings.Contains(r.System, "Listen.") {
					t.Errorf("the other account's team was told: %s", r.Body)
				}
			}
		})
	}
}
