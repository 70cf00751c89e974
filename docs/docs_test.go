// Package docs_test keeps what the documents say true: files and commands that
// they show work, and names that they give exist.
package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
)

const root = ".."

// block is a fenced block of a document: what stands behind the fence, where it
// begins, and the text.
type block struct {
	lang, name, mark string
	line             int
	text             string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)(?: (\\S+))?(?: (\\S+))?\n(.*?)^```$")

func blocks(t *testing.T, path string) []block {
	t.Helper()
	var all []block
	doc := read(t, path)
	for _, m := range fence.FindAllStringSubmatchIndex(doc, -1) {
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return doc[m[2*i]:m[2*i+1]]
		}
		all = append(all, block{part(1), part(2), part(3), strings.Count(doc[:m[0]], "\n") + 1, part(4)})
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// documents are all pages, relative to the root.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			rel, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, rel)
		}
	}
	if len(all) < 10 {
		t.Fatalf("found %v only", all)
	}
	return all
}

// files writes the named YAML and JSON blocks of a document into a folder of its own,
// next to the examples.
func files(t *testing.T, all []block) string {
	t.Helper()
	dir := t.TempDir()
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if b.lang != "yaml" && b.lang != "json" || b.name == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, b.name), []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFiles loads every configuration shown; of one that is marked as wrong the
// faults are those shown behind it.
func TestFiles(t *testing.T) {
	for _, doc := range documents(t) {
		all := blocks(t, doc)
		loader := config.Loader{Files: os.DirFS(files(t, all)), AnyProgram: true}
		for i, b := range all {
			if b.lang != "yaml" || strings.HasSuffix(b.name, ".script.yaml") {
				continue
			}
			err := loadFile(loader, b.name)
			switch {
			case b.mark == "wrong" && (err == nil || i+1 == len(all) || err.Error() != strings.TrimRight(all[i+1].text, "\n")):
				t.Errorf("%s:%d: faults:\n%v", doc, b.line, err)
			case b.mark == "" && err != nil:
				t.Errorf("%s:%d: %v", doc, b.line, err)
			}
		}
	}
}

// loadFile loads a configuration, or a test of one.
func loadFile(l config.Loader, name string) error {
	if scenario.IsTest(name) {
		_, err := scenario.Load(l, name)
		return err
	}
	_, err := l.Load(name)
	return err
}

// demo is a server with the demo, as the documents' commands expect it. model is the endpoint that stands for a model on this
// machine; empty if there is none.
type demo struct{ bin, http, grpc, model string }

// ownServer returns free addresses for the server of a document that starts one itself, and a model.
func ownServer(t *testing.T, bin string) demo {
	llm := fakellm.New(t)
	llm.Answer("qwen3", func(r *fakellm.Request) fakellm.Turn {
		switch {
		case len(r.Tools) > 0 && r.Messages[len(r.Messages)-1].Role == "user":
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "order", Arguments: `{"number": "A-17"}`}}}
		case strings.Contains(r.System, "slowly"):
			return fakellm.Turn{Text: "Tides follow the moon.", Delay: 3 * time.Second}
		}
		return fakellm.Turn{Text: "Tides follow the moon."}
	})
	d := demo{bin: bin, model: llm.URL}
	for _, at := range []*string{&d.http, &d.grpc} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*at = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// buildServer builds the server, and returns the folder of its binary.
func buildServer(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/team-server")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// startDemo starts a server with the demo, and stops it when the test ends.
func startDemo(t *testing.T, bin string) demo {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("SKIP-MISSING-TOOL curl: install curl, the documented commands use it")
	}
	d := demo{bin: bin}
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, filepath.Join(d.bin, "team-server"), "dev", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	server.Dir = t.TempDir()
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // it was interrupted
	})
	if _, err := fmt.Fscanf(stdout, "ready http=%s grpc=%s\n", &d.http, &d.grpc); err != nil {
		t.Fatalf("the server was not ready: %v", err)
	}
	return d
}

// TestCommands runs every block of commands that is marked run, and looks for
// the output shown behind it.
func TestCommands(t *testing.T) {
	bin := buildServer(t)
	shared := startDemo(t, bin)
	for _, doc := range documents(t) {
		t.Run(doc, func(t *testing.T) {
			t.Parallel() // most of its time it waits for teams
			d := shared
			switch doc {
			case "docs/halt.md": // it halts agents that other documents send to
				d = startDemo(t, bin)
			case "docs/first-team.md": // it serves a team of its own, with a real model
				d = ownServer(t, bin)
			}
			d.commands(t, doc)
		})
	}
}

// argument matches a file that serve is given as an argument: it has its file after -c.
var argument = regexp.MustCompile(`team-server serve +[^-\s#&|>;\\` + "`" + `][^\s` + "`" + `]*`)

// TestServe: serve, which documents show without running it, is given flags only.
func TestServe(t *testing.T) {
	for _, doc := range documents(t) {
		for _, b := range blocks(t, doc) {
			if wrong := argument.FindString(b.text); b.lang == "sh" && wrong != "" {
				t.Errorf("%s:%d: %q, but serve takes no arguments; write serve -c FILE", doc, b.line, wrong)
			}
		}
	}
}

// keyCommand matches a command that makes a key, with its flags.
var keyCommand = regexp.MustCompile("\\bkeys new -[^\"`}\n]*")

// TestKeyCommands: every command that makes a key, in documents, help, errors and files to copy, names the key.
func TestKeyCommands(t *testing.T) {
	texts := append(documents(t), "deploy/compose/compose.yaml", "deploy/compose/.env.example", "internal/command/keys.go", "internal/auth/service.go", "internal/cli/admin/keys.go")
	found := 0
	for _, path := range texts {
		for _, command := range keyCommand.FindAllString(read(t, path), -1) {
			if found++; !strings.Contains(command, "--name ") {
				t.Errorf("%s: %q has no --name NAME", path, command)
			}
		}
	}
	if found < 6 {
		t.Errorf("found %d commands", found)
	}
}

// commands runs the commands of a document in their order.
func (d demo) commands(t *testing.T, doc string) {
	t.Helper()
	all := blocks(t, doc)
	dir := ""
	for i, b := range all {
		if b.lang != "sh" || b.name != "run" {
			continue
		}
		if dir == "" {
			dir = files(t, all)
		}
		out, err := d.sh(t, dir, b.text)
		if err != nil {
			t.Errorf("%s:%d: %v\n%s", doc, b.line, err, out)
		}
		if i+1 < len(all) && all[i+1].lang == "text" {
			expect(t, fmt.Sprintf("%s:%d", doc, all[i+1].line), all[i+1].text, out)
		}
	}
}

// sh runs commands in a folder, at the demo's addresses.
func (d demo) sh(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	script = strings.NewReplacer("127.0.0.1:8080", d.http, "127.0.0.1:50051", d.grpc, "http://127.0.0.1:11434/v1", d.model).Replace(script)
	c := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+d.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), err
}

// changing is what differs from run to run: times of day, ids, durations.
var changing = regexp.MustCompile(`\d\d:\d\d:\d\d|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+\.\d+s`)

// spaced is a comma of JSON with the space that protojson puts behind it in some builds.
var spaced = regexp.MustCompile(`, (["{\[])`)

// expect looks for each line of want in the output. "…" stands
// for anything.
func expect(t *testing.T, at, want, got string) {
	t.Helper()
	settled := func(text string) string { return spaced.ReplaceAllString(changing.ReplaceAllString(text, "X"), ",$1") }
	got = settled(got)
	for line := range strings.Lines(strings.TrimSpace(want)) {
		pattern := regexp.QuoteMeta(settled(strings.TrimSpace(line)))
		pattern = "(?m)^ *" + strings.ReplaceAll(pattern, "…", ".*") + "$"
		if !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s: the output has no line\n%s\nbut\n%s", at, line, got)
		}
	}
}

// TestGo finds every block of Go in code that is compiled and run.
func TestGo(t *testing.T) {
	code := flat(read(t, "docs/library_test.go") + read(t, "pkg/server/example_test.go") + read(t, "pkg/a2aclient/example_test.go") + read(t, "pkg/teamfile/teamfile_test.go") + read(t, "examples/remote-agent/main.go") + read(t, "examples/other-languages/agent.py"))
	for _, doc := range documents(t) {
		for _, b := range blocks(t, doc) {
			if (b.lang == "go" || b.lang == "python") && !strings.Contains(code, flat(b.text)) {
				t.Errorf("%s:%d: this code is in no test", doc, b.line)
			}
		}
	}
}

// flat is code without its layout.
func flat(code string) string { return strings.Join(strings.Fields(code), " ") }

// TestLinks follows the links from page to page and file.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
}

// TestPaths finds every path that CONTRIBUTING.md sends a newcomer to. Words in capitals
// stand for names of one's own.
func TestPaths(t *testing.T) {
	paths := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z.][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)+)`").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		if !regexp.MustCompile(`\b(NAME|SERVICE)\b`).MatchString(m[1]) {
			paths[m[1]] = true
		}
	}
	if len(paths) < 60 {
		t.Errorf("%d paths, want 60", len(paths))
	}
	for path := range paths {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
}

// TestReasons finds every reason of an error in errors.md, and no others.
func TestReasons(t *testing.T) {
	known := map[string]bool{}
	for _, file := range []string{"pkg/agent/errors.go", "pkg/a2aerror/a2aerror.go"} {
		for _, m := range regexp.MustCompile(`\tReason\w+ += "([A-Z_]+)"`).FindAllStringSubmatch(read(t, file), -1) {
			known[m[1]] = true
		}
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(read(t, "docs/errors.md"), -1) {
		told[m[1]] = true
	}
	if want, got := slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(told)); len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("reasons of the code:\n%v\nof the document:\n%v", want, got)
	}
}

// TestTroubleshooting finds every reason that troubleshooting.md names in errors.md.
func TestTroubleshooting(t *testing.T) {
	known := read(t, "docs/errors.md")
	names := regexp.MustCompile("`([A-Z]+(?:_[A-Z]+)+)").FindAllStringSubmatch(read(t, "docs/troubleshooting.md"), -1)
	if len(names) < 15 {
		t.Errorf("%d names", len(names))
	}
	for _, m := range names {
		if !strings.Contains(known, "`"+m[1]+"`") {
			t.Errorf("%s is no reason of an error", m[1])
		}
	}
}

// TestServices finds every service of ours in protocol.md.
func TestServices(t *testing.T) {
	doc := read(t, "docs/protocol.md")
	found := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("team.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			found++
			if name := f.Services().Get(i).FullName(); !strings.Contains(doc, "`"+string(name)+"`") {
				t.Errorf("%s is not named", name)
			}
		}
		return true
	})
	if found < 6 {
		t.Errorf("%d services, want 6", found)
	}
}

// TestExitCodes finds every exit code of the program in errors.md, and no others.
func TestExitCodes(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/errors.md"), "## Exit codes")
	codes := func(pattern, text string) []string {
		var all []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	want := codes(`\tExit[A-Z]\w+ += (\d+)`, read(t, "internal/cli/shell.go"))
	if got := codes(`(?m)^\| (\d+) \|`, table); len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("exit codes of the program: %v, of the document: %v", want, got)
	}
}

// TestKeys finds every key of the configuration file in the pages of configuration.md, and
// every fault that it names in the sources.
func TestKeys(t *testing.T) {
	doc := ""
	for _, page := range documents(t) {
		if strings.HasPrefix(page, "docs/configuration") {
			doc += read(t, page)
		}
	}
	for _, key := range keys((&teamv1.ServerConfig{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{}) {
		if !regexp.MustCompile("[`.:]" + key + "(\\[\\])?[`.:]").MatchString(doc) {
			t.Errorf("key %s is not explained", key)
		}
	}
	sources := sources(t)
	for _, row := range regexp.MustCompile("(?m)^\\| [^|]+ \\| [^|]+ \\| (`[^|]+`) \\|$").FindAllStringSubmatch(doc, -1) {
		for _, fault := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			for piece := range strings.SplitSeq(fault[1], "…") {
				if piece = strings.Trim(piece, " ,"); !strings.Contains(sources, piece) {
					t.Errorf("fault %q is none: %q", fault[1], piece)
				}
			}
		}
	}
}

// TestScenarioKeys finds every key of test files in testing.md.
func TestScenarioKeys(t *testing.T) {
	doc := read(t, "docs/testing.md")
	for _, key := range keys((&teamv1.ScenarioFile{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{}) {
		if !strings.Contains(doc, "`"+key+"`") {
			t.Errorf("key %s is not explained", key)
		}
	}
}

func keys(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) []string {
	if m == nil || seen[m.FullName()] || m.ParentFile().Package() != "team.v1" {
		return nil
	}
	seen[m.FullName()] = true
	var all []string
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		all = append(all, f.TextName())
		if f.IsMap() {
			f = f.MapValue()
		}
		all = append(all, keys(f.Message(), seen)...)
	}
	return all
}

// sources are those that word faults of a configuration.
func sources(t *testing.T) string {
	t.Helper()
	all := read(t, "proto/team/v1/config.proto")
	for _, dir := range []string{"internal/account", "internal/auth", "internal/config", "internal/config/*", "pkg/team", "pkg/team/*"} {
		found, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no sources in %s: %v", dir, err)
		}
		for _, f := range found {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
	}
	return strings.NewReplacer(`\"`, `"`).Replace(all)
}
