package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// The library decodes numbers as float64, which holds integers up to 2^53 only. Longer numbers in the values of
// exactKeys are therefore sent to it as strings with a mark, and become numbers again in the JSON of what it decoded.

// exactKeys are the keys of values that models and people get as JSON.
var exactKeys = []string{"structuredContent", "inputSchema", "requestedSchema"}

// numberMark begins the strings that stand for numbers. It is not a character of any script.
const numberMark = "\ue0f1number:"

var markedOnes = regexp.MustCompile(`"` + numberMark + `([-+0-9.eE]+)"`)

// hasLongNumber reports whether a text has 16 digits and points in a row, a part of a number that float64 may not hold.
func hasLongNumber(text []byte) bool {
	run := 0
	for _, c := range text {
		if c != '.' && (c < '0' || c > '9') {
			run = 0
		} else if run++; run == 16 {
			return true
		}
	}
	return false
}

// markNumbers returns a message of JSON-RPC, or a part of one, with long numbers as strings.
func markNumbers(message []byte) []byte {
	if !hasLongNumber(message) || !slices.ContainsFunc(exactKeys, func(key string) bool { return bytes.Contains(message, []byte(`"`+key+`"`)) }) {
		return message
	}
	var out bytes.Buffer
	depth, below := 0, -1 // of the value of a key that is in exactKeys; -1 outside of one
	key := ""
	for i := 0; i < len(message); {
		end := i + 1
		switch c := message[i]; {
		case c == '"':
			end = endOfString(message, i)
			key = string(message[i+1 : max(i+1, end-1)])
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth <= below {
				below = -1
			}
		case c == ',' && depth == below:
			below = -1
		case c == ':' && below < 0 && slices.Contains(exactKeys, key):
			below = depth
		case c == '-' || c >= '0' && c <= '9':
			for end < len(message) && strings.IndexByte("+-.eE0123456789", message[end]) >= 0 {
				end++
			}
			if below >= 0 && hasLongNumber(message[i:end]) {
				out.WriteString(`"` + numberMark)
				out.Write(message[i:end])
				out.WriteByte('"')
				i = end
				continue
			}
		}
		out.Write(message[i:end])
		i = end
	}
	return out.Bytes()
}

// endOfString returns the index after the string that begins at an index.
func endOfString(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// exactJSON returns the JSON of what the library has decoded, with the numbers as the server wrote them.
func exactJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return markedOnes.ReplaceAllString(strings.TrimSpace(b.String()), "$1"), err
}

// isSame reports whether two texts are JSON of the same value.
func isSame(a, b string) bool {
	x, ok := decodeExact(a)
	y, same := decodeExact(b)
	return ok && same && equal(x, y)
}

// decodeExact returns the value of a JSON document, with numbers as they are written.
func decodeExact(text string) (v any, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	_, err := d.Token()
	return v, errors.Is(err, io.EOF)
}

// maxNumber is the maximum number of characters of a number that is compared by its value, and not by its text as those
// with an exponent are, whose value may be very long.
const maxNumber = 40

// equal compares values of decodeExact.
func equal(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok || x == y || len(x) > maxNumber || len(y) > maxNumber || strings.ContainsAny(string(x+y), "eE") {
			return ok && x == y
		}
		var p, q big.Rat
		_, isNumber := p.SetString(string(x))
		_, _ = q.SetString(string(y)) // it is one if p is
		return isNumber && p.Cmp(&q) == 0
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, v := range x {
			if w, has := y[key]; !has || !equal(v, w) {
				return false
			}
		}
		return true
	}
	return a == b
}

// exactEvents reads a stream of server-sent events, whose data is prepared by markNumbers.
type exactEvents struct {
	from *bufio.Reader
	rest []byte // of the current line
	err  error
}

// Read implements io.Reader.
func (e *exactEvents) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		var line []byte
		if line, e.err = readLine(e.from); bytes.HasPrefix(line, []byte("data:")) {
			line = markNumbers(line)
		}
		e.rest = line
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// exactDocument reads a JSON document, which is prepared by markNumbers.
type exactDocument struct {
	from  io.Reader
	whole *bytes.Reader // nil until the first read
	err   error         // that follows what was read
}

// Read implements io.Reader.
func (d *exactDocument) Read(p []byte) (int, error) {
	if d.whole == nil {
		var all []byte
		all, d.err = io.ReadAll(d.from)
		d.whole = bytes.NewReader(markNumbers(all))
	}
	n, err := d.whole.Read(p)
	if err != nil && d.err != nil {
		err = d.err
	}
	return n, err
}
