package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var errLongLine = errors.New("the server wrote a line longer than 16 MiB")

// messages reads the messages among the lines that a program writes, and writes all other lines to others.
type messages struct {
	from   *bufio.Reader
	others io.Writer
	rest   []byte // of the current message
}

// Read implements io.Reader.
func (m *messages) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		line, err := readLine(m.from)
		switch {
		case isMessage(line):
			m.rest = append(markNumbers(bytes.TrimSpace(line)), '\n')
		case len(bytes.TrimSpace(line)) > 0:
			_, _ = m.others.Write(append(bytes.TrimRight(line, "\r\n"), '\n')) // it only logs
		}
		if err != nil && len(m.rest) == 0 {
			return 0, err
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// readLine reads a line of at most the length that the library accepts.
func readLine(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if line = append(line, part...); len(line) > mcp.DefaultMaxLineLength {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// isMessage reports whether a line is a message of JSON-RPC, or a batch of them.
func isMessage(line []byte) bool {
	var batch []json.RawMessage
	if json.Unmarshal(line, &batch) != nil {
		batch = []json.RawMessage{line}
	}
	for _, one := range batch {
		if _, err := jsonrpc.DecodeMessage(one); err != nil {
			return false
		}
	}
	return len(batch) > 0
}
