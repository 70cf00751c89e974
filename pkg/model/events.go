package model

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"slices"
)

// maxPiece is the maximum size of one event, in bytes.
const maxPiece = 16 << 20

// events reads the data of server-sent events whose data is a single line, as providers send them.
// Event names and comments are ignored; llama.cpp before October 2025 reported failures in a field error. Some endpoints answer with a whole JSON document although a stream
// was asked for, or with one on each line: each document, and each element of a list, is an event then.
type events struct {
	body  *bufio.Reader
	media string // the media type of the response
	lines *bufio.Scanner
	docs  []json.RawMessage // events of a document that have not been returned
	whole bool              // the response is a document
	seen  bool              // there was an event
	text  []byte            // lines that are not of a stream, at most maxFailure bytes
	done  bool              // the stream has ended with [DONE]
}

// events returns a reader for the events of the response.
func (c *Call) events() *events {
	media, _, _ := mime.ParseMediaType(c.res.Header.Get("Content-Type"))
	return &events{body: bufio.NewReader(c.res.Body), media: media}
}

// next returns the data of the next event, which is valid until the next call. It returns io.EOF
// after the last event, and for the data [DONE].
func (e *events) next() ([]byte, error) {
	data, err := e.read()
	switch {
	case err == nil:
		e.seen = true
	case errors.Is(err, io.EOF) && !e.seen && len(e.text) > 0:
		return nil, &StreamError{Body: e.text}
	case errors.Is(err, io.EOF) && !e.seen:
		return nil, errEmpty
	}
	return data, err
}

func (e *events) read() ([]byte, error) {
	if e.lines == nil && !e.whole {
		if err := e.begin(); err != nil {
			return nil, err
		}
	}
	if e.whole {
		return e.nextDocument()
	}
	for e.lines.Scan() && e.lines.Err() == nil { // with an error, the line is incomplete
		name, data, _ := bytes.Cut(e.lines.Bytes(), []byte(":"))
		data = bytes.TrimSpace(data)
		switch field := string(name); {
		case field == "error" && len(data) > 0:
			return nil, &StreamError{Body: bytes.Clone(data)}
		case field != "data" && !slices.Contains(otherFields, field) && len(e.text) < maxFailure:
			e.text = append(append(e.text, e.lines.Bytes()...), '\n')
			continue
		case field != "data", len(data) == 0:
			continue
		case string(data) == "[DONE]":
			e.done = true
			return nil, io.EOF
		}
		return data, nil
	}
	if err := e.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// otherFields are the names of the fields of events that are ignored; "" is that of comments and of empty lines.
var otherFields = []string{"", "event", "id", "retry", "error"}

// byteOrderMark may begin a stream, and is ignored.
const byteOrderMark = "\ufeff"

// begin decides by the first character whether the response is a stream or a document.
func (e *events) begin() error {
	for {
		first, err := e.body.Peek(1)
		if err != nil {
			return err
		}
		switch first[0] {
		case ' ', '\t', '\r', '\n':
			_, _ = e.body.Discard(1)
			continue
		case byteOrderMark[0]:
			if mark, _ := e.body.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
				_, _ = e.body.Discard(len(byteOrderMark))
				continue
			}
		case '{', '[':
			e.whole = true
			return e.documents()
		}
		if first[0] == '<' || e.media == "text/html" || e.media == "application/json" {
			return &notStreamError{e.media}
		}
		e.lines = bufio.NewScanner(e.body)
		e.lines.Buffer(nil, maxPiece)
		return nil
	}
}

// documents reads a response that is not a stream.
func (e *events) documents() error {
	data, err := io.ReadAll(io.LimitReader(e.body, maxPiece+1))
	switch {
	case err != nil:
		return err
	case len(data) > maxPiece:
		return bufio.ErrTooLong
	}
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var doc json.RawMessage
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return &notStreamError{e.media}
		}
		var list []json.RawMessage
		if json.Unmarshal(doc, &list) != nil {
			list = []json.RawMessage{doc}
		}
		e.docs = append(e.docs, list...)
	}
}

func (e *events) nextDocument() ([]byte, error) {
	if len(e.docs) == 0 {
		return nil, io.EOF
	}
	doc := e.docs[0]
	e.docs = e.docs[1:]
	return doc, nil
}

// end returns the error of a response whose last event was followed by err. reason is the provider's reason
// for the end of the turn; "" if none was received. A turn is complete once its reason was received,
// whatever happens to the connection afterwards, and without a reason at [DONE].
func (e *events) end(reason string, err error) error {
	if broken := BrokenEnd(reason); broken != nil {
		return broken
	}
	ended := errors.Is(err, io.EOF)
	switch {
	case reason != "" && (ended || errors.Is(err, io.ErrUnexpectedEOF)), ended && e.done:
		return nil
	case ended && e.whole:
		return &notStreamError{e.media}
	case ended:
		return io.ErrUnexpectedEOF
	}
	return err
}
