package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// TestMessages: messages are passed on line by line, also without a last line break and in small reads.
func TestMessages(t *testing.T) {
	long := strings.Replace(ping, `"ping"`, `"`+strings.Repeat("x", 100_000)+`"`, 1)
	text := "starting\n" + ping + "\r\nin between\n\t" + long + " \n[" + ping + "," + ping + "]\n" + ping
	var others bytes.Buffer
	for _, from := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
		others.Reset()
		got, err := io.ReadAll(iotest.HalfReader(&messages{from: bufio.NewReader(from), others: &others}))
		want := ping + "\n" + long + "\n[" + ping + "," + ping + "]\n" + ping + "\n"
		if err != nil || string(got) != want || others.String() != "starting\nin between\n" {
			t.Errorf("%v, messages %.200q, others %q", err, got, others.String())
		}
	}
}

// TestMessagesAreBounded: a line without an end is not collected for ever.
func TestMessagesAreBounded(t *testing.T) {
	from := io.LimitReader(endless{}, 2*mcp.DefaultMaxLineLength)
	if _, err := io.ReadAll(&messages{from: bufio.NewReader(from), others: io.Discard}); !errors.Is(err, errLongLine) {
		t.Error(err)
	}
}

// endless is a text without line breaks.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// FuzzMessages: whatever a program writes, each line that is passed on is a message.
func FuzzMessages(f *testing.F) {
	f.Add("a\n" + ping + "\n")
	f.Add("[]\n{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := io.ReadAll(&messages{from: bufio.NewReader(strings.NewReader(text)), others: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(got) {
			if !isMessage(line) {
				t.Errorf("%q passed on", line)
			}
		}
	})
}
