package managed

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// newServer is an HTTP server that answers so, until the test ends.
func newServer(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}
