//go:build linux

package memory

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// memoryOf returns the resident memory of a process, and its peak, in bytes; 0 if it has ended.
func memoryOf(pid int) (now, peak int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for name, to := range map[string]*int64{"VmRSS:": &now, "VmHWM:": &peak} {
		_, rest, _ := strings.Cut(string(text), name)
		_, _ = fmt.Sscanf(rest, "%d kB", to) // 0 if there is none
		*to <<= 10
	}
	return now, peak
}

// forgetPeak begins the peak of the resident memory anew.
func (s *underTest) forgetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Log(err) // then it includes the start of the server
	}
}

// alive reports whether the server has not ended.
func (s *underTest) alive() bool {
	select {
	case <-s.Gone:
		return false
	default:
		return true
	}
}

// watch is what a server has used.
type watch struct {
	stop context.CancelFunc
	done chan struct{}
	rss  []int64
}

// every is how often the memory is read.
const every = 250 * time.Millisecond

// watch reads the memory of the server, and kills it if it has too much.
func (s *underTest) watch() *watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			now, _ := memoryOf(s.Cmd.Process.Pid)
			if w.rss = append(w.rss, now); now > tooMuch {
				_ = s.Cmd.Process.Signal(syscall.SIGKILL)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

// end returns what was read.
func (w *watch) end() []int64 {
	w.stop()
	<-w.done
	return w.rss
}

// goroutines returns how many goroutines the server has.
func (s *underTest) goroutines(t *testing.T) (n int) {
	t.Helper()
	resp, err := http.Get(s.metrics) //nolint:noctx // on loopback
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "go_goroutines %d", &n); err == nil {
			return n
		}
	}
	t.Fatal("no go_goroutines")
	return 0
}

// comesBack waits until the server has about as many goroutines as before and, if memory is true, as little memory: the
// runtime collects garbage at least every two minutes, and returns memory after that.
func (s *underTest) comesBack(t *testing.T, goroutines int, memory bool) {
	t.Helper()
	const few, little = 60, 350 << 20
	http.DefaultClient.CloseIdleConnections()
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, patience := time.Now(), 90*time.Second // tasks go on without their callers
	if memory {
		patience = 4 * time.Minute
	}
	for {
		now, _ := memoryOf(s.Cmd.Process.Pid)
		n := s.goroutines(t)
		if n <= goroutines+few && (!memory || now <= little) {
			t.Logf("after %v the server has %d goroutines of %d before, and %d MiB", time.Since(began).Round(time.Second), n, goroutines, now>>20)
			return
		}
		if time.Since(began) > patience {
			t.Errorf("after %v the server has %d goroutines and %d MiB, want at most %d and %d", patience, n, now>>20, goroutines+few, little>>20)
			return
		}
		<-tick.C
	}
}

// probe makes small tasks of the other account.
type probe struct{ clients []rig.Client }

func newProbe(t *testing.T, at rig.Target) *probe {
	return &probe{rig.Clients(t, at.As("other", "bob"))}
}

// times are those of small tasks.
type times struct {
	mu     sync.Mutex
	took   []time.Duration // guarded by mu, like what follows
	failed int
	first  error
}

// p returns a percentile.
func (r *times) p(percent int) time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	slices.Sort(r.took)
	return r.took[min(len(r.took)-1, len(r.took)*percent/100)].Round(100 * time.Microsecond)
}

// pace is the time between two small tasks, which follow each other over all bindings.
const pace = time.Second / 20

// during makes small tasks for some time, and until done is closed; nil means no longer than that. Tasks do not wait
// for those before them.
func (p *probe) during(t *testing.T, name string, d time.Duration, done <-chan struct{}) *times {
	t.Helper()
	r := &times{}
	var calling sync.WaitGroup
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i, began := 0, time.Now(); time.Since(began) < d || done != nil; i++ {
		calling.Go(func() { p.one(t.Context(), fmt.Sprint(name, "-", i), p.clients[i%len(p.clients)], r) })
		select {
		case <-tick.C:
		case <-done:
			done = nil
			d = 0
		}
	}
	calling.Wait()
	if name == "alone" { // the first ones open connections
		r.took = r.took[min(len(r.took), len(p.clients)*3):]
	}
	return r
}

// one makes one task.
func (p *probe) one(ctx context.Context, id string, c rig.Client, r *times) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	began := time.Now()
	resp, err := c.Send(ctx, rig.Text("echo", id, "hi"))
	took := time.Since(began)
	if state := resp.GetTask().GetStatus().GetState(); err == nil && state != a2av1.TaskState_TASK_STATE_COMPLETED {
		err = fmt.Errorf("the task is %v", state)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.took = append(r.took, took)
		return
	}
	if r.failed++; r.first == nil {
		r.first = fmt.Errorf("%s: %w", c.Binding(), err)
	}
}

// large wants an answer of 3.8 MB over each binding, one after the other.
func (p *probe) large(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, c := range p.clients {
		resp, err := c.Send(ctx, rig.Text("double", fmt.Sprint("large-", i), string(large)))
		task := resp.GetTask()
		if err != nil || len(task.GetArtifacts()) == 0 {
			t.Errorf("%s: a large answer: %v, %v", c.Binding(), task.GetStatus(), err)
			continue
		}
		if n := len(agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()})); n != 2*largeBytes {
			t.Errorf("%s: a large answer has %d bytes, want %d", c.Binding(), n, 2*largeBytes)
		}
	}
}
