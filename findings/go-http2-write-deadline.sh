#!/bin/sh
# net/http of Go 1.26.8, its server over HTTP/1.1 and over HTTP/2, seen on Linux.
#
# A handler writes, flushes, lets the write deadline that it had set pass while it has nothing to write, and then sets a
# new one and writes again. Over HTTP/1.1 the client gets both writes: a deadline matters to writes alone. Over HTTP/2 the
# server resets the stream when the deadline passes, though no write waits, and the client gets an error. A handler that is
# silent for longer than its deadline must therefore clear it after each flush.
#
# Seen: "HTTP/1.1: first second <nil>", and "HTTP/2.0: first stream error: stream ID 1; INTERNAL_ERROR; received from peer".
#
# The script compiles a program of the standard library in a temporary folder, runs it on loopback, prints what the client
# gets, and fails if that is not as above. It needs Go 1.26.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module deadline

go 1.26
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"
)

func main() {
	const limit = 300 * time.Millisecond
	for _, two := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			_ = c.SetWriteDeadline(time.Now().Add(limit))
			_, _ = io.WriteString(w, "first ")
			_ = c.Flush()
			time.Sleep(2 * limit)
			_ = c.SetWriteDeadline(time.Now().Add(limit))
			_, _ = io.WriteString(w, "second ")
		}))
		s.EnableHTTP2 = two
		s.StartTLS()
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			panic(err)
		}
		b, err := io.ReadAll(resp.Body)
		fmt.Printf("%s: %s%v\n", resp.Proto, b, err)
		s.Close()
	}
}
GO
go version
go run . >seen
cat seen
grep -q '^HTTP/1.1: first second <nil>$' seen
grep -q '^HTTP/2.0: first stream error: .*INTERNAL_ERROR' seen
