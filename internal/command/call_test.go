package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentteams/team-server/internal/cli"
)

// TestCallIsDocumented finds every command and every flag of call in docs/call.md, and
// an example in what each command says of itself.
func TestCallIsDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "call.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	commands := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() && c.Name() == "push" {
			return // noArgs by itself
		}
		commands++
		if use := strings.TrimPrefix(c.CommandPath()+strings.TrimPrefix(c.Use, c.Name()), "team-server "); !strings.Contains(doc, "`"+use+"`") {
			t.Errorf("docs/call.md does not have %s", use)
		}
		if !strings.Contains(c.Example, c.CommandPath()+" ") {
			t.Errorf("%s has no example", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(doc, "`--"+f.Name+"`") && !strings.Contains(doc, "`--"+f.Name+" ") {
				t.Errorf("docs/call.md does not explain --%s of %s", f.Name, c.CommandPath())
			}
		})
	}
	root := newRoot(&cli.Shell{})
	call, _, err := root.Find([]string{"call"})
	if err != nil {
		t.Fatal(err)
	}
	walk(call)
	if commands != 12 {
		t.Errorf("%d commands, want 12", commands)
	}
}
