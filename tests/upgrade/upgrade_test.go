// Package upgrade opens stores that an earlier version has left in the middle of its
// work: what is on record is shown as it was, and what was begun comes to its end.
package upgrade

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// update makes the files of testdata anew: "shown" what stores are shown as, "stores"
// the stores too. Those are made for a release, by its own sources.
var update = flag.String("update", "", "make anew: shown, or stores")

// Files of testdata that hold for all stores.
const (
	// ends has what becomes of the runs that had not ended.
	ends = "testdata/results.json"
	// shown has what is shown of each run, and of the rest of a store.
	shown = "testdata/shown.json.gz"
)

// TestP19_StoresOfThePreviousVersion opens stores that a server left without notice, with runs of every mode in every
// state. The store in PostgreSQL is a copy of the one in SQLite.
func TestP19_StoresOfThePreviousVersion(t *testing.T) {
	b, err := os.ReadFile("testdata/team.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := string(b)
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			if *update == "stores" {
				k.furnish(t, file)
			}
			t.Run("P19 what is on record is shown as it was", func(t *testing.T) { k.shows(t, file) })
			t.Run("P19 what was begun comes to its end", func(t *testing.T) {
				k.finishes(t, strings.Replace(file, "as it was:", "as it is:", 1))
			})
		})
	}
}

// furnish makes the store of testdata.
func (k kind) furnish(t *testing.T, file string) {
	t.Helper()
	at := k.empty(t)
	if k.name == "sqlite" {
		h := open(t, at, newCast(t, file))
		h.furnish()
		k.dump(t, at.URL, k.file)
		h.Stop()
		at = k.load(t, k.file)
	} else {
		sqlite := kinds()[0]
		copied(t, sqlite.load(t, sqlite.file).URL, at.URL)
	}
	k.change(t, at.URL, park)
	k.dump(t, at.URL, k.file)
}

// copied copies a store to an empty one.
func copied(t *testing.T, from, to string) {
	t.Helper()
	source := must[*sqlstore.Store](t)(sqlstore.Open(t.Context(), from, sqlstore.Config{Sealed: true}))
	defer source.Close()
	target := must[*sqlstore.Store](t)(sqlstore.Open(t.Context(), to, sqlstore.Config{Sealed: true}))
	defer target.Close()
	must[int64](t)(sqlstore.Copy(t.Context(), source, target))
}

// shows compares all that a server shows of a store with the files.
func (k kind) shows(t *testing.T, file string) {
	t.Helper()
	at := k.load(t, k.file)
	for _, statement := range []string{still, untold, unswept} {
		k.change(t, at.URL, statement)
	}
	h := open(t, at, newCast(t, file))
	roots := h.roots()
	views := map[string]view{"rest": h.rest(roots)}
	for name, task := range roots {
		views[name] = h.task(task.GetId())
	}
	check(t, shown, views, *update != "" && k.name == kinds()[0].name)
}

// finishes has all runs of a store come to their end, and compares what became of them.
func (k kind) finishes(t *testing.T, file string) {
	t.Helper()
	at := k.load(t, k.file)
	c := newCast(t, file)
	gates := map[string]*fakellm.Gate{}
	for _, r := range allRuns() {
		if r.state == "halted" {
			gates[r.name()] = c.hold(r)
		}
	}
	h := open(t, at, c)
	for name, task := range h.roots() {
		if gate := gates[name]; gate != nil {
			h.arrives(name, gate)
			must[*a2av1.Task](h)(h.tasks.Cancel(h.Context(), &a2av1.CancelTaskRequest{Id: task.GetId()}))
		}
		if name == "workflow/parked" && k.name == "postgres" { // a server with a SQLite store tries it by itself
			h.tryAgain(task)
		}
		h.finish(task)
		if strings.HasPrefix(name, "detached/") && strings.HasSuffix(name, "/left") {
			h.finish(h.get(h.told(task.GetId())))
		}
	}
	h.play(run{"minutes", "third"})
	results := map[string]view{}
	for name, task := range h.roots() {
		if state := strings.Split(name, "/")[1]; !slices.Contains(over, state) {
			results[name] = h.result(task)
		}
	}
	check(t, ends, results, *update != "" && k.name == kinds()[0].name)
}

// finish resumes a run that is paused, and answers what it asks until it has ended.
func (h *house) finish(task *a2av1.Task) {
	h.Helper()
	id := task.GetId()
	if a2a.RunOf(task.GetMetadata()).GetPaused() {
		must[*teamv1.ResumeCollaborationResponse](h)(h.collabs.ResumeCollaboration(h.Context(), &teamv1.ResumeCollaborationRequest{CollaborationId: id}))
	}
	answered := map[string]bool{}
	for !ended(task) {
		var open []*teamv1.Question
		task = h.until(id, func(task *a2av1.Task) bool {
			open = slices.DeleteFunc(a2a.RunOf(task.GetMetadata()).GetQuestions(), func(q *teamv1.Question) bool { return answered[q.GetQuestion()] })
			return ended(task) || len(open) > 0
		})
		for _, q := range open {
			who := h.monitor
			if slices.Contains(q.GetRoles(), "chief") {
				who = h.chief
			}
			must[*teamv1.AnswerQuestionResponse](h)(who.Answer(h.Context(), &teamv1.AnswerQuestionRequest{
				TaskId: id, Question: q.GetQuestion(), Answer: &teamv1.AnswerQuestionRequest_Text{Text: "yes"},
			}))
			answered[q.GetQuestion()] = true
		}
	}
}

// tryAgain sends a message to a parked run.
func (h *house) tryAgain(task *a2av1.Task) {
	h.Helper()
	req := rig.Text("", "again", "Go on.")
	req.Message.TaskId = task.GetId()
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
	must[*a2av1.SendMessageResponse](h)(h.tasks.Send(h.Context(), req))
}
