package account

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
)

// counting is a Counts that counts what it is asked.
type counting struct{ queued, asked int }

func (c *counting) Queued(context.Context, string, int) (int, error) {
	c.asked++
	return c.queued, nil
}
func (c *counting) StoredBytes(context.Context, string) (int64, error) { return 0, nil }
func (c *counting) Servers(context.Context) (int, error)               { return 1, nil }

// creating is a Counts of an account that creates tasks, which takes time.
type creating struct{ queued, asked, servers atomic.Int64 }

func (c *creating) Queued(context.Context, string, int) (int, error) {
	c.asked.Add(1)
	n := c.queued.Load()
	time.Sleep(time.Millisecond) // the answer of a store is that of an earlier time
	return int(n), nil
}
func (c *creating) StoredBytes(context.Context, string) (int64, error) { return 0, nil }
func (c *creating) Servers(context.Context) (int, error)               { return max(int(c.servers.Load()), 1), nil }

// TestP11_ManyTasksAtOnce: of 1,000 tasks that begin at the same time, as many are admitted as the limit
// allows, and few of them ask the store.
func TestP11_ManyTasksAtOnce(t *testing.T) {
	c := &creating{}
	a := New(Config{Counts: c, Settings: settings.Of(&teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": {MaxQueued: proto.Int32(3)}}})})
	var wg sync.WaitGroup
	begin := make(chan struct{})
	var admitted atomic.Int64
	for range 1000 {
		wg.Go(func() {
			<-begin
			if a.Admit(t.Context(), "acme") == nil {
				admitted.Add(1)
				c.queued.Add(1)
			}
		})
	}
	close(begin)
	wg.Wait()
	if admitted.Load() != 3 || c.asked.Load() > 20 {
		t.Errorf("%d tasks were admitted, and %d asked the store", admitted.Load(), c.asked.Load())
	}
}

// TestP11_LimitsCostNoReadPerRequest: the store is asked at most once a second while it is not known that the
// limit is near, then at most twenty times a second, and it is never written.
func TestP11_LimitsCostNoReadPerRequest(t *testing.T) {
	c := &counting{queued: 10}
	none := map[string]*teamv1.AccountLimits{"acme": {}} // so that no ledger is needed
	a := New(Config{Counts: c, Settings: settings.Of(&teamv1.ServerSettings{Accounts: none})})
	began := time.Now()
	for range 1000 {
		if err := a.Admit(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	if most := 1 + int(time.Since(began)/countFor); c.asked > most {
		t.Errorf("%d tasks asked the store %d times", 1000, c.asked)
	}
	a = New(Config{Counts: c, Settings: settings.Of(&teamv1.ServerSettings{Accounts: none, Limits: &teamv1.LimitSettings{Account: &teamv1.AccountLimits{MaxQueued: proto.Int32(14)}}})})
	for range 100 {
		if err := a.Admit(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	if most := 2 + int(time.Since(began)/countPause); c.asked < 20 || c.asked > most {
		t.Errorf("near the limit the store was asked %d times for 100 tasks, want at most %d times", c.asked, most)
	}
	c.queued = 14
	for a.Admit(t.Context(), "acme") == nil { // the last one may still be counted here
	}
	e := agent.AsError(a.Admit(t.Context(), "acme"))
	if e == nil || e.Reason != agent.ReasonInsufficientResources || e.RetryAfter <= 0 || !e.Retry {
		t.Errorf("%+v", e)
	}
}

// TestP11_LimitsOfAnAccountOrOfAll: a limit of the file comes before one of all accounts, each for itself.
func TestP11_LimitsOfAnAccountOrOfAll(t *testing.T) {
	a := New(Config{Settings: settings.Of(&teamv1.ServerSettings{
		Accounts: map[string]*teamv1.AccountLimits{"acme": {Weight: proto.Int32(3)}},
		Limits:   &teamv1.LimitSettings{Account: &teamv1.AccountLimits{MaxRunning: proto.Int32(7), Weight: proto.Int32(2)}},
	})})
	for account, want := range map[string][2]int{"acme": {3, 7}, "other": {2, 7}} {
		if got := [2]int{a.Weight(account), a.MaxRunning(account)}; got != want {
			t.Errorf("%s: weight and running %v, want %v", account, got, want)
		}
	}
	if !a.LimitsRunning() || New(Config{}).LimitsRunning() {
		t.Error("LimitsRunning")
	}
	if _, ok := a.known("acme"); ok {
		t.Error("a limit on the use of the server needs a ledger")
	}
}

// TestP11_BurstBelongsToItsRate: an account with a rate of its own does not get the burst of every account.
func TestP11_BurstBelongsToItsRate(t *testing.T) {
	a := New(Config{Settings: settings.Of(&teamv1.ServerSettings{
		Accounts: map[string]*teamv1.AccountLimits{"acme": {RequestsPerSecond: proto.Float64(0.001)}},
		Limits:   &teamv1.LimitSettings{Account: &teamv1.AccountLimits{RequestsPerSecond: proto.Float64(0.001), Burst: proto.Int32(5)}},
	})})
	for account, want := range map[string]int{"acme": 1, "other": 5} {
		n := 0
		for n < 10 && a.Request(account) == nil {
			n++
		}
		if n != want {
			t.Errorf("%s may make %d requests, want %d", account, n, want)
		}
	}
}

// TestP11_UploadsOfAnAccount: what is returned may be used again, and one account leaves room for others.
func TestP11_UploadsOfAnAccount(t *testing.T) {
	a := New(Config{Settings: settings.Of(&teamv1.ServerSettings{Limits: &teamv1.LimitSettings{MaxUploadBytes: proto.Int64(40 << 20)}})})
	if err := a.Upload("acme/ann", defaultUpload); err != nil {
		t.Fatal(err)
	}
	if e := agent.AsError(a.Upload("acme/ann", 1)); e == nil || e.Details[agent.DetailLimit] != "max_upload_bytes" || e.Details[agent.DetailAccount] != "acme" {
		t.Errorf("%+v", e)
	}
	if err := a.Upload("other/ann", 8<<20); err != nil {
		t.Error(err)
	}
	if e := agent.AsError(a.Upload("third/ann", 1)); e == nil || e.Details[agent.DetailAccount] != "" {
		t.Errorf("%+v", e)
	}
	a.Uploaded("acme/ann", defaultUpload)
	a.Uploaded("other/ann", 8<<20)
	if err := a.Upload("acme/ann", defaultUpload); err != nil {
		t.Error(err)
	}
}

// TestP11_FaultsOfLimits: each fault names its field.
func TestP11_FaultsOfLimits(t *testing.T) {
	for field, l := range map[string]*teamv1.AccountLimits{
		"weight": {Weight: proto.Int32(0)}, "max_running": {MaxRunning: proto.Int32(-1)}, "max_queued": {MaxQueued: proto.Int32(0)},
		"max_stored_bytes": {MaxStoredBytes: proto.Int64(0)}, "max_collaborations": {MaxCollaborations: proto.Int32(0)},
		"requests_per_second": {RequestsPerSecond: proto.Float64(0)}, "burst": {Burst: proto.Int32(1)},
		"max_upload_bytes": {MaxUploadBytes: proto.Int64(1 << 20)}, "": {},
		"per_principal": {PerPrincipal: &teamv1.PrincipalLimits{}}, "per_principal.max_queued": {PerPrincipal: &teamv1.PrincipalLimits{MaxQueued: proto.Int32(0)}},
		"per_principal.burst":            {PerPrincipal: &teamv1.PrincipalLimits{Burst: proto.Int32(1)}},
		"per_principal.max_upload_bytes": {PerPrincipal: &teamv1.PrincipalLimits{MaxUploadBytes: proto.Int64(1)}},
	} {
		var got []string
		Check(l, func(field, _, _ string) { got = append(got, field) })
		if len(got) != 1 || got[0] != field {
			t.Errorf("%v: faults of %v", l, got)
		}
	}
	var got []string
	CheckEvery(&teamv1.AccountLimits{MaxTokensPerDay: proto.Int64(1)}, func(field, _, _ string) { got = append(got, field) })
	if len(got) != 1 || got[0] != "max_tokens_per_day" {
		t.Errorf("faults of %v", got)
	}
}

// TestP11_SeveralServersQueue: servers that count what waits at different times admit together less than
// twice the limit, however many they are.
func TestP11_SeveralServersQueue(t *testing.T) {
	const servers, limit = 8, 40
	c := &creating{}
	c.servers.Store(servers)
	list := make([]*Accounts, servers)
	for i := range list {
		list[i] = New(Config{Counts: c, Settings: settings.Of(&teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": {MaxQueued: proto.Int32(limit)}}})})
	}
	admitted := 0
	for _, a := range list { // all of them have read that nothing waits
		if a.Admit(t.Context(), "acme/ann") == nil {
			admitted++
		}
	}
	for _, a := range list {
		for a.Admit(t.Context(), "acme/ann") == nil {
			admitted++
			c.queued.Store(int64(admitted))
		}
	}
	if admitted < limit || admitted >= 2*limit {
		t.Errorf("%d tasks were admitted, want from %d to less than %d", admitted, limit, 2*limit)
	}
	t.Logf("%d servers admitted %d tasks with a limit of %d", servers, admitted, limit)
}

// TestP11_LimitsOfAPrincipal: one principal of an account does not use what another one may, and what is
// refused names it.
func TestP11_LimitsOfAPrincipal(t *testing.T) {
	c := &creating{}
	a := New(Config{Counts: c, Settings: settings.Of(&teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": {
		RequestsPerSecond: proto.Float64(0.001), Burst: proto.Int32(5), MaxUploadBytes: proto.Int64(8 << 20),
		PerPrincipal: &teamv1.PrincipalLimits{
			RequestsPerSecond: proto.Float64(0.001), Burst: proto.Int32(3), MaxQueued: proto.Int32(2), MaxUploadBytes: proto.Int64(4 << 20), MaxRunning: proto.Int32(1),
		},
	}}})})
	wants := func(err error, limit, principal string) {
		t.Helper()
		e := agent.AsError(err)
		if e == nil || e.Details[agent.DetailLimit] != limit || e.Details[agent.DetailAccount] != "acme" || e.Details[agent.DetailPrincipal] != principal || e.RetryAfter <= 0 ||
			!strings.Contains(e.Message, limit) || !strings.Contains(e.Message, strconv.Quote("acme")) || principal != "" && !strings.Contains(e.Message, strconv.Quote(principal)) {
			t.Errorf("%+v, want that %s is reached", e, limit)
		}
	}
	for who, want := range map[string]int{"acme/ann": 3} {
		n := 0
		for n < 10 && a.Request(who) == nil {
			n++
		}
		if n != want {
			t.Errorf("%s may make %d requests, want %d", who, n, want)
		}
	}
	wants(a.Request("acme/ann"), "per_principal.requests_per_second", "ann")
	for range 2 { // what a principal was refused, its account has not used
		if err := a.Request("acme/bob"); err != nil {
			t.Error(err)
		}
	}
	wants(a.Request("acme/zoe"), "requests_per_second", "")
	if err := a.Upload("acme/ann", 4<<20); err != nil {
		t.Error(err)
	}
	wants(a.Upload("acme/ann", 1), "per_principal.max_upload_bytes", "ann")
	if err := a.Upload("acme/bob", 3<<20); err != nil {
		t.Error(err)
	}
	wants(a.Upload("acme/zoe", 2<<20), "max_upload_bytes", "")
	a.Uploaded("acme/ann", 4<<20)
	if err := a.Upload("acme/zoe", 2<<20); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := a.Admit(t.Context(), "acme/ann"); err != nil {
			t.Error(err)
		}
		c.queued.Add(1)
	}
	wants(a.Admit(t.Context(), "acme/ann"), "per_principal.max_queued", "ann")
	if a.MaxRunningEach("acme") != 1 || a.MaxRunningEach("other") != 0 || !a.LimitsRunning() {
		t.Error("MaxRunningEach")
	}
}

// TestP11_PrincipalsAreForgotten: what principals have used stays in memory only until their buckets are full again.
func TestP11_PrincipalsAreForgotten(t *testing.T) {
	a := New(Config{Settings: settings.Of(&teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": {PerPrincipal: &teamv1.PrincipalLimits{RequestsPerSecond: proto.Float64(1)}}}})})
	for i := range 100 {
		_ = a.Request("acme/" + strconv.Itoa(i))
	}
	if err := a.Upload("acme/busy", 1); err != nil {
		t.Fatal(err)
	}
	a.forget()
	if len(a.uses) != 102 {
		t.Fatalf("%d are known", len(a.uses))
	}
	for _, u := range a.uses {
		u.seen = u.seen.Add(-time.Minute)
	}
	a.forget()
	if len(a.uses) != 2 { // acme and acme/busy, whose bodies are being received
		t.Errorf("%d are known", len(a.uses))
	}
}

// sharing is a store that counts requests, for servers whose number it is told.
type sharing struct {
	Ledger
	creating
	mu     sync.Mutex
	full   map[string]int64 // guarded by mu
	counts int              // guarded by mu
	broken error            // guarded by mu
}

func (s *sharing) AccountLimits(context.Context) ([]Stored, error) { return nil, nil }
func (s *sharing) WatchAccountLimits() (<-chan struct{}, func())   { return nil, func() {} }

func (s *sharing) CountRequests(_ context.Context, list []Requests) (left []float64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, s.broken
	}
	for _, r := range list {
		full, n := r.Apply(s.full[r.Owner], time.Now().UnixMicro())
		s.full[r.Owner] = full
		left = append(left, n)
	}
	s.counts++
	return left, nil
}

// servers returns servers on a store, whose account acme may make ten requests per second.
func (s *sharing) replicas(ctx context.Context, t *testing.T, n int) []*Accounts {
	s.full = map[string]int64{}
	s.servers.Store(int64(n))
	list := make([]*Accounts, n)
	var serving sync.WaitGroup
	for i := range list {
		a := New(Config{Ledger: s, Counts: s, Shared: true, Settings: settings.Of(&teamv1.ServerSettings{Accounts: map[string]*teamv1.AccountLimits{"acme": {RequestsPerSecond: proto.Float64(10), Burst: proto.Int32(10)}}})})
		serving.Go(func() { a.Serve(ctx) })
		list[i] = a
	}
	t.Cleanup(serving.Wait)
	return list
}

// flood makes requests to servers, as often a second as weights says, for some time, and returns how many
// each has admitted.
func flood(list []*Accounts, weights []int, d time.Duration) []int {
	got := make([]int, len(list))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i, a := range list {
			for range weights[i] {
				if a.Request("acme/ann") == nil {
					got[i]++
				}
			}
		}
	}
	return got
}

// TestP11_ServersShareARate: servers with one store make together as many requests as one may, those with
// requests share them, and the store is not asked for each.
func TestP11_ServersShareARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := &sharing{}
		list := s.replicas(ctx, t, 3)
		got := flood(list, []int{1, 1, 1}, 60*time.Second)
		all := got[0] + got[1] + got[2]
		if all < 580 || all > 650 {
			t.Errorf("%v requests were admitted in a minute, %d of 600", got, all)
		}
		if slices.Min(got) < 60 {
			t.Errorf("%v: the share of one is small", got)
		}
		s.mu.Lock()
		if s.counts > 3*60*4+3 {
			t.Errorf("the store was asked %d times", s.counts)
		}
		s.mu.Unlock()
		t.Logf("three equal servers: %v", got)
		got = flood(list, []int{1, 0, 0}, 30*time.Second)
		if got[0] < 285 || got[0] > 320 {
			t.Errorf("one server with all requests admitted %d in half a minute, of 300", got[0])
		}
		t.Logf("one of three: %d", got[0])
	})
}

// TestP11_AServerThatDies: what it has not reported is at most what it admitted in a second, and the
// others get its part.
func TestP11_AServerThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := &sharing{}
		list := s.replicas(ctx, t, 3)
		_ = flood(list, []int{1, 1, 1}, 10*time.Second)
		got := flood(list, []int{1, 1, 0}, 30*time.Second) // the third gets none, as if it had died
		if all := got[0] + got[1]; all < 280 || all > 330 {
			t.Errorf("%v requests were admitted in half a minute, of 300", got)
		}
		t.Logf("two of three: %v", got)
	})
}

// TestP11_TheStoreIsDown: without the store each server limits its requests alone; what it has admitted
// then is made up for later.
func TestP11_TheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := &sharing{}
		list := s.replicas(ctx, t, 2)
		_ = flood(list, []int{1, 1}, 10*time.Second)
		s.mu.Lock()
		s.broken = errors.New("down")
		s.mu.Unlock()
		got := flood(list, []int{1, 1}, 20*time.Second)
		for i, n := range got {
			if n < 180 || n > 220 {
				t.Errorf("server %d admitted %d in 20 seconds, of 200", i, n)
			}
		}
		s.mu.Lock()
		s.broken = nil
		s.mu.Unlock()
		_ = flood(list, []int{1, 1}, 10*time.Second)
		got = flood(list, []int{1, 1}, 30*time.Second)
		if all := got[0] + got[1]; all < 280 || all > 330 {
			t.Errorf("%v requests were admitted in half a minute, of 300", got)
		}
	})
}

// TestP11_OneServerDoesNotCount: a single server, and one without limits on requests, write nothing.
func TestP11_OneServerDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := &sharing{}
		list := s.replicas(ctx, t, 1)
		if got := flood(list, []int{1}, 30*time.Second); got[0] < 300 || got[0] > 312 {
			t.Errorf("%d requests were admitted in half a minute", got[0])
		}
		if s.counts > 0 {
			t.Errorf("the store has counted %d times", s.counts)
		}
		s.servers.Store(2)
		if err := list[0].Request("other/bob"); err != nil || list[0].marked != nil {
			t.Error(err, list[0].marked)
		}
	})
}

// TestP11_SlowCounts: a count that took long is used for longer, and refuses nothing that it has room for.
func TestP11_SlowCounts(t *testing.T) {
	now := time.Now()
	c := &count{at: now.Add(-2 * time.Second), took: time.Second, n: 7, servers: 1}
	if admitted, ok := c.admits(10, 1, now, time.Second); !admitted || !ok {
		t.Errorf("admitted %t, known %t", admitted, ok)
	}
	if c.at = now.Add(-11 * time.Second); !c.stale(now, time.Second) || c.pause(now) > 0 {
		t.Error("the store is not asked after ten times as long as it took")
	}
}
