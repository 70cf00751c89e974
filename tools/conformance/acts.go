package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
)

// The keys that the agent knows with -optional.
const (
	runnerKey  = "acts-runner"
	otherKey   = "acts-other"
	limitedKey = "acts-limited"
)

// actsRuns are the two ways in which the agent is run.
var actsRuns = []struct {
	name string
	args []string
	key  string // that the agent wants
}{
	{"with optional capabilities", []string{"-optional"}, runnerKey},
	{"without", []string{"-no-push"}, ""},
}

// acts plays the corpus in a folder: each test over each binding, in both ways. It adds the results to those of levels,
// by level, as well.
func acts(ctx context.Context, out io.Writer, dir, agent string) (results map[string]string, levels map[string]map[string]int, err error) {
	tests, err := load(dir)
	if err != nil {
		return nil, nil, err
	}
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer hook.Close()
	results, levels = map[string]string{}, map[string]map[string]int{}
	for _, run := range actsRuns {
		srv, err := start(append([]string{agent}, run.args...)...)
		if err != nil {
			return nil, nil, err
		}
		c := &corpus{out: out, name: run.name, sut: &sut{http: srv.url(), grpc: srv.grpc, token: run.key}, hook: hook.URL, results: results, levels: levels}
		if err := errors.Join(c.play(ctx, tests), srv.stop()); err != nil {
			return nil, nil, err
		}
	}
	return results, levels, nil
}

// corpus is one way in which the corpus is played.
type corpus struct {
	out     io.Writer
	name    string
	sut     *sut
	hook    string // URL that accepts webhooks
	results map[string]string
	levels  map[string]map[string]int
}

func (c *corpus) play(ctx context.Context, tests []test) error {
	card, err := c.sut.call(ctx, "rest", "get_agent_card", nil)
	if err != nil {
		return err
	}
	others, err := (&sut{http: c.sut.http, token: otherKey}).call(ctx, "rest", "send_message", map[string]any{
		"message": map[string]any{"messageId": "tck-complete-task-of-another", "role": "ROLE_USER", "parts": []any{map[string]any{"text": "tck-complete-task"}}},
	})
	if err != nil {
		return err
	}
	for i := range tests {
		t := &tests[i]
		for _, binding := range bindingsOf(t) {
			name := fmt.Sprintf("%s %s %s", t.ID, binding, c.name)
			result := skipped
			if applies(t, card.body) {
				result = passed
				p := &player{sut: c.sut, binding: binding, variables: map[string]any{
					"baseUrl": c.sut.http, "webhookUrl": c.hook, "insufficientAuthToken": limitedKey, "otherUserTaskId": first(at("task.id", others.body)),
				}}
				if strings.HasPrefix(t.ID, "SEC-") {
					p.variables["anonymous"] = true
				}
				if problem := p.play(ctx, t); problem != "" {
					result = failed
					fmt.Fprintf(c.out, "%s (%s): %s\n", name, t.Level, problem)
				}
			}
			c.record(name, t.Level, result)
		}
	}
	return nil
}

func (c *corpus) record(name, level, result string) {
	c.results[name] = result
	if c.levels[level] == nil {
		c.levels[level] = map[string]int{}
	}
	c.levels[level][result]++
}

// bindingsOf returns the bindings over which a test is played. What a client reads does not depend on one.
func bindingsOf(t *test) []string {
	for _, s := range t.Steps {
		if s.ClientResponse != nil {
			return []string{"client"}
		}
	}
	if len(t.Transport) > 0 {
		return t.Transport
	}
	return []string{"grpc", "jsonrpc", "rest"}
}

// applies reports whether the card of the agent has what a test requires. Authentication, which the corpus takes for a
// capability, is there if the card has security schemes.
func applies(t *test, card any) bool {
	for name, want := range t.Preconditions.Capabilities {
		got := field(field(card, "capabilities"), name) == true
		if name == "authentication" {
			got = field(card, "securitySchemes") != missing{}
		}
		if got != want {
			return false
		}
	}
	return true
}

// actsSummary returns the result of a corpus as Markdown.
func actsSummary(origin string, results map[string]string, levels map[string]map[string]int, known []deviation) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Corpus: ACTS, github.com/a2aproject/A2A, branch conformance-spec, tests/acts, %s, unmodified.\n\n", origin)
	out.WriteString("The server was [tools/conformance/agent](../tools/conformance/agent), with keys, an extended card and push notifications, and without.\n" +
		"Each test is played over each binding that it is for.\n\n| Level | Passed | Failed | Not applicable | Passed of those that apply |\n|---|---|---|---|---|\n")
	for _, level := range slices.Sorted(maps.Keys(levels)) {
		n := levels[level]
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %.1f %% |\n", strings.ToUpper(level), n[passed], n[failed], n[skipped], 100*float64(n[passed])/float64(max(1, n[passed]+n[failed])))
	}
	return out.String() + "\n" + report(results, known)
}

// runActs plays the corpus of -acts and compares the results with the record.
func (c *command) runActs(ctx context.Context) error {
	origin, err := identify(ctx, c.acts)
	if err != nil {
		return err
	}
	known, err := readDeviations(filepath.Join(c.deviations, "deviations-acts.yaml"))
	if err != nil {
		return err
	}
	results, levels, err := acts(ctx, c.out, c.acts, c.agent)
	if err != nil {
		return err
	}
	summary := actsSummary(origin, results, levels, known)
	fmt.Fprintf(c.out, "\n%s", summary)
	if c.doc != "" {
		if err := insert(c.doc, "ACTS", summary); err != nil {
			return err
		}
	}
	return judge(results, known)
}
