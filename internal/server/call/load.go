package call

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/wire"
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

// Count refuses a request if the server works on too many calls, and counts it as one of its owner, who may make too many.
// Operators are not refused because of calls, so that they can find out and end what others do.
func (s *Chain) Count(in *Inbound) error {
	if in.Caller == nil {
		return nil
	}
	if !in.Caller.May(identity.PermissionAdmin) {
		if err := s.calls.check(*in.Caller); err != nil {
			return err
		}
	}
	if s.config.Use == nil {
		return nil
	}
	if err := s.config.Use.Request(in.Caller.Owner()); err != nil {
		return wire.Status(err).Err()
	}
	return nil
}

// Occupy counts a call that is worked on until leave is called, which must be once. The error is INSUFFICIENT_RESOURCES.
// Calls of operators are not counted.
func (s *Chain) Occupy(in *Inbound) (leave func(), err error) {
	if in.Caller == nil || in.Caller.May(identity.PermissionAdmin) {
		return func() {}, nil
	}
	who := *in.Caller
	if err := s.calls.enter(who); err != nil {
		return nil, err
	}
	return func() { s.calls.leave(who) }, nil
}

// OccupyToAsk is like Occupy for a call that waits until its caller makes a further one. It is refused if it would take the
// last call that the caller may make, because the answer could then never come.
func (s *Chain) OccupyToAsk(in *Inbound) (leave func(), err error) {
	if leave, err = s.Occupy(in); err != nil || in.Caller == nil || in.Caller.May(identity.PermissionAdmin) {
		return leave, err
	}
	if err = s.calls.check(*in.Caller); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
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
func (c *calls) check(who identity.Caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkLocked(who)
}

func (c *calls) checkLocked(who identity.Caller) error {
	most := int(c.settings.Load().GetLimits().GetMaxCalls())
	forAccount := shareFactor*(most-c.all) - c.open[who.Account]
	if forAccount <= 0 || c.open[who.Owner()] >= shareFactor*forAccount {
		return c.refusalLocked(most)
	}
	return nil
}

// enter counts a call, or returns the refusal. The caller must call leave if the error is nil.
func (c *calls) enter(who identity.Caller) error {
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
func (c *calls) leave(who identity.Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	for _, name := range []string{who.Account, who.Owner()} {
		if c.open[name]--; c.open[name] <= 0 {
			delete(c.open, name)
		}
	}
}

// Upload is what is reserved for the body of a request. The zero value has no limit.
type Upload struct {
	use   Use
	owner string
	n     int64
	held  *held // the memory of the request
}

// UploadOf returns the upload of a request.
func (s *Chain) UploadOf(in *Inbound) *Upload {
	if s.config.Use == nil || in.Caller == nil {
		return &Upload{held: in.Held}
	}
	return &Upload{use: s.config.Use, owner: in.Caller.Owner(), held: in.Held}
}

// Reserve reserves n more bytes.
func (u *Upload) Reserve(n int64) error {
	if u.use == nil {
		return nil
	}
	if err := u.use.Upload(u.owner, n); err != nil {
		return err
	}
	u.n += n
	return nil
}

// Receive reserves memory for n more bytes of the request.
func (u *Upload) Receive(ctx context.Context, n int64) error { return u.held.receive(ctx, n) }

// Done returns what is reserved.
func (u *Upload) Done() {
	if u.n > 0 {
		u.use.Uploaded(u.owner, u.n)
	}
}

// quickMessage is how long the message of a gRPC call may take to arrive before it counts as an upload,
// as long as a body over HTTP may take before its rate counts. A busy server takes its time to read
// messages that have arrived.
const quickMessage = 5 * time.Second

// Receiving reserves the largest size of a message for a gRPC call whose message does not arrive at once.
// grpc-go does not tell how much of it there is. If there is no room, the call ends with the refusal, and the
// returned context is canceled. It does not block.
func (s *Chain) Receiving(ctx context.Context, in *Inbound) context.Context {
	if s.config.Use == nil || in.Caller == nil {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	up := s.UploadOf(in)
	var mu sync.Mutex // guards up and received
	received := false
	late := time.AfterFunc(quickMessage, func() {
		mu.Lock()
		defer mu.Unlock()
		if received {
			return
		}
		if err := up.Reserve(wire.MaxBody); err != nil {
			if s := in.Stream.Load(); s != nil { // grpc-go says CANCELED of a call whose context has ended
				_ = (*s).WriteStatus(wire.Status(err)) // its caller may be gone
			}
			cancel(err)
		}
	})
	in.Received = sync.OnceFunc(func() {
		late.Stop()
		mu.Lock()
		defer mu.Unlock()
		received = true
		up.Done()
	})
	context.AfterFunc(ctx, in.Received)
	return ctx
}

// stops has the methods that end work, which an account may call however many requests it makes.
var stops = map[string]bool{
	a2av1.A2AService_CancelTask_FullMethodName:                   true,
	teamv1.AgentService_Cancel_FullMethodName:                    true,
	teamv1.CollaborationService_StopCollaboration_FullMethodName: true,
	teamv1.HaltService_Halt_FullMethodName:                       true,
	teamv1.HaltService_Resume_FullMethodName:                     true,
}

// StopsWork reports whether a method, by its full name, ends work. An account may call it however many requests it makes.
func StopsWork(method string) bool { return stops[method] }

// stopMethods has the same methods by their names alone, as type call has them.
var stopMethods = func() map[string]bool {
	names := map[string]bool{}
	for full := range stops {
		names[full[strings.LastIndex(full, "/")+1:]] = true
	}
	return names
}()
