package interoprig

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// FreeAddress returns a loopback address that nothing listens on. Its port is below those that systems give
// to connections, so that none takes it before it is used.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10240+rand.IntN(22528))) //nolint:gosec // not a secret
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}
