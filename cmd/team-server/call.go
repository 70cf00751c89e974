package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentteams/team-server/internal/app"
)

// callCommand calls any A2A server. Its flags are those of all calls; the ones of a
// send stand there too, since "call URL TEXT" is short for that.
func callCommand(s *app.Shell) *cobra.Command {
	at := &app.CallFlags{}
	f := &app.Send{}
	c := &cobra.Command{
		Use:   "call URL TEXT",
		Short: "Calls any A2A server: sends, and everything else",
		Long: "Sends a message to the agent whose card is at URL, or below it, over any of the\n" +
			"three bindings, in A2A 1.0 or 0.3. grpc://HOST:PORT/TENANT needs no card. The\n" +
			"answer goes to standard output. Exit code 1 when the task fails or waits for an\n" +
			"answer. \"call URL TEXT\" is short for \"call send URL TEXT\"; the other\n" +
			"operations of A2A are the commands below.",
		Example: "  team-server call http://127.0.0.1:8080/newsroom \"Write about tides\"\n" +
			"  team-server call --binding grpc --raw http://127.0.0.1:8080 \"Write about tides\"\n" +
			"  team-server call list http://127.0.0.1:8080/newsroom --status working",
		RunE: func(c *cobra.Command, args []string) error { return send(s, c, args, at, f) },
	}
	c.Args = usage(func(c *cobra.Command, args []string) error {
		if len(args) > 0 && !strings.Contains(args[0], "://") {
			return fmt.Errorf("call %s: expected a URL, or one of %s", args[0], commandsOf(c))
		}
		return urlAndText(f)(c, args)
	})
	addCalling(c, at)
	addSend(c, f)
	c.Flags().BoolVar(&f.Stream, "stream", false, "show the answer as it comes")
	c.AddCommand(sendCommand(s, at), streamCommand(s, at), getCommand(s, at), listCommand(s, at), cancelCommand(s, at),
		subscribeCommand(s, at), pushCommand(s, at), callCardCommand(s, at))
	return c
}

func commandsOf(c *cobra.Command) string {
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return strings.Join(names, ", ")
}

// addCalling adds the flags that all calls have.
func addCalling(c *cobra.Command, f *app.CallFlags) {
	p := c.PersistentFlags()
	p.StringVar(&f.Binding, "binding", "", "grpc, rest or jsonrpc; default: what the card names first")
	p.StringVar(&f.Protocol, "protocol", "", "1.0 or 0.3; default: 1.0 where the card offers it, else 0.3")
	p.Var(id{&f.Tenant}, "tenant", "agent or team to reach; default: the card's")
	p.StringArrayVar(&f.Extensions, "extension", nil, "URI of an extension to activate; repeatable")
	p.StringArrayVar(&f.Headers, "header", nil, "NAME=VALUE to send along, over gRPC as metadata; repeatable")
	p.StringArrayVar(&f.Trusted, "verify", nil, verifyHelp)
	p.BoolVar(&f.Raw, "raw", false, "show what goes over the wire, on standard error")
	p.DurationVar(&f.Timeout, "timeout", 0, "give up after this time, such as 30s; default: never")
}

// addSend adds the flags of what is sent.
func addSend(c *cobra.Command, f *app.Send) {
	p := c.Flags()
	p.StringArrayVar(&f.Files, "file", nil, "file to send along; repeatable")
	p.StringArrayVar(&f.Data, "data", nil, "JSON to send along; repeatable")
	p.StringArrayVar(&f.URLs, "url", nil, "URL of a file, to send along; repeatable")
	p.Var(id{&f.Context}, "context", "id of the conversation to go on with")
	p.Var(id{&f.Task}, "task", "id of the task to answer")
	p.StringArrayVar(&f.References, "reference", nil, "id of a task that the message speaks of; repeatable")
	p.Var(id{&f.MessageID}, "message-id", "id of the message; default: a new one")
	p.StringVar(&f.Metadata, "metadata", "", "metadata of the request, a JSON object")
	p.StringArrayVar(&f.Accept, "accept", nil, "media type that the answer may have; repeatable")
	p.Var(number{&f.History}, "history", "most messages of the task's history to get back; default: the server's")
	p.StringVar(&f.Push, "push", "", "address of a webhook that is told of the task")
	p.StringVar(&f.PushToken, "push-token", "", "what the webhook is shown")
	p.BoolVar(&f.Immediately, "return-immediately", false, "do not wait for the end of the task")
}

// number is a flag for a number that may be left out.
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

// id is a flag for an id that may be left out, but is not empty: what an empty variable
// gives is not to mean all, or a new one.
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

// urlAndText wants both; the text may be left out where something else is sent.
func urlAndText(f *app.Send) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 && f.Parts() {
			return nil
		}
		return named("URL", "TEXT")(c, args)
	}
}

func send(s *app.Shell, c *cobra.Command, args []string, at *app.CallFlags, f *app.Send) error {
	f.CallFlags = *at
	text := ""
	if len(args) > 1 {
		text = args[1]
	}
	return s.Call(c.Context(), args[0], text, f)
}

func sendCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	f := &app.Send{}
	c := &cobra.Command{
		Use:   "send URL TEXT",
		Short: "Sends a message and shows the answer",
		Long: "Sends a message and waits for the answer. The text \"-\" is read from standard\n" +
			"input; it may be left out where files, data or URLs are sent. Exit code 1 when the\n" +
			"task fails or waits for an answer.",
		Example: "  team-server call send http://127.0.0.1:8080/newsroom \"Write about tides\"\n" +
			"  team-server call send http://127.0.0.1:8080/newsroom \"What is in it?\" --file report.txt",
		Args: usage(urlAndText(f)),
		RunE: func(c *cobra.Command, args []string) error { return send(s, c, args, at, f) },
	}
	addSend(c, f)
	c.Flags().BoolVar(&f.Stream, "stream", false, "show the answer as it comes")
	return c
}

func streamCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	f := &app.Send{Stream: true}
	c := &cobra.Command{
		Use:   "stream URL TEXT",
		Short: "Sends a message and shows the answer as it comes",
		Long: "Sends a message and shows the answer as it comes. Interrupting it does not end the\n" +
			"task; it says how to see the rest. Exit code 1 when the task fails or waits for\n" +
			"an answer, or goes on when the stream ends.",
		Example: "  team-server call stream http://127.0.0.1:8080/newsroom \"Write about tides\"",
		Args:    usage(urlAndText(f)),
		RunE:    func(c *cobra.Command, args []string) error { return send(s, c, args, at, f) },
	}
	addSend(c, f)
	return c
}

func getCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	var history *int32
	c := &cobra.Command{
		Use:     "get URL TASK",
		Short:   "Shows a task",
		Long:    "Shows a task as it stands: its state, its artifacts and its history.",
		Example: "  team-server call get http://127.0.0.1:8080/newsroom 01930f2a-… --history 0",
		Args:    usage(named("URL", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return s.CallGet(c.Context(), args[0], args[1], history, at)
		},
	}
	c.Flags().Var(number{&history}, "history", "most messages of the history; default: the server's")
	return c
}

func listCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	f := &app.List{}
	c := &cobra.Command{
		Use:   "list URL",
		Short: "Lists tasks",
		Long: "Lists tasks, those that changed last first: id, state, time of that state, context.\n" +
			"How many there are, and how the next page is had, goes to standard error.",
		Example: "  team-server call list http://127.0.0.1:8080/newsroom --status working\n" +
			"  team-server call list http://127.0.0.1:8080 --all -o json",
		Args: usage(named("URL")),
		RunE: func(c *cobra.Command, args []string) error {
			f.CallFlags = *at
			return s.CallList(c.Context(), args[0], f)
		},
	}
	p := c.Flags()
	p.Var(id{&f.Context}, "context", "id of the conversation that they belong to")
	p.StringVar(&f.Status, "status", "", "their state, such as working or input-required")
	p.StringVar(&f.After, "after", "", "time since when they have changed, such as 2026-01-31T15:04:05Z")
	p.Var(number{&f.PageSize}, "page-size", "tasks at once, 1 to 100; default: the server's")
	p.StringVar(&f.PageToken, "page-token", "", "which page, as the one before it said")
	p.BoolVar(&f.All, "all", false, "all pages from there on")
	p.BoolVar(&f.Artifacts, "artifacts", false, "with their artifacts")
	p.Var(number{&f.History}, "history", "with at most so many messages of their history")
	return c
}

func cancelCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel URL TASK",
		Short:   "Stops a task",
		Long:    "Asks for a task to be stopped, and shows it as it is afterwards.",
		Example: "  team-server call cancel http://127.0.0.1:8080/newsroom 01930f2a-…",
		Args:    usage(named("URL", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return s.CallCancel(c.Context(), args[0], args[1], at)
		},
	}
}

func subscribeCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	var after int64
	c := &cobra.Command{
		Use:   "subscribe URL TASK",
		Short: "Follows a task that has not ended",
		Long: "Shows what comes of a task, and ends as \"call stream\" does. With --after it begins\n" +
			"behind an event that was seen already; only a team-server knows how.",
		Example: "  team-server call subscribe http://127.0.0.1:8080/newsroom 01930f2a-…",
		Args:    usage(named("URL", "TASK")),
		RunE: func(c *cobra.Command, args []string) error {
			return s.CallSubscribe(c.Context(), args[0], args[1], after, at)
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "number of the last event that was seen: the id of a server-sent event, seq in its metadata")
	return c
}

func pushCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "push",
		Short: "Manages the webhooks that are told of a task",
	}
	c.Args = usage(func(_ *cobra.Command, args []string) error {
		return fmt.Errorf("%s: expected one of %s", strings.Join(append([]string{"call push"}, args...), " "), commandsOf(c))
	})
	c.RunE = func(*cobra.Command, []string) error { return nil } // only what runs has its arguments looked at
	c.AddCommand(pushSetCommand(s, at),
		&cobra.Command{
			Use:     "get URL TASK ID",
			Short:   "Shows a webhook of a task",
			Example: "  team-server call push get http://127.0.0.1:8080/newsroom 01930f2a-… mine",
			Args:    usage(named("URL", "TASK", "ID")),
			RunE: func(c *cobra.Command, args []string) error {
				return s.CallPushGet(c.Context(), args[0], args[1], args[2], at)
			},
		},
		&cobra.Command{
			Use:     "ls URL TASK",
			Short:   "Lists the webhooks of a task",
			Example: "  team-server call push ls http://127.0.0.1:8080/newsroom 01930f2a-…",
			Args:    usage(named("URL", "TASK")),
			RunE: func(c *cobra.Command, args []string) error {
				return s.CallPushList(c.Context(), args[0], args[1], at)
			},
		},
		&cobra.Command{
			Use:     "delete URL TASK ID",
			Short:   "Deletes a webhook of a task",
			Example: "  team-server call push delete http://127.0.0.1:8080/newsroom 01930f2a-… mine",
			Args:    usage(named("URL", "TASK", "ID")),
			RunE: func(c *cobra.Command, args []string) error {
				return s.CallPushDelete(c.Context(), args[0], args[1], args[2], at)
			},
		})
	return c
}

func pushSetCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	f := &app.Push{}
	c := &cobra.Command{
		Use:     "set URL TASK WEBHOOK",
		Short:   "Has a webhook told of a task",
		Example: "  team-server call push set http://127.0.0.1:8080/newsroom 01930f2a-… https://example.com/hook",
		Args:    usage(named("URL", "TASK", "WEBHOOK")),
		RunE: func(c *cobra.Command, args []string) error {
			f.CallFlags = *at
			return s.CallPushSet(c.Context(), args[0], args[1], args[2], f)
		},
	}
	c.Flags().Var(id{&f.ID}, "id", "id of the configuration, in place of the one that has it; default: a new one")
	c.Flags().StringVar(&f.Token, "push-token", "", "what the webhook is shown (TEAM_PUSH_TOKEN)")
	c.Flags().StringVar(&f.Scheme, "auth-scheme", "", "how the server authenticates itself there, such as Bearer")
	c.Flags().StringVar(&f.Credentials, "auth-credentials", "", "what it shows there (TEAM_AUTH_CREDENTIALS)")
	return c
}

func callCardCommand(s *app.Shell, at *app.CallFlags) *cobra.Command {
	var extended bool
	c := &cobra.Command{
		Use:   "card URL",
		Short: "Shows the card of an agent",
		Long: "Shows the card at URL, or below it. With --extended, the one for callers who are\n" +
			"known, over the binding that is chosen. With --verify it shows what one of the\n" +
			"keys in FILE has signed, and fails if none has.",
		Example: "  team-server call card http://127.0.0.1:8080/newsroom",
		Args:    usage(named("URL")),
		RunE: func(c *cobra.Command, args []string) error {
			return s.CallCard(c.Context(), args[0], extended, at)
		},
	}
	c.Flags().BoolVar(&extended, "extended", false, "the card for callers who are known")
	return c
}
