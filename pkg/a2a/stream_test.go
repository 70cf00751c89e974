package a2a_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// chatter yields n events: streamed text that begins anew now and then, status
// texts, and artifacts that grow. It waits for begin.
func chatter(id string, n int, begin <-chan struct{}) agent.Agent {
	return talker{id: id, talk: func(ctx context.Context, emit func(*teamv1.Event) bool) {
		select {
		case <-begin:
		case <-ctx.Done():
			return
		}
		for i := range n {
			if !emit(chat(i)) {
				return
			}
		}
	}}
}

func chat(i int) *teamv1.Event {
	parts := agent.TextParts(fmt.Sprint("piece ", i))
	switch i % 5 {
	case 0:
		m := &a2av1.Message{MessageId: fmt.Sprint("status-", i), Role: a2av1.Role_ROLE_AGENT, Parts: parts}
		return &teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: m}}}
	case 1:
		a := &a2av1.Artifact{ArtifactId: fmt.Sprint("file-", i%3), Parts: parts}
		return &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: a, Append: i%2 == 0}}}
	}
	d := &teamv1.Delta{ArtifactId: "text", Text: fmt.Sprint(i, " "), Restart: i%100 == 2}
	return &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: d}}
}

func (r *rig) stream(t testing.TB, req *a2av1.SendMessageRequest) iter.Seq2[feed.Update, error] {
	t.Helper()
	updates, err := r.SendStreamingMessage(ann(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return updates
}

func (r *rig) subscribe(t testing.TB, id string, after int64) iter.Seq2[feed.Update, error] {
	t.Helper()
	updates, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, after)
	if err != nil {
		t.Fatal(err)
	}
	return updates
}

func TestStream(t *testing.T) {
	t.Run("the task first, its end last", func(t *testing.T) {
		r := start(t, echo("echo"))
		var got []string
		v := &view{}
		for u, err := range r.stream(t, message("echo", "hi")) {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
			switch k := u.Response.GetPayload().(type) {
			case *a2av1.StreamResponse_Task:
				got = append(got, "task "+k.Task.GetStatus().GetState().String())
			case *a2av1.StreamResponse_StatusUpdate:
				got = append(got, k.StatusUpdate.GetStatus().GetState().String())
				if u.Seq == 0 || project.RunOf(k.StatusUpdate.GetMetadata()).GetSeq() != u.Seq {
					t.Errorf("cursor %d, in the metadata %v", u.Seq, k.StatusUpdate.GetMetadata())
				}
			case *a2av1.StreamResponse_ArtifactUpdate:
				got = append(got, "artifact "+artifactText(k.ArtifactUpdate.GetArtifact()))
				if !k.ArtifactUpdate.GetLastChunk() || k.ArtifactUpdate.GetAppend() {
					t.Errorf("the answer is told as %v", k.ArtifactUpdate)
				}
				if u.Seq != 0 {
					t.Error("the cursor moves before the last response of the event")
				}
			}
		}
		want := []string{"task TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "artifact echo: hi", "TASK_STATE_COMPLETED"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		sameTask(t, v.task, r.get(t, v.task.GetId()))
	})
	t.Run("text comes in pieces, and the last one adds nothing", func(t *testing.T) {
		r := start(t, script(t, "chunks", chunks(3), say("abcdef")))
		var pieces []string
		ids := map[string]bool{}
		v := &view{}
		for u, err := range r.stream(t, message("chunks", "x")) {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
			if a := u.Response.GetArtifactUpdate(); a != nil {
				ids[a.GetArtifact().GetArtifactId()] = true
				pieces = append(pieces, fmt.Sprint(artifactText(a.GetArtifact()), " ", a.GetAppend(), " ", a.GetLastChunk()))
			}
		}
		want := []string{"ab false false", "cd true false", "ef true false", " true true"}
		if diff := cmp.Diff(want, pieces); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(ids) != 1 {
			t.Errorf("artifacts %v", ids)
		}
		if got := answer(t, v.task); got != "abcdef" {
			t.Errorf("the reader has %q", got)
		}
	})
	t.Run("text under another artifact's id is the answer too", func(t *testing.T) {
		r := start(t, talker{id: "remote", talk: func(_ context.Context, emit func(*teamv1.Event) bool) {
			emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "theirs", Text: "do"}}})
			emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "theirs", Text: "ne"}}})
		}})
		v := follow(t, r.stream(t, message("remote", "x")))
		if got := answer(t, v.task); got != "done" {
			t.Errorf("the reader has %q", got)
		}
		sameTask(t, v.task, r.get(t, v.task.GetId()))
	})
	t.Run("it ends where input is required", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?")))
		v := follow(t, r.stream(t, message("ask", "x")))
		wantState(t, v.task, inputRequired)
		sameTask(t, v.task, r.get(t, v.task.GetId()))
	})
	t.Run("it stays open where authentication is", func(t *testing.T) {
		r := start(t, authAgent{id: "auth"})
		v := &view{}
		for u, err := range r.stream(t, message("auth", "x")) {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
			if v.task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_AUTH_REQUIRED {
				r.send(t, ann(t), atOnce(reply(v.task.GetId(), "logged in")))
			}
		}
		wantState(t, v.task, completed)
	})
	t.Run("errors come before anything is told", func(t *testing.T) {
		r := start(t, echo("echo"))
		if updates, err := r.SendStreamingMessage(ann(t), message("nobody", "hi")); err == nil || updates != nil {
			t.Errorf("got %v, %v", updates != nil, err)
		}
	})
}

// TestA_09_WhereStreamsClose: a stream is closed where the rule says, and one that
// is not goes on to the end of the task.
func TestA_09_WhereStreamsClose(t *testing.T) {
	const auth = a2av1.TaskState_TASK_STATE_AUTH_REQUIRED
	for _, c := range []struct {
		name  string
		rule  teamv1.StreamClose_Value
		agent string
		asks  a2av1.TaskState
		end   a2av1.TaskState // at which the stream of the first message is closed
	}{
		{"by default where it asks for input", teamv1.StreamClose_DEFAULT_CLOSE, "ask", inputRequired, inputRequired},
		{"by default not where it wants authentication", teamv1.StreamClose_DEFAULT_CLOSE, "auth", auth, completed},
		{"at every interruption: input", teamv1.StreamClose_INTERRUPTED, "ask", inputRequired, inputRequired},
		{"at every interruption: authentication", teamv1.StreamClose_INTERRUPTED, "auth", auth, auth},
		{"at the end alone: input", teamv1.StreamClose_END, "ask", inputRequired, completed},
		{"at the end alone: authentication", teamv1.StreamClose_END, "auth", auth, completed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{Streams: &teamv1.StreamSettings{Close: c.rule}})}, script(t, "ask", ask("who?")), authAgent{id: "auth"})
			v, told := &view{}, 0
			for u, err := range r.stream(t, message(c.agent, "x")) {
				if err != nil {
					t.Fatal(err)
				}
				v.take(t, u)
				if v.task.GetStatus().GetState() != c.asks {
					continue
				}
				if told++; c.end == completed {
					r.send(t, ann(t), atOnce(reply(v.task.GetId(), "me")))
				}
			}
			wantState(t, v.task, c.end)
			if told != 1 {
				t.Errorf("%d updates say that it waits, want 1", told)
			}
			if c.end == completed {
				return
			}
			for u, err := range r.subscribe(t, v.task.GetId(), 0) { // the next one is closed at the end
				if err != nil {
					t.Fatal(err)
				}
				if v.take(t, u); v.task.GetStatus().GetState() == c.asks {
					r.send(t, ann(t), atOnce(reply(v.task.GetId(), "me")))
				}
			}
			wantState(t, v.task, completed)
		})
	}
}

// authAgent asks for authentication once.
type authAgent struct{ id string }

func (a authAgent) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: a.id}, nil
}

func (a authAgent) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

func (a authAgent) Process(_ context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		if len(req.GetRecorded()) == 0 {
			yield(&teamv1.Event{Agent: a.id, Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{
				Question: "login", Kind: teamv1.Asked_KIND_AUTH, Message: agent.NewMessage("log in"),
			}}}, nil)
			return
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("in")}}), nil)
	}
}

func TestSubscribe(t *testing.T) {
	t.Run("A-07 snapshot and updates have no gap and no repeat", func(t *testing.T) {
		begin := make(chan struct{})
		r := start(t, chatter("chatter", 1000, begin))
		id := r.send(t, ann(t), atOnce(message("chatter", "x"))).GetId()
		var wg sync.WaitGroup
		views := make([]*view, 20)
		join := func(i int) {
			updates, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: id}, 0)
			if err == nil { // it goes on
				views[i] = follow(t, updates)
			}
		}
		n := 0
		for _, err := range r.subscribe(t, id, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				close(begin)
			}
			if i := n / 40; n%40 == 0 && i < len(views) { // one after the other joins the race
				wg.Go(func() { join(i) })
			}
			n++
		}
		streamed := follow(t, r.stream(t, message("chatter", "y")))
		wg.Wait()
		want := r.until(t, id, completed)
		for _, v := range views {
			if v != nil {
				sameTask(t, v.task, want)
			}
		}
		sameTask(t, streamed.task, r.get(t, streamed.task.GetId()))
	})
	t.Run("A-07 what is told at any moment is what GetTask says", func(t *testing.T) {
		step := make(chan struct{})
		r := start(t, talker{id: "steps", talk: func(ctx context.Context, emit func(*teamv1.Event) bool) {
			for i := range 61 {
				select {
				case <-step:
				case <-ctx.Done():
					return
				}
				if i < 60 && !emit(chat(i)) {
					return
				}
			}
		}})
		v := &view{}
		n := 0
		for u, err := range r.stream(t, message("steps", "x")) {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
			if u.Seq == 0 || v.task.GetStatus().GetState() != working { // half told, or not begun
				continue
			}
			sameTask(t, v.task, r.get(t, v.task.GetId()))
			if n++; n <= 61 {
				step <- struct{}{}
			}
		}
		wantState(t, v.task, completed)
	})
	t.Run("A-08 a hundred readers are told the same, and one that does not read holds up nobody", func(t *testing.T) {
		begin := make(chan struct{})
		r := startWith(t, a2a.Config{Settings: settings.Of(&teamv1.ServerSettings{Streams: &teamv1.StreamSettings{PerTask: proto.Int32(200)}})}, chatter("chatter", 200, begin))
		id := r.send(t, ann(t), atOnce(message("chatter", "x"))).GetId()
		r.until(t, id, working)
		next, stop := iter.Pull2(r.subscribe(t, id, 0)) // never reads on
		defer stop()
		next()
		told := make([][]string, 100)
		var wg, ready sync.WaitGroup
		for i := range told {
			updates := r.subscribe(t, id, 0)
			ready.Add(1)
			wg.Go(func() {
				first := sync.OnceFunc(ready.Done)
				for u, err := range updates {
					if err != nil {
						t.Error(err)
						return
					}
					first()
					told[i] = append(told[i], encoded(t, u))
				}
			})
		}
		ready.Wait()
		close(begin)
		wg.Wait()
		for i := range told {
			if !slices.Equal(told[0], told[i]) {
				t.Fatalf("reader %d was told something else:\n%s", i, cmp.Diff(told[0], told[i]))
			}
		}
		r.until(t, id, completed)
	})
	t.Run("A-07 an answer larger than all that is kept for readers", func(t *testing.T) {
		r := start(t, echo("echo"))
		ctx, cancel := context.WithTimeout(ann(t), 10*time.Second)
		defer cancel()
		task := r.send(t, ann(t), message("echo", strings.Repeat("x", 1<<20)))
		updates, err := r.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, 1)
		if err != nil {
			t.Fatal(err)
		}
		v := &view{task: proto.CloneOf(task)}
		v.task.Artifacts, v.task.Status = nil, nil
		for u, err := range updates {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
		}
		sameTask(t, v.task, task)
	})
	t.Run("S-25 a stream that breaks goes on behind its cursor, without gap or repeat", func(t *testing.T) {
		begin := make(chan struct{})
		r := start(t, chatter("chatter", 200, begin))
		var all []feed.Update
		id := r.send(t, ann(t), atOnce(message("chatter", "x"))).GetId()
		r.until(t, id, working) // both are told the task as it is now
		whole := r.subscribe(t, id, 0)
		broken := r.subscribe(t, id, 0)
		go close(begin)
		for u, err := range whole {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		var pieces []feed.Update
		var cursor int64
		for { // reads 7 responses, breaks, resumes
			n := 0
			for u, err := range broken {
				if err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, u)
				cursor = max(cursor, u.Seq)
				if n++; n == 7 && u.Seq > 0 {
					break
				}
			}
			if s := pieces[len(pieces)-1].Response.GetStatusUpdate(); s.GetStatus().GetState() == completed {
				break
			}
			broken = r.subscribe(t, id, cursor)
		}
		v := &view{}
		for _, u := range pieces {
			v.take(t, u)
		}
		sameTask(t, v.task, r.get(t, id))
		skip := func(us []feed.Update) (seqs []int64) {
			for _, u := range us {
				if u.Response.GetTask() == nil {
					seqs = append(seqs, u.Seq)
				}
			}
			return seqs
		}
		if diff := cmp.Diff(skip(all), skip(pieces)); diff != "" {
			t.Errorf("(-whole +pieces):\n%s", diff)
		}
	})
	t.Run("S-25 a task that ended meanwhile is told to its end", func(t *testing.T) {
		r := start(t, echo("echo"))
		task := r.send(t, ann(t), message("echo", "hi"))
		v := &view{task: proto.CloneOf(task)}
		v.task.Artifacts, v.task.Status = nil, nil
		for u, err := range r.subscribe(t, task.GetId(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
		}
		sameTask(t, v.task, task)
		_, err := r.SubscribeToTask(ann(t), &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, v.seq)
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
	t.Run("a task that waits is followed to its next turn", func(t *testing.T) {
		r := start(t, script(t, "ask", ask("who?"), say("{{answer}}")))
		id := r.send(t, ann(t), message("ask", "x")).GetId()
		next, stop := iter.Pull2(r.subscribe(t, id, 0))
		defer stop()
		u, _, _ := next()
		wantState(t, u.Response.GetTask(), inputRequired)
		r.send(t, ann(t), atOnce(reply(id, "me")))
		v := &view{}
		v.take(t, u)
		for {
			u, err, more := next()
			if !more {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
		}
		wantState(t, v.task, completed)
	})
	t.Run("A-09 a reader that leaves ends nothing", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g)
		var id string
		for u := range r.stream(t, message("gate", "x")) {
			id = u.Response.GetTask().GetId()
			break
		}
		<-g.entered
		g.open()
		r.until(t, id, completed)
	})
	t.Run("the end of the call ends the stream with its cause", func(t *testing.T) {
		r := start(t, newGate("gate"))
		ctx, cancel := context.WithCancelCause(ann(t))
		defer cancel(nil)
		updates, err := r.SendStreamingMessage(ctx, message("gate", "x"))
		if err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range updates {
			cancel(agent.ErrShutdown)
			last = err
		}
		wantError(t, agent.AsError(last), agent.ReasonShuttingDown)
	})
}

// encoded is an update as text that can be compared.
func encoded(t testing.TB, u feed.Update) string {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(u.Response)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(u.Seq, " ", string(b))
}

func TestA_16_OneEnd(t *testing.T) {
	r := start(t)
	for i := range 50 {
		g := newGate(fmt.Sprint("gate-", i))
		r.add(t, g)
		id := r.send(t, ann(t), atOnce(message(g.ID, "x"))).GetId()
		<-g.entered
		updates := r.subscribe(t, id, 0)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: id}) })
		wg.Go(func() { _, _ = r.SendMessage(ann(t), atOnce(reply(id, "more"))) })
		wg.Go(func() { g.open() })
		ends := 0
		for u, err := range updates {
			if err != nil {
				t.Fatal(err)
			}
			switch u.Response.GetStatusUpdate().GetStatus().GetState() {
			case completed, canceled, failed:
				ends++
			}
		}
		wg.Wait()
		if ends != 1 {
			t.Fatalf("the task ended %d times", ends)
		}
		before := r.get(t, id)
		_, err := r.SendMessage(ann(t), reply(id, "too late"))
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
		equal(t, before, r.get(t, id))
	}
}
