// Package mcpdoor serves agents and teams as the tools of an MCP server, over streamable HTTP and in the protocol versions
// 2025-11-25 and 2026-07-28. It translates only: each request becomes calls of the services, with all that these have in
// common. It keeps no session: what a later request needs of an earlier one is in ids that clients send back.
package mcpdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/internal/server/call"
	"github.com/agentteams/team-server/internal/server/service"
	"github.com/agentteams/team-server/internal/wire"
)

// Path is where the door is served, and MetadataPath where its OAuth metadata is (RFC 9728).
const (
	Path         = "/mcp"
	MetadataPath = "/.well-known/oauth-protected-resource/mcp"
)

// Versions of the protocol. Without sessions, the earlier ones differ from 2025-11-25 in nothing that the door uses.
const (
	version2026 = "2026-07-28"
	version2025 = "2025-11-25"
)

var versions = []string{version2026, version2025, "2025-06-18", "2025-03-26"}

// Config configures a Door. All fields are required.
type Config struct {
	Chain *call.Chain
	Table *service.Table
	// Version is the version of the program.
	Version string
	// StallTime is how long a client may accept no data before its stream is ended.
	StallTime time.Duration
}

// Door serves MCP. It is safe for concurrent use.
type Door struct {
	Config
	repeats repeats
	waiting waiting
}

// New returns a Door.
func New(config Config) *Door {
	return &Door{Config: config, repeats: newRepeats(), waiting: newWaiting()}
}

// request is a request of a client.
type request struct {
	wire.RPCRequest
	meta    meta
	modern  bool   // it is of version 2026-07-28
	session string // "" without one
	owner   string // who calls
	record  *call.Record
	reply   *reply
}

// meta is what clients send beside the parameters of a request.
type meta struct {
	ProgressToken json.RawMessage `json:"progressToken"`
	Version       string          `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities  capabilities    `json:"io.modelcontextprotocol/clientCapabilities"`
}

// capabilities are those of a client that the door uses.
type capabilities struct {
	Elicitation *struct {
		Form json.RawMessage `json:"form"`
		URL  json.RawMessage `json:"url"`
	} `json:"elicitation"`
	Extensions map[string]json.RawMessage `json:"extensions"`
}

// elicits reports whether the client shows forms. An empty object means that it does.
func (c capabilities) elicits() bool {
	return c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// Serve serves a POST. Its body is in memory.
func (d *Door) Serve(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	in := call.InboundOf(r.Context())
	ctx := call.Translated(r.Context())
	q := &request{session: r.Header.Get("Mcp-Session-Id"), record: in.Record, reply: newReply(w, d.StallTime)}
	defer q.reply.close()
	if in.Caller != nil {
		q.owner = in.Caller.Owner()
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		q.reply.fail(nil, http.StatusBadRequest, &wire.RPCError{Code: wire.RPCParse, Message: "the body ended early"})
		return
	}
	if answer, ok := parseAnswer(b); ok {
		d.elicited(ctx, q.owner, answer)
		q.reply.accepted()
		return
	}
	rpc, fault := wire.ParseRPC(b)
	if fault != nil {
		q.reply.fail(rpc.ID, http.StatusBadRequest, fault)
		return
	}
	q.RPCRequest = rpc
	if code, fault := q.readMeta(r.Header); fault != nil {
		q.reply.fail(rpc.ID, code, fault)
		return
	}
	if rpc.Notification {
		d.notified(q)
		q.reply.accepted()
		return
	}
	d.answer(ctx, q)
}

// maxToken is the maximum number of bytes of a progressToken, which each notification repeats.
const maxToken = 256

// readMeta reads the version and the capabilities of a request, and checks the headers that must repeat them. code is the
// HTTP status of the answer with the error.
func (q *request) readMeta(h http.Header) (code int, fault *wire.RPCError) {
	var params struct {
		Meta meta   `json:"_meta"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(q.Params, &params); err != nil {
		return http.StatusBadRequest, &wire.RPCError{Code: wire.RPCInvalidParams, Message: mismatch("params", err).text}
	}
	if q.meta = params.Meta; string(q.meta.ProgressToken) == "null" {
		q.meta.ProgressToken = nil
	}
	if len(q.meta.ProgressToken) > maxToken {
		return http.StatusBadRequest, &wire.RPCError{Code: wire.RPCInvalidParams, Message: fmt.Sprintf("_meta.progressToken has %d bytes; at most %d are allowed", len(q.meta.ProgressToken), maxToken)}
	}
	version := h.Get("Mcp-Protocol-Version")
	if q.Method == "initialize" { // some clients name a version that they do not speak yet
		return 0, nil
	}
	for _, v := range []string{version, q.meta.Version} {
		if v != "" && !slices.Contains(versions, v) {
			data, _ := json.Marshal(map[string]any{"supported": versions, "requested": v})
			return http.StatusBadRequest, &wire.RPCError{Code: mcp.CodeUnsupportedProtocolVersion, Message: "unsupported protocol version " + v + "; supported: " + strings.Join(versions, ", "), Data: data}
		}
	}
	if q.modern = q.meta.Version == version2026 || version == version2026; !q.modern {
		q.meta.Capabilities = capabilitiesOf(q.session)
		return 0, nil
	}
	if q.Notification {
		return 0, nil
	}
	var header string
	switch {
	case version != q.meta.Version:
		header = "MCP-Protocol-Version"
	case h.Get("Mcp-Method") != q.Method:
		header = "Mcp-Method"
	case q.Method == "tools/call" && h.Get("Mcp-Name") != params.Name:
		header = "Mcp-Name"
	default:
		return 0, nil
	}
	return http.StatusBadRequest, &wire.RPCError{Code: mcp.CodeHeaderMismatch, Message: "the header " + header + " must be there and say what the body says"}
}

// answer answers a request.
func (d *Door) answer(ctx context.Context, q *request) {
	var result any
	var err error
	switch q.Method {
	case "initialize":
		result, err = d.initialize(q)
	case "server/discover":
		result = d.discover()
	case "ping":
		result = empty{ResultType: q.resultType()}
	case "tools/list":
		result, err = d.list(ctx, q)
	case "tools/call":
		d.call(ctx, q)
		return
	case "tasks/get", "tasks/update", "tasks/cancel":
		result, err = d.task(ctx, q)
	default:
		err = service.NoMethod(q.Method).Err()
	}
	q.finish(result, err)
}

// finish sends the result of a request, or its error. It reports whether the client has got it, as far as one can know.
func (q *request) finish(result any, err error) bool {
	if err == nil {
		return q.reply.result(q.ID, result) == nil
	}
	st, code := wire.Status(err), http.StatusOK
	fault := wire.RPCErrorOf(st)
	if st.Code() == codes.Unimplemented && q.modern {
		code = http.StatusNotFound
	}
	var own *rpcError
	if errors.As(err, &own) {
		fault, st = &wire.RPCError{Code: own.code, Message: own.text}, status.New(codes.InvalidArgument, own.text)
	}
	q.record.SetRefusal(st) // of a request that reaches no call: its HTTP status is mostly 200
	q.reply.fail(q.ID, code, fault)
	return true
}

// rpcError is an error of the protocol itself.
type rpcError struct {
	code int
	text string
}

func (e *rpcError) Error() string { return e.text }

// mismatch returns the error of parameters that could not be decoded. of names them.
func mismatch(of string, err error) *rpcError {
	field, what := wire.Mismatch(err)
	if field != "" {
		of += "." + field
	}
	return &rpcError{wire.RPCInvalidParams, of + " " + what}
}

// resultType returns the type of a complete result, which version 2025-11-25 does not have.
func (q *request) resultType() string {
	if q.modern {
		return "complete"
	}
	return ""
}

// empty is a result without content.
type empty struct {
	ResultType string `json:"resultType,omitempty"`
}

// serverCapabilities are those of the door.
func serverCapabilities() map[string]any {
	return map[string]any{"tools": struct{}{}, "extensions": map[string]any{tasksExtension: struct{}{}}}
}

const instructions = "Each tool is an agent or a team of agents, and a call is a task of it. If a call ends early, call the tool again " +
	"with the same arguments: the task goes on meanwhile. If a task asks a question, call the tool with its id as task and the answer as message."

func (d *Door) info() *mcp.Implementation {
	return &mcp.Implementation{Name: "team-server", Version: d.Version}
}

// initialize answers the first request of version 2025-11-25. The id of the session says what the client can do.
func (d *Door) initialize(q *request) (any, error) {
	var params struct {
		ProtocolVersion string       `json:"protocolVersion"`
		Capabilities    capabilities `json:"capabilities"`
	}
	if err := json.Unmarshal(q.Params, &params); err != nil {
		return nil, mismatch("params", err)
	}
	version := params.ProtocolVersion
	if version == version2026 || !slices.Contains(versions, version) {
		version = version2025
	}
	q.reply.w.Header().Set("Mcp-Session-Id", newSession(params.Capabilities))
	return map[string]any{"protocolVersion": version, "capabilities": serverCapabilities(), "serverInfo": d.info(), "instructions": instructions}, nil
}

// discover answers the first request of version 2026-07-28.
func (d *Door) discover() any {
	return map[string]any{
		"resultType": "complete", "supportedVersions": versions, "capabilities": serverCapabilities(), "instructions": instructions,
		"serverInfo": d.info(), "ttlMs": 0, "cacheScope": "private", "_meta": map[string]any{mcp.MetaKeyServerInfo: d.info()},
	}
}

const sessionElicits = "e-"

// newSession returns the id of a session of version 2025-11-25.
func newSession(c capabilities) string {
	if c.elicits() {
		return sessionElicits + uuid.NewString()
	}
	return "n-" + uuid.NewString()
}

// capabilitiesOf returns what the client of a session can do.
func capabilitiesOf(session string) (c capabilities) {
	if strings.HasPrefix(session, sessionElicits) {
		_ = json.Unmarshal([]byte(`{"elicitation":{"form":{}}}`), &c) // always valid
	}
	return c
}

// notified takes a notification. Of those that clients send, only that of a cancel matters.
func (d *Door) notified(q *request) {
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if q.Method == "notifications/cancelled" && json.Unmarshal(q.Params, &params) == nil {
		d.waiting.cancel(q.callKey(params.RequestID))
	}
}

// callKey identifies a call of a client while it lasts.
func (q *request) callKey(id json.RawMessage) string {
	return q.owner + " " + q.session + " " + string(id)
}
