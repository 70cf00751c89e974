// Command agent serves an agent for A2A conformance kits, which select its behavior by the ids of
// their messages: docs/conformance.md. Its tasks are in memory.
//
//	agent --http 127.0.0.1:8080 --grpc 127.0.0.1:50051
//
// With --optional it requires keys and has an extended card: runnerKey in tools/conformance may do everything that callers
// may, otherKey is one of another account, and limitedKey has no permission to call. With --no-push it has no push
// notifications.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/conformance"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/server"
)

func main() {
	http := flag.String("http", "127.0.0.1:8080", "address for REST, JSON-RPC and cards; port 0 selects a free port")
	grpc := flag.String("grpc", "127.0.0.1:50051", "address for gRPC; port 0 selects a free port")
	streamTimeout := flag.Duration("stream-timeout", 2*time.Second, "how long the kit waits for a stream")
	optional := flag.Bool("optional", false, "require keys, and have an extended card")
	noPush := flag.Bool("no-push", false, "have no push notifications")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config := server.Config{
		Agent: conformance.New(conformance.Config{ID: "kit", StreamTimeout: *streamTimeout}),
		Settings: &teamv1.ServerSettings{
			Http: *http, Grpc: *grpc,
			Protocol: &teamv1.ProtocolSettings{V0_3: proto.Bool(false)},                              // the kit for 1.0 reports the keys of 0.3 in a card as errors
			Egress:   &teamv1.EgressSettings{Allow: []string{"127.0.0.0/8", "::1/128", "localhost"}}, // the kits receive webhooks on loopback
			Push:     &teamv1.PushSettings{Enabled: proto.Bool(!*noPush)},
		},
	}
	if *optional {
		config.Settings.Auth = &teamv1.AuthConfig{ApiKeys: keys}
		config.ExtendedCards = func(string) []a2a.ExtendedCard {
			return []a2a.ExtendedCard{{Description: "The extended card of the agent for conformance kits."}}
		}
	}
	if err := serve(ctx, config); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		stop()
		os.Exit(1)
	}
}

// keys are those of the constants in tools/conformance/acts.go.
var keys = []*teamv1.ApiKey{
	{Name: "runner", Account: "acts", Sha256: hash("acts-runner")},
	{Name: "other", Account: "other", Sha256: hash("acts-other")},
	{Name: "limited", Account: "acts", Sha256: hash("acts-limited"), Permissions: []teamv1.Permission_Value{teamv1.Permission_HALT}},
}

func hash(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

// serve prints the addresses on one line, as team-server does, and serves until ctx ends.
func serve(ctx context.Context, c server.Config) error {
	s, err := server.New(c)
	if err != nil {
		return err
	}
	at := s.Addrs()
	fmt.Printf("ready http=%s grpc=%s\n", strings.TrimPrefix(at.URL, "http://"), at.GRPC)
	return s.Serve(ctx)
}
