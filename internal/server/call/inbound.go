package call

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
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Names of the bindings in logs.
const (
	GRPC    = "grpc"
	REST    = "rest"
	JSONRPC = "jsonrpc"
	OpenAI  = "openai"
	MCP     = "mcp"
)

// Inbound holds the headers or metadata of a call that the server uses. It is read once,
// before the body, and not changed afterwards; see WithInbound.
type Inbound struct {
	Binding  string
	Settings *settings.Snapshot // of the server when the request began
	Record   *Record            // nil if requests are neither logged, measured nor traced
	ID       string             // request ID, for logs
	Addr     netip.Addr         // of the caller; the zero address if unknown
	Peer     net.Addr           // of the connection over gRPC
	Base     string             // URL that the caller used, as reported by a trusted proxy; "" if unknown
	Caller   *identity.Caller
	// Authorization and TLS are what the caller has shown of itself.
	Authorization []string
	TLS           *tls.ConnectionState
	Open          bool // the call needs no authentication; caller may be nil
	Version       []string
	extensions    []string
	Cursor        []string
	depth         []string
	trace         []string
	Accept        string // the Accept header
	V03           bool   // the call uses A2A 0.3
	AtAgent       bool   // JSON-RPC at the URL of an agent, without /rpc
	Notified      bool   // a JSON-RPC notification, which gets no response
	translated    bool   // a client of another protocol calls, which knows no extensions
	// Held is the memory that the call holds; nil if that is not limited.
	Held *held
	// Received is called when the message of a gRPC call has been received; nil if that does not matter.
	Received func()
	// Stream is that of a gRPC call whose message is being received.
	Stream atomic.Pointer[Ender]
}

// BaseURL returns the URL of the server as the caller sees it, "" if unknown.
func (in *Inbound) BaseURL() string { return cmp.Or(in.Base, in.Settings.BaseURL) }

// Translated returns the context of a call for which a client of another protocol than A2A has sent a request.
func Translated(ctx context.Context) context.Context {
	to := *InboundOf(ctx)
	to.Version, to.extensions, to.Cursor, to.translated = []string{a2a.ProtocolVersion}, nil, nil, true
	return WithInbound(ctx, &to)
}

// Resumed returns the context of a call whose stream continues after a sequence number; see Translated.
func Resumed(ctx context.Context, after int64) context.Context {
	to := *InboundOf(ctx)
	to.Cursor = []string{strconv.FormatInt(after, 10)}
	return WithInbound(ctx, &to)
}

// Ender is what streams of grpc-go have: it ends a call with a status. A later one is not sent.
type Ender interface{ WriteStatus(*status.Status) error }

type inboundKey struct{}

// NewInbound returns the headers or metadata of a call; values returns the values of a
// header by its lower-case name.
func (s *Chain) NewInbound(binding string, values func(string) []string) *Inbound {
	return &Inbound{
		Binding:    binding,
		Settings:   s.config.Settings.Load(),
		Record:     s.newRecord(),
		ID:         uuid.NewString(),
		Version:    slices.Compact(list(values("a2a-version"))),                               // some proxies repeat it
		extensions: list(slices.Concat(values("a2a-extensions"), values("x-a2a-extensions"))), // A2A 0.3 uses the second
		Cursor:     values("last-event-id"),
		depth:      values("team-path"),
		trace:      values("traceparent"),
		Accept:     strings.Join(values("accept"), ","),
	}
}

// WithInbound returns a context of a call.
func WithInbound(ctx context.Context, in *Inbound) context.Context {
	return context.WithValue(ctx, inboundKey{}, in)
}

// InboundOf returns the headers of the call of a context. Without any, it has no caller, so the call is rejected.
func InboundOf(ctx context.Context) *Inbound {
	if in, ok := ctx.Value(inboundKey{}).(*Inbound); ok {
		return in
	}
	return &Inbound{} // no caller, so the call is rejected
}

// Activated returns the requested extensions that this server supports, as the value of the
// response header.
func (in *Inbound) Activated() string {
	var known []string
	for _, uri := range in.extensions {
		if uri == project.TeamRunURI || uri == project.RoutingURI {
			known = append(known, uri)
		}
	}
	return strings.Join(known, ", ")
}

// After returns the cursor of Last-Event-ID, 0 without one.
func (in *Inbound) After() (int64, error) {
	return Number("Last-Event-ID", in.Cursor)
}

// Behind returns the cursor after which a stream continues: seq, which comes from the
// request, or Last-Event-ID if that is larger.
func (in *Inbound) Behind(seq int64) (int64, error) {
	if seq < 0 {
		return 0, wire.Invalid("after", "is "+strconv.FormatInt(seq, 10)+"; it must be 0 or more")
	}
	last, err := in.After()
	return max(seq, last), err
}

// levels returns how many levels of nested teams are above the call.
func (in *Inbound) levels() (int, error) {
	n, err := Number("team-path", in.depth)
	return int(min(n, 1<<20)), err
}

// Number returns the value of a header that is a decimal number, 0 without one.
func Number(name string, values []string) (int64, error) {
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

// WantsV03 reports whether the call names version 0.3.
func (in *Inbound) WantsV03() bool {
	return len(in.Version) == 1 && (in.Version[0] == a2av03.Version || strings.HasPrefix(in.Version[0], a2av03.Version+"."))
}

// NoV03 reports whether A2A 0.3 is turned off.
func (in *Inbound) NoV03() bool { return !in.Settings.GetProtocol().GetV0_3() }

// Unversioned reports whether the call names no version.
func (in *Inbound) Unversioned() bool {
	return len(in.Version) == 0
}
