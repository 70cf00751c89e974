// Package teamfiletest plays the tests of files whose teams have parts of a Go program, see docs/testing.md. Files without
// such parts are played by team-server test.
package teamfiletest

import (
	"testing"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/pkg/teamfile"
)

// Run plays the scenarios of test files, or of all test files in folders, each as a subtest. Models and remote agents are
// replaced as in team-server test; the parts of c are called, except agents for which a test file has steps. The store of c
// is not used.
func Run(t *testing.T, c teamfile.Config, paths ...string) {
	t.Helper()
	found, err := scenario.Find(paths...)
	if err != nil {
		t.Fatal(err)
	}
	files, err := scenario.LoadAll(scenario.Loader{Program: &config.Program{Agents: c.Agents, Tools: c.Tools, Schedulers: c.Schedulers}}, found)
	if err != nil {
		t.Fatal(err)
	}
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	for _, s := range scenario.Select(files, nil) {
		t.Run(s.Team+" "+s.Name, func(t *testing.T) {
			r, err := s.Play(t.Context(), log)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Failures {
				t.Errorf("%s:%d: %s\n%s", f.File, f.Line, f.Message, f.Why)
			}
		})
	}
}
