package monitor

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

const secret = "what a member said"

// stopped is a run whose first member has answered, whose second one works on that,
// and which was stopped some notes later.
func (d *desk) stopped(id string, save bool, notes int) {
	said := agent.NewMessage(secret)
	step := func(id string, in *a2av1.Message) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Reason: agent.Text(in), Steps: []*teamv1.Step{
			{Id: id, Kind: teamv1.Step_KIND_DELEGATE, Member: "b", Input: &teamv1.Input{Message: in}},
		}}}}
	}
	ended := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: said}, Spent: &teamv1.Spent{OutputTokens: 3}}
	d.begin(id)
	d.put(id, "", step("1", agent.UserMessage("m", "do it")))
	d.put(id, "1", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	d.put(id, "1", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: ended}})
	d.put(id, "", step("2", said))
	d.put(id, "2", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	for range notes {
		d.note(id)
	}
	d.put(id, "", &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_STOP, SavePartial: save}}})
}

func (d *desk) shows(messages ...proto.Message) bool {
	all := ""
	for _, m := range messages {
		b, err := protojson.Marshal(m)
		if err != nil {
			d.Fatal(err)
		}
		all += string(b)
	}
	return strings.Contains(all, secret)
}

// R-001-42: what a stop drops, neither the trace of the task nor its watchers nor
// those of its team are shown any more: what was done, and what it cost, they are.
func TestR_001_42_WhatAStopDrops(t *testing.T) {
	for _, save := range []bool{false, true} {
		d := newDesk(t)
		d.stopped("one", save, 0)
		tr, err := d.m.GetTrace(d.ctx, &teamv1.GetTraceRequest{TaskId: "one"})
		if err != nil {
			t.Fatal(err)
		}
		steps := tr.GetTrace().GetStep().GetSteps()
		if d.shows(tr) != save || len(steps) != 2 || steps[0].GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED || tr.GetTrace().GetCost().GetSpent().GetOutputTokens() != 3 {
			t.Errorf("save_partial=%v: the trace is %v", save, tr)
		}
		w := d.watch("")
		if w.read(d, 0); d.shows(w.last) != save {
			t.Errorf("save_partial=%v: the team shows %v", save, w.last)
		}
		for n := range 4 {
			over, notes := n%2 == 1, n/2*300 // more than is read at once
			d := newDesk(t)
			d.begin("other")
			w := d.watch("")
			w.read(d, 0)
			w.stop()
			d.stopped("one", save, notes)
			if over {
				d.put("one", "", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_CANCELED}}})
			}
			if told := d.toldOf(w.cursor); d.shows(told...) != save {
				t.Errorf("save_partial=%v, over=%v, %d notes: behind a cursor from before it a watcher of the team is told %v", save, over, notes, told)
			}
		}
		items, err := d.m.Steps(d.ctx, "a")
		if err != nil || len(items) != 2 {
			t.Fatal(items, err)
		}
		if d.shows(items[0], items[1]) != save || items[1].GetTitle() == "" {
			t.Errorf("save_partial=%v: the board shows %v", save, items)
		}
		for after := range int64(5) {
			d := newDesk(t)
			d.stopped("one", save, 0)
			if told := d.toldBehind(after); d.shows(told...) != save {
				t.Errorf("save_partial=%v: behind %d a watcher is told %v", save, after, told)
			}
		}
	}
}

// toldOf is what a watcher of the team is told behind a cursor until all is told.
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

// toldBehind is what a watcher of the task is told until the second member, too, has ended.
func (d *desk) toldBehind(after int64) (told []proto.Message) {
	d.Helper()
	said := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage(secret)}}
	updates, err := d.m.WatchTask(d.ctx, &teamv1.WatchTaskRequest{TaskId: "one", After: after})
	if err != nil {
		d.Fatal(err)
	}
	for u, err := range updates {
		if err != nil {
			d.Fatal(err)
		}
		if told = append(told, proto.CloneOf(u)); len(told) == 1 {
			d.put("one", "2", &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: said}})
		}
		if u.GetEvent().GetTaskId() == "one~2" && u.GetEvent().GetEvent().GetEnded() != nil {
			return told
		}
	}
	return told
}
