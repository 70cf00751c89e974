package conn

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// Conn is a connection that is counted until it is closed. It is safe for concurrent use.
type Conn struct {
	net.Conn
	leave func()

	mu      sync.Mutex
	account string           // of its calls over gRPC; guarded by mu
	several bool             // they are of several accounts; guarded by mu
	unsent  map[*unsent]bool // what its transport has; guarded by mu
	closed  bool             // guarded by mu
}

// countedAddr is the address of the other end of a counted connection, by which grpc-go names it.
type countedAddr struct {
	net.Addr
	conn *Conn
}

// RemoteAddr returns the address of the other end, from which Of returns the connection.
func (c *Conn) RemoteAddr() net.Addr { return countedAddr{c.Conn.RemoteAddr(), c} }

// Of returns the connection of an address, nil if it is not counted.
func Of(a net.Addr) *Conn {
	if at, ok := a.(countedAddr); ok {
		return at.conn
	}
	return nil
}

// Close closes the connection, and releases the memory of what has not been sent.
func (c *Conn) Close() error {
	defer c.leave()
	c.mu.Lock()
	unsent := c.unsent
	c.unsent, c.closed = nil, true
	c.mu.Unlock()
	for u := range unsent {
		u.end()
	}
	return c.Conn.Close()
}

// Calls notes that an account makes calls over the connection.
func (c *Conn) Calls(account string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.several = c.several || c.account != "" && c.account != account
	c.account = account
}

// add adds data that the transport has, and returns false if the connection is closed.
func (c *Conn) add(u *unsent) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.unsent == nil {
		c.unsent = map[*unsent]bool{}
	}
	c.unsent[u] = true
	return true
}

// remove removes data that was sent.
func (c *Conn) remove(u *unsent) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsent, u)
}

// stalled closes the connection, because its client does not accept data that the transport has: it would
// have that for as long as the client likes, because grpc-go cannot reset a stream whose handler has returned. A connection over
// which several accounts call, which is that of a proxy, stays open: grpc-go closes it after some minutes.
func (c *Conn) stalled() {
	if c == nil {
		return
	}
	c.mu.Lock()
	several := c.several
	c.mu.Unlock()
	if !several {
		_ = c.Close() // the transport meets the error
	}
}

// unsent is data that a transport of grpc-go has. It implements mem.BufferPool, because a transport gives the
// pieces that it has sent back to their pool. It is safe for concurrent use.
type unsent struct {
	conn  *Conn         // over which it is sent
	stall time.Duration // how long the client may take to accept any of it
	end   func()        // releases the memory; further calls do nothing

	mu    sync.Mutex
	left  int         // pieces that are not sent; guarded by mu
	sent  bool        // some were since the timer has run; guarded by mu
	timer *time.Timer // guarded by mu
}

// sentPiece is the size of the pieces in which data is given to a transport, as wire.EventWriter does over HTTP.
const sentPiece = 64 << 10

// Buffers returns data for the transport of a connection, of which each piece is given back when it has been sent. sent is
// called when the transport no longer needs any of it. If the client accepts nothing for longer than twice stall, the
// connection is closed.
func (c *Conn) Buffers(data []byte, stall time.Duration, sent func()) mem.BufferSlice {
	u := &unsent{conn: c, stall: stall}
	u.end = sync.OnceFunc(func() {
		c.remove(u)
		sent()
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.timer != nil {
			u.timer.Stop()
		}
	})
	pieces := max(len(data)/sentPiece, 1)
	list := make(mem.BufferSlice, pieces)
	u.mu.Lock()
	u.left = pieces
	u.timer = time.AfterFunc(2*stall, u.check) // later than the end of a stream that tells its client
	u.mu.Unlock()
	for i := range list {
		end := (i + 1) * sentPiece
		if i == pieces-1 { // the rest belongs to the last piece: grpc-go does not give small ones back
			end = len(data)
		}
		piece := data[i*sentPiece : end : end]
		list[i] = mem.NewBuffer(&piece, u)
	}
	if !c.add(u) {
		u.end()
	}
	return list
}

// Get implements mem.BufferPool.
func (u *unsent) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool. It notes that a piece was sent.
func (u *unsent) Put(*[]byte) {
	u.mu.Lock()
	u.left--
	u.sent = true
	last := u.left == 0
	u.mu.Unlock()
	if last {
		u.end()
	}
}

// check ends the connection if nothing was sent since the last check.
func (u *unsent) check() {
	u.mu.Lock()
	sent, left := u.sent, u.left
	u.sent = false
	if sent && left > 0 {
		u.timer.Reset(u.stall)
	}
	u.mu.Unlock()
	if !sent && left > 0 {
		u.conn.stalled()
	}
}
