package expr

import (
	"fmt"
	"strings"
)

// Error is a fault of an expression or a template, or an unknown name in another field.
type Error struct {
	// Message says what is wrong.
	Message string
	// Offset of the fault in the text, in bytes.
	Offset int
	// Unknown is the unknown name; empty for other faults.
	Unknown string
	// Known are the valid names, sorted; set only with Unknown.
	Known []string
}

// Error returns the message, followed by the valid names.
func (e *Error) Error() string {
	if e.Unknown == "" {
		return e.Message
	}
	if len(e.Known) == 0 {
		return e.Message + "; nothing is known here"
	}
	return e.Message + "; known here: " + strings.Join(e.Known, ", ")
}

// Unknown returns the error for an unknown name. known are the valid names, sorted.
func Unknown(offset int, name string, known []string, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Offset: offset, Unknown: name, Known: known}
}
