package monitor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

const secret = "what a member said"

// words are what a member says, decides and asks in these tests, in each form.
var (
	words     = agent.NewMessage(secret)
	wordData  = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(secret)}}
	wordError = &teamv1.Error{Reason: agent.ReasonTeamError, Message: secret, Details: map[string]string{"x": secret}}
	given     = &teamv1.Input{Message: words}
	wordAsked = &teamv1.Ask{Question: secret, Options: []string{secret}}
)

// works puts on record what work brings, with the secret wherever something of the run
// can stand. first is the number of its first step, of nine.
func (d *desk) works(id string, first int) {
	d.Helper()
	at := func(i int) string { return fmt.Sprint(first + i) }
	put := func(scope string, evs ...*teamv1.Event) {
		d.Helper()
		for _, ev := range evs {
			d.put(id, scope, ev)
		}
	}
	begins := func() *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1, Input: given}}}
	}
	ends := func(e *teamv1.Ended) *teamv1.Event {
		e.Warnings, e.Evidence = []string{secret}, wordData
		return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: e}}
	}
	asks := func(id string, kind teamv1.Asked_Kind) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: id, Kind: kind, Message: words, Roles: []string{"boss"}}}}
	}
	says := func() []*teamv1.Event {
		part := &a2av1.Artifact{ArtifactId: "own", Name: secret, Description: secret, Parts: words.GetParts(), Metadata: wordData}
		return []*teamv1.Event{
			{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: words}}},
			{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "said", Text: secret}}},
			{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: part}}},
			{Kind: &teamv1.Event_Checked{Checked: &teamv1.Checked{By: "g", Message: words, Error: wordError, Stage: teamv1.Checked_STAGE_OUTPUT}}},
			{Kind: &teamv1.Event_Checked{Checked: &teamv1.Checked{By: "g", Error: wordError, Blocked: true, Stage: teamv1.Checked_STAGE_RESULT}}},
			{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "PHASE", Text: secret, Details: wordData}}},
		}
	}
	step := func(i int, kind teamv1.Step_Kind, member string) *teamv1.Step {
		return &teamv1.Step{Id: at(i), Kind: kind, Member: member, Input: given, Ask: wordAsked, Inner: teamv1.Step_INNER_TEXT}
	}
	put("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{
		Reason: secret, Values: wordData, Updates: wordData.GetFields(), Plan: wordData, Ask: words, Failure: wordError, Input: words, Reply: given,
		Steps: []*teamv1.Step{
			step(0, teamv1.Step_KIND_DELEGATE, "b"), step(1, teamv1.Step_KIND_HUMAN, ""), step(2, teamv1.Step_KIND_TOOL, ""), step(3, teamv1.Step_KIND_MODEL, ""),
			step(4, teamv1.Step_KIND_JUDGE, "judge"), step(5, teamv1.Step_KIND_STEP, "c"), step(6, teamv1.Step_KIND_TRANSFER, "b"),
			step(7, teamv1.Step_KIND_DELEGATE, "b"), step(8, teamv1.Step_KIND_STEP, "c"), // one works on, and one is never begun
		},
	}}})
	put("", says()...)
	put(at(0), begins())
	put(at(0), says()...)
	put(at(0), &teamv1.Event{Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Attempt: 1, Error: wordError}}}, begins())
	put(at(0), &teamv1.Event{Kind: &teamv1.Event_Spawned{Spawned: &teamv1.Spawned{TaskId: "other", Input: words}}})
	put(at(0), asks("told"+at(0), teamv1.Asked_KIND_INPUT), &teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{
		Question: "told" + at(0), Message: agent.UserMessage("yes"+at(0), "yes"), By: "acme/ann",
	}}})
	put(at(0), ends(&teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: words}, Status: words}))
	put(at(2), begins(), ends(&teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Tool{Tool: &teamv1.ToolResult{Text: secret}}}))
	put(at(3), begins(), ends(&teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Turn{Turn: &teamv1.Turn{
		Text: secret, ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "t", Arguments: secret}},
	}}}))
	put(at(4), begins(), ends(&teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: words}, Verdict: &teamv1.Verdict{Feedback: secret, Fault: secret},
	}))
	put(at(5), begins(), ends(&teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: wordError}))
	put(at(6), begins(), ends(&teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Transfer{Transfer: &teamv1.Transfer{To: "c", Message: secret}}}))
	put(at(7), begins(), asks("input"+at(7), teamv1.Asked_KIND_INPUT))
	put(at(1), begins(), asks("approve"+at(1), teamv1.Asked_KIND_APPROVAL), asks("pay"+at(1), teamv1.Asked_KIND_BUDGET))
	put("", &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: []string{"approve" + at(1)}}}})
}

// stops stops the run in the way of an earlier version, which hid its results; running work
// continues.
func (d *desk) stops(id string) {
	d.Helper()
	d.put(id, "", &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_STOP}}})
}

// closes ends it.
func (d *desk) closes(id string) {
	d.Helper()
	d.put(id, "8", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: wordError, Receipt: &teamv1.Receipt{}}}})
	d.put(id, "", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_CANCELED, Error: &teamv1.Error{Reason: agent.ReasonCanceled, Message: "stopped"}, Status: words,
		Result: &teamv1.Ended_Reply{Reply: words}, Warnings: []string{secret}, Evidence: wordData,
	}}})
}

// clean reports what shows the secret.
func (d *desk) clean(where string, m proto.Message) {
	d.Helper()
	b, err := protojson.Marshal(m)
	if err != nil {
		d.Fatal(err)
	}
	if i := strings.Index(string(b), secret); i >= 0 {
		d.Errorf("%s shows it behind …%s", where, b[max(0, i-200):i])
	}
}

// parts are the task and its parts: that succeeded, asks, failed, hands over, and was not begun.
var parts = []string{"one", "one~1", "one~2", "one~6", "one~7", "one~8", "one~9"}

// views are who reads a task: as the protocol has it, and with details.
func (d *desk) views() map[string]context.Context {
	return map[string]context.Context{"plain": d.ctx, "detailed": a2a.WithExtensions(d.ctx, a2a.TeamRunURI)}
}

// asItIs looks at everything that shows how a task is.
func (d *desk) asItIs() {
	d.Helper()
	for view, ctx := range d.views() {
		for _, id := range parts {
			task, err := d.m.h.GetTask(ctx, &a2av1.GetTaskRequest{Id: id})
			if err != nil {
				d.Fatal(id, err)
			}
			d.clean(view+" task "+id, task)
			tr, err := d.m.GetTrace(ctx, &teamv1.GetTraceRequest{TaskId: id})
			if err != nil {
				d.Fatal(id, err)
			}
			d.clean("trace of "+id, tr)
		}
		list, err := d.m.h.ListTasks(ctx, &a2av1.ListTasksRequest{IncludeArtifacts: proto.Bool(true)})
		if err != nil || len(list.GetTasks()) == 0 {
			d.Fatal(list, err)
		}
		d.clean(view+" list", list)
	}
	boss := a2a.WithCaller(d.ctx, a2a.Caller{Account: "acme", Principal: "bob", Roles: []string{"boss"}})
	for who, ctx := range map[string]context.Context{"the owner's": d.ctx, "the role's": boss} {
		list, err := d.m.ListQuestions(ctx, &teamv1.ListQuestionsRequest{})
		if err != nil {
			d.Fatal(err)
		}
		d.clean(who+" questions", list)
	}
	items, err := d.m.Steps(d.ctx, "a")
	if err != nil || len(items) == 0 {
		d.Fatal(items, err)
	}
	for _, it := range items {
		d.clean("board", it)
	}
	w := d.watch("")
	w.read(d, 0)
	w.stop()
	d.clean("team", w.last)
}

// asItGoes opens every stream of the task after a cursor, ends the task with then, and
// checks all that the streams send.
func (d *desk) asItGoes(after int64, then func()) {
	d.Helper()
	var read []func()
	for view, ctx := range d.views() {
		for _, id := range parts {
			if updates, err := d.m.h.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, after); err == nil { // one that has ended is not followed
				read = append(read, func() {
					for u, err := range updates {
						if err != nil {
							d.Fatal(err)
						}
						d.clean(fmt.Sprintf("%s stream of %s behind %d, %d", view, id, after, u.Seq), u.Response)
					}
				})
			}
		}
	}
	for _, id := range parts {
		updates, err := d.m.WatchTask(d.ctx, &teamv1.WatchTaskRequest{TaskId: id, After: after})
		if err != nil {
			d.Fatal(err)
		}
		box, err := d.m.h.Outbox(d.ctx, a2a.Push{Task: a2a.Key{Owner: "acme/ann", ID: id}, PushState: a2a.PushState{Seen: after}})
		if err != nil {
			d.Fatal(err)
		}
		read = append(read, func() {
			for u, err := range updates {
				if err != nil {
					d.Fatal(err)
				}
				d.clean(fmt.Sprintf("watch of %s behind %d, %d", id, after, u.GetSeq()), u)
			}
			defer box.Close()
			for {
				n, err := box.Next(d.ctx)
				if err != nil {
					d.Fatal(err)
				}
				if n == nil {
					return
				}
				d.clean(fmt.Sprintf("push of %s behind %d, %d", id, after, n.Event), n.Response)
			}
		})
	}
	then()
	for _, r := range read {
		r()
	}
}

// keptDesk is a desk whose store outlives the process.
type keptDesk struct {
	*desk
	url string
	db  *sqlstore.Store
}

// newKept returns a desk on a database.
func newKept(t *testing.T) *keptDesk {
	d := &keptDesk{desk: newDesk(t), url: "sqlite:" + t.TempDir() + "/team.db"}
	d.open()
	t.Cleanup(func() { _ = d.db.Close() })
	return d
}

// open opens the store and claims the run.
func (d *keptDesk) open() {
	d.Helper()
	var err error
	if d.db, err = sqlstore.Open(d.ctx, d.url, sqlstore.Config{}); err != nil {
		d.Fatal(err)
	}
	d.store = d.db
	d.m = New(Config{Handler: a2a.NewHandler(a2a.Config{Agents: registry{}, Store: d.db, Overview: d.db}), Poll: 10 * time.Millisecond})
	d.take()
	for _, c := range d.claims {
		if _, err := c.Journal.Load(d.ctx); err != nil {
			d.Fatal(err)
		}
	}
}

// again stops the process and starts another one.
func (d *keptDesk) again() {
	d.Helper()
	for id, c := range d.claims {
		if err := c.Journal.Commit(d.ctx); err != nil {
			d.Fatal(err)
		}
		delete(d.claims, id)
	}
	if err := d.db.Close(); err != nil {
		d.Fatal(err)
	}
	d.open()
}

// R-001-42: if an earlier version stopped a run without saving its results, no call shows
// them, whether they were recorded before or after the stop: not the task, and no stream
// from any cursor.
func TestR_001_42_NothingShowsWhatAStopHides(t *testing.T) {
	steps := []struct {
		name string
		do   func(*desk)
	}{
		{"stopped", func(d *desk) { d.begin("one"); d.works("one", 1); d.stops("one") }},
		{"goes on", func(d *desk) { d.works("one", 10) }},
		{"ended", func(d *desk) { d.closes("one") }},
	}
	for n := range steps {
		to := func(t *testing.T) *keptDesk {
			d := newKept(t)
			for _, s := range steps[:n+1] {
				s.do(d.desk)
				d.again()
			}
			return d
		}
		t.Run(steps[n].name, func(t *testing.T) {
			d := to(t)
			d.asItIs()
			for i, after := range []int64{0, 1, 7, 20, 31, 38, 45} {
				if i%sample.Stride() > 0 {
					continue
				}
				d := to(t)
				d.asItGoes(after, func() {
					for _, s := range steps[n+1:] {
						s.do(d.desk)
					}
				})
			}
		})
		t.Run(steps[n].name+", to a watcher of the team", func(t *testing.T) {
			d := newKept(t)
			d.begin("other")
			w := d.watch("")
			w.read(d.desk, 0)
			w.stop()
			for _, s := range steps[:n+1] {
				s.do(d.desk)
				d.again()
			}
			for _, m := range d.toldOf(w.cursor) {
				d.clean("team watch", m)
			}
		})
	}
}

// toldOf returns what a watcher of the team receives after a cursor.
func (d *desk) toldOf(cursor string) (told []proto.Message) {
	d.Helper()
	r := d.watch(cursor)
	defer r.stop()
	for {
		m, err, ok := r.next()
		if err != nil || !ok {
			d.Fatal(err)
		}
		if told = append(told, proto.CloneOf(m)); m.GetEvent() == nil {
			return told
		}
	}
}
