package interoprig

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

const documentHead = `# Interoperation

What the SDKs of others do with this server, and this server with theirs: each as a program of its own, in the
version that its package manager installs. This page is generated from the tests of each change: ` + "`make interop`" + `
runs them and fails where a cell is not as it is here. The agent frameworks at the end are played by ` + "`make night-clients`" + `.

` + "`ok`" + `: all of the step succeeds. ` + "`part`" + `: the client cannot do all of it. ` + "`-`" + `: the client has no call for it,
or the member's server cannot do it.
Below each table is why, with the bytes where the fault is the client's.

A client reads the card; sends, streams, gets, lists, cancels and subscribes; answers a question; keeps push
configurations and receives their notifications (` + "`receive`" + `); and is refused calls for a task that does not exist
(` + "`unknown`" + `) or has ended (` + "`ended`" + `). A member of a team answers, streams its answer in pieces, asks the team's
client a question, confirms a cancel, and fails. Members with the binding ` + "`AgentService`" + ` are the agents of
[examples/other-languages](../examples/other-languages) by [protos alone](agent-service.md#in-other-languages).

In Chromium, a page of another origin with ` + "`@a2a-js/sdk` 1.3.0 sends, streams and gets over JSONRPC and HTTP+JSON where\n[`server.cors`](configuration-server.md#server)" + ` names the page's origin; elsewhere the browser refuses the calls.

An agent of Mastra (@mastra/hono 1.7.9 with @mastra/server 1.67.0) takes messages only if its MastraServer is made with a
taskStore: otherwise its streams break off, and calls of it fail with UNAVAILABLE.
`

// document returns docs/interop.md, made of the golden matrices of the modules.
func document(t *testing.T) []byte {
	t.Helper()
	out := bytes.NewBufferString(documentHead)
	for _, of := range []struct{ title, module string }{{"SDKs of A2A 1.0", "interop"}, {"SDKs of A2A 0.3", "interop03"}, {"Agent frameworks", "night"}} {
		b, err := os.ReadFile(Repository(t, "tests", of.module, golden))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "\n## %s\n\n%s", of.title, b)
	}
	return out.Bytes()
}
