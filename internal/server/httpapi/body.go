package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// body is the body of a request in memory, with the error of decoding it. The gateway keeps
// only the text of that error.
type body struct {
	*bytes.Buffer
	fault  error
	params map[string]string // the parameters of the path
}

func (*body) Close() error { return nil }

// readAll returns the rest of a body. It does not copy a body that is in memory, and does not keep it there.
func readAll(r io.Reader) ([]byte, error) {
	if b, ok := r.(*body); ok {
		rest := b.Next(b.Len())
		b.Buffer = &bytes.Buffer{}
		return rest, nil
	}
	return io.ReadAll(r)
}

// readBody wraps the handler of a route: it checks that the query has only known parameters and
// names the same tenant as the path, and reads the body, whose media type, size and transfer
// rate it checks.
func (s *API) readBody(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if isProbe(r, offered(r)) {
			return
		}
		query := r.URL.Query()
		if err := cmp.Or(checkQuery(r, query), oneTenant(query, params)); err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		b, err := s.read(w, r)
		var media *mediaError
		switch {
		case errors.As(err, &media):
			s.failWith(w, r, wire.NotServed("%v", media), http.StatusUnsupportedMediaType)
		case err != nil:
			s.fail(w, r, wire.Status(err))
		default:
			call.InboundOf(r.Context()).Record.AddReceived(len(b))
			r.Body = &body{Buffer: bytes.NewBuffer(b), params: params}
			next(w, r, params)
		}
	}
}

// mediaError is the error for a request body of an unsupported content type.
type mediaError struct {
	sent string
	yaml bool // YAML is accepted here, too
	json bool // only JSON is accepted here
}

func (e *mediaError) Error() string {
	switch {
	case e.json:
		return fmt.Sprintf("content type %q is not accepted here; send %s", e.sent, wire.TypeJSON)
	case e.yaml:
		return fmt.Sprintf("content type %q is not accepted; send %s, %s or %s", e.sent, typeYAML, wire.TypeA2A, wire.TypeJSON)
	}
	return fmt.Sprintf("content type %q is not accepted; send %s or %s", e.sent, wire.TypeA2A, wire.TypeJSON)
}

// read reads the body of a request.
func (s *API) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
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
	isYAML := yamlBody(r)
	json := call.InboundOf(r.Context()).AtAgent
	if err != nil || media != wire.TypeJSON && (json || media != wire.TypeA2A && !isYAML) || encoding != "" {
		return nil, &mediaError{sent: strings.TrimSpace(sent + " " + encoding), yaml: takesYAML(r), json: json}
	}
	in := s.chain.UploadOf(call.InboundOf(r.Context()))
	defer in.Done()
	if err := in.Receive(r.Context(), r.ContentLength); err != nil {
		return nil, err
	}
	b, err := readAtRate(r.Context(), http.NewResponseController(w), r.Body, r.ContentLength, in)
	if err != nil || !isYAML {
		return b, err
	}
	return teamRequest(r, b)
}

// chunkSize is the maximum number of bytes to read at a time, and to allocate in advance.
const chunkSize = 32 << 10

// readAtRate reads a body to its end. After the first 5 seconds it must arrive with at
// least 1 KiB/s on average. size is the length that the caller has declared, -1 if unknown.
// What is read is reserved in in before; the memory for a declared length by the caller. The errors are INSUFFICIENT_RESOURCES,
// TIMEOUT_EXCEEDED and INVALID_REQUEST.
func readAtRate(ctx context.Context, control *http.ResponseController, from io.Reader, size int64, in *call.Upload) ([]byte, error) {
	defer func() { _ = control.SetReadDeadline(time.Time{}) }() // some connections have no deadlines
	var all bytes.Buffer
	all.Grow(int(min(max(size, 0), chunkSize)) + bytes.MinRead)
	start := time.Now()
	for {
		_ = control.SetReadDeadline(start.Add(5*time.Second + time.Duration(all.Len()>>10)*time.Second))
		more := int64(chunkSize)
		if size >= 0 {
			more = min(more, size-int64(all.Len())+1) // one more, to find the end
		}
		if err := in.Reserve(more); err != nil {
			return nil, err
		}
		if size < 0 {
			if err := in.Receive(ctx, more); err != nil {
				return nil, err
			}
		} else if all.Len() >= chunkSize { // the caller does send what it has declared
			all.Grow(int(size) - all.Len() + bytes.MinRead)
		}
		_, err := io.CopyN(&all, from, more)
		switch {
		case all.Len() > wire.MaxBody:
			return nil, wire.TooLarge(wire.MaxBody)
		case errors.Is(err, io.EOF):
			return all.Bytes(), nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, agent.Errorf(agent.CodeDeadlineExceeded, agent.ReasonTimeout, "the body arrived slower than 1 KiB/s")
		case err != nil:
			return nil, wire.Invalid("", fmt.Sprintf("ended early, after %d bytes", all.Len()))
		}
	}
}

// typeYAML is the media type of a request whose body is the file of a team.
const typeYAML = "application/yaml"

// takesYAML reports whether a request may have a body of typeYAML: it creates or updates a
// team.
func takesYAML(r *http.Request) bool {
	const teams = "/team/v1/teams"
	return r.Method == http.MethodPost && r.URL.Path == teams || r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, teams+"/")
}

// yamlBody reports whether the body of a request is a YAML file that the request may have.
func yamlBody(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == typeYAML && takesYAML(r)
}

// teamRequest returns the JSON of a request whose body is a YAML file and whose other
// fields are in the query.
func teamRequest(r *http.Request, file []byte) ([]byte, error) {
	if !utf8.Valid(file) {
		return nil, wire.Invalid("yaml", "must be UTF-8")
	}
	fields := map[string]any{"yaml": string(file)}
	for name, values := range r.URL.Query() {
		switch name {
		case "etag":
			fields[name] = values[0]
		case "validate_only", "validateOnly":
			dry, err := strconv.ParseBool(values[0])
			if err != nil {
				return nil, wire.Invalid("validateOnly", "must be true or false")
			}
			fields["validateOnly"] = dry
		}
	}
	return json.Marshal(fields)
}
