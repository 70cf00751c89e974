package expr

import (
	"fmt"
	"strings"
)

// Error is what is wrong with an expression, a template or a name in them.
type Error struct {
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
func (e *Error) Error() string {
	if e.Unknown == "" {
		return e.Message
	}
	if len(e.Known) == 0 {
		return e.Message + "; nothing is known here"
	}
	return e.Message + "; known here: " + strings.Join(e.Known, ", ")
}

// Unknown returns the fault of a name that is none of those known.
func Unknown(offset int, name string, known []string, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Offset: offset, Unknown: name, Known: known}
}
