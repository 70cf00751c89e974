package a2aclient_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/secret"
)

// TestErrorsThatAProgramMakes has errors that did not come from a call, such as those of a
// program's own tests.
func TestErrorsThatAProgramMakes(t *testing.T) {
	refused := &a2aclient.ServerError{Code: codes.NotFound, Reason: "TASK_NOT_FOUND", Domain: "a2a-protocol.org", Message: "no such task"}
	if refused.Error() != "TASK_NOT_FOUND: no such task" || !errors.Is(refused, a2aclient.ErrTaskNotFound) || status.Code(refused) != codes.NotFound {
		t.Errorf("error %v with the code %v", refused, status.Code(refused))
	}
	gone := &a2aclient.TransportError{Address: "http://h.example"}
	if gone.Error() != "cannot reach http://h.example: no connection" || !errors.Is(gone, a2aclient.ErrUnreachable) {
		t.Errorf("error %v", gone)
	}
}

// TestA_21_ErrorsHoldNoToken: however an error is printed, the token is not in it.
func TestA_21_ErrorsHoldNoToken(t *testing.T) {
	card := &a2av1.AgentCard{SupportedInterfaces: []*a2av1.AgentInterface{{Url: "http://b.example", ProtocolBinding: a2aclient.REST, ProtocolVersion: a2aclient.V1}}}
	_, err := a2aclient.Choose(card, "http://a.example", a2aclient.Config{Token: secret.New("s3same")})
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "s3same") {
		t.Errorf("error %#v", err)
	}
}
