package team

import (
	"errors"
	"fmt"

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
	// Err says what is wrong: an *expr.Error where there is a place in a text or
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
