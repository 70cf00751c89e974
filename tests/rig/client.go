// Package rig drives a running server over its bindings, so that one test can
// ask the same of all three and compare the answers.
package rig

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Client is a client of the A2A service over one binding. Errors are *Error.
// Safe for concurrent use.
type Client interface {
	// Binding is "grpc", "rest" or "jsonrpc".
	Binding() string
	Send(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	Stream(context.Context, *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error]
	Get(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	List(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	Cancel(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	// Subscribe follows a task, behind a sequence number if after is not 0.
	Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error]
	// Card is the extended card: the public one has no gRPC form, see PublicCard.
	Card(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
}

// Target is a server and who calls it.
type Target struct {
	GRPC string // host:port
	HTTP string // http://host:port
	// Key is the API key to present; empty presents none.
	Key string
	// Version is the A2A-Version to send; empty sends 1.0, "-" sends none.
	Version string
	// Headers are sent along as HTTP headers or metadata.
	Headers map[string]string
	// Patience is how long the server is told that the caller waits; 0 says
	// nothing. The client itself waits for its answer all the same.
	Patience time.Duration
}

// headers are all of a call, lower-case.
func (t Target) headers() map[string]string {
	h := maps.Clone(t.Headers)
	if h == nil {
		h = map[string]string{}
	}
	switch t.Version {
	case "-":
	case "":
		h["a2a-version"] = a2a.ProtocolVersion
	default:
		h["a2a-version"] = t.Version
	}
	if t.Key != "" {
		h["authorization"] = "Bearer " + t.Key
	}
	return h
}

// Clients returns a client for each binding, closed with the test.
func Clients(t testing.TB, target Target) []Client {
	t.Helper()
	g, err := NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return []Client{g, NewREST(target), NewJSONRPC(target)}
}

// Each runs a test once for each binding.
func Each(t *testing.T, target Target, test func(*testing.T, Client)) {
	t.Helper()
	for _, c := range Clients(t, target) {
		t.Run(c.Binding(), func(t *testing.T) { test(t, c) })
	}
}

// Error is an error as every binding tells it.
type Error struct {
	Code    string // the name of its gRPC code
	Domain  string
	Reason  string
	Message string
	Fields  []string // of violations, sorted
	Details map[string]string
	Retry   time.Duration // RetryInfo
	HTTP    int           // status of the answer; 0 over gRPC, and within a stream of REST
	RPC     int           // JSON-RPC's code; 0 elsewhere
}

// Error returns the code, the reason and the message.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %s", e.Code, e.Reason, e.Message) }

// errorOf makes an Error of a status.
func errorOf(st *status.Status, httpStatus int) *Error {
	info := wire.InfoOf(st)
	e := &Error{
		Code: st.Code().String(), Domain: info.GetDomain(), Reason: info.GetReason(),
		Message: st.Message(), Details: info.GetMetadata(), Retry: wire.RetryAfter(st), HTTP: httpStatus,
	}
	for _, d := range st.Details() {
		if b, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range b.GetFieldViolations() {
				e.Fields = append(e.Fields, v.GetField())
			}
		}
	}
	slices.Sort(e.Fields)
	return e
}

// Fault returns the Error in err; one that is none is returned as its text.
func Fault(err error) *Error {
	var e *Error
	if err != nil && !errors.As(err, &e) {
		return &Error{Message: err.Error()}
	}
	return e
}

// Same reports whether two errors mean the same, whatever the binding. Over
// gRPC a size limit may be met before there is a reason.
func Same(a, b *Error) bool {
	return a != nil && b != nil && a.Code == b.Code && a.Domain == b.Domain && a.Reason == b.Reason &&
		a.Message == b.Message && slices.Equal(a.Fields, b.Fields) && a.Retry == b.Retry
}

// Collect reads a stream to its end.
func Collect(updates iter.Seq2[*a2av1.StreamResponse, error]) ([]*a2av1.StreamResponse, error) {
	var all []*a2av1.StreamResponse
	for u, err := range updates {
		if err != nil {
			return all, err
		}
		all = append(all, u)
	}
	return all, nil
}

// Text returns a request that says something to an agent.
func Text(tenant, messageID, text string) *a2av1.SendMessageRequest {
	return &a2av1.SendMessageRequest{Tenant: tenant, Message: agent.UserMessage(messageID, text)}
}
