package call

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/wire"
)

// held is the memory that a call holds. A nil *held holds nothing and has no limit. It is safe for concurrent use.
type held struct {
	budget  *inflight.Budget
	account string
	// granted is set for a call that is not refused memory, because it is that of an operator or stops work.
	granted bool
	stops   bool // it stops work

	mu      sync.Mutex
	request *inflight.Hold // guarded by mu
	answer  *inflight.Hold // of a call with one response; guarded by mu
	update  func()         // releases what is held for the current update of a stream; guarded by mu
}

// Hold sets what holds the memory of a call. stops says that the call stops work.
func (s *Chain) Hold(in *Inbound, stops bool) {
	if s.config.Memory == nil || in.Caller == nil {
		return
	}
	in.Held = &held{budget: s.config.Memory, account: in.Caller.Account, granted: stops || in.Caller.May(identity.PermissionAdmin), stops: stops}
}

// arriving is how long a message waits for memory before it is refused.
const arriving = time.Second

// receive reserves memory for n more bytes of the request over HTTP, and waits for that of the first ones: callers that
// are refused at once come back at once. The error is INSUFFICIENT_RESOURCES.
func (h *held) receive(ctx context.Context, n int64) (err error) {
	if h == nil || n <= 0 {
		return nil
	}
	n *= inflight.OfRequest
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.request == nil && h.granted:
		h.request = h.budget.Take(inflight.Request, h.account, n)
	case h.request == nil:
		h.request, err = h.budget.Wait(ctx, inflight.Request, h.account, n, arriving)
	case h.granted:
		h.request.Grow(n)
	default:
		err = h.request.More(n)
	}
	return err
}

// reserve reserves n bytes, or only counts them if the call is not refused any.
func (h *held) reserve(kind inflight.Kind, n int64) (*inflight.Hold, error) {
	if h.granted {
		return h.budget.Take(kind, h.account, n), nil
	}
	return h.budget.Reserve(kind, h.account, n)
}

// Await reserves memory for the largest message before one is received over gRPC, which does not tell how
// large it is. received corrects that. Until then the message waits in the flow control of its stream. Of an account that
// has used up its memory, one call at a time that stops work is received.
func (h *held) Await(ctx context.Context) error {
	if h == nil || h.granted && !h.stops {
		return nil
	}
	kind := inflight.Request
	if h.stops {
		kind = inflight.Stop
	}
	hold, err := h.budget.Wait(ctx, kind, h.account, wire.MaxBody, arriving)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.request = hold
	return err
}

// Received corrects what await has reserved to a message of n bytes. If the account may not hold so much, the message
// waits: those that arrive at the same time must not keep each other from being accepted. The error is
// INSUFFICIENT_RESOURCES.
func (h *held) Received(ctx context.Context, n int) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.request == nil {
		h.request = h.budget.Take(inflight.Request, h.account, int64(n)*inflight.OfRequest)
		return nil
	}
	err := h.request.More(int64(n)*inflight.OfRequest - wire.MaxBody)
	if err != nil {
		h.request.Release()
		h.request, err = h.budget.Wait(ctx, inflight.Request, h.account, int64(n)*inflight.OfRequest, arriving)
	}
	return err
}

// read reserves memory for an answer before a record of n bytes is read for it. waits and the error are those of respond.
func (h *held) read(ctx context.Context, n int64, waits bool) error {
	h.mu.Lock()
	has := h.answer.Size()
	h.mu.Unlock()
	return h.answers(ctx, max(n*inflight.OfAnswer, has), waits)
}

// respond reserves memory for an answer of n bytes, and waits for it if the call has waited for work, which would
// be lost on the caller otherwise. The error is INSUFFICIENT_RESOURCES.
func (h *held) respond(ctx context.Context, n int, waits bool) error {
	if h == nil || n <= inflight.Small {
		return nil
	}
	return h.answers(ctx, int64(n)*inflight.OfAnswer, waits)
}

// answers sets how many bytes are held for the answer, see respond.
func (h *held) answers(ctx context.Context, size int64, waits bool) (err error) {
	hold := h.TakeAnswer() // of what was read for it, or of a call that this one wraps
	if more := size - hold.Size(); hold == nil || hold.More(more) != nil {
		hold.Release()
		if waits && !h.granted {
			hold, err = h.budget.Wait(ctx, inflight.Answer, h.account, size, patience)
		} else {
			hold, err = h.reserve(inflight.Answer, size)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = hold
	return err
}

// TakeAnswer returns what is held for the answer, which the caller must release. It is nil if nothing is held.
func (h *held) TakeAnswer() *inflight.Hold {
	if h == nil {
		return nil
	}
	return taken(h, &h.answer)
}

// taken returns a field of h, and sets it to its zero value.
func taken[T any](h *held, field *T) (was T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, *field = *field, was
	return was
}

// patience is how long an answer, or an update of a stream, waits for memory before it is refused.
const patience = 30 * time.Second

// Updating waits for memory for an update of n bytes that is encoded for this reader alone. It is held until
// sent is called.
func (h *held) Updating(ctx context.Context, n int) error {
	if h == nil || n <= inflight.Small {
		return nil
	}
	hold, err := h.wait(ctx, n*inflight.OfUpdate)
	if err == nil {
		h.sending(hold.Release)
	}
	return err
}

// sharing is like updating, for an encoding that readers share.
func (h *held) sharing(ctx context.Context, u feed.Update, n int) error {
	if h == nil || n <= inflight.Small {
		return nil
	}
	shared := u.Sending()
	if shared == nil {
		return h.Updating(ctx, n)
	}
	release, err := shared.Acquire(func() (*inflight.Hold, error) { return h.wait(ctx, n) })
	if err == nil {
		h.sending(release)
	}
	return err
}

// wait waits for memory of a stream.
func (h *held) wait(ctx context.Context, n int) (*inflight.Hold, error) {
	if h.granted {
		return h.budget.Take(inflight.Stream, h.account, int64(n)), nil
	}
	return h.budget.Wait(ctx, inflight.Stream, h.account, int64(n), patience)
}

// sending sets what releases the memory of the current update.
func (h *held) sending(release func()) {
	h.sent()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.update = release
}

// TakeUpdate returns what releases the memory of the current update, nil if nothing is held.
func (h *held) TakeUpdate() func() {
	if h == nil {
		return nil
	}
	return taken(h, &h.update)
}

// sent releases the memory of the current update, unless TakeUpdate was called for it.
func (h *held) sent() {
	if release := h.TakeUpdate(); release != nil {
		release()
	}
}

// opened releases the memory of the request, because its stream is open.
func (h *held) opened() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.request.Release()
}

// Release releases everything, at the end of the call.
func (h *held) Release() {
	if h == nil {
		return
	}
	h.sent()
	h.opened()
	h.TakeAnswer().Release()
}

// sized reserves memory for an update of a stream that is a message of its own.
func (h *held) sized(ctx context.Context, u any) error {
	if m, ok := u.(proto.Message); ok && h != nil {
		return h.Updating(ctx, proto.Size(m))
	}
	return nil
}
