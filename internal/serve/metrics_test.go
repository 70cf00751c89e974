package serve_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
)

// TestT_45_MetricsAddress: metrics are off by default, and are served beyond loopback only if the file
// declares so. The error says what to do.
func TestT_45_MetricsAddress(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ settings, address, want string }{
		{"{}", "off", ""},
		{`{metrics: "127.0.0.1:0"}`, "127.0.0.1:", ""},
		{`{metrics: "localhost:0"}`, ":", ""},
		{`{metrics: "0.0.0.0:0", metrics_beyond_loopback: true}`, "[::]:", ""},
		{`{metrics: "0.0.0.0:0"}`, "", "team.yaml  server.metrics: refusing to serve metrics on 0.0.0.0:0, because they need no authentication there; " +
			"listen on loopback, or, in a network that only your monitoring reaches, add server.metrics_beyond_loopback: true"},
		{`{metrics: ":0"}`, "", "team.yaml  server.metrics: refusing to serve metrics on :0,"},
		{`{metrics: "team.example:9464"}`, "", "team.yaml  server.metrics: refusing to serve metrics on team.example:9464,"},
		{`{metrics: "` + taken.Addr().String() + `"}`, "", "cannot listen on " + taken.Addr().String() + ": in use by another program.  Choose another port for server.metrics"},
	} {
		def, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\nserver: "+c.settings+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		faults := serve.Check(def, serve.Config{})
		if refused := strings.Contains(c.want, "refusing"); refused != (len(faults) == 1) || refused && !strings.HasPrefix(faults.Error(), c.want) {
			t.Errorf("%s: Check: %v", c.settings, faults)
		}
		r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		switch {
		case err != nil && (c.want == "" || !strings.HasPrefix(err.Error(), c.want)), err == nil && c.want != "":
			t.Errorf("%s: %v", c.settings, err)
		case err == nil && !strings.Contains(r.Metrics, c.address):
			t.Errorf("%s: metrics are at %s", c.settings, r.Metrics)
		}
		if err == nil {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestT_45_SameAddress: listeners of one server with the same address are refused by Check, and by Start, where flags
// decide on two of them. The error names both.
func TestT_45_SameAddress(t *testing.T) {
	for _, c := range []struct{ settings, http, grpc, check, start string }{
		{`{http: "127.0.0.1:4711", metrics: "127.0.0.1:4711"}`, "", "", "team.yaml  server.metrics: 127.0.0.1:4711 is the address of server.http, too; write another port", "team.yaml  server.metrics: 127.0.0.1:4711 is the address of server.http, too; write another port"},
		{`{grpc: "127.0.0.1:4711", metrics: "localhost:4711"}`, "127.0.0.1:0", "", "team.yaml  server.metrics: localhost:4711 is the address of server.grpc, too; write another port", "team.yaml  server.metrics: localhost:4711 is the address of server.grpc, too; write another port"},
		{`{http: "[::1]:4711", grpc: "[0:0:0:0:0:0:0:1]:4711"}`, "", "", "team.yaml  server.grpc: [0:0:0:0:0:0:0:1]:4711 is the address of server.http, too; write another port", "team.yaml  server.grpc: [0:0:0:0:0:0:0:1]:4711 is the address of server.http, too; write another port"},
		{`{metrics: "127.0.0.1:8080"}`, "127.0.0.1:0", "127.0.0.1:0", "team.yaml  server.metrics: 127.0.0.1:8080 is the address of server.http, too; write another port", ""},
		{`{http: "127.0.0.1:4711", metrics: "0.0.0.0:4711", metrics_beyond_loopback: true}`, "", "", "team.yaml  server.metrics: 0.0.0.0:4711 is the address of server.http, too; write another port", "team.yaml  server.metrics: 0.0.0.0:4711 is the address of server.http, too; write another port"},
		{`{metrics: "127.0.0.1:4711"}`, "127.0.0.1:4711", "off", "", "team.yaml  server.metrics: 127.0.0.1:4711 is the address of --http, too; write another port"},
		{`{metrics: "127.0.0.1:4711"}`, "127.0.0.1:0", "127.0.0.1:4711", "", "team.yaml  server.metrics: 127.0.0.1:4711 is the address of --grpc, too; write another port"},
		{`{http: "127.0.0.1:0", grpc: "127.0.0.1:0", metrics: "127.0.0.1:0"}`, "", "", "", ""},
		{`{http: "127.0.0.1:0", grpc: "off", metrics: "127.0.0.1:0"}`, "", "", "", ""},
	} {
		def, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\nserver: "+c.settings+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := serve.Check(def, serve.Config{}).Error(); got != c.check {
			t.Errorf("%s: Check: %v, want %q", c.settings, got, c.check)
		}
		if c.start == "" && c.check != "" {
			continue // the port may be in use
		}
		r, err := serve.Start(t.Context(), def, serve.Config{HTTP: c.http, GRPC: c.grpc, Log: zap.NewNop()})
		if (err == nil) != (c.start == "") || err != nil && !strings.HasPrefix(err.Error(), c.start) {
			t.Errorf("%s: Start: %v, want %q", c.settings, err, c.start)
		}
		if err == nil {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}
