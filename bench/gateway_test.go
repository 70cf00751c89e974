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
	t := &measure.Table{Title: "AgentService.Process over REST", Goals: []string{
		"goal 4: rival=in-process, c=64: xRPS >= 1.5", "goal 4: rival=in-process, c=64: xallocs <= 0.6",
	}}
	servers(b, t,
		measure.Rival{Name: "dial", Start: func(b *testing.B) (measure.Call, func()) {
			at, stop := serve(b, echo())
			url, stopGateway := dialed(b, at.GRPC)
			return post(url+processPath, processBody, isMessage, func() { stopGateway(); stop() })
		}},
		measure.Rival{Name: "in-process", Start: func(b *testing.B) (measure.Call, func()) {
			at, stop := serve(b, echo())
			return post(at.URL+processPath, processBody, isMessage, stop)
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
	url, stop = bareHTTP(b, mux)
	return url, closing(b, conn, stop)
}

// bareHTTP serves a handler on an HTTP server with no options.
func bareHTTP(b *testing.B, h http.Handler) (url string, stop func()) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", loopback)
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with the server
	}()
	return "http://" + l.Addr().String(), func() {
		_ = s.Close()
		<-done
	}
}

// processPath is where Process of the agent is served over REST.
const processPath = "/team/v1/agents/bench:process"

func processBody(n int64) ([]byte, error) {
	return protojson.Marshal(&teamv1.ProcessRequest{Message: message(n)})
}

// post posts bodies to a URL; fits tells whether an answer is the right one.
func post(url string, body func(n int64) ([]byte, error), fits func(answer []byte) bool, stop func()) (measure.Call, func()) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, n int64) error {
			b, err := body(n)
			if err != nil {
				return err
			}
			return postOne(ctx, client, url, b, fits)
		}, func() {
			transport.CloseIdleConnections()
			stop()
		}
}

func postOne(ctx context.Context, client *http.Client, url string, body []byte, fits func(answer []byte) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
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
	if err == nil && (resp.StatusCode != http.StatusOK || len(answer) < messageBytes/2 || !fits(answer)) {
		err = fmt.Errorf("status %d: %.200s", resp.StatusCode, answer)
	}
	return err
}
