package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
)

// recordedTeams is the configuration of the tasks that TestRecord_CallsNothing records. The variables are addresses.
const recordedTeams = `version: v1
models:
  main: {provider: openai, name: main, base_url: "${LLM}", api_key: sk-of-the-file, price: {input: 1, output: 2}}
  other: {provider: openai, name: other, api_key: "${KEY_OF_ANOTHER_TEAM}"}
  lead: {provider: openai, name: lead, base_url: "${LLM}", price: {input: 1, output: 2}}
tools: {shop: {mcp: {url: "${MCP}", prefix: shop_}}}
agents:
  clerk: {description: Sells., model: main, tools: [shop, ask_user]}
  reader: {description: Reads., model: main}
  apart: {description: Is of no team here., model: other}
  far: {description: Is far away., a2a: {card: "${FAR}/far", cost_per_task: 0}}
teams:
  pair: {workflow: {steps: [{parallel: [{id: one, agent: reader, task: "the first part of {{input}}"}, {id: two, agent: reader, task: "the second part of {{input}}"}]}, clerk]}}
  rules: {members: [reader, far], supervisor: {rules: [{id: read, when: "turn == 1", next: [reader]}, {id: ask, when: "turn == 2", next: [far]}, {id: end, when: "true", finish: far}]}}
  office: {members: [clerk, far], coordinator: {model: lead}}
  whole: {workflow: {steps: [pair, far]}}
`

// answersOfModels are what the models of the recorded tasks answer.
func answersOfModels(llm *fakellm.Server) {
	failed := false
	llm.Answer("main", func(r *fakellm.Request) fakellm.Turn {
		switch last := r.Last(); {
		case strings.Contains(last, "is down"):
			return fakellm.Turn{Status: http.StatusBadRequest, Message: "no such thing"}
		case strings.Contains(last, "the second part") && !failed:
			failed = true // an attempt that is repeated
			return fakellm.Turn{Status: http.StatusServiceUnavailable}
		case strings.Contains(last, "goods"):
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "shop_price", Arguments: `{"goods":"tea"}`}}}
		case strings.Contains(last, "3 EUR"):
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "ask_user", Arguments: `{"question":"Do you want it?"}`}}}
		default:
			return fakellm.Turn{Text: fmt.Sprintf("${HOME} {{input}} of %d: %s", len(last), last)}
		}
	})
	llm.Answer("lead", func(r *fakellm.Request) fakellm.Turn {
		switch last := r.Last(); {
		case strings.Contains(last, "sell goods"):
			return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_clerk", Arguments: `{"task":"price of goods"}`}, {Name: "delegate_to_far", Arguments: `{"task":"paint it"}`}}}
		default:
			return fakellm.Turn{Text: "sold"}
		}
	})
}

// shop is an MCP server with a tool that returns a picture.
func shop(t *testing.T) *httptest.Server {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "price", Description: "Says what goods cost.", InputSchema: json.RawMessage(`{"type":"object","required":["goods"],"properties":{"goods":{"type":"string"}}}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "3 EUR"}, &sdk.ImageContent{Data: []byte("picture"), MIMEType: "image/png"}}}, nil
		})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(h.Close)
	return h
}

// started serves a configuration.
func started(t *testing.T, file string, env map[string]string) (running *serve.Running, stop func()) {
	t.Helper()
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	running, err = serve.Start(t.Context(), def, serve.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			if err := running.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return running, stop
}

// TestRecord_CallsNothing: tasks of teams of several kinds are recorded over the API, with questions, files, tools, a
// remote agent, an attempt that failed and a run that failed. The tests pass when nothing that the tasks called is there
// any more, and the models are not called once.
func TestRecord_CallsNothing(t *testing.T) {
	llm := fakellm.New(t)
	answersOfModels(llm)
	tools := shop(t)
	far, stopFar := started(t, "version: v1\nagents: {far: {description: Far., scripted: {steps: [{ask: \"Which colour?\"}, {text: \"{{answer}}: {{input}}\"}]}}}\n", nil)
	file := os.Expand(recordedTeams, func(name string) string {
		return map[string]string{"LLM": llm.URL, "MCP": tools.URL, "FAR": "http://" + far.HTTP, "KEY_OF_ANOTHER_TEAM": "${KEY_OF_ANOTHER_TEAM}"}[name]
	})
	running, stop := started(t, file, map[string]string{"KEY_OF_ANOTHER_TEAM": "only-the-server-has-it"})
	dir := t.TempDir()
	attached := filepath.Join(dir, "note.txt")
	for name, text := range map[string]string{"team.yaml": file, "note.txt": "a file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		team, text string
		run        cli.Run
		fails      bool
		says       []string // in the recorded test
	}{
		{"clerk", "price of goods", cli.Run{Answers: []string{"yes"}}, false, []string{"answers: [yes]", "name: price", "image/png", "shop:"}},
		{"reader", "a text", cli.Run{Files: []string{attached}}, false, []string{"parts:", "note.txt"}},
		{"reader", "this is down", cli.Run{}, true, []string{"state: FAILED", "status: 400"}},
		{"pair", "a book", cli.Run{}, false, []string{"status: 503", "the first part of a book", "when:"}},
		{"rules", "ask far", cli.Run{Answers: []string{"red"}}, false, []string{"rules: [read, ask, end]", "ask: 'Which colour?'"}},
		{"office", "sell goods", cli.Run{Answers: []string{"red", "red"}}, false, []string{"delegate_to_far", "calls:"}},
		{"whole", "a book", cli.Run{Answers: []string{"blue"}}, false, []string{"agents: [pair, pair/reader, pair/reader, pair/clerk, far]"}},
	} {
		var out, talk bytes.Buffer
		s := &cli.Shell{Console: console.Console{Out: &out, Talk: &talk}, Connection: console.Connection{Server: "http://" + running.HTTP}}
		if err := s.Run(t.Context(), tt.team, tt.text, &tt.run); (err != nil) != tt.fails {
			t.Fatalf("%s: %v\n%s", tt.team, err, talk.String())
		}
		id := newestTask(t, s, &out)
		calls := len(llm.Requests())
		path := filepath.Join(dir, id+"_test.yaml")
		err := (&cli.Recorder{Shell: s, Out: path}).Record(t.Context(), id)
		data, _ := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s: %v\n%s%s\n%s", tt.team, err, out.String(), talk.String(), data)
		}
		if n := len(llm.Requests()) - calls; n != 0 {
			t.Errorf("%s: %d calls of models while the test was played", tt.team, n)
		}
		for _, want := range tt.says {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s: the test has no %q:\n%s", tt.team, want, data)
			}
		}
	}
	refusesSecrets(t, "http://"+running.HTTP, dir)
	stop()
	stopFar()
	tools.Close()
	llm.Close()
	var out, talk bytes.Buffer
	s := &cli.Shell{Console: console.Console{Out: &out, Talk: &talk}}
	if err := s.Test(t.Context(), []string{dir}, cli.TestFlags{}); err != nil {
		t.Errorf("%v\n%s%s", err, out.String(), talk.String())
	}
}

// refusesSecrets checks that no test is written from a task whose text has a secret of the configuration.
func refusesSecrets(t *testing.T, server, dir string) {
	t.Helper()
	var out, talk bytes.Buffer
	s := &cli.Shell{Console: console.Console{Out: &out, Talk: &talk}, Connection: console.Connection{Server: server}}
	if err := s.Run(t.Context(), "reader", "the key is sk-of-the-file", &cli.Run{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "secret_test.yaml")
	err := (&cli.Recorder{Shell: s, Out: path}).Record(t.Context(), newestTask(t, s, &out))
	if _, gone := os.Stat(path); err == nil || !strings.Contains(err.Error(), "hold a secret") || gone == nil {
		t.Errorf("a task with a secret: %v", err)
	}
	if !strings.Contains(talk.String(), "not looked for in the task: KEY_OF_ANOTHER_TEAM") {
		t.Errorf("a secret that is not set here: %s", talk.String())
	}
}

// newestTask returns the id of the task that was created last.
func newestTask(t *testing.T, s *cli.Shell, out *bytes.Buffer) string {
	t.Helper()
	out.Reset()
	c, err := s.Client(s.Server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	page, err := c.FindTasks(t.Context(), nil)
	if err != nil || len(page.GetTasks()) == 0 {
		t.Fatal(page, err)
	}
	return page.GetTasks()[0].GetTaskId()
}
