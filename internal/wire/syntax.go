package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"
)

// syntax returns why b is not valid JSON, as the predicate of a sentence, or "" if it is valid.
// Positions of bytes are counted from 1.
func syntax(b []byte) string {
	var wrong *json.SyntaxError
	var v json.RawMessage
	err := json.Unmarshal(b, &v)
	switch {
	case errors.As(err, &wrong) && int(wrong.Offset) >= len(b) && endsEarly(b):
		return fmt.Sprintf("is not JSON: it ends early, after %d bytes", len(b))
	case errors.As(err, &wrong):
		return fmt.Sprintf("is not JSON, at byte %d", wrong.Offset)
	}
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf("is not UTF-8, at byte %d", i+1)
		}
		i += size
	}
	return ""
}

// endsEarly reports whether b is the beginning of a valid JSON text.
func endsEarly(b []byte) bool {
	err := json.NewDecoder(bytes.NewReader(b)).Decode(new(json.RawMessage))
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

var (
	position = regexp.MustCompile(`\(line (\d+):(\d+)\)`)
	twice    = regexp.MustCompile(`duplicate (?:field|map key) ("[^"]{1,100}")`)
)

// place describes an error of the protobuf library as the predicate of a sentence. It contains
// only the position and the name of a duplicate field, not the text of the library.
func place(err error) string {
	problem := "cannot be read"
	if m := twice.FindStringSubmatch(err.Error()); m != nil {
		problem = "has " + m[1] + " twice"
	}
	if m := position.FindStringSubmatch(err.Error()); m != nil {
		problem += fmt.Sprintf(", at line %s, column %s", m[1], m[2])
	}
	return problem
}
