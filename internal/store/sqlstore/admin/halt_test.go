package admin

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/dbtest"
)

// TestHaltOfATeamReadsNoEndedTasks: a halt holds the writer of a SQLite store, which may have very many.
func TestHaltOfATeamReadsNoEndedTasks(t *testing.T) {
	text := dbtest.Plan(t, dbtest.Open(t, dbtest.File(t)), `SELECT id FROM run WHERE ended IS NULL AND `+strings.ReplaceAll(ofAgent, "$1", "'desk'"))
	if !strings.Contains(text, "run_open") || strings.Contains(text, "SCAN task") {
		t.Errorf("the plan is\n%s", text)
	}
}
