//go:build linux

package durable

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// story is a small history without a fault and the record that belongs to it:
// two lives, a task of two steps, the second of which was in flight at the kill.
type story struct {
	entries []entry
	record  record
}

func newStory() *story {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(life int) time.Time { return began.Add(time.Duration(life) * time.Minute) }
	s := &story{record: record{tasks: 1}}
	add := func(life int, e entry) {
		e.At, e.Life = at(life), life
		s.entries = append(s.entries, e)
	}
	var all []*teamv1.Event
	event := func(life int, scope string, e *teamv1.Event) {
		e.Seq, e.Scope, e.Agent, e.Time = int64(len(all)+1), scope, "flow", timestamppb.New(at(life).Add(time.Second))
		all = append(all, e)
	}
	ended := func(text string) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage(text)}}}}
	}
	started := func(key string) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1, Key: key}}}
	}
	event(1, "", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: "root", Agent: "flow", Message: agent.UserMessage("m1", "T1")}}})
	event(1, "1", started("k1"))
	event(1, "1", ended("one"))
	event(1, "2", started("k2"))
	event(2, "", &teamv1.Event{Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: 2}}})
	event(2, "2", ended("two"))
	event(2, "", ended(flow("T1")))
	s.record.events = journals{"root": all}

	add(1, entry{Op: opStart})
	add(1, entry{Op: opSend, Message: "m1", Agent: "flow", Text: "T1"})
	add(1, entry{Op: opTask, Message: "m1", Task: "root"})
	add(1, entry{Op: opSee, Message: "m1", Task: "root", Seq: 1, Snap: true, Stream: 1})
	add(1, entry{Op: opCall, Member: "alpha", Key: "k1"})
	add(1, entry{Op: opCall, Late: true, Member: "gamma", Key: "k2"})
	told := projected("root", all, 1)
	for _, r := range told[:2] {
		add(1, entry{Op: opSee, Message: "m1", Task: "root", Seq: r.seq, Body: r.body, Stream: 1})
	}
	add(1, entry{Op: opKill, Count: 1})
	add(2, entry{Op: opStart})
	add(2, entry{Op: opCall, Late: true, Member: "gamma", Key: "k2"})
	for i, r := range told[2:] {
		if i+3 < len(told) && told[i+3].seq == r.seq {
			r.seq = 0
		}
		add(2, entry{Op: opSee, Message: "m1", Task: "root", Seq: r.seq, Body: r.body, Stream: 2, Open: 3})
	}
	add(2, entry{Op: opEnd, Message: "m1", Task: "root", State: a2av1.TaskState_TASK_STATE_COMPLETED.String(), Text: flow("T1")})
	return s
}

// find is the n-th entry of an op.
func (s *story) find(op string, n int) *entry {
	for i := range s.entries {
		if s.entries[i].Op == op {
			if n == 0 {
				return &s.entries[i]
			}
			n--
		}
	}
	return nil
}

// without leaves out entries.
func (s *story) without(out func(e entry) bool) { s.entries = slices.DeleteFunc(s.entries, out) }

// forge makes a response that the journal does not tell.
func forge(b []byte) []byte {
	r := parse(b)
	r.GetStatusUpdate().Status.State = a2av1.TaskState_TASK_STATE_FAILED
	b, _ = proto.Marshal(r)
	return b
}

// TestCheck_P1_P2 spoils a good story in every way that the check is to find.
func TestCheck_P1_P2(t *testing.T) {
	if err := check(newStory().entries, newStory().record).err(); err != nil {
		t.Fatalf("a story without a fault: %v", err)
	}
	for _, f := range []struct {
		name, want string
		spoil      func(*story)
	}{
		{"a task is lost", "is lost", func(s *story) { delete(s.record.events, "root") }},
		{"the last event is lost", "not in its place", func(s *story) { s.record.events["root"] = s.record.events["root"][:5] }},
		{"an event is missing", "in place 3", func(s *story) { s.record.events["root"] = slices.Delete(s.record.events["root"], 2, 3) }},
		{"an event is another", "is on record as", func(s *story) { e := s.find(opSee, 2); e.Body = forge(e.Body) }},
		{"an event was not seen", "did not see event 6", func(s *story) { s.without(func(e entry) bool { return e.Op == opSee && e.Seq != 0 && e.Seq >= 6 }) }},
		{"an event was skipped", "not in its place", func(s *story) { s.without(func(e entry) bool { return e.Op == opSee && e.Seq == 2 }) }},
		{"an event came again", "told of event", func(s *story) { s.find(opSee, 3).Open = 6 }},
		{"an event came late", "came after", func(s *story) { s.find(opSee, 1).Seq = 9 }},
		{"a resumed stream began with a task", "began with a task", func(s *story) { s.find(opSee, 3).Snap = true }},
		{"a message made two tasks", "has made two tasks", func(s *story) {
			s.entries = append(s.entries, entry{Op: opTask, Message: "m1", Task: "other"})
		}},
		{"there is a task too many", "2 tasks are on record", func(s *story) { s.record.tasks = 2 }},
		{"the task has not ended", "has not ended", func(s *story) { s.without(func(e entry) bool { return e.Op == opEnd }) }},
		{"the task has failed", "ended as", func(s *story) { s.find(opEnd, 0).State = "TASK_STATE_FAILED" }},
		{"the answer is wrong", "want", func(s *story) { s.find(opEnd, 0).Text = "x" }},
		{"the journal has no end", "0 ends", func(s *story) {
			s.record.events["root"] = s.record.events["root"][:6]
			s.without(func(e entry) bool { return e.Op == opSee && e.Seq > 6 })
		}},
		{"a recorded step ran again", "which had ended on record in life 1", func(s *story) { s.find(opCall, 2).Key = "k1" }},
		{"a step ran twice in a life", "called twice", func(s *story) {
			for n := 1; n <= 2; n++ {
				c := s.find(opCall, n)
				c.Late, c.Life = false, 1
			}
		}},
		{"a step ran before its start was on record", "began on record in life 2", func(s *story) {
			s.record.events["root"][3].Time = s.record.events["root"][4].Time
		}},
		{"an effect is not on record", "which is not on record", func(s *story) { s.find(opCall, 0).Key = "k9" }},
		{"a bound task was sent again", "which was bound in life 1", func(s *story) {
			all := s.record.events["root"]
			all[4] = &teamv1.Event{Seq: 5, Scope: "2", Time: all[3].Time, Kind: &teamv1.Event_Bound{Bound: &teamv1.Bound{TaskId: "t"}}}
			s.without(func(e entry) bool { return e.Op == opSee && !e.Snap })
		}},
		{"a task was shown to others", "another principal", func(s *story) { s.entries = append(s.entries, entry{Op: opLeak, Task: "root"}) }},
	} {
		t.Run("P1 P2 "+f.name, func(t *testing.T) {
			s := newStory()
			f.spoil(s)
			if err := check(s.entries, s.record).err(); err == nil || !strings.Contains(err.Error(), f.want) {
				t.Fatalf("found %v, want %q", err, f.want)
			}
		})
	}
}
