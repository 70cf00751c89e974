// Package night plays agent frameworks as clients of the server, and their agents as members
// of a team. It is run by make night-clients alone: the frameworks are large.
package night

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/interoprig"
)

// installTime bounds the installation of a framework.
const installTime = 20 * time.Minute

// framework is a client, a server or both, with the package that its folder pins.
type framework struct {
	dir, name, binding string
	script             string            // the folder with its script or the name of its program, if it is not dir
	bindings           bool              // the program is told its binding
	card               string            // where below its address an agent's card is
	lacks              map[string]string // by step, why its agent does not do it
	answer             func(question []byte) string
	noClient           string // why it has no client; empty if it has one
	noServer           string // why its server is not played; empty if it is
}

// frameworks are those that are played.
var frameworks = []framework{
	{dir: "adk1", name: "google-adk", binding: "JSONRPC 0.3", lacks: map[string]string{
		"stream": "Its card has `\"streaming\":false`, and `message/stream` is answered -32603, `Streaming is not supported by the agent`.",
		"cancel": "`tasks/cancel` is answered -32603, `Cancellation is not supported`.",
	}},
	{dir: "adk2", script: "adk1", name: "google-adk", binding: "JSONRPC", lacks: map[string]string{
		"stream": "It sends the pieces as messages of statuses (`\"state\": \"TASK_STATE_WORKING\", \"message\": {\"parts\": [{\"text\": \"far: \"}]}`), and then the whole answer as an artifact.",
	}},
	{dir: "agno", name: "agno", binding: "JSONRPC 0.3", card: "/a2a/agents/peer", lacks: map[string]string{
		"stream":   "It sends the pieces as messages beside the task (`\"kind\": \"message\", \"parts\": [{\"kind\": \"text\", \"text\": \"far: \"}]`): nothing says that one goes on in the next before all are there.",
		"question": "It tells a run that waits for its user as `working` (`RunStatus.paused: TaskState.working`), and no state of its is `input-required`.",
		"cancel":   "The one address of its card takes `message/stream` alone: `tasks/cancel` is answered 400, `Input should be 'message/stream'`.",
		"failure":  "Its stream ends with `\"status\": {\"state\": \"completed\"}` and `\"parts\": []` after an error of the model.",
	}},
	{dir: "crewai", name: "crewai", binding: "JSONRPC 0.3", lacks: map[string]string{
		"stream":   "Its stream is one line, the task with `\"status\":{\"state\":\"completed\"}` and the whole answer.",
		"question": "Its agents cannot ask: a task ends with `\"status\":{\"state\":\"completed\"}` or with an error.",
		"cancel":   "It says nothing of a task before the task's end, so no call can name the task to cancel.",
	}},
	{dir: "agentframework", name: "agent-framework-a2a", binding: "JSONRPC", lacks: map[string]string{
		"stream":   "With its default, `A2AExecutor(agent)`, the whole answer is the message of a status with `TASK_STATE_WORKING`; it streams in pieces with `stream=True`.",
		"question": "A2AExecutor cannot ask: a task ends with `TASK_STATE_COMPLETED`, `TASK_STATE_FAILED` or `TASK_STATE_CANCELED`.",
	}},
	{dir: "beeai", name: "beeai-framework", binding: "JSONRPC 0.3", lacks: map[string]string{
		"stream":   "The whole answer is the message of the last status, with `\"state\":\"completed\"`.",
		"question": "Its agents cannot ask: a task ends with `\"state\":\"completed\"` or `\"state\":\"failed\"`.",
		"cancel":   "`tasks/cancel` is answered -32002, `Task cannot be canceled - current state: TaskState.working`, and the task goes on.",
		"failure":  "After one cancel each further task ends with `Action has been aborted`: all tasks have one AbortController. Without, a task ends with `\"state\":\"failed\"` and the text of the error.",
	}},
	{dir: "strands", name: "strands-agents", binding: "JSONRPC 0.3", answer: interruptResponse, lacks: map[string]string{
		"failure": "It keeps the error to itself: the task ends with `\"state\":\"failed\"` and the text `Agent execution failed`.",
	}},
	{dir: "langgraph", name: "langgraph-api", binding: "JSONRPC", noClient: "LangGraph API serves agents; it has no client of A2A.", lacks: map[string]string{
		"stream": "It sends the pieces as messages of statuses, `{\"kind\": \"status-update\", \"status\": {\"state\": \"TASK_STATE_WORKING\", \"message\": {\"parts\": [{\"kind\": \"text\", \"text\": \"far:\"}]}}}`, each with all text so far, and then the whole answer as an artifact.",
	}},
	{dir: "mastra", name: "@mastra/core", binding: "JSONRPC 0.3", card: "/api/.well-known/peer/agent-card.json", answer: func([]byte) string { return "Brest" }},
	{dir: "rust", script: "lf", name: "a2a-client-lf", binding: "JSONRPC", bindings: true},
	{dir: "rust", script: "lf", name: "a2a-client-lf", binding: "HTTP+JSON", bindings: true},
	{dir: "rust", script: "protocol", name: "a2a-protocol-client", binding: "JSONRPC", bindings: true},
	{dir: "rust", script: "protocol", name: "a2a-protocol-client", binding: "HTTP+JSON", bindings: true},
	{dir: "java03", name: "a2a-java-sdk-client", binding: "JSONRPC 0.3", bindings: true},
	{dir: "java03", name: "a2a-java-sdk-client", binding: "HTTP+JSON 0.3", bindings: true},
	{dir: "java", name: "a2a-java-sdk-client", binding: "GRPC", bindings: true},
	{dir: "java", name: "a2a-java-sdk-client", binding: "JSONRPC", bindings: true},
	{dir: "java", name: "a2a-java-sdk-client", binding: "HTTP+JSON", bindings: true},
	{dir: "fasta2a", name: "fasta2a", binding: "JSONRPC", lacks: map[string]string{
		"question": "It begins a task for each message, also for one that names a task with `TASK_STATE_INPUT_REQUIRED`, which goes on waiting.",
	}},
}

// interruptID is the id of a question of Strands.
var interruptID = regexp.MustCompile(`"interruptId":\s*"([^"]*)"`)

// interruptResponse answers a question of Strands, which refuses texts.
func interruptResponse(question []byte) string {
	id := interruptID.FindSubmatch(question)
	if id == nil {
		return "no id"
	}
	return fmt.Sprintf(`{"interruptResponse": {"interruptId": %q, "response": "Brest"}}`, id[1])
}

func TestMain(m *testing.M) { os.Exit(interoprig.Main(m)) }

// The frameworks as clients. Cards leave gRPC out for those that do not use it: google-adk 2 refuses a
// card that names an address without a scheme ("Agent card RPC URL must use https, or http on a
// loopback host"), and that is how A2A writes those of gRPC.
func TestClients(t *testing.T) {
	all := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	team, err := os.ReadFile(interoprig.Team(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, bytes.Replace(team, []byte("\nserver:"), []byte("\nserver:\n  card: {interfaces: [JSONRPC, HTTP+JSON]}"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	http := interoprig.Serve(t, interoprig.BuildServer(t), file)
	for _, f := range frameworks {
		t.Run(f.dir+" "+f.name+" "+f.binding, func(t *testing.T) {
			c := interoprig.Column{Client: f.name, Version: pinned(t, f.dir, f.name), Binding: f.binding}
			if f.noClient != "" {
				t.Skip(f.noClient)
			}
			s := http
			if f.binding == "GRPC" {
				s = all
			}
			program, args := runner(t, f.dir, cmp.Or(f.script, f.dir))
			c.Script(t, program, append(append(args, s.URL), f.args()...)...)
		})
	}
}

// The frameworks' agents as members of a team.
func TestMembers(t *testing.T) {
	for _, f := range frameworks {
		t.Run(f.dir+" "+f.name+" "+f.binding, func(t *testing.T) {
			program, args := runner(t, f.dir, cmp.Or(f.script, f.dir))
			address := serve(t, program, append(args, f.args()...)...) + f.card
			version := "1.0"
			if strings.HasSuffix(f.binding, " 0.3") {
				version = "0.3"
			}
			interoprig.Column{Client: f.name, Version: pinned(t, f.dir, f.name), Binding: f.binding}.
				MemberAnswering(t, address, version, f.lacks, f.answer)
		})
	}
}

// serve runs a script that serves an agent, until the test ends, and returns its address.
func serve(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	c := exec.CommandContext(ctx, program, args...) //nolint:gosec // the repository's own script
	var said bytes.Buffer
	c.Stderr = &said
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	t.Cleanup(func() {
		defer cancel()
		_ = in.Close() // ends the script
		_, _ = io.Copy(io.Discard, lines)
		_ = c.Wait()
		if t.Failed() {
			t.Logf("the script said:\n%s", said.Bytes())
		}
	})
	for {
		line, err := lines.ReadString('\n')
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "ready "); ok {
			return at
		}
		if err != nil {
			t.Fatalf("the agent's server is not there: %v\n%s", err, said.Bytes())
		}
	}
}

// args are the arguments of a program that speaks several bindings.
func (f *framework) args() []string {
	if !f.bindings {
		return nil
	}
	binding, _, _ := strings.Cut(f.binding, " ")
	return []string{binding}
}

// runner returns the program for a folder, with the packages of dir, and its first arguments.
func runner(t *testing.T, dir, folder string) (program string, args []string) {
	t.Helper()
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	switch {
	case has("package.json"):
		return node(t, dir), []string{filepath.Join(folder, "script.mjs")}
	case has("pom.xml"):
		return java(t, dir)
	case has("Cargo.toml"):
		return cargo(t, dir, folder), nil
	}
	return python(t, dir), []string{filepath.Join(folder, "script.py")}
}

// java returns a Java with the arguments that run the script of a folder with its libraries.
func java(t *testing.T, dir string) (program string, args []string) {
	t.Helper()
	const hint = "install a JDK 17 or newer, and Maven; see https://maven.apache.org"
	found, maven := interoprig.Tool(t, "java", hint), interoprig.Tool(t, "mvn", hint)
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	into := interoprig.Repository(t, "bin", "night-clients", dir)
	install := exec.CommandContext(ctx, maven, "-q", "-B", "-f", filepath.Join(dir, "pom.xml"), "dependency:copy-dependencies", "-DoutputDirectory="+into) //nolint:gosec // an installer
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("installing %s: %v\n%s", dir, err, out)
	}
	return found, []string{"-cp", filepath.Join(into, "*"), filepath.Join(dir, "Script.java")}
}

// cargo builds a program of a folder, and returns it.
func cargo(t *testing.T, dir, program string) string {
	t.Helper()
	found := interoprig.Tool(t, "cargo", "install Rust 1.94 or newer, with cargo; see https://www.rust-lang.org")
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	into := interoprig.Repository(t, "bin", "night-clients", dir)
	build := exec.CommandContext(ctx, found, "build", "--quiet", "--locked", "--manifest-path", filepath.Join(dir, "Cargo.toml"), "--target-dir", into) //nolint:gosec // the repository's own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", dir, err, out)
	}
	return filepath.Join(into, "debug", program)
}

// node returns a Node.js, after it has installed the packages of a folder there.
func node(t *testing.T, dir string) string {
	t.Helper()
	const hint = "install Node.js 20 or newer, with npm; see https://nodejs.org"
	found, npm := interoprig.Tool(t, "node", hint), interoprig.Tool(t, "npm", hint)
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, npm, "--prefix", dir, "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil { //nolint:gosec // an installer
		t.Fatalf("installing %s: %v\n%s", dir, err, out)
	}
	return found
}

// pinned is the version of the framework, which may be one before a release.
func pinned(t *testing.T, dir, name string) string {
	t.Helper()
	for file, as := range map[string]string{"package.json": `"` + name + `"`, "Cargo.toml": name, "pom.xml": name} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return interoprig.Pinned(t, filepath.Join(dir, file), as)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		requirement, _, _ := strings.Cut(line, " ") // before its hashes
		pkg, version, ok := strings.Cut(requirement, "==")
		if base, _, _ := strings.Cut(pkg, "["); ok && base == name {
			return version
		}
	}
	t.Fatalf("%s/requirements.txt pins no %s", dir, name)
	return ""
}

// python returns a Python that has the packages of a folder. All that they need is pinned, so
// nothing is resolved.
func python(t *testing.T, dir string) string {
	t.Helper()
	const hint = "install Python 3.11 or newer, with venv and pip (python3, python3-venv); see https://www.python.org"
	found := interoprig.Tool(t, "python3", hint)
	lock, err := os.ReadFile(filepath.Join(dir, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	env := interoprig.Repository(t, "bin", "night-clients", dir)
	installed, done := filepath.Join(env, "bin", "python"), filepath.Join(env, "installed.txt")
	if have, err := os.ReadFile(done); err == nil && bytes.Equal(have, lock) { //nolint:gosec // written below
		return installed
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	for _, c := range [][]string{
		{found, "-m", "venv", "--clear", env},
		{installed, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", filepath.Join(dir, "requirements.txt")},
	} {
		if out, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil { //nolint:gosec // installers
			t.Fatalf("installing %s: %v\n%s", dir, err, out)
		}
	}
	if err := os.WriteFile(done, lock, 0o600); err != nil {
		t.Fatal(err)
	}
	return installed
}
