package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
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
)

// Exit says how a command ended, in words and as its exit code.
func (s *Shell) Exit(err error) int {
	var usage UsageError
	var faults config.Faults
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrFailed):
		return ExitFailed
	case errors.Is(err, ErrTests):
		return ExitTests
	case errors.Is(err, ErrInvalid):
		return ExitConfig
	case errors.As(err, &faults):
		faults.Print(s.Talk)
		return ExitConfig
	case errors.As(err, &usage), errors.Is(err, client.ErrAddress):
		s.sayf("%v\nSee team-server --help", err)
		return ExitUsage
	}
	s.sayf("%v", err)
	if errors.Is(err, client.ErrUnreachable) {
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

// client is how a server is called.
func (s *Shell) client() client.Config { return client.Config{Token: s.Token} }

func (s *Shell) sayf(format string, args ...any) { fmt.Fprintf(s.Talk, format+"\n", args...) }

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
