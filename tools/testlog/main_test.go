package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLog(t *testing.T) {
	for name, c := range map[string]struct{ in, out, err string }{
		"pass": {
			`{"Action":"run","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Test":"A","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok p 0.1s\n"}
{"Action":"pass","Package":"p"}
`,
			"ok p 0.1s\n1 tests passed, 0 failed, 0 skipped\n", "",
		},
		"fail": {
			`{"Action":"output","Package":"p","Test":"A","Output":"want 1, got 2\n"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Output":"FAIL p\n"}
{"Action":"fail","Package":"p"}
`,
			"want 1, got 2\nFAIL p\n0 tests passed, 1 failed, 0 skipped\n", "1 tests failed, in 1 packages",
		},
		"panic": {
			`{"Action":"output","Package":"p","Test":"A","Output":"panic: no\n"}
{"Action":"fail","Package":"p"}
`,
			"panic: no\n0 tests passed, 0 failed, 0 skipped\n", "0 tests failed, in 1 packages",
		},
		"build": {
			`{"Action":"build-output","ImportPath":"p","Output":"a.go:1: undefined: b\n"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"output","Package":"p","Output":"FAIL p [build failed]\n"}
{"Action":"fail","Package":"p"}
`,
			"a.go:1: undefined: b\nFAIL p [build failed]\n0 tests passed, 0 failed, 0 skipped\n", "0 tests failed, in 1 packages",
		},
		"missing tool": {
			`{"Action":"output","Package":"p","Test":"A","Output":"SKIP-MISSING-TOOL: npm\n"}
{"Action":"skip","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"B"}
`,
			"SKIP-MISSING-TOOL: npm\n1 tests passed, 0 failed, 1 skipped\n", "skipped for want of a tool: p A",
		},
		"nothing":  {"", "0 tests passed, 0 failed, 0 skipped\n", "no test ran"},
		"not json": {"go: oops\n", "go: oops\n0 tests passed, 0 failed, 0 skipped\n", "no test ran"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			l := log{out: &out, lines: map[string][]string{}}
			if err := l.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := l.summary(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.out, out.String()); diff != "" {
				t.Error(diff)
			}
			if got != c.err {
				t.Errorf("error %q, want %q", got, c.err)
			}
		})
	}
}
