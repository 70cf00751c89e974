package server

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// ServesGRPC reports whether a team-server serves gRPC at an address, HOST:PORT, with TLS unless secure is nil. It has
// no credentials: a refusal is an answer, too, if it has the reasons of a team-server.
func ServesGRPC(ctx context.Context, address string, secure *tls.Config) bool {
	transport := insecure.NewCredentials()
	if secure != nil {
		transport = credentials.NewTLS(secure)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport))
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it was only asked
	_, err = teamv1.NewMonitorServiceClient(conn).ListQuestions(ctx, &teamv1.ListQuestionsRequest{PageSize: 1})
	return err == nil || wire.InfoOf(status.Convert(err)).GetDomain() == wire.DomainTeam
}
