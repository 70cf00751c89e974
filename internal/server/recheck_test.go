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
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/tests/rig"
)

// revocable authenticates by an API key until it is revoked.
type revocable struct {
	auth.Authenticator
	revoked atomic.Bool
}

func (r *revocable) Authenticate(req auth.Request) (a2a.Caller, error) {
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
