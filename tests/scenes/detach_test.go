package scenes

import (
	"regexp"
	"slices"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const detached = "async: true, on_open_delegations: DETACH"

// ticketID is a task's id as a leader is told it.
var ticketID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// detach has the leader give a work to a, which a gate holds, and answer. It returns
// the ended run and the id of the task that goes on.
func (s *scene) detach(gate *fakellm.Gate) (r *ran, ticket string) {
	s.t.Helper()
	s.script("lead", acts(gives("a", "dig")), speaks("It is under way."))
	s.script("a", fakellm.Turn{Text: "A hole.", Gate: gate})
	r = s.begin("desk", "please dig").wait().completed("It is under way.")
	s.arrived(gate, 1)
	told := results(s.asked("lead")[1])[0]
	if ticket = ticketID.FindString(told); ticket == "" || ticket == r.id {
		s.t.Fatalf("the leader is told %q", told)
	}
	return r, ticket
}

// checkTask checks the invariants of a task that nobody streams.
func (s *scene) checkTask(id string) {
	s.t.Helper()
	rig.Invariants{Target: s.Target, Store: s.store, Models: []rig.Models{s.llm}}.Check(s.t, id)
}

// TestC_09_Detach: work that is not waited for is a task of its own: it has its own
// id, ends when it ends, and is not the lead's any more.
func TestC_09_Detach(t *testing.T) {
	eachScene(t, deskModels, deskWith(detached, "", ""), func(t *testing.T, s *scene) {
		gate := fakellm.NewGate()
		r, ticket := s.detach(gate)
		t.Run("C-09 C-28 R-003-11 the run has ended, and the ticket is a task that works, of the same conversation", func(t *testing.T) {
			child := s.get(ticket)
			if child.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING || child.GetContextId() != r.task("").GetContextId() {
				t.Error(child)
			}
			if n := len(r.lost()); n != 0 {
				t.Error(r.lost())
			}
		})
		t.Run("C-28 it is listed beside the lead's", func(t *testing.T) {
			list, err := s.clients[2].List(t.Context(), &a2av1.ListTasksRequest{ContextId: r.task("").GetContextId()})
			if err != nil || len(list.GetTasks()) != 2 {
				t.Error(list, err)
			}
		})
		gate.Open()
		t.Run("C-09 it ends by itself, with what its member said", func(t *testing.T) {
			wantText(t, s.until(ticket, ended), "A hole.")
			s.checkTask(ticket)
		})
		r.again().verify() // the run that began it is as it was
	})

	eachScene(t, deskModels, deskWith(detached, "", ""), func(t *testing.T, s *scene) {
		t.Run("C-28 CancelTask ends it, and closes the member's request; the lead's run stays as it was", func(t *testing.T) {
			gate := fakellm.NewGate()
			r, ticket := s.detach(gate)
			task, err := s.clients[1].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: ticket})
			if err != nil || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Fatal(task, err)
			}
			s.quiet()
			if !s.asked("a")[0].Gone {
				t.Error("the request was answered")
			}
			s.checkTask(ticket)
			r.completed("It is under way.").verify()
		})
	})

	eachScene(t, deskModels, deskWith(detached, "", ""), func(t *testing.T, s *scene) {
		t.Run("C-09 a cancel of the lead's run does not reach it", func(t *testing.T) {
			gate, hold := fakellm.NewGate(), fakellm.NewGate()
			s.script("lead", acts(gives("a", "dig")), fakellm.Turn{Text: "late", Gate: hold})
			s.script("a", fakellm.Turn{Text: "A hole.", Gate: gate})
			r := s.begin("desk", "please dig")
			s.arrived(gate, 1)
			s.arrived(hold, 1)
			ticket := ticketID.FindString(results(s.asked("lead")[1])[0])
			if _, err := s.clients[0].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: r.id}); err != nil {
				t.Fatal(err)
			}
			if r.wait(); r.task("").GetStatus().GetState() != a2av1.TaskState_TASK_STATE_CANCELED {
				t.Error(r.task(""))
			}
			if state := s.get(ticket).GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_WORKING {
				t.Errorf("it is %s", state)
			}
			gate.Open()
			wantText(t, s.until(ticket, ended), "A hole.")
			s.checkTask(ticket)
		})
	})

	eachScene(t, deskModels, deskWith(detached, "", ""), func(t *testing.T, s *scene) {
		t.Run("S-23 R-003-12 it is begun once while it is open, and can be looked at", func(t *testing.T) {
			gate := fakellm.NewGate()
			look := fakellm.Turn{Calls: []fakellm.Call{{ID: "k", Name: "check_delegated_tasks", Arguments: `{"wait_seconds":30}`}}}
			look.Gate = fakellm.NewGate()
			s.script("lead", acts(gives("a", "dig")), acts(gives("a", "dig")), look, speaks("found it"))
			s.script("a", fakellm.Turn{Text: "A hole.", Gate: gate})
			r := s.begin("desk", "please dig")
			s.arrived(gate, 1)
			s.arrived(look.Gate, 1)
			ticket := ticketID.FindString(results(s.asked("lead")[1])[0])
			holds(t, results(s.asked("lead")[2])[0], "begun already, as "+ticket)
			look.Gate.Open()
			s.until(r.id, func(*a2av1.Task) bool { return s.looks(r.id) }) // nothing of the run works then but that
			gate.Open()
			r.wait().completed("found it").verify()
			holds(t, results(s.asked("lead")[3])[0], ticket, "A hole.")
			if n := len(s.asked("a")); n != 1 {
				t.Errorf("a was asked %d times", n)
			}
		})
	})
}

// looks reports whether a check has begun.
func (s *scene) looks(id string) bool {
	records, err := s.store.Events(s.t.Context(), runs.Key{Owner: rig.LocalOwner, ID: id}, 0, 10000)
	return err == nil && slices.ContainsFunc(records, func(r runs.Record) bool {
		return slices.ContainsFunc(r.Event.GetDecided().GetSteps(), func(st *teamv1.Step) bool { return st.GetKind() == teamv1.Step_KIND_TOOL })
	})
}

// TestS_65_WokenByAFailure: the detached work fails; the lead is told so in a run of
// its own, also after a restart in between.
func TestS_65_WokenByAFailure(t *testing.T) {
	for name, restarted := range map[string]bool{"S-65 R-003-03 the lead is told": false, "S-65 the lead is told by another process": true} {
		eachScene(t, deskModels, deskWith(detached+", wake_on_completion: true", "", ""), func(t *testing.T, s *scene) {
			t.Run(name, func(t *testing.T) {
				gate := fakellm.NewGate()
				r, ticket := s.detach(gate)
				s.script("lead", speaks("It did not work."))
				s.script("a", fakellm.Turn{Status: 400, Message: "no spade"}) // what a new process is answered
				if restarted {
					s.restart()
				} else {
					if _, err := s.clients[0].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: ticket}); err != nil {
						t.Fatal(err)
					}
				}
				child := s.until(ticket, ended)
				s.checkTask(ticket)
				if e := a2a.RunOf(child.GetMetadata()).GetError(); restarted && e.GetReason() != agent.ReasonUnavailable {
					t.Error(child)
				}
				woken := s.woken(r.task("").GetContextId(), r.id, ticket)
				wantText(t, woken, "It did not work.")
				reqs := s.asked("lead")
				holds(t, reqs[len(reqs)-1].Last(), ticket, map[bool]string{true: "failed", false: "canceled"}[restarted])
				if n := len(reqs); n != 3 {
					t.Errorf("the lead was asked %d times, want once more", n)
				}
			})
		})
	}
}

// woken waits for the run of a conversation that none of ids is, to its end.
func (s *scene) woken(contextID string, ids ...string) *a2av1.Task {
	s.t.Helper()
	if err := s.llm.WaitFor(s.t.Context(), func(rs []fakellm.Request) bool { return len(rs) >= 3 }, "lead-model"); err != nil {
		s.t.Fatal(err)
	}
	list, err := s.clients[1].List(s.t.Context(), &a2av1.ListTasksRequest{ContextId: contextID})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, task := range list.GetTasks() {
		if task.GetId() != ids[0] && task.GetId() != ids[1] {
			return s.until(task.GetId(), ended)
		}
	}
	s.t.Fatalf("nobody was woken: %v", list)
	return nil
}
