package command

import (
	"fmt"

	"github.com/spf13/cobra"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/admin"
	"github.com/agentteams/team-server/internal/cli/console"
)

// subject is what the flags of a command name. At most one may be set; --team and --agent may have an --account.
type subject struct {
	all   bool
	names map[teamv1.HaltKind]*string
}

// subjectFlags adds the flags that name a subject.
func subjectFlags(c *cobra.Command, verb string) *subject {
	s := &subject{names: map[teamv1.HaltKind]*string{}}
	c.Flags().BoolVar(&s.all, "all", false, verb+" everything on the server")
	for _, f := range []struct {
		kind       teamv1.HaltKind
		name, help string
	}{
		{teamv1.HaltKind_HALT_KIND_ACCOUNT, "account", "the tasks of an account; with --team or --agent: the account that has made it by the API"},
		{teamv1.HaltKind_HALT_KIND_OWNER, "owner", "the tasks of a principal: ACCOUNT/NAME"},
		{teamv1.HaltKind_HALT_KIND_TEAM, "team", "a team, also as a member of other teams"},
		{teamv1.HaltKind_HALT_KIND_AGENT, "agent", "an agent, also as a member of teams"},
		{teamv1.HaltKind_HALT_KIND_MODEL, "model", "a model, by its key in the file or its provider's name"},
		{teamv1.HaltKind_HALT_KIND_TOOL, "tool", "a tool by its name, or all tools of an MCP server by its key in the file"},
	} {
		s.names[f.kind] = c.Flags().String(f.name, "", verb+" "+f.help)
	}
	return s
}

// named returns the subject that the flags name.
func (s *subject) named(c *cobra.Command) (kind teamv1.HaltKind, name, account string, err error) {
	n := 0
	if s.all {
		kind, n = teamv1.HaltKind_HALT_KIND_SERVER, 1
	}
	made := *s.names[teamv1.HaltKind_HALT_KIND_TEAM] != "" || *s.names[teamv1.HaltKind_HALT_KIND_AGENT] != ""
	for of, value := range s.names {
		switch {
		case *value == "":
		case of == teamv1.HaltKind_HALT_KIND_ACCOUNT && made:
			account = *value
		default:
			kind, name = of, *value
			n++
		}
	}
	if n != 1 {
		return kind, name, account, console.UsageError{Err: fmt.Errorf("%s needs one of --all, --account, --owner, --team, --agent, --model and --tool, for example: %s", nameOf(c), c.Annotations["example"])}
	}
	return kind, name, account, nil
}

func haltCommand(s *cli.Shell) *cobra.Command {
	on := &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	req := &teamv1.HaltRequest{}
	c := &cobra.Command{
		Use: "halt", Short: "Stops all work of a server, an account, a team, an agent, a model or a tool",
		Long: "Halts a subject on the running server that --server names, in all of its replicas, until\n" +
			"\"resume\". New messages are refused, no call that the halt covers begins, and running\n" +
			"work is canceled, or paused with --pause. Prints what was\n" +
			"stopped, once no further call can begin; that takes at most 15 seconds. Exits with 1 if\n" +
			"a replica has not confirmed that. If the server has API keys, --token gives one\n" +
			"with the permission HALT, for its account and the teams that the account has made by the\n" +
			"API, or with ADMIN, for everything.",
		Example:     "  team-server halt --team desk --reason \"wrong prices\"\n  team-server halt --model smart --pause --reason \"provider is down\"\n  team-server halt ls",
		Annotations: map[string]string{"example": "team-server halt --team desk --reason \"wrong prices\""},
		Args:        usage(noArgs),
	}
	of := subjectFlags(c, "halt")
	c.Flags().StringVar(&req.Reason, "reason", "", "why; callers whose messages are refused see it")
	c.Flags().BoolVar(&req.Pause, "pause", false, "pause what runs instead of canceling it")
	c.Flags().BoolVar(&req.AllowUnknown, "allow-unknown", false, "accept the name of a team, an agent or a model that the server does not know")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if req.Kind, req.Name, req.Account, err = of.named(c); err != nil {
			return err
		}
		if req.GetReason() == "" {
			return console.UsageError{Err: fmt.Errorf("halt needs --reason TEXT, for example: %s", c.Annotations["example"])}
		}
		return on.Halt(c.Context(), req)
	}
	c.AddCommand(&cobra.Command{
		Use: "ls", Short: "Lists what is halted, oldest first", Args: usage(noArgs),
		RunE: func(c *cobra.Command, _ []string) error { return on.ListHalts(c.Context()) },
	})
	return c
}

func resumeCommand(s *cli.Shell) *cobra.Command {
	on := &admin.Commands{Console: &s.Console, Connection: &s.Connection}
	c := &cobra.Command{
		Use: "resume", Short: "Ends a halt",
		Long: "Ends the halt of a subject on the running server that --server names. Runs that the halt\n" +
			"has paused continue; those that it has canceled do not.",
		Example:     "  team-server resume --team desk",
		Annotations: map[string]string{"example": "team-server resume --team desk"},
		Args:        usage(noArgs),
	}
	of := subjectFlags(c, "resume")
	c.RunE = func(c *cobra.Command, _ []string) error {
		req := &teamv1.ResumeRequest{}
		var err error
		if req.Kind, req.Name, req.Account, err = of.named(c); err != nil {
			return err
		}
		return on.EndHalt(c.Context(), req)
	}
	return c
}
