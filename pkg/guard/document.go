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

// maxNesting bounds how deep a schema file nests.
const maxNesting = 100

// value is a JSON value with its place in a file.
type value struct {
	offset int // of its first byte
	kind   kind
	keys   []key
	at     map[string]*value
	items  []*value
	plain  any // of what is neither object nor list

	schema bool // it stands where a schema belongs
	cost   int  // of evaluating it as a schema; 0 is not known yet
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
	list   kind = "a list"
	text   kind = "a text"
	number kind = "a number"
	truth  kind = "true or false"
	null   kind = "null"
)

// reader reads a file token by token, keeping the places.
type reader struct {
	data []byte
	dec  *json.Decoder
}

// placed is an error with its place.
type placed struct {
	offset        int
	message, hint string
}

func (e *placed) Error() string { return e.message }

// read returns the one value of a file.
func read(data []byte) (*value, error) {
	if !utf8.Valid(data) {
		return nil, &placed{0, "the file is not UTF-8 text", "save it as UTF-8"}
	}
	r := &reader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	v, err := r.value(0)
	if err == nil {
		if next := r.next(); next < len(data) {
			err = &placed{next, "there is something behind the schema", "a file holds one schema"}
		}
	}
	return v, r.located(err)
}

// located gives a syntax error its place.
func (r *reader) located(err error) error {
	var p *placed
	var syntax *json.SyntaxError
	switch {
	case err == nil, errors.As(err, &p):
		return err
	case errors.As(err, &syntax):
		return &placed{r.next(), "the file is no JSON: " + syntax.Error(), "correct it here, or right before"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &placed{len(r.data), "the file is no JSON: it ends too early", "a schema is an object; for example {\"type\": \"object\"}"}
	}
	return &placed{r.next(), "the file is no JSON: " + err.Error(), "correct it here, or right before"}
}

// next is where the next token begins.
func (r *reader) next() int {
	at := min(int(r.dec.InputOffset()), len(r.data))
	rest := strings.TrimLeft(string(r.data[at:min(at+4096, len(r.data))]), " \t\r\n,:")
	return min(at+4096, len(r.data)) - len(rest)
}

func (r *reader) value(depth int) (*value, error) {
	v := &value{offset: r.next()}
	if depth > maxNesting {
		return nil, &placed{v.offset, fmt.Sprintf("the schema nests deeper than %d levels", maxNesting), "make it flatter with $defs"}
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
	v.plain = token
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
			return &placed{k.offset, fmt.Sprintf("key %q is set twice", k.name), "remove one of them"}
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

// any is the value as encoding/json has it.
func (v *value) any() any {
	switch v.kind {
	case object:
		m := make(map[string]any, len(v.at))
		for k, e := range v.at {
			m[k] = e.any()
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
	return v.plain
}

// place counts lines and columns, in characters, from 1.
func place(data []byte, offset int) (line, col int) {
	before := data[:min(offset, len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}
