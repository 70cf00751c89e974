package server_test

import (
	"context"
	"iter"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/tests/rig"
)

// revocable authenticates by an API key until it is revoked.
type revocable struct {
	auth.Authenticator
	revoked atomic.Bool
}

func (r *revocable) Authenticate(req auth.Request) (identity.Caller, error) {
	if r.revoked.Load() {
		req.Authorization = []string{"Bearer unknown"}
	}
	return r.Authenticator.Authenticate(req)
}

// TestT_11_StreamsEndWithTheRight: a stream, and a call that waits for work, end with UNAUTHENTICATED
// when the key of their caller is revoked, over each binding.
func TestT_11_StreamsEndWithTheRight(t *testing.T) {
	by := &revocable{Authenticator: byKeys(key("ann", "", "secret"))}
	begun := make(chan struct{}, 1)
	wait := func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	follow := func(ctx context.Context) (iter.Seq2[feed.Update, error], error) {
		return func(yield func(feed.Update, error) bool) {
			if yield(update(1), nil) {
				_ = wait(ctx) // the call knows why ctx has ended
			}
		}, nil
	}
	target := start(t, server.Config{
		Auth: by, RecheckInterval: 5 * time.Millisecond, HealthInterval: 5 * time.Millisecond,
		Handler: &probe{
			stream: func(ctx context.Context, _ *a2av1.SendMessageRequest) (iter.Seq2[feed.Update, error], error) {
				return follow(ctx)
			},
			subscribe: func(ctx context.Context, _ *a2av1.SubscribeToTaskRequest, _ int64) (iter.Seq2[feed.Update, error], error) {
				return follow(ctx)
			},
			send: func(ctx context.Context, _ *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error) {
				return nil, wait(ctx)
			},
			health: func(context.Context, *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
				return &teamv1.HealthCheckResponse{Healthy: true}, nil
			},
		},
	})
	target.Key = "secret"
	for name, call := range map[string]func(rig.Client) error{
		"send": func(c rig.Client) error {
			_, err := c.Send(t.Context(), rig.Text("", "m", "x"))
			return err
		},
		"stream": func(c rig.Client) error {
			_, err := rig.Collect(c.Stream(t.Context(), rig.Text("", "m", "x")))
			return err
		},
		"subscribe": func(c rig.Client) error {
			_, err := rig.Collect(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Each(t, target, func(t *testing.T, c rig.Client) {
				by.revoked.Store(false)
				ended := make(chan error, 1)
				go func() { ended <- call(c) }()
				<-begun
				by.revoked.Store(true)
				if f := rig.Fault(<-ended); f == nil || f.Code != "Unauthenticated" || f.Reason != "UNAUTHENTICATED" {
					t.Errorf("ended with %v", f)
				}
			})
		})
	}
	t.Run("watch of health", func(t *testing.T) {
		by.revoked.Store(false)
		g, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
		watch, err := healthpb.NewHealthClient(g.Conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: "team/a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		by.revoked.Store(true)
		_, err = watch.Recv()
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Code != "Unauthenticated" {
			t.Errorf("ended with %v", err)
		}
	})
	if resp, _ := request(t, http.MethodGet, target.HTTP+"/tasks/t1", "", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a new call: %d", resp.StatusCode)
	}
}

// narrowed authenticates a caller from whom a permission is taken away.
type narrowed struct {
	auth.Authenticator
	taken atomic.Uint32
}

func (n *narrowed) Authenticate(req auth.Request) (identity.Caller, error) {
	who, err := n.Authenticator.Authenticate(req)
	who.Permissions = identity.EveryPermission &^ identity.Permissions(n.taken.Load())
	return who, err
}

// watching is a monitor whose watches last until their caller loses the right to them.
type watching struct {
	watchers
	begun chan struct{}
}

func (w *watching) WatchTask(ctx context.Context, _ *teamv1.WatchTaskRequest) (iter.Seq2[*teamv1.WatchTaskResponse, error], error) {
	return func(func(*teamv1.WatchTaskResponse, error) bool) {
		w.begun <- struct{}{}
		<-ctx.Done()
	}, nil
}

// TestT_11_WatchesEndWithThePermission: a stream of a task ends when the permission that it needs is taken from its caller,
// or that which shows the tasks of others, and not with another one.
func TestT_11_WatchesEndWithThePermission(t *testing.T) {
	by := &narrowed{Authenticator: byKeys(key("ann", "", "secret"))}
	w := &watching{begun: make(chan struct{}, 1)}
	target := start(t, server.Config{Auth: by, RecheckInterval: 5 * time.Millisecond, HealthInterval: time.Second, Handler: &probe{}, Monitor: w})
	target.Key = "secret"
	for _, lost := range []identity.Permissions{identity.PermissionWatch, identity.PermissionRead} {
		for _, m := range rig.Monitors(t, target) {
			by.taken.Store(0)
			ended := make(chan error, 1)
			go func() {
				var last error
				for _, err := range m.WatchTask(t.Context(), "t1", 0) {
					last = err
				}
				ended <- last
			}()
			<-w.begun
			by.taken.Store(uint32(identity.PermissionHalt))
			select {
			case err := <-ended:
				t.Fatalf("%s: it has ended with a permission that it does not need: %v", m.Binding(), err)
			case <-time.After(50 * time.Millisecond):
			}
			by.taken.Store(uint32(lost))
			if f := rig.Fault(<-ended); f == nil || f.Reason != "PERMISSION_DENIED" {
				t.Errorf("%s: without %v it ended with %v", m.Binding(), lost, f)
			}
		}
	}
}
