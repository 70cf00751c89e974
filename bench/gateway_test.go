package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agentteams/team-server/bench/measure"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// BenchmarkGateway is goal 4: Process over REST as it is served, where the
// gateway calls the server in this process, against a gateway that dials the
// same server over the loopback.
func BenchmarkGateway(b *testing.B) {
	t := &measure.Table{Title: "AgentService.Process over REST", Goals: []string{"goal 4: in-process xRPS >= 1.5, xallocs <= 0.6"}}
	servers(b, t,
		measure.Rival{Name: "dial", Start: func(b *testing.B) (measure.Call, func()) {
			at, stop := serve(b, echo())
			url, stopGateway := dialed(b, at.GRPC)
			return post(url, func() { stopGateway(); stop() })
		}},
		measure.Rival{Name: "in-process", Start: func(b *testing.B) (measure.Call, func()) {
			at, stop := serve(b, echo())
			return post(at.URL, stop)
		}},
	)
}

// dialed serves a gateway that dials addr.
func dialed(b *testing.B, addr string) (url string, stop func()) {
	b.Helper()
	conn := dial(b, addr)
	mux := runtime.NewServeMux()
	if err := teamv1.RegisterAgentServiceHandler(b.Context(), mux, conn); err != nil {
		b.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", loopback)
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with the server
	}()
	return "http://" + l.Addr().String(), closing(b, conn, func() {
		_ = s.Close()
		<-done
	})
}

// post calls Process over REST.
func post(url string, stop func()) (measure.Call, func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, n int64) error {
			return postOne(ctx, client, url, n)
		}, func() {
			transport.CloseIdleConnections()
			stop()
		}
}

func postOne(ctx context.Context, client *http.Client, url string, n int64) error {
	body, err := protojson.Marshal(&teamv1.ProcessRequest{Message: message(n)})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/team/v1/agents/bench:process", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || len(answer) < messageBytes/2) {
		err = fmt.Errorf("status %d: %.200s", resp.StatusCode, answer)
	}
	return err
}
