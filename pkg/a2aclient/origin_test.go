package a2aclient

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestA_10_CardAtTheOrigin: a server may have its card at the origin only, though its address has a
// path. A server that says that it does not have the agent is believed.
func TestA_10_CardAtTheOrigin(t *testing.T) {
	const card = `{"name":"x","supportedInterfaces":[{"url":"http://h/a2a/v1","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		want   []string // of the error; none if the card is found
	}{
		"an unknown path":     {func(w http.ResponseWriter) { http.Error(w, "nothing here", http.StatusNotFound) }, nil},
		"a page for any path": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, nil},
		"a path for POST":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) }, nil},
		"an unknown agent": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"code":404,"status":"NOT_FOUND","message":"no agent v1","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"AGENT_NOT_FOUND","domain":"x"}]}}`))
		}, []string{"no agent v1"}},
		"no key": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, []string{"UNAUTHENTICATED"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == wellKnown {
					_, _ = w.Write([]byte(card))
					return
				}
				tt.answer(w)
			}))
			t.Cleanup(s.Close)
			got, _, err := ReadCard(t.Context(), s.URL+"/a2a/v1", Config{})
			if tt.want == nil && (err != nil || got.GetName() != "x") {
				t.Errorf("got %v, %v", got, err)
			}
			for _, part := range tt.want {
				if !strings.Contains(text(err), part) {
					t.Errorf("got %v, %v, want an error with %q", got, err, part)
				}
			}
		})
	}
	t.Run("the error names what was tried", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(s.Close)
		_, _, err := ReadCard(t.Context(), s.URL+"/a2a/v1", Config{})
		for _, at := range []string{s.URL + "/a2a/v1" + wellKnown, s.URL + wellKnown} {
			if !strings.Contains(text(err), "no card at "+at+":") {
				t.Errorf("%v does not name %s", err, at)
			}
		}
	})
}
