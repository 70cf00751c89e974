// Package conn limits the connections of all listeners, and knows what a connection still has to send.
package conn

import (
	"net"
	"net/netip"
	"sync"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/settings"
)

// Connections counts the open connections of all listeners. It is safe for concurrent use.
type Connections struct {
	log      *zap.Logger
	settings *settings.Live

	mu      sync.Mutex
	all     int                  // guarded by mu
	from    map[netip.Prefix]int // guarded by mu
	refused int                  // guarded by mu
}

// New returns a count of connections, limited by settings.
func New(s *settings.Live, log *zap.Logger) *Connections {
	return &Connections{log: log, settings: s}
}

// Limit returns a listener whose connections are counted and limited.
func (c *Connections) Limit(l net.Listener) net.Listener { return narrowListener{l, c} }

// enter counts a connection, and reports whether there may be one more.
func (c *Connections) enter(from netip.Addr) bool {
	now := c.settings.Load()
	at, shared := auth.Network(from), shared(from, now.Proxies)
	c.mu.Lock()
	if c.all >= int(now.GetLimits().GetMaxConnections()) || !shared && c.from[at] >= int(now.GetLimits().GetMaxConnectionsPerAddress()) {
		c.refused++
		all, ofAddress, refused := c.all, c.from[at], c.refused
		c.mu.Unlock()
		if refused&(refused-1) == 0 { // the first, the second, the fourth, and so on
			c.log.Warn("connections are refused: server.limits.max_connections or max_connections_per_address is reached",
				zap.Stringer("address", from), zap.Int("open", all), zap.Int("of_address", ofAddress), zap.Int("refused", refused))
		}
		return false
	}
	defer c.mu.Unlock()
	if c.from == nil {
		c.from = map[netip.Prefix]int{}
	}
	c.all++
	c.from[at]++
	return true
}

// leave counts the end of a connection.
func (c *Connections) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := auth.Network(from)
	c.all--
	if c.from[at]--; c.from[at] <= 0 {
		delete(c.from, at)
	}
}

// shared reports whether an address may belong to a proxy, which connects for many callers.
func shared(from netip.Addr, proxies []netip.Prefix) bool {
	if from.IsLoopback() || !from.IsValid() {
		return true
	}
	for _, p := range proxies {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// accept counts a connection, and closes it if there are too many. conn is nil then.
func (c *Connections) accept(conn net.Conn) net.Conn {
	var from netip.Addr
	if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		from = at.Addr().Unmap()
	}
	if !c.enter(from) {
		_ = conn.Close()
		return nil
	}
	return &Conn{Conn: conn, leave: sync.OnceFunc(func() { c.leave(from) })}
}

// narrowListener limits the number of connections, and the kernel's send buffer of each, and with
// it the memory that a peer that does not read can occupy.
type narrowListener struct {
	net.Listener
	open *Connections
}

// sendBuffer is the size in bytes that is requested for the send buffer; the kernel may
// double it.
const sendBuffer = 256 << 10

func (l narrowListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return conn, err
		}
		if c, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
			_ = c.SetWriteBuffer(sendBuffer) // on failure the kernel's default applies
		}
		if counted := l.open.accept(conn); counted != nil {
			return counted, nil
		}
	}
}
