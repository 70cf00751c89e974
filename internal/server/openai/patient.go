package openai

import (
	"net/http"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/server/call"
)

const (
	// refusalTime is for how long a request may still be refused by the status of its answer. It ends long before any client
	// or proxy gives up.
	refusalTime = 20 * time.Second
	// aliveTime is how often something is sent while there is nothing to send.
	aliveTime = 45 * time.Second
)

// patient keeps a plain call alive that waits for its answer: after a while it sends the headers, and then blanks.
type patient struct {
	w http.ResponseWriter

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	begun   bool        // guarded by mu
	stopped bool        // guarded by mu
}

// begin begins to wait.
func (p *patient) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(refusalTime, p.blank)
}

// blank sends a blank, with the headers before the first one.
func (p *patient) blank() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "application/json")
		p.w.Header().Set("Cache-Control", "private, no-store")
		p.w.Header().Set("X-Accel-Buffering", "no")
	}
	call.LimitWrite(p.w)
	_, _ = p.w.Write([]byte(" ")) // the end of the connection ends the call
	to := http.NewResponseController(p.w)
	_ = to.Flush()                       // as above
	_ = to.SetWriteDeadline(time.Time{}) // over HTTP/2 the deadline would end the stream while nothing is written
	_ = p.timer.Reset(aliveTime)         // it has fired
}

// stop ends the blanks and reports whether any were sent.
func (p *patient) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.stopped = true
	return p.begun
}
