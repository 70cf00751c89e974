// Command testlog makes the output of `go test -json` readable: it prints the
// output of packages, and of tests only that of failed and skipped ones. It saves
// the events in a file. It fails if a test failed, if a test was skipped because a
// tool is not installed, or if no test ran.
//
//	go test -json ./... | testlog -o test.json
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// missingTool marks the output of a test that is skipped because a tool that it
// needs is not installed.
const missingTool = "SKIP-MISSING-TOOL"

func main() {
	name := flag.String("o", os.DevNull, "file to keep the events in")
	flag.Parse()
	f, err := os.Create(*name)
	if err == nil {
		l := log{out: os.Stdout, lines: map[string][]string{}}
		err = l.read(io.TeeReader(os.Stdin, f))
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			err = l.summary()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
}

type log struct {
	out               io.Writer
	lines             map[string][]string // output of running tests, by package and test
	pass, fail, skips int
	packagesFailed    int
	wantTool          []string // tests skipped because a tool is not installed
}

type event struct{ Action, Package, Test, Output string }

func (l *log) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			l.add(e)
		} else {
			l.print(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *log) add(e event) {
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output":
		l.print(e.Output)
	case e.Action == "output" && e.Test == "":
		if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
			l.print(e.Output)
		}
	case e.Action == "output":
		l.lines[key] = append(l.lines[key], e.Output)
	case e.Test == "" && e.Action == "fail":
		l.packagesFailed++
		l.died(e.Package)
	case e.Test == "":
	case e.Action == "pass":
		l.pass++
		delete(l.lines, key)
	case e.Action == "fail":
		l.fail++
		l.end(key)
	case e.Action == "skip":
		l.skips++
		if strings.Contains(strings.Join(l.lines[key], ""), missingTool) {
			l.wantTool = append(l.wantTool, key)
		}
		l.end(key)
	}
}

// end prints the output of a test that has ended, and deletes it from lines.
func (l *log) end(key string) {
	for _, s := range l.lines[key] {
		l.print(s)
	}
	delete(l.lines, key)
}

// died prints the output of the tests of a failed package that have not ended.
func (l *log) died(pkg string) {
	for key := range l.lines {
		if strings.HasPrefix(key, pkg+" ") {
			l.end(key)
		}
	}
}

func (l *log) print(s string) { _, _ = io.WriteString(l.out, s) }

func (l *log) summary() error {
	l.print(fmt.Sprintf("%d tests passed, %d failed, %d skipped\n", l.pass, l.fail, l.skips))
	if len(l.wantTool) > 0 {
		return fmt.Errorf("skipped for want of a tool: %s", strings.Join(l.wantTool, ", "))
	}
	if l.fail+l.packagesFailed > 0 {
		return fmt.Errorf("%d tests failed, in %d packages", l.fail, l.packagesFailed)
	}
	if l.pass == 0 {
		return fmt.Errorf("no test ran")
	}
	return nil
}
