package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentteams/team-server/internal/config"
)

// TestFilesThatHaveNoEnd refuses what could be read for ever, by itself and where
// a file names it.
func TestFilesThatHaveNoEnd(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no devices as files")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	huge := write("huge.yaml", "version: v1")
	if err := os.Truncate(huge, 65<<20); err != nil {
		t.Fatal(err)
	}
	write("large", strings.Repeat("x", 64<<10+1))
	write("empty", "\n")
	agents := "\nagents: {a: {description: d, model: m, instructions: i}}\n"
	for name, tt := range map[string]struct{ path, want string }{
		"a device":            {"/dev/zero", "is not a regular file"},
		"a huge file":         {huge, "is larger than 64 MiB"},
		"a script":            {write("script.yaml", "version: v1\nmodels: {m: {provider: scripted, file: /dev/zero}}"+agents), "script.yaml:2:"},
		"a secret":            {write("secret.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:/dev/zero}\"}}"+agents), "name a regular file, not a pipe or device"},
		"a secret's folder":   {write("folder.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:.}\"}}"+agents), "${file:.}, which cannot be read"},
		"a secret, too large": {write("large.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:large}\"}}"+agents), "${file:large}, which is too large"},
		"a large variable":    {write("env.yaml", "version: v1\nmodels: {m: {provider: scripted, file: s.yaml}}\ntools: {env: {mcp: {command: [x], env: {A: \"${file:large}\"}}}}\nagents: {a: {description: d, model: m, instructions: i, tools: [env]}}"), "a secret has at most 64 KiB"},
		"a secret, empty":     {write("empty.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:empty}\"}}"+agents), "empty.yaml:2:50  agent \"a\" needs ${file:empty}, which is empty"},
		"a secret, not there": {write("none.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:no.txt}\"}}"+agents), "create the file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Loader{}.Load(tt.path)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestFilesDigest: the digest of all files is that of what sha256sum prints, and changes with each of them but those of
// secrets.
func TestFilesDigest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("team.yaml", `version: v1
models: {m: {provider: scripted, file: team.script.yaml}, o: {provider: openai, name: n, api_key: "${file:key.txt}"}}
agents: {a: {description: d, model: m, instructions: "${file:a prompt.txt}"}, b: {description: d, model: o, instructions: i}}
`)
	write("team.script.yaml", "agents: {a: [{text: one}]}\n")
	write("a prompt.txt", "Write.\n")
	write("key.txt", "hush\n")
	digests := func() (file, files string) {
		t.Helper()
		c, err := config.Loader{}.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest(), c.FilesDigest()
	}
	file, files := digests()
	if _, err := exec.LookPath("sha256sum"); err == nil {
		c := exec.CommandContext(t.Context(), "sh", "-c", "sha256sum 'a prompt.txt' team.script.yaml team.yaml | sha256sum")
		c.Dir = dir
		if want, err := c.Output(); err != nil || string(want) != files+"  -\n" {
			t.Errorf("files %s, sha256sum prints %s, %v", files, want, err)
		}
	}
	for _, change := range []struct {
		name, text string
		changes    bool
	}{
		{"team.script.yaml", "agents: {a: [{text: two}]}\n", true}, {"a prompt.txt", "Write more.\n", true}, {"key.txt", "shh\n", false},
	} {
		write(change.name, change.text)
		now, all := digests()
		if now != file || (all != files) != change.changes {
			t.Errorf("after a change of %s: file %s, was %s; files %s, was %s", change.name, now, file, all, files)
		}
		files = all
	}
}

// TestLongTextsFromFiles: only secrets are limited to 64 KiB, whatever an agent is called.
func TestLongTextsFromFiles(t *testing.T) {
	text := strings.Repeat("x", 100<<10)
	files := fstest.MapFS{
		"team.yaml": {Data: []byte("version: v1\nagents: {store: {description: \"${file:long}\", scripted: {steps: [{echo: true}]}}, env: {description: \"${file:long}\", scripted: {steps: [{echo: true}]}}}\n")},
		"long":      {Data: []byte(text + "\n")},
	}
	c, err := config.Loader{Files: files}.Load("team.yaml")
	if err != nil || c.Server.GetAgents()["store"].GetDescription() != text {
		t.Error(err)
	}
}
