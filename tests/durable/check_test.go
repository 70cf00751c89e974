//go:build linux

package durable

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
)

// record is what a store holds after the last life: the events of each task in
// order, and how many tasks there are in all.
type record struct {
	events map[string][]*teamv1.Event // by root
	tasks  int
}

// report is what a check has found.
type report struct {
	kills, tasks, events                 int
	underWay                             int // tasks, fewest at a kill
	lostTasks, lostEvents                int
	repeatedRecorded                     int // calls of a step whose end was on record
	repeats, repeatsAtOnce, repeatsAStep int // of steps in flight: in all, most at one kill, most of one step at one kill
	faults                               []fault
}

// String is the report on one line.
func (r *report) String() string {
	return fmt.Sprintf("%d cycles, %d tasks, %d events, %d kills with at least %d tasks under way: lost tasks %d, lost events %d, repeated committed steps %d, "+
		"repeats in flight %d (at most %d a step and kill, %d in all at one kill), other faults %d",
		r.kills, r.tasks, r.events, r.kills, r.underWay, r.lostTasks, r.lostEvents, r.repeatedRecorded, r.repeats, r.repeatsAStep, r.repeatsAtOnce,
		len(r.faults)-r.lostTasks-r.lostEvents-r.repeatedRecorded)
}

// add adds up what was found in several histories.
func (r *report) add(o *report) {
	if r.kills == 0 || o.underWay < r.underWay {
		r.underWay = o.underWay
	}
	r.kills, r.tasks, r.events = r.kills+o.kills, r.tasks+o.tasks, r.events+o.events
	r.lostTasks, r.lostEvents, r.repeatedRecorded = r.lostTasks+o.lostTasks, r.lostEvents+o.lostEvents, r.repeatedRecorded+o.repeatedRecorded
	r.repeats, r.repeatsAtOnce, r.repeatsAStep = r.repeats+o.repeats, max(r.repeatsAtOnce, o.repeatsAtOnce), max(r.repeatsAStep, o.repeatsAStep)
	r.faults = append(r.faults, o.faults...)
}

func (r *report) fault(format string, args ...any) {
	r.faults = append(r.faults, fault{format, fmt.Sprintf(format, args...)})
}

// fault is something that must not be. Those of a kind have one format.
type fault struct{ format, text string }

// err is nil when nothing is wrong. It names the first faults of each kind.
func (r *report) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	const most = 3
	shown := []string{fmt.Sprintf("%d faults", len(r.faults))}
	kinds := map[string]int{}
	for _, f := range r.faults {
		if kinds[f.format]++; kinds[f.format] <= most {
			shown = append(shown, f.text)
		}
	}
	for _, f := range r.faults {
		if n := kinds[f.format] - most; n > 0 {
			shown = append(shown, fmt.Sprintf("and %d more like: %s", n, f.format))
			kinds[f.format] = 0
		}
	}
	return errors.New(strings.Join(shown, "\n"))
}

// checker compares a history with what is on record. It needs nothing else, so
// that a saved history can be checked again.
type checker struct {
	report
	starts   []time.Time // of each life
	overlap  bool        // lives do: what happened in which cannot be told
	jobs     map[string]*deed
	record   record
	messages []string // of jobs, in order
}

// deed is what the history tells of one job.
type deed struct {
	send, end *entry
	task      string
	seen      []entry
}

// check checks a history.
func check(entries []entry, r record) *report {
	c := &checker{jobs: map[string]*deed{}, record: r}
	var calls []entry
	for i := range entries {
		e := &entries[i]
		switch e.Op {
		case opStart:
			c.starts = append(c.starts, e.At)
			c.overlap = c.overlap || e.Both
		case opKill:
			if c.kills++; c.kills == 1 || e.Count < c.underWay {
				c.underWay = e.Count
			}
		case opLeak:
			c.fault("task %s was shown to another principal: %s", e.Task, e.Text)
		case opFailed:
			c.fault("%s", e.Text)
		case opCall:
			calls = append(calls, *e)
		default:
			c.note(e)
		}
	}
	c.checkJobs()
	c.checkCalls(calls)
	return &c.report
}

// note files an entry with its job.
func (c *checker) note(e *entry) {
	d := c.jobs[e.Message]
	if d == nil {
		if e.Message == "" {
			return
		}
		d = &deed{}
		c.jobs[e.Message] = d
		c.messages = append(c.messages, e.Message)
	}
	switch e.Op {
	case opSend:
		d.send = e
	case opTask:
		if d.task != "" && d.task != e.Task {
			c.fault("message %s has made two tasks, %s and %s", e.Message, d.task, e.Task)
		}
		d.task = e.Task
	case opSee:
		d.seen = append(d.seen, *e)
		c.events++
	case opEnd:
		d.end = e
	}
}

func (c *checker) checkJobs() {
	for _, m := range c.messages {
		if c.jobs[m].task != "" {
			c.tasks++
			c.checkJob(m, c.jobs[m])
		}
	}
	if c.record.tasks != len(c.messages) {
		c.fault("%d messages were sent, and %d tasks are on record", len(c.messages), c.record.tasks)
	}
}

// checkJob looks whether the task is there, whole, and as it was shown.
func (c *checker) checkJob(message string, d *deed) {
	events := c.record.events[d.task]
	if len(events) == 0 {
		c.lostTasks++
		c.fault("task %s of message %s is lost", d.task, message)
		return
	}
	c.checkSequence(d.task, events)
	c.checkSeen(d, events)
	want := answers[d.send.Agent](d.send.Text)
	switch {
	case d.end == nil:
		c.fault("task %s has not ended", d.task)
	case d.end.State != a2av1.TaskState_TASK_STATE_COMPLETED.String():
		c.fault("task %s of %s ended as %s", d.task, d.send.Agent, d.end.State)
	case d.end.Text != want:
		c.fault("task %s of %s answered %q, want %q", d.task, d.send.Agent, d.end.Text, want)
	}
}

func (c *checker) checkSequence(task string, events []*teamv1.Event) {
	ends := 0
	for i, ev := range events {
		if ev.GetSeq() != int64(i+1) {
			c.fault("task %s has event %d in place %d", task, ev.GetSeq(), i+1)
		}
		if ev.GetEnded() != nil && ev.GetScope() == "" {
			ends++
		}
	}
	if events[0].GetAccepted().GetTaskId() != task || ends != 1 {
		c.fault("the journal of task %s begins with %v and has %d ends", task, events[0], ends)
	}
}

// told is one response of an event.
type told struct {
	seq  int64
	body []byte
}

// checkSeen compares what a subscriber saw with what the journal tells: the
// same, in order, from its first task on, without a gap or a repetition.
func (c *checker) checkSeen(d *deed, events []*teamv1.Event) {
	seen, from := c.stitch(d)
	if len(d.seen) == 0 {
		return
	}
	want := projected(d.task, events, from)
	for i := range max(len(seen), len(want)) {
		switch {
		case i >= len(want) || i < len(seen) && seen[i].seq != want[i].seq:
			c.lostEvents++
			c.fault("task %s: a subscriber saw event %d, which is not in its place in the journal: %s", d.task, seen[i].seq, show(seen[i].body))
			return
		case i >= len(seen):
			c.fault("task %s: a subscriber did not see event %d: %s", d.task, want[i].seq, show(want[i].body))
			return
		case !same(seen[i].body, want[i].body):
			c.lostEvents++
			c.fault("task %s: event %d was seen as\n%s\nand is on record as\n%s", d.task, seen[i].seq, show(seen[i].body), show(want[i].body))
			return
		}
	}
}

// stitch puts the streams of a job together, from its first task on. What a cut
// left of an event that tells several things comes again whole.
func (c *checker) stitch(d *deed) (seen []told, from int64) {
	var last int64
	var part []entry // of an event
	for _, e := range d.seen {
		if len(part) > 0 && part[0].Stream != e.Stream {
			part = nil
		}
		switch {
		case e.Snap && last == 0 && e.Open == 0:
			from, last = e.Seq, e.Seq
		case e.Snap:
			c.fault("task %s: a stream behind %d began with a task", d.task, e.Open)
		case e.Seq == 0:
			part = append(part, e)
		case e.Seq <= e.Open:
			c.fault("task %s: a stream behind %d told of event %d", d.task, e.Open, e.Seq)
		case e.Seq <= last:
			c.fault("task %s: event %d came after %d", d.task, e.Seq, last)
		default:
			for _, p := range append(part, e) {
				seen = append(seen, told{e.Seq, p.Body})
			}
			part, last = nil, e.Seq
		}
	}
	return seen, from
}

// projected is what a journal tells a subscriber that has seen what came up to
// a sequence. Only the last response of an event names its sequence.
func projected(task string, events []*teamv1.Event, from int64) []told {
	var all []told
	f := project.New(task, "")
	for _, ev := range events {
		responses := f.Project(ev, true)
		for i, r := range responses {
			if i < len(responses)-1 {
				delete(r.GetArtifactUpdate().GetMetadata().GetFields()[a2a.TeamRunURI].GetStructValue().GetFields(), "seq")
			}
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
			if err == nil && ev.GetSeq() > from {
				all = append(all, told{ev.GetSeq(), b})
			}
		}
	}
	return all
}

func parse(b []byte) *a2av1.StreamResponse {
	r := &a2av1.StreamResponse{}
	if err := proto.Unmarshal(b, r); err != nil {
		return nil
	}
	return r
}

// show is the beginning of a response as text.
func show(b []byte) string {
	s := fmt.Sprint(parse(b))
	return s[:min(len(s), 400)]
}

func same(a, b []byte) bool { return bytes.Equal(a, b) || proto.Equal(parse(a), parse(b)) }

// step is what the journals tell of the effect with a key.
type step struct {
	task, scope           string
	started, bound, ended int // lives; 0 is never
	endedAt               time.Time
	claims                int // by new owners, while it was in flight
}

// lifeAt is the life of the server at a time.
func (c *checker) lifeAt(t time.Time) int {
	return sort.Search(len(c.starts), func(i int) bool { return c.starts[i].After(t) })
}

// steps are all steps by their keys.
func (c *checker) steps() map[string]*step {
	all := map[string]*step{}
	for task, events := range c.record.events {
		open := map[string]*step{} // by scope
		for _, ev := range events {
			life := c.lifeAt(ev.GetTime().AsTime())
			s := open[ev.GetScope()]
			switch k := ev.GetKind().(type) {
			case *teamv1.Event_Started:
				if s = all[k.Started.GetKey()]; s == nil {
					s = &step{task: task, scope: ev.GetScope(), started: life}
					all[k.Started.GetKey()] = s
				}
				open[ev.GetScope()] = s
			case *teamv1.Event_Bound:
				if s != nil && s.bound == 0 {
					s.bound = life
				}
			case *teamv1.Event_Ended:
				if s != nil {
					s.ended, s.endedAt = life, ev.GetTime().AsTime()
				}
			case *teamv1.Event_Claimed:
				for _, s := range open {
					if s.ended == 0 {
						s.claims++
					}
				}
			}
		}
	}
	return all
}

// checkCalls compares what members were asked with what is on record: a call
// needs a start on record, one of a life repeats no other, and nothing is called
// whose end is on record.
func (c *checker) checkCalls(calls []entry) {
	byKey := map[string][]entry{}
	var keys []string
	for _, e := range calls {
		if byKey[e.Key] == nil {
			keys = append(keys, e.Key)
		}
		byKey[e.Key] = append(byKey[e.Key], e)
	}
	steps, atKill := c.steps(), map[int]int{}
	for _, key := range keys {
		all := byKey[key]
		slices.SortStableFunc(all, func(a, b entry) int { return a.Life - b.Life })
		s := steps[key]
		if s == nil {
			c.fault("%s was called with key %q (%s), which is not on record", all[0].Member, key, all[0].Text)
			continue
		}
		c.checkStep(s, all, atKill)
	}
	for _, n := range atKill {
		c.repeatsAtOnce = max(c.repeatsAtOnce, n)
	}
}

func (c *checker) checkStep(s *step, calls []entry, atKill map[int]int) {
	if len(calls) > 1+s.claims {
		c.fault("%s was called %d times for step %s of task %s, which changed hands %d times meanwhile", calls[0].Member, len(calls), s.scope, s.task, s.claims)
	}
	if c.overlap {
		c.checkTimes(s, calls)
		return
	}
	for i, e := range calls {
		switch {
		case e.Life < s.started:
			c.fault("%s was called for step %s of task %s in life %d, which began on record in life %d", e.Member, s.scope, s.task, e.Life, s.started)
		case s.ended != 0 && e.Life > s.ended:
			c.repeatedRecorded++
			c.fault("%s was called for step %s of task %s in life %d, which had ended on record in life %d", e.Member, s.scope, s.task, e.Life, s.ended)
		case e.Member == "gamma" && s.bound != 0 && e.Life > s.bound:
			c.fault("%s was sent step %s of task %s again in life %d, which was bound in life %d", e.Member, s.scope, s.task, e.Life, s.bound)
		case i == 0:
		case e.Life == calls[i-1].Life && !e.Late: // of late ones only how many there are in all can be said
			c.fault("%s was called twice for step %s of task %s in life %d", e.Member, s.scope, s.task, e.Life)
			c.repeatsAStep = max(c.repeatsAStep, 2)
		default:
			c.repeats++
			atKill[e.Life]++
			c.repeatsAStep = max(c.repeatsAStep, 1)
		}
	}
}

// skew is how far the clock of a store, which is the database's as far as a
// replica knows it, and that of this process may be apart.
const skew = 100 * time.Millisecond

// checkTimes looks for calls of a step that had ended, where lives overlap. When
// gamma was called is not known.
func (c *checker) checkTimes(s *step, calls []entry) {
	c.repeats += len(calls) - 1
	for _, e := range calls[1:] {
		if s.ended != 0 && e.Member != "gamma" && e.At.After(s.endedAt.Add(skew)) {
			c.repeatedRecorded++
			c.fault("%s was called for step %s of task %s at %v, which had ended on record at %v", e.Member, s.scope, s.task, e.At, s.endedAt)
		}
	}
}
