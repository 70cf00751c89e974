package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// faults are errors of every shape.
func faults() map[string]error {
	m := map[string]error{
		"field":     Invalid("message.parts[0].data", "is not a finite number"),
		"notfound":  agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "no agent %q", "x"),
		"conflict":  agent.Errorf(agent.CodeAborted, "VERSION_CONFLICT", "the etag does not match"),
		"resources": &agent.Error{Code: agent.CodeResourceExhausted, Reason: agent.ReasonInsufficientResources, Message: "the queue is full", Retry: true},
		"size":      TooLarge(MaxBody),
		"store":     &agent.Error{Code: agent.CodeUnavailable, Reason: agent.ReasonStoreUnavailable, Message: "the store is away", Retry: true},
		"wait":      agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonWaitTimeout, "the task goes on").With("taskId", "t"),
		"input":     agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonInputRequired, "which one?"),
		"loss":      agent.Errorf(agent.CodeDataLoss, agent.ReasonDataLoss, "a record is damaged"),
		"key":       agent.Errorf(agent.CodeUnauthenticated, agent.ReasonUnauthenticated, "send a key"),
		"denied":    agent.Errorf(agent.CodePermissionDenied, agent.ReasonPermissionDenied, "not yours"),
		"run":       agent.Errorf(0, agent.ReasonNoResponse, "the scheduler returned to the user without a response"),
		"task":      &a2aerror.Error{Reason: a2aerror.ReasonTaskNotFound, Code: agent.CodeNotFound, Message: "no task"},
		"version":   a2a.VersionNotSupported("9.9"),
	}
	return m
}

func TestA_01_ErrorTable(t *testing.T) {
	for name, err := range faults() {
		t.Run(name, func(t *testing.T) {
			st := Status(err)
			rest, e := RESTError(st, HTTPStatus(st))
			if e != nil {
				t.Fatal(e)
			}
			golden(t, "rest_"+name, rest)
			rpc, e := RPCFailure(json.RawMessage("1"), RPCErrorOf(st))
			if e != nil {
				t.Fatal(e)
			}
			golden(t, "rpc_"+name, rpc)

			back := map[string]*status.Status{"REST": ParseRESTError(HTTPStatus(st), rest), "JSON-RPC": ParseRPCError(RPCErrorOf(st))}
			for binding, got := range back {
				if diff := cmp.Diff(st.Proto(), got.Proto(), protocmp.Transform()); diff != "" {
					t.Errorf("%s does not bring it back:\n%s", binding, diff)
				}
			}
		})
	}
}

func TestA_01_ErrorsComeBack(t *testing.T) {
	for name, err := range faults() {
		var protocol *a2aerror.Error
		var want, got *agent.Error
		if errors.As(err, &protocol) {
			err = protocol.Public()
			if info := InfoOf(Status(protocol)); info.GetDomain() != DomainA2A {
				t.Errorf("%s: domain %q", name, info.GetDomain())
			}
		}
		if !errors.As(err, &want) || !errors.As(Error(Status(err)), &got) || got.Reason != want.Reason || got.Message != want.Message || got.Retry != want.Retry {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if !cmp.Equal(got.Violations, want.Violations) || len(want.Details) > 0 && !cmp.Equal(got.Details, want.Details) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if want.Code != 0 && got.Code != want.Code {
			t.Errorf("%s: code %d, want %d", name, got.Code, want.Code)
		}
	}
	if Error(status.New(codes.OK, "")) != nil || Status(nil).Code() != codes.OK {
		t.Error("OK is an error")
	}
}

// TestA_01_ReasonsOfTheProtocol has the table hold the reasons of pkg/a2a, and no others.
func TestA_01_ReasonsOfTheProtocol(t *testing.T) {
	for reason := range protocol {
		if !(&a2aerror.Error{Reason: reason}).Protocol() {
			t.Errorf("%s is in the table alone", reason)
		}
	}
	for _, reason := range []string{
		a2aerror.ReasonTaskNotFound, a2aerror.ReasonTaskNotCancelable, a2aerror.ReasonPushNotificationNotSupported, a2aerror.ReasonUnsupportedOperation,
		a2aerror.ReasonContentTypeNotSupported, a2aerror.ReasonInvalidAgentResponse, a2aerror.ReasonExtendedCardNotConfigured,
		a2aerror.ReasonExtensionSupportRequired, a2aerror.ReasonVersionNotSupported,
	} {
		if _, ok := protocol[reason]; !ok {
			t.Errorf("the table lacks %s", reason)
		}
	}
}

func TestA_22_NothingInternalCrosses(t *testing.T) {
	secret := errors.New("the password is 1234")
	for _, err := range []error{
		secret,
		fmt.Errorf("opening: %w", secret),
		(&agent.Error{Reason: agent.ReasonInternal, Message: "internal error"}).Because(secret),
		fmt.Errorf("calling a peer: %w", status.Error(codes.NotFound, "the password is 1234")),
	} {
		st := Status(err)
		if b, _ := RESTError(st, 500); bytes.Contains(b, []byte("1234")) {
			t.Errorf("%v: %s", err, b)
		}
		if st.Code() != codes.Internal {
			t.Errorf("%v: %v", err, st.Code())
		}
	}
}

func TestA_01_ContextErrors(t *testing.T) {
	for err, want := range map[error]codes.Code{
		context.Canceled: codes.Aborted, context.DeadlineExceeded: codes.DeadlineExceeded,
		agent.ErrShutdown: codes.Unavailable, agent.ErrCanceled: codes.Aborted, agent.ErrTimeout: codes.DeadlineExceeded,
	} {
		if got := Status(fmt.Errorf("waiting: %w", err)).Code(); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestA_01_ForeignErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		st   *status.Status
		code codes.Code
	}{
		{"a proxy's page", ParseRESTError(502, []byte("<html>")), codes.Unavailable},
		{"a proxy's 404", ParseRESTError(404, nil), codes.NotFound},
		{"a bare 401", ParseRESTError(401, []byte(`{"error":"no"}`)), codes.Unauthenticated},
		{"a message without the name of its code", ParseRESTError(500, []byte(`{"error":{"code":404,"message":"m"}}`)), codes.NotFound},
		{"a message without a code", ParseRESTError(429, []byte(`{"error":{"code":200,"message":"m"}}`)), codes.ResourceExhausted},
		{"a status nobody knows", ParseRESTError(500, []byte(`{"error":{"status":"ODD","message":"m"}}`)), codes.Internal},
		{"task not found without details", ParseRPCError(&RPCError{Code: -32001, Message: "m"}), codes.NotFound},
		{"data of another shape", ParseRPCError(&RPCError{Code: -32602, Message: "m", Data: json.RawMessage(`{"a":1}`)}), codes.InvalidArgument},
		{"a code nobody knows", ParseRPCError(&RPCError{Code: 7, Message: "m"}), codes.Unknown},
	} {
		if c.st.Code() != c.code {
			t.Errorf("%s: %v, want %v", c.name, c.st.Code(), c.code)
		}
	}
	if got := InfoOf(ParseRPCError(&RPCError{Code: -32001})).GetReason(); got != "TASK_NOT_FOUND" {
		t.Errorf("reason %q", got)
	}
}

// Whatever a peer says of an answer that is no success, it is an error.
func TestA_12_ErrorsAreErrors(t *testing.T) {
	for _, body := range []string{`{"error":{"code":0,"status":"OK"}}`, `{"error":{"status":"PIGEON"}}`, `{}`, ``} {
		for _, httpStatus := range []int{200, 404, 500} {
			if st := ParseRESTError(httpStatus, []byte(body)); st.Code() == codes.OK || st.Err() == nil {
				t.Errorf("%d %s is no error", httpStatus, body)
			}
		}
	}
	if st := ParseRPCError(&RPCError{}); st.Err() == nil {
		t.Error("a JSON-RPC error without a code is no error")
	}
}
