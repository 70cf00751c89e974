package managed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
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
	t.Parallel()
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

// TestT_13_WaitingRunOfAnotherAccount: a task of a team waits, the team is deleted, and another account makes a team with
// the same id: with another member, with the same text, with a disabled member, or for other media types. The task goes
// on with its own team, also across a restart, and whatever the other account halts.
func TestT_13_WaitingRunOfAnotherAccount(t *testing.T) {
	t.Parallel()
	mine := gated("old", "first", "the first text", "")
	for name, theirs := range map[string]string{
		"other members":   gated("new", "first", "their text", ""),
		"the same":        mine,
		"disabled member": strings.Replace(strings.Replace(mine, "agent: first}", "agent: first, enabled: false}, {agent: parrot}", 1), "say, agent: old", "say, agent: parrot", 1),
		"other media":     gated("old", "first", "their text", "access: {accounts: [acme]}, input_modes: [image/png], "),
	} {
		t.Run(name, func(t *testing.T) {
			rig.EachStore(t, func(t *testing.T, at rig.Place) {
				for _, again := range []bool{false, true} {
					if again && !at.Durable {
						continue
					}
					place := at.Another(t)
					h := open(t, place, guardedFile, fakellm.New(t))
					a := apis(t, h.Target)[0]
					a.create(t, mine)
					id := asks(t, h.Target, "t")
					if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "t"}); err != nil {
						t.Fatal(err)
					}
					eve := h.As("other", "eve")
					apis(t, eve)[0].create(t, theirs)
					halts := teamv1.NewHaltServiceClient(rig.Services(t, eve)[0])
					for kind, of := range map[teamv1.HaltKind]string{ofTeam: "t", ofAgent: "first"} {
						resp, err := halts.Halt(t.Context(), &teamv1.HaltRequest{Kind: kind, Name: of, Reason: "theirs"})
						if err != nil || resp.GetTotal() != 0 {
							t.Fatalf("%v, %v", resp, err)
						}
					}
					if again {
						h.stop()
						h = open(t, place, guardedFile, fakellm.New(t))
					}
					if got := answer(h.answered(t, id)); got != "the first text" {
						t.Errorf("restart %t: it ends with %q", again, got)
					}
				}
			})
		})
	}
}

// TestHalt_OfADeletedTeam: a halt of a team stays with its account: when the team is deleted and another account makes one
// with the same id, it does not cover that one, only its own account can end it, and it covers the tasks that its
// account's team has begun. Its account can halt and resume its next team of the id.
func TestHalt_OfADeletedTeam(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for _, pause := range []bool{false, true} {
			h := open(t, at.Another(t), guardedFile, fakellm.New(t))
			ann, eve := apis(t, h.Target)[0], apis(t, h.As("other", "eve"))[0]
			mine, theirs := teamv1.NewHaltServiceClient(rig.Services(t, h.Target)[0]), teamv1.NewHaltServiceClient(rig.Services(t, h.As("other", "eve"))[0])
			ann.create(t, gated("old", "first", "the first text", ""))
			id := asks(t, h.Target, "t")
			if _, err := mine.Halt(t.Context(), &teamv1.HaltRequest{Kind: ofTeam, Name: "t", Reason: "mine", Pause: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := ann.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "t"}); err != nil {
				t.Fatal(err)
			}
			eve.create(t, gated("new", "second", "their text", ""))
			asks(t, h.As("other", "eve"), "t")
			if list, err := theirs.ListHalts(t.Context(), &teamv1.ListHaltsRequest{}); err != nil || len(list.GetHalts()) != 0 {
				t.Errorf("the other account sees %v, %v", list, err)
			}
			if resp, err := theirs.Resume(t.Context(), &teamv1.ResumeRequest{Kind: ofTeam, Name: "t"}); err != nil || resp.GetHalt() != nil {
				t.Errorf("the other account ends %v, %v", resp, err)
			}
			_, err := theirs.Resume(t.Context(), &teamv1.ResumeRequest{Kind: ofTeam, Name: "t", Account: "acme"})
			fault(t, err, "PermissionDenied", "PERMISSION_DENIED")
			resp, err := theirs.Halt(t.Context(), &teamv1.HaltRequest{Kind: ofTeam, Name: "t", Reason: "theirs", Pause: pause})
			if err != nil || resp.GetHalt().GetAccount() != "other" || !pause && resp.GetTotal() != 1 {
				t.Errorf("the other account halts its own: %v, %v", resp, err)
			}
			req := rig.Text("", uuid.NewString(), "yes")
			req.Message.TaskId = id
			_, err = h.send(t, req)
			if f := fault(t, err, "FailedPrecondition", "HALTED"); f != nil && f.Details["why"] != "mine" {
				t.Errorf("the answer is refused because of %v", f.Details)
			}
			if list, err := mine.ListHalts(t.Context(), &teamv1.ListHaltsRequest{}); err != nil || len(list.GetHalts()) != 1 || list.GetHalts()[0].GetReason() != "mine" {
				t.Errorf("the account sees %v, %v", list, err)
			}
			if resp, err := mine.Resume(t.Context(), &teamv1.ResumeRequest{Kind: ofTeam, Name: "t"}); err != nil || resp.GetHalt().GetReason() != "mine" {
				t.Errorf("the account ends %v, %v", resp, err)
			}
			if got := answer(h.answered(t, id)); got != "the first text" {
				t.Errorf("it ends with %q", got)
			}
		}
	})
}

// TestT_13_NextTeamOfTheID: a caller works with a team of its account, then, by access, with the one that another account
// has made with the same id. The second team has an empty board, does not know the conversation, and gets a message whose
// id the first one has had. A call by key finds the task of the first one.
func TestT_13_NextTeamOfTheID(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "I am told: " + string(r.Body)} })
		h := open(t, at, guardedFile, llm)
		chat := "agents:\n  ear: {scripted: {steps: [{text: heard}]}}\nteams:\n  t: {%sboard: true, members: [{agent: ear}], coordinator: {leader: {model: open}}}\n"
		ann, eve := apis(t, h.Target)[0], apis(t, h.As("other", "eve"))[0]
		boards, agents := teamv1.NewBoardServiceClient(rig.Services(t, h.Target)[0]), teamv1.NewAgentServiceClient(rig.Services(t, h.Target)[0])
		say := func(id, text string) *a2av1.Task {
			req := rig.Text("t", id, text)
			req.Message.ContextId = "c-1"
			task, err := h.send(t, req)
			if err != nil {
				t.Fatal(err)
			}
			return task
		}
		ann.create(t, fmt.Sprintf(chat, ""))
		first := say("m-1", "the pearl")
		if got := answer(say("m-2", "and now?")); !strings.Contains(got, "the pearl") {
			t.Fatalf("the team of the account does not remember: %q", got)
		}
		if _, err := boards.AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "t", ItemId: "w-1", Title: "the pearl"}); err != nil {
			t.Fatal(err)
		}
		if _, err := ann.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "t"}); err != nil {
			t.Fatal(err)
		}
		eve.create(t, fmt.Sprintf(chat, "access: {accounts: [acme]}, "))
		if got := answer(say("m-3", "and now?")); strings.Contains(got, "the pearl") {
			t.Errorf("the team of the other account is told %q", got)
		}
		list, err := boards.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "t"})
		if err != nil || len(list.GetItems()) != 0 {
			t.Errorf("the board of the other account's team: %v, %v", list, err)
		}
		if stopped, err := agents.Cancel(t.Context(), &teamv1.CancelRequest{AgentId: "t", Key: "m-1"}); err != nil || stopped.GetState() != first.GetStatus().GetState() {
			t.Errorf("by key: %v, %v", stopped, err)
		}
		if second := say("m-1", "the pearl"); second.GetId() == first.GetId() {
			t.Error("the message to the other account's team is answered by the first one")
		}
	})
}
