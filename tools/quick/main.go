// Command quick checks what has changed since the branch left main: it checks the format
// of the Go files, then runs vet, lint and the unit tests of the affected packages. On main
// itself it checks the uncommitted changes.
//
//	quick
//	quick -base HEAD~1
//
// A changed file belongs to the package of its folder, or of the nearest folder above.
// The packages that import a changed one are vetted and tested too, except those below
// tests, bench and examples. If there are more than maxImporters, they are only vetted,
// because testing them would take too long.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxImporters is the maximum number of packages to test that import changed ones.
const maxImporters = 15

func main() {
	base := flag.String("base", "main", "commit or branch to compare with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *base)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quick:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, base string) error {
	began := time.Now()
	files, err := changedFiles(ctx, base)
	if err != nil {
		return err
	}
	packages, err := listPackages(ctx)
	if err != nil {
		return err
	}
	s := selectPackages(files, packages, modules(files))
	s.explain(os.Stdout)
	for _, step := range s.steps() {
		if err := do(ctx, step); err != nil {
			return err
		}
	}
	fmt.Printf("=== passed in %s\n", time.Since(began).Round(time.Second/10))
	return nil
}

// changedFiles lists the files that differ from the merge base with a commit, and the
// new ones, by their path below the current folder.
func changedFiles(ctx context.Context, base string) ([]string, error) {
	from, err := output(ctx, "git", "merge-base", base, "HEAD")
	if err != nil {
		return nil, fmt.Errorf("compare with %s: %w", base, err)
	}
	changed, err := output(ctx, "git", "diff", "--name-only", "--no-renames", "-z", "--relative", strings.TrimSpace(from))
	if err != nil {
		return nil, err
	}
	added, err := output(ctx, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(changed+added, func(r rune) bool { return r == 0 }), nil
}

// pkg is a package of the module, as go list shows it.
type pkg struct {
	ImportPath, Dir                    string
	Imports, TestImports, XTestImports []string
}

// listPackages lists the packages of the module, with their folders relative to its root.
func listPackages(ctx context.Context) ([]pkg, error) {
	text, err := output(ctx, "go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for in := json.NewDecoder(strings.NewReader(text)); ; {
		var p pkg
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		p.Dir = filepath.ToSlash(dir)
		all = append(all, p)
	}
}

// modules lists the folders of changed files that belong to other modules below this one.
func modules(files []string) []string {
	var found []string
	for _, f := range files {
		for dir := path.Dir(f); dir != "."; dir = path.Dir(dir) {
			if _, err := os.Stat(filepath.Join(filepath.FromSlash(dir), "go.mod")); err == nil && !slices.Contains(found, dir) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// output runs a command and returns what it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return string(out), nil
}

// step is a check: a command that must succeed, and print nothing if it is silent.
type step struct {
	name    string
	silent  bool
	command []string
}

func do(ctx context.Context, s step) error {
	began := time.Now()
	fmt.Println("===", s.name)
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &said), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if s.silent && said.Len() > 0 {
		return fmt.Errorf("%s: the files above need gofmt", s.name)
	}
	fmt.Printf("    %s\n", time.Since(began).Round(time.Second/10))
	return nil
}
