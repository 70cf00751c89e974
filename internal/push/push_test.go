package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/push"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const me = "acme/ann"

func key(task string) runs.Key { return runs.Key{Owner: me, ID: task} }

// call is one that a receiver got.
type call struct {
	at     time.Duration // since the beginning
	host   string
	id     string
	header http.Header
	text   string // of the status message
}

// world is a dispatcher on a store in memory, in a bubble's time. answer is what
// receivers do; nil is 204.
type world struct {
	t       *testing.T
	store   *sqlstore.Store
	handler *a2a.Handler
	log     *bytes.Buffer
	start   time.Time

	mu     sync.Mutex
	answer func(ctx context.Context, host string, n int) (*http.Response, error)
	calls  []call
}

func newWorld(t *testing.T) *world {
	s := memstore.Open(t)
	return &world{t: t, store: s, handler: a2a.NewHandler(a2a.Config{Store: s, Pushes: s}), start: time.Now(), log: &bytes.Buffer{}}
}

// serve runs a dispatcher until stop is called.
func (w *world) serve(c push.Config) (stop func()) {
	c.Pushes, c.Client = w.store, &http.Client{Transport: w}
	if c.Outbox == nil {
		c.Outbox = w.handler.Outbox
	}
	if c.Encode == nil {
		c.Encode = func(m proto.Message) ([]byte, error) { return protojson.Marshal(m) }
	}
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(w.log)), zap.DebugLevel)
	c.Log = zap.New(core)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		push.New(c).Serve(ctx)
	}()
	return func() { cancel(); <-done }
}

// RoundTrip is the network.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var r a2av1.StreamResponse
	if err := protojson.Unmarshal(b, &r); err != nil {
		w.t.Errorf("body %q: %v", b, err)
	}
	w.mu.Lock()
	n := 0
	for _, c := range w.calls {
		if c.host == req.URL.Host {
			n++
		}
	}
	w.calls = append(w.calls, call{
		at: time.Since(w.start), host: req.URL.Host, id: req.Header.Get(push.HeaderID), header: req.Header.Clone(),
		text: agent.Text(r.GetStatusUpdate().GetStatus().GetMessage()),
	})
	answer := w.answer
	w.mu.Unlock()
	if answer == nil {
		return reply(http.StatusNoContent), nil
	}
	return answer(req.Context(), req.URL.Host, n+1)
}

func reply(code int) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ignored"))}
}

// told returns the calls of a host so far.
func (w *world) told(host string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []call
	for _, c := range w.calls {
		if c.host == host {
			list = append(list, c)
		}
	}
	return list
}

// run makes a task, with a configuration for each host, and claims it.
func (w *world) run(id string, hosts ...string) runs.Claim {
	w.t.Helper()
	m := agent.UserMessage("m-"+id, "do it")
	m.ContextId = "c"
	n := runs.New{Owner: me, MessageID: m.GetMessageId(), Accepted: &teamv1.Accepted{TaskId: id, Agent: "a", Owner: me, Message: m}}
	if _, _, err := w.store.Create(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	claims, _, err := w.store.Claim(w.t.Context(), "r", engine.NewRoom(10, nil))
	if err != nil || len(claims) != 1 {
		w.t.Fatal(len(claims), err)
	}
	for _, h := range hosts {
		w.register(id, h, 1)
	}
	return claims[0]
}

func (w *world) register(task, host string, seen int64) {
	w.t.Helper()
	c := &a2av1.TaskPushNotificationConfig{
		Id: host, TaskId: task, Url: "https://" + host + "/hook?q=canary-query", Token: "canary-token",
		Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "canary-credentials"},
	}
	if err := w.store.PutPush(w.t.Context(), runs.Push{Task: key(task), Config: c, PushState: runs.PushState{Seen: seen}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) append(c runs.Claim, events ...*teamv1.Event) {
	w.t.Helper()
	if err := c.Journal.Append(w.t.Context(), events...); err != nil {
		w.t.Fatal(err)
	}
	if err := c.Journal.Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) push(task, id string) runs.Push {
	w.t.Helper()
	p, err := w.store.Push(w.t.Context(), key(task), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func progress(text string) *teamv1.Event {
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: agent.NewMessage(text)}}}
}

func end() *teamv1.Event {
	e := &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")}}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Ended{Ended: e}}
}

// distinct are the ids of calls without repetitions, in the order of the first of each.
func distinct(calls []call) []string {
	var ids []string
	for _, c := range calls {
		if !slices.Contains(ids, c.id) {
			ids = append(ids, c.id)
		}
	}
	return ids
}

func TestA_18_ToldInOrderAndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.serve(push.Config{Version: "9"})()
		run := w.run("one", "well")
		for i := range 5 {
			w.append(run, progress(fmt.Sprint(i)))
			synctest.Wait()
			if n := len(w.told("well")); n != i+1 {
				t.Fatalf("%d calls after %d events", n, i+1)
			}
			time.Sleep(time.Duration(i) * 10 * time.Second) // also when the session was over
		}
		w.append(run, end())
		synctest.Wait()
		calls := w.told("well")
		want := []string{"one:2:1", "one:3:1", "one:4:1", "one:5:1", "one:6:1", "one:7:1", "one:7:2"}
		if got := distinct(calls); !slices.Equal(got, want) || len(calls) != len(want) {
			t.Errorf("told are %v, want %v", got, want)
		}
		h := calls[0].header
		for name, want := range map[string]string{
			"Content-Type": "application/a2a+json", "Authorization": "Bearer canary-credentials", "X-A2A-Notification-Token": "canary-token",
			"A2A-Notification-Token": "canary-token", "User-Agent": "team-server/9", "A2A-Version": "1.0",
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %q, want %q", name, h.Get(name), want)
			}
		}
		if p := w.push("one", "well"); !p.Ended || p.Seen != 7 {
			t.Errorf("at the end %+v", p.PushState)
		}
	})
}

func TestA_18_AReceiverThatFailsThreeTimesGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(_ context.Context, _ string, n int) (*http.Response, error) {
			switch n {
			case 1:
				return reply(http.StatusInternalServerError), nil
			case 2:
				return nil, errors.New("reset")
			case 3:
				return reply(http.StatusTemporaryRedirect), nil
			}
			return reply(http.StatusOK), nil
		}
		defer w.serve(push.Config{Rand: func(n int64) int64 { return n - 1 }})()
		run := w.run("one", "well")
		w.append(run, progress("a"), progress("b"), end())
		time.Sleep(time.Minute)
		synctest.Wait()
		calls := w.told("well")
		ids := []string{}
		for _, c := range calls {
			ids = append(ids, c.id)
		}
		if want := []string{"one:2:1", "one:2:1", "one:2:1", "one:2:1", "one:3:1", "one:4:1", "one:4:2"}; !slices.Equal(ids, want) {
			t.Fatalf("told are %v, want %v", ids, want)
		}
		for i, want := range []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 7 * time.Second} {
			if got := calls[i].at.Round(time.Millisecond); got != want {
				t.Errorf("call %d at %v, want %v", i, got, want)
			}
		}
	})
}

func TestA_18_RetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(_ context.Context, _ string, n int) (*http.Response, error) {
			r := reply(http.StatusOK)
			if n == 1 {
				r = reply(http.StatusServiceUnavailable)
				r.Header.Set("Retry-After", "600")
			}
			return r, nil
		}
		defer w.serve(push.Config{})()
		w.append(w.run("one", "well"), end())
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls := w.told("well"); len(calls) != 3 || calls[1].at < 10*time.Minute || calls[1].at > 10*time.Minute+time.Second {
			t.Errorf("calls %v", calls)
		}
	})
}

// TestA_18_DeadLetters: a notification is dropped after 20 attempts and listed; the next
// one has one attempt, and after a success 20 again.
func TestA_18_DeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		well := false
		w.answer = func(context.Context, string, int) (*http.Response, error) {
			if well {
				return reply(http.StatusOK), nil
			}
			return reply(http.StatusBadGateway), nil
		}
		defer w.serve(push.Config{})()
		run := w.run("one", "sick")
		w.append(run, progress("a"), progress("b"), progress("c"))
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		calls := w.told("sick")
		if len(calls) != 22 || calls[19].id != "one:2:1" || calls[20].id != "one:3:1" || calls[21].id != "one:4:1" {
			t.Fatalf("%d calls: %v", len(calls), distinct(calls))
		}
		dead, total, err := w.store.DeadPushes(t.Context(), key("one"), 10)
		if err != nil || total != 3 || dead[2].Seq != 2 || dead[2].Tries != 20 || dead[0].Tries != 1 || dead[2].Error != "refused by receiver" {
			t.Fatalf("given up are %+v, %v", dead, err)
		}
		if p := w.push("one", "sick"); !p.Failing || p.Seen != 4 {
			t.Errorf("then %+v", p.PushState)
		}
		w.mu.Lock()
		well = true
		w.mu.Unlock()
		w.append(run, progress("d"))
		synctest.Wait()
		if p := w.push("one", "sick"); p.Failing || p.Seen != 5 || p.Error != "" {
			t.Errorf("after a success %+v", p.PushState)
		}
		w.mu.Lock()
		well = false
		w.mu.Unlock()
		w.append(run, progress("e"))
		synctest.Wait()
		if p := w.push("one", "sick"); p.Tries != 1 || p.Failing || p.Seen != 5 {
			t.Errorf("and then a failure %+v", p.PushState)
		}
	})
}

func TestA_18_GivenUpAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(context.Context, string, int) (*http.Response, error) {
			r := reply(http.StatusTooManyRequests)
			r.Header.Set("Retry-After", "86400") // an hour of it is honoured, so in a day there are no 26 tries
			return r, nil
		}
		defer w.serve(push.Config{Policy: push.Policy{Tries: 1000}})()
		w.append(w.run("one", "sick"), progress("a"))
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		dead, _, err := w.store.DeadPushes(t.Context(), key("one"), 10)
		if n := len(w.told("sick")); err != nil || len(dead) != 1 || n != 25 {
			t.Errorf("given up are %v after %d calls, %v", dead, n, err)
		}
	})
}

// TestP6_T_18_BlackHolesDelayNobody: webhooks that accept calls but never answer do not
// delay others, even of the same account.
func TestP6_T_18_BlackHolesDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(ctx context.Context, host string, _ int) (*http.Response, error) {
			if host == "well" {
				return reply(http.StatusOK), nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		defer w.serve(push.Config{})()
		run := w.run("one", "well")
		w.append(run, progress("first"))
		synctest.Wait()
		var runs []runs.Claim
		for i := range 20 {
			hosts := []string{}
			for j := range 10 {
				hosts = append(hosts, fmt.Sprintf("hole%d", (i*10+j)%17))
			}
			run := w.run(fmt.Sprint("task", i), hosts...)
			w.append(run, progress("x"))
			runs = append(runs, run)
		}
		for i := range 30 {
			w.append(run, progress(fmt.Sprint(i)))
			synctest.Wait()
			if n := len(w.told("well")); n != i+2 {
				t.Fatalf("%d calls after %d events", n, i+2)
			}
			time.Sleep(time.Second)
		}
		for _, r := range runs {
			w.append(r, end())
		}
	})
}

// TestT_18_AHostIsOneInAnySpelling: the calls to it are counted together.
func TestT_18_AHostIsOneInAnySpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(ctx context.Context, _ string, _ int) (*http.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		stop := w.serve(push.Config{Limits: push.Limits{PerHost: 2}})
		run := w.run("one", "hole", "HOLE", "Hole", "hole:443", "HOLE:443", "hole:8443")
		w.append(run, progress("a"))
		synctest.Wait()
		w.mu.Lock()
		calls := slices.Clone(w.calls)
		w.mu.Unlock()
		other := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.host != "hole:8443" })
		if len(calls) != 3 || len(other) != 1 {
			t.Errorf("%d calls at the same time, %d of them to another port", len(calls), len(other))
		}
		stop()
	})
}

func TestA_18_WhatIsDeletedIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.serve(push.Config{})()
		run := w.run("one", "well")
		w.append(run, progress("a"))
		synctest.Wait()
		if err := w.store.DeletePush(t.Context(), key("one"), "well"); err != nil {
			t.Fatal(err)
		}
		w.append(run, progress("b"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls := w.told("well"); len(calls) != 1 {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// TestA_18_WhatIsMadeAgainIsToldOnce: a session of a configuration that was deleted sends
// nothing to one that was created with the same id.
func TestA_18_WhatIsMadeAgainIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.serve(push.Config{})()
		run := w.run("one", "well")
		synctest.Wait()
		if err := w.store.DeletePush(t.Context(), key("one"), "well"); err != nil {
			t.Fatal(err)
		}
		other := &a2av1.TaskPushNotificationConfig{Id: "well", TaskId: "one", Url: "https://other/"}
		if err := w.store.PutPush(t.Context(), runs.Push{Task: key("one"), Config: other, PushState: runs.PushState{Seen: 1}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.append(run, progress("a"), end())
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(w.told("well")); n != 0 {
			t.Errorf("the one before was told %d times", n)
		}
		if got, want := distinct(w.told("other")), []string{"one:2:1", "one:3:1", "one:3:2"}; !slices.Equal(got, want) || len(w.told("other")) != len(want) {
			t.Errorf("told are %v, want %v", w.told("other"), want)
		}
	})
}

// TestP6_AStoreThatFailsDelaysLittle: a failed read is retried soon, then with a backoff; a
// damaged task is read rarely from the start.
func TestP6_AStoreThatFailsDelaysLittle(t *testing.T) {
	always := func(int) bool { return true }
	seconds := func(list ...int) (at []time.Duration) {
		for _, n := range list {
			at = append(at, time.Duration(n)*time.Second)
		}
		return at
	}
	for _, c := range []struct {
		name  string
		err   error
		fails func(n int) bool // the nth read
		at    []time.Duration  // when it is read; something happens after two minutes
	}{
		{"a short failure", runs.ErrStorage, func(n int) bool { return n <= 3 }, seconds(0, 1, 3, 7, 120)},
		{"two of them", runs.ErrStorage, func(n int) bool { return n <= 3 || n == 5 }, seconds(0, 1, 3, 7, 120, 121)},
		{"a long failure", errors.New("any"), always, seconds(0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111)},
		{"damage", fmt.Errorf("of one: %w", runs.ErrDataLoss), always, seconds(0, 330, 660, 990)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var at []time.Duration
				outbox := func(ctx context.Context, p runs.Push) (*feed.Outbox, error) {
					at = append(at, time.Since(w.start).Round(time.Second)) // one session after the other
					if c.fails(len(at)) {
						return nil, c.err
					}
					return w.handler.Outbox(ctx, p)
				}
				stop := w.serve(push.Config{Outbox: outbox, Rand: func(n int64) int64 { return n - 1 }})
				run := w.run("one", "well")
				time.Sleep(2 * time.Minute)
				w.append(run, progress("a"))
				time.Sleep(18 * time.Minute)
				stop()
				if !slices.Equal(at, c.at) {
					t.Errorf("read at %v, want %v", at, c.at)
				}
			})
		})
	}
}

func TestT_11_AnOwnerThatMayNotCallIsToldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		may := true
		allowed := func(_ context.Context, owner string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return may && owner == me, nil
		}
		defer w.serve(push.Config{Allowed: allowed})()
		run := w.run("one", "well")
		w.append(run, progress("a"))
		synctest.Wait()
		mu.Lock()
		may = false
		mu.Unlock()
		w.append(run, progress("b"))
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if calls := w.told("well"); len(calls) != 1 {
			t.Errorf("%d calls", len(calls))
		}
		if _, n, err := w.store.DeadPushes(t.Context(), key("one"), 10); n != 1 || err != nil {
			t.Errorf("%d given up, %v", n, err)
		}
	})
}

// TestT_11_AnOwnerThatIsBackIsTold: what an owner was not told while it might not call is delivered when it is back,
// also after more attempts than a webhook that fails has.
func TestT_11_AnOwnerThatIsBackIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		back := w.start.Add(12 * time.Hour)
		defer w.serve(push.Config{Allowed: func(context.Context, string) (bool, error) { return time.Now().After(back), nil }})()
		run := w.run("one", "well")
		w.append(run, progress("a"), progress("b"))
		time.Sleep(12 * time.Hour)
		synctest.Wait()
		if calls := w.told("well"); len(calls) != 0 {
			t.Errorf("%d calls while the owner may not call", len(calls))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if calls := w.told("well"); len(calls) != 2 {
			t.Errorf("%d calls when the owner is back", len(calls))
		}
	})
}

// TestP6_AProcessThatStops: notifications that a dispatcher has not delivered are delivered
// by the next one, at once if the first one has stopped.
func TestP6_AProcessThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(ctx context.Context, _ string, n int) (*http.Response, error) {
			if n == 2 { // in the middle of a call
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return reply(http.StatusOK), nil
		}
		stop := w.serve(push.Config{})
		run := w.run("one", "well")
		w.append(run, progress("a"), progress("b"), end())
		synctest.Wait()
		stop()
		before := time.Since(w.start)
		defer w.serve(push.Config{})()
		synctest.Wait()
		calls := w.told("well")
		if got, want := distinct(calls), []string{"one:2:1", "one:3:1", "one:4:1", "one:4:2"}; !slices.Equal(got, want) || len(calls) != 5 {
			t.Fatalf("told are %v", calls)
		}
		if calls[2].at != before {
			t.Errorf("gone on at %v, want %v", calls[2].at, before)
		}
	})
}

func TestA_22_APanicHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		broken := true
		defer w.serve(push.Config{Encode: func(m proto.Message) ([]byte, error) {
			if broken {
				broken = false
				panic("a bug")
			}
			return protojson.Marshal(m)
		}})()
		w.append(w.run("one", "well"), progress("a"), end())
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := distinct(w.told("well")); len(got) == 0 || !w.push("one", "well").Ended {
			t.Errorf("told are %v", got)
		}
		if !strings.Contains(w.log.String(), "a bug") {
			t.Error("the log says nothing of the panic")
		}
	})
}

// TestT_42_NoSecretInTheLog: neither credentials nor what an address holds.
func TestT_42_NoSecretInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = func(_ context.Context, _ string, n int) (*http.Response, error) {
			if n%2 == 0 {
				return nil, errors.New("reset")
			}
			return reply(http.StatusBadRequest), nil
		}
		stop := w.serve(push.Config{})
		w.append(w.run("one", "sick"), progress("a"), progress("b"))
		time.Sleep(24 * time.Hour)
		stop()
		dead, _, _ := w.store.DeadPushes(t.Context(), key("one"), 10)
		shown, _ := json.Marshal(dead)
		if text := w.log.String() + string(shown); strings.Contains(text, "canary") || !strings.Contains(text, "dropped a notification") {
			t.Errorf("the log holds a secret, or nothing:\n%s", text)
		}
	})
}

// TestT_44_AWebhookThatFailsIsLogged: when it begins to fail, at most every five minutes while it does, and when it works
// again; not at all while it works.
func TestT_44_AWebhookThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		well := true
		w.answer = func(context.Context, string, int) (*http.Response, error) {
			if well {
				return reply(http.StatusOK), nil
			}
			return reply(http.StatusBadGateway), nil
		}
		lines := func() (fails, works int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return strings.Count(w.log.String(), `"a webhook fails"`), strings.Count(w.log.String(), `"a webhook works again"`)
		}
		turn := func(to bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			well = to
		}
		expect := func(when string, fails, works int) {
			t.Helper()
			synctest.Wait()
			if f, o := lines(); f != fails || o != works {
				t.Errorf("%s: %d lines about failures and %d about recoveries, want %d and %d:\n%s", when, f, o, fails, works, w.log)
			}
		}
		stop := w.serve(push.Config{Rand: func(n int64) int64 { return n - 1 }})
		a, b := w.run("one", "hook"), w.run("two", "hook")
		w.append(a, progress("a"))
		w.append(b, progress("a"))
		expect("while it works", 0, 0)
		turn(false)
		w.append(a, progress("b"))
		w.append(b, progress("b"))
		expect("after two failures", 1, 0)
		time.Sleep(4 * time.Minute)
		expect("after four minutes", 1, 0)
		time.Sleep(6 * time.Minute)
		expect("after ten minutes", 2, 0)
		turn(true)
		time.Sleep(10 * time.Minute)
		expect("after it has recovered", 2, 1)
		turn(false)
		w.append(a, progress("c"))
		expect("when it fails again", 3, 1)
		stop()
		if text := w.log.String(); !strings.Contains(text, `"receiver":"https://hook:443"`) || !strings.Contains(text, "502 Bad Gateway") || strings.Contains(text, "canary") {
			t.Errorf("the log must name the receiver and the cause, without secrets:\n%s", text)
		}
	})
}

// endless is an answer that never ends.
type endless struct{ read *int }

func (e endless) Read(b []byte) (int, error) { *e.read += len(b); return len(b), nil }
func (endless) Close() error                 { return nil }

func TestT_17_AnAnswerCountsByItsStatusOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		read := 0
		w.answer = func(context.Context, string, int) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Body: endless{&read}}, nil
		}
		stop := w.serve(push.Config{})
		w.append(w.run("one", "well"), progress("a"))
		synctest.Wait()
		stop()
		if p := w.push("one", "well"); p.Seen != 2 || read > 128<<10 {
			t.Errorf("%d bytes were read; then %+v", read, p.PushState)
		}
	})
}

// TestA_18_AnyHistory: whatever webhooks do, each notification is delivered at least once
// or dropped, in order.
func TestA_18_AnyHistory(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { anyHistory(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func anyHistory(t *testing.T, r *rand.Rand) {
	w := newWorld(t)
	var mu sync.Mutex
	odds := r.IntN(90)
	w.answer = func(ctx context.Context, _ string, _ int) (*http.Response, error) {
		mu.Lock()
		luck, kind := r.IntN(100), r.IntN(3)
		mu.Unlock()
		switch {
		case luck >= odds:
			return reply(http.StatusOK), nil
		case kind == 0:
			<-ctx.Done()
			return nil, ctx.Err()
		case kind == 1:
			return nil, errors.New("reset")
		}
		return reply(http.StatusInternalServerError), nil
	}
	stop := w.serve(push.Config{Policy: push.Policy{Tries: 5}})
	run := w.run("one", "a", "b")
	for i := range 30 {
		w.append(run, progress(fmt.Sprint(i)))
		mu.Lock()
		pause, restart := time.Duration(r.IntN(40))*time.Second, r.IntN(6) == 0
		mu.Unlock()
		time.Sleep(pause)
		if restart {
			stop()
			stop = w.serve(push.Config{Policy: push.Policy{Tries: 5}})
		}
	}
	w.append(run, end())
	time.Sleep(48 * time.Hour)
	stop()
	for _, host := range []string{"a", "b"} {
		var want []string
		for seq := 2; seq <= 32; seq++ {
			want = append(want, fmt.Sprintf("one:%d:1", seq))
		}
		want = append(want, "one:32:2")
		if got := distinct(w.told(host)); !slices.Equal(got, want) {
			t.Errorf("%s was told %v, want %v", host, got, want)
		}
		if !w.push("one", host).Ended {
			t.Errorf("%s has not come to the end", host)
		}
	}
}
