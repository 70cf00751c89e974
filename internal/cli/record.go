package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/tasks"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/pkg/secret"
)

// Recorder writes tests from tasks.
type Recorder struct {
	*Shell
	// Out is the test file to write; "" means TEAM_ID_test.yaml in the working folder, with the end of the id of the task.
	Out string
	// File is the configuration of the team; "" means team.yaml beside the test file.
	File string
}

// Record writes a test file that plays a task of a running server again, with the tasks before it in its conversation,
// and plays it.
func (r *Recorder) Record(ctx context.Context, id string) error {
	from := &tasks.Commands{Console: &r.Console, Connection: &r.Connection}
	journals, err := from.Conversation(ctx, id)
	if err != nil {
		return err
	}
	var list []scenario.Recorded
	for _, j := range journals {
		list = append(list, scenario.Recorded{Task: j.Found.GetTaskId(), Team: j.Found.GetAgentId(), Message: j.Trace.GetStep().GetInput(), Events: j.Events})
	}
	team := list[len(list)-1].Team
	if r.Out == "" {
		r.Out = fmt.Sprintf("%s_%s_test.yaml", strings.ReplaceAll(team, string(filepath.Separator), "_"), id[max(0, len(id)-8):])
	}
	if !scenario.IsTest(r.Out) {
		return console.Usagef("--out %s: the name of a test file ends in _test.yaml", console.Line(r.Out))
	}
	if r.File == "" {
		r.File = filepath.Join(filepath.Dir(r.Out), "team.yaml")
	}
	data, err := r.test(list)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(r.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // it may hold what is private
	if errors.Is(err, fs.ErrExist) {
		return console.Usagef("%s exists; remove it, or name another file with --out", console.Line(r.Out))
	} else if err != nil {
		return fmt.Errorf("writing the test: %w", err)
	}
	if _, err = file.Write(data); err != nil {
		return errors.Join(fmt.Errorf("writing the test: %w", err), file.Close())
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("writing the test: %w", err)
	}
	r.Sayf("wrote %s; it is played now", console.Line(r.Out))
	return r.Test(ctx, []string{r.Out}, TestFlags{})
}

// test returns the test file.
func (r *Recorder) test(list []scenario.Recorded) ([]byte, error) {
	l, err := withDotEnv()
	if err != nil {
		return nil, err
	}
	path, err := l.Find(r.File)
	if err != nil {
		return nil, err
	}
	secrets, err := r.secrets(l, path)
	if err != nil {
		return nil, err
	}
	l.StandIns = &config.StandIns{}
	def, err := l.Load(path)
	if err != nil {
		return nil, err
	}
	from, err := filepath.Abs(filepath.Dir(r.Out))
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if path, err = filepath.Rel(from, to); err != nil {
		path = to
	}
	return scenario.Record(def, filepath.ToSlash(path), secrets, list...)
}

// secrets returns what must not be in a test: the secrets of the configuration and the key of the command. It says which
// secrets cannot be read here.
func (r *Recorder) secrets(l config.Loader, path string) ([]secret.Secret, error) {
	found, missing, err := l.Secrets(path)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		r.Sayf("not set here, so their secrets are not looked for in the task: %s", console.Line(strings.Join(missing, ", ")))
	}
	return append(found, secret.New(r.Token)), nil
}
