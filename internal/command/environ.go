package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config/source"
)

// fromEnvironment are the flags that variables set: those that mean the same in each command that has them.
var fromEnvironment = []string{"server", "token", "ca", "client-cert", "client-key", "store", "log-level", "output"}

// variablePrefix is that of the variables that set flags.
const variablePrefix = "TEAM_"

// variable returns the name of the environment variable that sets a flag, TEAM_CLIENT_KEY for --client-key. It
// returns "" for a flag that no variable sets.
func variable(f *pflag.Flag) string {
	if !slices.Contains(fromEnvironment, f.Name) {
		return ""
	}
	return variableOf(f.Name)
}

func variableOf(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv sets flags that were not given from the environment.
func fromEnv(c *cobra.Command) error {
	var err error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		value, ok := os.LookupEnv(name)
		if !ok || name == "" || f.Changed || err != nil {
			return
		}
		if setErr := c.Flags().Set(f.Name, value); setErr != nil {
			err = console.UsageError{Err: fmt.Errorf("%s: %w", name, wrongFlag(setErr))}
		}
	})
	return err
}

// warnUnread warns of variables that look as if they set a flag and that nothing reads: no flag, and no file that
// the command is given.
func warnUnread(c *cobra.Command, w io.Writer) {
	read := make([]string, len(fromEnvironment))
	for i, flag := range fromEnvironment {
		read[i] = variableOf(flag)
	}
	texts := filesOf(c)
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		used := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "${"+name) })
		if !strings.HasPrefix(name, variablePrefix) || value == "" || slices.Contains(read, name) || used {
			continue
		}
		fmt.Fprintf(w, "warning: the variable %s is not read: %s\n", name, instead(c.Root(), name, read))
	}
}

// instead says what to do in place of setting a variable that is not read.
func instead(root *cobra.Command, name string, read []string) string {
	if flag := flagOf(root, name); flag != "" {
		return "give --" + flag + " to the command"
	}
	return source.Suggest(name, read)
}

// flagOf returns the flag of any command that has the name of a variable; "" if none has.
func flagOf(c *cobra.Command, name string) (flag string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if variableOf(f.Name) == name {
			flag = f.Name
		}
	})
	for _, below := range c.Commands() {
		if flag == "" {
			flag = flagOf(below, name)
		}
	}
	return flag
}

// maxRead is the maximum size of a file that is searched for variables, in bytes.
const maxRead = 1 << 20

// filesOf returns the texts of the files and folders that a command is given, and of the configuration in the current
// folder.
func filesOf(c *cobra.Command) (texts []string) {
	names := append([]string{"."}, c.Flags().Args()...)
	c.Flags().Visit(func(f *pflag.Flag) { names = append(names, strings.Trim(f.Value.String(), "[]")) })
	for _, name := range names {
		for _, path := range []string{name, filepath.Join(name, "team.yaml"), filepath.Join(name, "team.yml")} {
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || info.Size() > maxRead {
				continue
			}
			if text, err := os.ReadFile(path); err == nil { //nolint:gosec // the user names the file
				texts = append(texts, string(text))
			}
		}
	}
	return texts
}
