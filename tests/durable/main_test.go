//go:build linux

// Package durable runs the real server as a process of its own, kills it, and
// looks at what is left: an acknowledged task or event is never lost, a recorded
// step is never repeated (P1, P2).
//
// The tests take from the environment:
//
//	TEAM_CRASH_CYCLES    kills a store; default 4, or 20 if tests run all of their cases
//	TEAM_CRASH_RESTARTS  rolling restarts; default 2
//	TEAM_CRASH_SYNCS     syncs that fail, each in a run of its own; default 2, or 10 likewise
//	TEAM_CRASH_CUTS      episodes in which servers are cut off from the database; default 10
//	TEAM_CRASH_SEED      seed of what is random; default: a new one, which is shown
//	TEAM_CRASH_BILLED    random runs whose bills are checked; default 40
//	TEAM_CRASH_HISTORY   folder of a saved history to check again
//	TEAM_CRASH_SERVER    the program to test in place of one built from the sources
//	TEAM_CRASH_TEMPORAL  address and namespace of a Temporal that drives the runs of PostgreSQL stores
package durable

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/pgtest"
)

const (
	cyclesVariable   = "TEAM_CRASH_CYCLES"
	restartsVariable = "TEAM_CRASH_RESTARTS"
	billedVariable   = "TEAM_CRASH_BILLED"
	historyVariable  = "TEAM_CRASH_HISTORY"
	syncsVariable    = "TEAM_CRASH_SYNCS"
	cutsVariable     = "TEAM_CRASH_CUTS"
	seedVariable     = "TEAM_CRASH_SEED"
	serverVariable   = "TEAM_CRASH_SERVER"
	temporalVariable = "TEAM_CRASH_TEMPORAL"
	// repository is its root, seen from here.
	repository = "../.."
)

func TestMain(m *testing.M) { pgtest.Main(closing{m}) }

// closing closes what the default client keeps open, and removes the program,
// before leaks are looked for.
type closing struct{ *testing.M }

func (c closing) Run() int {
	code := c.M.Run()
	http.DefaultClient.CloseIdleConnections()
	if os.Getenv(serverVariable) == "" {
		if path, err := program(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	return code
}

// program is the server with failpoints, built once a process.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(serverVariable); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "team-server")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "team-server")
	return path, compile(path)
})

// compile builds the server with failpoints.
func compile(path string, flags ...string) error {
	args := append([]string{"build", "-tags=failpoints", "-o", path}, flags...)
	cmd := exec.CommandContext(context.Background(), "go", append(args, "./cmd/team-server")...)
	cmd.Dir = repository
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// number is a number of the environment.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// seed is where all that is random in a test begins.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := number(t, seedVariable, rand.Uint64())
	t.Logf("%s=%d", seedVariable, n)
	return n
}
