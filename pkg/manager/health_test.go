package manager_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

func TestHealth(t *testing.T) {
	t.Run("R-000-34 an id that is not registered", func(t *testing.T) {
		if h := newManager(t).Health("nobody"); h.GetHealthy() || h.GetDetail() != "not registered" {
			t.Errorf("health %v", h)
		}
	})
	t.Run("R-000-35 down and up again, seen within 5 s, without blocking", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := manager.New(manager.Config{})
			defer m.Close()
			var down atomic.Bool
			var asked atomic.Int64
			l := &leaf{health: func(context.Context) (*teamv1.Health, error) {
				asked.Add(1)
				if down.Load() {
					return agent.Unhealthy("no disk"), nil
				}
				return agent.Healthy(), nil
			}}
			if err := m.Register("a", l); err != nil {
				t.Fatal(err)
			}
			if h := m.Health("a"); !h.GetHealthy() || h.GetDetail() != "not checked yet" {
				t.Errorf("before the first check: %v", h)
			}
			synctest.Wait()
			down.Store(true)
			for range 100 {
				if h := m.Health("a"); !h.GetHealthy() || h.GetDetail() != "" {
					t.Errorf("from the cache: %v", h)
				}
			}
			time.Sleep(5 * time.Second) // the bubble's clock
			m.Health("a")
			synctest.Wait()
			if h := m.Health("a"); h.GetHealthy() || h.GetDetail() != "no disk" {
				t.Errorf("after 5 s: %v", h)
			}
			if n := asked.Load(); n != 2 {
				t.Errorf("asked %d times, want 2", n)
			}
		})
	})
	t.Run("one check at a time, which Close waits for", func(t *testing.T) {
		m := manager.New(manager.Config{})
		entered, ended := make(chan struct{}, 10), make(chan struct{})
		l := &leaf{health: func(ctx context.Context) (*teamv1.Health, error) {
			entered <- struct{}{}
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		}}
		if err := m.Register("a", l); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { m.Health("a") })
		}
		wg.Wait()
		<-entered
		m.Close()
		select {
		case <-ended:
		default:
			t.Error("Close returned before its check had ended")
		}
		if len(entered) != 0 {
			t.Error("a second check was started")
		}
		if h := m.Health("a"); h.GetDetail() != "not checked yet" {
			t.Errorf("after Close: %v", h)
		}
	})
	t.Run("a check that hangs is unhealthy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := manager.New(manager.Config{})
			defer m.Close()
			l := &leaf{health: func(ctx context.Context) (*teamv1.Health, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			if err := m.Register("a", l); err != nil {
				t.Fatal(err)
			}
			m.Health("a")
			time.Sleep(5 * time.Second) // the bubble's clock
			synctest.Wait()
			if h := m.Health("a"); h.GetHealthy() || h.GetDetail() != "health check timed out" {
				t.Errorf("health %v", h)
			}
		})
	})
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		health func(context.Context) (*teamv1.Health, error)
		detail string
	}{
		{"an answer", func(context.Context) (*teamv1.Health, error) { return agent.Unhealthy("tired"), nil }, "tired"},
		{"an agent's error", func(context.Context) (*teamv1.Health, error) {
			return nil, agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "no connection")
		}, "health check failed: no connection"},
		{"an error whose text stays inside", func(context.Context) (*teamv1.Health, error) {
			return nil, errors.New("/secret/path")
		}, "health check failed: internal error"},
		{"a panic", func(context.Context) (*teamv1.Health, error) { panic("bug") }, "health check failed: health check panicked"},
		{"nothing", func(context.Context) (*teamv1.Health, error) { return nil, nil }, "health check failed: internal error"}, //nolint:nilnil // the fault under test
	}
	for _, tt := range tests {
		t.Run("R-000-35 "+tt.name, func(t *testing.T) {
			m := newManager(t)
			if err := m.Register("a", &leaf{health: tt.health}); err != nil {
				t.Fatal(err)
			}
			h, err := m.Check(t.Context(), "a")
			if err != nil || h.GetHealthy() || h.GetDetail() != tt.detail {
				t.Errorf("Check = %v, %v; want detail %q", h, err, tt.detail)
			}
			if h := m.Health("a"); h.GetDetail() != tt.detail {
				t.Errorf("kept %v", h)
			}
		})
	}
	t.Run("an unknown id", func(t *testing.T) {
		_, err := newManager(t).Check(t.Context(), "nobody")
		if r := reason(t, err); r != agent.ReasonAgentNotFound {
			t.Errorf("reason %s", r)
		}
	})
	t.Run("a caller that leaves makes nobody unhealthy", func(t *testing.T) {
		m := newManager(t)
		l := &leaf{health: func(ctx context.Context) (*teamv1.Health, error) { return nil, ctx.Err() }}
		if err := m.Register("a", l); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(agent.ErrCanceled)
		if _, err := m.Check(ctx, "a"); !errors.Is(err, agent.ErrCanceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("R-000-36 a nesting that is too deep is an error", func(t *testing.T) {
		m := newManager(t)
		l := &leaf{health: func(ctx context.Context) (*teamv1.Health, error) {
			_, err := agent.Enter(ctx, "a")
			return agent.Healthy(), err
		}}
		if err := m.Register("a", l); err != nil {
			t.Fatal(err)
		}
		_, err := m.Check(agent.WithDepth(t.Context(), agent.MaxDepth), "a")
		if r := reason(t, err); r != agent.ReasonMaxDepth {
			t.Errorf("reason %s", r)
		}
		if h, err := m.Check(t.Context(), "a"); err != nil || !h.GetHealthy() {
			t.Errorf("at the top: %v, %v", h, err)
		}
	})
}
