//go:build linux

package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// keyed is a file with an agent that echoes, and keys of two accounts.
func keyed(t *testing.T, limits string) string {
	t.Helper()
	text := fmt.Sprintf("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}, slow: {scripted: {steps: [{delay_ms: 1000}, {echo: true}]}}}\nserver:\n  auth:\n    api_keys:\n      - {account: acme, name: ann, sha256: %s}\n      - {account: other, name: bob, sha256: %s}\n%s",
		rig.Key("acme", "ann").GetSha256(), rig.Key("other", "bob").GetSha256(), limits)
	path := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run starts a server for the test.
func (c command) run(t *testing.T) *replica {
	t.Helper()
	c.dir = t.TempDir()
	r, err := c.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.end(15); t.Failed() {
			t.Log(r.tail())
		}
	})
	return r
}

// rss is the memory that a process has in use, in bytes.
func (r *replica) rss(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(rest, []byte("kB")))), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// callers are connections of one caller to a server.
type callers struct {
	conns        []*grpc.ClientConn
	agent, owner string
	next         atomic.Int64
}

func newCallers(t *testing.T, at rig.Target, agent, owner string, conns int) *callers {
	t.Helper()
	c := &callers{agent: agent, owner: owner}
	for range conns {
		conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c.conns = append(c.conns, conn)
	}
	return c
}

// callTimeout is the timeout of a call.
const callTimeout = 10 * time.Second

// call sends a message and waits for its answer.
func (c *callers) call(ctx context.Context) error {
	n := c.next.Add(1)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.owner), callTimeout)
	defer cancel()
	resp, err := a2av1.NewA2AServiceClient(c.conns[int(n)%len(c.conns)]).SendMessage(ctx, rig.Text(c.agent, fmt.Sprint("call-", n), "hello"))
	if err == nil && resp.GetMessage() == nil && resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		err = fmt.Errorf("the task is %v", resp.GetTask().GetStatus())
	}
	return err
}

// tally counts the ends of calls.
type tally struct {
	answered, shed, late, failed atomic.Int64
	mu                           sync.Mutex
	took                         []time.Duration // of those answered; guarded by mu
	first                        error           // of those failed; guarded by mu
}

// count counts the end of a call, and returns how long the caller is to wait before the next one.
func (r *tally) count(began time.Time, err error) (wait time.Duration) {
	switch f := rig.Fault(rig.FromGRPC(err)); {
	case err == nil:
		r.answered.Add(1)
		r.mu.Lock()
		r.took = append(r.took, time.Since(began))
		r.mu.Unlock()
	case f != nil && f.Reason == agent.ReasonInsufficientResources && f.Retry > 0:
		r.shed.Add(1)
		return f.Retry
	case status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		r.late.Add(1)
	case status.Code(err) == codes.Canceled:
	default:
		r.failed.Add(1)
		r.mu.Lock()
		r.first = err
		r.mu.Unlock()
	}
	return 0
}

// p99 is the 99th percentile of the answers.
func (r *tally) p99() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.took) == 0 {
		return 0
	}
	slices.Sort(r.took)
	return r.took[len(r.took)*99/100].Round(100 * time.Microsecond)
}

// closed has some callers call one time after the other, and returns the answers per second.
func (c *callers) closed(ctx context.Context, n int, d time.Duration) (perSecond float64, r *tally) {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	r = &tally{}
	var calling sync.WaitGroup
	for range n {
		calling.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := c.call(ctx)
				if ctx.Err() != nil {
					return
				}
				select {
				case <-time.After(r.count(began, err)):
				case <-ctx.Done():
				}
			}
		})
	}
	calling.Wait()
	return float64(r.answered.Load()) / d.Seconds(), r
}

// open begins calls at a rate, however many of them have no answer yet. It returns how many it began.
func (c *callers) open(ctx context.Context, perSecond float64, d time.Duration) (begun int, r *tally) {
	r = &tally{}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var calling sync.WaitGroup
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for time.Since(start) < d {
		<-tick.C
		for want := int(time.Since(start).Seconds() * perSecond); begun < want; begun++ {
			calling.Go(func() {
				began := time.Now()
				r.count(began, c.call(ctx))
			})
		}
	}
	time.AfterFunc(callTimeout, stop)
	calling.Wait()
	return begun, r
}

// limitRSS is the memory limit of the server under load.
const limitRSS = 512 << 20

// TestP21_TenTimesItsLoad offers a server ten times what it can do. It refuses what it cannot do, with the
// time to try again, goes on with the rest, keeps its memory, and is as before when the load is.
func TestP21_TenTimesItsLoad(t *testing.T) {
	lasts := 6 * time.Second
	if sample.All() {
		lasts = time.Minute
	}
	for _, kind := range sample.Of(t, []string{"sqlite", "postgres"}) {
		at := func(t *testing.T) string {
			if kind == "postgres" {
				return pgtest.URL(t)
			}
			return sqlite(t)
		}
		// The tasks take a second each, so that their slots are what there is too little of, and the
		// processor, which the server has to share with its callers here, is not.
		t.Run(kind+" callers without backoff", func(t *testing.T) {
			u := newOverload(t, "slow", at(t))
			peak := u.peak(t, max(lasts/4, 5*time.Second), 256)
			u.under(t, peak, 0.8, func() (*tally, float64) {
				began := time.Now()
				begun, got := u.open(t.Context(), 10*peak, lasts)
				t.Logf("%d calls in %v, %.0f per second", begun, lasts, float64(begun)/lasts.Seconds())
				return got, float64(got.answered.Load()) / time.Since(began).Seconds()
			})
		})
		// The tasks take no time, so that the processor is what there is too little of. Callers obey
		// RetryInfo. What refusals cost them, and the database, is missing here as well.
		t.Run(kind+" callers that obey RetryInfo", func(t *testing.T) {
			u := newOverload(t, "echo", at(t))
			peak := u.peak(t, lasts/4, 64, 256)
			u.under(t, peak, 0.6, func() (*tally, float64) {
				perSecond, got := u.closed(t.Context(), 10*256, lasts)
				return got, perSecond
			})
		})
	}
}

// overload is a server under test.
type overload struct {
	*callers
	server *replica
	idle   int64         // its memory without load
	base   time.Duration // what a call takes without load
}

// alone makes one call and returns how long it took.
func (u *overload) alone(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if err := u.call(t.Context()); err != nil {
		return patience
	}
	return time.Since(began)
}

func newOverload(t *testing.T, agent, store string) *overload {
	t.Helper()
	r := command{config: keyed(t, ""), store: store, env: []string{"GOMEMLIMIT=" + strconv.Itoa(limitRSS)}}.run(t)
	u := &overload{callers: newCallers(t, r.target, agent, "acme/ann", 64), server: r}
	if _, warm := u.closed(t.Context(), 64, 3*time.Second); warm.answered.Load() == 0 { // connects
		t.Fatalf("no calls are answered: %v", warm.first)
	}
	u.idle = r.rss(t)
	var calls []time.Duration
	for range 5 {
		calls = append(calls, u.alone(t))
	}
	slices.Sort(calls)
	u.base = calls[len(calls)/2]
	return u
}

// peak returns how many tasks a second the server can do.
func (u *overload) peak(t *testing.T, d time.Duration, callers ...int) (most float64) {
	t.Helper()
	for _, n := range callers {
		got, p := u.closed(t.Context(), n, max(d, 2*time.Second))
		t.Logf("%d callers: %.0f answers per second, p99 %v", n, got, p.p99())
		most = max(most, got)
	}
	return most
}

// under judges what the server does under a load. least is the part of the peak that it must reach; tests
// that do not run all of their cases are too short for more than half.
func (u *overload) under(t *testing.T, peak, least float64, load func() (*tally, float64)) {
	t.Helper()
	watching, stop := context.WithCancel(t.Context())
	var most int64
	var watched sync.WaitGroup
	watched.Go(func() {
		for watching.Err() == nil {
			most = max(most, u.server.rss(t))
			select {
			case <-time.After(100 * time.Millisecond):
			case <-watching.Done():
			}
		}
	})
	got, goodput := load()
	began := time.Now()
	for u.alone(t) > 2*u.base && time.Since(began) < patience {
	}
	recovered := time.Since(began)
	stop()
	watched.Wait()
	t.Logf("%d answered, %d refused, %d late, %d failed", got.answered.Load(), got.shed.Load(), got.late.Load(), got.failed.Load())
	t.Logf("goodput %.0f per second, %.2f of the peak of %.0f; p99 %v; recovered after %v; RSS %d MiB before, %d MiB at most",
		goodput, goodput/peak, peak, got.p99(), recovered.Round(time.Millisecond), u.idle>>20, most>>20)
	if got.failed.Load() > 0 {
		t.Errorf("calls failed: %v", got.first)
	}
	if got.shed.Load() == 0 {
		t.Error("nothing was refused")
	}
	if !sample.All() {
		least = 0.5
	}
	if goodput < least*peak {
		t.Errorf("the goodput is %.2f of the peak, want %.1f", goodput/peak, least)
	}
	if most > limitRSS {
		t.Errorf("the server uses %d MiB, more than %d", most>>20, limitRSS>>20)
	}
	if recovered > 5*time.Second {
		t.Errorf("the server recovers after %v", recovered)
	}
}
