// Package storetest tests the contract of store.Store. Each implementation runs these tests.
package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/agent"
)

// Sweeper is a store that deletes what it need not keep any more when Sweep is called.
type Sweeper interface {
	store.Store
	Sweep(ctx context.Context) error
}

// Open returns an empty store that reads the time from clock, keeps at least
// 1,000 finished runs, and is closed at the end of the test.
type Open func(t testing.TB, clock func() time.Time) Sweeper

// Run tests a store.
func Run(t *testing.T, open Open) {
	for _, s := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"Request", requests}, {"Input", inputs}, {"Journal", journals}, {"End", ends}, {"Limit", limits}, {"Inbox", inboxes}, {"Lease", leases}, {"Engine", engines},
		{"Read", reads}, {"Child", children}, {"Watch", watches}, {"List", lists}, {"Page", pages}, {"Fits", fits}, {"Overview", overviews}, {"Find", founds}, {"Kept", kept}, {"Backlog", backlogs}, {"Approvals", approvals},
		{"Race", races}, {"Model", models}, {"Conversation", conversations}, {"Push", pushes}, {"Catalog", catalogs}, {"T-49 Audit", audits}, {"Collaboration", collaborations},
		{"Board", boards}, {"Account", ledgers}, {"SharedBudgets", sharedBudgets}, {"Cost", costs}, {"Halt", halts}, {"T-11 Keys", keys}, {"T-11 Rights", rights},
	} {
		t.Run(s.name, func(t *testing.T) { s.test(t, open) })
	}
}

// Clock is a clock whose time changes only when Move is called. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock with a fixed start time.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Move adds d to the time; d may be negative.
func (c *Clock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const me = "acme/ann"

// failer is implemented by *testing.T and by *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rig is a store under test.
type rig struct {
	failer
	Sweeper
	clock *Clock
}

func newRig(t testing.TB, open Open) *rig {
	clock := NewClock()
	return &rig{failer: t, Sweeper: open(t, clock.Now), clock: clock}
}

// ctx returns a background context, because a failer has no context.
func (r *rig) ctx() context.Context { return context.Background() }

func key(id string) runs.Key { return runs.Key{Owner: me, ID: id} }

// task returns a new task of the owner me for agent "a" in context "c".
func task(id string) runs.New {
	m := agent.UserMessage("m-"+id, "do it")
	m.ContextId = "c"
	return runs.New{
		Owner: me, MessageID: "m-" + id, Digest: []byte("digest"),
		Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Owner: me, Message: m},
	}
}

// create creates tasks, and fails if one exists already.
func (r *rig) create(tasks ...runs.New) {
	r.Helper()
	for _, n := range tasks {
		root, existed, err := r.Create(r.ctx(), n)
		if err != nil || existed || root != n.Accepted.GetTaskId() {
			r.Fatalf("Create(%s) = %q, %v, %v", n.Accepted.GetTaskId(), root, existed, err)
		}
	}
}

// claims claims all runs that are due.
func (r *rig) claims() []runs.Claim {
	r.Helper()
	version, err := r.HaltVersion(r.ctx())
	if err == nil && version > 0 {
		err = r.AcknowledgeHalts(r.ctx(), "r1", version, nil) // a replica that is behind the halts claims nothing
	}
	if err != nil {
		r.Fatalf("acknowledge the halts: %v", err)
	}
	claims, _, err := r.Claim(r.ctx(), "r1", engine.NewRoom(1000, nil))
	if err != nil {
		r.Fatalf("Claim: %v", err)
	}
	return claims
}

// claim claims root, and fails unless it is the only run that is due.
func (r *rig) claim(root string) runs.Claim {
	r.Helper()
	claims := r.claims()
	if len(claims) != 1 || claims[0].Root != root {
		r.Fatalf("due are %v, want only %s", roots(claims), root)
	}
	return claims[0]
}

func roots(claims []runs.Claim) []string {
	ids := []string{}
	for _, c := range claims {
		ids = append(ids, c.Root)
	}
	return ids
}

// run creates a task and claims its run.
func (r *rig) run(id string) runs.Claim {
	r.Helper()
	r.create(task(id))
	return r.claim(id)
}

// append appends events to the journal of a claimed run and commits them.
func (r *rig) append(c runs.Claim, events ...*teamv1.Event) {
	r.Helper()
	if err := c.Journal.Append(r.ctx(), events...); err != nil {
		r.Fatalf("Append to %s: %v", c.Root, err)
	}
	if err := c.Journal.Commit(r.ctx()); err != nil {
		r.Fatalf("Commit %s: %v", c.Root, err)
	}
}

// put adds an input to the inbox of a task, and fails if it is there already. It returns the
// number of the input.
func (r *rig) put(id string, in *teamv1.Inbound) int64 {
	r.Helper()
	n, existed, err := r.Put(r.ctx(), key(id), in, []byte(in.GetKey()), nil)
	if err != nil || existed {
		r.Fatalf("Put(%s) = %d, %v, %v", id, n, existed, err)
	}
	return n
}

// park releases a claimed run with p, which says when the run is due again.
func (r *rig) park(c runs.Claim, p runs.Park) {
	r.Helper()
	if _, err := r.Park(r.ctx(), c, p); err != nil {
		r.Fatalf("Park(%s): %v", c.Root, err)
	}
}

// events reads a task's events, 7 at a time.
func (r *rig) events(id string) []*teamv1.Event {
	r.Helper()
	var all []*teamv1.Event
	var after int64
	for {
		page, err := r.Events(r.ctx(), key(id), after, 7)
		if err != nil || len(page) > 7 {
			r.Fatalf("Events(%s, %d) = %d of them, %v", id, after, len(page), err)
		}
		if len(page) == 0 {
			return all
		}
		for _, rec := range page {
			if rec.Seq != rec.Event.GetSeq() || rec.Seq <= after {
				r.Fatalf("Events(%s): record %d after %d holds event %d", id, rec.Seq, after, rec.Event.GetSeq())
			}
			after = rec.Seq
			all = append(all, rec.Event)
		}
	}
}

// inbound returns the inputs in the inbox of a claimed run.
func (r *rig) inbound(c runs.Claim) []*teamv1.Inbound {
	r.Helper()
	rows, err := c.Journal.Inbound(r.ctx())
	if err != nil {
		r.Fatalf("Inbound of %s: %v", c.Root, err)
	}
	return rows
}

// state returns the state of a task.
func (r *rig) state(id string) a2av1.TaskState {
	r.Helper()
	t, _, err := r.Task(r.ctx(), key(id))
	if err != nil {
		r.Fatalf("Task(%s): %v", id, err)
	}
	return t.GetStatus().GetState()
}

// The following functions return an event of each kind that the tests use.

func started(scope string) *teamv1.Event {
	return &teamv1.Event{Scope: scope, Agent: "a", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}}
}

func progress(text string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: agent.NewMessage(text)}}}
}

func noted(text string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: "PHASE", Text: text}}}
}

func ended(scope string, outcome teamv1.Outcome) *teamv1.Event {
	e := &teamv1.Ended{Outcome: outcome, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")}}
	return &teamv1.Event{Scope: scope, Agent: "a", Kind: &teamv1.Event_Ended{Ended: e}}
}

func succeeded() *teamv1.Event { return ended("", teamv1.Outcome_OUTCOME_SUCCEEDED) }

func decided(step string) *teamv1.Event {
	s := &teamv1.Step{
		Id: step, Kind: teamv1.Step_KIND_DELEGATE, Member: "m",
		Input: &teamv1.Input{Message: agent.NewMessage("a part of it")},
	}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{s}}}}
}

func asked(question string, expires time.Time) *teamv1.Event {
	q := &teamv1.Asked{Question: question, Kind: teamv1.Asked_KIND_INPUT, Message: agent.NewMessage("which?"), Expires: timestamppb.New(expires)}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Asked{Asked: q}}
}

func waiting(question string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: []string{question}}}}
}

// followUp returns an input with a message.
func followUp(id string) *teamv1.Inbound {
	return &teamv1.Inbound{Key: id, Kind: &teamv1.Inbound_Received{Received: &teamv1.Received{Message: agent.UserMessage(id, "and this")}}}
}

// cancel returns an input with a command that cancels the task.
func cancel(id string) *teamv1.Inbound {
	c := &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL, By: me}
	return &teamv1.Inbound{Key: id, Kind: &teamv1.Inbound_Commanded{Commanded: c}}
}

// taken returns the event that consumes a follow-up.
func taken(in *teamv1.Inbound) *teamv1.Event {
	in.GetReceived().Inbound = in.GetN()
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Received{Received: in.GetReceived()}}
}

func id(i int) string { return fmt.Sprintf("t%05d", i) }
