package mcpdoor

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
)

// quick is how long a call may take to be answered with plain JSON. A longer one is answered with a stream of events, on
// which comments show that the server works.
const quick = time.Second

// reply is the answer to a POST: JSON, or a stream of events that ends with it. It is safe for concurrent use.
type reply struct {
	w     http.ResponseWriter
	stall time.Duration

	mu     sync.Mutex
	timer  *time.Timer       // begins the stream; guarded by mu
	events *wire.EventWriter // nil without a stream; guarded by mu
	done   bool              // guarded by mu
}

func newReply(w http.ResponseWriter, stall time.Duration) *reply { return &reply{w: w, stall: stall} }

// lasts begins a stream when the answer is not there in time. broken is called when the client is gone.
func (p *reply) lasts(broken func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(quick, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.beginLocked(broken)
	})
}

func (p *reply) beginLocked(broken func(error)) {
	if p.events == nil && !p.done {
		p.events = wire.NewEventWriter(p.w, p.stall, broken)
	}
}

// send sends a message before the answer.
func (p *reply) send(m any) {
	b, err := json.Marshal(m)
	if err != nil {
		return // the messages of this package always encode
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beginLocked(func(error) {}); p.events != nil {
		_ = p.events.Event(0, "message", b) // the answer reports a client that is gone
	}
}

// result sends the answer with a result. The error says that it was not sent.
func (p *reply) result(id json.RawMessage, result any) error {
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return p.write(http.StatusOK, wire.RPCResult(id, b))
}

// fail sends the answer with an error.
func (p *reply) fail(id json.RawMessage, status int, fault *wire.RPCError) {
	if id == nil {
		id = json.RawMessage("null")
	}
	b, err := wire.RPCFailure(id, fault)
	if err == nil {
		_ = p.write(status, b) // the client may be gone
	}
}

// accepted answers a message that is no request.
func (p *reply) accepted() { p.w.WriteHeader(http.StatusAccepted) }

func (p *reply) write(status int, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.events != nil {
		return p.events.Event(0, "message", b)
	}
	h := p.w.Header()
	h.Set("Content-Type", wire.TypeJSON)
	h.Set("Cache-Control", "private, no-store")
	call.LimitWrite(p.w)
	p.w.WriteHeader(status)
	_, err := p.w.Write(b)
	return err
}

// close ends the answer.
func (p *reply) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.events != nil {
		p.events.Close()
	}
}
