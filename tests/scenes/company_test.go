package scenes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// company is a leader above a team, MODE says of which mode, and a writer.
const company = `agents:
  backend: {model: backend, instructions: Build servers., description: Builds servers.}
  frontend: {model: frontend, instructions: Build pages., description: Builds pages.}
  writer: {model: writer, instructions: Write., description: Writes.}
teams:
  dev:
    description: Builds software.
    members: [{agent: backend}, {agent: frontend}]
    MODE
  pm:
    members: [{agent: dev}, {agent: writer}]
    coordinator: {leader: {model: pm}}
`

// TestS_39_NestedHistory has two turns in one context go through three levels of
// leaders, whose members are shown the parent's branch.
func TestS_39_NestedHistory(t *testing.T) {
	file := `agents:
  worker: {model: worker, instructions: Work., description: Works.}
teams:
  low: {members: [{agent: worker}], coordinator: {leader: {model: low}}}
  mid: {members: [{agent: low}], coordinator: {leader: {model: mid}}}
  top: {members: [{agent: mid}], coordinator: {leader: {model: top}}}
`
	eachScene(t, "top mid low worker", file, func(t *testing.T, s *scene) {
		for _, turn := range []string{"1", "2"} {
			s.script("top", acts(gives("mid", "mid task "+turn)), speaks("top answer "+turn))
			s.script("mid", acts(gives("low", "low task "+turn)), speaks("mid answer "+turn))
			s.script("low", acts(gives("worker", "work "+turn)), speaks("low answer "+turn))
			s.script("worker", speaks("worked "+turn))
			req := rig.Text("top", "m"+turn, "user says "+turn)
			req.Message.ContextId = "talk"
			resp, err := s.clients[0].Send(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, resp.GetTask(), "top answer "+turn)
		}
		const earlier = "user: Earlier in this conversation:\n- "
		for model, want := range map[string][]string{
			"top": {earlier + `mid was asked "mid task 1": SUCCEEDED`, "user: user says 1", "assistant: top answer 1", "user: user says 2"},
			"mid": {earlier + `low was asked "low task 1": SUCCEEDED`, "user: mid task 1", "assistant: mid answer 1", "user: user says 2", "user: mid task 2"},
			"low": {earlier + `worker was asked "work 1": SUCCEEDED`, "user: low task 1", "assistant: low answer 1", "user: mid task 2", "user: low task 2"},
		} {
			var got []string
			for _, m := range s.asked(model)[2].Messages { // the first of the second turn
				got = append(got, m.Role+": "+m.Text)
			}
			if diff := cmp.Diff(rig.Merged(want...), got); diff != "" {
				t.Errorf("S-39 R-004-12 what %s is asked in its second turn (-want +got):\n%s", model, diff)
			}
		}
		t.Run("S-39 S-56 also where the parent is on another server", func(t *testing.T) {
			for _, call := range []*teamv1.ProcessRequest{
				{Message: agent.UserMessage("p1", "far task 1")},
				{Message: agent.UserMessage("p2", "far task 2"), History: []*a2av1.Message{agent.UserMessage("h", "far branch")}, Branch: true},
				{Message: agent.UserMessage("p3", "far task 3"), History: []*a2av1.Message{agent.UserMessage("h", "far talk")}},
			} {
				call.AgentId, call.ContextId = "low", "far"
				s.script("low", speaks("far answer"))
				if _, err := s.agents.Process(s.grpc.Context(t.Context()), call); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, r := range s.asked("low")[5:] {
				for _, m := range r.Messages {
					got = append(got, m.Text)
				}
			}
			want := []string{"far task 1", "far answer", "far branch\n\nfar task 2", "far talk\n\nfar task 3"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("S-39 R-002-30 and its own delegations", func(t *testing.T) {
			holds(t, s.asked("low")[2].Messages[0].Text, `worker was asked "work 1": SUCCEEDED`)
		})
	})
}

func TestS_36_Hierarchy(t *testing.T) {
	led := strings.Replace(company, "MODE", "coordinator: {leader: {model: dev}}", 1)
	eachScene(t, "pm dev backend frontend writer", led, func(t *testing.T, s *scene) {
		s.script("pm", acts(gives("dev", "build it"), gives("writer", "describe it")), speaks("shipped"))
		s.script("dev", acts(gives("backend", "the server"), gives("frontend", "the page")), speaks("built"))
		s.script("backend", speaks("a server"))
		s.script("frontend", speaks("a page"))
		s.script("writer", speaks("a text"))
		r := s.play("pm", "a product").completed("shipped")
		t.Run("S-36 R-004-06 three levels of tasks", func(t *testing.T) {
			for scope, text := range map[string]string{"2": "built", "2.2": "a server", "2.3": "a page", "3": "a text"} {
				wantText(t, r.task(scope), text)
			}
		})
		t.Run("S-36 a leader sees its direct members only", func(t *testing.T) {
			if diff := cmp.Diff([]string{"delegate_to_dev", "delegate_to_writer"}, s.asked("pm")[0].Tools); diff != "" {
				t.Error(diff)
			}
			holds(t, s.asked("pm")[0].System, "- dev: Builds software.", "- writer: Writes.")
			if text := string(s.asked("pm")[1].Body); strings.Contains(text, "a server") {
				t.Error("R-004-15 what is done inside reaches the leader above: ", text)
			}
		})
		t.Run("S-36 events carry the whole path", func(t *testing.T) {
			paths := map[string]bool{}
			for _, ev := range r.events {
				paths[ev.GetAgent()] = true
			}
			for _, path := range []string{"pm", "pm/dev", "pm/dev/backend", "pm/dev/frontend", "pm/writer"} {
				if !paths[path] {
					t.Errorf("no event of %s", path)
				}
			}
		})
		t.Run("C-14 R-002-22 the writer has the team's result, not the request of its members", func(t *testing.T) {
			holds(t, s.asked("writer")[0].Last(), "describe it", "dev: succeeded\n\nbuilt")
		})
	})

	swarmed := strings.Replace(company, "MODE", "swarm: {entry_member: backend}", 1)
	eachScene(t, "pm dev backend frontend writer", swarmed, func(t *testing.T, s *scene) {
		t.Run("S-36 R-004-10 the inner team a swarm", func(t *testing.T) {
			s.script("pm", acts(gives("dev", "build it")), speaks("shipped"))
			s.script("backend", handsTo("frontend"))
			s.script("frontend", speaks("a page"))
			r := s.play("pm", "a product").completed("shipped")
			holds(t, s.asked("pm")[1].Last(), "dev: succeeded\n\na page")
			wantText(t, r.task("2.2"), "a page")
			if got := s.asked("pm")[0].Tools; slices.Contains(got, "transfer_to_agent") {
				t.Error(got)
			}
		})
	})
}

func TestS_24_CancelCascades(t *testing.T) {
	file := `agents:
  worker: {model: worker, instructions: Work.}
  far: {a2a: {card: "${FAR}/.well-known/agent-card.json"}}
teams:
  inner:
    members: [{agent: worker}]
    coordinator: {leader: {model: inner}}
  middle:
    members: [{agent: inner}, {agent: far}]
    coordinator: {leader: {model: middle}, allow_parallel: true}
  top:
    members: [{agent: middle}]
    coordinator: {leader: {model: top}}
`
	for _, mode := range []string{"", "async"} {
		for _, place := range []func(testing.TB) rig.Place{rig.Memory, rig.SQLite} {
			at := place(t)
			text := file
			if mode != "" {
				text = strings.Replace(text, "allow_parallel: true", "async: true", 1)
			}
			t.Run("S-24 "+mode+at.Name, func(t *testing.T) {
				far := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Gate: make(chan struct{})}})
				s := newScene(t, at, "top middle inner worker", text, map[string]string{"FAR": far.URL()})
				gate := fakellm.NewGate()
				s.script("top", acts(gives("middle", "go")))
				s.script("middle", acts(gives("inner", "go"), gives("far", "go")), speaks("soon"))
				s.script("inner", acts(gives("worker", "go")))
				s.script("worker", fakellm.Turn{Text: "late", Gate: gate})
				r := s.begin("top", "go")
				s.arrived(gate, 1)
				far.Await(t, "SendStreamingMessage", 1)
				s.until(r.id, func(task *a2av1.Task) bool { return hasBound(r.s, r.id) })
				began := time.Now()
				if _, err := s.clients[1].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: r.id}); err != nil {
					t.Fatal(err)
				}
				r.wait()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("S-24 it took %s", took)
				}
				for _, scope := range []string{"", "2", "2.2", "2.2.2", "2.3"} {
					if state := r.task(scope).GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_CANCELED {
						t.Errorf("S-24 task %q is %s", scope, state)
					}
				}
				s.quiet()
				if !s.asked("worker")[0].Gone {
					t.Error("S-24 the worker's request was not closed")
				}
				far.Await(t, "CancelTask", 1)
				r.verify()
			})
		}
	}
}

// hasBound reports whether a remote task is on record.
func hasBound(s *scene, id string) bool {
	records, err := s.store.Events(s.t.Context(), runs.Key{Owner: "local/local", ID: id}, 0, 10000)
	return err == nil && slices.ContainsFunc(records, func(r runs.Record) bool { return r.Event.GetBound().GetTaskId() != "" })
}

func TestS_25_ClientDropsStream(t *testing.T) {
	eachScene(t, deskModels, deskWith("allow_parallel: true", "", ""), func(t *testing.T, s *scene) {
		gate := fakellm.NewGate()
		s.script("lead", acts(gives("a", "1"), gives("b", "2")), speaks("done"))
		s.script("a", speaks("A says"))
		s.script("b", fakellm.Turn{Text: "B says", Gate: gate})
		target := s.Target
		target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
		c := rig.NewREST(target)
		var id string
		var seen []*a2av1.StreamResponse
		for u, err := range c.Stream(t.Context(), rig.Text("desk", "m", "go")) {
			if err != nil {
				t.Fatal(err)
			}
			if id == "" {
				id = u.GetTask().GetId()
			}
			seen = append(seen, u)
			if len(seen) == 6 {
				break // the client drops the stream
			}
		}
		s.arrived(gate, 1)
		cursor := cursorOf(seen[len(seen)-1])
		gate.Open()
		t.Run("S-25 the work goes on; who subscribes behind a sequence gets what follows, without a gap or a repeat", func(t *testing.T) {
			s.until(id, ended)
			all, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, 1))
			if err != nil {
				t.Fatal(err)
			}
			rest, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: id}, cursor))
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(all, func(u *a2av1.StreamResponse) bool { return cursorOf(u) == cursor })
			if diff := cmp.Diff(all[at+1:], rest, protocmp.Transform()); diff != "" || at < 0 {
				t.Error(diff)
			}
			wantText(t, s.get(id), "done")
		})
	})
}

// cursorOf is the sequence behind an update; 0 where more of its event follows.
func cursorOf(u *a2av1.StreamResponse) int64 {
	switch k := u.GetPayload().(type) {
	case *a2av1.StreamResponse_Task:
		return a2a.RunOf(k.Task.GetMetadata()).GetSeq()
	case *a2av1.StreamResponse_StatusUpdate:
		return a2a.RunOf(k.StatusUpdate.GetMetadata()).GetSeq()
	case *a2av1.StreamResponse_ArtifactUpdate:
		return a2a.RunOf(k.ArtifactUpdate.GetMetadata()).GetSeq()
	}
	return 0
}

// asks are two members that ask, and one that does not, under a leader.
const asks = `agents:
  left: {scripted: {steps: [{ask: "left?"}, {text: "left heard {{answer}}"}]}}
  right: {scripted: {steps: [{ask: "right?"}, {text: "right heard {{answer}}"}]}}
  c: {model: c, instructions: Work.}
teams:
  desk:
    members: [{agent: left}, {agent: right}, {agent: c}]
    coordinator: {leader: {model: lead}, SET}
`

// questions are those a task lists: who asks what.
func questions(task *a2av1.Task) []string {
	var list []string
	for _, q := range a2a.RunOf(task.GetMetadata()).GetQuestions() {
		list = append(list, strings.TrimPrefix(q.GetDelegationId(), task.GetId())+" "+q.GetPath()+" "+agent.Text(q.GetMessage()))
	}
	slices.Sort(list)
	return list
}

func waits(open ...string) func(*a2av1.Task) bool {
	return func(task *a2av1.Task) bool {
		return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && slices.Equal(questions(task), open)
	}
}

// tell sends an answer to a task.
func (s *scene) tell(id, text string) {
	s.t.Helper()
	req := rig.Text("", "answer-"+strings.ReplaceAll(text, " ", "-"), text)
	req.Message.TaskId = id
	if _, err := s.clients[2].Send(s.t.Context(), req); err != nil {
		s.t.Fatal(err)
	}
}

func TestS_51_QuestionsUnderALeader(t *testing.T) {
	both := []string{"~2 desk/left left?", "~3 desk/right right?"}
	for _, set := range []string{"allow_parallel: true", "async: true"} {
		eachScene(t, "lead c", strings.Replace(asks, "SET", set, 1), func(t *testing.T, s *scene) {
			t.Run("S-51 two ask, the second is answered first, the server is restarted in between: "+set, func(t *testing.T) {
				gate := fakellm.NewGate()
				s.llm.Answer("lead-model", func(r *fakellm.Request) fakellm.Turn {
					switch {
					case len(r.Messages) == 1:
						return acts(gives("left", "1"), gives("right", "2"), gives("c", "3"))
					case strings.HasPrefix(set, "async") && !strings.Contains(r.Last(), "The delegated tasks have ended"):
						return speaks("soon")
					}
					return speaks("done")
				})
				s.script("c", fakellm.Turn{Text: "C says", Gate: gate}, speaks("C again"))
				r := s.begin("desk", "go")
				s.arrived(gate, 1)
				s.until(r.id, func(task *a2av1.Task) bool { // while c works
					return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_WORKING && slices.Equal(questions(task), both)
				})
				gate.Open()
				s.until(r.id, waits(both...))
				s.restart()
				s.until(r.id, waits(both...))
				s.tell(r.id+"~3", "right answer")
				s.until(r.id, waits(both[0]))
				s.restart()
				s.until(r.id, waits(both[0]))
				s.tell(r.id, "left answer") // the only one left
				s.until(r.id, ended)
				r.again().completed("done")
				r.verify()
				wantText(t, r.task("2"), "left heard left answer")
				wantText(t, r.task("3"), "right heard right answer")
				if n := len(s.asked("c")); n != 1 {
					t.Errorf("c worked %d times", n)
				}
				reqs := s.asked("lead")
				holds(t, string(reqs[len(reqs)-1].Body), "left heard left answer", "right heard right answer", "C says")
				if want := map[bool]int{true: 3, false: 2}[strings.HasPrefix(set, "async")]; len(reqs) != want {
					t.Errorf("the leader was asked %d times, want %d", len(reqs), want)
				}
			})
		})
	}
}

// TestS_50_KilledInTheMiddle kills a server while a leader's members work, and
// counts what runs again.
func TestS_50_KilledInTheMiddle(t *testing.T) {
	for _, set := range []string{"allow_parallel: true", "", "async: true"} {
		eachScene(t, deskModels, deskWith(set, "", ""), func(t *testing.T, s *scene) {
			t.Run("S-50 A-13 "+set, func(t *testing.T) {
				gate := fakellm.NewGate()
				s.llm.Answer("lead-model", func(r *fakellm.Request) fakellm.Turn {
					switch {
					case len(r.Messages) == 1:
						return acts(gives("a", "1"), gives("b", "2"))
					case strings.HasPrefix(set, "async") && !strings.Contains(string(r.Body), "The delegated tasks have ended"):
						return speaks("soon")
					}
					return speaks("done")
				})
				s.script("a", speaks("A says"))
				s.script("b", fakellm.Turn{Text: "never", Gate: gate}, speaks("B says"))
				r := s.begin("desk", "go")
				s.arrived(gate, 1)
				s.until(r.id+"~2", ended)
				if strings.HasPrefix(set, "async") { // it is known that the leader has answered
					s.until(r.id, func(*a2av1.Task) bool { return len(s.asked("lead")) >= 2 && turns(s, r.id) >= 2 })
				}
				s.restart()
				s.until(r.id, ended)
				r.again().completed("done")
				r.verify()
				want := map[string]int{"lead": 2, "a": 1, "b": 2}
				if strings.HasPrefix(set, "async") {
					want["lead"] = 3
				}
				got := map[string]int{"lead": len(s.asked("lead")), "a": len(s.asked("a")), "b": len(s.asked("b"))}
				if !s.at.Durable { // stopped in good order; what was at work began again all the same
					want["b"] = 2
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("what ran once and what ran twice:\n%s", diff)
				}
				keys := map[string]bool{}
				for _, req := range s.asked("b") {
					keys[req.Header.Get("Idempotency-Key")] = true
				}
				if len(keys) != 1 {
					t.Errorf("the second call of b has another key: %v", keys)
				}
			})
		})
	}
}

// turns counts the leader's turns on record.
func turns(s *scene, id string) int {
	records, err := s.store.Events(s.t.Context(), runs.Key{Owner: "local/local", ID: id}, 0, 10000)
	if err != nil {
		return 0
	}
	n := 0
	for _, rec := range records {
		if rec.Event.GetEnded().GetTurn() != nil && rec.Event.GetAgent() == "desk" && !strings.Contains(rec.Event.GetScope(), ".") {
			n++
		}
	}
	return n
}

// TestS_50_SwarmKilledInTheMiddle kills a server while the second member of a
// swarm works.
func TestS_50_SwarmKilledInTheMiddle(t *testing.T) {
	eachScene(t, "a b c", swarm("a b c", "", ""), func(t *testing.T, s *scene) {
		t.Run("S-50 a swarm: who has handed over does not run again", func(t *testing.T) {
			gate := fakellm.NewGate()
			s.script("a", handsTo("b"))
			s.script("b", fakellm.Turn{Text: "never", Gate: gate}, handsTo("c"))
			s.script("c", speaks("C says"))
			r := s.begin("desk", "go")
			s.arrived(gate, 1)
			s.restart()
			s.until(r.id, ended)
			r.again().completed("C says")
			r.verify()
			if got := []int{len(s.asked("a")), len(s.asked("b")), len(s.asked("c"))}; !slices.Equal(got, []int{1, 2, 1}) {
				t.Error(got)
			}
			if n := r.handoffs(); n != 2 {
				t.Error(n)
			}
		})
	})
}
