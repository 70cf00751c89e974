package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxNesting is the maximum nesting of a schema file.
const maxNesting = 100

// value is a JSON value with its position in a file.
type value struct {
	offset int // index of its first byte
	kind   kind
	keys   []key
	at     map[string]*value
	items  []*value
	token  any // the value, unless it is an object or a list

	schema bool // it is at a place where a schema is expected
	cost   int  // number of schemas evaluated for it; 0 if not counted yet
	open   bool // its cost is being counted
}

// key is a key of an object, in the order of the file.
type key struct {
	name   string
	offset int
}

type kind string

const (
	object kind = "an object"
	list   kind = "an array"
	text   kind = "a string"
	number kind = "a number"
	truth  kind = "true or false"
	null   kind = "null"
)

// reader reads a file token by token and records positions.
type reader struct {
	data []byte
	dec  *json.Decoder
}

// positionError is an error with its position.
type positionError struct {
	offset        int
	message, hint string
}

func (e *positionError) Error() string { return e.message }

// read reads a file that contains a single value.
func read(data []byte) (*value, error) {
	if !utf8.Valid(data) {
		return nil, &positionError{0, "the file is not UTF-8 text", "save it as UTF-8"}
	}
	r := &reader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	v, err := r.value(0)
	if err == nil {
		if next := r.next(); next < len(data) {
			err = &positionError{next, "unexpected text after the schema", "a file must contain only one schema"}
		}
	}
	return v, r.located(err)
}

// located adds the position to a syntax error.
func (r *reader) located(err error) error {
	var p *positionError
	var syntax *json.SyntaxError
	switch {
	case err == nil, errors.As(err, &p):
		return err
	case errors.As(err, &syntax):
		return &positionError{r.next(), "the file is not valid JSON: " + syntax.Error(), "correct it here or just before"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &positionError{len(r.data), "the file is not valid JSON: it ends too early", "a schema is an object; for example {\"type\": \"object\"}"}
	}
	return &positionError{r.next(), "the file is not valid JSON: " + err.Error(), "correct it here or just before"}
}

// next returns the offset of the next token.
func (r *reader) next() int {
	at := min(int(r.dec.InputOffset()), len(r.data))
	rest := strings.TrimLeft(string(r.data[at:min(at+4096, len(r.data))]), " \t\r\n,:")
	return min(at+4096, len(r.data)) - len(rest)
}

func (r *reader) value(depth int) (*value, error) {
	v := &value{offset: r.next()}
	if depth > maxNesting {
		return nil, &positionError{v.offset, fmt.Sprintf("the schema is nested more than %d levels deep", maxNesting), "reduce the nesting with $defs"}
	}
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return v, r.object(v, depth)
		}
		return v, r.list(v, depth)
	case string:
		v.kind = text
	case float64:
		v.kind = number
	case bool:
		v.kind = truth
	default:
		v.kind = null
	}
	v.token = token
	return v, nil
}

func (r *reader) object(v *value, depth int) error {
	v.kind, v.at = object, map[string]*value{}
	for r.dec.More() {
		k := key{offset: r.next()}
		token, err := r.dec.Token()
		if err != nil {
			return err
		}
		k.name, _ = token.(string)
		if v.at[k.name] != nil {
			return &positionError{k.offset, fmt.Sprintf("key %q is set twice", k.name), "remove one of them"}
		}
		if v.at[k.name], err = r.value(depth + 1); err != nil {
			return err
		}
		v.keys = append(v.keys, k)
	}
	_, err := r.dec.Token()
	return err
}

func (r *reader) list(v *value, depth int) error {
	v.kind = list
	for r.dec.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := r.dec.Token()
	return err
}

// any returns the value as encoding/json decodes it. It leaves out two keywords of schemas: format,
// because it would be checked in draft-07, and $id, because it would change what references refer
// to.
func (v *value) any() any {
	switch v.kind {
	case object:
		m := make(map[string]any, len(v.at))
		for k, e := range v.at {
			if !v.schema || k != "format" && k != "$id" {
				m[k] = e.any()
			}
		}
		return m
	case list:
		l := make([]any, len(v.items))
		for i, e := range v.items {
			l[i] = e.any()
		}
		return l
	case text, number, truth, null:
	}
	return v.token
}

// place converts an offset to a line and a column in characters, both counted from 1.
func place(data []byte, offset int) (line, col int) {
	before := data[:min(offset, len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}
