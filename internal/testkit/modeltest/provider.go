package modeltest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

// Played runs the suite for a provider. serve starts a fake endpoint and returns it with a model
// that calls it. parsed is Subject.Parsed.
func Played(t *testing.T, parsed bool, serve func(t *testing.T) (*fakellm.Server, agent.Model)) {
	t.Helper()
	Run(t, func(t *testing.T, script string) Subject {
		s, err := scripted.Parse("test.script.yaml", []byte(script))
		if err != nil {
			t.Fatal(err)
		}
		llm, m := serve(t)
		llm.Play(s)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := llm.Quiet(ctx); err != nil {
				t.Error("the model left a request at work")
			}
		})
		return Subject{Model: m, Parsed: parsed, Arrived: func(ctx context.Context, n int) error {
			return llm.WaitFor(ctx, func(rs []fakellm.Request) bool { return len(rs) >= n })
		}}
	})
}

// Client returns a client whose connections are closed at the end of the test.
func Client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Transport is a function that implements http.RoundTripper.
type Transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f Transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Answering returns a client that answers every request with the given body.
func Answering(contentType, body string) *http.Client {
	return &http.Client{Transport: Transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	})}
}

// Tides sends a request to a model and collects the answer.
func Tides(t *testing.T, m agent.Model) Answer {
	t.Helper()
	return Collect(t.Context(), t, m, Ask("tides"))
}

// Turn sends a request to a model and returns its turn. An error fails the test.
func Turn(t *testing.T, m agent.Model) *teamv1.Turn {
	t.Helper()
	a := Tides(t, m)
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return a.Turn
}

// Failure sends a request to a model and returns its error. Anything but an *agent.Error fails the
// test.
func Failure(t *testing.T, m agent.Model) *agent.Error {
	t.Helper()
	var e *agent.Error
	if a := Tides(t, m); !errors.As(a.Err, &e) {
		t.Fatalf("error = %v, turn = %v, want an *agent.Error", a.Err, a.Turn)
	}
	return e
}
