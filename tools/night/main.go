// Command night runs the long tests, part by part. A part that has passed for the current
// files is not run again, so after an interruption the command continues where it stopped.
//
//	night               # all parts
//	night machine-1     # some of them
//
// The parts are in parts.txt, one per line: the name, a colon, and the command; -parts names
// another file, such as week.txt. The output of each part is stored below bin/night.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	n := night{out: os.Stdout}
	file := flag.String("parts", filepath.Join("tools", "night", "parts.txt"), "file with the parts")
	flag.StringVar(&n.dir, "dir", filepath.Join("bin", "night"), "folder for what the parts print, and for which have passed")
	flag.DurationVar(&n.limit, "limit", time.Hour, "how long a part may take")
	list := flag.Bool("list", false, "list the parts and whether they have passed, and run none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := n.run(ctx, *file, *list, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "night:", err)
		os.Exit(1)
	}
}

// night runs parts, and records in dir which of them have passed.
type night struct {
	out   io.Writer
	dir   string
	limit time.Duration
}

// part is a shell command with a name.
type part struct{ name, command string }

func (n *night) run(ctx context.Context, file string, list bool, names []string) error {
	parts, err := readParts(file, names)
	if err != nil {
		return err
	}
	index, err := filepath.Abs(filepath.Join(n.dir, "index"))
	if err == nil {
		err = os.MkdirAll(n.dir, 0o750)
	}
	if err != nil {
		return err
	}
	tree, err := treeOf(ctx, index)
	if err != nil {
		return err
	}
	dir := filepath.Join(n.dir, tree)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	var failed []string
	for _, p := range parts {
		done := filepath.Join(dir, p.name+".passed")
		_, err := os.Stat(done)
		switch {
		case err == nil:
			fmt.Fprintf(n.out, "%s: has passed for these files\n", p.name)
		case list:
			fmt.Fprintf(n.out, "%s: not yet\n", p.name)
		case ctx.Err() != nil:
			failed = append(failed, p.name)
		default:
			err := n.play(ctx, p, filepath.Join(dir, p.name+".log"))
			if errors.Is(err, errNotRun) {
				continue
			}
			if err != nil {
				fmt.Fprintf(n.out, "%s: FAILED: %v\n", p.name, err)
				failed = append(failed, p.name)
			} else if err := os.WriteFile(done, nil, 0o600); err != nil {
				return err
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not passed: %s; run it again to go on with these", strings.Join(failed, ", "))
	}
	return nil
}

// notRun is the exit status of a part that lacks what it needs, and has said so. The part has neither passed nor failed.
const notRun = 77

var errNotRun = errors.New("the part was not run")

// play runs a part. If the part times out or ctx ends, play stops it and all processes that
// it started.
func (n *night) play(ctx context.Context, p part, log string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.limit, fmt.Errorf("it took longer than %v; split it into several parts", n.limit))
	defer cancel()
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	fmt.Fprintf(n.out, "%s: %s\n", p.name, p.command)
	began := time.Now()
	c := exec.CommandContext(ctx, "bash", "-c", p.command)
	c.Env = append(os.Environ(), "TEAM_TESTS=all") // see internal/testkit/sample
	c.Stdout, c.Stderr = f, f
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	err = c.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if c.ProcessState.ExitCode() == notRun {
		said, err := os.ReadFile(log)
		fmt.Fprintf(n.out, "%s: not run: %s\n", p.name, bytes.TrimSpace(said))
		return errors.Join(errNotRun, err)
	}
	if err != nil {
		return fmt.Errorf("%w; see %s", err, log)
	}
	fmt.Fprintf(n.out, "%s: passed in %v\n", p.name, time.Since(began).Round(time.Second))
	return nil
}

// readParts returns the parts of a file: those with one of the names, or all if there
// are no names.
func readParts(file string, names []string) ([]part, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parts []part
	var known []string
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, command, ok := strings.Cut(line, ": ")
		if !ok || slices.Contains(known, name) || strings.ContainsAny(name, " /") {
			return nil, fmt.Errorf("%s: %q is not a part; want a name that is not used yet, a colon, and a command", file, line)
		}
		known = append(known, name)
		if len(names) == 0 || slices.Contains(names, name) {
			parts = append(parts, part{name, strings.TrimSpace(command)})
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no part %q; known are %s", name, strings.Join(known, ", "))
		}
	}
	return parts, nil
}

// treeOf returns git's tree hash of a checkout, including uncommitted changes and new
// files. It uses an index file of its own and does not change that of the checkout.
func treeOf(ctx context.Context, index string) (string, error) {
	env := append(os.Environ(), "GIT_INDEX_FILE="+index)
	if _, err := git(ctx, env, "add", "--all"); err != nil {
		return "", err
	}
	return git(ctx, env, "write-tree")
}

func git(ctx context.Context, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = env
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, said.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
