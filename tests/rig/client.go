// Package rig calls a running server over each of its bindings, so that one test can make
// the same call over all three and compare the responses.
package rig

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
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

// Client is a client of the A2A service over one binding. Its errors are *Error. It is safe
// for concurrent use.
type Client interface {
	// Binding returns "grpc", "rest" or "jsonrpc".
	Binding() string
	Send(context.Context, *a2av1.SendMessageRequest) (*a2av1.SendMessageResponse, error)
	Stream(context.Context, *a2av1.SendMessageRequest) iter.Seq2[*a2av1.StreamResponse, error]
	Get(context.Context, *a2av1.GetTaskRequest) (*a2av1.Task, error)
	List(context.Context, *a2av1.ListTasksRequest) (*a2av1.ListTasksResponse, error)
	Cancel(context.Context, *a2av1.CancelTaskRequest) (*a2av1.Task, error)
	// Subscribe subscribes to a task. If after is not 0, the stream begins after that
	// sequence number.
	Subscribe(ctx context.Context, req *a2av1.SubscribeToTaskRequest, after int64) iter.Seq2[*a2av1.StreamResponse, error]
	// Card returns the extended card. For the public card, which has no gRPC method, see
	// PublicCard.
	Card(context.Context, *a2av1.GetExtendedAgentCardRequest) (*a2av1.AgentCard, error)
}

// Target is a server and the credentials of a caller.
type Target struct {
	GRPC string // host:port
	HTTP string // http://host:port
	// Key is the API key to present; "" for none.
	Key string
	// Version is the A2A-Version to send; "" sends 1.0, "-" omits the header.
	Version string
	// Headers are additional HTTP headers or metadata.
	Headers map[string]string
	// Patience is the timeout that the client announces to the server; 0 for none. The
	// client itself waits longer.
	Patience time.Duration

	tls *tls.Config  // nil connects without TLS
	web *http.Client // nil is the default one
}

// Secure returns the target with clients that connect with TLS. They are closed when the test ends.
func (t Target) Secure(tb testing.TB, config *tls.Config) Target {
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
	tb.Cleanup(transport.CloseIdleConnections)
	t.tls, t.web = config, &http.Client{Transport: transport}
	return t
}

// Disconnect closes the connections over HTTP that Secure's clients hold open. Later calls connect anew.
func (t Target) Disconnect() { t.web.CloseIdleConnections() }

// headers returns all headers of a call, with lower-case names.
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

// Clients returns a client for each binding. They are closed when the test ends.
func Clients(t testing.TB, target Target) []Client {
	t.Helper()
	g, err := NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return []Client{g, NewREST(target), NewJSONRPC(target)}
}

// Each runs a test for each binding.
func Each(t *testing.T, target Target, test func(*testing.T, Client)) {
	t.Helper()
	for _, c := range Clients(t, target) {
		t.Run(c.Binding(), func(t *testing.T) { test(t, c) })
	}
}

// Error is an error in a form that is the same for every binding.
type Error struct {
	Code    string // the name of the gRPC code
	Domain  string
	Reason  string
	Message string
	Fields  []string // sorted fields of the violations
	Details map[string]string
	Retry   time.Duration // of RetryInfo
	HTTP    int           // HTTP status; 0 over gRPC and within a REST stream
	RPC     int           // JSON-RPC code; 0 in other bindings
}

// Error returns the code, the reason and the message.
func (e *Error) Error() string { return fmt.Sprintf("%s %s: %s", e.Code, e.Reason, e.Message) }

// errorOf converts a status to an Error.
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

// Fault returns the *Error in err. For another error it returns one with its text.
func Fault(err error) *Error {
	var e *Error
	if err != nil && !errors.As(err, &e) {
		return &Error{Message: err.Error()}
	}
	return e
}

// Same reports whether two errors are equal except for their bindings. gRPC may report a
// size limit without a reason.
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

// Text returns a request that sends text to an agent.
func Text(tenant, messageID, text string) *a2av1.SendMessageRequest {
	return &a2av1.SendMessageRequest{Tenant: tenant, Message: agent.UserMessage(messageID, text)}
}
