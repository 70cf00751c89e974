package board_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// desk is a board that a test works on, on a clock of its own.
type desk struct {
	memstore.TB
	*board.Board
	store *sqlstore.Store
	clock *storetest.Clock
	ctx   context.Context //nolint:containedctx // of the caller
}

func newDesk(t memstore.TB) *desk {
	clock := storetest.NewClock()
	s := memstore.OpenAt(t, clock.Now)
	return &desk{TB: t, Board: board.New(s), store: s, clock: clock, ctx: context.Background()}
}

var key = board.Key{Account: "acme", Team: "crew"}

// as is a member at the board.
func as(member string) board.Place {
	return board.Place{Key: key, Actor: &teamv1.BoardActor{Principal: "acme/ann", Agent: member}, Members: []string{"x", "y"}}
}

// reason is what an error says in a word.
func reason(err error) string {
	var fault *a2aerror.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &fault):
		return fault.Reason
	}
	return agent.AsError(err).Reason
}

func (d *desk) add(id string, needs ...string) {
	d.Helper()
	if _, err := d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{ItemId: id, Title: id, DependsOn: needs}); err != nil {
		d.Fatalf("add %s: %v", id, err)
	}
}

func (d *desk) claim(who, id string) error {
	_, err := d.ClaimWorkItem(d.ctx, as(who), &teamv1.ClaimWorkItemRequest{ItemId: id})
	return err
}

func (d *desk) complete(who, id string) error {
	_, err := d.CompleteWorkItem(d.ctx, as(who), &teamv1.CompleteWorkItemRequest{ItemId: id, Result: "done"})
	return err
}

func (d *desk) fail(who, id string) error {
	_, err := d.FailWorkItem(d.ctx, as(who), &teamv1.FailWorkItemRequest{ItemId: id, Error: "broke"})
	return err
}

// must fails the test if a call failed.
func (d *desk) must(errs ...error) {
	d.Helper()
	if err := errors.Join(errs...); err != nil {
		d.Fatalf("%v", err)
	}
}

// states are those of all items, in the order in which they were added.
func (d *desk) states() string {
	d.Helper()
	items, _, err := d.ListWorkItems(d.ctx, as("x"), &teamv1.ListWorkItemsRequest{PageSize: 100})
	if err != nil {
		d.Fatalf("%v", err)
	}
	words := make([]string, len(items))
	for i, it := range items {
		words[i] = it.GetId() + ":" + strings.TrimPrefix(it.GetState().String(), "STATE_")
	}
	return strings.Join(words, " ")
}

// is checks the states of items.
func (d *desk) is(want string) {
	d.Helper()
	if got := d.states(); got != want {
		d.Fatalf("the board is %s, want %s", got, want)
	}
}

// refused fails the test unless an error has a reason.
func (d *desk) refused(err error, want string) {
	d.Helper()
	if got := reason(err); got != want {
		d.Fatalf("%q, want %s: %v", got, want, err)
	}
}

func TestS_47_R_003_25_Dependencies(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	d.add("b", "a")
	d.add("c", "a")
	d.add("d", "b", "c")
	d.is("a:PENDING b:BLOCKED c:BLOCKED d:BLOCKED")
	d.refused(d.claim("x", "b"), agent.ReasonVersionConflict)
	d.must(d.claim("x", "a"), d.complete("x", "a"))
	d.is("a:COMPLETED b:PENDING c:PENDING d:BLOCKED")
	d.must(d.claim("x", "b"), d.complete("x", "b"), d.claim("y", "c"))
	d.is("a:COMPLETED b:COMPLETED c:IN_PROGRESS d:BLOCKED")
	d.must(d.complete("y", "c"))
	d.is("a:COMPLETED b:COMPLETED c:COMPLETED d:PENDING")
}

func TestS_47_C_30_FailedThrice(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	d.add("b", "a")
	d.add("c", "a")
	d.add("d", "b", "c")
	for i := range 3 {
		d.is("a:PENDING b:BLOCKED c:BLOCKED d:BLOCKED")
		d.must(d.claim("x", "a"), d.fail("x", "a"))
		it, err := d.GetWorkItem(d.ctx, as("x"), "a")
		if d.must(err); it.GetRetryCount() != int32(i+1) || it.GetError() != "broke" {
			t.Errorf("after %d failures %v", i+1, it)
		}
	}
	d.is("a:FAILED b:SKIPPED c:SKIPPED d:SKIPPED")
	events, err := d.Events(d.ctx, key, 0)
	d.must(err)
	last := events[len(events)-1]
	var changed []string
	for _, c := range last.GetChanges() {
		changed = append(changed, c.GetItemId()+" "+c.GetState().String())
	}
	if want := []string{"b STATE_SKIPPED", "d STATE_SKIPPED", "c STATE_SKIPPED"}; last.GetKind() != teamv1.BoardEvent_KIND_FAILED || !slices.Equal(changed, want) {
		t.Errorf("the last event is %v", last)
	}
	_, err = d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{Title: "late", DependsOn: []string{"a"}})
	d.refused(err, agent.ReasonInvalidRequest)
}

func TestS_47_Cycle(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	d.add("b", "a")
	d.add("c", "b")
	link := func(id string, needs ...string) error {
		_, err := d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: id, AddDependsOn: needs})
		return err
	}
	err := link("a", "c")
	d.refused(err, agent.ReasonInvalidRequest)
	if !strings.Contains(err.Error(), "addDependsOn[0] makes a cycle: a -> c -> b -> a") {
		t.Error(err)
	}
	d.refused(link("a", "a"), agent.ReasonInvalidRequest)
	_, err = d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{ItemId: "e", Title: "e", DependsOn: []string{"e"}})
	d.refused(err, agent.ReasonInvalidRequest)
	_, err = d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{Title: "e", DependsOn: []string{"none"}})
	d.refused(err, agent.ReasonInvalidRequest)
	d.is("a:PENDING b:BLOCKED c:BLOCKED")
	d.add("z")
	d.must(link("a", "z"))
	d.is("a:BLOCKED b:BLOCKED c:BLOCKED z:PENDING")
}

func TestS_47_R_003_19_Lease(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	d.must(d.claim("x", "a"))
	d.refused(d.claim("y", "a"), agent.ReasonVersionConflict)
	d.refused(d.claim("x", "a"), agent.ReasonVersionConflict)
	d.refused(d.complete("y", "a"), agent.ReasonVersionConflict)
	d.clock.Move(4 * time.Minute)
	progress := int32(40)
	_, err := d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: "a", Progress: &progress})
	d.must(err)
	d.clock.Move(4 * time.Minute) // it was renewed
	d.is("a:IN_PROGRESS")
	d.clock.Move(time.Minute)
	d.is("a:PENDING")
	for _, err := range []error{d.complete("x", "a"), d.fail("x", "a")} {
		d.refused(err, agent.ReasonVersionConflict)
	}
	_, err = d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: "a", Progress: &progress})
	d.refused(err, agent.ReasonVersionConflict)
	d.must(d.claim("y", "a"))
	d.refused(d.complete("x", "a"), agent.ReasonVersionConflict)
	d.must(d.complete("y", "a"))
	it, err := d.GetWorkItem(d.ctx, as("x"), "a")
	if d.must(err); it.GetAssignee().GetAgent() != "y" || it.GetResult() != "done" || it.GetProgress() != 100 || it.GetRetryCount() != 0 {
		t.Errorf("%v", it)
	}
}

// TestR_003_19_HolderIsOfOneTask: the same member in another task holds nothing.
func TestR_003_19_HolderIsOfOneTask(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	in := func(task string) board.Place {
		p := as("x")
		p.Actor.TaskId = task
		return p
	}
	_, err := d.ClaimWorkItem(d.ctx, in("one"), &teamv1.ClaimWorkItemRequest{ItemId: "a"})
	d.must(err)
	_, err = d.CompleteWorkItem(d.ctx, in("two"), &teamv1.CompleteWorkItemRequest{ItemId: "a"})
	d.refused(err, agent.ReasonVersionConflict)
	_, err = d.CompleteWorkItem(d.ctx, in("one"), &teamv1.CompleteWorkItemRequest{ItemId: "a"})
	d.must(err)
}

func TestR_003_18_SameOpIsAnsweredAlike(t *testing.T) {
	d := newDesk(t)
	req := &teamv1.AddWorkItemRequest{Title: "once", Op: "k1"}
	first, err := d.AddWorkItem(d.ctx, as("x"), req)
	d.must(err)
	d.must(d.claim("y", first.GetId()))
	again, err := d.AddWorkItem(d.ctx, as("x"), req)
	if diff := cmp.Diff(first, again, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	_, err = d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{Title: "other", Op: "k1"})
	d.refused(err, agent.ReasonInvalidRequest)
	_, err = d.AddWorkItem(d.ctx, as("y"), req)
	d.refused(err, agent.ReasonInvalidRequest)
	other := as("x")
	other.Actor.Principal = "acme/bob" // whose ops are his own
	_, err = d.AddWorkItem(d.ctx, other, req)
	d.must(err)
	d.is("t1:IN_PROGRESS t3:PENDING")
}

func TestR_003_18_Versions(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	it, err := d.GetWorkItem(d.ctx, as("x"), "a")
	d.must(err)
	_, err = d.CancelWorkItem(d.ctx, as("x"), &teamv1.CancelWorkItemRequest{ItemId: "a", Version: it.GetVersion() + 1})
	d.refused(err, agent.ReasonVersionConflict)
	_, err = d.ClaimWorkItem(d.ctx, as("x"), &teamv1.ClaimWorkItemRequest{ItemId: "a", Version: it.GetVersion()})
	d.must(err)
	_, err = d.CancelWorkItem(d.ctx, as("x"), &teamv1.CancelWorkItemRequest{ItemId: "a", Version: it.GetVersion()})
	d.refused(err, agent.ReasonVersionConflict)
}

func TestR_003_18_Limits(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("x", 16<<10+1)
	add := func(change func(*teamv1.AddWorkItemRequest)) error {
		req := &teamv1.AddWorkItemRequest{Title: "x"}
		change(req)
		_, err := d.AddWorkItem(d.ctx, as("x"), req)
		return err
	}
	claim := func(lease time.Duration) error {
		_, err := d.ClaimWorkItem(d.ctx, as("x"), &teamv1.ClaimWorkItemRequest{ItemId: "a", Lease: durationpb.New(lease)})
		return err
	}
	say := func(to, text string, reply int64) error {
		_, err := d.PostMessage(d.ctx, as("x"), &teamv1.PostMessageRequest{To: to, Text: text, ReplyTo: reply})
		return err
	}
	progress := int32(101)
	_, farUpdate := d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: "a", Progress: &progress})
	_, longResult := d.CompleteWorkItem(d.ctx, as("x"), &teamv1.CompleteWorkItemRequest{ItemId: "a", Result: long})
	_, longError := d.FailWorkItem(d.ctx, as("x"), &teamv1.FailWorkItemRequest{ItemId: "a", Error: long})
	_, _, bigPage := d.ListWorkItems(d.ctx, as("x"), &teamv1.ListWorkItemsRequest{PageSize: 101})
	_, _, badToken := d.ListMessages(d.ctx, as("x"), &teamv1.ListMessagesRequest{PageToken: "x"})
	_, ahead := d.AckMessages(d.ctx, as("x"), &teamv1.AckMessagesRequest{UpTo: 1})
	for field, err := range map[string]error{
		"title is":         add(func(r *teamv1.AddWorkItemRequest) { r.Title = " " }),
		"title has":        add(func(r *teamv1.AddWorkItemRequest) { r.Title = strings.Repeat("é", 201) }),
		"description":      add(func(r *teamv1.AddWorkItemRequest) { r.Description = long }),
		"itemId":           add(func(r *teamv1.AddWorkItemRequest) { r.ItemId = "a/b" }),
		"priority":         add(func(r *teamv1.AddWorkItemRequest) { r.Priority = 6 }),
		"maxRetries":       add(func(r *teamv1.AddWorkItemRequest) { r.MaxRetries = 11 }),
		"dependsOn":        add(func(r *teamv1.AddWorkItemRequest) { r.DependsOn = make([]string, 33) }),
		"op":               add(func(r *teamv1.AddWorkItemRequest) { r.Op = "a b" }),
		"lease":            claim(time.Millisecond),
		"lease must":       claim(25 * time.Hour),
		"progress":         farUpdate,
		"result":           longResult,
		"error":            longError,
		"pageSize":         bigPage,
		"pageToken":        badToken,
		"upTo":             ahead,
		"text is":          say("", " ", 0),
		"text has":         say("", long, 0),
		"to is \"nobody\"": say("nobody", "x", 0),
		"to is \"other/":   say("other/ann", "x", 0),
		"replyTo":          say("", "x", 7),
	} {
		if reason(err) != agent.ReasonInvalidRequest || !strings.Contains(err.Error(), ": "+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, halfUpdate := d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: "a", Progress: &progress, Note: long, AddDependsOn: []string{"a/b"}, Op: "a b"})
	_, badClaim := d.ClaimWorkItem(d.ctx, as("x"), &teamv1.ClaimWorkItemRequest{ItemId: "a", Lease: durationpb.New(0), Op: "a b"})
	_, badPost := d.PostMessage(d.ctx, as("x"), &teamv1.PostMessageRequest{To: "nobody", ReplyTo: -1, Op: "a b"})
	_, _, badItems := d.ListWorkItems(d.ctx, as("x"), &teamv1.ListWorkItemsRequest{
		PageSize: 101, PageToken: "x", Assignee: long, Claimable: true, State: teamv1.WorkItem_STATE_COMPLETED,
	})
	_, _, badMessages := d.ListMessages(d.ctx, as("x"), &teamv1.ListMessagesRequest{PageSize: -1, PageToken: "x", Reader: long})
	for want, err := range map[string]error{
		"title itemId priority maxRetries dependsOn[0] dependsOn[2] description op": add(func(r *teamv1.AddWorkItemRequest) {
			r.Title, r.ItemId, r.Priority, r.MaxRetries, r.DependsOn, r.Description, r.Op = "", "a/b", -1, -1, []string{"-", "a", ""}, long, "a b"
		}),
		"progress addDependsOn addDependsOn[0] note op": halfUpdate,
		"lease op":                          badClaim,
		"text replyTo to op":                badPost,
		"pageSize assignee state pageToken": badItems,
		"pageSize reader pageToken":         badMessages,
	} {
		var e *a2aerror.Error
		var got []string
		if errors.As(err, &e) {
			for _, v := range e.Violations {
				got = append(got, v.Field)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("faults of %v, want %s: %v", got, want, err)
		}
	}
	d.must(add(func(r *teamv1.AddWorkItemRequest) {
		r.Title, r.Description, r.Priority, r.MaxRetries = strings.Repeat("é", 200), long[1:], 5, 10
	}), say("acme/bob", long[1:], 0))
}

// TestR_003_18_FullBoard: what has ended makes room, what has not is not touched.
func TestR_003_18_FullBoard(t *testing.T) {
	d := newDesk(t)
	for i := range board.MaxItems {
		d.add(fmt.Sprint("i", i))
	}
	_, err := d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{Title: "one more"})
	d.refused(err, agent.ReasonInsufficientResources)
	d.must(d.claim("x", "i7"), d.complete("x", "i7"))
	d.add("more")
	_, err = d.GetWorkItem(d.ctx, as("x"), "i7")
	d.refused(err, agent.ReasonWorkItemNotFound)
	o, err := d.Overview(d.ctx, key)
	if d.must(err); o.Counters.GetTotal() != board.MaxItems {
		t.Errorf("%v", o.Counters)
	}
}

// TestR_003_25_IDOfOneThatMadeRoom: an id is not given again while an item is open that
// waited for the one before, and would share the fate of the next.
func TestR_003_25_IDOfOneThatMadeRoom(t *testing.T) {
	d := newDesk(t)
	d.add("first")
	d.add("second", "first")
	for i := range board.MaxItems - 2 {
		d.add(fmt.Sprint("i", i))
	}
	d.must(d.claim("x", "first"), d.complete("x", "first"))
	again := func() error {
		_, err := d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{ItemId: "first", Title: "first"})
		return err
	}
	d.refused(again(), agent.ReasonInvalidRequest)
	d.add("more", "first") // which makes room for it
	_, err := d.GetWorkItem(d.ctx, as("x"), "first")
	d.refused(err, agent.ReasonWorkItemNotFound)
	d.must(d.claim("x", "more"), d.complete("x", "more"))
	d.must(d.claim("x", "i1"), d.complete("x", "i1"))
	d.refused(again(), agent.ReasonInvalidRequest)
	d.must(d.claim("x", "second"), d.complete("x", "second"), again())
}

func TestR_003_26_Messages(t *testing.T) {
	d := newDesk(t)
	say := func(who, to, text string, reply int64) *teamv1.BoardMessage {
		m, err := d.PostMessage(d.ctx, as(who), &teamv1.PostMessageRequest{To: to, Text: text, ReplyTo: reply})
		d.must(err)
		return m
	}
	unread := func(who string) string {
		list, _, err := d.ListMessages(d.ctx, as(who), &teamv1.ListMessagesRequest{Unread: true})
		d.must(err)
		var texts []string
		for _, m := range list {
			texts = append(texts, m.GetText())
		}
		return strings.Join(texts, " ")
	}
	question := say("x", "y", "question", 0)
	say("x", "", "news", 0)
	answer := say("y", "", "answer", question.GetSeq())
	if answer.GetTo() != "x" || answer.GetReplyTo() != question.GetSeq() || answer.GetFrom().GetAgent() != "y" {
		t.Errorf("%v", answer)
	}
	if x, y, leader := unread("x"), unread("y"), unread("crew"); x != "answer" || y != "question news" || leader != "news" {
		t.Errorf("unread: %q, %q, %q", x, y, leader)
	}
	_, err := d.AckMessages(d.ctx, as("y"), &teamv1.AckMessagesRequest{UpTo: question.GetSeq()})
	d.must(err)
	if got := unread("y"); got != "news" {
		t.Errorf("unread: %q", got)
	}
	first, next, err := d.ListMessages(d.ctx, as("x"), &teamv1.ListMessagesRequest{PageSize: 2})
	d.must(err)
	rest, end, err := d.ListMessages(d.ctx, as("x"), &teamv1.ListMessagesRequest{PageSize: 2, PageToken: next})
	d.must(err)
	if len(first) != 2 || len(rest) != 1 || end != "" || !slices.Equal(first[0].GetAcknowledgedBy(), []string{"y"}) {
		t.Errorf("pages %v, %v, %q", first, rest, end)
	}
}

func TestS_47_R_003_19_OneWinner(t *testing.T) {
	d := newDesk(t)
	d.add("a")
	var wg sync.WaitGroup
	won := make(chan string, 20)
	for i := range 20 {
		wg.Go(func() {
			who := fmt.Sprint("m", i)
			if err := d.claim(who, "a"); err == nil {
				won <- who
			} else if reason(err) != agent.ReasonVersionConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if close(won); len(won) != 1 {
		t.Errorf("%d have won", len(won))
	}
	it, err := d.GetWorkItem(d.ctx, as("x"), "a")
	if d.must(err); it.GetAssignee().GetAgent() != <-won {
		t.Errorf("%v", it)
	}
}

// piece is an item in the simplest form: what it is follows from what was done.
type piece struct {
	id      string
	needs   []string
	prio    int32
	holder  string
	until   time.Time
	fails   int32
	outcome string // COMPLETED, FAILED or CANCELED
}

// model is a board in which nothing is kept that can be found out.
type model struct {
	pieces []*piece
	now    func() time.Time
	done   int64 // changes
}

func (m *model) find(id string) *piece {
	for _, p := range m.pieces {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (m *model) state(p *piece) string {
	waits := false
	if p.outcome != "" {
		return p.outcome
	}
	for _, need := range p.needs {
		switch m.state(m.find(need)) {
		case "COMPLETED":
		case "FAILED", "CANCELED", "SKIPPED":
			return "SKIPPED"
		default:
			waits = true
		}
	}
	switch {
	case waits:
		return "BLOCKED"
	case p.holder != "" && m.now().Before(p.until):
		return "IN_PROGRESS"
	}
	return "PENDING"
}

// leads reports whether one waits for another, directly or not, or is it.
func (m *model) leads(from, to string) bool {
	return from == to || slices.ContainsFunc(m.find(from).needs, func(n string) bool { return m.leads(n, to) })
}

// linkable reports whether one may wait for others.
func (m *model) linkable(id string, needs []string) bool {
	for _, need := range needs {
		p := m.find(need)
		if p == nil || need == id || m.find(id) != nil && m.leads(need, id) {
			return false
		}
		if s := m.state(p); s == "FAILED" || s == "CANCELED" || s == "SKIPPED" {
			return false
		}
	}
	return true
}

func (m *model) states() string {
	words := make([]string, len(m.pieces))
	for i, p := range m.pieces {
		words[i] = p.id + ":" + m.state(p)
	}
	return strings.Join(words, " ")
}

// claimable are the ids that can be claimed, the most important first.
func (m *model) claimable() []string {
	var list []*piece
	for _, p := range m.pieces {
		if m.state(p) == "PENDING" {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b *piece) int { return int(b.prio - a.prio) })
	ids := []string{}
	for _, p := range list {
		ids = append(ids, p.id)
	}
	return ids
}

// TestS_47_R_003_25_Model compares the board with the model, call by call.
func TestS_47_R_003_25_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t)
		m := &model{now: d.clock.Now}
		ids := []string{"a", "b", "c", "d", "e", "f"}
		id, who := rapid.SampledFrom(ids), rapid.SampledFrom([]string{"x", "y"})
		needs := rapid.SliceOfNDistinct(id, 0, 3, rapid.ID[string])
		held := func(w string, p *piece) bool { return p != nil && m.state(p) == "IN_PROGRESS" && p.holder == w }
		// agree wants a call to be refused where the model says so.
		agree := func(err error, ok bool) bool {
			if (err == nil) != ok {
				t.Fatalf("the board says %v, the model %v", err, ok)
			}
			if ok {
				m.done++
			}
			return ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := &piece{id: id.Draw(t, "id"), needs: needs.Draw(t, "needs"), prio: rapid.Int32Range(1, 5).Draw(t, "priority")}
				ok := m.find(p.id) == nil && m.linkable(p.id, p.needs)
				_, err := d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{ItemId: p.id, Title: p.id, DependsOn: p.needs, Priority: p.prio})
				if agree(err, ok) {
					m.pieces = append(m.pieces, p)
				}
			},
			"link": func(t *rapid.T) {
				i, n := id.Draw(t, "id"), needs.Draw(t, "needs")
				if len(n) == 0 {
					t.Skip()
				}
				p := m.find(i)
				ok := p != nil && (m.state(p) == "PENDING" || m.state(p) == "BLOCKED") && m.linkable(i, n)
				_, err := d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: i, AddDependsOn: n})
				if agree(err, ok) {
					p.holder, p.needs = "", append(p.needs, n...)
				}
			},
			"claim": func(t *rapid.T) {
				i, w := id.Draw(t, "id"), who.Draw(t, "who")
				p := m.find(i)
				if agree(d.claim(w, i), p != nil && m.state(p) == "PENDING") {
					p.holder, p.until = w, m.now().Add(5*time.Minute)
				}
			},
			"update": func(t *rapid.T) {
				i, w := id.Draw(t, "id"), who.Draw(t, "who")
				p := m.find(i)
				_, err := d.UpdateWorkItem(d.ctx, as(w), &teamv1.UpdateWorkItemRequest{ItemId: i, Note: "on"})
				if agree(err, held(w, p)) {
					p.until = m.now().Add(5 * time.Minute)
				}
			},
			"complete": func(t *rapid.T) {
				i, w := id.Draw(t, "id"), who.Draw(t, "who")
				p := m.find(i)
				if agree(d.complete(w, i), held(w, p)) {
					p.outcome = "COMPLETED"
				}
			},
			"fail": func(t *rapid.T) {
				i, w := id.Draw(t, "id"), who.Draw(t, "who")
				p := m.find(i)
				if agree(d.fail(w, i), held(w, p)) {
					if p.fails, p.holder = p.fails+1, ""; p.fails == 3 {
						p.outcome = "FAILED"
					}
				}
			},
			"cancel": func(t *rapid.T) {
				i := id.Draw(t, "id")
				p := m.find(i)
				ok := p != nil && slices.Contains([]string{"PENDING", "BLOCKED", "IN_PROGRESS"}, m.state(p))
				_, err := d.CancelWorkItem(d.ctx, as("x"), &teamv1.CancelWorkItemRequest{ItemId: i})
				if agree(err, ok) {
					p.outcome = "CANCELED"
				}
			},
			"time": func(t *rapid.T) { d.clock.Move(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second) },
			"": func(t *rapid.T) {
				d.is(m.states())
				list, _, err := d.ListWorkItems(d.ctx, as("x"), &teamv1.ListWorkItemsRequest{Claimable: true})
				d.must(err)
				got := []string{}
				for _, it := range list {
					got = append(got, it.GetId())
				}
				if want := m.claimable(); !slices.Equal(got, want) {
					t.Fatalf("%v can be claimed, want %v", got, want)
				}
				if o, err := d.Overview(d.ctx, key); err != nil || o.Seq != m.done || o.Counters.GetTotal() != int64(len(m.pieces)) {
					t.Fatalf("%v, %v, want seq %d", o, err, m.done)
				}
			},
		})
	})
}

// TestR_003_18_PagesFitClients: a page holds no more than gRPC clients take, and the
// pages together all items.
func TestR_003_18_PagesFitClients(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("x", 16<<10)
	for i := range 100 {
		id := fmt.Sprint("i", i)
		_, err := d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{ItemId: id, Title: strings.Repeat("漢", 200), Description: long})
		d.must(err, d.claim("x", id))
		_, err = d.FailWorkItem(d.ctx, as("x"), &teamv1.FailWorkItemRequest{ItemId: id, Error: long[:4<<10]})
		d.must(err, d.claim("x", id))
		_, err = d.UpdateWorkItem(d.ctx, as("x"), &teamv1.UpdateWorkItemRequest{ItemId: id, Note: long[:4<<10]})
		d.must(err)
		_, err = d.CompleteWorkItem(d.ctx, as("x"), &teamv1.CompleteWorkItemRequest{ItemId: id, Result: long})
		d.must(err)
	}
	var all []string
	for token := ""; ; {
		items, next, err := d.ListWorkItems(d.ctx, as("x"), &teamv1.ListWorkItemsRequest{PageSize: 100, PageToken: token})
		d.must(err)
		if n := proto.Size(&teamv1.ListWorkItemsResponse{Items: items}); n > 4<<20-64<<10 {
			t.Errorf("a page has %d bytes", n)
		}
		for _, it := range items {
			all = append(all, it.GetId())
		}
		if token = next; token == "" {
			break
		}
	}
	if len(all) != 100 || all[0] != "i0" || all[99] != "i99" {
		t.Errorf("listed are %v", all)
	}
}
