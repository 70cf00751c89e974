package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Failure is an expectation that was not met.
type Failure struct {
	// File and Line are the position of the expectation.
	File string `json:"file"`
	Line int    `json:"line"`
	// Message says what was expected and what the result was.
	Message string `json:"message"`
	// Why describes the decision that led to the result; "" if no decision explains it.
	Why string `json:"why,omitempty"`
}

// judge compares the results of a turn with the expectation.
type judge struct {
	*record
	scenario *Scenario
	turn     *turn
	prefix   string // prefix of failures, which names the message in a conversation
	failures []Failure
}

// failf adds a failure at a key of the expectation.
func (j *judge) failf(key []any, why, format string, args ...any) {
	path := j.turn.want(key...)
	if !j.scenario.File.doc.Has(path...) {
		path = j.turn.path
	}
	j.failures = append(j.failures, Failure{
		File: j.scenario.File.Path, Line: j.scenario.File.doc.Line(path...), Message: j.prefix + fmt.Sprintf(format, args...), Why: why,
	})
}

// has reports whether a key of the expectation is checked: whether it is there, even if its value is empty.
func (j *judge) has(key string) bool {
	return j.checks(key) && j.scenario.File.doc.Has(j.turn.want(key)...)
}

// checkedWithRealModels are the keys of expectations that hold whatever a model says. Steps do not if a model plans them.
var checkedWithRealModels = []string{"state", "reason", "reply", "steps", "skipped", "at_most"}

// checks reports whether a key of an expectation can be checked.
func (j *judge) checks(key string) bool {
	if !j.scenario.real {
		return true
	}
	planned := j.scenario.def.Server.GetTeams()[j.scenario.Team].GetWorkflow().GetPlan() != nil
	return slices.Contains(checkedWithRealModels, key) && (!planned || key != "steps" && key != "skipped")
}

// unchecked returns the keys of the expectation that were not checked.
func (j *judge) unchecked() (keys []string) {
	if !j.scenario.real {
		return nil
	}
	w := j.turn.GetWant().ProtoReflect().Descriptor().Fields()
	for i := range w.Len() {
		if key := w.Get(i).TextName(); !j.checks(key) && j.scenario.File.doc.Has(j.turn.want(key)...) {
			keys = append(keys, j.prefix+key)
		}
	}
	if j.scenario.File.doc.Has(j.turn.want("reply", "equals")...) {
		keys = append(keys, j.prefix+"reply.equals")
	}
	return keys
}

// all checks the whole expectation.
func (j *judge) all() {
	w := j.turn.GetWant()
	j.state(w)
	j.order(w)
	j.asked(w.GetQuestions())
	j.numbers(w)
	if w.GetReply() != nil && j.Top.End.GetError() == nil && len(j.Questions("")) == 0 {
		j.text([]any{"reply"}, "reply", w.GetReply(), agent.Text(j.said(j.Top)), j.ending())
	}
	given, said := w.GetGiven(), w.GetSaid()
	if j.scenario.real {
		given, said = nil, nil
	}
	for _, path := range sorted(given) {
		j.work([]any{"given", path}, path, func(k *work) {
			j.text([]any{"given", path}, path+" given", given[path], agent.Text(k.given), j.reason(k.by, k.path))
		})
	}
	for _, path := range sorted(said) {
		j.work([]any{"said", path}, path, func(k *work) {
			j.text([]any{"said", path}, path+" to say", said[path], agent.Text(k.said), k.problem())
		})
	}
	slices.SortStableFunc(j.failures, func(a, b Failure) int { return a.Line - b.Line })
}

// work calls judge with the last step of the agent at path, or adds a failure if it had none.
func (j *judge) work(key []any, path string, judge func(*work)) {
	if w := j.last(path); w != nil {
		judge(w)
		return
	}
	j.failf(key, j.ending(), "want %s to work, but it did not", path)
}

// problem returns why the work did not succeed, or "".
func (w *work) problem() string {
	if e := w.End.GetError(); e != nil {
		return fmt.Sprintf("%s: %s: %s", w.path, e.GetReason(), e.GetMessage())
	}
	return ""
}

// state checks how the run ended.
func (j *judge) state(w *teamv1.Expectation) {
	got := j.finalState()
	want := w.GetState()
	e := j.Top.End.GetError()
	if want == teamv1.FinalState_DEFAULT_STATE {
		want = teamv1.FinalState_COMPLETED
		if w.GetReason() != "" || w.GetError() != nil {
			want = got
			if got == teamv1.FinalState_COMPLETED || got == teamv1.FinalState_INPUT_REQUIRED {
				want = teamv1.FinalState_FAILED
			}
		}
	}
	if got != want {
		j.failf([]any{"state"}, j.stopped(), "want the run %s, got %s", want, got)
		return
	}
	if w.GetReason() != "" && w.GetReason() != e.GetReason() {
		j.failf([]any{"reason"}, j.stopped(), "want reason %s, got %s", w.GetReason(), e.GetReason())
	}
	if w.GetError() != nil && j.checks("error") {
		j.text([]any{"error"}, "error", w.GetError(), e.GetMessage(), "")
	}
}

// finalState returns the state of the task.
func (j *judge) finalState() teamv1.FinalState_Value {
	switch j.Top.End.GetOutcome() {
	case teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY:
		return teamv1.FinalState_COMPLETED
	case teamv1.Outcome_OUTCOME_REJECTED:
		return teamv1.FinalState_REJECTED
	case teamv1.Outcome_OUTCOME_CANCELED, teamv1.Outcome_OUTCOME_SKIPPED:
		return teamv1.FinalState_CANCELED
	case teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_TIMED_OUT:
		return teamv1.FinalState_FAILED
	case teamv1.Outcome_OUTCOME_UNSPECIFIED:
	}
	return teamv1.FinalState_INPUT_REQUIRED
}

// stopped returns why the run ended as it did, or what it waits for.
func (j *judge) stopped() string {
	if e := j.Top.End.GetError(); e != nil {
		return e.GetReason() + ": " + e.GetMessage()
	}
	if len(j.Questions("")) > 0 {
		return fmt.Sprintf("it asks %s; give it answers: [TEXT]", quoted(agent.Text(j.Questions("")[0].Event.GetAsked().GetMessage())))
	}
	return j.ending()
}

// order checks which members worked, in which order, and which rules and steps applied.
func (j *judge) order(w *teamv1.Expectation) {
	l := j.lists()
	j.worked("members", w.GetMembers(), l.top, pathOf)
	j.worked("agents", w.GetAgents(), l.all, pathOf)
	j.worked("steps", w.GetSteps(), l.steps, stepOf)
	j.worked("skipped", w.GetSkipped(), l.skipped, stepOf)
	j.worked("failed", w.GetFailed(), l.failed, pathOf)
	rules, by := j.ruled()
	j.list("rules", w.GetRules(), rules, func(i int) string {
		if i < len(by) {
			return j.reason(by[i], "")
		}
		return j.ending()
	})
}

// worked checks a list of the steps of agents; word returns the name of a step in the list.
func (j *judge) worked(key string, want []string, got []*work, word func(*work) string) {
	j.list(key, want, namesOf(got, word), func(i int) string {
		switch {
		case i >= len(got):
			return j.ending()
		case key == "failed":
			return got[i].problem()
		}
		return j.reason(got[i].by, got[i].path)
	})
}

// list checks a list; why explains the first entry that differs.
func (j *judge) list(key string, want, got []string, why func(i int) string) {
	if !j.has(key) || slices.Equal(want, got) {
		return
	}
	i := 0
	for i < len(want) && i < len(got) && want[i] == got[i] {
		i++
	}
	j.failf([]any{key}, why(i), "want %s %s, got %s", key, formatList(want), formatList(got))
}

// asked checks the questions, each of which must contain the text that is expected. Both are printed whole.
func (j *judge) asked(want []string) {
	if !j.has("questions") || slices.EqualFunc(want, j.questions, func(part, got string) bool { return strings.Contains(got, part) }) {
		return
	}
	j.failf([]any{"questions"}, "", "want questions that contain %q, got %q", want, j.questions)
}

// formatList formats a list on one line and truncates it if it is long. Items with spaces are
// quoted.
func formatList(items []string) string {
	const most = 16
	var words []string
	for i, s := range items {
		if i == most {
			words = append(words, fmt.Sprintf("… %d in all", len(items)))
			break
		}
		if s == "" || strings.ContainsAny(s, " \n\t") {
			s = quoted(s)
		}
		words = append(words, s)
	}
	return "[" + strings.Join(words, " ") + "]"
}

// numbers checks counts and consumption.
func (j *judge) numbers(w *teamv1.Expectation) {
	var delegations, handoffs, parallel int64
	for _, k := range j.works {
		switch {
		case !k.top() || !k.ran():
		case k.Step.GetKind() == teamv1.Step_KIND_TRANSFER:
			handoffs++
		default:
			delegations++
		}
	}
	for _, d := range j.decisions {
		n := int64(0)
		for _, s := range d.GetSteps() {
			if agent.IsDelegation(s.GetKind()) && s.GetRefusal() == nil {
				n++
			}
		}
		parallel = max(parallel, n)
	}
	j.exactly("model_calls", w.GetModelCalls(), j.calls)
	j.exactly("tool_calls", w.GetToolCalls(), j.tools)
	j.exactly("delegations", w.GetDelegations(), delegations)
	j.exactly("handoffs", w.GetHandoffs(), handoffs)
	j.exactly("parallel", int64(w.GetParallel()), parallel)
	j.spend(w.GetAtMost())
}

func (j *judge) exactly(key string, want, got int64) {
	if j.has(key) && want != got {
		j.failf([]any{key}, "", "want %d %s, got %d", want, strings.ReplaceAll(key, "_", " "), got)
	}
}

// spend checks what the turn consumed.
func (j *judge) spend(most *teamv1.SpendLimit) {
	s := j.Top.End.GetSpent()
	for _, m := range []struct {
		key       string
		most, got float64
	}{
		{"tokens", float64(most.GetTokens()), float64(s.GetInputTokens() + s.GetOutputTokens())},
		{"cost", most.GetCost(), float64(s.GetCostMicros()) / 1e6},
		{"model_calls", float64(most.GetModelCalls()), float64(j.calls)},
		{"tool_calls", float64(most.GetToolCalls()), float64(j.tools)},
	} {
		if j.scenario.File.doc.Has(j.turn.want("at_most", m.key)...) && m.got > m.most {
			j.failf([]any{"at_most", m.key}, "", "want at most %s %s, got %s", formatNumber(m.most), strings.ReplaceAll(m.key, "_", " "), formatNumber(m.got))
		}
	}
}

// formatNumber formats a number without an exponent.
func formatNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// text checks a text.
func (j *judge) text(key []any, what string, want *teamv1.TextExpectation, got, why string) {
	at := func(k ...any) []any { return slices.Concat(key, k) }
	if want.Equals != nil && !j.scenario.real && want.GetEquals() != got { //nolint:protogetter // an empty text can be expected
		j.failf(at("equals"), why, "want %s %s, got %s", what, quoted(want.GetEquals()), quoted(got))
	}
	for i, part := range want.GetContains() {
		if !strings.Contains(got, part) {
			j.failf(at("contains", i), why, "want %s to contain %s, got %s", what, quoted(part), quoted(got))
		}
	}
	for i, part := range want.GetExcludes() {
		if strings.Contains(got, part) {
			j.failf(at("excludes", i), why, "want %s without %s, got %s", what, quoted(part), quoted(got))
		}
	}
	if p := want.GetMatches(); p != "" && !regexp.MustCompile(p).MatchString(got) { // validated by checks.texts
		j.failf(at("matches"), why, "want %s to match %s, got %s", what, p, quoted(got))
	}
}

// quoted quotes a text for a message and truncates it if it is long.
func quoted(s string) string {
	const most = 160
	if len(s) > most {
		n := most
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strconv.Quote(s)
}
