package account

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// counting is a Counts that counts what it is asked.
type counting struct{ queued, asked int }

func (c *counting) Queued(context.Context, string, int) (int, error) {
	c.asked++
	return c.queued, nil
}
func (c *counting) StoredBytes(context.Context, string) (int64, error) { return 0, nil }

// creating is a Counts of an account that creates tasks, which takes time.
type creating struct{ queued, asked atomic.Int64 }

func (c *creating) Queued(context.Context, string, int) (int, error) {
	c.asked.Add(1)
	n := c.queued.Load()
	time.Sleep(time.Millisecond) // the answer of a store is that of an earlier time
	return int(n), nil
}
func (c *creating) StoredBytes(context.Context, string) (int64, error) { return 0, nil }

// TestP11_ManyTasksAtOnce: of 1,000 tasks that begin at the same time, as many are admitted as the limit
// allows, and few of them ask the store.
func TestP11_ManyTasksAtOnce(t *testing.T) {
	c := &creating{}
	a := New(Config{Counts: c, File: map[string]*teamv1.AccountLimits{"acme": {MaxQueued: proto.Int32(3)}}})
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
	a := New(Config{Counts: c, File: none})
	began := time.Now()
	for range 1000 {
		if err := a.Admit(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	if most := 1 + int(time.Since(began)/countFor); c.asked > most {
		t.Errorf("%d tasks asked the store %d times", 1000, c.asked)
	}
	a = New(Config{Counts: c, File: none, Every: &teamv1.AccountLimits{MaxQueued: proto.Int32(14)}})
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
	a := New(Config{
		File:  map[string]*teamv1.AccountLimits{"acme": {Weight: proto.Int32(3)}},
		Every: &teamv1.AccountLimits{MaxRunning: proto.Int32(7), Weight: proto.Int32(2)},
	})
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
	a := New(Config{
		File:  map[string]*teamv1.AccountLimits{"acme": {RequestsPerSecond: proto.Float64(0.001)}},
		Every: &teamv1.AccountLimits{RequestsPerSecond: proto.Float64(0.001), Burst: proto.Int32(5)},
	})
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
	a := New(Config{TotalUpload: 40 << 20})
	if err := a.Upload("acme", DefaultUpload); err != nil {
		t.Fatal(err)
	}
	if e := agent.AsError(a.Upload("acme", 1)); e == nil || e.Details[agent.DetailLimit] != "max_upload_bytes" || e.Details[DetailAccount] != "acme" {
		t.Errorf("%+v", e)
	}
	if err := a.Upload("other", 8<<20); err != nil {
		t.Error(err)
	}
	if e := agent.AsError(a.Upload("third", 1)); e == nil || e.Details[DetailAccount] != "" {
		t.Errorf("%+v", e)
	}
	a.Uploaded("acme", DefaultUpload)
	a.Uploaded("other", 8<<20)
	if err := a.Upload("acme", DefaultUpload); err != nil {
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
