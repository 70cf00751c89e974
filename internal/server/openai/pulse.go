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

// pulse keeps a call alive that waits for its answer. Its mutex also guards what the call sends meanwhile.
type pulse struct {
	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	stopped bool        // guarded by mu
}

// start calls beat, which must not lock mu, at the end of refusalTime and then each aliveTime, until stop is called or beat
// fails.
func (p *pulse) start(beat func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(refusalTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.stopped && beat() == nil {
			p.timer.Reset(aliveTime)
		}
	})
}

// stop ends the beats.
func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.stopped = true
}

// patient keeps a plain call alive: it sends the headers, and then blanks.
type patient struct {
	pulse
	w     http.ResponseWriter
	begun bool // a blank was sent; guarded by mu, and constant after stop
}

// blank sends a blank, with the headers before the first one.
func (p *patient) blank() error {
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "application/json")
		p.w.Header().Set("Cache-Control", "private, no-store")
		p.w.Header().Set("X-Accel-Buffering", "no")
	}
	call.LimitWrite(p.w)
	_, err := p.w.Write([]byte(" "))
	to := http.NewResponseController(p.w)
	_ = to.Flush()                       // the next blank reports the end of the connection
	_ = to.SetWriteDeadline(time.Time{}) // over HTTP/2 the deadline would end the stream while nothing is written
	return err
}
