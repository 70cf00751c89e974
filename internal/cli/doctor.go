package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/stores"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/doctor"
	"github.com/agentteams/team-server/internal/serve"
)

// DoctorTimeout is the time limit of each check, unless a flag says otherwise.
const DoctorTimeout = doctor.DefaultTimeout

// Doctor configures the doctor command.
type Doctor struct {
	// HTTP, GRPC and Store override those of the file, as the flags of serve do, and Role is that of serve.
	HTTP, GRPC, Store string
	Role              serve.Role
	// Strict makes warnings count as failures.
	Strict bool
	// Timeout is the time limit of each check. Required.
	Timeout time.Duration
	// Clock and Disk are for tests, see doctor.Config.
	Clock func() time.Time
	Disk  func(folder string) (free uint64, remote string, err error)
}

// checkup is the JSON output of the doctor command.
type checkup struct {
	File     string         `json:"file"`
	OK       int            `json:"ok"`
	Warnings int            `json:"warnings"`
	Failed   int            `json:"failed"`
	Checks   []doctor.Check `json:"checks"`
	// Faults are those of a file that is not valid; nothing else is checked then.
	Faults source.Faults `json:"faults,omitempty"`
}

// Doctor checks whether a server can run with a file, and prints one line for each check. The error is ErrInvalid
// for a file with faults, and console.ErrFailed if a check has failed.
func (s *Shell) Doctor(ctx context.Context, path string, f Doctor) error {
	if f.Timeout <= 0 {
		return console.Usagef("--timeout %s: expected more than 0", f.Timeout)
	}
	if err := stores.CheckURL("store", f.Store); err != nil {
		return err
	}
	file, err := (config.Loader{}).Find(path)
	result := checkup{File: file, Checks: []doctor.Check{}}
	var def *config.Config
	if err == nil {
		def, err = (config.Loader{}).Load(file)
		err = aboutDotEnv(file, err)
	}
	faults := source.Faults{}
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	if def != nil {
		faults = append(faults, serve.Check(def, serve.Config{HTTP: f.HTTP, GRPC: f.GRPC, Store: f.Store, Role: f.Role})...)
	}
	if len(faults) > 0 {
		return s.invalid(result, faults)
	}
	result.Checks, err = doctor.Run(ctx, doctor.Config{Definition: def, HTTP: f.HTTP, GRPC: f.GRPC, Store: f.Store, Role: f.Role, Timeout: f.Timeout, Clock: f.Clock, Disk: f.Disk, Temporal: s.Temporal})
	if err != nil {
		return err
	}
	return s.checkup(result, f.Strict)
}

// invalid prints the faults of a file.
func (s *Shell) invalid(result checkup, faults source.Faults) error {
	result.Failed, result.Faults = 1, faults
	result.Checks = append(result.Checks, doctor.Check{Name: "file", Status: doctor.Failed, Text: fmt.Sprintf("it has faults: %d", len(faults)), Do: "correct the file; nothing else was checked"})
	if s.JSON {
		return errors.Join(ErrInvalid, json.NewEncoder(s.Out).Encode(result))
	}
	faults.Print(s.Out)
	s.checks(result.Checks)
	return ErrInvalid
}

// checkup prints the results of all checks.
func (s *Shell) checkup(result checkup, strict bool) error {
	for _, c := range result.Checks {
		switch c.Status {
		case doctor.Failed:
			result.Failed++
		case doctor.Warning:
			result.Warnings++
		default:
			result.OK++
		}
	}
	if s.JSON {
		if err := json.NewEncoder(s.Out).Encode(result); err != nil {
			return err
		}
	} else {
		s.checks(result.Checks)
		fmt.Fprintf(s.Text(), "%d ok, %d warnings, %d failed\n", result.OK, result.Warnings, result.Failed)
	}
	if result.Failed > 0 || strict && result.Warnings > 0 {
		return console.ErrFailed
	}
	return nil
}

// checks prints one line for each check.
func (s *Shell) checks(list []doctor.Check) {
	for _, c := range list {
		fmt.Fprintf(s.Text(), "%-8s %s: %s", c.Status, c.Name, c.Text)
		if c.Do != "" {
			fmt.Fprintf(s.Text(), "; %s", c.Do)
		}
		fmt.Fprintln(s.Text())
	}
}
