package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
	agents := "\nagents: {a: {description: d, model: m, instructions: i}}\n"
	for name, tt := range map[string]struct{ path, want string }{
		"a device":            {"/dev/zero", "is not a regular file"},
		"a huge file":         {huge, "is larger than 64 MiB"},
		"a script":            {write("script.yaml", "version: v1\nmodels: {m: {provider: scripted, file: /dev/zero}}"+agents), "script.yaml:2:"},
		"a secret":            {write("secret.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:/dev/zero}\"}}"+agents), "${file:/dev/zero}, which cannot be read"},
		"a secret's folder":   {write("folder.yaml", "version: v1\nmodels: {m: {provider: openai, name: n, api_key: \"${file:.}\"}}"+agents), "${file:.}, which cannot be read"},
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
