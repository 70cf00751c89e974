package egress

import (
	"io"
	"net/http"

	"github.com/agentteams/team-server/pkg/agent"
)

// counting is a transport that waits for memory before large answers are read, see agent.LargeAnswer.
type counting struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	return counted(c.Transport.RoundTrip(req))
}

// counted returns a response whose body waits for memory.
func counted(resp *http.Response, err error) (*http.Response, error) {
	if err == nil && resp.Body != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &body{ReadCloser: resp.Body, of: resp.Request}
	}
	return resp, err
}

// body is the body of an answer. It is not safe for concurrent use, as bodies are not.
type body struct {
	io.ReadCloser
	of   *http.Request
	read int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.read > agent.LargeBytes {
		if err := agent.LargeAnswer(b.of.Context()); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}
