package cli

import (
	"fmt"
	"path/filepath"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/scaffold"
)

// Init writes the files with which a project begins into a folder, and says what to do next. An empty template is the
// default one, and an empty folder is that of the template's name.
func (s *Shell) Init(template, folder string) error {
	t, err := scaffold.Find(template)
	if err != nil {
		return console.UsageError{Err: err}
	}
	if folder == "" {
		folder = t.Name
	}
	names, err := scaffold.Write(t, folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintln(s.Text(), filepath.Join(folder, name))
	}
	s.Sayf("%s: %s. Next:", t.Name, t.About)
	if filepath.Clean(folder) != "." {
		s.Sayf("  cd %s", folder)
	}
	s.Sayf("  team-server test")
	s.Sayf("  team-server run %s %q", t.Team, t.Text)
	s.Sayf("  team-server dev     # serves it, with the Team Monitor")
	return nil
}

// Protos writes the protos that an agent in another language implements into a folder.
func (s *Shell) Protos(folder string, replace bool) error {
	names, err := scaffold.WriteProtos(folder, replace)
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintln(s.Text(), filepath.Join(folder, name))
	}
	s.Sayf("The service of an agent is AgentService in team/v1/agent.proto. For example, with grpcio-tools of Python:")
	s.Sayf("  python -m grpc_tools.protoc -I %[1]s --python_out=. --grpc_python_out=. $(find %[1]s -name '*.proto')", folder)
	return nil
}
