package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// response is what tests read of a response.
type response struct {
	ID, Object, Status, Model string
	Created                   int64          `json:"created_at"`
	TaskID                    string         `json:"task_id"`
	Previous                  string         `json:"previous_response_id"`
	Metadata                  map[string]any `json:"metadata"`
	Background                bool
	Incomplete                struct{ Reason string } `json:"incomplete_details"`
	Error                     struct{ Code, Message, Reason string }
	Output                    []struct {
		ID, Type, Role, Status string
		Content                []struct {
			Type, Text  string
			Annotations []any
		}
	}
	Usage struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// text returns the text of a response.
func (r *response) text() string {
	if len(r.Output) == 0 {
		return ""
	}
	return r.Output[0].Content[0].Text
}

// respond calls a path of responses and returns the response in the answer.
func (d *door) respond(as rig.Target, method, path, body string, headers ...string) *response {
	d.t.Helper()
	resp := d.begin(d.t.Context(), as, method, "/v1/responses"+path, body, headers...)
	defer func() { _ = resp.Body.Close() }()
	r := &response{}
	if err := json.NewDecoder(resp.Body).Decode(r); err != nil || resp.StatusCode != http.StatusOK || r.ID == "" {
		d.t.Fatalf("%s %s: %d %+v, %v", method, path, resp.StatusCode, r, err)
	}
	return r
}

// ends returns a response when it has ended.
func (d *door) ends(id string) *response {
	d.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if r := d.respond(d.Target, http.MethodGet, "/"+id, ""); r.Status != "queued" && r.Status != "in_progress" {
			return r
		}
	}
	d.t.Fatalf("%s does not end", id)
	return nil
}

// sse is an event of a stream of a response.
type sse struct {
	data   string // the JSON
	Type   string
	Number int64 `json:"sequence_number"`
	Delta  string
	Error  struct{ Code string }
	Of     response `json:"response"`
}

// sseOf returns the events of a stream.
func sseOf(t *testing.T, resp *http.Response) (list []sse) {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	kind := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		e := sse{data: data}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != kind {
			t.Fatalf("%s of kind %s: %v", data, kind, err)
		}
		list = append(list, e)
	}
	return list
}

// TestResponses: a response has all fields that some client needs, with what the run has spent.
func TestResponses(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for name, input := range map[string]string{
		"text": `"hello"`, "messages": `[{"role": "developer", "content": "Be brief."}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}]`,
		"other items": `[{"type": "reasoning", "summary": []}, {"type": "function_call_output", "call_id": "x", "output": "y"}, {"role": "user", "content": "hello"}]`,
	} {
		r := d.respond(d.Target, http.MethodPost, "", `{"model": "team/writer", "input": `+input+`, "instructions": "Be kind.", "metadata": {"a": "b"}, "tools": [{"type": "namespace"}], "reasoning": {"x": 1}}`)
		if r.Object != "response" || r.Status != "completed" || r.Model != "team/writer" || r.Created == 0 || r.ID != "resp_"+r.TaskID || r.Metadata["a"] != "b" {
			t.Errorf("%s: %+v", name, r)
		}
		if len(r.Output) != 1 || r.Output[0].ID == "" || r.Output[0].Type != "message" || r.Output[0].Role != "assistant" || r.Output[0].Content[0].Annotations == nil || !strings.HasSuffix(r.text(), "hello") {
			t.Errorf("%s: output %+v", name, r.Output)
		}
		if r.Usage.Input != 7 || r.Usage.Output != 3 || r.Usage.Total != 10 {
			t.Errorf("%s: usage %+v", name, r.Usage)
		}
		if again := d.respond(d.Target, http.MethodGet, "/"+r.ID, ""); fmt.Sprint(again) != fmt.Sprint(r) {
			t.Errorf("%s: retrieved %+v, was %+v", name, again, r)
		}
	}
	if got := fmt.Sprint(d.llm.Requests("small")[0].Messages); !strings.Contains(got, "Be kind.") {
		t.Errorf("the model got %s", got)
	}
}

// TestResponses_Stream: a stream has the events that some client needs, and it has the same ones, from any on, when it is
// retrieved, also from the next server.
func TestResponses_Stream(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Script("small", fakellm.Turn{Text: "one twö three four", Chunks: 6})
		d := &door{whole.Open(t, at, file, llm), t, llm}
		all := sseOf(t, d.begin(t.Context(), d.Target, http.MethodPost, "/v1/responses", `{"model": "writer", "input": "hello", "stream": true}`))
		var kinds, text []string
		for i, e := range all {
			if len(kinds) == 0 || kinds[len(kinds)-1] != e.Type {
				kinds = append(kinds, e.Type)
			}
			text = append(text, e.Delta)
			if i > 0 && e.Number <= all[i-1].Number {
				t.Errorf("%s after %s", e.data, all[i-1].data)
			}
		}
		want := "response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta response.output_text.done response.content_part.done response.output_item.done response.completed"
		if got := strings.Join(kinds, " "); got != want || all[0].Number != 0 {
			t.Fatalf("%s", got)
		}
		last := all[len(all)-1].Of
		if strings.Join(text, "") != "one twö three four" || last.text() != "one twö three four" || last.Status != "completed" || last.Usage.Total == 0 || len(text) < 10 {
			t.Errorf("%q, %+v", text, last)
		}
		if at.Durable {
			d.Stop()
			d = &door{whole.Open(t, at, file, llm), t, llm}
		}
		for i, from := range all {
			got := sseOf(t, d.begin(t.Context(), d.Target, http.MethodGet, fmt.Sprintf("/v1/responses/%s?starting_after=%d&stream=true", last.ID, from.Number), ""))
			if !slices.EqualFunc(got, all[i+1:], func(a, b sse) bool { return a.data == b.data }) {
				t.Fatalf("after %d:\n%v, want\n%v", from.Number, got, all[i+1:])
			}
		}
		if got := sseOf(t, d.begin(t.Context(), d.Target, http.MethodGet, "/v1/responses/"+last.ID+"?stream=true", "")); len(got) != len(all) {
			t.Errorf("from the first on %v", got)
		}
		if n := len(llm.Requests()); n != 1 {
			t.Errorf("%d calls of the model", n)
		}
	})
}

// TestResponses_Background: a response in the background is there at once, and goes on until it ends or is canceled.
func TestResponses_Background(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	gate := make(chan struct{})
	d.llm.Answer("small", func(*fakellm.Request) fakellm.Turn { <-gate; return fakellm.Turn{Text: "done"} })
	const body = `{"model": "writer", "input": "slow", "background": true}`
	one := d.respond(d.Target, http.MethodPost, "", body)
	if one.Status != "queued" && one.Status != "in_progress" || len(one.Output) != 0 || !one.Background {
		t.Errorf("%+v", one)
	}
	if again := d.respond(d.Target, http.MethodPost, "", body, "X-Stainless-Retry-Count", "1"); again.ID != one.ID {
		t.Errorf("posted again it is %s, was %s", again.ID, one.ID)
	}
	two := d.respond(d.Target, http.MethodPost, "", body)
	for range 2 { // the second one changes nothing
		if r := d.respond(d.Target, http.MethodPost, "/"+two.ID+"/cancel", ""); r.Status != "cancelled" || r.ID != two.ID {
			t.Errorf("canceled it is %+v", r)
		}
	}
	stream := d.begin(t.Context(), d.Target, http.MethodPost, "/v1/responses", strings.Replace(body, "}", `, "stream": true}`, 1))
	close(gate)
	if all := sseOf(t, stream); len(all) < 8 || all[len(all)-1].Of.text() != "done" {
		t.Errorf("%v", all)
	}
	if r := d.ends(one.ID); r.Status != "completed" || r.text() != "done" || !r.Background {
		t.Errorf("%+v", r)
	}
	if r := d.respond(d.Target, http.MethodPost, "/"+one.ID+"/cancel", ""); r.Status != "completed" {
		t.Errorf("canceled after its end it is %+v", r)
	}
	if n := d.tasks(d.Target); n != 3 {
		t.Errorf("%d tasks", n)
	}
}

// TestResponses_Previous: a response that follows another one knows what was said up to it, whatever followed it besides.
func TestResponses_Previous(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	follow := func(text, previous, more string) *response {
		return d.respond(d.Target, http.MethodPost, "", fmt.Sprintf(`{"model": "writer", "input": %s, "previous_response_id": %q%s}`, text, previous, more))
	}
	one := d.respond(d.Target, http.MethodPost, "", `{"model": "writer", "input": "one"}`)
	d.respond(d.Target, http.MethodPost, "", `{"model": "writer", "input": "one"}`) // another one that begins alike
	two := follow(`"two"`, one.ID, "")
	three := follow(`[{"role": "user", "content": "one"}, {"role": "assistant", "content": "1: one"}, {"role": "user", "content": "three"}]`, two.ID, "")
	fork := follow(`"other"`, one.ID, "")
	for _, c := range []struct{ r, want string }{{two.text(), "3: two"}, {three.text(), "5: three"}, {fork.text(), "3: other"}} {
		if c.r != c.want {
			t.Errorf("got %q, want %q", c.r, c.want)
		}
	}
	if two.Previous != one.ID {
		t.Errorf("%+v", two)
	}
	last := d.llm.Requests("small")
	if got := fmt.Sprint(last[3].Messages); !strings.Contains(got, "two") || strings.Index(got, "one") > strings.Index(got, "two") {
		t.Errorf("the model got %s", got)
	}
	for _, as := range []rig.Target{d.Target, d.As("acme", "bob"), d.As("other", "eve")} {
		id := one.ID
		if as.Key == d.Key {
			id = "resp_none"
		}
		resp, body := d.post(as, "/v1/responses", fmt.Sprintf(`{"model": "writer", "input": "x", "previous_response_id": %q}`, id))
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"param":"previous_response_id"`) {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
}

// TestResponses_Questions: a question is the text of a response, and the response that follows it answers, with what the task
// says then. Both can be retrieved as they were.
func TestResponses_Questions(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"", `, "stream": true`, `, "background": true`} {
		d := open(t, file)
		ask := func(text, previous, retry string) *response {
			d.t.Helper()
			body := fmt.Sprintf(`{"model": "asker", "input": %q%s}`, text, more)
			if previous != "" {
				body = strings.Replace(body, "{", fmt.Sprintf(`{"previous_response_id": %q, `, previous), 1)
			}
			if strings.Contains(more, "stream") {
				all := sseOf(t, d.begin(t.Context(), d.Target, http.MethodPost, "/v1/responses", body, "X-Stainless-Retry-Count", retry))
				if retrieved := d.respond(d.Target, http.MethodGet, "/"+all[0].Of.ID, ""); fmt.Sprint(*retrieved) != fmt.Sprint(all[len(all)-1].Of) {
					t.Errorf("%+v, retrieved %+v", all[len(all)-1].Of, retrieved)
				}
				return &all[len(all)-1].Of
			}
			r := d.respond(d.Target, http.MethodPost, "", body, "X-Stainless-Retry-Count", retry)
			return d.ends(r.ID)
		}
		one := ask("paint", "", "0")
		two := ask("red", one.ID, "0")
		three := ask("yes", two.ID, "0")
		again := ask("yes", two.ID, "1")
		if one.text() != "Which colour?\n\nOptions: red, green" || two.text() != "Sure?" || !strings.HasSuffix(three.text(), "painted") || strings.Contains(three.text(), "colour") {
			t.Errorf("%s: %q, %q, %q", more, one.text(), two.text(), three.text())
		}
		if again.ID != three.ID || again.text() != three.text() {
			t.Errorf("%s: posted again it is %+v, was %+v", more, again, three)
		}
		fork := ask("green", one.ID, "0") // the question has its answer: this is a task of its own
		if fork.text() != one.text() || strings.HasPrefix(fork.ID, one.ID) {
			t.Errorf("%s: %s %q follows the first question", more, fork.ID, fork.text())
		}
		for _, was := range []*response{one, two, three} {
			if now := d.respond(d.Target, http.MethodGet, "/"+was.ID, ""); fmt.Sprint(now) != fmt.Sprint(was) {
				t.Errorf("%s: %+v was %+v", more, now, was)
			}
			all := sseOf(t, d.begin(t.Context(), d.Target, http.MethodGet, "/v1/responses/"+was.ID+"?stream=true", ""))
			if got := all[len(all)-1].Of; got.text() != was.text() || got.ID != was.ID {
				t.Errorf("%s: the stream ends with %+v, was %+v", more, got, was)
			}
		}
		if one.ID == two.ID || two.ID == three.ID || one.TaskID != three.TaskID || d.tasks(d.Target) != 2 { // one of them is the fork
			t.Errorf("%s: %s %s %s, %d tasks", more, one.ID, two.ID, three.ID, d.tasks(d.Target))
		}
	}
}

// TestResponses_PostedAgain: a response whose connection is dropped is the same when it is posted again.
func TestResponses_PostedAgain(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"model": "writer", "input": "slow"}`, `{"model": "writer", "input": "slow", "stream": true}`} {
		d := open(t, file)
		release := make(chan struct{})
		d.llm.Answer("small", func(*fakellm.Request) fakellm.Turn { <-release; return fakellm.Turn{Text: "done"} })
		d.droppedAt("/v1/responses", body)
		close(release)
		if resp, got := d.post(d.Target, "/v1/responses", body); resp.StatusCode != http.StatusOK || !strings.Contains(got, `"text":"done"`) {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
		if n := d.tasks(d.Target); n != 1 || len(d.llm.Requests("small")) != 1 {
			t.Errorf("%d tasks, %d calls of the model", n, len(d.llm.Requests("small")))
		}
	}
}

// TestResponses_Refused: no client repeats what is refused, before the first byte and after it.
func TestResponses_Refused(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	for name, c := range map[string]struct {
		body       string
		code       int
		text, kind string
	}{
		"no model":      {`{"input": "x"}`, 400, "model is required", "INVALID_REQUEST"},
		"no input":      {`{"model": "writer"}`, 400, "input must have at least one message", "INVALID_REQUEST"},
		"no user":       {`{"model": "writer", "input": [{"role": "assistant", "content": "x"}]}`, 400, "input must end with", "INVALID_REQUEST"},
		"a number":      {`{"model": "writer", "input": 3}`, 400, "input must be a text or a list", "INVALID_REQUEST"},
		"a file":        {`{"model": "writer", "input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}`, 400, "file_data", "INVALID_REQUEST"},
		"unknown model": {`{"model": "none", "input": "x"}`, 404, "none", "model_not_found"},
		"failed":        {`{"model": "broken", "input": "x"}`, 400, "max_tokens", "BUDGET_EXCEEDED"},
	} {
		for _, more := range []string{"", `, "stream": true`} {
			resp, b := d.post(d.Target, "/v1/responses", strings.TrimSuffix(c.body, "}")+more+"}")
			var got completion
			_ = json.Unmarshal([]byte(b), &got)
			if resp.StatusCode != c.code || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(got.Error.Message, c.text) || got.Error.Code != c.kind {
				t.Errorf("%s%s: %d %v %s", name, more, resp.StatusCode, resp.Header, b)
			}
		}
	}
	r := d.ends(d.respond(d.Target, http.MethodPost, "", `{"model": "broken", "input": "y", "background": true}`).ID)
	if r.Status != "failed" || r.Error.Code != "insufficient_quota" || r.Error.Reason != "BUDGET_EXCEEDED" || r.Error.Message == "" {
		t.Errorf("%+v", r)
	}
	all := sseOf(t, d.begin(t.Context(), d.Target, http.MethodGet, "/v1/responses/"+r.ID+"?stream=true", ""))
	if last := all[len(all)-1]; last.Type != "response.failed" || last.Of.Error.Code != "insufficient_quota" {
		t.Errorf("%v", all)
	}
	for _, path := range []string{"/v1/responses/none", "/v1/responses/resp_none", "/v1/responses/" + r.ID + "_7", "/v1/responses/" + r.ID + "?stream=true&starting_after=x"} {
		want := http.StatusNotFound
		if strings.Contains(path, "starting_after") {
			want = http.StatusBadRequest
		}
		resp := d.begin(t.Context(), d.Target, http.MethodGet, path, "")
		if _ = resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// TestResponses_Foreign: a response of another caller does not exist, for callers of the same account and of another one.
func TestResponses_Foreign(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	one := d.respond(d.Target, http.MethodPost, "", `{"model": "asker", "input": "paint"}`)
	for _, other := range []rig.Target{d.As("acme", "bob"), d.As("other", "eve")} {
		for _, c := range []struct{ method, path string }{{http.MethodGet, ""}, {http.MethodGet, "?stream=true"}, {http.MethodPost, "/cancel"}} {
			resp := d.begin(t.Context(), other, c.method, "/v1/responses/"+one.ID+c.path, "")
			if _ = resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: %d", c.method, c.path, resp.StatusCode)
			}
		}
	}
	if now := d.respond(d.Target, http.MethodGet, "/"+one.ID, ""); now.Status != "completed" {
		t.Errorf("%+v", now)
	}
}

// TestCutAnswers: clients read from an answer that it was cut, or withheld by a filter, whether the agent accepts that or fails
// by it. Without a text there is nothing to give, and the call fails.
func TestCutAnswers(t *testing.T) {
	t.Parallel()
	d := open(t, strings.Replace(file, "memory: false", "on_truncated: accept", 1))
	for _, c := range []struct{ model, finish, text, chat, reason string }{
		{"forgetful", "length", "half", "length", "max_output_tokens"}, {"writer", "length", "half", "length", "max_output_tokens"},
		{"writer", "content_filter", "half", "content_filter", "content_filter"}, {"writer", "stop", "all", "stop", ""},
	} {
		d.llm.Answer("small", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: c.text, Finish: c.finish} })
		_, body := d.post(d.Target, "/v1/chat/completions", chat(c.model, "", "user:hello"))
		var plain completion
		if err := json.Unmarshal([]byte(body), &plain); err != nil || len(plain.Choices) != 1 || *plain.Choices[0].Finish != c.chat || !strings.Contains(plain.Choices[0].Message.Content, c.text) {
			t.Errorf("%v: %s", c, body)
		}
		list, _ := events(t, d.begin(t.Context(), d.Target, http.MethodPost, "/v1/chat/completions", chat(c.model, `, "stream": true`, "user:hello")))
		if end := list[len(list)-1]; len(end.Choices) != 1 || end.Choices[0].Finish == nil || *end.Choices[0].Finish != c.chat {
			t.Errorf("%v: the stream ends with %+v", c, end)
		}
		r := d.respond(d.Target, http.MethodPost, "", fmt.Sprintf(`{"model": %q, "input": "hello"}`, c.model))
		if want := map[bool]string{true: "completed", false: "incomplete"}[c.reason == ""]; r.Status != want || r.Incomplete.Reason != c.reason || !strings.Contains(r.text(), c.text) {
			t.Errorf("%v: %+v", c, r)
		}
	}
	d.llm.Answer("small", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Finish: "content_filter"} })
	if resp, body := d.post(d.Target, "/v1/chat/completions", chat("writer", "", "user:hello")); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "ANSWER_FILTERED") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestResponses_OfTasks: a task that another client has begun is a response, too.
func TestResponses_OfTasks(t *testing.T) {
	t.Parallel()
	d := open(t, file)
	sent, err := rig.Clients(t, d.Target)[0].Send(t.Context(), rig.Text("writer", "m1", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	task := sent.GetTask()
	if r := d.respond(d.Target, http.MethodGet, "/resp_"+task.GetId(), ""); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || r.text() != "1: hello" || r.Created == 0 {
		t.Errorf("%+v", r)
	}
}
