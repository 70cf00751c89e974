package a2a_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// lens is a store as another replica, or a later time, shows it.
type lens struct {
	runs.Store
	deaf    bool                              // nobody says that something came
	deleted func(*teamv1.Event) bool          // rows that are not there any more
	before  atomic.Pointer[func(after int64)] // is called before events are read
	refuse  func(context.Context) error       // why they are not
}

func (l *lens) Watch(root string) (<-chan struct{}, func()) {
	if l.deaf {
		return make(chan struct{}), func() {}
	}
	return l.Store.Watch(root)
}

func (l *lens) Events(ctx context.Context, k runs.Key, after int64, limit int) ([]runs.Record, error) {
	if f := l.before.Load(); f != nil {
		(*f)(after)
	}
	if l.refuse != nil {
		if err := l.refuse(ctx); err != nil {
			return nil, err
		}
	}
	page, err := l.Store.Events(ctx, k, after, limit)
	if l.deleted == nil || err != nil {
		return page, err
	}
	for len(page) > 0 && l.deleted(page[0].Event) {
		page, err = l.Store.Events(ctx, k, page[0].Seq, limit)
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(page, func(r runs.Record) bool { return l.deleted(r.Event) }), nil
}

// through returns a handler that reads through a lens what the rig's keeps.
func (r *rig) through(l *lens, c a2a.Config) *rig {
	l.Store = r.store
	c.Agents, c.Store, c.Wake = r.agents, l, r.wake
	return &rig{Handler: a2a.NewHandler(c), store: r.store, agents: r.agents}
}

// telling collects what a reader is told, up to so many updates, 0 is all.
func telling(t testing.TB, updates iter.Seq2[feed.Update, error], most int) (all []feed.Update) {
	t.Helper()
	for u, err := range updates {
		if err != nil {
			t.Error(err)
			return all
		}
		if all = append(all, u); len(all) == most {
			break
		}
	}
	return all
}

func texted(t testing.TB, updates []feed.Update) []string {
	t.Helper()
	out := make([]string, len(updates))
	for i, u := range updates {
		out[i] = encoded(t, u)
	}
	return out
}

// marked are the cursors and states of updates: enough to find a gap or a repeat.
func marked(updates []feed.Update) []int64 {
	out := make([]int64, len(updates))
	for i, u := range updates {
		out[i] = u.Seq<<8 | int64(u.Response.GetStatusUpdate().GetStatus().GetState())
	}
	return out
}

// behind are the updates that follow a cursor.
func behind(updates []feed.Update, cursor int64) []feed.Update {
	for i := len(updates) - 1; i >= 0; i-- {
		if s := updates[i].Seq; s != 0 && s <= cursor {
			return updates[i+1:]
		}
	}
	return updates
}

func started() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// empty waits until no stream holds anything.
func (r *rig) empty(t testing.TB) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		feeds, lines, streams := r.Open()
		if feeds+lines+streams == 0 {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("left over: %d feeds of %d tasks, %d streams", feeds, lines, streams)
		}
	}
}

func TestA_14_EveryCursor(t *testing.T) {
	r := start(t, chatter("chatter", 100, started()))
	all := telling(t, r.stream(t, message("chatter", "x")), 0)
	id := all[0].Response.GetTask().GetId()
	last := all[len(all)-1].Seq
	for _, u := range all {
		m := u.Response.GetArtifactUpdate().GetMetadata()
		if s := u.Response.GetStatusUpdate(); s != nil {
			m = s.GetMetadata()
		}
		if in := project.RunOf(m).GetSeq(); in != u.Seq && u.Response.GetTask() == nil {
			t.Errorf("the cursor is %d, in the metadata %d: %v", u.Seq, in, u.Response)
		}
	}
	for after := int64(1); after < last; after++ {
		got := telling(t, r.subscribe(t, id, after), 0)
		if diff := cmp.Diff(texted(t, behind(all, after)), texted(t, got)); diff != "" {
			t.Fatalf("behind %d (-want +got):\n%s", after, diff)
		}
	}
	r.empty(t)
}

func TestA_14_ChildTasks(t *testing.T) {
	gates := []*gate{newGate("a"), newGate("b")}
	r := start(t, gates[0], gates[1])
	r.newTeam(t, "both", together("a", "b"), "a", "b")
	root := r.send(t, ann(t), atOnce(message("both", "x"))).GetId()
	<-gates[0].entered
	<-gates[1].entered
	for i, id := range []string{agent.ChildTask(root, "1"), agent.ChildTask(root, "2")} {
		next, stop := iter.Pull2(r.subscribe(t, id, 0))
		task, _, _ := next()
		gates[i].open()
		var want []feed.Update
		for {
			u, err, more := next()
			if !more {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, u)
		}
		stop()
		if s := want[len(want)-1].Response.GetStatusUpdate().GetStatus().GetState(); s != completed {
			t.Errorf("child %s ended with %s", id, s)
		}
		got := telling(t, r.subscribe(t, id, task.Seq), 0)
		if diff := cmp.Diff(texted(t, want), texted(t, got)); diff != "" {
			t.Errorf("behind %d (-want +got):\n%s", task.Seq, diff)
		}
		_, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, want[len(want)-1].Seq)
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	}
	r.until(t, root, completed)
	r.empty(t)
}

func TestA_14_CursorsThatCannotBe(t *testing.T) {
	begin := make(chan struct{})
	r := start(t, chatter("chatter", 50, begin))
	id := r.send(t, ann(t), atOnce(message("chatter", "x"))).GetId()
	r.until(t, id, working)
	for _, after := range []int64{-1, 0, 1000, math.MaxInt64} {
		u := telling(t, r.subscribe(t, id, after), 1)
		if len(u) != 1 || u[0].Response.GetTask().GetId() != id {
			t.Errorf("behind %d: %v", after, u)
		}
	}
	close(begin)
	r.until(t, id, completed)
	whole := r.get(t, id)

	t.Run("too old: streamed text is deleted", func(t *testing.T) {
		later := r.through(&lens{deleted: func(ev *teamv1.Event) bool { return ev.GetDelta() != nil }}, a2a.Config{})
		_, last, err := r.store.Task(t.Context(), runs.Key{Owner: "acme/ann", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		for after := int64(1); after < last; after++ {
			got := telling(t, later.subscribe(t, id, after), 0)
			if len(got) != 1 || got[0].Seq != last {
				t.Fatalf("behind %d: %v", after, got)
			}
			equal(t, whole, got[0].Response.GetTask())
		}
		_, err = later.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, last)
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
		later.empty(t)
	})
	r.empty(t)
}

func TestA_15_RepeatedSendWithCursor(t *testing.T) {
	begin := make(chan struct{})
	r := start(t, chatter("chatter", 100, begin), script(t, "ask", ask("who?"), say("{{answer}}")), direct("direct"))
	req := message("chatter", "x")
	first := telling(t, r.stream(t, req), 2)
	id, cursor := first[0].Response.GetTask().GetId(), first[1].Seq
	close(begin)
	r.until(t, id, completed)
	whole := telling(t, r.stream(t, req), 0)
	again := func(req *a2av1.SendMessageRequest, after int64) []feed.Update {
		updates, err := r.SendStreamingMessage(a2a.WithCursor(ann(t), after), req)
		if err != nil {
			t.Fatal(err)
		}
		return telling(t, updates, 0)
	}
	t.Run("goes on behind it", func(t *testing.T) {
		rest := again(req, cursor)
		want := telling(t, r.subscribe(t, id, cursor), 0)
		if diff := cmp.Diff(texted(t, want), texted(t, rest)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("shows the task where nothing is missing, or the cursor is none", func(t *testing.T) {
		for _, after := range []int64{whole[len(whole)-1].Seq, 1000} {
			got := again(req, after)
			if len(got) != 1 || got[0].Response.GetTask().GetStatus().GetState() != completed {
				t.Errorf("behind %d: %v", after, got)
			}
		}
	})
	t.Run("tells all without one", func(t *testing.T) {
		if diff := cmp.Diff(texted(t, whole), texted(t, again(req, 0))); diff != "" || whole[0].Response.GetTask() == nil {
			t.Errorf("first %v (-want +got):\n%s", whole[0], diff)
		}
	})
	t.Run("a new message with a cursor begins with its task", func(t *testing.T) {
		if got := again(message("chatter", "x"), 1000); got[0].Response.GetTask() == nil {
			t.Errorf("first %v", got[0].Response)
		}
	})
	t.Run("an answer", func(t *testing.T) {
		id := r.send(t, ann(t), message("ask", "x")).GetId()
		answer := reply(id, "me")
		whole := telling(t, r.stream(t, answer), 0)
		want := whole[1:]
		if len(want) == 0 {
			want = whole // it had ended when it was shown
		}
		if diff := cmp.Diff(texted(t, want), texted(t, again(answer, whole[0].Seq))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("a message instead of a task", func(t *testing.T) {
		req := message("direct", "x")
		want := again(req, 0)
		if got := again(req, 1000); len(got) != 1 || !proto.Equal(got[0].Response, want[0].Response) || got[0].Response.GetMessage() == nil {
			t.Errorf("%v, want %v", got, want)
		}
	})
	r.empty(t)
}

// TestA_13_RepeatedSendAtTheTip: as long as a task has not ended, who has seen
// all is told nothing until something new happens.
func TestA_13_RepeatedSendAtTheTip(t *testing.T) {
	repeat := func(r *rig, req *a2av1.SendMessageRequest, after int64) iter.Seq2[feed.Update, error] {
		updates, err := r.SendStreamingMessage(a2a.WithCursor(ann(t), after), req)
		if err != nil {
			t.Fatal(err)
		}
		return updates
	}
	same := func(t *testing.T, r *rig, id string, after int64, updates iter.Seq2[feed.Update, error], goOn func()) {
		t.Helper()
		subscribed := r.subscribe(t, id, after)
		goOn()
		want := texted(t, telling(t, subscribed, 0))
		if diff := cmp.Diff(want, texted(t, telling(t, updates, 0))); diff != "" || len(want) == 0 {
			t.Errorf("behind %d (-subscribed +sent again):\n%s", after, diff)
		}
		r.empty(t)
	}
	t.Run("of a task that works", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		req := message("gate", "x")
		id := r.send(t, ann(t), atOnce(req)).GetId()
		<-g.entered
		r.until(t, id, working)
		tip := telling(t, r.subscribe(t, id, 0), 1)[0].Seq
		same(t, r, id, tip, repeat(r, req, tip), g.open)
	})
	t.Run("of a task that asks", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("{{answer}}")))
		req := message("ask", "x")
		told := telling(t, r.stream(t, req), 0)
		id, tip := told[0].Response.GetTask().GetId(), told[len(told)-1].Seq
		same(t, r, id, tip, repeat(r, req, tip), func() { r.send(t, ann(t), reply(id, "me")) })
	})
	t.Run("of an answer to a task that asks again", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), ask("where?"), say("{{answer}}")))
		id := r.send(t, ann(t), message("ask", "x")).GetId()
		req := reply(id, "me")
		told := telling(t, r.stream(t, req), 0)
		tip := told[len(told)-1].Seq
		same(t, r, id, tip, repeat(r, req, tip), func() { r.send(t, ann(t), reply(id, "here")) })
	})
	t.Run("of a task that has ended it shows the task", func(t *testing.T) {
		r := start(t, echo("echo"))
		req := message("echo", "x")
		told := telling(t, r.stream(t, req), 0)
		got := telling(t, repeat(r, req, told[len(told)-1].Seq), 0)
		if len(got) != 1 || got[0].Response.GetTask().GetStatus().GetState() != completed {
			t.Errorf("told %v", got)
		}
		r.empty(t)
	})
}

func TestA_14_AnyReplica(t *testing.T) {
	begin := make(chan struct{})
	r := start(t, chatter("chatter", 300, begin))
	id := r.send(t, ann(t), atOnce(message("chatter", "x"))).GetId()
	r.until(t, id, working)
	far := r.through(&lens{deaf: true}, a2a.Config{Poll: 5 * time.Millisecond})
	updates := []iter.Seq2[feed.Update, error]{r.subscribe(t, id, 0), far.subscribe(t, id, 0), far.subscribe(t, id, 1)}
	told := make([][]feed.Update, len(updates))
	var wg sync.WaitGroup
	for i, u := range updates {
		wg.Go(func() { told[i] = telling(t, u, 0) })
	}
	close(begin)
	wg.Wait()
	cursor := told[0][0].Seq
	want := texted(t, behind(told[0], cursor))
	for i, got := range told[1:] {
		if diff := cmp.Diff(want, texted(t, behind(got, cursor))); diff != "" {
			t.Errorf("reader %d of the replica (-want +got):\n%s", i+1, diff)
		}
	}
	far.empty(t)
}

// TestP5_EndBetweenSnapshotAndSubscribe ends tasks at each moment between the
// first look at them and the first wait for more.
func TestP5_EndBetweenSnapshotAndSubscribe(t *testing.T) {
	r := start(t)
	each := 2500 / sample.Stride()
	cycle := func(t *testing.T, i int, end func(l *lens, finish func()) (before, after func())) {
		g := newGate(fmt.Sprint(strings.ReplaceAll(t.Name(), "/", "-"), i))
		g.ID = fmt.Sprint("gate-", i)
		if err := r.agents.Register(g.ID, g); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.agents.Remove(g.ID) }()
		id := r.send(t, ann(t), atOnce(message(g.ID, "x"))).GetId()
		<-g.entered
		l := &lens{}
		rr := r.through(l, a2a.Config{})
		before, after := end(l, func() {
			g.open()
			r.until(t, id, completed)
		})
		before()
		updates, err := rr.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 0)
		if reasonOf(err) == a2aerror.ReasonUnsupportedOperation {
			return // it was seen to have ended
		}
		if err != nil {
			t.Fatal(err)
		}
		after()
		v := follow(t, updates)
		wantState(t, v.task, completed)
		rr.empty(t)
	}
	nothing := func() {}
	t.Run("after the snapshot", func(t *testing.T) {
		for i := range each {
			cycle(t, i, func(_ *lens, finish func()) (func(), func()) { return nothing, finish })
		}
	})
	t.Run("at the n-th read", func(t *testing.T) {
		for i := range each {
			n := i % 4
			cycle(t, i, func(l *lens, finish func()) (func(), func()) {
				var reads atomic.Int64
				hook := func(int64) {
					if int(reads.Add(1)) == n+1 {
						finish()
					}
				}
				return func() { l.before.Store(&hook) }, sync.OnceFunc(finish)
			})
		}
	})
	t.Run("meanwhile", func(t *testing.T) {
		for i := range each {
			var wg sync.WaitGroup
			cycle(t, i, func(_ *lens, finish func()) (func(), func()) {
				return func() { wg.Go(finish) }, nothing
			})
			wg.Wait()
		}
	})
	t.Run("while a reader waits", func(t *testing.T) {
		for i := range each {
			var wg sync.WaitGroup
			cycle(t, i, func(_ *lens, finish func()) (func(), func()) {
				return nothing, func() { wg.Go(finish) }
			})
			wg.Wait()
		}
	})
}

// TestP5_ReaderLeavesWithTheWakeUp ends the call of the reader that was woken on
// behalf of all, before it has read.
func TestP5_ReaderLeavesWithTheWakeUp(t *testing.T) {
	type leaveKey struct{}
	g := newGate("gate") // its end is one event: there is one wake-up
	r := start(t, g)
	id := r.send(t, ann(t), atOnce(message("gate", "x"))).GetId()
	<-g.entered
	var begun atomic.Bool
	var once sync.Once
	far := r.through(&lens{refuse: func(ctx context.Context) error {
		leave, ok := ctx.Value(leaveKey{}).(context.CancelFunc)
		if !ok || !begun.Load() {
			return nil
		}
		once.Do(leave)
		return ctx.Err()
	}}, a2a.Config{})
	var there, done sync.WaitGroup
	told := make([]*view, 3)
	for i := range told {
		ctx, cancel := context.WithCancel(ann(t))
		defer cancel()
		updates, err := far.SubscribeToTask(context.WithValue(ctx, leaveKey{}, cancel), &a2av1.SubscribeToTaskRequest{Id: id}, 0)
		if err != nil {
			t.Fatal(err)
		}
		told[i] = &view{}
		there.Add(1)
		done.Go(func() {
			first := sync.OnceFunc(there.Done)
			for u, err := range updates {
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				told[i].take(t, u)
				first()
			}
		})
	}
	there.Wait()
	begun.Store(true)
	g.open()
	done.Wait()
	ends := 0
	for _, v := range told {
		if v.task.GetStatus().GetState() == completed {
			ends++
		}
	}
	if ends != 2 {
		t.Errorf("%d of the 2 readers that stay were told the end", ends)
	}
	far.empty(t)
}

// bulky yields n events of so many bytes.
func bulky(id string, n, size int, begin <-chan struct{}) agent.Agent {
	filler := strings.Repeat("x", size)
	return talker{id: id, talk: func(ctx context.Context, emit func(*teamv1.Event) bool) {
		select {
		case <-begin:
		case <-ctx.Done():
			return
		}
		for i := range n {
			d := &teamv1.Delta{ArtifactId: "text", Text: fmt.Sprint(i, filler), Restart: true}
			if !emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: d}}) {
				return
			}
		}
	}}
}

// TestP5_ReadersThatComeAndGo has readers break, stall, lag behind what is kept
// and resume, in any order.
func TestP5_ReadersThatComeAndGo(t *testing.T) {
	for _, c := range []struct {
		name    string
		n, size int
	}{{"small events", 2000, 10}, {"large events", 300, 60_000}} {
		t.Run(c.name, func(t *testing.T) {
			begin := make(chan struct{})
			r := start(t, bulky("bulky", c.n, c.size, begin))
			id := r.send(t, ann(t), atOnce(message("bulky", "x"))).GetId()
			r.until(t, id, working)
			held := telling(t, r.subscribe(t, id, 0), 1)[0].Seq
			stalled, stop := iter.Pull2(r.subscribe(t, id, held))
			defer stop()
			var wg sync.WaitGroup
			told := make([][]feed.Update, 20)
			for i := range told {
				wg.Go(func() { told[i] = r.erratic(t, id, held, rand.New(rand.NewPCG(uint64(i), 1))) })
			}
			close(begin)
			wg.Wait()
			if bytes, entries := r.Kept(); bytes > 1<<20 || entries > 1024 {
				t.Errorf("a feed keeps %d bytes in %d entries", bytes, entries)
			}
			want := marked(telling(t, r.subscribe(t, id, held), 0))
			var late []feed.Update
			for u, err, more := stalled(); more; u, err, more = stalled() {
				if err != nil {
					t.Fatal(err)
				}
				late = append(late, u)
			}
			for i, got := range slices.Concat(told, [][]feed.Update{late}) {
				if !slices.Equal(want, marked(got)) {
					t.Errorf("reader %d was told %d updates, want %d", i, len(got), len(want))
				}
			}
			r.empty(t)
		})
	}
}

// erratic reads a task to its end, with breaks.
func (r *rig) erratic(t *testing.T, id string, cursor int64, random *rand.Rand) (all []feed.Update) {
	for {
		updates, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, cursor)
		if err != nil {
			t.Error(err)
			return all
		}
		var part []feed.Update
		n, pause := random.IntN(400), time.Duration(random.IntN(3))*time.Millisecond
		for u, err := range updates {
			if err != nil {
				t.Error(err)
				return all
			}
			if part = append(part, u); u.Seq != 0 {
				all, cursor, part = append(all, part...), u.Seq, nil
			}
			if len(all)%97 == 0 {
				time.Sleep(pause)
			}
			if n--; n == 0 {
				break
			}
		}
		if len(all) > 0 && all[len(all)-1].Response.GetStatusUpdate().GetStatus().GetState() == completed {
			return all
		}
	}
}

func TestP10_EncodedOnce(t *testing.T) {
	const readers = 50
	begin := make(chan struct{})
	r := start(t, chatter("chatter", 300, begin))
	id := r.send(t, ann(t), atOnce(message("chatter", "x"))).GetId()
	r.until(t, id, working)
	var encoded atomic.Int64
	encode := func(m proto.Message) ([]byte, error) {
		encoded.Add(1)
		return proto.Marshal(m)
	}
	var told atomic.Int64
	var wg, ready sync.WaitGroup
	for range readers {
		updates := r.subscribe(t, id, 0)
		ready.Add(1)
		wg.Go(func() {
			first := sync.OnceFunc(ready.Done)
			for u, err := range updates {
				if err == nil {
					_, err = u.Encoded(feed.FormProto, encode)
				}
				if err != nil {
					t.Error(err)
				}
				told.Add(1)
				first()
			}
		})
	}
	ready.Wait()
	close(begin)
	wg.Wait()
	if want := int64(readers * 303); told.Load() != want {
		t.Errorf("told %d updates, want %d", told.Load(), want)
	}
	if n := encoded.Load(); n != 303 {
		t.Errorf("%d updates were encoded %d times", 303, n)
	}
}

func TestP10_LimitsOfStreams(t *testing.T) {
	g := newGate("gate")
	r := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{Streams: &teamv1.StreamSettings{PerTask: proto.Int32(2), PerCaller: proto.Int32(3)}})}, g, echo("echo"))
	id := r.send(t, ann(t), atOnce(message("gate", "x"))).GetId()
	<-g.entered
	r.until(t, id, working)
	r.empty(t)
	var stops []func()
	open := func(ctx context.Context, id string) error {
		updates, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0)
		if err == nil {
			next, stop := iter.Pull2(updates)
			next()
			stops = append(stops, stop)
		}
		return err
	}
	refused := func(err error) {
		t.Helper()
		wantError(t, err, agent.ReasonInsufficientResources)
	}
	for range 2 {
		if err := open(ann(t), id); err != nil {
			t.Fatal(err)
		}
	}
	refused(open(ann(t), id))
	_, err := r.SendStreamingMessage(ann(t), reply(id, "more"))
	refused(err)
	wantError(t, open(bob(t), id), a2aerror.ReasonTaskNotFound)
	updates, err := r.SendStreamingMessage(ann(t), message("gate", "y")) // the third of the owner
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.SendStreamingMessage(ann(t), message("echo", "z"))
	refused(err)
	if page, err := r.ListTasks(ann(t), &a2av1.ListTasksRequest{}); err != nil || page.GetTotalSize() != 2 {
		t.Errorf("%v %v: a send that was refused has begun a task", page, err)
	}
	stops[0]()
	if err := open(ann(t), id); err != nil {
		t.Error(err)
	}
	g.open()
	follow(t, updates)
	for _, stop := range stops {
		stop()
	}
	r.empty(t)

	t.Run("a stream that nobody reads ends with its call", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ann(t))
		updates, err := r.SendStreamingMessage(ctx, message("echo", "x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, streams := r.Open(); streams != 1 {
			t.Errorf("%d streams", streams)
		}
		cancel()
		r.empty(t)
		for _, err := range updates {
			if err == nil {
				t.Error("an update after the end")
			}
		}
	})
}
