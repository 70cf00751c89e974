package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/interoprig"
)

// serversFile has an agent with the tools of MCP servers of others.
const serversFile = `version: v1
models: {fake: {provider: openai, name: fake, base_url: %q, api_key: key}}
tools:
  everything: {mcp: {command: [%[2]q, %[3]q, stdio], elicit: {}, timeouts: {call: 1s}}}
  everything_web: {mcp: {url: %[4]q, prefix: web_, elicit: {}, results: STRUCTURED}}
  fast: {mcp: {command: [%[5]q, tools.py, stdio], cwd: %[6]q, prefix: fast_, elicit: {}, protocol_version: "2025-11-25", timeouts: {call: 1s}}}
  fast_web: {mcp: {url: %[7]q, prefix: far_, allow: [forecast, report, book], resources: true, elicit: {}, results: BOTH}}
  budget: {mcp: {command: [%[2]q, %[8]q, --stdio], prefix: budget_, results: STRUCTURED}}
agents: {clerk: {description: Calls., model: fake, tools: [everything, everything_web, fast, fast_web, budget]}}
teams: {desk: {workflow: {steps: [{id: only, agent: clerk}]}}}
`

// toolCall is a call that the fake model is told to make.
type toolCall struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// saw is what the fake model saw: its last answer.
type saw struct {
	Tools   []string `json:"tools"`
	Results []string `json:"results"`
}

// fakeModel is a model that makes the calls in the first message, one after the other, and then answers with what it saw.
func fakeModel(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []struct {
			Role    string
			Content any
		}
		Tools []struct{ Function struct{ Name string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var calls []toolCall
	seen := saw{Results: []string{}}
	for _, m := range req.Messages {
		text := fmt.Sprint(m.Content)
		switch from, to := strings.Index(text, `[{"name"`), strings.LastIndex(text, "]"); {
		case m.Role == "tool":
			seen.Results = append(seen.Results, text)
		case m.Role == "user" && calls == nil && from >= 0:
			_ = json.Unmarshal([]byte(text[from:to+1]), &calls) // without calls the test fails
		}
	}
	for _, t := range req.Tools {
		seen.Tools = append(seen.Tools, t.Function.Name)
	}
	message, reason := map[string]any{"role": "assistant"}, "stop"
	if n := len(seen.Results); n < len(calls) {
		arguments, _ := json.Marshal(calls[n].Arguments) // they come from JSON
		message["tool_calls"] = []any{map[string]any{"id": fmt.Sprintf("call-%d", n), "type": "function", "function": map[string]any{"name": calls[n].Name, "arguments": string(arguments)}}}
		reason = "tool_calls"
	} else {
		b, _ := json.Marshal(seen) // of strings
		message["content"] = string(b)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client notices
		"object": "chat.completion", "choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}},
	})
}

// everythingOverHTTP starts the server everything of the MCP project, and returns its address.
func everythingOverHTTP(t *testing.T, node, entry string) string {
	t.Helper()
	at := interoprig.FreeAddress(t)
	_, port, _ := net.SplitHostPort(at)
	c := exec.CommandContext(t.Context(), node, entry, "streamableHttp") //nolint:gosec // pinned in js
	c.Env = append(os.Environ(), "PORT="+port)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // the error says only that it was killed
	for late := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at)
		if err == nil {
			_ = conn.Close()
			return "http://" + at + "/mcp"
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
}

// TestMCPServers drives MCP servers of others, over both transports, through a team: what they offer, answer, link to and
// ask, as a model sees it.
func TestMCPServers(t *testing.T) {
	node, python := interoprig.Node(t), interoprig.Python(t)
	if err := exec.CommandContext(t.Context(), python, "-c", "import fastmcp").Run(); err != nil { //nolint:gosec // of the module
		t.Skip("SKIP-MISSING-TOOL python3: FastMCP needs Python 3.11 or newer")
	}
	program := interoprig.BuildServer(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(here, "js", "node_modules", "@modelcontextprotocol")
	everything := filepath.Join(packages, "server-everything", "dist", "index.js")
	model := httptest.NewServer(http.HandlerFunc(fakeModel))
	t.Cleanup(model.Close)
	dir := t.TempDir()
	text := fmt.Sprintf(serversFile, model.URL, node, everything, everythingOverHTTP(t, node, everything), python, filepath.Join(here, "python"),
		interoprig.Agent(t, python, filepath.Join("python", "tools.py"), "http"), filepath.Join(packages, "server-budget-allocator", "dist", "index.js"))
	if err := os.WriteFile(filepath.Join(dir, "team.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &desk{approvals{t: t, program: program, dir: dir}}
	d.start()
	t.Run("tools", func(t *testing.T) {
		got := d.saw(t, nil).Tools
		for _, want := range []string{
			"echo", "get-structured-content", "trigger-elicitation-request", "everything_read_resource", "web_echo", "web_read_resource",
			"fast_add", "fast_read_resource", "far_report", "far_read_resource", "budget_get-budget-data", "budget_read_resource",
		} {
			if !slices.Contains(got, want) {
				t.Errorf("no tool %s in %q", want, got)
			}
		}
		if slices.Contains(got, "far_add") {
			t.Error("a tool that is not allowed is offered")
		}
	})
	t.Run("results", d.results)
	t.Run("questions", d.questions)
}

type o = map[string]any

// serverCalls are calls, and what the model sees of their results.
var serverCalls = []struct {
	call toolCall
	want string
}{
	{toolCall{"echo", o{"message": "hi"}}, "Echo: hi"},
	{toolCall{"get-structured-content", o{"location": "Chicago"}}, `{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}`},
	{toolCall{"web_get-structured-content", o{"location": "Chicago"}}, `{"conditions":"Light rain / drizzle","humidity":82,"temperature":36}`},
	{toolCall{"get-resource-links", o{"count": 1}}, "\n[resource Blob Resource 1 at demo://resource/dynamic/blob/1, of type text/plain: Resource 1: plaintext resource; read it with everything_read_resource]"},
	{toolCall{"everything_read_resource", o{"uri": "demo://resource/dynamic/text/2"}}, "Resource 2: This is a plaintext resource"},
	{toolCall{"web_gzip-file-as-resource", o{"name": "a.gz", "data": "data:text/plain,hi", "outputType": "resourceLink"}}, "[resource a.gz at demo://resource/session/a.gz, of type application/gzip; read it with web_read_resource]"},
	{toolCall{"web_read_resource", o{"uri": "demo://resource/session/a.gz"}}, "[resource demo://resource/session/a.gz of type application/gzip, 22 bytes]"},
	{toolCall{"web_read_resource", o{"uri": "demo://resource/none"}}, "the server refused the call: MCP error -32602: Resource demo://resource/none not found"},
	{toolCall{"get-tiny-image", o{}}, "\n[image of type image/png, 4033 bytes]\n"},
	{toolCall{"get-sum", o{"a": "x", "b": 1}}, "expected number, received string at a"},
	{toolCall{"trigger-long-running-operation", o{"duration": 1.5, "steps": 5}}, "Long running operation completed. Duration: 1.5 seconds, Steps: 5."}, // longer than timeouts.call
	{toolCall{"fast_add", o{"a": 1, "b": 2}}, "3"},
	{toolCall{"fast_forecast", o{"text": "Sunny."}}, "Sunny."},
	{toolCall{"fast_forecast", o{"text": ""}}, `{"degrees":21,"station":"S-1"}`},
	{toolCall{"far_forecast", o{"text": "Sunny."}}, "Sunny.\n" + `{"degrees":21,"station":"S-1"}`},
	{toolCall{"fast_report", o{}}, "[resource text at report://2026/text; read it with fast_read_resource]\n[resource chart at report://2026/chart; read it with fast_read_resource]"},
	{toolCall{"fast_read_resource", o{"uri": "report://2026/text"}}, "# All is well"},
	{toolCall{"far_read_resource", o{"uri": "report://2026/chart"}}, "[resource report://2026/chart of type image/png, 6 bytes]"},
	{toolCall{"far_read_resource", o{"uri": "report://none"}}, "Resource not found: 'report://none'"},
	{toolCall{"fast_slow", o{}}, "four steps"}, // longer than timeouts.call
	{toolCall{"fast_refuse", o{}}, "closed today"},
	{toolCall{"far_book", o{}}, `set protocol_version: "2025-11-25" of tool "fast_web"`},
	{toolCall{"budget_get-budget-data", o{}}, `"defaultStage":"Series A"`},
}

// results makes all calls in one run.
func (d *desk) results(t *testing.T) {
	var calls []toolCall
	for _, c := range serverCalls {
		calls = append(calls, c.call)
	}
	got := d.saw(t, calls).Results
	if len(got) != len(calls) {
		t.Fatalf("%d results of %d calls: %q", len(got), len(calls), got)
	}
	for i, c := range serverCalls {
		if !strings.Contains(got[i], c.want) {
			t.Errorf("%+v: %.1000s\nwant %s", c.call, got[i], c.want)
		}
	}
}

// questions answers what tools ask.
func (d *desk) questions(t *testing.T) {
	const everything, answer = "trigger-elicitation-request", `{"name":"Ann","email":"ann@example.com","integer":7,"legacyTitledEnum":"pet-2"}`
	for _, tt := range []struct {
		call                 toolCall
		asks, wrong, refused string
		answer, want         string
	}{
		{toolCall{everything, o{}}, `- "name" (required): {`, `{"name":"Ann","email":"ann"}`, `the field \"email\"`, answer, "- Name: Ann\n- Email: ann@example.com\n- Favorite Integer: 7\n"},
		{toolCall{"web_" + everything, o{}}, `"legacyTitledEnum" (optional): {`, `{"name":"Ann","legacyTitledEnum":"pet-9"}`, `the field \"legacyTitledEnum\"`, answer, `"legacyTitledEnum": "pet-2"`},
		{toolCall{"web_" + everything, o{}}, "Please provide inputs", `{}`, `no value for the field \"name\"`, "decline", "User declined"},
		{toolCall{"trigger-url-elicitation", o{"url": "https://forms.example/1"}}, "https://forms.example/1\n", "no idea", `answer with \"done\"`, "done", "User completed the URL elicitation flow."},
		{toolCall{"fast_book", o{}}, "> For how many?\n", "some", `the field \"value\": got string`, "5", "accept 5"},
	} {
		got, err := d.send("", fmt.Sprintf("asks-%d", rand.Int64()), jsonOf(t, []toolCall{tt.call}))
		if text := fmt.Sprint(got.Status.Message.Parts); err != nil || got.Status.State != "TASK_STATE_INPUT_REQUIRED" || !strings.Contains(text, tt.asks) {
			t.Errorf("%s asks %s, want %s; %v", tt.call.Name, text, tt.asks, err)
			continue
		}
		if _, err := d.send(got.ID, fmt.Sprintf("wrong-%d", rand.Int64()), tt.wrong); err == nil || !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s takes the answer %s: %v", tt.call.Name, tt.wrong, err)
		}
		if got, err = d.send(got.ID, fmt.Sprintf("answer-%d", rand.Int64()), tt.answer); err != nil {
			t.Fatal(err)
		}
		if seen := d.result(t, d.ended(t, got)).Results; len(seen) != 1 || !strings.Contains(seen[0], tt.want) {
			t.Errorf("%s with the answer %s: %q, want %s", tt.call.Name, tt.answer, seen, tt.want)
		}
	}
}

// ended waits for the end of a task.
func (d *desk) ended(t *testing.T, got task) task {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); got.Status.State != "TASK_STATE_COMPLETED"; <-time.After(20 * time.Millisecond) {
		var err error
		if got, err = d.call(http.MethodGet, "tasks/"+got.ID, nil); err != nil || time.Now().After(late) {
			t.Fatal(got, err)
		}
	}
	return got
}

// desk is the team of serversFile.
type desk struct{ approvals }

// saw has the model make calls, and returns what it saw.
func (d *desk) saw(t *testing.T, calls []toolCall) saw {
	t.Helper()
	got, err := d.send("", fmt.Sprintf("calls-%d", rand.Int64()), jsonOf(t, calls))
	if err != nil {
		t.Fatal(err)
	}
	return d.result(t, got)
}

func (d *desk) result(t *testing.T, got task) saw {
	t.Helper()
	var s saw
	if len(got.Artifacts) == 0 || json.Unmarshal([]byte(got.Artifacts[0].Parts[0].Text), &s) != nil {
		t.Fatalf("the model answered nothing that it saw: %+v", got)
	}
	return s
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
