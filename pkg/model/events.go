package model

import (
	"bufio"
	"bytes"
	"io"
)

// MaxPiece is the maximum size of one event, in bytes.
const MaxPiece = 16 << 20

// Events reads the data of server-sent events whose data is a single line, as providers send them.
// Event names and comments are ignored.
type Events struct{ lines *bufio.Scanner }

// Events returns a reader for the events of the response.
func (c *Call) Events() *Events {
	lines := bufio.NewScanner(c.res.Body)
	lines.Buffer(nil, MaxPiece)
	return &Events{lines}
}

// Next returns the data of the next event, which is valid until the next call. It returns io.EOF
// after the last event, and for the data [DONE].
func (e *Events) Next() ([]byte, error) {
	for e.lines.Scan() && e.lines.Err() == nil { // with an error, the line is incomplete
		data, ok := bytes.CutPrefix(e.lines.Bytes(), []byte("data:"))
		data = bytes.TrimSpace(data)
		switch {
		case !ok, len(data) == 0:
			continue
		case string(data) == "[DONE]":
			return nil, io.EOF
		}
		return data, nil
	}
	if err := e.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
