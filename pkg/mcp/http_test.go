package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/pkg/secret"
)

// remote is an MCP server over HTTP whose handler can be changed while it runs.
type remote struct {
	*httptest.Server
	handler atomic.Pointer[http.Handler]
	tokens  atomic.Int32 // requests with the token
}

func (r *remote) handle(h http.Handler) { r.handler.Store(&h) }

func (r *remote) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Authorization") == "Bearer t0ken" {
		r.tokens.Add(1)
	}
	(*r.handler.Load()).ServeHTTP(w, req)
}

// real is a handler that serves the tools.
func real(t *testing.T) http.Handler { return handler(t, false) }

func handler(t *testing.T, json bool) http.Handler { return handlerOf(t, "plain", json) }

func handlerOf(t *testing.T, which string, json bool) http.Handler {
	end := make(chan struct{})
	s := server(which, end)
	t.Cleanup(func() {
		close(end)
		for session := range s.Sessions() {
			_ = session.Close()
		}
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{JSONResponse: json, Stateless: which == "new"})
}

// serve serves what h makes. What h leaves to the end of the test comes before the
// end of the server.
func serve(t *testing.T, h func(*testing.T) http.Handler) (*remote, mcp.Config) {
	t.Helper()
	r := &remote{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	r.handle(h(t))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return r, mcp.Config{Name: "web", URL: r.URL + "/mcp", Bearer: secret.New("t0ken"), HTTPClient: &http.Client{Transport: transport}}
}

func TestHTTP(t *testing.T) {
	for name, plain := range map[string]bool{"streams": false, "json": true} {
		t.Run(name, func(t *testing.T) {
			r, c := serve(t, func(t *testing.T) http.Handler { return handler(t, plain) })
			s := start(t, c)
			if got := call(t, s, "echo").GetText(); got != `{"text":"x"} with key key-1` {
				t.Error(got)
			}
			if call(t, s, "grow"); len(s.Known()) == 0 {
				t.Error("no tools")
			}
			if tools, err := s.Tools(t.Context()); err != nil || len(tools) != len(s.Known()) {
				t.Error(tools, err)
			}
			if got := call(t, s, "grown").GetText(); got != "grown" || r.tokens.Load() < 5 {
				t.Error(got, r.tokens.Load())
			}
		})
	}
}

// answers answers calls of tools with a status, and anything else really.
func answers(next http.Handler, do http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			do(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// TestHTTPFailures: what the server says of a call is known, and what it does not
// say is not.
func TestHTTPFailures(t *testing.T) {
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	for name, c := range map[string]struct {
		do           http.HandlerFunc
		retry, fresh bool
		after        time.Duration
		says         string
	}{
		"busy":            {status(429, "Retry-After", "7"), true, true, 7 * time.Second, "limits the rate of calls"},
		"broken":          {status(500), true, false, 0, "the server failed (HTTP 500)"},
		"a proxy gave up": {status(504), true, false, 0, "it is unknown"},
		"token refused":   {status(401), false, true, 0, "check its bearer"},
		"refused":         {status(400), false, true, 0, "refused the call (HTTP 400)"},
		"elsewhere":       {status(307, "Location", "http://elsewhere.invalid/"), false, true, 0, "refused the call (HTTP 307)"},
		"cut off": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, true, false, 0, "it is unknown"},
		"cut off mid-way": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("event: message\n"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, true, false, 0, "it is unknown"},
		"no answer in it": {status(200, "Content-Type", "text/event-stream"), true, false, 0, "it is unknown"},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{oops"))
		}, true, false, 0, "it is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			r, cfg := serve(t, real)
			s, h := start(t, cfg), *r.handler.Load()
			r.handle(answers(h, c.do))
			_, err := find(t, s, "echo").Call(t.Context(), json.RawMessage(`{}`), "k")
			var e *agent.Error
			if !errors.As(err, &e) || e.Retry != c.retry || e.Fresh != c.fresh || e.RetryAfter != c.after || !strings.Contains(e.Message, c.says) {
				t.Errorf("error %#v, want retry %v fresh %v after %v %q", err, c.retry, c.fresh, c.after, c.says)
			}
			r.handle(h)
			if got := call(t, s, "put").GetText(); got != "put" {
				t.Errorf("afterwards: %q", got)
			}
		})
	}
}

// TestHTTPServerIsGone: nothing was sent, so nothing is in doubt; when it is there
// again it is spoken to again.
func TestHTTPServerIsGone(t *testing.T) {
	r, c := serve(t, real)
	c.URL = r.URL + "/s/hush/mcp"                                                    // some servers want a token in the path
	c.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // else the request may go out on a connection that ends now
	s := start(t, c)
	r.Close()
	_, err := find(t, s, "echo").Call(t.Context(), json.RawMessage(`{}`), "k")
	if e := agent.AsError(err); !e.Retry || !e.Fresh {
		t.Errorf("error %#v", e)
	}
	if text := err.Error(); strings.Contains(text, "hush") || !strings.Contains(text, r.Listener.Addr().String()) {
		t.Errorf("the error shows the path, or no address: %s", text)
	}
	if _, err := mcp.Start(t.Context(), c); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), r.Listener.Addr().String()) {
		t.Errorf("the error shows the path, or no address: %v", err)
	}
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) == 0 {
		t.Error(tools, err)
	}
}

// TestHTTPServerRestarts forgets the session; the next call makes another.
func TestHTTPServerRestarts(t *testing.T) {
	r, c := serve(t, real)
	s := start(t, c)
	call(t, s, "echo")
	r.handle(real(t))
	for range 3 {
		if _, err := find(t, s, "put").Call(t.Context(), json.RawMessage(`{}`), "k"); err == nil {
			break
		} else if e := agent.AsError(err); !e.Retry || !e.Fresh {
			t.Fatalf("error %#v", e)
		}
	}
	if got := call(t, s, "put").GetText(); got != "put" {
		t.Error(got)
	}
}

// TestHTTPCancel ends a call that hangs, also at the server.
func TestHTTPCancel(t *testing.T) {
	_, c := serve(t, real)
	s := start(t, c)
	before, stopped := hung.Load(), released.Load()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := find(t, s, "hang").Call(ctx, json.RawMessage(`{}`), "k")
		done <- err
	}()
	wait(t, func() bool { return hung.Load() == before+1 })
	cancel(agent.ErrTimeout)
	if err := <-done; !errors.Is(err, agent.ErrTimeout) {
		t.Errorf("error %v", err)
	}
	wait(t, func() bool { return released.Load() == stopped+1 })
	if got := call(t, s, "put").GetText(); got != "put" {
		t.Error(got)
	}
}

// TestHTTPCloseEndsCalls: a call under way ends with its server.
func TestHTTPCloseEndsCalls(t *testing.T) {
	_, c := serve(t, real)
	s := start(t, c)
	before := hung.Load()
	done := make(chan error)
	go func() {
		_, err := find(t, s, "hang").Call(t.Context(), json.RawMessage(`{}`), "k")
		done <- err
	}()
	wait(t, func() bool { return hung.Load() == before+1 })
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	if e := agent.AsError(<-done); !e.Retry || e.Fresh {
		t.Errorf("error %#v", e)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestHTTPTokenRefused(t *testing.T) {
	_, c := serve(t, func(*testing.T) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	})
	_, err := mcp.Start(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), `tool "web" refused the token (HTTP 401); check its bearer`) || strings.Contains(err.Error(), "t0ken") {
		t.Errorf("error %v", err)
	}
}

// wait waits until is.
func wait(t *testing.T, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not come")
}

// TestA_21_AddressesAreShownWithoutSecrets: a server whose address cannot be used is reported without
// the user, the password, the path and the query in it.
func TestA_21_AddressesAreShownWithoutSecrets(t *testing.T) {
	for _, address := range []string{
		"http://ann:hush@ho%41st/hush", "http://ann:hush@127.0.0.1:1/hush?key=hush", "http://ann:hush@127.0.0.1:99999/hush", "ftp://ann:hush@127.0.0.1/", "http://ann:hu sh@h/", "hush",
	} {
		s, err := mcp.Start(t.Context(), mcp.Config{Name: "far", URL: address})
		if err == nil {
			_ = s.Close()
		}
		for ; err != nil; err = errors.Unwrap(err) {
			if text := err.Error(); strings.Contains(text, "hu") || strings.Contains(text, "ann") {
				t.Errorf("%s: %s", address, text)
			}
		}
	}
}

// forgets returns a handler that refuses requests of the sessions that it had seen when forget was called.
func forgets(next http.Handler, status int, body string) (h http.Handler, forget func()) {
	var mu sync.Mutex
	forgotten, seen := map[string]bool{}, map[string]bool{}
	known := func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[id] = id != ""
		return !forgotten[id]
	}
	h = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if known(req.Header.Get("Mcp-Session-Id")) {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	return h, func() {
		mu.Lock()
		defer mu.Unlock()
		forgotten = maps.Clone(seen)
	}
}

// TestHTTPSessionIsUnknown: a session that the server no longer knows is opened anew, and a call that it refused for
// that reason is made again, whatever its effect, because it was not carried out.
func TestHTTPSessionIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"404 without a body":                {404, ""},
		"404 with a text":                   {404, "Session not found"},
		"404 with an error without id":      {404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`},
		"404 with an error with another id": {404, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`},
		"400, the id is missing":            {400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`},
		"400, not initialized":              {400, `{"jsonrpc":"2.0","id":"x","error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`},
		"400, a text":                       {400, "Invalid or missing session ID"},
		"400, other JSON":                   {400, `{"detail":"Session ab12 has expired"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, cfg := serve(t, real)
			h, forget := forgets(*r.handler.Load(), c.status, c.body)
			r.handle(h)
			s := start(t, cfg)
			forget()
			if got := call(t, s, "put").GetText(); got != "put" {
				t.Error(got)
			}
			if tools, err := s.Tools(t.Context()); err != nil || len(tools) == 0 {
				t.Error(tools, err)
			}
			if got := call(t, s, "pid").GetText(); got == "" { // unsafe
				t.Error("no answer")
			}
		})
	}
}

// TestHTTPSessionStaysUnknown: a server that refuses each session is called twice, not for ever, and the error is its own.
func TestHTTPSessionStaysUnknown(t *testing.T) {
	r, cfg := serve(t, real)
	s, h := start(t, cfg), *r.handler.Load()
	var calls atomic.Int32
	r.handle(answers(h, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"Session is missing"}}`)
	}))
	_, err := find(t, s, "put").Call(t.Context(), json.RawMessage(`{}`), "k")
	if e := agent.AsError(err); !e.Fresh || e.Retry || e.Message != "the server refused the call (HTTP 400): Session is missing" || calls.Load() != 2 {
		t.Errorf("%d calls, %#v", calls.Load(), e)
	}
}

// TestHTTPCutOffAndUnknown: a call that was accepted, and whose stream cannot be resumed because the session is
// unknown, may have taken effect and is not made again here.
func TestHTTPCutOffAndUnknown(t *testing.T) {
	for _, body := range []string{"", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`} {
		r, cfg := serve(t, real)
		s, h := start(t, cfg), *r.handler.Load()
		var calls atomic.Int32
		cut := answers(h, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("id: 1\nretry: 1\ndata:\n\n"))
		})
		r.handle(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodGet {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, body)
				return
			}
			cut.ServeHTTP(w, req)
		}))
		_, err := find(t, s, "put").Call(t.Context(), json.RawMessage(`{}`), "k")
		if e := agent.AsError(err); e.Fresh || !e.Retry || calls.Load() != 1 || !strings.Contains(e.Message, "it is unknown whether") {
			t.Errorf("%d calls, %#v", calls.Load(), e)
		}
		r.handle(h)
		if got := call(t, s, "put").GetText(); got != "put" {
			t.Error(got)
		}
	}
}

// source is a secret.Source; the tokens before the last one are refused.
type source struct{ n atomic.Int32 }

func (s *source) name() string                                 { return fmt.Sprintf("canary-token-%d", s.n.Load()) }
func (s *source) Token(context.Context) (secret.Secret, error) { return secret.New(s.name()), nil }
func (s *source) Discard(used secret.Secret) {
	if used.Reveal() == s.name() {
		s.n.Add(1)
	}
}

// TestHTTPCredentials: headers and tokens are sent with each request, a request that is refused with a token is sent once
// more with a new one, and what the server repeats of them is hidden.
func TestHTTPCredentials(t *testing.T) {
	r, c := serve(t, real)
	h := *r.handler.Load()
	tokens := &source{}
	var accepted atomic.Pointer[string]
	accept := func(token string) { accepted.Store(&token) }
	accept(tokens.name())
	r.handle(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("X-Api-Key") != "canary-header" || req.Header.Get("Authorization") != "Bearer "+*accepted.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, req)
	}))
	c.Bearer, c.Tokens, c.Headers, c.Prefix = secret.Secret{}, tokens, map[string]secret.Secret{"x-api-key": secret.New("canary-header")}, "web_"
	s := start(t, c)
	if got := call(t, s, "web_put").GetText(); got != "put" {
		t.Error(got)
	}
	accept("canary-token-1")
	if got := call(t, s, "web_put").GetText(); got != "put" || tokens.n.Load() != 1 {
		t.Errorf("%q with token %d", got, tokens.n.Load())
	}
	echoed, err := find(t, s, "web_echo").Call(t.Context(), json.RawMessage(`{"text":"canary-token-1 canary-header"}`), "k")
	if err != nil || strings.Contains(echoed.GetText(), "canary") {
		t.Errorf("%v %v", echoed, err)
	}
	accept("another")
	if _, err := find(t, s, "web_put").Call(t.Context(), json.RawMessage(`{}`), "k"); err == nil || !strings.Contains(err.Error(), "check its bearer, oauth or headers") {
		t.Error(err)
	}
}

// TestVersion: the version of MCP that is offered can be set.
func TestVersion(t *testing.T) {
	for version, want := range map[string]string{"": "2026-07-28", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25"} {
		var offered atomic.Pointer[string]
		_, c := serve(t, func(t *testing.T) http.Handler {
			h := handlerOf(t, "new", false)
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(bytes.NewReader(body))
				if m := regexp.MustCompile(`rotocolVersion":"([0-9-]+)"`).FindSubmatch(body); m != nil && offered.Load() == nil {
					v := string(m[1])
					offered.Store(&v)
				}
				h.ServeHTTP(w, req)
			})
		})
		c.Version = version
		start(t, c)
		if got := offered.Load(); got == nil || *got != want {
			t.Errorf("%q: offered %v, want %s", version, got, want)
		}
	}
}
