// Package transcript prints what happens in a run, for a person who watches it.
package transcript

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// Printer prints the progress of a run: which members work, why they were chosen, and how they
// ended. It is not safe for concurrent use.
type Printer struct {
	// Talk receives the lines.
	Talk io.Writer
	// Zone is the time zone of the times printed; nil means the local one.
	Zone *time.Location
	// Cause returns the cause behind a problem that a line tells of, or "" if it is not known; nil knows no causes.
	Cause func(problem string) string

	// TaskID is the id of the task.
	TaskID string
	// Answer is the answer of the run, set when the run has ended.
	Answer string
	// Outcome is the outcome of the run; it is unspecified while the run is active.
	Outcome teamv1.Outcome
	// Err is the reason why the run did not succeed, or nil.
	Err *teamv1.Error
	// ContextID is the id of the conversation; "" if it is not known.
	ContextID string
	// Questions are the open questions to people.
	Questions []*teamv1.Asked
	// Seq is the sequence number of the last event.
	Seq int64
	// Waiting reports whether the run cannot continue without an answer.
	Waiting bool

	view        *journal.View // nil before the first event
	root        string
	turns       int
	first, last time.Time
}

// Event records an event and prints a line if it is of interest.
func (t *Printer) Event(taskID string, ev *teamv1.Event) {
	t.begin(taskID, ev)
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Accepted:
		t.ContextID = k.Accepted.GetConversation().GetContextId()
	case *teamv1.Event_Decided:
		t.decided(ev, k.Decided)
	case *teamv1.Event_Started:
		t.started(ev, k.Started)
	case *teamv1.Event_Retried:
		t.line(ev, t.who(ev), "failed    attempt %d: %s; trying again", k.Retried.GetAttempt(), k.Retried.GetError().GetMessage())
	case *teamv1.Event_Ended:
		t.ended(ev, k.Ended)
	case *teamv1.Event_Asked:
		t.line(ev, t.who(ev), "asks      %s", Question(k.Asked.GetMessage()))
	case *teamv1.Event_Answered:
		t.line(ev, people, "answered  %s", agent.Text(k.Answered.GetMessage()))
	case *teamv1.Event_Spawned:
		t.line(ev, t.who(ev), "continues as task %s", k.Spawned.GetTaskId()) // that task reports how it ends
	case *teamv1.Event_Noted:
		t.noted(ev, k.Noted)
	case *teamv1.Event_Checked:
		t.checked(ev, k.Checked)
	default: // text, and events that are only of technical interest
	}
}

// Question returns the text of a question with its options, and other data as JSON, which an answer
// may have to refer to.
func Question(m *a2av1.Message) string {
	text := agent.Text(m)
	for _, p := range m.GetParts() {
		if p.GetData() == nil {
			continue
		}
		if options := p.GetData().GetStructValue().GetFields()["options"].GetListValue(); options != nil && len(p.GetData().GetStructValue().GetFields()) == 1 {
			var names []string
			for _, o := range options.GetValues() {
				names = append(names, o.GetStringValue())
			}
			text += " [" + strings.Join(names, ", ") + "]"
		} else if b, err := wire.Marshal(p.GetData()); err == nil {
			text += " " + string(b)
		}
	}
	return text
}

// noted prints a note if it tells of a problem.
func (t *Printer) noted(ev *teamv1.Event, n *teamv1.Noted) {
	switch n.GetCode() {
	case "MEMBER_UNAVAILABLE", agent.NoteStorage:
		t.line(ev, t.who(ev), "warning   %s", n.GetText())
	case agent.NoteTools:
		for _, v := range n.GetDetails().GetFields()["missing"].GetListValue().GetValues() {
			text := v.GetStringValue()
			if t.Cause != nil {
				text = strings.TrimSuffix(text+": "+t.Cause(text), ": ")
			}
			t.line(ev, t.who(ev), "warning   %s; check them with team-server tools ls, or with team-server doctor", text)
		}
	}
}

// checked prints that a middleware blocked a message or failed.
func (t *Printer) checked(ev *teamv1.Event, c *teamv1.Checked) {
	switch {
	case c.GetBlocked():
		t.line(ev, t.who(ev), "stopped   %s", c.GetError().GetMessage())
	case c.GetError() != nil:
		t.line(ev, t.who(ev), "warning   %s", c.GetError().GetMessage())
	}
}

func (t *Printer) begin(taskID string, ev *teamv1.Event) {
	if taskID != "" {
		t.TaskID = taskID
	}
	t.Seq = max(t.Seq, ev.GetSeq())
	if t.view == nil {
		t.view = journal.New(t.TaskID, journal.Whole)
	}
	t.view.Apply(ev)
	t.Waiting, t.Questions = t.view.Parked(), nil
	for _, q := range t.view.Questions("") {
		t.Questions = append(t.Questions, q.Event.GetAsked())
	}
	if at := ev.GetTime(); at != nil {
		if t.first.IsZero() {
			t.first = at.AsTime()
		}
		t.last = at.AsTime()
	}
	if ev.GetScope() == "" && ev.GetAgent() != "" {
		t.root = ev.GetAgent()
	}
}

// people stands for the person who answers a question.
const people = "people"

// kind returns the kind of the step that an event belongs to.
func (t *Printer) kind(ev *teamv1.Event) teamv1.Step_Kind {
	if n := t.view.Node(ev.GetScope()); n != nil {
		return n.Step.GetKind()
	}
	return teamv1.Step_KIND_UNSPECIFIED
}

// who returns the path of the agent of an event, relative to the root.
func (t *Printer) who(ev *teamv1.Event) string {
	if t.kind(ev) == teamv1.Step_KIND_HUMAN {
		return people
	}
	path := strings.TrimPrefix(ev.GetAgent(), t.root+"/")
	if path == "" {
		return "run"
	}
	return path
}

// inner reports whether an event belongs to a model turn, a judgment or a tool call rather than to
// a member.
func (t *Printer) inner(ev *teamv1.Event) bool {
	switch t.kind(ev) {
	case teamv1.Step_KIND_MODEL, teamv1.Step_KIND_JUDGE, teamv1.Step_KIND_TOOL:
		return true
	default:
		return false
	}
}

// scheduler names the scheduler that made the decision of an event.
func (t *Printer) scheduler(ev *teamv1.Event) string {
	if who := t.who(ev); who != t.root {
		return who + "/scheduler"
	}
	return "scheduler"
}

func (t *Printer) line(ev *teamv1.Event, who, format string, args ...any) {
	zone := t.Zone
	if zone == nil {
		zone = time.Local
	}
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	fmt.Fprintf(t.Talk, "%s %-18s %s\n", ev.GetTime().AsTime().In(zone).Format("15:04:05"), who, text)
}

// decided prints a choice of members, a tool call, or the end of a run. Model turns are not
// printed; the end of their step prints the tokens.
func (t *Printer) decided(ev *teamv1.Event, d *teamv1.Decided) {
	var next []string
	for _, s := range d.GetSteps() {
		switch s.GetKind() {
		case teamv1.Step_KIND_DELEGATE, teamv1.Step_KIND_TRANSFER, teamv1.Step_KIND_STEP, teamv1.Step_KIND_ROUND:
			if s.GetRefusal() == nil {
				next = append(next, s.GetMember())
			}
		case teamv1.Step_KIND_TOOL:
			next = append(next, "tool "+s.GetName())
		case teamv1.Step_KIND_HUMAN:
			next = append(next, people)
		case teamv1.Step_KIND_MODEL, teamv1.Step_KIND_JUDGE, teamv1.Step_KIND_UNSPECIFIED:
		}
	}
	switch {
	case len(next) > 0:
		if ev.GetScope() == "" {
			t.turns++
		}
		t.line(ev, t.scheduler(ev), "%s", choice(d, strings.Join(next, ", ")))
	case d.GetRound() > 0:
		t.line(ev, t.scheduler(ev), "round %d   %q", d.GetRound(), d.GetReason())
	case d.GetReply() != nil && d.GetRule() != "":
		t.line(ev, t.scheduler(ev), "%s", choice(d, "return to the user"))
	case d.GetReply() == nil && len(d.GetSteps()) > 0 && allSkipped(d.GetSteps()):
		t.line(ev, t.scheduler(ev), "%s", d.GetReason())
	}
}

func allSkipped(steps []*teamv1.Step) bool {
	for _, s := range steps {
		if s.GetRefusal() == nil {
			return false
		}
	}
	return true
}

// choice formats a decision: the rule that matched, or the reason in words.
func choice(d *teamv1.Decided, next string) string {
	if d.GetRule() != "" {
		return fmt.Sprintf("rule %q -> %s", d.GetRule(), next)
	}
	return fmt.Sprintf("-> %s   %q", next, d.GetReason())
}

func (t *Printer) started(ev *teamv1.Event, s *teamv1.Started) {
	if ev.GetScope() == "" || t.inner(ev) || s.GetAttempt() > 1 || t.who(ev) == people {
		return
	}
	t.line(ev, t.who(ev), "working")
}

func (t *Printer) ended(ev *teamv1.Event, e *teamv1.Ended) {
	n := t.view.Node(ev.GetScope())
	if ev.GetScope() == "" {
		t.Outcome, t.Err, t.Answer = e.GetOutcome(), e.GetError(), cmp.Or(agent.Text(n.Reply), e.GetTurn().GetText())
		return
	}
	switch v := e.GetVerdict(); {
	case t.who(ev) == people && e.GetError() == nil:
		return // the answer was printed
	case v != nil && v.Score != nil: //nolint:protogetter // 0 is a score
		t.line(ev, t.who(ev), "score     %g %s", v.GetScore(), v.GetFeedback())
	case v != nil:
		t.line(ev, t.who(ev), "no score  %s", v.GetFault())
	case e.GetTool().GetIsError():
		t.line(ev, t.who(ev), "tool %s has answered with an error: %s", n.Step.GetName(), Clip(e.GetTool().GetText(), mostOfError))
	case t.inner(ev) || n != nil && n.Spawned != nil || e.GetOutcome() == teamv1.Outcome_OUTCOME_SKIPPED:
		return // the end of the member's step is printed instead
	case e.GetError() != nil:
		t.line(ev, t.who(ev), "%-9s %s", word(e.GetOutcome()), e.GetError().GetMessage())
	case cost(e.GetSpent()) != "":
		t.line(ev, t.who(ev), "%-9s %s", word(e.GetOutcome()), cost(e.GetSpent()))
	default:
		t.line(ev, t.who(ev), "%s", word(e.GetOutcome()))
	}
}

// mostOfError is how much of the answer of a tool that failed is printed, in characters.
const mostOfError = 200

// Clip returns the first characters of a text.
func Clip(text string, most int) string {
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i] + "…"
		}
	}
	return text
}

// spent returns what the run consumed, or nil before it has ended.
func (t *Printer) spent() *teamv1.Spent {
	if t.view == nil {
		return nil
	}
	return t.view.Top.End.GetSpent()
}

// HasDetached reports whether a part of the work continues as a task of its own.
func (t *Printer) HasDetached() (on bool) {
	if t.view != nil {
		t.view.Top.Walk(func(n *journal.Node) { on = on || n.Spawned != nil })
	}
	return on
}

// Summary returns the last line of the transcript.
func (t *Printer) Summary() string {
	state := word(t.Outcome)
	switch {
	case t.Waiting && t.Outcome == teamv1.Outcome_OUTCOME_UNSPECIFIED:
		state = "waits for an answer"
	case t.Outcome == teamv1.Outcome_OUTCOME_SUCCEEDED || t.Outcome == teamv1.Outcome_OUTCOME_EMPTY:
		state = "completed"
	}
	s := fmt.Sprintf("task %s  %s  %d %s", t.TaskID, state, t.turns, plural(t.turns, "turn"))
	if spent := cost(t.spent()); spent != "" {
		s += "  " + spent
	}
	return s + fmt.Sprintf("  %.1fs", t.last.Sub(t.first).Seconds())
}

// Failed reports whether the run has not succeeded. It is true while the run is active.
func (t *Printer) Failed() bool {
	return t.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED && t.Outcome != teamv1.Outcome_OUTCOME_EMPTY
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// cost returns tokens and money in words, or "" if there are none. A tilde marks estimates.
func cost(s *teamv1.Spent) string {
	about := ""
	if s.GetEstimated() {
		about = "~"
	}
	var words []string
	if c := agent.CostOf(s); c.Tokens > 0 {
		words = append(words, fmt.Sprintf("%s%d tokens", about, c.Tokens))
	}
	if s.GetCostMicros() > 0 {
		words = append(words, about+spending.Dollars(s.GetCostMicros())+" USD")
	}
	return strings.Join(words, "  ")
}

// word returns an outcome in words.
func word(o teamv1.Outcome) string {
	switch o {
	case teamv1.Outcome_OUTCOME_SUCCEEDED:
		return "done"
	case teamv1.Outcome_OUTCOME_TIMED_OUT:
		return "timed out"
	case teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_REJECTED,
		teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_SKIPPED, teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return taskstate.Word(o)
}
