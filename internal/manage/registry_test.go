package manage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/asking"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// file is the file of package asking with changes, in pairs of old and new text.
func file(t *testing.T, changes ...string) *config.Config {
	t.Helper()
	def, err := config.Loader{Env: func(string) (string, bool) { return asking.Key, true }}.Parse("team.yaml", []byte(asking.File(changes...)))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// ann may manage teams.
func ann(t *testing.T) context.Context {
	t.Helper()
	return identity.WithCaller(t.Context(), identity.Caller{Account: "acme", Principal: "ann", Permissions: identity.EveryPermission})
}

func yaml(text string) *teamv1.CreateTeamRequest {
	return &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: text}}
}

// TestR_003_17_BuildsWhatChanges: a change rebuilds only what it affects. Previous agents are
// closed once no run uses them.
func TestR_003_17_BuildsWhatChanges(t *testing.T) {
	m := serving(t, file(t), &notes{})
	ctx := ann(t)
	create := func(id, member string) {
		t.Helper()
		rules := "supervisor: {rules: [{id: one, when: \"turn == 1\", next: [" + member + "]}, {id: end, when: \"true\", finish: last}]}"
		if _, err := NewManager(m).CreateTeam(ctx, yaml("teams: {"+id+": {members: [{agent: "+member+"}], "+rules+"}}")); err != nil {
			t.Fatal(err)
		}
	}
	create("inner", "desk") // of the file, and it asks
	create("outer", "inner")
	create("aside", "echo")
	before := m.state()
	if _, err := NewManager(m).UpdateTeam(ctx, &teamv1.UpdateTeamRequest{TeamId: "inner", Form: &teamv1.UpdateTeamRequest_Yaml{
		Yaml: "teams: {inner: {name: New, workflow: {steps: [{id: a, agent: desk}]}}}",
	}}); err != nil {
		t.Fatal(err)
	}
	after := m.state()
	for name, kept := range map[string]bool{"inner": false, "outer": false, "aside": true} {
		if (before.additions[name] == after.additions[name]) != kept {
			t.Errorf("%s is kept: %t", name, !kept)
		}
	}
	if before.base != after.base {
		t.Error("the file is built again")
	}
	if n := len(m.built.others); n > 0 {
		t.Errorf("%d revisions are open that nobody uses", n)
	}

	old, release, err := m.Pinned(t.Context(), "outer", &teamv1.Pins{Revisions: map[string]string{"outer": m.Revision("outer")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(t.Context(), file(t, asking.Renewed...)); err != nil { // everything is new
		t.Fatal(err)
	}
	if n := len(m.built.others); n != 3 { // outer, inner that it has, and the file below
		t.Errorf("%d revisions are open, want the 3 that are used", n)
	}
	if h, err := old.HealthCheck(t.Context()); err != nil || strings.Contains(h.GetDetail(), "closed") {
		t.Errorf("%v, %v", h, err)
	}
	release()
	if n := len(m.built.others); n > 0 {
		t.Errorf("%d revisions are open that nobody uses", n)
	}
	for _, id := range []string{"outer", "inner", "aside"} {
		if _, err := NewManager(m).DeleteTeam(ctx, &teamv1.DeleteTeamRequest{TeamId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(m.Served().TeamIDs(), len(m.built.others), len(m.state().additions)); got != "[company desk] 0 0" {
		t.Error(got)
	}
}

// A team that the file defines after an account has made one with its id is that of the file, and belongs to no account.
func TestR_003_17_TheFileTakesAnID(t *testing.T) {
	m := serving(t, file(t), &notes{})
	if _, err := NewManager(m).CreateTeam(ann(t), yaml("teams: {club: {workflow: {steps: [{id: a, agent: echo}]}}}")); err != nil {
		t.Fatal(err)
	}
	if got := m.AccountOf("club"); got != "acme" {
		t.Fatalf("the account is %q", got)
	}
	built := len(m.built.others)
	if err := m.Refresh(t.Context(), file(t, "teams:\n", "teams:\n  club: {workflow: {steps: [{id: a, agent: echo}]}}\n")); err != nil {
		t.Fatal(err)
	}
	if got := m.AccountOf("club"); got != "" || !m.InFile("club") {
		t.Errorf("the account of the team of the file is %q", got)
	}
	if got := len(m.built.others); got != built {
		t.Errorf("%d revisions are open that nobody uses", got-built)
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
		return nil, runs.ErrNotFound
	}
	return n.bodies[revision], nil
}

// serving serves a definition.
func serving(t *testing.T, def *config.Config, n *notes) *Registry {
	t.Helper()
	m, err := New(Config{Store: memstore.Open(t), Definitions: n, File: def, Open: true})
	if err == nil {
		err = m.Refresh(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func pinsOf(t *testing.T, l *Registry, id string) *teamv1.Pins {
	t.Helper()
	pins, err := l.Pins(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return pins
}

func TestPins(t *testing.T) {
	n := &notes{}
	l := serving(t, file(t), n)
	now := time.Now()
	l.c.Clock = func() time.Time { return now }
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
	if _, _, err := l.Pinned(t.Context(), "desk", &teamv1.Pins{Revisions: map[string]string{"desk": config.Revision(later)}}); !errors.Is(err, runs.ErrNewer) {
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
	l := serving(t, file(t), n)
	pins := pinsOf(t, l, "company")
	if err := l.Refresh(t.Context(), file(t, asking.Renewed...)); err != nil {
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
	if n.reads.Load() != 1 || len(l.built.others) != 1 || l.built.others[0].uses != 50 {
		t.Fatalf("%d reads, %d revisions", n.reads.Load(), len(l.built.others))
	}
	for _, release := range releases {
		release()
		release() // counts once
	}
	if len(l.built.others) != 1 || l.built.others[0].uses != 0 {
		t.Errorf("%d revisions, want the one to be kept for the next run", len(l.built.others))
	}
	if err := l.Refresh(t.Context(), file(t)); err != nil || len(l.built.others) != 0 {
		t.Errorf("%d revisions, %v; want none after a reload", len(l.built.others), err)
	}
}

// TestOldRevisionsAreBounded reloads and restores many times.
func TestOldRevisionsAreBounded(t *testing.T) {
	l := serving(t, file(t), &notes{})
	_, release, err := l.Pinned(t.Context(), "company", pinsOf(t, l, "company"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*teamv1.Pins
	for i := range 3 * maxRestored {
		if err := l.Refresh(t.Context(), file(t, "OLD got", strings.Repeat("x", i+1))); err != nil {
			t.Fatal(err)
		}
		all = append(all, pinsOf(t, l, "company"))
	}
	if len(l.built.others) != 1 {
		t.Errorf("%d revisions are open, want the one that is used", len(l.built.others))
	}
	for _, pins := range all[:2*maxRestored] {
		_, done, err := l.Pinned(t.Context(), "company", pins)
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	if len(l.built.others) != 1+maxRestored {
		t.Errorf("%d revisions are open, want %d", len(l.built.others), 1+maxRestored)
	}
	release()
	if len(l.built.others) != maxRestored {
		t.Errorf("%d revisions are open, want %d", len(l.built.others), maxRestored)
	}
}

func TestPinnedFails(t *testing.T) {
	n := &notes{}
	l := serving(t, file(t), n)
	pins := pinsOf(t, l, "company")
	if err := l.Refresh(t.Context(), file(t, asking.Renewed...)); err != nil {
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
	if _, _, err := l.Pinned(t.Context(), "desk", &teamv1.Pins{Revisions: map[string]string{"desk": config.Revision(later)}}); !errors.Is(err, runs.ErrNewer) {
		t.Errorf("P19 with a key of a later version: %v", err)
	}
	n.err = errors.New("disk")
	if got := reason(pins, "company"); got != "none" {
		t.Errorf("not to be read now: %s", got)
	}
	l.built.restoring <- struct{}{}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrShutdown)
	if _, _, err := l.Pinned(ctx, "company", pins); !errors.Is(err, agent.ErrShutdown) {
		t.Errorf("error is %v", err)
	}
	<-l.built.restoring
	if a, release, err := l.Pinned(t.Context(), "company", nil); err != nil || a == nil {
		t.Errorf("a run that is tied to nothing: %v", err)
	} else {
		release()
	}
}
