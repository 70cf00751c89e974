package a2aerror

import (
	"fmt"
	"strings"

	"github.com/agentteams/team-server/pkg/agent"
)

// Faults collects the violations of a request, so that one error reports all of them.
type Faults []agent.Violation

// Add adds a violation for a field. The description is formatted from format and args.
func (f *Faults) Add(field, format string, args ...any) {
	*f = append(*f, agent.Violation{Field: field, Description: fmt.Sprintf(format, args...)})
}

// Err returns an INVALID_REQUEST error with all violations, or nil if there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return Invalid(f...)
}

// Invalid returns the INVALID_REQUEST error for a request with these violations.
func Invalid(faults ...agent.Violation) *Error {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Field + " " + f.Description
	}
	return &Error{
		Reason: agent.ReasonInvalidRequest, Code: agent.CodeInvalidArgument,
		Message: strings.Join(texts, "; "), Violations: faults,
	}
}

// Sizes of pages, in entries.
const (
	MaxPage     = 100
	DefaultPage = 50
)

// PageSize validates the size of a page: it returns size if it is 1 to MaxPage, and DefaultPage if it is 0.
// Otherwise it returns an error that names the field.
func PageSize(field string, size int32) (int, error) {
	var f Faults
	n := f.PageSize(field, size)
	return n, f.Err()
}

// PageSize is like the function PageSize, but adds the violation to f.
func (f *Faults) PageSize(field string, size int32) int {
	switch {
	case size == 0:
		return DefaultPage
	case size < 0 || size > MaxPage:
		f.WrongPageSize(field, size)
	}
	return int(size)
}

// WrongPageSize adds the violation for an invalid page size.
func (f *Faults) WrongPageSize(field string, size int32) {
	f.Add(field, "is %d; it must be 1 to %d; omit it for the default, %d", size, MaxPage, DefaultPage)
}
