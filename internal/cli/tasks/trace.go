package tasks

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/agent"
)

// barWidth is the width of the timeline of a trace, in characters.
const barWidth = 24

// Trace prints the tree of a task: each step with when it began, how long it took, a line that shows both, what it cost, how
// it ended, and why it was decided.
func (c *Commands) Trace(ctx context.Context, id string) error {
	return c.with(func(s *client.Team) error {
		trace, err := s.GetTrace(ctx, id)
		if e := agent.AsError(err); err != nil && e.Reason == "TASK_NOT_FOUND" {
			return notFound(id)
		}
		if err != nil {
			return err
		}
		if c.Console.JSON {
			return c.Console.Print(trace)
		}
		return newTree(trace, time.Now()).print(c.Console)
	})
}

// tree is a trace as rows of a table.
type tree struct {
	begin, end time.Time
	now        time.Time
	reasons    map[string]string // why a step was decided, by its id
	rows       [][]string
}

// newTree returns the rows of a trace at a time.
func newTree(trace *teamv1.Trace, now time.Time) *tree {
	top := trace.GetStep()
	t := &tree{begin: at(top.GetDecided(), now), end: at(top.GetEnded(), now), now: now, reasons: map[string]string{}}
	t.add(top, 0)
	return t
}

// at returns a time, or another one if it is unset.
func at(stamp *timestamppb.Timestamp, unset time.Time) time.Time {
	if stamp == nil {
		return unset
	}
	return stamp.AsTime()
}

// add adds a step, and those below it.
func (t *tree) add(s *teamv1.TraceStep, depth int) {
	for _, d := range s.GetDecisions() {
		for _, id := range d.GetSteps() {
			t.reasons[id] = cmp.Or(d.GetReason(), d.GetRule())
		}
	}
	start, began := at(s.GetStarted(), at(s.GetDecided(), t.now)), "-"
	if s.GetStarted() != nil || depth == 0 {
		began = seconds(start.Sub(t.begin))
	}
	end := at(s.GetEnded(), t.now)
	t.rows = append(t.rows, []string{
		began, seconds(end.Sub(start)), t.bar(start, end), strings.Repeat("  ", depth) + name(s), ended(s), cost(s), console.Line(transcript.Clip(t.why(s), 100)),
	})
	for _, below := range s.GetSteps() {
		t.add(below, depth+1)
	}
}

// name returns the name of a step.
func name(s *teamv1.TraceStep) string {
	kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "KIND_"))
	switch s.GetKind() {
	case teamv1.Step_KIND_UNSPECIFIED:
		return console.Line(s.GetPath())
	case teamv1.Step_KIND_MODEL:
		if n := len(s.GetAttempts()); n > 0 {
			return "model " + console.Line(s.GetAttempts()[n-1].GetModel())
		}
	case teamv1.Step_KIND_TOOL, teamv1.Step_KIND_JUDGE, teamv1.Step_KIND_HUMAN:
		return strings.TrimSpace(kind + " " + console.Line(s.GetName()))
	default:
	}
	return console.Line(cmp.Or(s.GetMember(), s.GetName(), kind))
}

// ended returns how a step has ended, or its state, with its attempts if there were several.
func ended(s *teamv1.TraceStep) string {
	text := stateOf(s)
	if n := len(s.GetAttempts()); n > 1 {
		text += fmt.Sprintf(" (%d attempts)", n)
	}
	return text
}

// cost returns what a step has cost.
func cost(s *teamv1.TraceStep) string {
	tokens := s.GetSpent().GetInputTokens() + s.GetSpent().GetOutputTokens()
	switch {
	case tokens == 0 && s.GetSpent().GetCostMicros() == 0:
		return "-"
	case s.GetSpent().GetCostMicros() == 0:
		return fmt.Sprintf("%d tokens", tokens)
	}
	return fmt.Sprintf("%d tokens, %s USD", tokens, spending.Dollars(s.GetSpent().GetCostMicros()))
}

// why returns why a step has failed, what it lacked, what it asks, or why it was decided.
func (t *tree) why(s *teamv1.TraceStep) string {
	switch e := s.GetError(); {
	case e != nil:
		return e.GetReason() + ": " + e.GetMessage()
	case s.GetTool().GetIsError():
		return s.GetTool().GetText()
	}
	for _, q := range s.GetQuestions() {
		if q.GetClosed() == nil {
			return "asks: " + agent.Text(q.GetMessage())
		}
	}
	if len(s.GetWarnings()) > 0 {
		return "warning: " + strings.Join(s.GetWarnings(), "; ")
	}
	return t.reasons[s.GetId()]
}

// bar returns a line that shows when a step was at work, within the time of the task.
func (t *tree) bar(from, to time.Time) string {
	whole := max(t.end.Sub(t.begin), 1)
	place := func(at time.Time) int {
		return min(max(int(int64(barWidth)*int64(at.Sub(t.begin))/int64(whole)), 0), barWidth)
	}
	a, b := min(place(from), barWidth-1), place(to)
	b = max(b, a+1)
	return "|" + strings.Repeat(" ", a) + strings.Repeat("=", b-a) + strings.Repeat(" ", barWidth-b) + "|"
}

// seconds returns a duration in seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", max(d, 0).Seconds()) }

// print prints the rows.
func (t *tree) print(c *console.Console) error {
	return console.Columns(c, t.rows, "START\tTOOK\tTIMELINE\tSTEP\tSTATE\tCOST\tWHY", func(row []string) []string { return row })
}
