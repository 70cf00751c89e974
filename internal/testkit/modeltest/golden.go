package modeltest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// Golden compares what a package of a provider sends, stores and returns with golden files, which
// hold what an earlier version of it did. Each file is a JSON object with a member for each case.
type Golden struct {
	// Connect returns the model with a configuration.
	Connect func(model.Config) (agent.Model, error)
	// Name is the name of the model.
	Name string
	// Update writes the files instead.
	Update bool
}

// Case is a request and the configuration of the model that makes it.
type Case struct {
	Config  model.Config
	Request *agent.ModelRequest
}

// sent is a request in a golden file, without the headers that only name the program.
type sent struct {
	Method string              `json:"method"`
	URL    string              `json:"url"`
	Header map[string][]string `json:"header"`
	Body   json.RawMessage     `json:"body"`
}

// turn is a turn in a golden file: what the endpoint sent, what became of it, and the request that
// gives it back to the endpoint.
type turn struct {
	Stream string          `json:"stream"`
	Turn   json.RawMessage `json:"turn,omitempty"`
	State  json.RawMessage `json:"state,omitempty"`
	Spent  json.RawMessage `json:"spent,omitempty"`
	Error  string          `json:"error,omitempty"`
	Next   *sent           `json:"next,omitempty"`
}

// failure is an error in a golden file.
type failure struct {
	Message    string
	Code       int
	Retry      bool
	Fresh      bool
	RetryAfter time.Duration
	Spent      json.RawMessage
}

// Response is the response of an endpoint.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Requests compares the requests of the given cases, and of those that all providers have, with
// testdata/requests.json.
func (g Golden) Requests(t *testing.T, more map[string]Case) {
	all := cases()
	maps.Copy(all, more)
	got := map[string]*sent{}
	for name, c := range all {
		s, _ := g.exchange(t, c, Response{Status: http.StatusBadRequest})
		if s == nil {
			t.Errorf("%s: no request", name)
		}
		got[name] = s
	}
	compare(t, g.Update, "requests.json", got)
}

// Turns compares what becomes of streams with testdata/turns.json: the turn, its state, the usage,
// and the request with the state. It also compares the request with the state that the file holds,
// as a store of an earlier version does.
func (g Golden) Turns(t *testing.T, streams map[string]string) {
	got, stored := map[string]*turn{}, map[string]*turn{}
	if !g.Update {
		read(t, "turns.json", &stored)
	}
	for name, stream := range streams {
		_, a := g.exchange(t, Case{Request: Ask("tides")}, Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: stream})
		s := &turn{Stream: stream}
		got[name] = s
		if a.Err != nil {
			s.Error = agent.AsError(a.Err).Message
			continue
		}
		plain := proto.CloneOf(a.Turn)
		plain.State = nil
		s.Turn, s.State, s.Spent = encode(t, plain), a.Turn.GetState(), encode(t, a.Spent)
		s.Next = g.next(t, a.Turn, s.State)
		if old := stored[name]; old != nil && old.State != nil {
			compact, err := json.Marshal(old.State) // as it is stored
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(generic(t, old.Next), generic(t, g.next(t, a.Turn, compact))); diff != "" {
				t.Errorf("%s: the request with a state that an earlier version stored (-want +got):\n%s", name, diff)
			}
		}
	}
	compare(t, g.Update, "turns.json", got)
}

// next returns the request after a turn.
func (g Golden) next(t *testing.T, turn *teamv1.Turn, state []byte) *sent {
	req := Ask("tides")
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleAssistant, Text: turn.GetText(), ToolCalls: turn.GetToolCalls(), State: state})
	for _, c := range turn.GetToolCalls() {
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleTool, CallID: c.GetId(), Tool: c.GetName(), Text: "done"})
	}
	s, _ := g.exchange(t, Case{Request: req}, Response{Status: http.StatusBadRequest})
	return s
}

// Failures compares the errors after the given responses, and after those that all providers have,
// with testdata/failures.json.
func (g Golden) Failures(t *testing.T, more map[string]Response) {
	all := responses()
	maps.Copy(all, more)
	got := map[string]failure{}
	for name, r := range all {
		_, a := g.exchange(t, Case{Config: model.Config{APIKey: secretKey}, Request: Ask("tides")}, r)
		var e *agent.Error
		if !errors.As(a.Err, &e) {
			t.Errorf("%s: error = %v", name, a.Err)
			continue
		}
		if strings.Contains(e.Error(), secretKey.Reveal()) || e.Err != nil && strings.Contains(e.Err.Error(), secretKey.Reveal()) {
			t.Errorf("%s: the error has the key: %v", name, e)
		}
		got[name] = failure{e.Message, int(e.Code), e.Retry, e.Fresh, e.RetryAfter, encode(t, e.Spent)}
	}
	compare(t, g.Update, "failures.json", got)
}

// exchange makes the request of a case, which gets the response. The request is nil if none was sent.
func (g Golden) exchange(t *testing.T, c Case, r Response) (*sent, Answer) {
	t.Helper()
	var s *sent
	c.Config.HTTPClient = &http.Client{Transport: Transport(func(req *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.ContentLength != int64(len(body)) {
			t.Errorf("a body of %d bytes, length %d: %v", len(body), req.ContentLength, err)
		}
		s = &sent{req.Method, req.URL.String(), header(req.Header), body}
		return &http.Response{StatusCode: r.Status, Header: r.Header, Body: io.NopCloser(strings.NewReader(r.Body))}, nil
	})}
	if c.Config.Name == "" {
		c.Config.Name = g.Name
	}
	m, err := g.Connect(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	a := Collect(t.Context(), t, m, c.Request)
	return s, a
}

// header returns the headers without those that only name the program.
func header(h http.Header) map[string][]string {
	out := map[string][]string{}
	for name, values := range h {
		switch name = strings.ToLower(name); {
		case name == "user-agent", name == "x-goog-api-client", strings.HasPrefix(name, "x-stainless-"):
		default:
			out[name] = values
		}
	}
	return out
}

// encode returns the JSON of a message, or nil for none.
func encode(t *testing.T, m proto.Message) json.RawMessage {
	t.Helper()
	if m == nil || !m.ProtoReflect().IsValid() {
		return nil
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// generic returns v as JSON without types.
func generic(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// read reads a golden file.
func read(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name)) //nolint:gosec // G304: names of this package
	if err != nil {
		t.Fatalf("%v; run the test with -update to write it", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

// compare compares got with a golden file, or writes it.
func compare(t *testing.T, update bool, name string, got any) {
	t.Helper()
	if update {
		b, err := json.MarshalIndent(generic(t, got), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil { //nolint:gosec // G301: files of the source tree
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("testdata", name), append(b, '\n'), 0o644); err != nil { //nolint:gosec // G306: a file of the source tree
			t.Fatal(err)
		}
		return
	}
	var want any
	read(t, name, &want)
	if diff := cmp.Diff(want, generic(t, got)); diff != "" {
		t.Errorf("testdata/%s (-want +got):\n%s", name, diff)
	}
}
