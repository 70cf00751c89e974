package endpoints

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/secret"
)

var update = flag.Bool("update", false, "write the records of servers that run, what is seen of the others, and the table in docs/models.md, anew")

// record is what a server has sent, and what the user sees of it.
type record struct {
	file       string
	Software   string               `json:"software"` // name and version
	Situations map[string]*exchange `json:"situations"`
}

// exchange is what was sent in a situation.
type exchange struct {
	Seen      string     `json:"seen"`
	Responses []response `json:"responses,omitempty"`
}

// response is a response of a server, with the headers that matter.
type response struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header,omitempty"`
	Body   string            `json:"body"`
}

// kept are the headers of responses that are recorded.
var kept = []string{"Content-Type", "Retry-After", "Llm_provider-Retry-After"}

// records reads all records, in the order of the columns of the table.
func records(t *testing.T) []*record {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no records", err)
	}
	var all []*record
	for _, f := range files {
		all = append(all, read(t, f))
	}
	return all
}

func read(t *testing.T, file string) *record {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatal(file, err)
	}
	r.file = file
	return r
}

// write writes a record.
func (r *record) write(t *testing.T) {
	t.Helper()
	b, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.WriteFile(r.file, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplay: what servers have sent is seen by the user as the record says.
func TestReplay(t *testing.T) {
	for _, r := range records(t) {
		for _, s := range situations {
			e := r.Situations[s.name]
			if e == nil {
				t.Errorf("%s has no record of %q", r.Software, s.name)
				continue
			}
			if len(e.Responses) == 0 {
				continue // not played
			}
			t.Run(r.Software+"/"+s.name, func(t *testing.T) {
				left := e.Responses
				client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
					if len(left) == 0 {
						return nil, errors.New("there is a request that the record does not have")
					}
					next := left[0]
					left = left[1:]
					h := http.Header{}
					for name, value := range next.Header {
						h.Set(name, value)
					}
					return &http.Response{StatusCode: next.Status, Header: h, Body: io.NopCloser(strings.NewReader(next.Body))}, nil
				})}
				o := s.play(t, model.Config{Name: "smollm2", BaseURL: "http://model.invalid/v1", APIKey: secret.New(key), HTTPClient: client, MaxOutput: longest})
				got := o.cell(&s)
				if *update {
					e.Seen = got
				}
				if got != e.Seen || len(left) > 0 {
					t.Errorf("seen: %s\nwant: %s\n%d responses are left", got, e.Seen, len(left))
				}
			})
		}
		if *update {
			r.write(t)
		}
	}
}

// TestTable compares the table in docs/models.md with the records.
func TestTable(t *testing.T) {
	all := records(t)
	var b strings.Builder
	b.WriteString("| |")
	for _, r := range all {
		b.WriteString(" " + r.Software + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, s := range situations {
		b.WriteString("| " + s.name + " |")
		for _, r := range all {
			b.WriteString(" " + r.Situations[s.name].Seen + " |")
		}
		b.WriteString("\n")
	}
	file := filepath.Join("..", "..", "docs", "models.md")
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(doc), "\n| | ")
	_, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatal("docs/models.md has no table of servers")
	}
	want := before + "\n" + b.String() + "\n" + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(doc)); diff != "" {
		t.Errorf("docs/models.md (-records +docs); go test ./tests/endpoints -run Table -update writes it:\n%s", diff)
	}
}

// shape returns what does not depend on the words of a model: the status and the kind of the body, and for each
// event the names and types of its fields. Events of the same form in a row count as one.
func (r *response) shape() []string {
	media, _, _ := strings.Cut(r.Header["Content-Type"], ";")
	out := []string{http.StatusText(r.Status) + " " + media}
	lines := []string{r.Body}
	if strings.HasPrefix(r.Body, "data:") || strings.HasPrefix(r.Body, ":") {
		lines = strings.Split(r.Body, "\n")
	}
	for _, line := range lines {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data:"))
		if line == "" || line[0] == ':' {
			continue
		}
		form := line
		var v any
		if json.Unmarshal([]byte(line), &v) == nil {
			form = strings.Join(slices.Sorted(maps.Keys(paths("", v, map[string]bool{}))), " ")
		}
		if out[len(out)-1] != form {
			out = append(out, form)
		}
	}
	return out
}

// paths adds the paths and types of a JSON value to out.
func paths(at string, v any, out map[string]bool) map[string]bool {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			paths(at+"."+name, inner, out)
		}
		return out
	case []any:
		for _, inner := range v {
			paths(at+"[]", inner, out)
		}
		return out
	case string:
		at += " text"
	case float64:
		at += " number"
	case bool:
		at += " bool"
	case nil:
		at += " null"
	}
	out[at] = true
	return out
}
