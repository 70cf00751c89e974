//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentteams/team-server/bench/measure"
	"github.com/agentteams/team-server/internal/testkit/child"
)

// BenchmarkConnections opens connections to a whole server with its tasks in memory, and looks at how
// much its resident memory grows: connections that are idle, and connections with an open stream of a
// task that runs.
func BenchmarkConnections(b *testing.B) {
	const patient = "version: v1\nagents:\n  patient: {scripted: {steps: [{delay_ms: 600000}, {text: late}]}}\n"
	program, file := child.Build(b, repository, "./cmd/team-server"), filepath.Join(b.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte(patient), 0o600); err != nil {
		b.Fatal(err)
	}
	t := &measure.Table{Title: "open connections over HTTP, store in memory", Once: true, Head: "kind\tconnections\tmemory each", Goals: []string{
		"memory: growth of the resident memory of the server by a connection; a stream has a running task of its own",
	}}
	n := 200
	if w := measure.BudgetOf(b); w.Ops > 0 {
		n = min(n, max(w.Ops, 10))
	}
	for _, kind := range []struct {
		name string
		open func(ctx context.Context, c *http.Client, base string, i int) (*http.Response, error)
	}{{"idle", health}, {"stream", stream}} {
		s, err := child.Serve(command(program, "serve", "-c", file, "--http=127.0.0.1:0", "--grpc=off", "--log-level=error"))
		if err != nil {
			b.Fatal(err)
		}
		base := strings.TrimSuffix(address(s.Ready), "/rpc")
		ctx, cancel := context.WithCancel(b.Context())
		var before float64
		for i := range n + 20 { // the first ones warm it up
			if i == 20 {
				before = residentMemory(s.Cmd.Process.Pid)
			}
			client := &http.Client{Transport: &http.Transport{}} // a connection of its own
			b.Cleanup(client.CloseIdleConnections)
			resp, err := kind.open(ctx, client, base, i)
			if err != nil {
				b.Fatal(err)
			}
			if kind.name == "stream" {
				defer resp.Body.Close()
				continue
			}
			_ = resp.Body.Close() // it is empty
		}
		grown := residentMemory(s.Cmd.Process.Pid) - before
		t.Add("%s\t%d\t%.0f B", kind.name, n, max(grown, 0)/float64(n))
		cancel()
		s.End(syscall.SIGKILL) // tasks run
	}
	b.ReportMetric(0, "ns/op") // of all of it: says nothing
	t.Print()
}

func health(ctx context.Context, c *http.Client, base string, _ int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, base+"/healthz", http.NoBody)
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

// stream sends a message, and returns when the first event of its task has arrived.
func stream(ctx context.Context, c *http.Client, base string, i int) (*http.Response, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"s%d","role":"ROLE_USER","parts":[{"text":"wait"}]}}}`, i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/rpc", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("A2A-Version", "1.0")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReaderSize(resp.Body, 4096).ReadString('\n')
	if err == nil && !strings.Contains(line, "task") && !strings.HasPrefix(line, "id:") && !strings.HasPrefix(line, ":") {
		err = fmt.Errorf("the stream begins with %q", line)
	}
	return resp, err
}

// residentMemory returns the resident memory of a process, in bytes.
func residentMemory(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kb float64
	_, _ = fmt.Sscanf(rest, "%f kB", &kb) // 0 if there is none
	return kb * 1024
}
