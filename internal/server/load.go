package server

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// Use limits what accounts use of the server. It is safe for concurrent use.
type Use interface {
	// Request counts a request of an owner. The error is INSUFFICIENT_RESOURCES.
	Request(owner string) error
	// Upload reserves bytes of a body of an owner that is being received, until Uploaded is called with
	// the same number. The error is INSUFFICIENT_RESOURCES; then nothing is reserved.
	Upload(owner string, n int64) error
	Uploaded(owner string, n int64)
}

// checkCalls returns the status for a caller of a server that is working on too many calls. Operators are not
// refused, so that they can find out and end what others do.
func (s *Chain) checkCalls(in *inbound) error {
	if in.caller == nil || in.caller.May(a2a.PermissionAdmin) {
		return nil
	}
	return s.calls.check(*in.caller)
}

// countRequest counts a request. The error is the status for a caller that makes too many.
func (s *Chain) countRequest(in *inbound) error {
	if in.caller == nil || s.config.Use == nil {
		return nil
	}
	if err := s.config.Use.Request(in.caller.Owner()); err != nil {
		return wire.Status(err).Err()
	}
	return nil
}

// stopPath matches the paths of the methods in stops: tasks of A2A 1.0 and 0.3, with and without a tenant,
// and those of the server's own services.
var stopPath = regexp.MustCompile(`^(/[^/]+){0,2}/tasks/[^/]+:cancel$|^/team/v1/agents/[^/]+:cancel$|^/team/v1/collaborations/[^/]+:stop$|^/team/v1/halts(:resume)?$`)

// stopsWork reports whether a request over REST ends work, as the methods in stops do. The path of a
// request over JSON-RPC does not tell.
func stopsWork(r *http.Request) bool {
	return r.Method == http.MethodPost && stopPath.MatchString(r.URL.Path)
}

const (
	// shareFactor is how many calls an account may have for each further one that is free, and a principal
	// for each further one that its account may have, so that others find one. Alone, an account gets
	// 911 of 1024, and a principal 898.
	shareFactor = 8
)

// calls counts the calls that are worked on, by account and principal, so that a server with more than it can do refuses
// the rest at once and goes on with those that it has. It is safe for concurrent use.
type calls struct {
	settings *settings.Live
	mu       sync.Mutex
	all      int            // guarded by mu
	open     map[string]int // by account, and by owner; guarded by mu
	most     int            // for which refusal is; guarded by mu
	refusal  error          // guarded by mu
}

func newCalls(s *settings.Live) *calls { return &calls{settings: s, open: map[string]int{}} }

// refusalLocked returns the error for a caller of a server that has no free call.
func (c *calls) refusalLocked(most int) error {
	if c.refusal == nil || c.most != most { // an overloaded server returns it often
		e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"the server has no free call for this account; its limits.max_calls is %d; try again later", most)
		e.Retry, e.RetryAfter = true, time.Second
		c.most, c.refusal = most, wire.Status(e.With(agent.DetailLimit, "max_calls").With(agent.DetailValue, strconv.Itoa(most))).Err()
	}
	return c.refusal
}

// check returns the refusal if a caller may not have a further call. Most requests to an overloaded server
// end here, before their bodies are read.
func (c *calls) check(who a2a.Caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkLocked(who)
}

func (c *calls) checkLocked(who a2a.Caller) error {
	most := int(c.settings.Load().GetLimits().GetMaxCalls())
	forAccount := shareFactor*(most-c.all) - c.open[who.Account]
	if forAccount <= 0 || c.open[who.Owner()] >= shareFactor*forAccount {
		return c.refusalLocked(most)
	}
	return nil
}

// enter counts a call, or returns the refusal. The caller must call leave if the error is nil.
func (c *calls) enter(who a2a.Caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkLocked(who); err != nil {
		return err
	}
	c.all++
	for _, name := range []string{who.Account, who.Owner()} {
		c.open[name]++
	}
	return nil
}

// leave counts the end of a call.
func (c *calls) leave(who a2a.Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	for _, name := range []string{who.Account, who.Owner()} {
		if c.open[name]--; c.open[name] <= 0 {
			delete(c.open, name)
		}
	}
}

// upload is what is reserved for the body of a request. The zero value has no limit.
type upload struct {
	use   Use
	owner string
	n     int64
	held  *held // the memory of the request
}

// uploadOf returns the upload of a request.
func (s *Chain) uploadOf(in *inbound) *upload {
	if s.config.Use == nil || in.caller == nil {
		return &upload{held: in.held}
	}
	return &upload{use: s.config.Use, owner: in.caller.Owner(), held: in.held}
}

// reserve reserves n more bytes.
func (u *upload) reserve(n int64) error {
	if u.use == nil {
		return nil
	}
	if err := u.use.Upload(u.owner, n); err != nil {
		return err
	}
	u.n += n
	return nil
}

// done returns what is reserved.
func (u *upload) done() {
	if u.n > 0 {
		u.use.Uploaded(u.owner, u.n)
	}
}

// quickMessage is how long the message of a gRPC call may take to arrive before it counts as an upload,
// as long as a body over HTTP may take before its rate counts. A busy server takes its time to read
// messages that have arrived.
const quickMessage = 5 * time.Second

// receiving reserves the largest size of a message for a gRPC call whose message does not arrive at once.
// grpc-go does not tell how much of it there is. If there is no room, the call ends with the refusal, and the
// returned context is canceled. It does not block.
func (s *Chain) receiving(ctx context.Context, in *inbound) context.Context {
	if s.config.Use == nil || in.caller == nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	up := s.uploadOf(in)
	var mu sync.Mutex // guards up and received
	received := false
	late := time.AfterFunc(quickMessage, func() {
		mu.Lock()
		defer mu.Unlock()
		if received {
			return
		}
		if err := up.reserve(wire.MaxBody); err != nil {
			if s := in.stream.Load(); s != nil { // grpc-go says CANCELED of a call whose context has ended
				_ = (*s).WriteStatus(wire.Status(err)) // its caller may be gone
			}
			cancel(err)
		}
	})
	in.received = sync.OnceFunc(func() {
		late.Stop()
		mu.Lock()
		defer mu.Unlock()
		received = true
		up.done()
	})
	context.AfterFunc(ctx, in.received)
	return ctx
}
