package tests

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestT_31_HeldGRPCMessages has an account begin 40 gRPC messages of 4 MiB and send only a part of each. Eight
// of them have the 32 MiB that the account may have under way; the other calls end, and calls of others are answered.
func TestT_31_HeldGRPCMessages(t *testing.T) {
	const calls = 40
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	ended := make(chan string, calls)
	var holding sync.WaitGroup
	for range calls {
		r, w := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+target.GRPC+"/lf.a2a.v1.A2AService/SendMessage", r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		req.Header.Set("Authorization", "Bearer acme/ann")
		holding.Go(func() {
			_, _ = w.Write(append([]byte{0, 0, 0x3f, 0xff, 0xff}, make([]byte, 1000)...))
		})
		holding.Go(func() {
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return // it was held until the end
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); ctx.Err() == nil {
				ended <- code
			}
			_ = r.Close()
		})
	}
	for range calls - 8 {
		select {
		case code := <-ended:
			if code != "8" { // RESOURCE_EXHAUSTED
				t.Errorf("a call beyond the limit has ended with status %s", code)
			}
		case <-ctx.Done():
			t.Fatal("messages are held without a limit")
		}
	}
	echoes(t, []rig.Target{target}, 3)
	select {
	case code := <-ended:
		t.Errorf("a call within the limit has ended with status %s", code)
	default:
	}
	stop()
	holding.Wait()
}
