package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// stepBytes is how large the event of a step is, as encoded.
const stepBytes = 1024

// BenchmarkDurable is goal 10: an event of a step put on record and made durable,
// by so many runs at the same time, against the same bytes appended to a file and
// synced by one after the other.
func BenchmarkDurable(b *testing.B) {
	t := &measure.Table{
		Title: fmt.Sprintf("a durable step of %d bytes", stepBytes),
		Head:  "c\trival\tsteps/s\tp50\tp99\tcpu/op\tallocs/op\txsteps\txp50\txalone",
		Goals: []string{
			"goal 10: rival=sqlite, c=1: xp50 <= 1.6", "goal 10: rival=sqlite, c=64: xalone >= 5", "goal 10: rival=sqlite, c=256: xalone >= 5",
			"goal 10: rival=postgres, c=64: xalone >= 7",
		},
	}
	w := measure.BudgetOf(b)
	rivals := []measure.Rival{{Name: "fsync", Start: appendAndSync}, {Name: "sqlite", Start: durable(rig.SQLite)}, {Name: "postgres", Start: durable(rig.PostgreSQL)}}
	alone := make([]float64, len(rivals))
	for _, c := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			if testing.Short() && c > 64 {
				b.Skip("takes half a minute; run without -short")
			}
			pgtest.URL(b) // or skip, before anything has run
			all := measure.Race(b, w, c, rivals)
			b.ReportMetric(0, "ns/op") // of the whole race: says nothing
			for i, r := range rivals {
				if c == 1 {
					alone[i] = measure.Median(all[i], rate)
				}
				t.Add("%d\t%s\t%.0f\t%s\t%s\t%s\t%.0f\t%.2f\t%.2f\t%.2f", c, r.Name,
					measure.Median(all[i], rate), measure.Short(measure.Median(all[i], p50)), measure.Short(measure.Median(all[i], p99)),
					measure.Short(measure.Median(all[i], measure.CPU)), measure.Median(all[i], measure.Allocs),
					measure.Ratio(all[i], all[0], rate), measure.Ratio(all[i], all[0], p50), measure.Median(all[i], rate)/alone[i])
				if i > 0 {
					b.ReportMetric(measure.Ratio(all[i], all[0], p50), r.Name+"-xp50")
					b.ReportMetric(measure.Median(all[i], rate)/alone[i], r.Name+"-xalone")
				}
			}
		})
	}
	t.Print()
}

// step is the event of a step, of the usual size.
func step(text string) *teamv1.Event {
	return &teamv1.Event{Scope: "1", Agent: "team/member", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{
		Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage(text)},
	}}}
}

// filler makes a step as large as it should be.
func filler() string { return strings.Repeat("x", stepBytes-proto.Size(step(""))-3) }

// appendAndSync is the yardstick: a file that everybody appends to, one after the
// other, and syncs.
func appendAndSync(b *testing.B) (measure.Call, func()) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	text := filler()
	var mu sync.Mutex
	return func(context.Context, int64) error {
			record, err := proto.Marshal(step(text))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if _, err := f.Write(record); err != nil {
				return err
			}
			return f.Sync()
		}, func() {
			if err := f.Close(); err != nil {
				b.Error(err)
			}
		}
}

// durable is a store with a run for each caller.
func durable(place func(testing.TB) rig.Place) func(b *testing.B) (measure.Call, func()) {
	return func(b *testing.B) (measure.Call, func()) {
		s, err := server.OpenStore(b.Context(), place(b).URL, server.StoreConfig{})
		if err != nil {
			b.Fatal(err)
		}
		r := &driven{store: s, text: filler(), of: map[int64]*journal{}}
		return r.step, func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}

// driven are the runs that callers drive, one each.
type driven struct {
	store  server.Store
	text   string
	opened func(root string) // is told of each run; may be nil

	mu sync.Mutex
	of map[int64]*journal // by caller; guarded by mu
}

// journal is a claimed run, and how much it holds. It is its caller's own.
type journal struct {
	runs.Journal
	events int
}

// step puts an event on record and waits until it is durable.
func (r *driven) step(ctx context.Context, n int64) error {
	j, err := r.journal(ctx, n>>30&1023) // the same when callers warm up
	if err != nil {
		return err
	}
	if err := j.Append(ctx, step(r.text)); err != nil {
		return err
	}
	j.events++
	return j.Commit(ctx)
}

// journal returns the run of a caller; one that is nearly full is left for another.
func (r *driven) journal(ctx context.Context, caller int64) (*journal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.of[caller]; j != nil && j.events < 40_000 {
		return j, nil
	}
	id := uuid.NewString()
	accepted := &teamv1.Accepted{TaskId: id, Agent: "bench", Owner: "bench/bench", Message: input()}
	if _, _, err := r.store.Create(ctx, runs.New{Owner: "bench/bench", Accepted: accepted, MessageID: id}); err != nil {
		return nil, err
	}
	claims, _, err := r.store.Claim(ctx, "bench", engine.NewRoom(1, nil))
	if err != nil || len(claims) != 1 {
		return nil, fmt.Errorf("%d claims: %w", len(claims), err)
	}
	r.of[caller] = &journal{Journal: claims[0].Journal}
	if r.opened != nil {
		r.opened(id)
	}
	return r.of[caller], nil
}
