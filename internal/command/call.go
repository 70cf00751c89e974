package command

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/call"
)

// callCommand returns the call command, which calls any A2A server. It has the flags of all calls
// and those of call send, because "call URL TEXT" is short for "call send URL TEXT".
func callCommand(s *cli.Shell) *cobra.Command {
	on, at := &call.Commands{Console: &s.Console, Connection: &s.Connection}, &call.Flags{}
	f := &call.Send{}
	c := &cobra.Command{
		Use:   "call URL TEXT",
		Short: "Calls any A2A server: sends messages and manages tasks",
		Long: "Sends a message to the agent whose card is at URL, or at its well-known path below\n" +
			"URL, over any of the three bindings, in A2A 1.0 or 0.3. grpc://HOST:PORT/TENANT\n" +
			"needs no card. Prints the answer to standard output. Exits with 1 if the task fails\n" +
			"or waits for an answer. \"call URL TEXT\" is short for \"call send URL TEXT\"; the\n" +
			"commands below are the other operations of A2A.",
		Example: "  team-server call http://127.0.0.1:8080/newsroom \"Write about tides\"\n" +
			"  team-server call --binding grpc --raw http://127.0.0.1:8080 \"Write about tides\"\n" +
			"  team-server call list http://127.0.0.1:8080/newsroom --status working",
		RunE: func(c *cobra.Command, args []string) error { return send(on, c, args, at, f) },
	}
	c.Args = usage(func(c *cobra.Command, args []string) error {
		if host, _, _ := strings.Cut(strings.Join(args[:min(len(args), 1)], ""), "/"); strings.Contains(host, ":") && !strings.Contains(args[0], "://") {
			return fmt.Errorf("call %s: write http://%s", args[0], args[0])
		}
		if len(args) > 0 && !strings.Contains(args[0], "://") {
			return fmt.Errorf("call %s: expected a URL, or one of %s", args[0], commandsOf(c))
		}
		return urlAndText(f)(c, args)
	})
	addCallFlags(c, at)
	addSendFlags(c, f)
	c.Flags().BoolVar(&f.Stream, "stream", false, "print the answer as it arrives")
	c.AddCommand(sendCommand(on, at), streamCommand(on, at), getCommand(on, at), listCommand(on, at), cancelCommand(on, at),
		subscribeCommand(on, at), pushCommand(on, at), callCardCommand(on, at))
	return c
}

// commandsOf returns the names of the subcommands, separated by commas.
func commandsOf(c *cobra.Command) string {
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return strings.Join(names, ", ")
}

// addCallFlags adds the flags that all calls share.
func addCallFlags(c *cobra.Command, f *call.Flags) {
	p := c.PersistentFlags()
	p.StringVar(&f.Binding, "binding", "", "grpc, rest or jsonrpc; default: the first one in the card")
	p.StringVar(&f.Protocol, "protocol", "", "1.0 or 0.3; default: 1.0 if the card offers it, else 0.3")
	p.Var(id{&f.Tenant}, "tenant", "agent or team to call; default: the tenant in the card")
	p.StringArrayVar(&f.Extensions, "extension", nil, "URI of an extension to activate; repeatable")
	p.StringArrayVar(&f.Headers, "header", nil, "header to add, as NAME=VALUE; metadata over gRPC; repeatable")
	p.StringArrayVar(&f.Trusted, "verify", nil, verifyHelp)
	p.BoolVar(&f.Raw, "raw", false, "print requests and responses as sent, to standard error")
	p.DurationVar(&f.Timeout, "timeout", 0, "time limit of the call, such as 30s; default: none")
}

// addSendFlags adds the flags of a message to send.
func addSendFlags(c *cobra.Command, f *call.Send) {
	p := c.Flags()
	p.StringArrayVar(&f.Files, "file", nil, "file to send with the text; repeatable")
	p.StringArrayVar(&f.Data, "data", nil, "JSON value to send with the text; repeatable")
	p.StringArrayVar(&f.URLs, "url", nil, "URL of a file to send with the text; repeatable")
	p.Var(id{&f.Context}, "context", "id of the conversation to continue")
	p.Var(id{&f.Task}, "task", "id of the task to answer")
	p.StringArrayVar(&f.References, "reference", nil, "id of a task that the message refers to; repeatable")
	p.Var(id{&f.MessageID}, "message-id", "id of the message; default: a generated one")
	p.StringVar(&f.Metadata, "metadata", "", "metadata of the request, a JSON object")
	p.StringArrayVar(&f.Accept, "accept", nil, "accepted media type of the answer; repeatable")
	p.Var(number{&f.History}, "history", "maximum number of history messages to return; default: the server's")
	p.StringVar(&f.Push, "push", "", "URL of a webhook for updates of the task")
	p.Var(secretText{&f.PushToken}, "push-token", "token to send to the webhook, or @FILE with it")
	p.BoolVar(&f.Immediately, "return-immediately", false, "do not wait for the task to end")
}

// number is the value of an optional integer flag.
type number struct{ of **int32 }

func (n number) Type() string { return "number" }

func (n number) String() string {
	if n.of == nil || *n.of == nil {
		return ""
	}
	return strconv.Itoa(int(**n.of))
}

func (n number) Set(text string) error {
	i, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return err
	}
	v := int32(i)
	*n.of = &v
	return nil
}

// id is the value of an optional flag for an id. An empty value is rejected, so that a script with
// an unset variable does not select all tasks or create a new id.
type id struct{ of *string }

func (i id) Type() string { return "id" }

func (i id) String() string {
	if i.of == nil {
		return ""
	}
	return *i.of
}

func (i id) Set(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	*i.of = text
	return nil
}

// secretText is the value of a flag that should not be on a command line: @FILE stands for the first line of a file.
type secretText struct{ of *string }

func (s secretText) Type() string { return "string" }

func (s secretText) String() string { return "" }

func (s secretText) Set(text string) error {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		data, err := os.ReadFile(name) //nolint:gosec // the user names the file
		if err != nil {
			return err
		}
		text, _, _ = strings.Cut(string(data), "\n")
		text = strings.TrimSuffix(text, "\r")
	}
	*s.of = text
	return nil
}

// urlAndText requires URL and TEXT. TEXT may be left out if flags add other parts.
func urlAndText(f *call.Send) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 && f.Parts() {
			return nil
		}
		return named("URL", "TEXT")(c, args)
	}
}

func send(on *call.Commands, c *cobra.Command, args []string, at *call.Flags, f *call.Send) error {
	f.Flags = *at
	text := ""
	if len(args) > 1 {
		text = args[1]
	}
	return on.Send(c.Context(), args[0], text, f)
}

func sendCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	f := &call.Send{}
	c := &cobra.Command{
		Use:   "send URL TEXT",
		Short: "Sends a message and prints the answer",
		Long: "Sends a message and waits for the answer. If TEXT is \"-\", the text is read from\n" +
			"standard input. TEXT may be left out if files, data or URLs are sent. Exits with 1\n" +
			"if the task fails or waits for an answer.",
		Example: "  team-server call send http://127.0.0.1:8080/newsroom \"Write about tides\"\n" +
			"  team-server call send http://127.0.0.1:8080/newsroom \"What is in it?\" --file report.txt",
		Args: usage(urlAndText(f)),
		RunE: func(c *cobra.Command, args []string) error { return send(on, c, args, at, f) },
	}
	addSendFlags(c, f)
	c.Flags().BoolVar(&f.Stream, "stream", false, "print the answer as it arrives")
	return c
}

func streamCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	f := &call.Send{Stream: true}
	c := &cobra.Command{
		Use:   "stream URL TEXT",
		Short: "Sends a message and prints the answer as it arrives",
		Long: "Sends a message and prints the answer as it arrives. Interrupting the command does\n" +
			"not end the task; the command then prints how to see the rest. Exits with 1 if the\n" +
			"task fails, waits for an answer, or is still running when the stream ends.",
		Example: "  team-server call stream http://127.0.0.1:8080/newsroom \"Write about tides\"",
		Args:    usage(urlAndText(f)),
		RunE:    func(c *cobra.Command, args []string) error { return send(on, c, args, at, f) },
	}
	addSendFlags(c, f)
	return c
}

func getCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	var history *int32
	c := &cobra.Command{
		Use:     "get URL TASK",
		Short:   "Shows a task",
		Long:    "Prints the current state of a task, its artifacts and its history.",
		Example: "  team-server call get http://127.0.0.1:8080/newsroom 01930f2a-… --history 0",
		Args:    usage(named("URL", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return on.Get(c.Context(), args[0], args[1], history, at)
		},
	}
	c.Flags().Var(number{&history}, "history", "maximum number of history messages; default: the server's")
	return c
}

func listCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	f := &call.List{}
	c := &cobra.Command{
		Use:   "list URL",
		Short: "Lists tasks",
		Long: "Lists tasks, most recently changed first: id, state, time of the last change, context.\n" +
			"Prints their number, and how to get the next page, to standard error.",
		Example: "  team-server call list http://127.0.0.1:8080/newsroom --status working\n" +
			"  team-server call list http://127.0.0.1:8080 --all -o json",
		Args: usage(named("URL")),
		RunE: func(c *cobra.Command, args []string) error {
			f.Flags = *at
			return on.List(c.Context(), args[0], f)
		},
	}
	p := c.Flags()
	p.Var(id{&f.Context}, "context", "only tasks of this conversation")
	p.StringVar(&f.Status, "status", "", "only tasks in this state, such as working or input-required")
	p.StringVar(&f.After, "after", "", "only tasks changed after this time, such as 2026-01-31T15:04:05Z")
	p.Var(number{&f.PageSize}, "page-size", "tasks per page, 1 to 100; default: the server's")
	p.StringVar(&f.PageToken, "page-token", "", "page token printed with the previous page")
	p.BoolVar(&f.All, "all", false, "list all remaining pages")
	p.BoolVar(&f.Artifacts, "artifacts", false, "also print artifacts")
	p.Var(number{&f.History}, "history", "also print up to this number of history messages")
	return c
}

func cancelCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel URL TASK",
		Short:   "Cancels a task",
		Long:    "Cancels a task and prints its state afterwards.",
		Example: "  team-server call cancel http://127.0.0.1:8080/newsroom 01930f2a-…",
		Args:    usage(named("URL", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return on.Cancel(c.Context(), args[0], args[1], at)
		},
	}
}

func subscribeCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	var after int64
	c := &cobra.Command{
		Use:   "subscribe URL TASK",
		Short: "Follows a task that has not ended",
		Long: "Prints the events of a task as they arrive, until it has ended or waits for an answer, and\n" +
			"exits as \"call stream\" does. With --after it begins after an event that was already seen; this needs a team-server.",
		Example: "  team-server call subscribe http://127.0.0.1:8080/newsroom 01930f2a-…",
		Args:    usage(named("URL", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return on.Subscribe(c.Context(), args[0], args[1], after, at)
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "sequence number of the last event seen: the id of a server-sent event, or seq in its metadata")
	return c
}

func pushCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	c := &cobra.Command{
		Use:   "push",
		Short: "Manages the webhooks for updates of a task",
	}
	c.Args = usage(func(_ *cobra.Command, args []string) error {
		return fmt.Errorf("%s: expected one of %s", strings.Join(append([]string{"call push"}, args...), " "), commandsOf(c))
	})
	c.RunE = func(*cobra.Command, []string) error { return nil } // cobra checks the arguments only of runnable commands
	c.AddCommand(pushSetCommand(on, at),
		&cobra.Command{
			Use:     "get URL TASK ID",
			Short:   "Shows a webhook of a task",
			Example: "  team-server call push get http://127.0.0.1:8080/newsroom 01930f2a-… mine",
			Args:    usage(named("URL", "TASK", "ID")),
			RunE: func(c *cobra.Command, args []string) error {
				return on.GetPush(c.Context(), args[0], args[1], args[2], at)
			},
		},
		&cobra.Command{
			Use:     "ls URL TASK",
			Short:   "Lists the webhooks of a task",
			Example: "  team-server call push ls http://127.0.0.1:8080/newsroom 01930f2a-…",
			Args:    usage(named("URL", "TASK")),
			RunE: func(c *cobra.Command, args []string) error {
				return on.ListPush(c.Context(), args[0], args[1], at)
			},
		},
		&cobra.Command{
			Use:     "delete URL TASK ID",
			Short:   "Deletes a webhook of a task",
			Example: "  team-server call push delete http://127.0.0.1:8080/newsroom 01930f2a-… mine",
			Args:    usage(named("URL", "TASK", "ID")),
			RunE: func(c *cobra.Command, args []string) error {
				return on.DeletePush(c.Context(), args[0], args[1], args[2], at)
			},
		})
	return c
}

func pushSetCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	f := &call.Push{}
	c := &cobra.Command{
		Use:     "set URL TASK WEBHOOK",
		Short:   "Registers a webhook for updates of a task",
		Example: "  team-server call push set http://127.0.0.1:8080/newsroom 01930f2a-… https://example.com/hook",
		Args:    usage(named("URL", "TASK", "WEBHOOK")),
		RunE: func(c *cobra.Command, args []string) error {
			f.Flags = *at
			return on.SetPush(c.Context(), args[0], args[1], args[2], f)
		},
	}
	c.Flags().Var(id{&f.ID}, "id", "id of the configuration; an existing one is replaced; default: a generated one")
	c.Flags().Var(secretText{&f.Token}, "push-token", "token to send to the webhook, or @FILE with it")
	c.Flags().StringVar(&f.Scheme, "auth-scheme", "", "authentication scheme the server uses for the webhook, such as Bearer")
	c.Flags().Var(secretText{&f.Credentials}, "auth-credentials", "credentials for that scheme, or @FILE with them")
	return c
}

func callCardCommand(on *call.Commands, at *call.Flags) *cobra.Command {
	var extended bool
	c := &cobra.Command{
		Use:   "card URL",
		Short: "Shows the card of an agent",
		Long: "Prints the card at URL, or at its well-known path below URL. With --extended, prints\n" +
			"the extended card for authenticated callers. With --verify, prints only what a key\n" +
			"in FILE has signed, and fails if there is no valid signature.",
		Example: "  team-server call card http://127.0.0.1:8080/newsroom",
		Args:    usage(named("URL")),
		RunE: func(c *cobra.Command, args []string) error {
			return on.Card(c.Context(), args[0], extended, at)
		},
	}
	c.Flags().BoolVar(&extended, "extended", false, "the extended card for authenticated callers")
	return c
}
