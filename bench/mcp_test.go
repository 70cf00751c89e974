package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// BenchmarkMCP is a small task through the door for clients of MCP, in both versions of the protocol, against the same task over
// JSON-RPC.
func BenchmarkMCP(b *testing.B) {
	t := &measure.Table{Title: "A small task through the door for clients of MCP", Goals: []string{"xcpu of 2025-11-25 against JSON-RPC <= 1.3", "xcpu of 2026-07-28 against JSON-RPC <= 1.3"}}
	through := func(header http.Header, meta string) func(*testing.B) (measure.Call, func()) {
		return func(b *testing.B) (measure.Call, func()) {
			b.Helper()
			at, stop := serveWith(b, echo(), &teamv1.ServerSettings{Grpc: loopback, Http: loopback, Mcp: &teamv1.McpDoor{}})
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			client := &http.Client{Transport: withHeader{transport, header}}
			return func(ctx context.Context, n int64) error {
					return postOne(ctx, client, at.URL+"/mcp", toolBody(n, meta), isToolResult)
				}, func() {
					transport.CloseIdleConnections()
					stop()
				}
		}
	}
	servers(b, t,
		measure.Rival{Name: "JSON-RPC", Start: func(b *testing.B) (measure.Call, func()) {
			b.Helper()
			at, stop := serveWith(b, echo(), &teamv1.ServerSettings{Grpc: loopback, Http: loopback, Mcp: &teamv1.McpDoor{}})
			return post(at.URL+"/rpc", rpcBody, isTask, stop)
		}},
		measure.Rival{Name: "2025-11-25", Start: through(http.Header{"Mcp-Session-Id": {"n-1"}}, "")},
		measure.Rival{Name: "2026-07-28", Start: through(
			http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"bench"}},
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},`,
		)},
	)
}

// toolBody is the n-th call.
func toolBody(n int64, meta string) []byte {
	text := strings.Repeat("x", messageBytes-20) + fmt.Sprint(n)
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s"name":"bench","arguments":{"message":%q}}}`, n, meta, text)
}

// isToolResult finds out whether an answer has the result of a tool that did not fail.
func isToolResult(answer []byte) bool {
	return bytes.Contains(answer, []byte(`"content":[`)) && !bytes.Contains(answer, []byte(`"isError"`))
}
