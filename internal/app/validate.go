package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
)

// ErrInvalid ends Validate when it has printed what is wrong.
var ErrInvalid = errors.New("invalid configuration")

// validated is the result as JSON.
type validated struct {
	Valid  bool          `json:"valid"`
	Files  []string      `json:"files"`
	Faults config.Faults `json:"faults"`
	// Adjusted are limits that others make smaller, with the file they are in.
	Adjusted []adjusted `json:"adjusted,omitempty"`
}

type adjusted struct {
	File string `json:"file"`
	config.Adjustment
}

// Validate finds everything that is wrong with files, or those in folders.
func (s *Shell) Validate(paths []string) error {
	if len(paths) == 0 {
		paths = []string{"team.yaml"}
	}
	result := validated{Files: []string{}, Faults: config.Faults{}}
	for _, path := range paths {
		for _, file := range files(path) {
			result.Files = append(result.Files, file)
			found, err := load(file)
			var faults config.Faults
			if err != nil && !errors.As(err, &faults) {
				return err
			}
			result.Faults = append(result.Faults, faults...)
			if !s.JSON {
				s.verdict(file, faults)
			}
			if err != nil {
				continue
			}
			for _, a := range found {
				result.Adjusted = append(result.Adjusted, adjusted{file, a})
				if !s.JSON {
					fmt.Fprintf(s.Out, "  %s is %s, but %s holds: %s\n", a.Path, a.Set, a.Effective, a.Because)
				}
			}
		}
	}
	result.Valid = len(result.Faults) == 0
	if s.JSON {
		if err := json.NewEncoder(s.Out).Encode(result); err != nil {
			return err
		}
	}
	if !result.Valid {
		return ErrInvalid
	}
	return nil
}

// load reads a configuration, and returns its limits that others make smaller;
// or, by its name, a test of one.
func load(file string) ([]config.Adjustment, error) {
	if scenario.IsTest(file) {
		_, err := scenario.Load(scenario.Loader{}, file)
		return nil, err
	}
	def, err := config.Loader{}.Load(file)
	if err != nil {
		return nil, err
	}
	return def.Adjusted(), nil
}

func (s *Shell) verdict(file string, faults config.Faults) {
	if len(faults) == 0 {
		fmt.Fprintf(s.Out, "%s  ok\n", file)
		return
	}
	faults.Print(s.Out)
}

// files are those a path means: itself; of a folder its team.yaml, else all
// YAML files that are no scripts and no tests.
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
		return []string{path} // its fault says what was looked for
	}
	slices.Sort(out)
	return out
}
