package app

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

	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/scenario"
)

// ErrTests ends Test when scenarios failed.
var ErrTests = errors.New("tests failed")

// TestFlags say which scenarios are played, and how much is told of them.
type TestFlags struct {
	// Run is a regular expression for TEAM NAME; empty is all.
	Run string
	// Verbose tells each run as it went.
	Verbose bool
}

// tested is the result as JSON.
type tested struct {
	Passed    int           `json:"passed"`
	Failed    int           `json:"failed"`
	Scenarios []playedJSON  `json:"scenarios"`
	Faults    config.Faults `json:"faults"`
}

// playedJSON is the result of a scenario as JSON.
type playedJSON struct {
	File     string             `json:"file"`
	Line     int                `json:"line"`
	Team     string             `json:"team"`
	Name     string             `json:"name"`
	OK       bool               `json:"ok"`
	Seconds  float64            `json:"seconds"`
	Failures []scenario.Failure `json:"failures,omitempty"`
}

// Test plays the scenarios of test files, or of those in folders.
func (s *Shell) Test(ctx context.Context, paths []string, f TestFlags) error {
	match, err := regexp.Compile(f.Run)
	if err != nil {
		return UsageError{fmt.Errorf("--run: %w", err)}
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	t := &tester{Shell: s, flags: f, result: tested{Scenarios: []playedJSON{}, Faults: config.Faults{}}}
	files, err := t.load(paths)
	if err != nil {
		return t.invalid(err)
	}
	all := scenario.Select(files, match)
	if len(all) == 0 {
		return UsageError{fmt.Errorf("--run %s matches no scenario; it is looked for in TEAM NAME, for example %q", f.Run, "newsroom asks the researcher first")}
	}
	t.measure(all)
	if err := scenario.Play(ctx, all, s.log(zapcore.ErrorLevel), t.tell); err != nil {
		return err
	}
	return t.end()
}

// tester tells results. Used by one goroutine.
type tester struct {
	*Shell
	flags      TestFlags
	result     tested
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

// invalid tells faults as JSON, where that is asked for.
func (t *tester) invalid(err error) error {
	if !t.JSON || !errors.As(err, &t.result.Faults) {
		return err
	}
	return errors.Join(ErrInvalid, json.NewEncoder(t.Out).Encode(t.result))
}

// measure makes the columns wide enough, within bounds.
func (t *tester) measure(all []*scenario.Scenario) {
	const most = 80
	for _, s := range all {
		t.team = min(max(t.team, utf8.RuneCountInString(s.Team)), most)
		t.name = min(max(t.name, utf8.RuneCountInString(s.Name)), most)
	}
}

// tell tells the result of a scenario.
func (t *tester) tell(r *scenario.Result) error {
	ok, word := len(r.Failures) == 0, "FAIL"
	if ok {
		t.result.Passed++
		word = "ok"
	} else {
		t.result.Failed++
	}
	if t.JSON {
		t.result.Scenarios = append(t.result.Scenarios, playedJSON{
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

// transcripts tells how the runs of a scenario went.
func (t *tester) transcripts(r *scenario.Result) {
	for _, run := range r.Runs {
		var b strings.Builder
		told := &Transcript{Talk: &b}
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

// end tells how many passed.
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
