package team

import (
	"errors"
	"fmt"

	"github.com/agentteams/team-server/pkg/agent"
)

// Fault is one fault in the rules of a supervisor or the steps of a workflow. As an *agent.Error it
// is INVALID_TEAM_CONFIG.
type Fault struct {
	// Path of the field below the mode's key in the configuration file, such as rules[2].when or
	// steps[1].parallel[0].after[0].
	Path string
	// Subject names the rule or step for people, such as: rule "rewrite".
	Subject string
	// Err says what is wrong. It is an *expr.Error if the fault has a position in a text or a list
	// of valid names.
	Err error
}

// Error returns the subject and what is wrong with it.
func (f *Fault) Error() string { return f.Subject + ": " + f.Err.Error() }

// Unwrap returns Err, and the fault as an *agent.Error.
func (f *Fault) Unwrap() []error {
	return []error{f.Err, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, "%s", f.Error())}
}

// Faults collects faults. The zero value is empty and ready to use.
type Faults []error

// Add adds a fault; it does nothing if err is nil.
func (fs *Faults) Add(path, subject string, err error) {
	if err != nil {
		*fs = append(*fs, &Fault{Path: path, Subject: subject, Err: err})
	}
}

// Addf adds a fault with a formatted message.
func (fs *Faults) Addf(path, subject, format string, args ...any) {
	fs.Add(path, subject, fmt.Errorf(format, args...))
}

// Err returns the faults joined into one error; nil if there are none.
func (fs Faults) Err() error { return errors.Join(fs...) }
