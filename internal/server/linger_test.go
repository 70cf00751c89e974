package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/server"
)

// TestA_01_RestOfABodyIsNotAwaited: if a caller has got its answer but does not send the
// rest of its body, the connection is closed.
func TestA_01_RestOfABodyIsNotAwaited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	target := start(t, server.Config{Handler: &probe{send: echo}})
	for _, path := range []string{"/message:send", "/nothing/is/here", "/healthz"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(target.HTTP, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n{", path)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode < 400 {
				t.Errorf("status %d, %v", resp.StatusCode, err)
			}
			if _, err := r.ReadByte(); err == nil || isTimeout(err) {
				t.Errorf("the connection stays: %v", err)
			}
		})
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error) //nolint:errorlint // as the connection returns it
	return ok && e.Timeout()
}
