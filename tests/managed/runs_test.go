package managed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// asking is a team whose member asks, and then says a word.
func asking(word string) string {
	return fmt.Sprintf("agents:\n  curious: {scripted: {steps: [{ask: \"Which?\"}, {text: \"%s {{answer}}\"}]}}\nteams:\n  paused: {members: [{agent: curious}], %s}\n", word, rules("curious"))
}

// working is a team whose first member asks the model, and whose second says a word.
func working(word string) string {
	return fmt.Sprintf("agents:\n  thinker: {model: m, instructions: Think.}\n  sayer: {scripted: {steps: [{text: \"%s {{input}}\"}]}}\n"+
		"teams:\n  running: {workflow: {steps: [{id: a, agent: thinker}, {id: b, agent: sayer, after: [a], task: \"{{steps.a.text}}\"}]}}\n", word)
}

// TestR_003_17_RunsKeepTheirRevision: a task that waits and one that works end as they
// began, whatever becomes of their teams, and whether the server starts anew meanwhile.
func TestR_003_17_RunsKeepTheirRevision(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for _, what := range []string{"update", "delete"} {
			for _, again := range []bool{false, true} {
				if again && !at.Durable {
					continue
				}
				t.Run(fmt.Sprintf("%s, restart %t", what, again), func(t *testing.T) {
					llm := fakellm.New(t)
					gate := fakellm.NewGate()
					t.Cleanup(gate.Open)
					llm.Script("m", fakellm.Turn{Text: "thought", Gate: gate, Forever: true})
					h := open(t, at, base, llm)
					a := apis(t, h.Target)[0]
					a.create(t, asking("OLD"))
					a.create(t, working("OLD"))
					waiting, err := h.send(t, rig.Text("paused", uuid.NewString(), "x"))
					if err != nil || waiting.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
						t.Fatalf("%v, %v", waiting, err)
					}
					now := rig.Text("running", uuid.NewString(), "x")
					now.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
					works, err := h.send(t, now)
					if err != nil {
						t.Fatal(err)
					}
					if err := gate.Wait(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
					for id, next := range map[string]string{"paused": asking("NEW"), "running": working("NEW")} {
						if what == "update" {
							_, err = a.teams.UpdateTeam(t.Context(), update(id, "", next))
						} else {
							_, err = a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: id})
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					if again {
						h.stop()
						h = open(t, at, base, llm)
						a = apis(t, h.Target)[0]
					}
					gate.Open()
					if got := answer(h.ended(t, works.GetId())); got != "OLD thought" {
						t.Errorf("what worked ends with %q", got)
					}
					reply := rig.Text("paused", uuid.NewString(), "red")
					reply.Message.TaskId, reply.Message.ContextId = waiting.GetId(), waiting.GetContextId()
					done, err := h.send(t, reply)
					if err != nil || answer(done) != "OLD red" {
						t.Errorf("what waited ends with %q, %v", answer(done), err)
					}
					if what == "update" {
						h.says(t, "running", "x", "NEW thought")
					}
					for _, id := range []string{"paused", "running"} { // there is nothing left for the next one
						if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: id}); what == "update" && err != nil {
							t.Error(err)
						}
					}
					h.stop()
				})
			}
		}
	})
}

// TestS_59_RosterInFlight: a member that an update has disabled gets no more work from
// runs that go on either, and the next run sees the new roster.
func TestS_59_RosterInFlight(t *testing.T) {
	t.Parallel()
	h := open(t, rig.Memory(t), base, fakellm.New(t))
	gate := fakellm.NewGate()
	t.Cleanup(gate.Open)
	h.llm.Script("m", fakellm.Turn{Text: "thought", Gate: gate, Forever: true})
	a := apis(t, h.Target)[1]
	crew := func(enabled bool, second string) string {
		return fmt.Sprintf("teams:\n  crew: {members: [{agent: writer}, {agent: parrot, enabled: %t}, {agent: desk}], supervisor: {rules: ["+
			"{id: one, when: \"turn == 1\", next: [writer]}, {id: two, when: \"turn == 2\", next: [%s]}, {id: end, when: \"true\", finish: last}]}}", enabled, second)
	}
	a.create(t, crew(true, "parrot"))
	begin := rig.Text("crew", uuid.NewString(), "x")
	begin.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	task, err := h.send(t, begin)
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := a.teams.UpdateTeam(t.Context(), update("crew", "", crew(false, "desk"))); err != nil {
		t.Fatal(err)
	}
	gate.Open()
	if got := answer(h.ended(t, task.GetId())); !strings.Contains(got, "disabled") {
		t.Errorf("it ends with %q", got)
	}
	h.says(t, "crew", "x", "parrot: thought") // by way of the desk
}

// TestR_003_17_RemoteMembersStay: a task that waits for an agent of another server goes
// on with it, though nobody else can any more.
func TestR_003_17_RemoteMembersStay(t *testing.T) {
	t.Parallel()
	far, err := config.Loader{}.Parse("far.yaml", []byte("version: v1\n"+asking("OLD")))
	if err != nil {
		t.Fatal(err)
	}
	other, err := serve.Local(context.Background(), far, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, kind := range map[string]string{"grpc": fmt.Sprintf("grpc: {address: %q, agent_id: paused}", other.GRPC), "a2a": fmt.Sprintf("a2a: {card: \"http://%s/paused\"}", other.HTTP)} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, again), func(t *testing.T) {
				at := rig.SQLite(t)
				h := open(t, at, base, fakellm.New(t))
				a := apis(t, h.Target)[0]
				a.create(t, "agents: {far: {"+kind+"}}\nteams: {near: {members: [{agent: far}], "+rules("far")+"}}")
				waiting, err := h.send(t, rig.Text("near", uuid.NewString(), "x"))
				if err != nil || waiting.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
					t.Fatalf("%v, %v", waiting, err)
				}
				if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "near"}); err != nil {
					t.Fatal(err)
				}
				if again {
					h.stop()
					h = open(t, at, base, fakellm.New(t))
				}
				reply := rig.Text("near", uuid.NewString(), "red")
				reply.Message.TaskId, reply.Message.ContextId = waiting.GetId(), waiting.GetContextId()
				done, err := h.send(t, reply)
				if err != nil || answer(done) != "OLD red" {
					t.Errorf("it ends with %q, %v", answer(done), err)
				}
			})
		}
	}
}

// TestR_003_23_Restart: what was made is there after a restart, as it was, members and
// all; what the file has no place for any more is in ERROR until it has.
func TestR_003_23_Restart(t *testing.T) {
	t.Parallel()
	for _, place := range []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL} {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			llm := fakellm.New(t)
			h := open(t, at, base, llm)
			a := apis(t, h.Target)[0]
			made := a.create(t, team("mine", "mine: {{input}}"))
			a.create(t, "teams: {echo: {members: [{agent: parrot}], "+rules("parrot")+"}}")
			a.create(t, "teams: {outer: {members: [{agent: echo}], "+rules("echo")+"}}")
			h.stop()

			without := strings.ReplaceAll(strings.ReplaceAll(base, "parrot", "sparrow"), "sparrow: {{input}}", "sparrow")
			h = open(t, at, without, llm)
			a = apis(t, h.Target)[0]
			got := a.get(t, "mine")
			if got.GetEtag() != made.GetEtag() || got.GetRevision() != made.GetRevision() || got.GetYaml() != made.GetYaml() || !got.GetCreated().AsTime().Equal(made.GetCreated().AsTime()) {
				t.Errorf("it is %v, and was %v", got, made)
			}
			h.says(t, "mine", "x", "mine: x")
			for id, why := range map[string]string{"echo": `team "echo" has member "parrot", which is not defined`, "outer": `team "outer" has member "echo", which is not defined`} {
				if lost := a.get(t, id); lost.GetState() != teamv1.TeamState_TEAM_STATE_ERROR || lost.GetDetail() != why || lost.GetYaml() == "" {
					t.Errorf("%s is %v", id, lost)
				}
				_, err := h.send(t, rig.Text(id, uuid.NewString(), "x"))
				fault(t, err, "NotFound", "AGENT_NOT_FOUND")
			}
			list, err := a.teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{})
			if err != nil || len(list.GetTeams()) != 4 {
				t.Errorf("%v, %v", list, err)
			}
			a.create(t, team("another", "x")) // what is in ERROR is in nobody's way
			if _, err := a.teams.UpdateTeam(t.Context(), update("echo", "", "teams: {echo: {members: [{agent: sparrow}], "+rules("sparrow")+"}}")); err != nil {
				t.Fatal(err)
			}
			h.says(t, "outer", "x", "sparrow") // and is served again with what it needs
			h.stop()

			h = open(t, at, base, llm)
			a = apis(t, h.Target)[0]
			if lost := a.get(t, "outer"); lost.GetState() != teamv1.TeamState_TEAM_STATE_ERROR {
				t.Errorf("it is %v", lost)
			}
			for _, id := range []string{"echo", "outer"} { // also what is not served is deleted
				if _, err := a.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: id}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestR_003_23_ToolIsGone: a team whose tool does not start any more is in ERROR, and
// keeps nobody else from being served or made.
func TestR_003_23_ToolIsGone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	server := filepath.Join(t.TempDir(), "mcp")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", server, "../../examples/mcp/server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	with := func(program string) string {
		return strings.Replace(base, "agents:\n", "tools: {saw: {api: true, mcp: {required: true, command: [\""+program+"\"]}}}\nagents:\n", 1)
	}
	at := rig.SQLite(t)
	h := open(t, at, with(server), fakellm.New(t))
	a := apis(t, h.Target)[0]
	a.create(t, "agents:\n  w: {model: m, instructions: x, tools: [saw]}\nteams:\n  sawing: {members: [{agent: w}], "+rules("w")+"}")
	a.create(t, "teams: {outer: {members: [{agent: sawing}], "+rules("sawing")+"}}")
	a.create(t, team("mine", "mine"))
	h.stop()
	h = open(t, at, with("/no/such/program"), fakellm.New(t))
	a = apis(t, h.Target)[0]
	a.create(t, team("more", "more"))
	for id, want := range map[string]teamv1.TeamState{
		"sawing": teamv1.TeamState_TEAM_STATE_ERROR, "outer": teamv1.TeamState_TEAM_STATE_ERROR, "mine": teamv1.TeamState_TEAM_STATE_READY, "more": teamv1.TeamState_TEAM_STATE_READY,
	} {
		if got := a.get(t, id); got.GetState() != want || (got.GetDetail() == "") != (want == teamv1.TeamState_TEAM_STATE_READY) {
			t.Errorf("%s is %v", id, got)
		}
	}
	if _, err := a.teams.UpdateTeam(t.Context(), update("sawing", "", "teams: {sawing: {members: [{agent: parrot}], "+rules("parrot")+"}}")); err != nil {
		t.Fatal(err)
	}
	h.says(t, "outer", "x", "parrot: x")
}

// TestR_003_17_Replicas: made on A, served by B; changed on B, so on A; deleted on B,
// gone on A. Changes at the same time on both come about one after the other.
func TestR_003_17_Replicas(t *testing.T) {
	t.Parallel()
	at := rig.PostgreSQL(t)
	llm := fakellm.New(t)
	houseA, houseB := open(t, at, base, llm), open(t, at, base, llm)
	a, b := apis(t, houseA.Target)[0], apis(t, houseB.Target)[1]
	start := time.Now()
	made := a.create(t, team("mine", "one"))
	until(t, "B serves it", func() bool { return houseB.running.Agents.Revision("mine") == made.GetRevision() })
	t.Logf("B serves it %s after the call", time.Since(start))
	houseB.says(t, "mine", "x", "one")
	resp, err := b.teams.UpdateTeam(t.Context(), update("mine", made.GetEtag(), team("mine", "two")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.teams.UpdateTeam(t.Context(), update("mine", made.GetEtag(), team("mine", "three"))) // whether A knows already or not
	fault(t, err, "Aborted", "VERSION_CONFLICT")
	until(t, "A serves the new one", func() bool { return houseA.running.Agents.Revision("mine") == resp.GetTeam().GetRevision() })
	houseA.says(t, "mine", "x", "two")
	if _, err := b.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "mine"}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is gone on A", func() bool { return houseA.running.Agents.Revision("mine") == "" })
	_, err = a.teams.GetTeam(t.Context(), &teamv1.GetTeamRequest{TeamId: "mine"})
	fault(t, err, "NotFound", "TEAM_NOT_FOUND")

	errs := make(chan error, 20)
	for i := range 20 {
		go func() {
			_, err := []api{a, b}[i%2].teams.CreateTeam(t.Context(), yamlOf(team(fmt.Sprint("both", i), "x")))
			errs <- err
		}()
	}
	var all error
	for range 20 {
		all = errors.Join(all, <-errs)
	}
	if all != nil {
		t.Error(all)
	}
	until(t, "both serve all", func() bool {
		return len(houseA.running.Agents.Served().TeamIDs()) == 21 && len(houseB.running.Agents.Served().TeamIDs()) == 21
	})
}

// TestR_003_17_FileReload: dev takes another file beside the teams that were made; one
// that this file has no place for is in ERROR until it is back.
func TestR_003_17_FileReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "team.yaml")
	write := func(member string) {
		t.Helper()
		text := "version: v1\nagents: {" + member + ": {scripted: {steps: [{text: \"" + member + ": {{input}}\"}]}}}\nteams: {desk: {members: [{agent: " + member + "}], " + rules(member) + "}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("parrot")
	ctx, cancel := context.WithCancel(context.Background())
	d := &serve.Dev{Path: path, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop(), Say: t.Logf}
	r, err := d.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, r) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	h := &house{Target: rig.Target{GRPC: r.GRPC, HTTP: "http://" + r.HTTP}, running: r}
	a := apis(t, h.Target)[1]
	a.create(t, "teams: {echo: {members: [{agent: parrot}], "+rules("parrot")+"}}")
	mine := a.create(t, team("mine", "mine"))
	h.says(t, "echo", "x", "parrot: x")
	write("sparrow")
	until(t, "the file is reloaded", func() bool { return a.get(t, "echo").GetState() == teamv1.TeamState_TEAM_STATE_ERROR })
	h.says(t, "desk", "x", "sparrow: x")
	h.says(t, "mine", "x", "mine")
	if now := a.get(t, "mine"); now.GetRevision() != mine.GetRevision() || now.GetEtag() != mine.GetEtag() {
		t.Errorf("it is %v", now)
	}
	a.create(t, team("other", "other"))
	write("parrot")
	until(t, "it is served again", func() bool { return a.get(t, "echo").GetState() == teamv1.TeamState_TEAM_STATE_READY })
	for id, want := range map[string]string{"echo": "parrot: x", "desk": "parrot: x", "other": "other"} {
		h.says(t, id, "x", want)
	}
}

// TestR_003_24_Members: of each member is on record which agent it is, whether it leads,
// and how it is, also behind a restart.
func TestR_003_24_Members(t *testing.T) {
	t.Parallel()
	for _, place := range []func(testing.TB) rig.Place{rig.SQLite, rig.PostgreSQL} {
		at := place(t)
		t.Run(at.Name, func(t *testing.T) {
			far := open(t, rig.Memory(t), "version: v1\nagents: {baker: {scripted: {steps: [{text: bread}]}}}\nteams: {shop: {workflow: {steps: [{id: bake, agent: baker}]}}}\n", fakellm.New(t))
			llm := fakellm.New(t)
			h := open(t, at, base, llm)
			apis(t, h.Target)[0].create(t, fmt.Sprintf("agents: {far: {grpc: {address: %q, agent_id: baker}}}\n"+
				"teams: {crew: {coordinator: {leader: {model: m}}, members: [{agent: writer, id: poet, role: Poet}, {agent: far}]}}", far.GRPC))
			check := func(want ...string) {
				t.Helper()
				got, err := apis(t, h.Target)[0].teams.GetTeamStatus(t.Context(), &teamv1.GetTeamStatusRequest{TeamId: "crew"})
				if err != nil {
					t.Fatal(err)
				}
				var members []string
				for _, m := range got.GetMembers() {
					members = append(members, fmt.Sprintf("%s %s %s %q %t", m.GetId(), m.GetAgentId(), m.GetRole(), m.GetRoleName(), m.GetHealth().GetHealthy()))
				}
				if !slices.Equal(members, want) {
					t.Errorf("the members are %q, want %q", members, want)
				}
			}
			check(`crew  ROLE_LEAD "" true`, `poet writer ROLE_MEMBER "Poet" true`, `far far ROLE_MEMBER "" true`)
			h.stop()
			far.stop()
			h = open(t, at, base, llm)
			check(`crew  ROLE_LEAD "" true`, `poet writer ROLE_MEMBER "Poet" true`, `far far ROLE_MEMBER "" false`)
		})
	}
}
