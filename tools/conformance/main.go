// Command conformance runs an A2A conformance kit, which the user has fetched, against
// this server, and compares the tests that did not pass with the recorded deviations.
//
//	conformance -server bin/team-server -agent bin/conformance-agent -kit ../a2a-tck
//	conformance -agent bin/conformance-agent -acts ../A2A/tests/acts
//
// It works on a copy of the kit. A test that the kit skips or expects to fail counts as
// not passed. Each test that did not pass must be in deviations-1.0.yaml or
// deviations-0.3.yaml, with the reason. A missing entry is an error, and so is an entry
// for a test that passes.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	c := command{out: os.Stdout}
	flag.StringVar(&c.kit, "kit", "", "folder of the kit: a checkout of it, without changes")
	flag.StringVar(&c.acts, "acts", "", "folder of the ACTS corpus, tests/acts of a checkout, without changes; it is played instead of a kit")
	flag.StringVar(&c.server, "server", filepath.Join("bin", "team-server"), "the server, as a program: the kit for 0.3 calls it")
	flag.StringVar(&c.agent, "agent", filepath.Join("bin", "conformance-agent"), "the program of tools/conformance/agent: the kit for 1.0 calls it")
	flag.StringVar(&c.python, "python", os.Getenv("PYTHON"), "a Python that has the packages the kit needs; without one they are installed below -work")
	flag.StringVar(&c.work, "work", filepath.Join("bin", "conformance"), "folder for the copy of the kit, its packages and its reports")
	flag.StringVar(&c.deviations, "deviations", filepath.Join("tools", "conformance"), "folder of the deviations on record")
	flag.StringVar(&c.doc, "doc", "", "write the result into this file, between its markers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		stop()
		os.Exit(1)
	}
}

// command is the program with its flags.
type command struct {
	kit, acts, server, agent, python, work, deviations, doc string
	out                                                     io.Writer
}

func (c *command) run(ctx context.Context) error {
	if c.acts != "" {
		return c.runActs(ctx)
	}
	if c.kit == "" {
		return fmt.Errorf("no kit; fetch one of github.com/a2aproject/a2a-tck, branch 1.0-dev or 0.3.x, and name its folder: make conformance KIT=dir; " +
			"or the corpus of github.com/a2aproject/A2A, branch conformance-spec: make conformance ACTS=dir/tests/acts")
	}
	s, err := findSuite(c.kit)
	if err != nil {
		return err
	}
	origin, err := identify(ctx, c.kit)
	if err != nil {
		return err
	}
	known, err := readDeviations(filepath.Join(c.deviations, "deviations-"+s.line+".yaml"))
	if err != nil {
		return err
	}
	work, err := filepath.Abs(filepath.Join(c.work, s.line))
	if err != nil {
		return err
	}
	at, err := s.prepare(ctx, c.kit, work, c.python)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	results, err := s.play(ctx, io.MultiWriter(c.out, &said), at, c.server, c.agent)
	if err != nil {
		return err
	}
	summary := s.settings(origin, at) + report(results, known) + kitLevels(said.String())
	fmt.Fprintf(c.out, "\n%s", summary)
	if c.doc != "" {
		if err := insert(c.doc, s.line, summary); err != nil {
			return err
		}
	}
	return judge(results, known)
}

// insert replaces the text between the two markers of a protocol version in a document.
func insert(file, line, text string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- begin "+line+" -->\n", "<!-- end "+line+" -->\n"
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no lines %q and %q to write between", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o600)
}
