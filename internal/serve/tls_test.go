package serve_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
	"github.com/agentteams/team-server/tests/rig"
)

// TestT_10_MembersShowCertificates: an agent of a file calls one on another server that requires
// certificates of clients.
func TestT_10_MembersShowCertificates(t *testing.T) {
	ca, dir := testcerts.New(t, "ca"), t.TempDir()
	cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1", "near.example")
	testcerts.Write(t, dir, "cert.pem", cert)
	testcerts.Write(t, dir, "key.pem", key)
	testcerts.Write(t, dir, "ca.pem", ca.PEM)
	start := func(text string) *serve.Running {
		file := filepath.Join(dir, "team.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		def, err := config.Loader{}.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := serve.Start(context.Background(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	far := start(`version: v1
agents: {parrot: {description: Repeats., scripted: {steps: [{text: from far}]}}}
server:
  default_agent: parrot
  tls: {cert: cert.pem, key: key.pem, client_ca: ca.pem, client: REQUIRED}
  auth: {mtls: [{san: near.example, name: near}]}
`)
	for tls, want := range map[string]a2av1.TaskState{
		"{ca: ca.pem, cert: cert.pem, key: key.pem}": a2av1.TaskState_TASK_STATE_COMPLETED,
		"{ca: ca.pem}": a2av1.TaskState_TASK_STATE_FAILED,
	} {
		near := start("version: v1\nagents: {there: {description: Repeats., grpc: {address: \"" + far.GRPC + "\", agent_id: parrot, tls: " + tls + "}}}\nserver: {default_agent: there}\n")
		c := rig.Clients(t, rig.Target{GRPC: near.GRPC, HTTP: "http://" + near.HTTP})[0]
		resp, err := c.Send(t.Context(), rig.Text("", "m", "x"))
		if err != nil || resp.GetTask().GetStatus().GetState() != want {
			t.Errorf("%s: %v, %v", tls, resp, err)
		}
	}
}
