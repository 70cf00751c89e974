package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server/reduce"
	"github.com/agentteams/team-server/internal/tracing"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// QuickTime is the timeout of a call that does not wait for an agent's work.
	QuickTime = 30 * time.Second
	// MaxTime is the maximum timeout of a call that is not a stream. A caller cannot ask
	// for a longer one.
	MaxTime = time.Hour
)

// call is one call of any binding. It does what all calls have in common: recover from
// panics, record, authenticate, check the version and the limits, and convert errors.
type call struct {
	chain  *Chain
	method string
	in     *Inbound
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // stops waiting for the server to close
	leave  func()      // ends the count of the call; nil if it is not counted
	span   *tracing.Request
}

// lasting has the methods with one response that wait for work to end.
var lasting = map[string]bool{"SendMessage": true, "CancelTask": true, "Process": true, "Cancel": true, "StopCollaboration": true}

// Unary runs a call with one response. If it waits for work to end, its timeout is MaxTime instead of QuickTime, and it is
// canceled when the server stops.
func (s *Chain) Unary(ctx context.Context, method string, req proto.Message, do grpc.UnaryHandler) (resp any, err error) {
	lasts, wait := lasting[method], QuickTime
	if lasts {
		wait = MaxTime
	}
	c := s.begin(ctx, method, lasts)
	defer c.end(&err)
	bounded, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	if bounded, err = c.check(bounded, req); err != nil {
		return nil, err
	}
	c.in.Record.setNames(req)
	if resp, err = do(c.reading(bounded, lasts), req); err != nil {
		return nil, err
	}
	answer, ok := resp.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%s has returned %T", method, resp)
	}
	c.in.Record.setNames(answer)
	answer = reduce.Reduce(answer, c.in.BaseURL())
	n, err := wire.Fits(answer)
	if err == nil {
		err = c.in.Held.respond(bounded, n, lasts)
	}
	return answer, err
}

// reading returns a context in which what is read from the store counts for the answer of the call.
func (c *call) reading(ctx context.Context, lasts bool) context.Context {
	if c.in.Held == nil {
		return ctx
	}
	return inflight.WithReader(ctx, func(n int64) error { return c.in.Held.read(ctx, n, lasts) })
}

// Stream runs a streaming call of any binding: it calls open and sends the updates one after the other. It sends the
// headers as soon as open has succeeded, because the first update may take long. If open fails, Stream returns the error
// without having sent anything.
func Stream[Req proto.Message, U any](to grpc.ServerStream, s *Chain, method string, req Req,
	open func(context.Context, Req) (iter.Seq2[U, error], error),
) (err error) {
	ctx := to.Context()
	c := s.begin(ctx, method, true)
	defer c.end(&err)
	checked, err := c.check(c.ctx, req)
	if err != nil {
		return err
	}
	c.in.Record.setNames(req)
	updates, err := open(checked, req)
	if err != nil {
		return err
	}
	c.endCount()
	if !c.in.translated { // a door keeps its request until the end
		c.in.Held.opened()
	}
	s.config.Metrics.Streams(ctx, method, c.in.Binding, 1)
	defer s.config.Metrics.Streams(ctx, method, c.in.Binding, -1)
	_ = to.SendHeader(nil) // the first send reports a caller that disconnected
	recorded := c.in.Record == nil
	for u, err := range updates {
		if err != nil {
			return err
		}
		if !recorded {
			c.in.Record.setNames(u)
			recorded = c.in.Record.soFar().task != ""
		}
		if err := c.in.Held.sized(c.ctx, u); err != nil {
			return err
		}
		err := to.SendMsg(u)
		if c.in.Held.sent(); err != nil {
			return err
		}
	}
	return context.Cause(c.ctx)
}

func (s *Chain) begin(ctx context.Context, method string, lasts bool) *call {
	c := &call{chain: s, method: method, in: InboundOf(ctx)}
	ctx, c.span = s.config.Traces.Request(ctx, method, c.in.Binding, c.in.Caller, c.in.trace)
	c.in.Record.setCall(method, c.span)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.stop = func() bool { return true }
	if lasts {
		leave, stop := s.rechecks.enter(c), context.AfterFunc(s.closing, func() { c.cancel(context.Cause(s.closing)) })
		c.stop = func() bool {
			leave()
			return stop()
		}
	}
	return c
}

// check runs the checks that come before the work, the cheapest ones first, and returns the
// context of the call.
func (c *call) check(ctx context.Context, req proto.Message) (context.Context, error) {
	if c.in.Caller == nil && !c.in.Open {
		return nil, unauthenticated("the caller is not authenticated")
	}
	if err := c.count(); err != nil {
		return nil, err
	}
	if err := c.permitted(); err != nil {
		return nil, err
	}
	if err := c.in.checkVersion(); err != nil && !c.in.V03 && !c.in.Open {
		return nil, err
	}
	if c.in.Settings.GetProtocol().GetRequireTeamRun() && !c.in.translated && isA2A(c.method) && !slices.Contains(c.in.extensions, project.TeamRunURI) {
		return nil, a2aerror.ExtensionSupportRequired(project.TeamRunURI)
	}
	levels, err := c.in.levels()
	if err != nil {
		return nil, err
	}
	if err := wire.Check(req); err != nil {
		return nil, err
	}
	if c.in.Caller != nil {
		ctx = identity.WithCaller(ctx, *c.in.Caller)
	}
	if trace := c.span.Record(c.in.trace); trace != nil {
		ctx = a2a.WithTrace(ctx, trace)
	}
	ctx = a2a.WithBase(a2a.WithExtensions(ctx, c.in.extensions...), c.in.Base)
	return agent.WithDepth(ctx, levels), nil
}

// count counts the call as one that is worked on. The error is INSUFFICIENT_RESOURCES if there are too
// many, unless the call stops work or is that of an operator.
func (c *call) count() (err error) {
	if !stopMethods[c.method] {
		c.leave, err = c.chain.Occupy(c.in)
	}
	return err
}

// endCount ends the count of the call. Further calls do nothing.
func (c *call) endCount() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// permitted returns PERMISSION_DENIED if the caller may not make the call.
func (c *call) permitted() error {
	var have identity.Permissions
	if c.in.Caller != nil {
		have = c.in.Caller.Permissions
	}
	if lacks := needs(c.method) &^ have; lacks != 0 {
		c.recordDenied()
		return identity.Denied(lacks)
	}
	return nil
}

// isA2A reports whether a method is one of the A2A service.
func isA2A(method string) bool {
	return a2av1.File_lf_a2a_v1_a2a_proto.Services().ByName("A2AService").Methods().ByName(protoreflect.Name(method)) != nil
}

// end recovers from a panic, notes how the call has ended, and converts its error to a gRPC status.
func (c *call) end(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
	if *err != nil && c.ctx.Err() != nil && isContext(*err) {
		*err = context.Cause(c.ctx)
	}
	c.endCount()
	c.stop()
	c.cancel(nil)
	st := wire.Status(*err)
	c.in.Record.setResult(*err, st)
	c.endSpan(st)
	*err = st.Err()
}

// endSpan ends the span of the call. If the call was refused, what it names may be any text.
func (c *call) endSpan(st *status.Status) {
	if o := c.in.Record.soFar(); namesAreKnown(st.Code()) {
		c.span.About(o.agent, o.task)
	}
	reason := ""
	if st.Code() != codes.OK {
		reason = cmp.Or(wire.InfoOf(st).GetReason(), st.Code().String())
	}
	c.span.End(st.Code().String(), reason, isFailure(st.Code()))
}

// Intercept runs the checks of Unary around the implementation of a method. It implements grpc.UnaryServerInterceptor.
func (s *Chain) Intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	m, ok := req.(proto.Message)
	if !ok {
		return nil, wire.Status(fmt.Errorf("calling with %T", req)).Err()
	}
	return s.Unary(ctx, info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:], m, next)
}

// Recover recovers from a panic and sets err. It must be deferred. It handles panics of the
// code around a call; the call itself recovers from its own.
func (s *Chain) Recover(method string, err *error) {
	if p := recover(); p != nil {
		s.LogPanic(method, p)
		*err = wire.Status(errors.New("panic")).Err()
	}
}

// isContext reports whether err is the error of a context, whose cause is more precise.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

var versionPattern = regexp.MustCompile(`^1\.0(\.[0-9]+)?$`)

// checkVersion accepts version 1.0, with any patch number. A call without a version counts as
// 1.0 unless the server is configured to be strict; A2A 1.0 says it would be 0.3.
func (in *Inbound) checkVersion() error {
	switch {
	case len(in.Version) == 0 && !in.Settings.GetProtocol().GetStrictVersion(), len(in.Version) == 1 && versionPattern.MatchString(in.Version[0]):
		return nil
	}
	e := a2a.VersionNotSupported(strings.Join(in.Version, ", "))
	if !in.NoV03() { // gRPC, too: all bindings return the same text
		e.Message += ", or " + a2av03.Version + " over REST and JSON-RPC"
	}
	return e
}

// MaxAllowed is the longest timeout that a caller may send: a year. A caller that wants
// no limit sends no timeout.
const MaxAllowed = 365 * 24 * time.Hour

// NotAllowed returns the error for a timeout that no caller may send.
func NotAllowed(text string) error {
	return wire.Invalid("Grpc-Timeout", fmt.Sprintf("is %.32s; it must be more than 0 and at most a year (8760H); omit it for no limit", text))
}

// LimitWrite sets the deadline for writing an answer over HTTP. It is cleared for the next request on the connection; streams
// set their own.
func LimitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(QuickTime)) // some connections have no deadlines
}
