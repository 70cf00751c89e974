// Package bench measures what the server adds to the layers below it, each time
// against a yardstick that runs in turn with it. See README.md.
package bench

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/agentteams/team-server/bench/measure"
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
)

// messageBytes is how large messages are as protobuf.
const messageBytes = 1019

// loopback is a free port of this machine.
const loopback = "127.0.0.1:0"

// message returns the n-th message: of the usual size, with an id of its own.
func message(n int64) *a2av1.Message {
	m := &a2av1.Message{
		MessageId: fmt.Sprintf("%036d", n), Role: a2av1.Role_ROLE_USER, Parts: agent.TextParts(""),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"tenant": structpb.NewStringValue("bench"), "turn": structpb.NewNumberValue(7), "urgent": structpb.NewBoolValue(true),
		}},
	}
	filler := messageBytes - proto.Size(m) - 2 // two lengths then take one more byte each
	m.Parts = agent.TextParts(strings.Repeat("x", filler))
	return m
}

// echo is the agent that is served: it gives back what it gets.
func echo() *agent.Func {
	return &agent.Func{ID: "bench", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
		return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: m.GetParts(), Metadata: m.GetMetadata()}, nil
	}}
}

// alone is a registry of the only member there is.
type alone struct{ member agent.Agent }

func (a alone) Agent(string) (agent.Agent, error) { return a.member, nil }
func (a alone) Health(string) *teamv1.Health      { return measure.Well }

// teamOf is a team of one member.
func teamOf(b testing.TB, s team.Scheduler, member agent.Agent, limits *teamv1.Limits) *team.Team {
	b.Helper()
	t, err := team.New(team.Config{
		ID: "bench", Scheduler: s, Members: []team.Member{{Agent: "member"}}, Registry: alone{member}, Limits: limits,
	})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// relay has the member called a number of times, each time with its last
// answer, and replies with the last one.
type relay struct {
	team.Base
	steps int
}

func (r relay) Next(s *team.State) (team.Decision, error) {
	if len(s.Steps) < r.steps {
		return team.Decision{Reason: "next", Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "member"}}}, nil
	}
	return team.Decision{Reason: "done", Reply: s.Last.Message}, nil
}

// serve serves an agent on gRPC and HTTP, as anybody would.
func serve(b *testing.B, a agent.Agent) (at server.Addrs, stop func()) {
	b.Helper()
	return serveWith(b, a, &teamv1.ServerSettings{Grpc: loopback, Http: loopback})
}

// serveWith serves an agent with settings.
func serveWith(b *testing.B, a agent.Agent, settings *teamv1.ServerSettings) (at server.Addrs, stop func()) {
	b.Helper()
	s, err := server.New(server.Config{Agent: a, Settings: settings})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return s.Addrs(), func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("serving: %v", err)
		}
	}
}

// bare serves what register registers on a gRPC server with no other options.
func bare(b *testing.B, register func(*grpc.Server), options ...grpc.ServerOption) (addr string, stop func()) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", loopback)
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(options...)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return l.Addr().String(), func() {
		s.Stop()
		if err := <-done; err != nil {
			b.Errorf("serving: %v", err)
		}
	}
}

// dial returns one connection.
func dial(b *testing.B, addr string) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// closing closes a connection and then stops its server.
func closing(b *testing.B, conn *grpc.ClientConn, stop func()) func() {
	return func() {
		if err := conn.Close(); err != nil {
			b.Errorf("closing: %v", err)
		}
		stop()
	}
}
