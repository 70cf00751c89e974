package scenes

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	loadRuns    = 100
	loadLatency = 200 * time.Millisecond // of every call of a model
	loadTurns   = 3                      // calls of models one after the other: leader, members, leader
	loadHeap    = 128 << 20              // that 100 runs may add
)

// busyDesk has a leader give work to three members at the same time.
func busyDesk(s *scene, latency time.Duration) {
	s.llm.Answer("lead-model", func(r *fakellm.Request) fakellm.Turn {
		turn := acts(gives("a", "1"), gives("b", "2"), gives("c", "3"))
		if len(results(*r)) > 0 {
			turn = speaks("done")
		}
		turn.Delay = latency
		return turn
	})
	for _, id := range []string{"a", "b", "c"} {
		s.llm.Answer(id+"-model", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: id, Delay: latency} })
	}
}

// storm sends so many messages at the same time over all bindings, and returns how
// long each took. first numbers the messages.
func (s *scene) storm(n, first int) []time.Duration {
	s.t.Helper()
	took, errs := make([]time.Duration, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), 2*sceneTime)
			defer cancel()
			began := time.Now()
			resp, err := s.clients[i%len(s.clients)].Send(ctx, rig.Text("desk", fmt.Sprint("storm-", first+i), fmt.Sprint("go ", i)))
			took[i] = time.Since(began)
			if task := resp.GetTask(); err == nil && (task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || textOf(task) != "done") {
				err = fmt.Errorf("it is %v", task)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			s.t.Errorf("S-57 run %d: %v", i, err)
		}
	}
	return took
}

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestS_57_Load has 100 runs of a leader with three members at the same time, over
// models that take 200 ms: none fails, and memory stays small.
func TestS_57_Load(t *testing.T) {
	eachScene(t, deskModels, deskWith("allow_parallel: true", "", ""), func(t *testing.T, s *scene) {
		busyDesk(s, loadLatency)
		before := heap()
		most := make(chan uint64)
		ctx, stop := context.WithCancel(t.Context())
		go func() { // what is in use meanwhile
			peak, tick := uint64(0), time.NewTicker(50*time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapAlloc)
				case <-ctx.Done():
					most <- peak
					return
				}
			}
		}()
		took := s.storm(loadRuns, 0)
		stop()
		peak := <-most
		if n := len(s.llm.Requests()); n != 5*loadRuns {
			t.Errorf("S-57 %d model calls, want %d", n, 5*loadRuns)
		}
		slices.Sort(took)
		t.Logf("median %s, slowest %s, peak %d MiB, kept %d MiB", took[len(took)/2], took[len(took)-1], peak>>20, (max(heap(), before)-before)>>20)
		if peak > before+loadHeap {
			t.Errorf("S-57 %d MiB are in use at the worst moment, %d before", peak>>20, before>>20)
		}
	})
}

// BenchmarkS_57_Load measures what the server adds to the time of the models, with
// 100 runs at the same time.
func BenchmarkS_57_Load(b *testing.B) {
	for _, at := range []func(testing.TB) rig.Place{rig.Memory, rig.SQLite} {
		place := at(b)
		b.Run(place.Name, func(b *testing.B) {
			s := newScene(b, place, deskModels, deskWith("allow_parallel: true", "", ""), nil)
			busyDesk(s, loadLatency)
			var all []time.Duration
			for n := 0; b.Loop(); n += loadRuns {
				all = append(all, s.storm(loadRuns, n)...)
			}
			slices.Sort(all)
			added := func(d time.Duration) float64 { return float64(d-loadTurns*loadLatency) / float64(time.Millisecond) }
			b.ReportMetric(added(all[len(all)/2]), "ms-added-p50")
			b.ReportMetric(added(all[len(all)*99/100]), "ms-added-p99")
		})
	}
}
