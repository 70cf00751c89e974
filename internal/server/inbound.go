package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Names of the bindings in logs.
const (
	bindingGRPC = "grpc"
	bindingREST = "rest"
	bindingRPC  = "jsonrpc"
)

// inbound holds the headers or metadata of a call that the server uses. It is read once,
// before the body, and not changed afterwards; see withInbound.
type inbound struct {
	binding  string
	settings *settings.Snapshot // of the server when the request began
	record   *record            // nil if requests are neither logged, measured nor traced
	id       string             // request ID, for logs
	addr     netip.Addr         // of the caller; the zero address if unknown
	peer     net.Addr           // of the connection over gRPC
	base     string             // URL that the caller used, as reported by a trusted proxy; "" if unknown
	caller   *a2a.Caller
	// authorization and tls are what the caller has shown of itself.
	authorization []string
	tls           *tls.ConnectionState
	open          bool // the call needs no authentication; caller may be nil
	version       []string
	extensions    []string
	cursor        []string
	depth         []string
	trace         []string
	accept        string // the Accept header
	v03           bool   // the call uses A2A 0.3
	atAgent       bool   // JSON-RPC at the URL of an agent, without /rpc
	notified      bool   // a JSON-RPC notification, which gets no response
	// held is the memory that the call holds; nil if that is not limited.
	held *held
	// received is called when the message of a gRPC call has been received; nil if that does not matter.
	received func()
	// stream is that of a gRPC call whose message is being received.
	stream atomic.Pointer[ender]
}

// baseURL returns the URL of the server as the caller sees it, "" if unknown.
func (in *inbound) baseURL() string { return cmp.Or(in.base, in.settings.BaseURL) }

type inboundKey struct{}

// newInbound returns the headers or metadata of a call; values returns the values of a
// header by its lower-case name.
func (s *Chain) newInbound(binding string, values func(string) []string) *inbound {
	return &inbound{
		binding:    binding,
		settings:   s.config.Settings.Load(),
		id:         uuid.NewString(),
		version:    slices.Compact(list(values("a2a-version"))),                               // some proxies repeat it
		extensions: list(slices.Concat(values("a2a-extensions"), values("x-a2a-extensions"))), // A2A 0.3 uses the second
		cursor:     values("last-event-id"),
		depth:      values("team-path"),
		trace:      values("traceparent"),
		accept:     strings.Join(values("accept"), ","),
	}
}

func withInbound(ctx context.Context, in *inbound) context.Context {
	return context.WithValue(ctx, inboundKey{}, in)
}

func inboundOf(ctx context.Context) *inbound {
	if in, ok := ctx.Value(inboundKey{}).(*inbound); ok {
		return in
	}
	return &inbound{} // no caller, so the call is rejected
}

// activated returns the requested extensions that this server supports, as the value of the
// response header.
func (in *inbound) activated() string {
	var known []string
	for _, uri := range in.extensions {
		if uri == a2a.TeamRunURI || uri == a2a.RoutingURI {
			known = append(known, uri)
		}
	}
	return strings.Join(known, ", ")
}

// after returns the cursor of Last-Event-ID, 0 without one.
func (in *inbound) after() (int64, error) {
	return number("Last-Event-ID", in.cursor)
}

// behind returns the cursor after which a stream continues: seq, which comes from the
// request, or Last-Event-ID if that is larger.
func (in *inbound) behind(seq int64) (int64, error) {
	if seq < 0 {
		return 0, wire.Invalid("after", "is "+strconv.FormatInt(seq, 10)+"; it must be 0 or more")
	}
	last, err := in.after()
	return max(seq, last), err
}

// levels returns how many levels of nested teams are above the call.
func (in *inbound) levels() (int, error) {
	n, err := number("team-path", in.depth)
	return int(min(n, 1<<20)), err
}

func number(name string, values []string) (int64, error) {
	if len(values) == 0 || values[0] == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || len(values) > 1 {
		return 0, wire.Invalid(name, "must be one decimal number")
	}
	return int64(min(n, math.MaxInt64)), nil
}

// list splits comma-separated values, which may be spread over several headers.
func list(values []string) []string {
	var out []string
	for _, v := range values {
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
	}
	return out
}
