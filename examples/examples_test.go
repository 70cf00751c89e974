// Package examples runs the examples.
package examples

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/transcript"
	"github.com/agentteams/team-server/pkg/agent"
)

// runExample serves a folder and runs one task; answers are given to its questions.
func runExample(t *testing.T, folder string, env map[string]string, team, text string, answers ...string) (talk string, run *transcript.Printer) {
	t.Helper()
	def, err := config.Loader{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	running, err := serve.Local(t.Context(), def, zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.NewTeam("http://"+running.HTTP, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b strings.Builder
	run = &transcript.Printer{Talk: &b}
	req := &teamv1.ProcessRequest{AgentId: team, Message: agent.UserMessage(uuid.NewString(), text)}
	tell(t.Context(), t, c, req, run)
	for _, answer := range answers {
		if len(run.Questions) != 1 {
			t.Fatalf("%d open questions, want 1:\n%s", len(run.Questions), b.String())
		}
		tell(t.Context(), t, c, &teamv1.ProcessRequest{
			AgentId: team, TaskId: run.TaskID, Question: run.Questions[0].GetQuestion(),
			Message: agent.UserMessage(uuid.NewString(), answer),
		}, run)
	}
	return b.String(), run
}

func tell(ctx context.Context, t *testing.T, c *client.Team, req *teamv1.ProcessRequest, run *transcript.Printer) {
	t.Helper()
	for resp, err := range c.Process(ctx, req, run.Seq) {
		if err != nil {
			t.Fatal(err)
		}
		run.Event(resp.GetTaskId(), resp.GetEvent())
	}
}

func TestExamples(t *testing.T) {
	for _, tt := range []struct {
		name, folder, team, text string
		answers                  []string
		want                     string   // the answer
		said                     []string // in this order
	}{
		{
			name: "supervisor", folder: "supervisor", team: "newsroom", text: "tides",
			want: "A text from these: Three facts on tides, each with its source.",
			said: []string{`rule "first-turn" -> researcher`, `-> writer   "the facts are complete"`, `rule "check" -> critic`, `rule "accept"`},
		},
		{
			name: "supervisor, sent back once", folder: "supervisor", team: "newsroom", text: "a draft on tides",
			want: `A better text, since the critic said {"score": 4}`,
			said: []string{`rule "rewrite" -> writer`, `rule "check" -> critic`, `rule "accept"`},
		},
		{
			name: "workflow, approved", folder: "workflow", team: "release", text: "version 2", answers: []string{"yes"},
			want: "Published: Notes on Draft the notes: version 2",
			said: []string{"-> writer", "-> legal, critic", "fix skipped", "asks      Publish?", "answered  yes", "-> publisher"},
		},
		{
			name: "workflow, repeated and refused", folder: "workflow", team: "release", text: "a rough version 2", answers: []string{"no"},
			want: `{"ok": true, "text": "smooth"}`,
			said: []string{"-> improver", "-> improver", "asks      Publish?", "publish skipped"},
		},
		{
			name: "planned, planned again", folder: "planned", team: "study", text: "secret tides",
			want: "The study of secret tides",
			said: []string{`the leader has planned: past (researcher); present (researcher)`, "there is no price list", "the leader has planned the rest: prices (analyst)", "-> writer"},
		},
		{
			name: "planned, approved", folder: "planned", team: "briefing", text: "tides", answers: []string{"reject: check them", "approve"},
			want: "The briefing: tides",
			said: []string{`-> people   "the plan needs approval: facts (researcher); brief (writer) after facts"`, `1. facts (researcher): "Find facts`, "answered  reject: check them", "check (analyst) after facts", "answered  approve", "a person approved the plan"},
		},
		{
			name: "nested", folder: "nested", team: "house", text: "tides",
			want: "In print: An article with facts on tides.",
			said: []string{`rule "publish" -> paper`, "-> desk", `paper/desk/scheduler rule "facts" -> researcher`, "paper/desk/writer", "-> printer"},
		},
		{
			name: "demo", folder: "demo", team: "company", text: "tides",
			want: `Published. Publish: Notes. Draft the notes: First version. On "tides"`,
			said: []string{`rule "story" -> newsroom`, `newsroom/scheduler rule "first-turn" -> researcher`, `rule "announce" -> release`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			talk, run := runExample(t, tt.folder, nil, tt.team, tt.text, tt.answers...)
			if run.Failed() || !strings.HasPrefix(run.Answer, tt.want) {
				t.Errorf("answer %q (%v), want %q\n%s", run.Answer, run.Err, tt.want, talk)
			}
			inOrder(t, talk, tt.said)
		})
	}
}

// TestRealConfigurations: the configuration with a real model is the tested one with another model.
func TestRealConfigurations(t *testing.T) {
	real, err := filepath.Glob("*/real.yaml")
	if err != nil || len(real) == 0 {
		t.Fatal(real, err)
	}
	rest := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, models, _ := strings.Cut(string(text), "\nmodels:\n")
		_, after, _ := strings.Cut(models, "\n\n")
		return before + after
	}
	for _, file := range real {
		if diff := cmp.Diff(rest(filepath.Join(filepath.Dir(file), "team.yaml")), rest(file)); diff != "" {
			t.Errorf("%s (-team.yaml +real.yaml):\n%s", file, diff)
		}
	}
}

// inOrder checks that texts are said one after the other.
func inOrder(t *testing.T, talk string, said []string) {
	t.Helper()
	rest := talk
	for _, s := range said {
		i := strings.Index(rest, s)
		if i < 0 {
			t.Errorf("%q is not said, or not in its place:\n%s", s, talk)
			return
		}
		rest = rest[i+len(s):]
	}
}

// TestOpenAIEndpoint runs the example against the fake model server: a random
// word of each member comes back in the answer.
func TestOpenAIEndpoint(t *testing.T) {
	llm := fakellm.New(t)
	fact, style := uuid.NewString(), uuid.NewString()
	llm.Answer("test-model", func(r *fakellm.Request) fakellm.Turn {
		if strings.Contains(r.Last(), fact) {
			return fakellm.Turn{Text: style + " " + r.Last()[strings.Index(r.Last(), fact):]} // the request comes before it
		}
		return fakellm.Turn{Text: fact + " on " + r.Last()}
	})
	env := map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": llm.URL, "OPENAI_MODEL": "test-model"}
	talk, run := runExample(t, "openai-endpoint", env, "newsroom", "tides")
	if want := style + " " + fact + " on tides"; run.Answer != want {
		t.Errorf("answer %q, want %q\n%s", run.Answer, want, talk)
	}
	if !strings.Contains(talk, "tokens") {
		t.Errorf("no tokens are told:\n%s", talk)
	}
}

// buildMCP builds the MCP server: go run keeps it, and a server that starts has ten
// seconds.
func buildMCP(t *testing.T) {
	t.Helper()
	warm := exec.CommandContext(t.Context(), "go", "run", "./server")
	warm.Dir, warm.Stdin = "mcp", strings.NewReader("")
	if out, err := warm.CombinedOutput(); err != nil && !strings.Contains(string(out), "EOF") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestMCP runs the MCP server beside the team: what the tools answer is in the
// answer.
func TestMCP(t *testing.T) {
	buildMCP(t)
	env := map[string]string{}
	for _, name := range []string{"GOCACHE", "GOFLAGS"} {
		env[name] = os.Getenv(name)
	}
	for _, tt := range []struct {
		text, want string
		said       []string
	}{
		{"3 tea", "Bill: 3 tea: 9.60 EUR, in stock.\nReserved; 37 are left.", []string{"tool price", "tool reserve", "-> cashier"}},
		{"2 cups", "Bill: 2 cups: 15.00 EUR, in stock.\nReserved; 4 are left.", []string{"tool price", "tool reserve"}},
		{"30 cups", "No bill: there are only 6 cups", []string{"tool price", "-> cashier"}},
		{"3 gold", "No bill: there is no gold here", nil},
	} {
		t.Run(tt.text, func(t *testing.T) {
			talk, run := runExample(t, "mcp", env, "counter", tt.text)
			if run.Answer != tt.want {
				t.Errorf("answer %q (%v), want %q\n%s", run.Answer, run.Err, tt.want, talk)
			}
			inOrder(t, talk, tt.said)
		})
	}
}

// TestRemoteAgent runs the agent as a process of its own and as a member.
func TestRemoteAgent(t *testing.T) {
	program := filepath.Join(t.TempDir(), "remote-agent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./remote-agent").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "--listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := readyAddress(stdout)
	if err != nil {
		t.Fatal(err)
	}
	talk, run := runExample(t, "remote-agent", map[string]string{"COUNTER_ADDRESS": address}, "desk", "tides")
	if want := "7 words: Everything there is to say on tides."; run.Answer != want {
		t.Errorf("answer %q, want %q\n%s", run.Answer, want, talk)
	}
}

func readyAddress(r io.Reader) (string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the program did not say where it listens: %w", err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "grpc=")
	return address, nil
}

// TestChangesShow changes a rule, a line of the script and a member of the demo:
// order, reason and answer follow.
func TestChangesShow(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"team.yaml", "team.script.yaml"} {
		files[name] = readDemo(t, name)
	}
	for _, tt := range []struct{ name, file, from, to, want, said string }{
		{"a rule", "team.yaml", `{id: first-turn, when: "turn == 1", next: [researcher]}`, `{id: straight, when: "turn == 1", next: [writer]}`, "First version. tides", `rule "straight" -> writer`},
		{"a line of the script", "team.script.yaml", "begin with what the reader knows", "begin with the end", "begin with the end", `rule "first-turn"`},
		{"a member", "team.yaml", "- {agent: writer, role: author, priority: 1}", "- {agent: legal, id: writer}", "Legal: nothing against it.", `rule "first-turn"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(files[tt.file], tt.from) {
				t.Fatalf("%s does not hold %q", tt.file, tt.from)
			}
			changed := maps.Clone(files)
			changed[tt.file] = strings.Replace(changed[tt.file], tt.from, tt.to, 1)
			dir := writeFiles(t, changed)
			talk, run := runExample(t, dir, nil, "newsroom", "tides")
			if !strings.Contains(run.Answer, tt.want) || !strings.Contains(talk, tt.said) {
				t.Errorf("answer %q, want %q and %q in\n%s", run.Answer, tt.want, tt.said, talk)
			}
		})
	}
}
