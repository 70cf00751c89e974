// Command agent serves an agent for A2A conformance kits, which select its behavior by the ids of
// their messages: docs/conformance.md. Its tasks are in memory.
//
//	agent --http 127.0.0.1:8080 --grpc 127.0.0.1:50051
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/agentteams/team-server/internal/testkit/conformance"
	"github.com/agentteams/team-server/pkg/server"
)

func main() {
	http := flag.String("http", server.DefaultHTTP, "address for REST, JSON-RPC and cards; port 0 selects a free port")
	grpc := flag.String("grpc", server.DefaultGRPC, "address for gRPC; port 0 selects a free port")
	streamTimeout := flag.Duration("stream-timeout", 2*time.Second, "how long the kit waits for a stream")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := serve(ctx, server.Config{
		Agent: conformance.New(conformance.Config{ID: "kit", StreamTimeout: *streamTimeout}),
		HTTP:  *http, GRPC: *grpc,
		NoV03: true, // the kit for 1.0 reports the keys of 0.3 in a card as errors
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		stop()
		os.Exit(1)
	}
}

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
