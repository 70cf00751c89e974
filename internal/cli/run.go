package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/call"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/cli/mcpstdio"
	"github.com/agentteams/team-server/internal/cli/tasks"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/inputs"
)

// Run holds the flags of the run command.
type Run struct {
	// File is the configuration for the in-process server.
	File string
	// Context and Task are the ids of the conversation and the task to continue.
	Context, Task string
	// Answers are given to the questions of the run, in order.
	Answers []string
	// Files are sent after the text.
	Files []string
	// Inputs are values that the team wants by name, as NAME=VALUE.
	Inputs []string
}

// message returns the message that the command sends. The text - stands for the standard input.
func (f *Run) message(s *Shell, text string) (m *a2av1.Message, err error) {
	if text == "-" {
		if text, err = s.Read(); err != nil {
			return nil, err
		}
	}
	m = agent.UserMessage(uuid.NewString(), text)
	for _, name := range f.Files {
		p, err := call.FilePart("--attach", name)
		if err != nil {
			return nil, err
		}
		m.Parts = append(m.Parts, p)
	}
	return m, f.addInputs(m)
}

// addInputs adds the values of --input to a message. They are texts: the server reads other types from them.
func (f *Run) addInputs(m *a2av1.Message) error {
	values := map[string]*structpb.Value{}
	for _, given := range f.Inputs {
		name, value, ok := strings.Cut(given, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return console.Usagef("--input %s: expected NAME=VALUE, such as company_id=42", given)
		}
		if values[name] != nil {
			return console.Usagef("--input %s: %s is given twice; remove one of them", given, name)
		}
		values[name] = structpb.NewStringValue(value)
	}
	if len(values) > 0 {
		m.Parts = append(m.Parts, inputs.Part(values))
	}
	return nil
}

// checkInputs refuses names that are not among the inputs of a team, which the server would ignore. It leaves teams without
// inputs, and those that the caller may not see, to the server.
func (f *Run) checkInputs(ctx context.Context, c *client.Team, team string) error {
	if len(f.Inputs) == 0 {
		return nil
	}
	a, err := c.GetAgent(ctx, team)
	declared := slices.Sorted(maps.Keys(a.GetInfo().GetInputs().GetFields()["properties"].GetStructValue().GetFields()))
	if err != nil || len(declared) == 0 {
		return nil //nolint:nilerr // the server answers for these
	}
	for _, given := range f.Inputs {
		name, _, _ := strings.Cut(given, "=")
		if name = strings.TrimSpace(name); !slices.Contains(declared, name) {
			return console.Usagef("--input %s: %s has no such input; %s", given, team, source.SuggestAll(name, declared))
		}
	}
	return nil
}

// reach returns the address of the server that --server names, or starts one in this process. The
// caller must call stop.
func (s *Shell) reach(ctx context.Context, file string) (base string, stop func(), err error) {
	if s.Server != "" {
		return s.Server, func() {}, nil
	}
	def, err := s.Definition(file)
	if err != nil {
		return "", nil, err
	}
	// The server outlives ctx, so that an interrupted command fails with the end of ctx and not with SHUTTING_DOWN.
	running, err := serve.Local(context.WithoutCancel(ctx), def, s.causes.log(s.Log(zapcore.ErrorLevel)))
	if err != nil {
		return "", nil, err
	}
	return "http://" + running.HTTP, func() {
		if err := running.Stop(); err != nil {
			s.Sayf("%v", err)
		}
		for _, text := range s.causes.rest() {
			s.Sayf("cause: %s", console.Line(text))
		}
	}, nil
}

// dial returns a client of the server of a command, and the address of that. The caller must call stop.
func (s *Shell) dial(ctx context.Context, file string) (c *client.Team, base string, stop func(), err error) {
	base, end, err := s.reach(ctx, file)
	if err != nil {
		return nil, "", nil, err
	}
	if c, err = s.Client(base); err != nil {
		end()
		return nil, "", nil, console.UsageError{Err: err}
	}
	return c, base, func() { c.Close(); end() }, nil
}

// answerTo returns the request that answers the first open question of a run.
func answerTo(t *transcript.Printer, team, text string) *teamv1.ProcessRequest {
	req := &teamv1.ProcessRequest{AgentId: team, TaskId: t.TaskID, Message: agent.UserMessage(uuid.NewString(), text)}
	if len(t.Questions) > 0 {
		req.Question = t.Questions[0].GetQuestion()
	}
	return req
}

// fileOrDefault returns a file or, for "", team.yaml if there is one in the working directory. "" then means the demo.
func fileOrDefault(file string) string {
	if file == "" {
		if _, err := os.Stat("team.yaml"); err == nil {
			return "team.yaml"
		}
	}
	return file
}

// Definition loads a file; without one it loads ./team.yaml, or the demo if that does not exist.
func (s *Shell) Definition(file string) (*config.Config, error) {
	if file = fileOrDefault(file); file == "" {
		return serve.Demo()
	}
	l, err := withDotEnv()
	if err != nil {
		return nil, err
	}
	return l.Load(file)
}

// Run runs a task of a team or agent and prints its progress and result.
func (s *Shell) Run(ctx context.Context, team, text string, f *Run) error {
	m, err := f.message(s, text)
	if err != nil {
		return err
	}
	c, base, stop, err := s.dial(ctx, f.File)
	if err != nil {
		return err
	}
	defer stop()
	t := &transcript.Printer{Talk: console.Plain{To: s.Talk}, Cause: s.causes.of}
	if err := f.checkInputs(ctx, c, team); err != nil {
		return err
	}
	req := &teamv1.ProcessRequest{
		AgentId: team, ContextId: f.Context, TaskId: f.Task, Message: m,
	}
	answers := &answers{given: f.Answers, shell: s}
	for {
		err := s.process(ctx, c, req, t)
		if refused := agent.AsError(err); err != nil && answers.typed && refused.Code == agent.CodeInvalidArgument && t.Waiting {
			s.Sayf("%s", console.Line(aboutAnswer("the answer", refused.Message))) // the question is still open
			err = nil
		}
		if err != nil {
			err = s.notServed(answers.explain(err, t), team, f.File)
			if s.Server != "" && t.TaskID != "" && !t.Waiting && t.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED {
				s.Sayf("%s", new(call.Flags).Rest(t.TaskID, t.Seq, strings.TrimSuffix(base, "/")+"/"+url.PathEscape(team)))
			}
			return err
		}
		if !t.Waiting {
			break
		}
		answer, ok := answers.next(ctx)
		if ctx.Err() != nil {
			s.Sayf("%s", s.toAnswer(t, team))
			return context.Cause(ctx)
		}
		if !ok {
			break
		}
		req = answerTo(t, team, answer)
	}
	err = s.outcome(t, team)
	if s.Server != "" && t.ContextID != "" && !t.Waiting && !s.JSON {
		s.Sayf("context %s; to go on: %s run %s TEXT --context %s", t.ContextID, s.Program(), team, t.ContextID)
	}
	if len(answers.given) > 0 {
		left := ""
		for _, a := range answers.given {
			left += " --answer " + strconv.Quote(a)
		}
		s.Sayf("unused%s", left)
	}
	return err
}

// answers are the answers to the questions of a run: those of --answer, and then those that a person types.
type answers struct {
	given []string
	shell *Shell
	lines *lines  // of the terminal; nil before the first question
	typed bool    // the last answer was typed
	last  *string // the last answer of --answer; nil if it was typed, or before the first one
}

// next returns the next answer. ok is false if no answer is left, or ctx has ended.
func (a *answers) next(ctx context.Context) (text string, ok bool) {
	if a.typed, a.last = false, nil; len(a.given) > 0 {
		text, a.given = a.given[0], a.given[1:]
		a.last = &text
		return text, true
	}
	if !a.shell.Terminal || a.shell.JSON || a.shell.In == nil {
		return "", false
	}
	if a.lines == nil {
		a.lines = &lines{from: bufio.NewReader(a.shell.In)}
	}
	a.typed = true
	later := a.shell.Server != ""
	prompt := "answer: "
	if later {
		prompt = "answer (leave it empty to answer later): "
	}
	for {
		fmt.Fprint(a.shell.Talk, prompt)
		line, err := a.lines.next(ctx)
		switch text = strings.TrimSpace(line); {
		case text != "":
			return text, err == nil || errors.Is(err, io.EOF)
		case later || err != nil:
			return "", false
		}
		a.shell.Sayf("the run ends with this command, so it cannot be answered later; type an answer, or end it with Ctrl-C")
	}
}

// lines reads what a person types.
type lines struct{ from *bufio.Reader }

// next returns the next line with its end, or the cause of ctx if that ends first, as with Ctrl-C. A line that is not
// complete by then is lost, so it must not be called again.
func (l *lines) next(ctx context.Context) (string, error) {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := l.from.ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case got := <-read:
		return got.text, got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// explain returns the error of a call. If the server refused an answer of --answer, the error names it and its question.
func (a *answers) explain(err error, t *transcript.Printer) error {
	e := agent.AsError(err)
	if a.last == nil || e.Code != agent.CodeInvalidArgument || len(t.Questions) == 0 {
		return err
	}
	refused := *e
	refused.Message = fmt.Sprintf("%s; each --answer goes to the next question, in order, and this one was: %s",
		aboutAnswer("--answer "+strconv.Quote(*a.last), e.Message), transcript.Question(t.Questions[0].GetMessage()))
	return &refused
}

// aboutAnswer returns the message of the server about an answer, with what a person has typed in place of the field of
// the call.
func aboutAnswer(typed, message string) string {
	if rest, ok := strings.CutPrefix(message, "message.parts "); ok && !strings.HasPrefix(rest, "are ") {
		return typed + " " + rest
	}
	return message
}

// notServed returns the error of a call of the in-process server. If it does not know the agent because it serves the demo, or
// because no team of the file uses the agent, the error says so.
func (s *Shell) notServed(err error, id, file string) error {
	e := agent.AsError(err)
	if s.Server != "" || e.Reason != agent.ReasonAgentNotFound {
		return err
	}
	unknown := *e
	if fileOrDefault(file) == "" {
		unknown.Message += "; there is no team.yaml in this folder, so these are those of the demo: name your file with --file"
		return &unknown
	}
	def, faulty := s.Definition(file)
	if faulty != nil || def.Server.GetAgents()[id] == nil {
		return err
	}
	unknown.Message += fmt.Sprintf("; the file has it at %s, but no team uses it, so that it is not served", config.Place(def, "agents", id))
	return &unknown
}

// process makes a call and prints its events. It returns an error if the stream breaks.
func (s *Shell) process(ctx context.Context, c *client.Team, req *teamv1.ProcessRequest, t *transcript.Printer) error {
	for resp, err := range c.Process(ctx, req, t.Seq) {
		if err != nil {
			return inputRequired(t, err)
		}
		if s.JSON {
			if err := s.Print(resp); err != nil {
				return err
			}
		}
		t.Event(resp.GetTaskId(), resp.GetEvent())
	}
	return nil
}

// inputRequired marks the run as waiting and returns nil if err says that the agent requires
// input. It returns other errors unchanged.
func inputRequired(t *transcript.Printer, err error) error {
	var e *agent.Error
	if errors.As(err, &e) && e.Reason == agent.ReasonInputRequired {
		t.Waiting = true
		return nil
	}
	return err
}

// toAnswer says how to answer the question of a run later.
func (s *Shell) toAnswer(t *transcript.Printer, team string) string {
	if s.Server == "" {
		return "the in-process server stops now; give the answer in advance with --answer, or start a server with team-server dev"
	}
	return fmt.Sprintf("to answer: %s run %s TEXT --task %s", s.Program(), console.Word(team), t.TaskID)
}

// outcome prints the answer and the summary of a run of a team, and what can be done next.
func (s *Shell) outcome(t *transcript.Printer, team string) error {
	if !s.JSON && !t.Failed() {
		fmt.Fprintln(s.Text(), t.Answer)
	}
	s.Sayf("%s", t.Summary())
	if t.HasDetached() && s.Server == "" {
		s.Sayf("detached work stops with the in-process server; to let it finish, start a server with team-server dev")
	}
	switch {
	case t.Waiting:
		advice := s.toAnswer(t, team)
		if s.JSON {
			return agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonInputRequired, "the run waits for an answer; %s", advice).With("task_id", t.TaskID)
		}
		s.Sayf("%s", advice)
		return console.ErrFailed
	case t.Failed() && t.Err != nil && s.JSON:
		return agent.FromProto(t.Err)
	case t.Failed():
		if t.Err != nil {
			s.Sayf("%s: %s", console.Line(t.Err.GetReason()), console.Line(t.Err.GetMessage()))
		}
		if s.Server != "" {
			s.Sayf("%s", tasks.RetryHint(&s.Connection, t.TaskID))
		}
		return console.ErrFailed
	}
	return nil
}

// MCP passes the messages of an MCP client on standard input on to /mcp of a server, that of --server or one in this
// process, and writes what that answers to standard output, a line for each message.
func (s *Shell) MCP(ctx context.Context, file string) error {
	base := s.Server
	if base == "" {
		def, err := s.Definition(file)
		if err != nil {
			return err
		}
		if def.Server.Server == nil {
			def.Server.Server = &teamv1.ServerSettings{}
		}
		def.Server.Server.Mcp = &teamv1.McpDoor{}
		running, err := serve.Local(context.WithoutCancel(ctx), def, s.Log(zapcore.ErrorLevel))
		if err != nil {
			return err
		}
		defer func() { _ = running.Stop() }() // runs end with the process
		base = "http://" + running.HTTP
	}
	secure, err := s.TLS()
	if err != nil {
		return console.UsageError{Err: err}
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	defer web.CloseIdleConnections()
	mcpstdio.Serve(ctx, s.In, s.Out, mcpstdio.Server{URL: strings.TrimSuffix(base, "/") + "/mcp", Token: s.Token, Web: web})
	return nil
}
