package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"buf.build/go/protoyaml"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/config/warnings"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/internal/serve"
)

// ErrInvalid is returned by Validate after it has printed the faults.
var ErrInvalid = errors.New("invalid configuration")

// validation is the JSON output of the validate command.
type validation struct {
	Valid  bool          `json:"valid"`
	Files  []string      `json:"files"`
	Faults source.Faults `json:"faults"`
	// Warnings lists what is valid and probably not meant.
	Warnings []warning `json:"warnings,omitempty"`
	// Program lists the paths of what the files leave to the Go programs that load them.
	Program []string `json:"program,omitempty"`
	// Teams lists the teams that the files define, with their members.
	Teams []roster `json:"teams,omitempty"`
}

type warning struct {
	File string `json:"file"`
	warnings.Warning
}

// Validate checks files, or the configuration files in folders, and prints all faults, including those
// for which only serve would refuse the file. With strict, warnings count as faults.
func (s *Shell) Validate(paths []string, strict bool) error {
	if len(paths) == 0 {
		paths = []string{"team.yaml"}
	}
	result := validation{Files: []string{}, Faults: source.Faults{}}
	for _, path := range paths {
		for _, file := range files(path) {
			result.Files = append(result.Files, file)
			def, err := load(file)
			var faults source.Faults
			if err != nil && !errors.As(err, &faults) {
				return err
			}
			if def != nil {
				faults = append(faults, serve.Check(def, serve.Config{})...)
			}
			result.Faults = append(result.Faults, faults...)
			if !s.JSON {
				s.verdict(file, faults)
			}
			if len(faults) > 0 || def == nil {
				continue
			}
			if !s.JSON {
				s.notes(def)
			}
			if err := result.add(file, def); err != nil {
				return err
			}
		}
	}
	result.Valid = len(result.Faults) == 0
	if s.JSON {
		if err := json.NewEncoder(s.Out).Encode(result); err != nil {
			return err
		}
	}
	if !result.Valid || strict && len(result.Warnings) > 0 {
		return ErrInvalid
	}
	return nil
}

// notes prints what only a Go program can serve of a valid file, the warnings about it, and what a run of each of its teams
// does at worst.
func (s *Shell) notes(def *config.Config) {
	for _, path := range config.LeftToProgram(def.Server) {
		fmt.Fprintf(s.Out, "  %s: a Go program brings it, so team-server cannot serve this file\n", path)
	}
	if def.Server.GetServer().GetEngine().GetTemporal() != nil && s.Temporal == nil {
		fmt.Fprintf(s.Out, "  server.engine.temporal: %s\n", serve.OtherProgram)
	}
	for _, w := range config.Warnings(def) {
		fmt.Fprintf(s.Out, "  %s: warning: %s\n", w.Path, w.Message)
	}
	for _, id := range slices.Sorted(maps.Keys(def.Server.GetTeams())) {
		if worst := warnings.WorstOf(def.Server, id); worst.Turns > 0 {
			fmt.Fprintf(s.Out, "  teams.%s: %s\n", id, worst)
		}
	}
}

// add adds the warnings and teams of a valid file.
func (v *validation) add(file string, def *config.Config) error {
	for _, w := range config.Warnings(def) {
		v.Warnings = append(v.Warnings, warning{file, w})
	}
	v.Program = append(v.Program, config.LeftToProgram(def.Server)...)
	teams, err := rosters(def)
	v.Teams = append(v.Teams, teams...)
	return err
}

// load loads a configuration file, or checks a test file and returns nil.
func load(file string) (*config.Config, error) {
	l, err := withDotEnv()
	if err != nil {
		return nil, err
	}
	l.AnyProgram = true
	if scenario.IsTest(file) {
		_, err := scenario.Load(l, file)
		return nil, err
	}
	return l.Load(file)
}

func (s *Shell) verdict(file string, faults source.Faults) {
	if len(faults) == 0 {
		fmt.Fprintf(s.Out, "%s  ok\n", file)
		return
	}
	faults.Print(s.Out)
}

// files returns the files to check for a path: the path itself, or for a folder its team.yaml, else
// all its YAML files except scripts and tests.
func files(path string) []string {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}
	}
	if found, err := (config.Loader{}).Find(path); err == nil {
		return []string{found}
	}
	var out []string
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		found, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			continue
		}
		out = append(out, slices.DeleteFunc(found, func(f string) bool { return strings.Contains(filepath.Base(f), ".script.") || scenario.IsTest(f) })...)
	}
	if len(out) == 0 {
		return []string{path} // loading the folder reports that it has no team.yaml
	}
	slices.Sort(out)
	return out
}

// ViewConfig prints a configuration file as it is read: with the values of variables, with short forms written out, and
// with placeholders for secrets. Without a path it prints ./team.yaml, or the demo if that does not exist.
func (s *Shell) ViewConfig(path string) error {
	def, err := s.Definition(path)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.Print(def.Server)
	}
	data, err := protoyaml.MarshalOptions{UseProtoNames: true}.Marshal(def.Server)
	if err == nil {
		_, err = s.Text().Write(data)
	}
	return err
}
