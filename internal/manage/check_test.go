package manage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestChecksAreBounded: a change whose check takes too long is refused with the limit, and ends when its client leaves.
func TestChecksAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(path, []byte("version: v1\nagents: {e: {scripted: {steps: [{echo: true}]}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := config.Loader{}.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	team, err := written("teams: {t: {members: [{agent: e}], workflow: {steps: [{id: s, agent: e}]}}}\n")
	if err != nil {
		t.Fatal(err)
	}
	check := func(ctx context.Context, limit time.Duration) error {
		g, err := New(Config{Store: memstore.Open(t), File: file, Open: true, CheckTimeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		m := NewManager(g)
		_, _, err = m.next(ctx, m.add(team, identity.Caller{}, true), g.state())
		return err
	}
	if err := check(t.Context(), 0); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	e := agent.AsError(check(t.Context(), time.Nanosecond))
	if e.Code != agent.CodeResourceExhausted || e.Reason != agent.ReasonInsufficientResources || !strings.Contains(e.Message, "took longer than 1ns") {
		t.Errorf("beyond the limit: %v", e)
	}
	gone := errors.New("the client has left")
	ctx, leave := context.WithCancelCause(t.Context())
	leave(gone)
	if err := check(ctx, 0); !errors.Is(err, gone) {
		t.Errorf("without a client: %v", err)
	}
}
