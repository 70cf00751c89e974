package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/interoprig"
)

// cyclesVariable is the number of calls of TestS_51_ApprovedCallsOfAnotherServer that are approved.
const cyclesVariable = "INTEROP_APPROVED_CALLS"

// approvedFile has an agent whose model follows a script, and the file system server of the MCP project.
// Its edit_file is neither safe nor idempotent.
const approvedFile = `version: v1
models: {script: {provider: scripted, file: calls.yaml}}
tools: {files: {mcp: {command: [%q, %q, %q], allow: [edit_file]}, approve: {}}}
agents: {clerk: {description: Appends., model: script, tools: [files]}}
teams: {desk: {workflow: {steps: [{id: only, agent: clerk}]}}}
`

// TestS_51_ApprovedCallsOfAnotherServer kills the server with SIGKILL at random moments around calls
// of an MCP server of others that people approve. Each approved call appends its line to a file once,
// or not at all if its outcome is asked about; a rejected one never does; and a line that is there is
// what was approved, byte for byte.
func TestS_51_ApprovedCallsOfAnotherServer(t *testing.T) {
	node := interoprig.Node(t)
	program := interoprig.BuildServer(t)
	entry, err := filepath.Abs(filepath.Join("js", "node_modules", "@modelcontextprotocol", "server-filesystem", "dist", "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	cycles := 5
	if n, err := strconv.Atoi(os.Getenv(cyclesVariable)); err == nil {
		cycles = n
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	ledger := filepath.Join(data, "ledger.txt")
	r := &approvals{t: t, program: program, dir: dir, lines: make([]string, cycles+1)}
	var script strings.Builder
	script.WriteString("agents:\n  clerk:\n")
	for i := range r.lines {
		r.lines[i] = fmt.Sprintf(`line-%d <a> & "b" 'c' ü 木 \ $& `, i) + strconv.FormatUint(rand.Uint64(), 36)
		arguments, err := json.Marshal(map[string]any{"path": ledger, "edits": []any{map[string]any{"oldText": "end of the ledger\n", "newText": r.lines[i] + "\nend of the ledger\n"}}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&script, "    - {when: 'turn == 1 && input == \"%d\"', tool_calls: [{name: edit_file, arguments: %s}]}\n", i, arguments)
	}
	script.WriteString("    - {text: done}\n")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		ledger: "end of the ledger\n", filepath.Join(dir, "calls.yaml"): script.String(), filepath.Join(dir, "team.yaml"): fmt.Sprintf(approvedFile, node, entry, data),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	done := 0
	for i := range cycles {
		id, asked := r.begin(i)
		if !strings.Contains(asked, quoted(r.lines[i])) {
			t.Errorf("call %d: asked about %s, want the line %s", i, asked, quoted(r.lines[i]))
		}
		switch rand.IntN(3) {
		case 0: // before the answer
			r.restart()
			r.answer(id, i, "approve")
		case 1: // around the answer
			go kill(r.server, rand.N(30*time.Millisecond))
			_, _ = r.send(id, fmt.Sprintf("approve-%d", i), "approve") // it may be lost
			r.restart()
		case 2: // after it
			r.answer(id, i, "approve")
			kill(r.server, rand.N(60*time.Millisecond))
			r.restart()
		}
		unknown := r.finish(id, i, "approve")
		n := r.count(ledger, i)
		if n > 1 || n == 0 && !unknown {
			t.Errorf("call %d was made %d times; its outcome was asked about: %v", i, n, unknown)
		}
		done += n
	}
	id, _ := r.begin(cycles)
	r.answer(id, cycles, "reject: too much")
	r.restart()
	r.finish(id, cycles, "reject: too much")
	if n := r.count(ledger, cycles); n != 0 {
		t.Errorf("a rejected call was made %d times", n)
	}
	for i := range cycles { // a late call would show now
		if n := r.count(ledger, i); n > 1 {
			t.Errorf("call %d was made %d times", i, n)
		}
	}
	t.Logf("%d of %d approved calls had their effect, around %d kills", done, cycles, r.kills)
}

// quoted returns a line as JSON has it, without the quotes.
func quoted(line string) string {
	b, _ := json.Marshal(line)
	return strings.Trim(string(b), `"`)
}

// approvals is a server that is killed and restarted with the same store.
type approvals struct {
	t       *testing.T
	program string
	dir     string
	lines   []string
	server  interoprig.Server
	kills   int
}

func (r *approvals) start() {
	r.server = interoprig.Start(r.t, r.program, "serve", "-c", filepath.Join(r.dir, "team.yaml"), "--store=sqlite:"+filepath.Join(r.dir, "team.db"), "--log-level=error")
}

// kill kills a server after a time.
func kill(s interoprig.Server, after time.Duration) {
	<-time.After(after)
	s.Kill()
}

func (r *approvals) restart() {
	r.server.Kill()
	r.kills++
	r.start()
}

// task is the part of a task that the test reads.
type task struct {
	ID     string
	Status struct {
		State   string
		Message struct{ Parts []struct{ Text string } }
	}
	Metadata map[string]struct {
		Questions []struct{ Approval struct{ Arguments string } }
	}
	Artifacts []struct{ Parts []struct{ Text string } }
}

// call makes a call over REST.
func (r *approvals) call(method, path string, body any) (task, error) {
	b, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.server.URL+"/desk/"+path, bytes.NewReader(b))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}, "A2a-Extensions": {teamRun}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return task{}, err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d: %s", resp.StatusCode, said)
	}
	var got struct {
		Task task
	}
	if method == http.MethodGet && err == nil {
		err = json.Unmarshal(said, &got.Task)
	} else if err == nil {
		err = json.Unmarshal(said, &got)
	}
	return got.Task, err
}

// send sends a message, to a task if id is set.
func (r *approvals) send(id, message, text string) (task, error) {
	m := map[string]any{"messageId": message, "role": "ROLE_USER", "parts": []any{map[string]any{"text": text}}}
	if id != "" {
		m["taskId"] = id
	}
	return r.call(http.MethodPost, "message:send", map[string]any{"message": m, "configuration": map[string]any{"returnImmediately": id != ""}})
}

// begin begins the task of a call, and returns its id and the arguments that people are asked about.
func (r *approvals) begin(i int) (id, asked string) {
	r.t.Helper()
	got, err := r.send("", fmt.Sprintf("begin-%d", i), strconv.Itoa(i))
	if err != nil || got.Status.State != "TASK_STATE_INPUT_REQUIRED" || len(got.Metadata[teamRun].Questions) != 1 {
		r.t.Fatal(got, err)
	}
	return got.ID, got.Metadata[teamRun].Questions[0].Approval.Arguments
}

// answer answers the question of a task.
func (r *approvals) answer(id string, i int, text string) {
	r.t.Helper()
	message := fmt.Sprintf("%s-%d", strings.Fields(strings.ReplaceAll(text, ":", " "))[0], i) // the same if it is sent again
	if _, err := r.send(id, message, text); err != nil && !strings.Contains(err.Error(), "QUESTION_ANSWERED") {
		r.t.Fatal(err)
	}
}

// finish waits for the end of a task. It sends the decision again if that was lost, and if people are
// asked what became of the call, it says that it failed; unknown reports that.
func (r *approvals) finish(id string, i int, decision string) (unknown bool) {
	r.t.Helper()
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); <-time.After(20 * time.Millisecond) {
		got, err := r.call(http.MethodGet, "tasks/"+id, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		text := fmt.Sprint(got.Status.Message.Parts)
		switch {
		case got.Status.State == "TASK_STATE_COMPLETED":
			return unknown
		case got.Status.State != "TASK_STATE_INPUT_REQUIRED":
		case strings.Contains(text, "What became of it?"):
			if _, err := r.send(id, fmt.Sprintf("outcome-%d", i), "fail"); err == nil {
				unknown = true
			}
		case strings.Contains(text, "wants to call the tool"):
			r.answer(id, i, decision)
		}
	}
	r.t.Fatalf("task %s of call %d does not end", id, i)
	return false
}

// count returns how often the line of a call is in the file.
func (r *approvals) count(file string, i int) int {
	b, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for line := range strings.SplitSeq(string(b), "\n") {
		if line == r.lines[i] {
			n++
		} else if strings.HasPrefix(line, fmt.Sprintf("line-%d ", i)) {
			r.t.Errorf("the call wrote %q, approved was %q", line, r.lines[i])
		}
	}
	return n
}
