package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// body is a request body that was read, and what was wrong with it: the gateway
// keeps only the text of a decoding error.
type body struct {
	*bytes.Buffer
	fault  error
	params map[string]string // of the path
}

func (*body) Close() error { return nil }

// readAll reads the rest of a body. What is in memory already is not copied.
func readAll(r io.Reader) ([]byte, error) {
	if b, ok := r.(*body); ok {
		return b.Next(b.Len()), nil
	}
	return io.ReadAll(r)
}

// readBody is what every route runs first: the path and the query name one tenant, and
// the body has a known type, a limit, and a least speed.
func (s *Server) readBody(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if isProbe(r, offered(r)) {
			return
		}
		if err := oneTenant(r.URL.Query(), params); err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		b, err := read(w, r)
		var media *mediaError
		switch {
		case errors.As(err, &media):
			s.failWith(w, r, wire.NotServed("%v", media), http.StatusUnsupportedMediaType)
		case err != nil:
			s.fail(w, r, wire.Status(err))
		default:
			r.Body = &body{Buffer: bytes.NewBuffer(b), params: params}
			next(w, r, params)
		}
	}
}

type mediaError struct {
	sent string
	yaml bool // may be sent, too
	json bool // only JSON may be sent
}

func (e *mediaError) Error() string {
	switch {
	case e.json:
		return fmt.Sprintf("content type %q is not taken here; send %s", e.sent, wire.TypeJSON)
	case e.yaml:
		return fmt.Sprintf("content type %q is not taken; send %s, %s or %s", e.sent, typeYAML, wire.TypeA2A, wire.TypeJSON)
	}
	return fmt.Sprintf("content type %q is not taken; send %s or %s", e.sent, wire.TypeA2A, wire.TypeJSON)
}

func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > wire.MaxBody {
		return nil, wire.TooLarge(wire.MaxBody)
	}
	if r.ContentLength == 0 || r.Body == nil {
		return nil, nil
	}
	sent := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(sent)
	encoding := r.Header.Get("Content-Encoding")
	if strings.EqualFold(encoding, "identity") {
		encoding = ""
	}
	isYAML := media == typeYAML && takesYAML(r)
	json := inboundOf(r.Context()).atAgent
	if err != nil || media != wire.TypeJSON && (json || media != wire.TypeA2A && !isYAML) || encoding != "" {
		return nil, &mediaError{sent: strings.TrimSpace(sent + " " + encoding), yaml: takesYAML(r), json: json}
	}
	b, err := readSlowly(http.NewResponseController(w), r.Body, r.ContentLength)
	if err != nil || !isYAML {
		return b, err
	}
	return teamRequest(r, b)
}

// atOnce is how much is read, and how much is allocated beforehand, in bytes.
const atOnce = 32 << 10

// readSlowly reads all, as long as it comes with at least 1 KiB/s after 5 s. size is
// what its sender says of it; -1 is not known.
func readSlowly(control *http.ResponseController, from io.Reader, size int64) ([]byte, error) {
	defer func() { _ = control.SetReadDeadline(time.Time{}) }() // not every connection has one
	var all bytes.Buffer
	all.Grow(int(min(max(size, 0), atOnce)) + bytes.MinRead)
	start := time.Now()
	for {
		_ = control.SetReadDeadline(start.Add(5*time.Second + time.Duration(all.Len()>>10)*time.Second))
		_, err := io.CopyN(&all, from, atOnce)
		switch {
		case all.Len() > wire.MaxBody:
			return nil, wire.TooLarge(wire.MaxBody)
		case errors.Is(err, io.EOF):
			return all.Bytes(), nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the body came slower than 1 KiB/s")
		case err != nil:
			return nil, wire.Invalid("", fmt.Sprintf("ended early, after %d bytes", all.Len()))
		}
	}
}
