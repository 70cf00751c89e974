package serve

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/memory"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// asking is a team in a team whose member asks, and then says which file it is of.
const asking = `version: v1
models: {real: {provider: openai, name: n, api_key: "${KEY}", base_url: "http://127.0.0.1:1/v1"}}
agents:
  echo: {scripted: {steps: [{echo: true}]}}
  curious: {scripted: {steps: [{ask: "Which colour?"}, {text: "OLD says {{answer}}"}]}}
  critic: {model: real, instructions: Score.}
  near: {grpc: {address: "127.0.0.1:1", auth: {bearer: "${KEY}"}}}
teams:
  desk:
    members: [{agent: curious}, {agent: critic}, {agent: near}]
    supervisor: {rules: [{id: one, when: "turn == 1", next: [curious]}, {id: end, when: "true", finish: curious}]}
  company: {workflow: {steps: [{id: a, agent: desk, task: "{{input}}"}, {id: b, agent: echo, after: [a], task: "OLD got: {{steps.a.text}}"}]}}
`

const key = "sk-0123456789-secret"

// file is asking with changes in pairs of old and new.
func file(t *testing.T, changes ...string) *config.Config {
	t.Helper()
	return define(t, strings.NewReplacer(changes...).Replace(asking), map[string]string{"KEY": key})
}

// renewed are changes that every run of the team would notice.
var renewed = []string{`{ask: "Which colour?"}, `, "", "OLD says {{answer}}", "NEW says no more", "OLD got", "NEW got"}

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
		if err := r.Live.Swap(file(t, renewed...)); err != nil {
			t.Fatal(err)
		}
		says(t, fresh(t, r), "NEW got: NEW says no more")
	}
	says(t, answer(t, r, first, "red"), "OLD got: OLD says red")
	if err := r.Live.Swap(file(t)); err != nil { // and back
		t.Fatal(err)
	}
	says(t, answer(t, r, second, "blue"), "OLD got: OLD says blue")
	if n := len(r.Live.others); n > 0 {
		t.Errorf("%d revisions are open that nobody uses", n)
	}
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

	r = serveOn(t, file(t, renewed...), store.SQLite+path)
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
		if bytes.Contains(data, []byte(key)) {
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

// notes are definitions in a map, which counts what is read.
type notes struct {
	mu     sync.Mutex
	bodies map[string][]byte // guarded by mu
	reads  atomic.Int32
	err    error
}

func (n *notes) PutDefinition(_ context.Context, revision string, body []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bodies == nil {
		n.bodies = map[string][]byte{}
	}
	n.bodies[revision] = body
	return n.err
}

func (n *notes) Definition(_ context.Context, revision string) ([]byte, error) {
	n.reads.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return nil, n.err
	}
	if n.bodies[revision] == nil {
		return memory.New(memory.Config{}).Definition(context.Background(), revision)
	}
	return n.bodies[revision], nil
}

// live serves a definition without a server.
func live(t *testing.T, def *config.Config, n *notes) *Live {
	t.Helper()
	l, err := NewLive(def, n, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func pinsOf(t *testing.T, l *Live, id string) *teamv1.Pins {
	t.Helper()
	pins, err := l.Pins(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return pins
}

func TestPins(t *testing.T) {
	n := &notes{}
	l := live(t, file(t), n)
	now := time.Now()
	l.clock = func() time.Time { return now }
	pins := pinsOf(t, l, "company")
	if len(pins.GetRevisions()) != 6 || n.bodies[pins.GetRevisions()["company"]] == nil || len(n.bodies) != 1 {
		t.Errorf("pins are %v, on record are %d", pins, len(n.bodies))
	}
	n.bodies = nil
	if pinsOf(t, l, "company"); len(n.bodies) != 0 {
		t.Error("it is put on record for every run")
	}
	now = now.Add(keepAgain)
	if pinsOf(t, l, "company"); len(n.bodies) != 1 {
		t.Error("it is not put on record again")
	}
	if _, err := l.Pins(t.Context(), "nobody"); agent.AsError(err).Reason != agent.ReasonAgentNotFound {
		t.Errorf("error is %v", err)
	}
	later := append(bytes.Clone(n.bodies[pins.GetRevisions()["desk"]]), protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)...)
	n.bodies[config.Revision(later)] = later
	if _, _, err := l.Pinned(t.Context(), "desk", &teamv1.Pins{Revisions: map[string]string{"desk": config.Revision(later)}}); !errors.Is(err, a2a.ErrNewer) {
		t.Errorf("P19 with a key of a later version: %v", err)
	}
	n.err = errors.New("disk")
	if _, err := l.Pins(t.Context(), "desk"); !errors.Is(err, n.err) {
		t.Errorf("error is %v", err)
	}
}

// TestRestoredOnce has many runs of one definition that come together.
func TestRestoredOnce(t *testing.T) {
	n := &notes{}
	l := live(t, file(t), n)
	pins := pinsOf(t, l, "company")
	if err := l.Swap(file(t, renewed...)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	releases := make([]func(), 50)
	for i := range releases {
		wg.Go(func() {
			var err error
			if _, releases[i], err = l.Pinned(t.Context(), "company", pins); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n.reads.Load() != 1 || len(l.others) != 1 || l.others[0].uses != 50 {
		t.Fatalf("%d reads, %d revisions", n.reads.Load(), len(l.others))
	}
	for _, release := range releases {
		release()
		release() // counts once
	}
	if len(l.others) != 1 || l.others[0].uses != 0 {
		t.Errorf("%d revisions, want the one to be kept for the next run", len(l.others))
	}
	if err := l.Swap(file(t)); err != nil || len(l.others) != 0 {
		t.Errorf("%d revisions, %v; want none after a reload", len(l.others), err)
	}
}

// TestOldRevisionsAreBounded reloads and restores many times.
func TestOldRevisionsAreBounded(t *testing.T) {
	l := live(t, file(t), &notes{})
	_, release, err := l.Pinned(t.Context(), "company", pinsOf(t, l, "company"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*teamv1.Pins
	for i := range 3 * maxRestored {
		if err := l.Swap(file(t, "OLD got", strings.Repeat("x", i+1))); err != nil {
			t.Fatal(err)
		}
		all = append(all, pinsOf(t, l, "company"))
	}
	if len(l.others) != 1 {
		t.Errorf("%d revisions are open, want the one that is used", len(l.others))
	}
	for _, pins := range all[:2*maxRestored] {
		_, done, err := l.Pinned(t.Context(), "company", pins)
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	if len(l.others) != 1+maxRestored {
		t.Errorf("%d revisions are open, want %d", len(l.others), 1+maxRestored)
	}
	release()
	if len(l.others) != maxRestored {
		t.Errorf("%d revisions are open, want %d", len(l.others), maxRestored)
	}
}

func TestPinnedFails(t *testing.T) {
	n := &notes{}
	l := live(t, file(t), n)
	pins := pinsOf(t, l, "company")
	if err := l.Swap(file(t, renewed...)); err != nil {
		t.Fatal(err)
	}
	reason := func(pins *teamv1.Pins, id string) string {
		_, _, err := l.Pinned(t.Context(), id, pins)
		var e *agent.Error
		if !errors.As(err, &e) {
			return "none"
		}
		return e.Reason
	}
	if got := reason(nil, "nobody"); got != agent.ReasonAgentNotFound {
		t.Errorf("no pins, no agent: %s", got)
	}
	if got := reason(&teamv1.Pins{Revisions: map[string]string{"company": "gone"}}, "company"); got != agent.ReasonInterrupted {
		t.Errorf("not on record: %s", got)
	}
	n.bodies[pins.GetRevisions()["company"]] = []byte("damaged")
	if got := reason(pins, "company"); got != agent.ReasonDataLoss {
		t.Errorf("damaged: %s", got)
	}
	later := append(bytes.Clone(n.bodies[pins.GetRevisions()["desk"]]), protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)...)
	n.bodies[config.Revision(later)] = later
	if _, _, err := l.Pinned(t.Context(), "desk", &teamv1.Pins{Revisions: map[string]string{"desk": config.Revision(later)}}); !errors.Is(err, a2a.ErrNewer) {
		t.Errorf("P19 with a key of a later version: %v", err)
	}
	n.err = errors.New("disk")
	if got := reason(pins, "company"); got != "none" {
		t.Errorf("not to be read now: %s", got)
	}
	l.restoring <- struct{}{}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrShutdown)
	if _, _, err := l.Pinned(ctx, "company", pins); !errors.Is(err, agent.ErrShutdown) {
		t.Errorf("error is %v", err)
	}
	<-l.restoring
	if a, release, err := l.Pinned(t.Context(), "company", nil); err != nil || a == nil {
		t.Errorf("a run that is tied to nothing: %v", err)
	} else {
		release()
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
	r = serveOn(t, file(t, renewed...), to)
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
