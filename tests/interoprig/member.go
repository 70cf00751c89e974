package interoprig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// MemberSteps are the steps of an agent that is the member of a team, in this order. An
// agent echoes in two pieces, "far: " and the text it received. For "ask" it asks
// "Which city?", and then says "far: you said " and the answer. For "fail" it fails
// with "It is broken.". For "wait" it waits for its cancel.
var MemberSteps = []string{
	"send",     // the task of the team, with the member's answer
	"stream",   // the same as a stream, the member's answer in pieces
	"question", // of the member, passed to the team's client, and the answer to it
	"cancel",   // of the team, confirmed by the member's server
	"failure",  // of the member, reported by the team
}

// AgentService is the binding of an agent that implements team.v1.AgentService, not A2A. Its address is HOST:PORT.
const AgentService = "AgentService"

// memberTime is the timeout of each step.
const memberTime = 30 * time.Second

// Agent starts a program that serves an agent and returns its address. It stops the
// program when the test ends. The program prints "ready" and the address.
func Agent(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, program, args...) //nolint:gosec // the repository's own script
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, out)
		_ = c.Wait() // the error says only that it was killed
		if t.Failed() {
			t.Logf("the agent's server wrote:\n%s", log.Bytes())
		}
	})
	late := time.AfterFunc(readyTime, cancel)
	defer late.Stop()
	var at string
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, "ready %s", &at); err != nil || scanErr != nil {
		t.Fatalf("the agent's server printed %q: %v", line, err)
	}
	return at
}

const memberTeam = `version: v1
agents:
  far: {%s}
teams:
  relay:
    limits: {retry: {attempts: 1}}
    members: [{agent: far, stream_inner: true, inner_text: true}]
    workflow: {steps: [{id: pass, agent: far}]}
`

// Member runs MemberSteps with the agent at an address as the member of a team. version
// is the A2A version of the calls.
func (c Column) Member(t *testing.T, address, version string) {
	t.Helper()
	c.MemberLacking(t, address, version, nil)
}

// MemberLacking is Member for an agent that does not support some of the steps: lacks
// maps each to the reason, with the server's response. A step in lacks that succeeds is
// an error.
func (c Column) MemberLacking(t *testing.T, address, version string, lacks map[string]string) {
	t.Helper()
	c.MemberAnswering(t, address, version, lacks, nil)
}

// MemberAnswering is MemberLacking for an agent that takes no text as an answer: answer returns what
// a person writes instead, made of the status message with the question.
func (c Column) MemberAnswering(t *testing.T, address, version string, lacks map[string]string, answer func(question []byte) string) {
	t.Helper()
	c.Role = "member"
	file := filepath.Join(t.TempDir(), "team.yaml")
	binding, _, _ := strings.Cut(strings.Replace(c.Binding, "HTTP+JSON", "REST", 1), " ") // the name of the binding in files
	far := fmt.Sprintf("a2a: {card: %q, binding: %q, version: %q}", address, binding, version)
	if c.Binding == AgentService {
		far = fmt.Sprintf("grpc: %q", address)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, memberTeam, far), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &member{at: Serve(t, BuildServer(t), file).URL + "/relay", answer: answer}
	steps := map[string]func(context.Context) error{"send": m.send, "stream": m.stream, "question": m.question, "cancel": m.cancel, "failure": m.failure}
	for _, step := range MemberSteps {
		t.Run(step, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), memberTime)
			defer stop()
			err, why := steps[step](ctx), lacks[step]
			switch {
			case why == "":
				c.Records(t, step)
				if err != nil {
					t.Error(err)
				}
			case err == nil:
				t.Errorf("it succeeds now; take the reason out: %s", why)
			default:
				t.Log(err)
				c.Lacks(t, step, why)
			}
		})
	}
}

// member calls the team over REST.
type member struct {
	at     string
	n      int                          // number of messages sent
	answer func(question []byte) string // nil for a text
}

// task holds the fields of a task that the tests read.
type task struct {
	ID     string
	Status struct {
		State   string
		Message statusMessage
	}
	Artifacts []artifact
	Metadata  map[string]struct {
		Receipt struct {
			Entries []struct {
				RemoteTaskID string `json:"remoteTaskId"`
				Confirmed    bool
			}
		}
	}
}

// statusMessage is the message of a status, with its JSON.
type statusMessage struct {
	Parts []part
	raw   []byte
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *statusMessage) UnmarshalJSON(b []byte) error {
	var fields struct{ Parts []part }
	err := json.Unmarshal(b, &fields)
	m.Parts, m.raw = fields.Parts, bytes.Clone(b)
	return err
}

type artifact struct {
	Name  string
	Parts []part
}

type part struct {
	Text string `json:"text"`
}

func join(parts []part) string {
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(p.Text)
	}
	return all.String()
}

// result returns the text of a task's answer.
func (k task) result() string {
	for _, a := range k.Artifacts {
		if a.Name == "result" {
			return join(a.Parts)
		}
	}
	return ""
}

// request calls the team and returns the response.
func (m *member) request(ctx context.Context, method, path string, body any) ([]byte, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, m.at+path, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("A2A-Version", "1.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, got), err)
	}
	return got, nil
}

// message returns the request for a send of a text, to a task if there is one.
func (m *member) message(text, task string, wait bool) map[string]any {
	m.n++
	message := map[string]any{"messageId": fmt.Sprintf("m%d", m.n), "role": "ROLE_USER", "parts": []part{{text}}}
	if task != "" {
		message["taskId"] = task
	}
	return map[string]any{"message": message, "configuration": map[string]any{"returnImmediately": !wait}}
}

// say sends a text and returns the task in its state at that time.
func (m *member) say(ctx context.Context, text, to string, wait bool) (task, error) {
	var answer struct{ Task task }
	got, err := m.request(ctx, http.MethodPost, "/message:send", m.message(text, to, wait))
	if err == nil {
		err = json.Unmarshal(got, &answer)
	}
	return answer.Task, err
}

// ends sends a text and checks the final state of the task.
func (m *member) ends(ctx context.Context, text, to, result string) error {
	k, err := m.say(ctx, text, to, true)
	if err == nil && (k.Status.State != "TASK_STATE_COMPLETED" || k.result() != result) {
		err = fmt.Errorf("%w, want it completed, with the result %q", k.unexpected(), result)
	}
	return err
}

// unexpected describes a task as an error.
func (k task) unexpected() error {
	return fmt.Errorf("task is %s, with the result %q and the message %q", k.Status.State, k.result(), join(k.Status.Message.Parts))
}

func (m *member) send(ctx context.Context) error { return m.ends(ctx, "Hello", "", "far: Hello") }

func (m *member) stream(ctx context.Context) error {
	got, err := m.request(ctx, http.MethodPost, "/message:stream", m.message("Hello", "", true))
	if err != nil {
		return err
	}
	piece, last := false, ""
	for line := range bytes.Lines(got) {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		var ev struct {
			ArtifactUpdate struct{ Artifact artifact }
			StatusUpdate   struct{ Status struct{ State string } }
		}
		if err := json.Unmarshal(data, &ev); err != nil {
			return err
		}
		if a := ev.ArtifactUpdate.Artifact; a.Name == "relay/far" && join(a.Parts) == "far: " {
			piece = true
		}
		last = ev.StatusUpdate.Status.State
	}
	if !piece || last != "TASK_STATE_COMPLETED" {
		return fmt.Errorf("the first piece of the member's answer came alone: %t; the stream ended with %q:\n%s", piece, last, got)
	}
	return nil
}

func (m *member) question(ctx context.Context) error {
	asked, err := m.say(ctx, "ask", "", true)
	if err != nil {
		return err
	}
	text := join(asked.Status.Message.Parts)
	if asked.Status.State != "TASK_STATE_INPUT_REQUIRED" || text != "Which city?" && (m.answer == nil || !strings.Contains(text, "Which city?")) {
		return fmt.Errorf("%w, want the member's question", asked.unexpected())
	}
	answer := "Brest"
	if m.answer != nil {
		answer = m.answer(asked.Status.Message.raw)
	}
	return m.ends(ctx, answer, asked.ID, "far: you said Brest")
}

func (m *member) cancel(ctx context.Context) error {
	begun, err := m.say(ctx, "wait", "", false)
	if err == nil {
		err = m.working(ctx, begun.ID)
	}
	if err != nil {
		return err
	}
	got, err := m.request(ctx, http.MethodPost, "/tasks/"+begun.ID+":cancel", struct{}{})
	if err != nil {
		return err
	}
	var ended task
	if err := json.Unmarshal(got, &ended); err != nil {
		return err
	}
	confirmed := false
	for _, run := range ended.Metadata {
		for _, e := range run.Receipt.Entries {
			confirmed = confirmed || e.RemoteTaskID != "" && e.Confirmed
		}
	}
	if ended.Status.State != "TASK_STATE_CANCELED" || !confirmed {
		return fmt.Errorf("task is %s, confirmed by the member's server: %t; metadata %+v", ended.Status.State, confirmed, ended.Metadata)
	}
	return nil
}

// working waits until the member's server has begun a task, as shown by the monitor.
func (m *member) working(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(m.at, "/relay")+"/team/v1/monitor/tasks/"+id+":watch", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var seen strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		seen.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `"bound"`) {
			return nil
		}
	}
	return fmt.Errorf("the member did not begin:\n%s", seen.String())
}

func (m *member) failure(ctx context.Context) error {
	failed, err := m.say(ctx, "fail", "", true)
	if err == nil && (failed.Status.State != "TASK_STATE_FAILED" || !strings.Contains(join(failed.Status.Message.Parts), "It is broken.")) {
		err = fmt.Errorf("%w, want the member's failure", failed.unexpected())
	}
	return err
}
