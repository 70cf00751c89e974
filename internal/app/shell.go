package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/a2aclient"
)

// Shell is what all commands share. Data goes to Out, everything else to Talk.
type Shell struct {
	Out, Talk io.Writer
	// In is read where a command is told to; nil is empty.
	In io.Reader
	// Server is the address of a running server; empty starts one in process.
	Server string
	// Token is shown to the server.
	Token string
	// JSON prints data for machines.
	JSON bool
	// Level of the log; nil is the command's own.
	Level *zapcore.Level
}

// UsageError is a command line that cannot be followed.
type UsageError struct{ Err error }

// Error says what is wrong with it.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e UsageError) Unwrap() error { return e.Err }

// ErrFailed ends a command whose failure has been told already.
var ErrFailed = errors.New("failed")

// Exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1 // a run that failed, and everything else
	ExitUsage       = 2
	ExitConfig      = 3
	ExitTests       = 4 // tests failed
	ExitUnreachable = 5
	ExitInterrupted = 130 // 128 plus the number of SIGINT, as in shells
)

// Exit prints the error of a command and returns the exit code. The error goes to Talk
// as text, or with JSON to Out.
func (s *Shell) Exit(err error) int {
	code, faults := exitCode(err), config.Faults{}
	switch {
	case err == nil, errors.Is(err, ErrFailed), errors.Is(err, ErrTests), errors.Is(err, ErrInvalid): // printed already
	case s.JSON:
		s.printFailure(s.newFailure(err, code))
	case errors.As(err, &faults):
		faults.Print(s.Talk)
	case code == ExitUsage:
		s.sayf("%v\nSee team-server --help", err)
	default:
		s.sayf("%s", s.words(err))
	}
	return code
}

// exitCode returns the exit code for the error of a command; nil means success.
func exitCode(err error) int {
	var usage UsageError
	var faults config.Faults
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrFailed):
		return ExitFailed
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	case errors.Is(err, ErrTests):
		return ExitTests
	case errors.Is(err, ErrInvalid), errors.As(err, &faults):
		return ExitConfig
	case errors.As(err, &usage), errors.Is(err, a2aclient.ErrAddress):
		return ExitUsage
	case errors.Is(err, a2aclient.ErrUnreachable):
		return ExitUnreachable
	}
	return ExitFailed
}

// log returns the log: lines for people in a terminal, JSON for machines.
func (s *Shell) log(level zapcore.Level) *zap.Logger {
	if s.Level != nil {
		level = *s.Level
	}
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.RFC3339TimeEncoder
	encoder := zapcore.NewConsoleEncoder(c)
	if s.JSON {
		encoder = zapcore.NewJSONEncoder(c)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(s.Talk)), level))
}

func (s *Shell) sayf(format string, args ...any) { fmt.Fprintf(plain{s.Talk}, format+"\n", args...) }

// text is where data for people goes.
func (s *Shell) text() io.Writer { return plain{s.Out} }

// ready says on one line that the server answers, and where.
func (s *Shell) ready(r *Running) error {
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
