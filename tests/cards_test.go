package tests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/cardsign"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

func cardSigner(t *testing.T, kid, jku string) *cardsign.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cardsign.NewSigner([]cardsign.Key{{ID: kid, Private: key}}, jku)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A team of a file whose only member is another server's agent, with the keys of
// that server's operator. A forged card ends the task, with the reason; the forger
// gets no call and no look at the keys that it offers.
func TestA_10_ForgedCardOfAMember(t *testing.T) {
	t.Parallel()
	var looks atomic.Int32
	var forger *cardsign.Signer
	offered := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		looks.Add(1)
		_, _ = w.Write(forger.JWKS())
	}))
	defer offered.Close()
	forger = cardSigner(t, "2026-11", offered.URL)
	operator := cardSigner(t, "2026-11", "")
	for name, c := range map[string]struct {
		card  func(*a2av1.AgentCard)
		state a2av1.TaskState
		want  string
	}{
		"signed by the operator": {func(c *a2av1.AgentCard) { _ = operator.Sign(c) }, a2av1.TaskState_TASK_STATE_COMPLETED, ""},
		"signed by a forger with a jku": {
			func(c *a2av1.AgentCard) { _ = forger.Sign(c) },
			a2av1.TaskState_TASK_STATE_FAILED, `signature by the trusted key "2026-11" does not match`,
		},
		"changed after signing": {
			func(c *a2av1.AgentCard) { _ = operator.Sign(c); c.Description = "Everything." },
			a2av1.TaskState_TASK_STATE_FAILED, "the card was changed after it was signed",
		},
		"signatures taken off": {func(*a2av1.AgentCard) {}, a2av1.TaskState_TASK_STATE_FAILED, "the card is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			far := fakeagent.New(t, fakeagent.Config{Card: c.card})
			target := trusting(t, fmt.Sprintf(trustingTeam, far.URL()), fstest.MapFS{"operator.json": {Data: operator.JWKS()}})
			resp, err := rig.Clients(t, target)[0].Send(t.Context(), rig.Text("desk", "m1", "tides"))
			if err != nil {
				t.Fatal(err)
			}
			status := resp.GetTask().GetStatus()
			if status.GetState() != c.state || !strings.Contains(agent.Text(status.GetMessage()), c.want) {
				t.Errorf("%v", status)
			}
			for _, r := range far.Requests("") {
				if c.want != "" && r.Method != "Card" {
					t.Errorf("the forger got a call: %s", r.Method)
				}
			}
		})
	}
	if n := looks.Load(); n != 0 {
		t.Errorf("the keys that a card offers were fetched %d times", n)
	}
}

const trustingTeam = `version: v1
agents:
  far: {description: Far away., a2a: {card: %q, trusted_keys: [operator.json]}}
teams:
  desk: {limits: {retry: {attempts: 1}}, workflow: {steps: [{id: ask, agent: far}]}}
`

// trusting serves what a file defines.
func trusting(t *testing.T, text string, files fstest.MapFS) rig.Target {
	t.Helper()
	def, err := config.Loader{Files: files}.Parse("team.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	m := rig.Manager(t)
	agents, err := build.Register(build.Config{Definition: def, Registry: m, Egress: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agents.Close() })
	return rig.Serve(t, server.Config{Agents: m})
}
