package remote_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"iter"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
	"github.com/agentteams/team-server/pkg/secret"
)

// team is the least that contains members: it asks them all.
type team struct {
	id      string
	members []agent.Agent
}

func (c *team) Info(ctx context.Context) (*teamv1.AgentInfo, error) {
	ctx, err := agent.Enter(ctx, c.id)
	if err != nil {
		return nil, err
	}
	for _, m := range c.members {
		if _, err := m.Info(ctx); err != nil {
			return nil, err
		}
	}
	return &teamv1.AgentInfo{Id: c.id}, nil
}

func (c *team) HealthCheck(ctx context.Context) (*teamv1.Health, error) {
	ctx, err := agent.Enter(ctx, c.id)
	if err != nil {
		return nil, err
	}
	for _, m := range c.members {
		if _, err := m.HealthCheck(ctx); err != nil {
			return nil, err
		}
	}
	return agent.Healthy(), nil
}

func (c *team) Process(context.Context, *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) { yield(nil, errors.New("not asked for")) }
}

func TestR_000_36_TwoServersThatContainEachOther(t *testing.T) {
	north, south := &team{id: "north"}, &team{id: "south"}
	fn, fs := fakeagent.New(t, fakeagent.Config{Agent: north}), fakeagent.New(t, fakeagent.Config{Agent: south})
	toSouth := newService(t, fs)
	north.members, south.members = []agent.Agent{toSouth}, []agent.Agent{newService(t, fn)}
	_, err := toSouth.HealthCheck(t.Context())
	if e := asError(t, err); e.Reason != agent.ReasonMaxDepth {
		t.Errorf("health: %+v", e)
	}
	if n := len(fs.Requests("HealthCheck")) + len(fn.Requests("HealthCheck")); n != agent.MaxDepth+1 {
		t.Errorf("%d calls, want %d", n, agent.MaxDepth+1)
	}
}

func TestR_000_36_InfoOfTwoServersThatContainEachOther(t *testing.T) {
	north, south := &team{id: "north"}, &team{id: "south"}
	fn, fs := fakeagent.New(t, fakeagent.Config{Agent: north}), fakeagent.New(t, fakeagent.Config{Agent: south})
	toSouth, toNorth := newService(t, fs), newService(t, fn)
	north.members, south.members = []agent.Agent{toSouth}, []agent.Agent{toNorth}
	_, err := toSouth.Info(t.Context())
	if e := asError(t, err); e.Reason != agent.ReasonMaxDepth {
		t.Errorf("info: %+v", e)
	}
	if n := len(fs.Requests("Info")) + len(fn.Requests("Info")); n != agent.MaxDepth+1 {
		t.Errorf("%d calls, want %d", n, agent.MaxDepth+1)
	}
}

func TestR_000_07_InfoIsKeptForItsTime(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Skills: []*teamv1.Skill{{Id: "search"}}})
	a := newService(t, f)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			info, err := a.Info(t.Context())
			if err != nil || info.GetId() != "far" || !slices.Equal(info.GetCapabilities(), []string{"search"}) {
				t.Errorf("Info = %v, %v", info, err)
			}
			info.Capabilities = nil // the caller's own copy
		})
	}
	wg.Wait()
	if n := len(f.Requests("Info")); n != 1 {
		t.Errorf("asked %d times, want 1", n)
	}
	f.Down()
	if _, err := a.Info(t.Context()); err != nil {
		t.Errorf("from the cache: %v", err)
	}
}

func TestR_000_35_DownAndUpAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		f, a := w.start(t, nil)
		f.Down()
		if h, err := a.HealthCheck(t.Context()); err == nil && h.GetHealthy() {
			t.Errorf("down: %v", h)
		}
		if err := f.Up(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), infoTime)
		defer stop()
		h, err := a.HealthCheck(ctx)
		for ; err != nil && ctx.Err() == nil; h, err = a.HealthCheck(ctx) {
		}
		if err != nil || !h.GetHealthy() {
			t.Errorf("up again: %v, %v", h, err)
		}
	})
}

// TestS_56_AnotherServersTeam: its own output as it is, its steps as progress, and
// none of them as steps of ours. What its members and its router say stays there.
func TestS_56_AnotherServersTeam(t *testing.T) {
	steps := []*teamv1.Event{
		{Agent: "newsroom", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{
			Steps: []*teamv1.Step{
				{Id: "1", Member: "writer", Kind: teamv1.Step_KIND_DELEGATE}, {Id: "2", Kind: teamv1.Step_KIND_MODEL},
				{Id: "3", Kind: teamv1.Step_KIND_MODEL, Name: "route"},
			}, Reason: "it writes",
		}}},
		{Scope: "1", Agent: "newsroom/writer", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
		{Scope: "1", Agent: "newsroom/writer", Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "draft", Text: "Once"}}},
		{Scope: "1", Agent: "newsroom/writer", Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Append: true}}},
		{Scope: "3", Agent: "newsroom", Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "answer", Text: "writer"}}},
		{Scope: "2", Agent: "newsroom", Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "answer", Text: "It "}}},
		{Agent: "newsroom", Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "answer", Text: "was"}}},
		{Agent: "newsroom", Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Append: true}}},
		{Scope: "1", Agent: "newsroom/writer", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
			Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("Once upon a time")},
		}}},
	}
	spent := &teamv1.Spent{InputTokens: 7, CostMicros: 3}
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Steps: steps, Text: "Once upon a time", Spent: spent}})
	j := newJournal("tell")
	if err := j.play(t.Context(), newService(t, f)); err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, e := range j.recorded {
		if e.GetScope() != "2.1" || e.GetDecided() != nil || e.GetStarted() != nil || e.GetEnded() != nil {
			t.Errorf("event %v is none of ours", e)
		}
		if p := e.GetProgress(); p != nil {
			shown = append(shown, e.GetAgent()+": "+agent.Text(p.GetMessage()))
		}
	}
	want := []string{
		"company/far/newsroom: decided: writer, model, route (it writes)",
		"company/far/newsroom/writer: started, attempt 1",
		"company/far/newsroom/writer: ended: succeeded",
	}
	if !slices.Equal(shown, want) {
		t.Errorf("progress %q, want %q", shown, want)
	}
	if j.streamedText() != "It was" || j.reply.GetSpent().GetInputTokens() != 7 {
		t.Errorf("streamed %q, spent %v", j.streamedText(), j.reply.GetSpent())
	}
	if b := last(j, (*teamv1.Event).GetBound); b.GetCursor() != 9 {
		t.Errorf("cursor %d after the artifact, want 9", b.GetCursor())
	}
}

// TestS_56_ArtifactsComeOnce: what is appended twice would be wrong.
func TestS_56_ArtifactsComeOnce(t *testing.T) {
	piece := &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Append: true}}}
	for crash := 1; crash <= 8; crash++ {
		f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Steps: []*teamv1.Event{piece, piece, piece}}})
		a := newService(t, f)
		j := newJournal("hello")
		j.req.Recorded = nil
		for e, err := range a.Process(agent.With(t.Context(), j.run), j.req) {
			if err != nil {
				t.Fatal(err)
			}
			if e.GetReply() == nil {
				j.recorded = append(j.recorded, e)
			}
			if len(j.recorded) == crash {
				break
			}
		}
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range j.recorded {
			if e.GetArtifact() != nil {
				n++
			}
		}
		if n != 3 {
			t.Errorf("crash after event %d: %d pieces, want 3", crash, n)
		}
	}
}

func TestReplyThatStandsElsewhere(t *testing.T) {
	text := "Once upon a time"
	steps := []*teamv1.Event{
		{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Result: &teamv1.Ended_Reply{Reply: agent.NewMessage(text)}}}},
		{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_ReplyRef{ReplyRef: 2}}}},
	}
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Steps: steps}})
	j := newJournal("tell")
	if err := j.play(t.Context(), newService(t, f)); err != nil {
		t.Fatal(err)
	}
	if got := agent.Text(j.reply.GetMessage()); got != text {
		t.Errorf("reply %q", got)
	}
}

func TestHandOverByAnAgentServicePeer(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Transfer: &teamv1.Transfer{To: "legal", Message: "please check"}}})
	j := newJournal("hello")
	if err := j.play(t.Context(), newService(t, f)); err != nil {
		t.Fatal(err)
	}
	if j.reply.GetTransfer().GetTo() != "legal" {
		t.Errorf("reply %v", j.reply)
	}
}

func TestTokenOfAnAgentServicePeer(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Token: "secret"})
	for token, want := range map[string]bool{"secret": true, "": false, "other": false} {
		a, err := remote.New(remote.Config{ID: "far", Address: f.GRPC(), Token: secret.New(token)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Info(t.Context())
		if (err == nil) != want {
			t.Errorf("token %q: %v", token, err)
		}
		if err != nil && !strings.Contains(asError(t, err).Message, "refused our credentials") {
			t.Errorf("token %q: %v", token, err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAddressIsRequired(t *testing.T) {
	if _, err := remote.New(remote.Config{ID: "far"}); err == nil {
		t.Error("an agent without an address was made")
	}
}

// TestS_51_TwoQuestionsOfARemoteTeam: each answer goes to its question.
func TestS_51_TwoQuestionsOfARemoteTeam(t *testing.T) {
	forever := make(chan struct{})
	asks := []*teamv1.Event{
		{Scope: "1", Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q1", Message: agent.NewMessage("colour?")}}},
		{Scope: "2", Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q2", Message: agent.NewMessage("size?")}}},
		{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: []string{"q1", "q2"}}}},
	}
	f := fakeagent.New(t, fakeagent.Config{Turns: []fakeagent.Turn{{Steps: asks, Gate: forever}, {Gate: forever}, {Text: "large and red"}}})
	a := newService(t, f)
	j := newJournal("paint")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for q, text := range map[string]string{"2.1.q1": "red", "2.1.q2": "large"} {
		j.recorded = append(j.recorded, &teamv1.Event{Scope: "2.1", Kind: &teamv1.Event_Answered{
			Answered: &teamv1.Answered{Question: q, Message: agent.UserMessage("m", text)},
		}})
	}
	if err := j.play(t.Context(), a); err != nil || agent.Text(j.reply.GetMessage()) != "large and red" {
		t.Fatalf("reply %v, error %v", j.reply, err)
	}
	got := map[string]string{}
	keys := map[string]bool{}
	for _, r := range f.Requests("ProcessStream")[1:] {
		req := r.Body.(*teamv1.ProcessStreamRequest).GetRequest() //nolint:forcetypeassert // the fake's
		got[req.GetQuestion()] = agent.Text(req.GetMessage())
		keys[req.GetKey()] = true
	}
	if got["q1"] != "red" || got["q2"] != "large" || len(keys) != 2 {
		t.Errorf("answers %v under %d keys", got, len(keys))
	}
}

// TestPeerThatLostEverything: under the same key it begins again, and that is followed.
func TestPeerThatLostEverything(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{
		Turns:   []fakeagent.Turn{{Progress: "working", Gate: make(chan struct{})}},
		Default: chatty(),
	})
	a := newService(t, f)
	j := newJournal("hello")
	for e, err := range a.Process(agent.With(t.Context(), j.run), j.req) {
		if err != nil {
			t.Fatal(err)
		}
		j.recorded = append(j.recorded, e)
		break // a crash
	}
	f.Down()
	if err := f.Up(); err != nil {
		t.Fatal(err)
	}
	err := j.play(t.Context(), a)
	for i := 0; err != nil && i < 50; i++ { // until the connection is made anew
		err = j.play(t.Context(), a)
	}
	if err != nil || agent.Text(j.reply.GetMessage()) != "one two three" {
		t.Fatalf("reply %v, error %v", j.reply, err)
	}
	if first, newest := j.recorded[0].GetBound(), last(j, (*teamv1.Event).GetBound); first.GetTaskId() == newest.GetTaskId() {
		t.Error("the new task is not on record")
	}
}

func TestAnswerToAPeerThatLostTheTask(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Ask: "which?"}})
	a := newService(t, f)
	j := newJournal("hello")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	j.answer("this")
	f.Down()
	if err := f.Up(); err != nil {
		t.Fatal(err)
	}
	e := asError(t, j.play(t.Context(), a))
	for i := 0; !e.Fresh && i < 50; i++ {
		e = asError(t, j.play(t.Context(), a))
	}
	if !e.Retry || !e.Fresh {
		t.Errorf("error %+v", e)
	}
}

func TestSilentStreamIsOpenedAnew(t *testing.T) {
	gate := make(chan struct{})
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Progress: "working", Gate: gate, Text: "done"}})
	a, err := remote.New(remote.Config{ID: "far", Address: f.GRPC(), Idle: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	j := newJournal("hello")
	ended := make(chan error)
	go func() { ended <- j.play(t.Context(), a) }()
	f.Await(t, "ProcessStream", 3)
	close(gate)
	if err := <-ended; err != nil || agent.Text(j.reply.GetMessage()) != "done" || f.Played() != 1 {
		t.Errorf("reply %v, error %v, %d turns", j.reply, err, f.Played())
	}
}

// TestReplyFromBeforeTheCursor: what the result refers to was read by an owner before.
func TestReplyFromBeforeTheCursor(t *testing.T) {
	steps := []*teamv1.Event{
		{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("found")}}}},
		{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{}}},
		{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_ReplyRef{ReplyRef: 2}}}},
	}
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Steps: steps, Gate: make(chan struct{}), Break: 3}})
	a := newService(t, f)
	j := newJournal("hello")
	if e := asError(t, j.play(t.Context(), a)); !e.Retry {
		t.Fatalf("error %+v", e)
	}
	if err := j.play(t.Context(), a); err != nil || agent.Text(j.reply.GetMessage()) != "found" {
		t.Errorf("reply %v, error %v", j.reply, err)
	}
}

func TestPeerWithoutAJournal(t *testing.T) {
	reply := &teamv1.Reply{Result: &teamv1.Reply_Message{Message: agent.NewMessage("plain")}, Direct: true}
	f := fakeagent.New(t, fakeagent.Config{Default: fakeagent.Turn{Steps: []*teamv1.Event{{Kind: &teamv1.Event_Reply{Reply: reply}}}}})
	j := newJournal("hello")
	if err := j.play(t.Context(), newService(t, f)); err != nil || agent.Text(j.reply.GetMessage()) != "plain" || j.reply.GetDirect() {
		t.Errorf("reply %v, error %v", j.reply, err)
	}
}

func TestR_000_03_HealthByDefaultIsInfo(t *testing.T) {
	f := fakeagent.New(t, fakeagent.Config{NoHealth: true})
	a := newService(t, f)
	if h, err := a.HealthCheck(t.Context()); err != nil || !h.GetHealthy() {
		t.Errorf("health %v, error %v", h, err)
	}
	f.Down()
	if _, err := a.HealthCheck(t.Context()); err == nil {
		t.Error("healthy while it does not describe itself")
	}
}

// certificate returns a server's configuration and one that trusts it.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	return &tls.Config{Certificates: srv.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
		&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func TestTLS(t *testing.T) {
	server, client := certificate(t)
	for _, binding := range []string{remote.BindingGRPC, remote.BindingREST, remote.BindingJSONRPC} {
		t.Run(binding, func(t *testing.T) {
			cfg := fakeagent.Config{TLS: server, Bindings: []string{binding}}
			f := fakeagent.New(t, cfg)
			if err := newJournal("hello").play(t.Context(), newA2A(t, f, func(c *remote.A2AConfig) { c.TLS = client })); err != nil {
				t.Error(err)
			}
			if err := newJournal("hello").play(t.Context(), newA2A(t, f)); err == nil {
				t.Error("an unknown authority was trusted")
			}
		})
	}
	t.Run("agent service", func(t *testing.T) {
		f := fakeagent.New(t, fakeagent.Config{TLS: server})
		for cfg, want := range map[*tls.Config]bool{client: true, nil: false, {MinVersion: tls.VersionTLS12}: false} {
			a, err := remote.New(remote.Config{ID: "far", Address: f.GRPC(), TLS: cfg})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Info(t.Context()); (err == nil) != want {
				t.Errorf("TLS %v: error %v", cfg != nil, err)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestReattachAfterAnAnswer: what was sent last leads back to the task.
func TestReattachAfterAnAnswer(t *testing.T) {
	piece := &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Append: true}}}
	f := fakeagent.New(t, fakeagent.Config{Turns: []fakeagent.Turn{{Ask: "which?"}, {Steps: []*teamv1.Event{piece}, Text: "this one"}}})
	a := newService(t, f)
	j := newJournal("choose")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	j.answer("this")
	j.req.Recorded = j.recorded
	for e, err := range a.Process(agent.With(t.Context(), j.run), j.req) {
		if err != nil {
			t.Fatal(err)
		}
		j.recorded = append(j.recorded, e)
		if e.GetBound() != nil {
			break // a crash behind the artifact
		}
	}
	if err := j.play(t.Context(), a); err != nil || agent.Text(j.reply.GetMessage()) != "this one" || f.Played() != 2 {
		t.Fatalf("reply %v, error %v, %d turns", j.reply, err, f.Played())
	}
	sent := f.Requests("ProcessStream")
	first := sent[1].Body.(*teamv1.ProcessStreamRequest) //nolint:forcetypeassert // the fake's
	again := sent[2].Body.(*teamv1.ProcessStreamRequest) //nolint:forcetypeassert // the fake's
	if !proto.Equal(again.GetRequest(), first.GetRequest()) || again.GetAfter() <= first.GetAfter() {
		t.Errorf("reattached with %v, want the answer %v behind %d", again, first.GetRequest(), first.GetAfter())
	}
}

// TestAnswerThatComesTooLate: the task's end is told, not that it takes no answer.
func TestAnswerThatComesTooLate(t *testing.T) {
	late := status.Error(codes.FailedPrecondition, "the task has ended")
	f := fakeagent.New(t, fakeagent.Config{Turns: []fakeagent.Turn{{Ask: "which?"}, {Refuse: late}}})
	a := newService(t, f)
	j := newJournal("choose")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	task := last(j, (*teamv1.Event).GetBound).GetTaskId()
	if err := f.Cancel(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	j.answer("this")
	if e := asError(t, j.play(t.Context(), a)); e.Reason != agent.ReasonCanceled || errors.Is(e, agent.ErrCanceled) {
		t.Errorf("error %+v", e)
	}
}
