package model

import (
	"bufio"
	"bytes"
	"io"
)

// MaxPiece is how many bytes one piece of a turn may have.
const MaxPiece = 16 << 20

// Events reads the data of server-sent events, as model providers send them: a
// line each. Names of events and comments are passed over.
type Events struct{ lines *bufio.Scanner }

// Events reads the answer.
func (c *Call) Events() *Events {
	lines := bufio.NewScanner(c.res.Body)
	lines.Buffer(nil, MaxPiece)
	return &Events{lines}
}

// Next returns the data of the next event, valid until the next call; io.EOF after
// the last one, and after the word [DONE].
func (e *Events) Next() ([]byte, error) {
	for e.lines.Scan() && e.lines.Err() == nil { // with an error it is half a line
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
