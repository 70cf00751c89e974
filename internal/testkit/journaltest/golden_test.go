// Package journaltest replays recorded journals: what was put on record by an
// earlier version must become the same tasks.
package journaltest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// update records all journals anew: for a release, or where nothing that was
// released can hold others.
var update = flag.Bool("update", false, "record the journals anew")

// least is how many journals there are.
const least = 50

// golden is a recorded journal, and the tasks it makes: the root's, then those of
// delegations.
type golden struct {
	events []*teamv1.Event
	tasks  []*a2av1.Task
}

func TestP19_Journals(t *testing.T) {
	all := scenarios()
	if len(all) < least {
		t.Fatalf("%d journals, want at least %d", len(all), least)
	}
	for _, s := range all {
		t.Run("P19 "+s.name, func(t *testing.T) {
			if *update {
				events := record(t, s)
				(&golden{events, tasksOf(events)}).write(t, s.name)
			}
			g := read(t, s.name)
			t.Run("fold", g.fold)
			t.Run("S-60 costs", g.costs)
			t.Run("run", func(t *testing.T) { g.run(t, s, len(g.events)-1) })
			if s.anywhere {
				t.Run("run from every event", func(t *testing.T) {
					for n := 1; n < len(g.events)-1; n += sample.Stride() {
						g.run(t, s, n)
					}
				})
			}
		})
	}
}

// TestP19_NothingIsForgotten: a journal that nobody replays proves nothing.
func TestP19_NothingIsForgotten(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.binpb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".binpb")
		if !slices.ContainsFunc(scenarios(), func(s scenario) bool { return s.name == name }) {
			t.Errorf("%s belongs to no scenario", f)
		}
	}
}

// tasksOf folds the root and every delegation.
func tasksOf(events []*teamv1.Event) []*a2av1.Task {
	root := events[0].GetAccepted().GetTaskId()
	scopes := []string{""}
	for _, ev := range events {
		for _, step := range ev.GetDecided().GetSteps() {
			switch step.GetKind() {
			case teamv1.Step_KIND_DELEGATE, teamv1.Step_KIND_STEP, teamv1.Step_KIND_TRANSFER:
				scopes = append(scopes, agent.Scope(ev.GetScope(), step.GetId()))
			}
		}
	}
	tasks := make([]*a2av1.Task, len(scopes))
	for i, scope := range scopes {
		f := project.New(root, scope)
		for _, ev := range events {
			f.Apply(ev)
		}
		tasks[i] = f.Task()
	}
	return tasks
}

// fold wants the recorded events to make the recorded tasks, to the letter.
func (g *golden) fold(t *testing.T) {
	if diff := cmp.Diff(g.tasks, tasksOf(g.events), protocmp.Transform()); diff != "" {
		t.Errorf("(-recorded +folded):\n%s", diff)
	}
}

// costs wants the events to add up to what the end says that the run has spent, and by agent to what the
// tree of the run has. Until the end they are what the tree has so far, without attempts that are open.
func (g *golden) costs(t *testing.T) {
	book, view := cost.NewBook("acme"), journal.New(g.events[0].GetAccepted().GetTaskId(), journal.Whole)
	total, byPath := cost.Amounts{}, map[string]cost.Amounts{}
	for i, ev := range g.events {
		view.Apply(ev)
		sums := book.Apply
		if i == len(g.events)-1 {
			sums = book.End
		}
		for _, s := range sums(ev) {
			total.Add(s.Amounts)
			of := byPath[s.Path]
			of.Add(s.Amounts)
			byPath[s.Path] = of
		}
		if want := cost.AmountsOf(view.Top.Spent()); !slices.Equal(total[:8], want[:8]) {
			t.Fatalf("after event %d the book has %v, and the run has spent %v", i+1, total, want)
		}
	}
	want := map[string]cost.Amounts{}
	view.Top.Walk(func(n *journal.Node) {
		if own := cost.AmountsOf(n.Own()); own != (cost.Amounts{}) {
			of := want[n.Path]
			of.Add(own)
			want[n.Path] = of
		}
	})
	if diff := cmp.Diff(want, byPath); diff != "" {
		t.Errorf("by path (-tree +book):\n%s", diff)
	}
}

// run cuts a journal off, and wants the run to go on from there to the same tasks.
// From the last event but one there is nothing left to do for anybody but a root
// that works itself.
func (g *golden) run(t *testing.T, s scenario, n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCast(t, true)
		defer c.Close()
		s.agents(c)
		tape := cut(g.events, n)
		if err := tape.drive(t.Context(), c.Get); err != nil {
			t.Fatalf("from event %d: %v", n, err)
		}
		if diff := cmp.Diff(plain(g.tasks, s.alike), plain(tasksOf(tape.events), s.alike), protocmp.Transform()); diff != "" {
			t.Errorf("from event %d (-recorded +run):\n%s", n, diff)
		}
		if s.after != nil {
			s.after(t, c, g.events[:n], tape.events)
		}
		if calls := c.calls.Load(); n == len(g.events)-1 && len(g.tasks) > 1 && calls > 0 {
			t.Errorf("%d calls of members that have ended on record", calls)
		}
	})
}

// plain returns tasks without what is another each time: times, cursors, and the
// ids that agents give their messages; and with one text of alike for the other.
func plain(tasks []*a2av1.Task, alike [2]string) []*a2av1.Task {
	out := make([]*a2av1.Task, len(tasks))
	for i, task := range tasks {
		task = proto.CloneOf(task)
		task.Status.Timestamp = nil
		run := task.GetMetadata().GetFields()[project.TeamRunURI].GetStructValue().GetFields()
		delete(run, "seq")
		for _, m := range task.GetHistory() {
			for _, p := range m.GetParts() {
				if text, ok := p.GetContent().(*a2av1.Part_Text); ok && alike[0] != "" {
					text.Text = strings.ReplaceAll(text.Text, alike[0], alike[1])
				}
			}
		}
		out[i] = task
	}
	return out
}

// write puts a golden into testdata.
func (g *golden) write(t *testing.T, name string) {
	t.Helper()
	var events bytes.Buffer
	for _, ev := range g.events {
		if _, err := protodelim.MarshalTo(&events, ev); err != nil {
			t.Fatal(err)
		}
	}
	var tasks bytes.Buffer
	for _, task := range g.tasks {
		b, err := wire.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&tasks, "%s\n", b)
	}
	for path, b := range map[string][]byte{file(name, "binpb"): events.Bytes(), file(name, "jsonl"): tasks.Bytes()} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// read takes a golden from testdata.
func read(t *testing.T, name string) *golden {
	t.Helper()
	events, err := os.ReadFile(file(name, "binpb"))
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{}
	for r := bytes.NewReader(events); ; {
		ev := &teamv1.Event{}
		err := protodelim.UnmarshalFrom(r, ev)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		g.events = append(g.events, ev)
	}
	tasks, err := os.ReadFile(file(name, "jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(tasks) {
		task := &a2av1.Task{}
		if err := wire.Unmarshal(line, task); err != nil {
			t.Fatal(err)
		}
		g.tasks = append(g.tasks, task)
	}
	return g
}

func file(name, kind string) string { return filepath.Join("testdata", name+"."+kind) }
