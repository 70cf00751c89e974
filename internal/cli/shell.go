// Package cli implements the commands of the command line: what they do, print and return.
package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/logs"
	"github.com/agentteams/team-server/internal/otlp"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Shell holds what all commands share.
type Shell struct {
	console.Console
	console.Connection
	// Temporal is for files with server.engine.temporal; nil refuses to serve them.
	Temporal *serve.Temporal

	causes causes // of the problems of an in-process server
}

// loggedError is an error that the log of a server has already.
type loggedError struct{ error }

// Unwrap returns the error.
func (e loggedError) Unwrap() error { return e.error }

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1 // a failed run, and every error without a code of its own
	ExitUsage       = 2
	ExitConfig      = 3
	ExitTests       = 4 // tests failed
	ExitUnreachable = 5
	ExitInterrupted = 130 // 128 plus the number of SIGINT, as in shells
)

// Exit prints the error of a command and returns the exit code. The error goes to Talk
// as text, or with JSON to Out.
func (s *Shell) Exit(err error) int {
	code, faults, logged := exitCode(err), source.Faults{}, loggedError{}
	switch {
	case err == nil, errors.As(err, &logged), errors.Is(err, console.ErrFailed), errors.Is(err, ErrTests), errors.Is(err, ErrInvalid): // printed already
	case s.JSON:
		s.printFailure(s.newFailure(err, code))
	case errors.As(err, &faults):
		faults.Print(s.Talk)
	case code == ExitUsage:
		var usage console.UsageError
		errors.As(err, &usage)
		s.Sayf("%v\nSee %s --help", err, cmp.Or(usage.Command, "team-server"))
	default:
		s.Sayf("%s", s.words(err))
	}
	return code
}

// exitCode returns the exit code for the error of a command; nil means success.
func exitCode(err error) int {
	var usage console.UsageError
	var faults source.Faults
	var variables otlp.VariableErrors
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, console.ErrFailed):
		return ExitFailed
	case errors.Is(err, console.ErrInterrupted):
		return ExitInterrupted
	case errors.Is(err, ErrTests):
		return ExitTests
	case errors.Is(err, ErrInvalid), errors.As(err, &faults), errors.As(err, &variables):
		return ExitConfig
	case errors.As(err, &usage), errors.Is(err, a2aclient.ErrAddress):
		return ExitUsage
	case errors.Is(err, a2aclient.ErrUnreachable):
		return ExitUnreachable
	}
	return ExitFailed
}

// serverLog returns the log of a server, and its level, which is nil if the command line names the level.
func (s *Shell) serverLog(json bool) (*zap.Logger, *zap.AtomicLevel) {
	if s.Level != nil {
		return logs.New(s.Talk, *s.Level, s.JSON || json), nil
	}
	level := zap.NewAtomicLevel()
	return logs.New(s.Talk, level, s.JSON || json), &level
}

// ready prints that the server accepts requests, and its addresses.
func (s *Shell) ready(r *serve.Running) error {
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(struct {
			Ready bool   `json:"ready"`
			HTTP  string `json:"http"`
			GRPC  string `json:"grpc"`
		}{true, r.HTTP, r.GRPC})
	}
	_, err := fmt.Fprintf(s.Out, "ready http=%s grpc=%s\n", r.HTTP, r.GRPC)
	return err
}
