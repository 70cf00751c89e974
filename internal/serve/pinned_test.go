package serve

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/asking"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/agent"
)

// file is the file of package asking with changes, in pairs of old and new text.
func file(t *testing.T, changes ...string) *config.Config {
	t.Helper()
	return define(t, asking.File(changes...), map[string]string{"KEY": asking.Key})
}

// ask begins a run of the team that waits for an answer.
func ask(t *testing.T, r *Running) *transcript.Printer {
	t.Helper()
	run, talk, err := process(t.Context(), t, r, "company", "x")
	if err != nil || !run.Waiting {
		t.Fatalf("the run does not wait: %v\n%s", err, talk)
	}
	return run
}

// answer answers the question of a run and returns how that ended.
func answer(t *testing.T, r *Running, waiting *transcript.Printer, text string) *transcript.Printer {
	t.Helper()
	run, talk, err := processRequest(t.Context(), t, r, &teamv1.ProcessRequest{
		AgentId: "company", TaskId: waiting.TaskID, Question: waiting.Questions[0].GetQuestion(), Message: agent.UserMessage(uuid.NewString(), text),
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, talk)
	}
	return run
}

// says checks the answer of a run.
func says(t *testing.T, run *transcript.Printer, want string) {
	t.Helper()
	if run.Answer != want {
		t.Errorf("the answer is %q, %v, not %q", run.Answer, run.Err, want)
	}
}

// fresh runs the team anew.
func fresh(t *testing.T, r *Running) *transcript.Printer {
	t.Helper()
	run, talk, err := process(t.Context(), t, r, "company", "x")
	if err != nil {
		t.Fatalf("%v\n%s", err, talk)
	}
	return run
}

func TestReloadKeepsWaitingRuns(t *testing.T) {
	r := serveLocal(t, file(t))
	first, second := ask(t, r), ask(t, r)
	for range 3 {
		if err := r.Agents.Refresh(t.Context(), file(t, asking.Renewed...)); err != nil {
			t.Fatal(err)
		}
		says(t, fresh(t, r), "NEW got: NEW says no more")
	}
	says(t, answer(t, r, first, "red"), "OLD got: OLD says red")
	if err := r.Agents.Refresh(t.Context(), file(t)); err != nil { // and back
		t.Fatal(err)
	}
	says(t, answer(t, r, second, "blue"), "OLD got: OLD says blue")
}

// serveOn serves a definition with its tasks in a file.
func serveOn(t *testing.T, def *config.Config, url string) *Running {
	t.Helper()
	r, err := Start(t.Context(), def, Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Store: url, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	return r
}

func stopped(t *testing.T, r *Running) {
	t.Helper()
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestS_50_RestartKeepsWaitingRuns changes the file between two starts.
func TestS_50_RestartKeepsWaitingRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "team.db")
	r := serveOn(t, file(t), store.SQLite+path)
	first, second, third := ask(t, r), ask(t, r), ask(t, r)
	stopped(t, r)

	r = serveOn(t, file(t, asking.Renewed...), store.SQLite+path)
	says(t, fresh(t, r), "NEW got: NEW says no more")
	says(t, answer(t, r, first, "red"), "OLD got: OLD says red")
	stopped(t, r)

	// The team and its agents are gone, but for what is reached elsewhere.
	r = serveOn(t, file(t, "\n  desk:", "\n  other:", "  company:", "  another:", "agent: desk", "agent: other", "curious", "someone"), store.SQLite+path)
	says(t, answer(t, r, second, "blue"), "OLD got: OLD says blue")
	stopped(t, r)

	r = serveOn(t, define(t, "version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\n", nil), store.SQLite+path)
	run := answer(t, r, third, "green")
	if want := `the run cannot continue with "company" as it began: agent "near" is no longer configured; model "real" of provider openai is no longer configured`; run.Err.GetReason() != agent.ReasonInterrupted || run.Err.GetMessage() != want {
		t.Errorf("the run ended with %v", run.Err)
	}
	stopped(t, r)

	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("files are %v, %v", files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(asking.Key)) {
			t.Errorf("%s holds the key", f)
		}
	}
}

// TestS_50_RestartKeepsWorkingRuns stops the server while a member works, and
// starts it with another file: the run goes on at once, as it began.
func TestS_50_RestartKeepsWorkingRuns(t *testing.T) {
	const busy = `version: v1
agents:
  slow: {scripted: {steps: [{progress: working}, {delay_ms: 400}, {text: "OLD: {{input}}"}]}}
teams:
  desk: {workflow: {steps: [{id: a, agent: slow}]}}
`
	url := store.SQLite + filepath.Join(t.TempDir(), "team.db")
	r := serveOn(t, define(t, busy, nil), url)
	c, err := client.NewTeam("http://"+r.HTTP, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var id string
	message := agent.UserMessage(uuid.NewString(), "x")
	for resp, err := range c.Process(t.Context(), &teamv1.ProcessRequest{AgentId: "desk", Message: message}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if id = resp.GetTaskId(); resp.GetEvent().GetProgress() != nil {
			break
		}
	}
	stopped(t, r)
	r = serveOn(t, define(t, strings.Replace(busy, "OLD", "NEW", 1), nil), url)
	begun := time.Now()
	run, talk, err := processRequest(t.Context(), t, r, &teamv1.ProcessRequest{AgentId: "desk", Message: message})
	if err != nil || run.TaskID != id {
		t.Fatalf("task %q instead of %q: %v\n%s", run.TaskID, id, err, talk)
	}
	says(t, run, "OLD: x")
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v: the run was not given up", took)
	}
}

// TestCopyToPostgreSQL moves a waiting run from a file to a database.
func TestCopyToPostgreSQL(t *testing.T) {
	to := pgtest.URL(t)
	from := store.SQLite + filepath.Join(t.TempDir(), "team.db")
	r := serveOn(t, file(t), from)
	waiting := ask(t, r)
	stopped(t, r)
	source, target := opened(t, from), opened(t, to)
	if rows, err := sqlstore.Copy(t.Context(), source, target); err != nil || rows == 0 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	if err := errors.Join(source.Close(), target.Close()); err != nil {
		t.Fatal(err)
	}
	r = serveOn(t, file(t, asking.Renewed...), to)
	says(t, answer(t, r, waiting, "red"), "OLD got: OLD says red")
	says(t, fresh(t, r), "NEW got: NEW says no more")
	stopped(t, r)
}

// opened opens a store to copy.
func opened(t *testing.T, url string) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
