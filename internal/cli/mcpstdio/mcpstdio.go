// Package mcpstdio passes the messages of an MCP client on standard input on to a server over HTTP, and its answers back.
package mcpstdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agentteams/team-server/internal/wire"
)

// Server is where messages go.
type Server struct {
	URL   string // of the MCP server
	Token string // API key; "" means none
	Web   *http.Client
}

// Serve passes messages on until the client closes its end. Each message is a line.
func Serve(ctx context.Context, in io.Reader, out io.Writer, to Server) {
	(&stdio{to: to, out: out, calls: map[string]context.CancelFunc{}}).run(ctx, in)
}

// stdio passes messages on. Each request has a connection of its own; a cancel of version 2026-07-28 closes it.
type stdio struct {
	to  Server
	out io.Writer

	mu      sync.Mutex
	session string                        // guarded by mu
	calls   map[string]context.CancelFunc // by id; guarded by mu
}

// lastAnswers is how long calls may still be answered after the client has closed its end. It waits for two seconds.
const lastAnswers = time.Second

func (p *stdio) run(ctx context.Context, from io.Reader) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var open sync.WaitGroup
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			open.Go(func() { p.pass(ctx, line) })
		}
		if err != nil { // the client has closed its end
			late := time.AfterFunc(lastAnswers, stop)
			defer late.Stop()
			open.Wait()
			return
		}
	}
}

// envelope is what the transport must know of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

func (p *stdio) pass(ctx context.Context, line []byte) {
	var m envelope
	_ = json.Unmarshal(line, &m) // the server answers what is no JSON
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	session := p.session
	if m.ID != nil && m.Method != "" && m.Params.Meta.Version != "" {
		p.calls[string(m.ID)] = cancel
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.calls, string(m.ID))
		}()
	}
	if end := p.calls[string(m.Params.RequestID)]; end != nil && m.Method == "notifications/cancelled" {
		end()
	}
	p.mu.Unlock()
	if err := p.post(ctx, line, m, session); err != nil && ctx.Err() == nil && m.ID != nil {
		b, _ := wire.RPCFailure(m.ID, &wire.RPCError{Code: wire.RPCInternal, Message: err.Error()}) // always encodes
		p.write(b)
	}
}

func (p *stdio) post(ctx context.Context, line []byte, m envelope, session string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.to.URL, bytes.NewReader(line))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Content-Type": wire.TypeJSON, "Accept": wire.TypeJSON + ", " + wire.TypeSSE, "Mcp-Session-Id": session,
		"Mcp-Protocol-Version": m.Params.Meta.Version, "Mcp-Method": m.Method, "Mcp-Name": m.Params.Name,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if p.to.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.to.Token)
	}
	resp, err := p.to.Web.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		p.mu.Lock()
		p.session = id
		p.mu.Unlock()
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), wire.TypeSSE) {
		b, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return err
		case resp.StatusCode >= http.StatusBadRequest && m.ID != nil && !answers(b, m.ID):
			return refusal(resp.Status, b)
		case len(b) > 0:
			p.write(b)
		}
		return nil
	}
	return p.events(resp.Body, m.ID)
}

// answers reports whether a body is the answer to the request with an id.
func answers(body []byte, id json.RawMessage) bool {
	var to envelope
	return json.Unmarshal(body, &to) == nil && to.Method == "" && bytes.Equal(to.ID, id)
}

// refusal returns what the body of a refused request says, or its status.
func refusal(status string, body []byte) error {
	var says struct {
		Error wire.RPCError `json:"error"`
	}
	if json.Unmarshal(body, &says) != nil || says.Error.Message == "" {
		return fmt.Errorf("the server answers %s", status)
	}
	return errors.New(says.Error.Message)
}

// events passes on the messages of a stream. The last one is the answer to the request with an id: a stream that ends
// before is an error.
func (p *stdio) events(body io.Reader, id json.RawMessage) error {
	in := bufio.NewReader(body)
	answered := false
	for err := error(nil); err == nil; {
		var line []byte
		line, err = in.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			p.write(data)
			answered = answered || answers(data, id)
		}
		if err != nil && !errors.Is(err, io.EOF) && !answered {
			return err
		}
	}
	if !answered {
		return errors.New("the server has ended the stream before its answer; send the request again")
	}
	return nil
}

func (p *stdio) write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "%s\n", bytes.TrimSpace(b)) // the client may be gone
}
