// Package tasks implements the commands over the tasks of a running server: list, get, watch, cancel and retry.
package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
)

// Commands are the commands over tasks. They print to the console and call the server of the connection.
type Commands struct {
	Console    *console.Console
	Connection *console.Connection
}

// Query are the flags that select tasks.
type Query struct {
	// State is a state of a task in lower case, such as failed or input-required; "" means all.
	State string
	// Team is the team or agent that the tasks were sent to; "" means all.
	Team string
	// Text has words of the messages of the tasks.
	Text string
	// Since and Until bound when the tasks were created, see console.Time; "" means no bound.
	Since, Until string
	// Cost is the least that the tasks have spent, in USD; "" means any.
	Cost string
	// Principal is the principal of the tasks, or "-" for the caller; "" means all that the caller may see.
	Principal string
	// Context is the conversation of the tasks; "" means all.
	Context string
	// Size is the number of tasks on a page, 1 to 100; 0 means 50. Token is the token of the page.
	Size  int32
	Token string
	// All prints all pages.
	All bool
}

// request returns the query as a request. The error names the flag.
func (q *Query) request(now time.Time) (*teamv1.FindTasksRequest, error) {
	req := &teamv1.FindTasksRequest{
		AgentId: q.Team, Text: q.Text, Principal: q.Principal, ContextId: q.Context, PageSize: q.Size, PageToken: q.Token,
	}
	if q.Size < 0 || q.Size > 100 {
		return nil, console.Usagef("--limit %d: expected 1 to 100", q.Size)
	}
	var err error
	if req.State, err = parseState(q.State); err != nil {
		return nil, err
	}
	if req.Since, err = console.Time("since", q.Since, now); err != nil {
		return nil, err
	}
	if req.Until, err = console.Time("until", q.Until, now); err != nil {
		return nil, err
	}
	if q.Cost != "" {
		usd, err := strconv.ParseFloat(q.Cost, 64)
		if err != nil || !(usd > 0 && usd < 1e9) {
			return nil, console.Usagef("--cost %s: expected an amount in USD above 0, such as 0.25", q.Cost)
		}
		req.MinCostMicros = max(1, int64(math.Round(usd*1e6)))
	}
	return req, nil
}

// states returns the words for the states of tasks.
func states() (words []string) {
	for n := range len(a2av1.TaskState_name) {
		if n > 0 {
			words = append(words, taskstate.Name(a2av1.TaskState(n)))
		}
	}
	return words
}

// parseState returns the state for a word.
func parseState(word string) (a2av1.TaskState, error) {
	if word == "" {
		return a2av1.TaskState_TASK_STATE_UNSPECIFIED, nil
	}
	n := slices.Index(states(), strings.ToLower(strings.ReplaceAll(word, "_", "-")))
	if n < 0 {
		return 0, console.Usagef("--state %s: expected one of %s", word, strings.Join(states(), ", "))
	}
	return a2av1.TaskState(n + 1), nil //nolint:gosec // few
}

// pageSize is the number of tasks that are listed unless a query says otherwise.
const pageSize = 50

// List prints the tasks that a query selects.
func (c *Commands) List(ctx context.Context, q *Query) error {
	req, err := q.request(time.Now())
	if err != nil {
		return err
	}
	return c.with(func(s *client.Team) error {
		var list []*teamv1.FoundTask
		for {
			page, err := s.FindTasks(ctx, req)
			if err != nil {
				return err
			}
			list = append(list, page.GetTasks()...)
			next := page.GetNextPageToken()
			left := int(cmp.Or(q.Size, pageSize)) - len(list) // a page of a search for words may have fewer tasks than there are
			if (q.All || q.Text != "" && left > 0) && next != "" && next != req.GetPageToken() {
				if req.PageToken = next; !q.All {
					req.PageSize = int32(left) //nolint:gosec // at most 100
				}
				continue
			}
			if err := c.table(list, time.Now()); err != nil {
				return err
			}
			if next != "" {
				c.Console.Sayf("there are more; the next page: --page-token %s", console.Line(next))
			}
			return nil
		}
	})
}

// table prints tasks.
func (c *Commands) table(list []*teamv1.FoundTask, now time.Time) error {
	head := "TASK\tSTATE\tTEAM\tAGE\tUSD\tTEXT"
	if c.Console.Wide {
		head = "TASK\tSTATE\tTEAM\tPRINCIPAL\tCREATED\tCHANGED\tUSD\tINPUT\tOUTPUT\tCONTEXT\tTEXT"
	}
	return console.Table(c.Console, list, head, func(t *teamv1.FoundTask) []string {
		id, state, team, usd, text := console.Line(t.GetTaskId()), taskstate.Name(t.GetState()), console.Line(t.GetAgentId()), spending.Dollars(t.GetSpent().GetCostMicros()), console.Line(t.GetText())
		if c.Console.Wide {
			n := func(n int64) string { return strconv.FormatInt(n, 10) }
			return []string{
				id, state, team, console.Line(t.GetPrincipal()), clock(t.GetCreated()), clock(t.GetChanged()), usd,
				n(t.GetSpent().GetInputTokens()), n(t.GetSpent().GetOutputTokens()), console.Line(t.GetContextId()), text,
			}
		}
		return []string{id, state, team, age(now.Sub(t.GetCreated().AsTime())), usd, transcript.Clip(text, 60)}
	})
}

// clock returns a time as text.
func clock(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return at.AsTime().Format(time.RFC3339)
}

// age returns a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Get prints a task: what was asked, what it did, and what it waits for.
func (c *Commands) Get(ctx context.Context, id string) error {
	return c.with(func(s *client.Team) error {
		found, err := find(ctx, s, id)
		if err != nil {
			return err
		}
		trace, err := s.GetTrace(ctx, id)
		if err != nil {
			return err
		}
		if c.Console.JSON {
			return c.Console.PrintAll(map[string]proto.Message{"task": found, "trace": trace})
		}
		c.show(found, trace)
		return nil
	})
}

// find returns the root task of a task.
func find(ctx context.Context, s *client.Team, id string) (*teamv1.FoundTask, error) {
	root, _ := agent.SplitTask(id)
	page, err := s.FindTasks(ctx, &teamv1.FindTasksRequest{TaskId: root})
	if err != nil {
		return nil, err
	}
	if len(page.GetTasks()) == 0 {
		return nil, notFound(id)
	}
	return page.GetTasks()[0], nil
}

// notFound returns the error for a task that does not exist, or that the caller may not see.
func notFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, "TASK_NOT_FOUND", "task %q not found; team-server tasks ls lists those that you may see", id)
}

// RetryHint returns the command line that retries a task of the server that c names.
func RetryHint(c *console.Connection, id string) string {
	return "to do again what has failed: " + c.Program() + " tasks retry " + console.Line(id)
}

// canRetry reports whether tasks in a state can be retried.
func canRetry(s a2av1.TaskState) bool {
	return taskstate.Final(s) && s != a2av1.TaskState_TASK_STATE_COMPLETED
}

// show prints a task as text.
func (c *Commands) show(found *teamv1.FoundTask, trace *teamv1.Trace) {
	out, step := c.Console.Text(), trace.GetStep()
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(out, "%-10s %s\n", name, console.Below(text))
		}
	}
	row("task", trace.GetTaskId())
	row("retries", trace.GetRetries())
	row("team", found.GetAgentId())
	row("principal", found.GetPrincipal())
	row("context", found.GetContextId())
	row("state", taskstate.Name(trace.GetState()))
	row("created", clock(found.GetCreated()))
	row("changed", clock(found.GetChanged()))
	row("engine", trace.GetEngineUrl())
	spent := step.GetSpent()
	row("spent", fmt.Sprintf("%s USD, %d input and %d output tokens, %d model and %d tool calls", spending.Dollars(spent.GetCostMicros()), spent.GetInputTokens(), spent.GetOutputTokens(), spent.GetModelCalls(), spent.GetToolCalls()))
	row("message", cmp.Or(agent.Text(step.GetInput()), found.GetText()))
	for _, s := range step.GetSteps() {
		row("step", stepLine(s))
	}
	for _, q := range trace.GetQuestions() {
		row("asks", transcript.Question(q.GetQuestion().GetMessage()))
	}
	for _, w := range step.GetWarnings() {
		row("warning", w)
	}
	row("answer", agent.Text(step.GetReply()))
	if e := step.GetError(); e != nil {
		row("error", e.GetReason()+": "+e.GetMessage())
	}
	if root, _ := agent.SplitTask(trace.GetTaskId()); root == trace.GetTaskId() && canRetry(trace.GetState()) {
		c.Console.Sayf("%s", RetryHint(c.Connection, root))
	}
}

// stepLine returns a step of a task in one line.
func stepLine(s *teamv1.TraceStep) string {
	_, id := agent.SplitTask(s.GetId())
	what := cmp.Or(s.GetMember(), s.GetName(), strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "KIND_")))
	text := fmt.Sprintf("%s %s %s", id, console.Line(what), stateOf(s))
	if e := s.GetError(); e != nil {
		text += ": " + console.Line(e.GetReason()+": "+e.GetMessage())
	}
	return text
}

// stateOf returns how a step has ended, or its state. A tool that has answered with an error has not succeeded for those who
// read it, although its call has.
func stateOf(s *teamv1.TraceStep) string {
	switch {
	case s.GetState() != teamv1.TraceStep_STATE_ENDED:
		return strings.ToLower(strings.TrimPrefix(s.GetState().String(), "STATE_"))
	case s.GetTool().GetIsError() && s.GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED:
		return "answered with an error"
	}
	return taskstate.Word(s.GetOutcome())
}

// How long, and how often, Watch looks for a server that does not answer any more.
const (
	watchPatience = time.Minute
	watchPause    = time.Second
)

// Watch prints what happens in a task, from its beginning until it has ended. If the server is restarted meanwhile, it
// continues with the next one.
func (c *Commands) Watch(ctx context.Context, id string) error {
	return c.with(func(s *client.Team) error { return c.watch(ctx, s, id) })
}

// watch is Watch with a client.
func (c *Commands) watch(ctx context.Context, s *client.Team, id string) error {
	found, err := find(ctx, s, id)
	if err != nil {
		return err
	}
	p, err := c.follow(ctx, s, found, id, math.MaxInt64)
	if err != nil {
		return err
	}
	return c.outcome(ctx, s, id, p)
}

// Logs prints what has happened in a task; with follow, also what happens next until it has ended, as Watch does. An empty
// id means the newest task that the caller may see.
func (c *Commands) Logs(ctx context.Context, id string, follow bool) error {
	return c.with(func(s *client.Team) error {
		found, err := c.newest(ctx, s, id)
		if err != nil {
			return err
		}
		if id == "" {
			id = found.GetTaskId()
			c.Console.Sayf("task %s  %s  %s", console.Line(id), console.Line(found.GetAgentId()), console.Line(found.GetText()))
		}
		last := int64(math.MaxInt64)
		if !follow {
			trace, err := s.GetTrace(ctx, id)
			if err != nil {
				return err
			}
			last = trace.GetSeq()
		}
		_, err = c.follow(ctx, s, found, id, last)
		return err
	})
}

// newest returns the root task of a task, or of an empty id the newest task that the caller may see.
func (c *Commands) newest(ctx context.Context, s *client.Team, id string) (*teamv1.FoundTask, error) {
	if id != "" {
		return find(ctx, s, id)
	}
	page, err := s.FindTasks(ctx, &teamv1.FindTasksRequest{PageSize: 1})
	if err == nil && len(page.GetTasks()) == 0 {
		err = fmt.Errorf("there are no tasks yet; %s run TEAM TEXT begins one", c.Connection.Program())
	}
	if err != nil {
		return nil, err
	}
	return page.GetTasks()[0], nil
}

// follow prints the events of a task up to a sequence number, or until the task has ended. If the server is restarted
// meanwhile, it continues with the next one.
func (c *Commands) follow(ctx context.Context, s *client.Team, found *teamv1.FoundTask, id string, last int64) (*transcript.Printer, error) {
	root := found.GetTaskId()
	f := &follower{Commands: c, last: last, after: 1, printer: &transcript.Printer{Talk: console.Plain{To: c.Console.Talk}}}
	if !c.Console.JSON {
		f.printer.Event(root, &teamv1.Event{Seq: 1, Time: found.GetCreated(), Agent: found.GetAgentId(), Kind: &teamv1.Event_Accepted{
			Accepted: &teamv1.Accepted{TaskId: root, Agent: found.GetAgentId(), Message: agent.UserMessage("", found.GetText())},
		}})
	}
	for {
		err := f.read(ctx, s, id)
		switch {
		case err == nil:
			return f.printer, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, a2aclient.ErrUnreachable):
			return nil, err
		case f.lost.IsZero():
			f.lost = time.Now()
			c.Console.Sayf("the connection is lost; trying again for %v", watchPatience)
		case time.Since(f.lost) > watchPatience:
			return nil, err
		}
		if err := agent.Sleep(ctx, watchPause); err != nil {
			return nil, err
		}
	}
}

// follower prints the events of a task.
type follower struct {
	*Commands
	printer *transcript.Printer
	after   int64     // the last event that was printed
	last    int64     // the last event to print
	lost    time.Time // since when the server does not answer; zero while it does
}

// silence is how long a stream that is not followed may send nothing before it counts as read to its end: the last event of
// a task may be one that streams leave out, such as a claim.
const silence = 2 * time.Second

// read prints the events of a stream.
func (f *follower) read(ctx context.Context, s *client.Team, id string) error {
	if f.after >= f.last {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	silent := time.AfterFunc(math.MaxInt64, stop)
	defer silent.Stop()
	if f.last < math.MaxInt64 {
		silent.Reset(silence)
	}
	for resp, err := range s.WatchTask(reading, id, f.after) {
		if err != nil && reading.Err() != nil && ctx.Err() == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if f.last < math.MaxInt64 {
			silent.Reset(silence)
		}
		f.after, f.lost = max(f.after, resp.GetSeq()), time.Time{}
		if f.Console.JSON {
			if err := f.Console.Print(resp); err != nil {
				return err
			}
		} else if ev := resp.GetEvent(); ev != nil {
			f.printer.Event(ev.GetRootTaskId(), ev.GetEvent())
			if err := f.asked(ctx, s, ev.GetRootTaskId(), ev.GetEvent().GetAsked()); err != nil {
				return err
			}
		}
		if f.after >= f.last {
			return nil
		}
	}
	return nil
}

// asked prints how to answer a question, if the task is followed to its end and the question is still open.
func (f *follower) asked(ctx context.Context, s *client.Team, task string, q *teamv1.Asked) error {
	if q == nil || f.last < math.MaxInt64 {
		return nil
	}
	trace, err := s.GetTrace(ctx, task)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(trace.GetQuestions(), func(o *teamv1.OpenQuestion) bool { return o.GetQuestion().GetQuestion() == q.GetQuestion() }) {
		answer := f.Connection.Program() + " questions answer " + console.Line(task)
		if len(trace.GetQuestions()) > 1 {
			answer += " --question " + console.Line(q.GetQuestion())
		}
		f.Console.Sayf("waiting for an answer; in another terminal: %s TEXT", answer)
	}
	return nil
}

// outcome prints how a task has ended that was watched.
func (c *Commands) outcome(ctx context.Context, s *client.Team, id string, p *transcript.Printer) error {
	trace, err := s.GetTrace(ctx, id)
	if err != nil {
		return err
	}
	if !taskstate.Final(trace.GetState()) {
		return fmt.Errorf("the server has closed the stream before the end of the task; %s tasks watch %s shows the rest", c.Connection.Program(), console.Line(id))
	}
	if !c.Console.JSON {
		if text := agent.Text(trace.GetStep().GetReply()); text != "" {
			fmt.Fprintln(c.Console.Text(), text)
		}
		c.Console.Sayf("%s", p.Summary())
	}
	if trace.GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		return console.ErrFailed
	}
	return nil
}

// Cancel cancels tasks.
func (c *Commands) Cancel(ctx context.Context, ids []string) error {
	return c.with(func(s *client.Team) error {
		for _, id := range ids {
			found, err := find(ctx, s, id)
			if err != nil {
				return err
			}
			resp, err := s.CancelTask(ctx, found.GetAgentId(), id)
			if err != nil {
				return err
			}
			if c.Console.JSON {
				err = c.Console.Print(resp)
			} else {
				_, err = fmt.Fprintf(c.Console.Text(), "%s %s\n", console.Line(id), taskstate.Name(resp.GetState()))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Retry begins a task that does the work of an ended one again, and keeps the results of the steps that had succeeded. With
// watch, it prints what happens in it.
func (c *Commands) Retry(ctx context.Context, id string, watch bool) error {
	return c.with(func(s *client.Team) error {
		resp, err := s.RetryTask(ctx, id, uuid.NewString())
		if err != nil {
			return err
		}
		if c.Console.JSON {
			err = c.Console.Print(resp)
		} else {
			c.Console.Sayf("retries task %s: keeps %s, runs %s again, counted at all levels as in %s trace %[1]s", console.Line(id), steps(resp.GetKept()), steps(resp.GetRepeated()), c.Connection.Program())
			_, err = fmt.Fprintln(c.Console.Text(), console.Line(resp.GetTaskId()))
		}
		if err != nil || !watch {
			return err
		}
		return c.watch(ctx, s, resp.GetTaskId())
	})
}

// steps returns a number of steps as text.
func steps(ids []string) string {
	switch len(ids) {
	case 0:
		return "no step"
	case 1:
		return "1 step"
	}
	return fmt.Sprintf("%d steps", len(ids))
}

// with calls do with a client of the server.
func (c *Commands) with(do func(*client.Team) error) error {
	return c.Connection.With("this command", do)
}
