package conn

import (
	"net"
	"net/netip"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
)

// fromAddress is a connection from an address.
type fromAddress struct {
	net.Conn
	at     net.Addr
	closed int
}

func (p *fromAddress) RemoteAddr() net.Addr { return p.at }
func (p *fromAddress) Close() error         { p.closed++; return nil }

func from(t *testing.T, address string) *fromAddress {
	t.Helper()
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return &fromAddress{at: net.TCPAddrFromAddrPort(at)}
}

// TestT_37_Connections: an address has so many connections, and all have so many together; what is refused
// is closed, and what ends makes room. Proxies and loopback have no share of their own.
func TestT_37_Connections(t *testing.T) {
	c := &Connections{log: zap.NewNop(), settings: settings.Of(&teamv1.ServerSettings{
		TrustedProxies: []string{"10.0.0.0/8"}, Limits: &teamv1.LimitSettings{MaxConnections: proto.Int32(6), MaxConnectionsPerAddress: proto.Int32(2)},
	})}
	var open []net.Conn
	accept := func(address string, want bool) {
		t.Helper()
		p := from(t, address)
		conn := c.accept(p)
		if (conn != nil) != want || (p.closed == 1) == want {
			t.Errorf("%s: accepted %v, closed %d times", address, conn != nil, p.closed)
		}
		if conn != nil {
			open = append(open, conn)
		}
	}
	accept("203.0.113.1:1", true)
	accept("[::ffff:203.0.113.1]:2", true) // the same address
	accept("203.0.113.1:3", false)
	accept("[2001:db8::1]:1", true)
	accept("[2001:db8::2]:1", true) // the same network
	accept("[2001:db8::3]:1", false)
	_ = open[0].Close()
	_ = open[0].Close() // counts once
	accept("203.0.113.1:4", true)
	accept("203.0.113.1:5", false)
	accept("10.0.0.1:1", true)
	accept("10.0.0.1:2", true)
	accept("198.51.100.1:1", false) // six are open
	for _, conn := range open {
		_ = conn.Close()
	}
	open = nil
	for range 6 {
		accept("127.0.0.1:1", true)
	}
	accept("127.0.0.1:1", false)
	for _, conn := range open {
		_ = conn.Close()
	}
	if c.all != 0 || len(c.from) != 0 {
		t.Errorf("%d connections and %d addresses are counted, and none is open", c.all, len(c.from))
	}
}
