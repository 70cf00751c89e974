package cli

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// failure is an error as -o json prints it.
type failure struct {
	// Reason is one of docs/errors.md; empty if no reason there fits.
	Reason   string            `json:"reason,omitempty"`
	Message  string            `json:"message"`
	Details  map[string]string `json:"details,omitempty"`
	Faults   source.Faults     `json:"faults,omitempty"` // faults of the configuration, if that is the error
	ExitCode int               `json:"exitCode"`
}

// newFailure returns what -o json prints for the error of a command.
func (s *Shell) newFailure(err error, exitCode int) failure {
	f := failure{Message: console.Printable(s.words(err)), ExitCode: exitCode}
	var e *agent.Error
	switch {
	case errors.As(err, &f.Faults):
		f.Reason, f.Message = agent.ReasonInvalidTeamConfig, "the configuration has faults"
	case errors.As(err, &e):
		f.Reason, f.Details = e.Reason, e.Details
		f.Message = strings.TrimPrefix(f.Message, e.Reason+": ")
	case exitCode == ExitUsage:
		f.Reason = agent.ReasonInvalidRequest
	case errors.Is(err, a2aclient.ErrUnreachable):
		f.Reason = agent.ReasonUnavailable
	case errors.Is(err, console.ErrInterrupted):
		f.Reason = agent.ReasonCanceled
	}
	return f
}

// printFailure prints the error of a command as one line of JSON.
func (s *Shell) printFailure(f failure) {
	out := json.NewEncoder(s.Out)
	out.SetEscapeHTML(false)
	if err := out.Encode(map[string]failure{"error": f}); err != nil {
		s.Sayf("%v", err)
	}
}

// words returns the text of an error, with a hint where the command line knows more about the cause
// than the server.
func (s *Shell) words(err error) string {
	var e *agent.Error
	var unanswered *a2aclient.TransportError
	if errors.As(err, &e) && e.Code == agent.CodeInvalidArgument {
		if name := lacking.FindStringSubmatch(e.Message); name != nil {
			return err.Error() + "; run and chat take it as --input " + name[1] + "=VALUE"
		}
	}
	switch {
	case errors.As(err, &unanswered) && wire.IsUnknownAuthority(unanswered.Err) && s.CA == "":
		return err.Error() + "; name its authority with --ca or in TEAM_CA"
	case errors.As(err, &unanswered) && wire.IsUnknownAuthority(unanswered.Err):
		return err.Error() + "; the file of --ca or TEAM_CA does not have its authority"
	case !errors.As(err, &e) || e.Reason != agent.ReasonUnauthenticated:
		return err.Error()
	case s.Token == "":
		return err.Error() + "; give it with --token or in TEAM_TOKEN"
	}
	return err.Error() + "; it came from --token or TEAM_TOKEN"
}

// lacking matches the refusal of a message without an input that a team wants.
var lacking = regexp.MustCompile(`\blacks the input "([^"]+)"`)

// causes collects why runs of an in-process server failed, and why tools are missing in them. A2A callers do not see
// these causes; the user who started the server does. Safe for concurrent use.
type causes struct {
	mu  sync.Mutex
	all []cause // guarded by mu
}

// cause is what is behind an error.
type cause struct {
	what  string // what has failed, as callers see it
	text  string
	aside bool // it is only printed with the problem that it belongs to
}

// log returns a logger that writes what log writes, and adds the causes of failed runs to c.
func (c *causes) log(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return causesCore{core, c} }))
}

// add adds the cause of an error, unless it is already there. aside is a cause that is only printed with the problem that it
// belongs to.
func (c *causes) add(e *agent.Error, aside bool) {
	for inner := (*agent.Error)(nil); errors.As(e.Err, &inner); {
		e = inner
	}
	if e.Err == nil {
		return
	}
	what, _, _ := strings.Cut(e.Message, "; ") // what follows is advice
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.all, func(has cause) bool { return has.text == e.Err.Error() }) {
		c.all = append(c.all, cause{what, e.Err.Error(), aside})
	}
}

// of returns the cause of a problem, whose text says what has failed; "" if it is not known.
func (c *causes) of(problem string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, has := range c.all {
		if strings.Contains(problem, has.what) {
			return has.text
		}
	}
	return ""
}

// rest returns the causes that are not printed with the problems that they belong to.
func (c *causes) rest() (texts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, has := range c.all {
		if !has.aside {
			texts = append(texts, has.text)
		}
	}
	return texts
}

// causesCore passes on the entries that its Core is enabled for and adds the errors of
// failed runs to causes.
type causesCore struct {
	zapcore.Core
	causes *causes
}

func (c causesCore) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel || c.Core.Enabled(l) }

func (c causesCore) With(fields []zapcore.Field) zapcore.Core {
	return causesCore{c.Core.With(fields), c.causes}
}

func (c causesCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.LoggerName == "run" || e.LoggerName == "agents" {
		checked = checked.AddCore(e, causesOnly{c})
	}
	return c.Core.Check(e, checked)
}

// causesOnly is the part of a causesCore that writes no log.
type causesOnly struct{ causesCore }

func (c causesOnly) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	aside := slices.ContainsFunc(fields, func(f zapcore.Field) bool { return f.Key == "tool" }) // its warning in the run has the cause
	for _, f := range fields {
		err, _ := f.Interface.(error)
		var e *agent.Error
		if errors.As(err, &e) {
			c.causes.add(e, aside)
		}
	}
	return nil
}
