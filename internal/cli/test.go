package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/internal/scenario"
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
}

// testReport is the JSON output of the test command.
type testReport struct {
	Passed    int              `json:"passed"`
	Failed    int              `json:"failed"`
	Scenarios []scenarioReport `json:"scenarios"`
	Faults    source.Faults    `json:"faults"`
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
}

// Test runs the scenarios of test files, or of all test files in folders.
func (s *Shell) Test(ctx context.Context, paths []string, f TestFlags) error {
	match, err := regexp.Compile(f.Run)
	if err != nil {
		return UsageError{Err: fmt.Errorf("--run: %w", err)}
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	t := &tester{Shell: s, flags: f, result: testReport{Scenarios: []scenarioReport{}, Faults: source.Faults{}}}
	files, err := t.load(paths)
	if err != nil {
		return t.invalid(err)
	}
	all := scenario.Select(files, match)
	if len(all) == 0 {
		return UsageError{Err: fmt.Errorf("--run %s matches no scenario; it is matched against TEAM NAME, for example %q", f.Run, "newsroom asks the researcher first")}
	}
	t.measure(all)
	if err := scenario.Play(ctx, all, s.log(zapcore.ErrorLevel), t.report); err != nil {
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
	ok, word := len(r.Failures) == 0, "FAIL"
	if ok {
		t.result.Passed++
		word = "ok"
	} else {
		t.result.Failed++
	}
	if t.JSON {
		t.result.Scenarios = append(t.result.Scenarios, scenarioReport{
			r.File.Path, r.Line, r.Team, r.Name, ok, r.Took.Round(time.Millisecond).Seconds(), r.Failures,
		})
		return nil
	}
	fmt.Fprintf(t.Out, "%-4s  %-*s  %-*s  %.2fs\n", word, t.team, r.Team, t.name, r.Name, r.Took.Seconds())
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
		fmt.Fprintf(t.Out, "%d passed, %d failed\n", t.result.Passed, t.result.Failed)
	}
	if t.result.Failed > 0 {
		return ErrTests
	}
	return nil
}
