package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/scenario"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/internal/transcript"
)

// ErrTests is returned by Test if a scenario failed.
var ErrTests = errors.New("tests failed")

// TestFlags are the flags of the test command.
type TestFlags struct {
	// Run is a regular expression that is matched against "TEAM NAME"; "" matches all.
	Run string
	// Verbose prints a transcript of each run.
	Verbose bool
	// Model is real to call the models of the configurations; "" plays their scripts.
	Model string
	// MaxCost is the most that all scenarios together may cost with real models, in USD; "" means any amount.
	MaxCost string
}

// realModels is the value of --model.
const realModels = "real"

// maxCost returns the most that the scenarios may cost, in millionths of a USD; 0 means any amount.
func (f *TestFlags) maxCost() (int64, error) {
	if f.Model != "" && f.Model != realModels {
		return 0, console.Usagef("--model %s: expected real, which calls the models of the configuration; without --model, scripts replace them", console.Line(f.Model))
	}
	if f.MaxCost == "" {
		return 0, nil
	}
	if f.Model == "" {
		return 0, console.Usagef("--max-cost %s: scripts cost nothing; it belongs to --model real", console.Line(f.MaxCost))
	}
	usd, err := strconv.ParseFloat(f.MaxCost, 64)
	if err != nil || !(usd >= 1e-6 && usd < 1e9) {
		return 0, console.Usagef("--max-cost %s: expected an amount in USD above 0, such as 0.25", console.Line(f.MaxCost))
	}
	return int64(math.Round(usd * 1e6)), nil
}

// testReport is the JSON output of the test command.
type testReport struct {
	Passed    int              `json:"passed"`
	Failed    int              `json:"failed"`
	Scenarios []scenarioReport `json:"scenarios"`
	Faults    source.Faults    `json:"faults"`

	NotPlayed  int   `json:"not_played,omitempty"`
	CostMicros int64 `json:"cost_micros,omitempty"`
}

// scenarioReport is the JSON output for a scenario.
type scenarioReport struct {
	File     string             `json:"file"`
	Line     int                `json:"line"`
	Team     string             `json:"team"`
	Name     string             `json:"name"`
	OK       bool               `json:"ok"`
	Seconds  float64            `json:"seconds"`
	Failures []scenario.Failure `json:"failures,omitempty"`

	CostMicros int64    `json:"cost_micros,omitempty"`
	Tokens     int64    `json:"tokens,omitempty"`
	Unchecked  []string `json:"unchecked,omitempty"`
	NotPlayed  string   `json:"not_played,omitempty"`
}

// Test runs the scenarios of test files, or of all test files in folders.
func (s *Shell) Test(ctx context.Context, paths []string, f TestFlags) error {
	match, err := regexp.Compile(f.Run)
	if err != nil {
		return console.Usagef("--run: %w", err)
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	most, err := f.maxCost()
	if err != nil {
		return err
	}
	t := &tester{Shell: s, flags: f, result: testReport{Scenarios: []scenarioReport{}, Faults: source.Faults{}}}
	files, err := t.load(paths)
	if err != nil {
		return t.invalid(err)
	}
	all := scenario.Select(files, match)
	if len(all) == 0 {
		return console.Usagef("--run %s matches no scenario; it is matched against TEAM NAME, for example %q", f.Run, "newsroom asks the researcher first")
	}
	t.measure(all)
	if f.Model == realModels {
		err = scenario.PlayReal(ctx, all, most, s.Log(zapcore.ErrorLevel), t.report)
	} else {
		err = scenario.Play(ctx, all, s.Log(zapcore.ErrorLevel), t.report)
	}
	var faults source.Faults
	if errors.As(err, &faults) {
		return t.invalid(err)
	}
	if err != nil {
		return err
	}
	return t.end()
}

// tester prints results. It is not safe for concurrent use.
type tester struct {
	*Shell
	flags      TestFlags
	result     testReport
	team, name int // widths of the columns
}

func (t *tester) load(paths []string) ([]*scenario.File, error) {
	names, err := scenario.Find(paths...)
	if err != nil {
		return nil, err
	}
	l, err := withDotEnv()
	if err != nil {
		return nil, err
	}
	if t.flags.Model == realModels {
		return scenario.LoadReal(l, names)
	}
	return scenario.LoadAll(l, names)
}

// invalid prints faults as JSON if JSON output is selected, and returns the error of the command.
func (t *tester) invalid(err error) error {
	if !t.JSON || !errors.As(err, &t.result.Faults) {
		return err
	}
	return errors.Join(ErrInvalid, json.NewEncoder(t.Out).Encode(t.result))
}

// measure determines the widths of the columns, up to a maximum.
func (t *tester) measure(all []*scenario.Scenario) {
	const most = 80
	for _, s := range all {
		t.team = min(max(t.team, utf8.RuneCountInString(s.Team)), most)
		t.name = min(max(t.name, utf8.RuneCountInString(s.Name)), most)
	}
}

// report prints the result of a scenario.
func (t *tester) report(r *scenario.Result) error {
	ok, word := len(r.Failures) == 0 && r.NotPlayed == "", "FAIL"
	switch {
	case ok:
		t.result.Passed++
		word = "ok"
	case r.NotPlayed != "":
		t.result.NotPlayed++
		word = "-"
	default:
		t.result.Failed++
	}
	spent := &teamv1.Spent{} // scripts cost nothing
	if t.flags.Model == realModels {
		spent = r.Spent()
	}
	tokens := spent.GetInputTokens() + spent.GetOutputTokens()
	t.result.CostMicros += spent.GetCostMicros()
	if t.JSON {
		t.result.Scenarios = append(t.result.Scenarios, scenarioReport{
			File: r.File.Path, Line: r.Line, Team: r.Team, Name: r.Name, OK: ok, Seconds: r.Took.Round(time.Millisecond).Seconds(), Failures: r.Failures,
			CostMicros: spent.GetCostMicros(), Tokens: tokens, Unchecked: r.Unchecked, NotPlayed: r.NotPlayed,
		})
		return nil
	}
	cost := ""
	if t.flags.Model == realModels {
		cost = fmt.Sprintf("  %d tokens  %s USD", tokens, spending.Dollars(spent.GetCostMicros()))
	}
	fmt.Fprintf(t.Out, "%-4s  %-*s  %-*s  %.2fs%s\n", word, t.team, r.Team, t.name, r.Name, r.Took.Seconds(), cost)
	if r.NotPlayed != "" {
		fmt.Fprintf(t.Out, "      not played: %s\n", r.NotPlayed)
	}
	if len(r.Unchecked) > 0 {
		fmt.Fprintf(t.Out, "      not checked with a real model: %s\n", strings.Join(r.Unchecked, ", "))
	}
	for _, f := range r.Failures {
		fmt.Fprintf(t.Out, "      %s:%d  %s\n", f.File, f.Line, f.Message)
		if f.Why != "" {
			fmt.Fprintf(t.Out, "      %s\n", f.Why)
		}
	}
	if t.flags.Verbose {
		t.transcripts(r)
	}
	return nil
}

// transcripts prints a transcript of each run of a scenario.
func (t *tester) transcripts(r *scenario.Result) {
	for _, run := range r.Runs {
		var b strings.Builder
		told := &transcript.Printer{Talk: &b}
		for _, ev := range run.Events {
			told.Event(run.Task, ev)
		}
		if !told.Waiting && !told.Failed() {
			fmt.Fprintln(&b, told.Answer)
		}
		for line := range strings.Lines(b.String()) {
			fmt.Fprintf(t.Out, "      | %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// end prints the number of passed and failed scenarios.
func (t *tester) end() error {
	if t.JSON {
		if err := json.NewEncoder(t.Out).Encode(t.result); err != nil {
			return err
		}
	} else {
		rest := ""
		if t.result.NotPlayed > 0 {
			rest = fmt.Sprintf(", %d not played", t.result.NotPlayed)
		}
		if t.flags.Model == realModels {
			rest += ", " + spending.Dollars(t.result.CostMicros) + " USD"
		}
		fmt.Fprintf(t.Out, "%d passed, %d failed%s\n", t.result.Passed, t.result.Failed, rest)
	}
	if t.result.Failed > 0 || t.result.Passed == 0 {
		return ErrTests
	}
	return nil
}
