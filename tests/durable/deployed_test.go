//go:build linux

package durable

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// deployed is a team of the examples with a model, on a store that outlives its servers.
type deployed struct {
	*testing.T
	command
	llm    *fakellm.Server
	server *replica
	client *rig.REST
	task   string
}

// deploy serves the real.yaml of an example, whose model is the fake one.
func deploy(t *testing.T, example string, env ...string) *deployed {
	config, err := filepath.Abs(filepath.Join("..", "..", "examples", example, "real.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := &deployed{T: t, llm: fakellm.New(t), command: command{config: config, store: sqlite(t), dir: t.TempDir()}}
	d.env = append(env, "OPENAI_BASE_URL="+d.llm.URL, "OPENAI_API_KEY=k", "OPENAI_MODEL=real")
	d.up()
	return d
}

func (d *deployed) up() {
	d.server = serve(d.T, d.command)
	target := d.server.target
	target.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
	d.client = rig.NewREST(target)
}

// replace kills the server and starts another one.
func (d *deployed) replace() {
	d.server.end(syscall.SIGKILL)
	d.up()
}

// send begins a task and returns without waiting for it.
func (d *deployed) send(team, text string) {
	d.Helper()
	m := rig.Text(team, "m-1", text)
	m.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	resp, err := d.client.Send(d.Context(), m)
	if err != nil {
		d.Fatal(err)
	}
	d.task = resp.GetTask().GetId()
}

// answer answers the open question.
func (d *deployed) answer(team, text string) {
	d.Helper()
	m := rig.Text(team, "answer", text)
	m.Message.TaskId, m.Configuration = d.task, &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	if _, err := d.client.Send(d.Context(), m); err != nil {
		d.Fatal(err)
	}
}

// reaches waits for a state and returns what the task says.
func (d *deployed) reaches(state a2av1.TaskState) string {
	d.Helper()
	var text string
	await(d, state.String(), func() bool {
		task, err := d.client.Get(d.Context(), &a2av1.GetTaskRequest{Id: d.task})
		if err != nil {
			d.Fatal(err)
		}
		text = fmt.Sprint(task.GetStatus().GetMessage().GetParts())
		for _, a := range task.GetArtifacts() {
			if a.GetName() == "result" {
				text = a.GetParts()[0].GetText()
			}
		}
		if got := task.GetStatus().GetState(); got == a2av1.TaskState_TASK_STATE_FAILED && got != state {
			d.Fatal(task.GetStatus())
		}
		return task.GetStatus().GetState() == state
	})
	return text
}

// counts returns how often the model was asked in each role, which a word of its instructions tells.
func (d *deployed) counts(roles map[string]string) map[string]int {
	got := map[string]int{}
	for _, r := range d.llm.Requests() {
		for role, word := range roles {
			if strings.Contains(r.System, word) {
				got[role]++
			}
		}
	}
	return got
}

// toolAnswers returns the results of tools in the current run.
func toolAnswers(r *fakellm.Request) (texts []string) {
	for _, m := range r.Messages {
		if m.Role == "tool" {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// TestDeployed_SupportDesk kills the server while a person is asked about a refund, and again while the model answers.
func TestDeployed_SupportDesk(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIP-MISSING-TOOL python3: install Python 3, the shop of the example is written in it")
	}
	ledger := filepath.Join(t.TempDir(), "refunds.json")
	d := deploy(t, "support-desk", "LEDGER="+ledger)
	hold, held := make(chan struct{}), make(chan struct{}, 9)
	defer close(hold)
	var before atomic.Bool
	d.llm.Answer("real", func(r *fakellm.Request) fakellm.Turn {
		done := toolAnswers(r)
		switch {
		case strings.Contains(r.System, "You lead the team"):
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_billing", Arguments: `{"task": "Refund order A-17."}`}}}
		case len(done) == 0:
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "order", Arguments: `{"number": "A-17"}`}}}
		case len(done) == 1:
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "refund", Arguments: `{"number": "A-17", "amount": 49}`}}}
		case before.CompareAndSwap(false, true):
			held <- struct{}{}
			<-hold
		}
		return fakellm.Turn{Text: "Done: " + done[1]}
	})
	d.send("desk", "Please refund order A-17")
	if asked := d.reaches(a2av1.TaskState_TASK_STATE_INPUT_REQUIRED); !strings.Contains(asked, "refund") {
		t.Errorf("the question is %s", asked)
	}
	d.replace()
	d.answer("desk", "approve")
	<-held
	d.replace()
	if got := d.reaches(a2av1.TaskState_TASK_STATE_COMPLETED); got != "Done: Refunded 49.00 EUR for order A-17." {
		t.Errorf("the answer is %q", got)
	}
	// The call that the kill cut is made again, and no other one.
	if diff := cmp.Diff(map[string]int{"coordinator": 1, "billing": 4}, d.counts(map[string]string{"coordinator": "You lead the team", "billing": "You settle"})); diff != "" {
		t.Errorf("calls of the model (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(ledger)
	var refunds map[string]any
	if err := json.Unmarshal(text, &refunds); err != nil || len(refunds) != 1 {
		t.Errorf("refunds: %s %v", text, err)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestDeployed_Research kills the server while one of three readers works.
func TestDeployed_Research(t *testing.T) {
	t.Parallel()
	d := deploy(t, "research")
	hold, held := make(chan struct{}), make(chan struct{}, 9)
	defer close(hold)
	var before atomic.Bool
	d.llm.Answer("real", func(r *fakellm.Request) fakellm.Turn {
		switch {
		case strings.Contains(r.System, "Split the question") && len(r.Tools) > 0:
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "plan", Arguments: `{"steps": [{"id": "a", "member": "reader", "task": "Read about a."},
				{"id": "b", "member": "reader", "task": "Read about b."}, {"id": "c", "member": "reader", "task": "Read about c."},
				{"id": "report", "member": "writer", "task": "Write.", "after": ["a", "b", "c"]}]}`}}}
		case strings.Contains(r.System, "Split the question"):
			return fakellm.Turn{Text: "The report: " + fmt.Sprint(strings.Contains(fmt.Sprint(r.Messages), "fact on c [source]"))}
		case strings.Contains(r.System, "Report what is known"):
			part := strings.TrimSuffix(r.Last()[strings.Index(r.Last(), "Read about ")+len("Read about "):], ".")
			if strings.HasPrefix(part, "c") && before.CompareAndSwap(false, true) {
				held <- struct{}{}
				<-hold
			}
			return fakellm.Turn{Text: "fact on " + part[:1] + " [source]"}
		case strings.Contains(r.System, "Score the report"), strings.Contains(fmt.Sprint(r.Messages), `"score"`):
			return fakellm.Turn{Text: `{"score": 0.9, "feedback": ""}`}
		}
		return fakellm.Turn{Text: "Report: " + r.Last()}
	})
	d.send("research", "letters")
	<-held
	await(t, "the other readers", func() bool {
		task, err := d.client.Get(t.Context(), &a2av1.GetTaskRequest{Id: d.task})
		if err != nil {
			t.Fatal(err)
		}
		ended := 0
		for _, of := range a2a.RunOf(task.GetMetadata()).GetDelegations() {
			if of.GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED {
				ended++
			}
		}
		return ended == 2
	})
	d.replace()
	if got := d.reaches(a2av1.TaskState_TASK_STATE_COMPLETED); got != "The report: true" {
		t.Errorf("the answer is %q", got)
	}
	if diff := cmp.Diff(map[string]int{"plan": 2, "readers": 4, "writer": 1, "critic": 1}, d.counts(map[string]string{
		"plan": "Split the question", "readers": "Report what is known", "writer": "Write a short report", "critic": "Score the report",
	})); diff != "" {
		t.Errorf("calls of the model (-want +got):\n%s", diff)
	}
}
