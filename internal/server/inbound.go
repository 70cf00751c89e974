package server

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Bindings, as logs name them.
const (
	bindingGRPC = "grpc"
	bindingREST = "rest"
	bindingRPC  = "jsonrpc"
)

// inbound is what a call brings along besides its message: the only headers
// that mean anything here. It is read once, before the body.
type inbound struct {
	binding    string
	id         string     // of the request, for logs
	addr       netip.Addr // of the caller; the zero address is unknown
	base       string     // URL that the caller used, as reported by a trusted proxy; empty: unknown
	caller     *a2a.Caller
	open       bool // to everybody: there may be no caller
	version    []string
	extensions []string
	cursor     []string
	depth      []string
	trace      []string
	accept     string // as it came
	v03        bool   // the call is made in 0.3
	atAgent    bool   // JSON-RPC at the address of an agent, without /rpc
	notified   bool   // a notification: the caller wants no answer
}

type inboundKey struct{}

// newInbound reads the headers or the metadata of a call; values returns those
// of a lower-case name.
func newInbound(binding string, values func(string) []string) *inbound {
	return &inbound{
		binding:    binding,
		id:         uuid.NewString(),
		version:    slices.Compact(list(values("a2a-version"))),                               // repeated by proxies
		extensions: list(slices.Concat(values("a2a-extensions"), values("x-a2a-extensions"))), // the second is that of 0.3
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
	return &inbound{} // no caller: refused
}

// activated is what the call is told of its extensions: those that are known
// here, as a header.
func (in *inbound) activated() string {
	var known []string
	for _, uri := range in.extensions {
		if uri == a2a.TeamRunURI || uri == a2a.RoutingURI {
			known = append(known, uri)
		}
	}
	return strings.Join(known, ", ")
}

// after is the cursor to continue behind, 0 without one.
func (in *inbound) after() (int64, error) {
	return number("Last-Event-ID", in.cursor)
}

// behind is where a stream goes on: behind what its request says, or Last-Event-ID.
func (in *inbound) behind(seq int64) (int64, error) {
	if seq < 0 {
		return 0, wire.Invalid("after", "is "+strconv.FormatInt(seq, 10)+"; it must be 0 or more")
	}
	last, err := in.after()
	return max(seq, last), err
}

// levels is how many levels of nesting lie above the call.
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

// list splits comma separated values, which may be spread over several headers.
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
