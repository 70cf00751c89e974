package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/cli/call"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/teams"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

// TestT_35_CommandsOverTLS: commands call a server over https and grpcs if they trust its authority, and
// show a certificate.
func TestT_35_CommandsOverTLS(t *testing.T) {
	ca, dir := testcerts.New(t, "ca"), t.TempDir()
	cert, key := ca.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	testcerts.Write(t, dir, "cert.pem", cert)
	testcerts.Write(t, dir, "key.pem", key)
	authority := testcerts.Write(t, dir, "ca.pem", ca.PEM)
	mine, myKey := ca.Issue(time.Now().Add(time.Hour), "ann.example")
	shown, shownKey := testcerts.Write(t, dir, "ann.pem", mine), testcerts.Write(t, dir, "ann.key.pem", myKey)
	file := filepath.Join(dir, "team.yaml")
	if err := os.WriteFile(file, []byte(`version: v1
agents: {parrot: {scripted: {steps: [{echo: true}]}}}
teams: {desk: {members: [{agent: parrot}], supervisor: {rules: [{id: a, when: "turn == 1", next: [parrot]}, {id: b, when: "true", finish: parrot}]}}}
server:
  tls: {cert: cert.pem, key: key.pem, client_ca: ca.pem, client: REQUIRED}
  auth: {mtls: [{san: ann.example, name: ann}]}
`), 0o600); err != nil {
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
	defer func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var out, talk bytes.Buffer
	s := &Shell{Console: console.Console{Out: &out, Talk: &talk}, Connection: console.Connection{Server: "https://" + r.HTTP, CA: authority, ClientCert: shown, ClientKey: shownKey}}
	team := &teams.Commands{Console: &s.Console, Connection: &s.Connection}
	calls := &call.Commands{Console: &s.Console, Connection: &s.Connection}
	if err := team.ListTeams(t.Context()); err != nil || !strings.Contains(out.String(), "desk") {
		t.Errorf("teams: %v, %s", err, &out)
	}
	for _, target := range []string{"https://" + r.HTTP + "/desk", "grpcs://" + r.GRPC + "/desk"} {
		out.Reset()
		if err := calls.List(t.Context(), target, &call.List{}); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	untrusted := func(target, hint string) {
		t.Helper()
		talk.Reset()
		if code := s.Exit(calls.List(t.Context(), target, &call.List{})); code != ExitUnreachable || !strings.HasSuffix(talk.String(), ": its certificate is not trusted; "+hint+"\n") {
			t.Errorf("%s: exit code %d, %s", target, code, &talk)
		}
	}
	s.CA = testcerts.Write(t, dir, "other.pem", testcerts.New(t, "other").PEM)
	untrusted("grpcs://"+r.GRPC+"/desk", "the file of --ca or TEAM_CA does not have its authority")
	s.CA = ""
	untrusted("grpcs://"+r.GRPC+"/desk", "name its authority with --ca or in TEAM_CA")
	untrusted("https://"+r.HTTP+"/desk", "name its authority with --ca or in TEAM_CA")
	talk.Reset()
	if code := s.Exit(calls.List(t.Context(), "grpc://"+r.GRPC+"/desk", &call.List{})); code != ExitUnreachable || talk.String() != "cannot reach "+r.GRPC+": it closed the connection; if the server uses TLS, use grpcs://HOST:PORT/TENANT\n" {
		t.Errorf("gRPC without TLS: exit code %d, %s", code, &talk)
	}
	if err := team.ListTeams(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority: %v", err)
	}
	s.CA, s.ClientKey = authority, ""
	if code := s.Exit(team.ListTeams(t.Context())); code != ExitUsage || !strings.Contains(talk.String(), "belong together") {
		t.Errorf("a certificate without its key: %d, %s", code, &talk)
	}
}
