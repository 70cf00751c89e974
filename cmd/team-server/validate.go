package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/config"
)

// errInvalid ends validate when it has printed what is wrong.
var errInvalid = errors.New("invalid configuration")

func (s *shell) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate [FILE|FOLDER...]",
		Short: "Finds everything that is wrong with configuration files",
		Long: "Checks syntax, keys, values, references and expressions of each file, or of the\n" +
			"files in a folder, and shows all faults with their place. Default: team.yaml.\n" +
			"Exit code 3 when there are faults.",
		RunE: func(_ *cobra.Command, args []string) error { return s.validate(args) },
	}
}

// validated is the result as JSON.
type validated struct {
	Valid  bool          `json:"valid"`
	Files  []string      `json:"files"`
	Faults config.Faults `json:"faults"`
}

func (s *shell) validate(paths []string) error {
	if len(paths) == 0 {
		paths = []string{"team.yaml"}
	}
	result := validated{Files: []string{}, Faults: config.Faults{}}
	for _, path := range paths {
		for _, file := range files(path) {
			result.Files = append(result.Files, file)
			_, err := config.Loader{}.Load(file)
			var faults config.Faults
			if err != nil && !errors.As(err, &faults) {
				return err
			}
			result.Faults = append(result.Faults, faults...)
			if !s.json() {
				s.verdict(file, faults)
			}
		}
	}
	result.Valid = len(result.Faults) == 0
	if s.json() {
		if err := json.NewEncoder(s.out).Encode(result); err != nil {
			return err
		}
	}
	if !result.Valid {
		return errInvalid
	}
	return nil
}

func (s *shell) verdict(file string, faults config.Faults) {
	if len(faults) == 0 {
		fmt.Fprintf(s.out, "%s  ok\n", file)
		return
	}
	faults.Print(s.out)
}

// files are those a path means: itself; of a folder its team.yaml, else all
// YAML files that are no scripts.
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
		out = append(out, slices.DeleteFunc(found, func(f string) bool { return strings.Contains(filepath.Base(f), ".script.") })...)
	}
	if len(out) == 0 {
		return []string{path} // its fault says what was looked for
	}
	slices.Sort(out)
	return out
}
