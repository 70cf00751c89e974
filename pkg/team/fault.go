package team

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// Fault is one fault in the rules of a supervisor or the steps of a workflow.
// As an *agent.Error it is INVALID_TEAM_CONFIG.
type Fault struct {
	// Path of the field below the mode's key, in the words of the configuration
	// file: rules[2].when, steps[1].parallel[0].after[0].
	Path string
	// Subject is the rule or step in words: rule "rewrite".
	Subject string
	// Err says what is wrong: an *ExprError where there is a place in a text or
	// a list of names to choose from.
	Err error
}

// Error names the rule or step and what is wrong with it.
func (f *Fault) Error() string { return f.Subject + ": " + f.Err.Error() }

// Unwrap returns what is wrong, and the fault as an *agent.Error.
func (f *Fault) Unwrap() []error {
	return []error{f.Err, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "%s", f.Error())}
}

// Faults collects faults. The zero value has none.
type Faults []error

// Add adds a fault; nothing where err is nil.
func (fs *Faults) Add(path, subject string, err error) {
	if err != nil {
		*fs = append(*fs, &Fault{Path: path, Subject: subject, Err: err})
	}
}

// Addf adds a fault in words.
func (fs *Faults) Addf(path, subject, format string, args ...any) {
	fs.Add(path, subject, fmt.Errorf(format, args...))
}

// Err returns the faults as one error, or nil.
func (fs Faults) Err() error { return errors.Join(fs...) }

// ExprError is what is wrong with an expression, a template or a name in them.
type ExprError struct {
	// Message says what is wrong.
	Message string
	// Offset of the place in the text, in bytes from its start.
	Offset int
	// Unknown is the name that is not known; empty for other faults.
	Unknown string
	// Known are the names that could stand there, sorted; set with Unknown.
	Known []string
}

// Error returns the message and what is known.
func (e *ExprError) Error() string {
	if e.Unknown == "" {
		return e.Message
	}
	if len(e.Known) == 0 {
		return e.Message + "; nothing is known here"
	}
	return e.Message + "; known here: " + strings.Join(e.Known, ", ")
}

// UnknownName returns the fault of a name that is none of those known.
func UnknownName(offset int, name string, known []string, format string, args ...any) *ExprError {
	return &ExprError{Message: fmt.Sprintf(format, args...), Offset: offset, Unknown: name, Known: known}
}
