// Command remote-agent is an agent that implements only team.v1.AgentService:
// it counts words.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves until ctx ends, and says on one line where.
func serve(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	teamv1.RegisterAgentServiceServer(s, counter{})
	stop := context.AfterFunc(ctx, s.GracefulStop)
	defer stop()
	fmt.Printf("ready grpc=%s\n", l.Addr())
	return s.Serve(l)
}

// counter counts the words of a message.
type counter struct {
	teamv1.UnimplementedAgentServiceServer
}

// Info describes the agent.
func (counter) Info(context.Context, *teamv1.InfoRequest) (*teamv1.InfoResponse, error) {
	return &teamv1.InfoResponse{Info: &teamv1.AgentInfo{
		Id: "counter", Name: "Counter", Description: "Counts the words of a text.",
		Capabilities: []string{"count"},
		Skills:       []*teamv1.Skill{{Id: "count", Name: "Count", Description: "Counts words", Tags: []string{"text"}}},
	}}, nil
}

// Process answers one message. The call is the work: it ends when the caller leaves.
func (counter) Process(_ context.Context, req *teamv1.ProcessRequest) (*teamv1.ProcessResponse, error) {
	var words []string
	for _, p := range req.GetMessage().GetParts() {
		words = append(words, strings.Fields(p.GetText())...)
	}
	if len(words) == 0 {
		return nil, status.Error(codes.InvalidArgument, "message has no text to count")
	}
	return &teamv1.ProcessResponse{Message: &a2av1.Message{
		MessageId: req.GetKey() + "-reply", Role: a2av1.Role_ROLE_AGENT,
		Parts: []*a2av1.Part{{Content: &a2av1.Part_Text{Text: fmt.Sprintf("%d words: %s", len(words), strings.Join(words, " "))}}},
	}}, nil
}

// HealthCheck says that the agent works.
func (counter) HealthCheck(context.Context, *teamv1.HealthCheckRequest) (*teamv1.HealthCheckResponse, error) {
	return &teamv1.HealthCheckResponse{Healthy: true, Usable: true}, nil
}
