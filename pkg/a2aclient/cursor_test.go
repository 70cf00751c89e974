package a2aclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// script is a server whose streams hold the events of one entry each, the last entry
// again and again. A stream that ends with "cut" breaks.
type script struct {
	streams [][]string
	asked   []string // Last-Event-ID of each call
	most    int      // calls
	stop    context.CancelFunc
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(s.asked) == s.most {
		s.stop()
		return nil, errors.New("too many calls")
	}
	events := s.streams[min(len(s.asked), len(s.streams)-1)]
	s.asked = append(s.asked, req.Header.Get("Last-Event-Id"))
	var body io.Reader = strings.NewReader("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")
	if last := len(events) - 1; events[last] == "cut" {
		body = io.MultiReader(strings.NewReader("data: "+strings.Join(events[:last], "\n\ndata: ")+"\n\n"), broken{})
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {wire.TypeSSE}}, Body: io.NopCloser(body)}, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// update is a status update or, with a text, an artifact update of a task. seq is its
// cursor, 0 for none.
func update(task, state, text string, seq int) string {
	metadata := ""
	if seq != 0 {
		metadata = fmt.Sprintf(`,"metadata":{%q:{"seq":"%d"}}`, teamRunURI, seq)
	}
	if text != "" {
		return fmt.Sprintf(`{"artifactUpdate":{"taskId":%q,"artifact":{"artifactId":"a","parts":[{"text":%q}]}%s}}`, task, text, metadata)
	}
	return fmt.Sprintf(`{"statusUpdate":{"taskId":%q,"status":{"state":"TASK_STATE_%s"}%s}}`, task, state, metadata)
}

func snapshot(state string, seq int) string {
	return fmt.Sprintf(`{"task":{"id":"t1","status":{"state":"TASK_STATE_%s"},"metadata":{%q:{"seq":"%d"}}}}`, state, teamRunURI, seq)
}

// played returns what a subscription yields: states and texts, and the error.
func played(t *testing.T, s *script, cfg Config) (got []string, failed error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.stop, s.most = cancel, 20
	cfg.Transport = s
	c, err := New(offer(&a2av1.AgentInterface{Url: "http://h", ProtocolBinding: REST, ProtocolVersion: V1}), "http://h", cfg)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range c.SubscribeToTask(ctx, &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0) {
		if err != nil {
			failed = err
			continue
		}
		state := max(r.GetTask().GetStatus().GetState(), r.GetStatusUpdate().GetStatus().GetState())
		text := strings.TrimPrefix(state.String(), "TASK_STATE_")
		for _, p := range r.GetArtifactUpdate().GetArtifact().GetParts() {
			text = p.GetText()
		}
		got = append(got, text)
	}
	return got, failed
}

// TestA_15_ResumesWithoutProgress: a server that shows the same task in each stream, and
// ends it, is not asked for ever.
func TestA_15_ResumesWithoutProgress(t *testing.T) {
	for _, last := range []string{"", "cut"} {
		stream := []string{snapshot("WORKING", 5)}
		if last != "" {
			stream = append(stream, last)
		}
		s := &script{streams: [][]string{stream}}
		_, err := played(t, s, Config{Resumes: 2})
		if want := []string{"", "5", "5"}; !slices.Equal(s.asked, want) || (err != nil) != (last != "") {
			t.Errorf("streams that end with %q: asked behind %q, %v", last, s.asked, err)
		}
	}
}

// TestA_14_ResumeTellsTheRest has responses without a cursor, which come again behind the
// cursor before them. What has a cursor is new, whatever came before it.
func TestA_14_ResumeTellsTheRest(t *testing.T) {
	for name, tt := range map[string]struct {
		second []string
		want   []string
	}{
		"the same again": {
			[]string{update("t1", "", "a", 0), update("t1", "", "b", 0), update("t1", "COMPLETED", "", 6)}, []string{"WORKING", "a", "b", "COMPLETED"},
		},
		"fewer": {[]string{update("t1", "COMPLETED", "", 6)}, []string{"WORKING", "a", "b", "COMPLETED"}},
	} {
		s := &script{streams: [][]string{{update("t1", "WORKING", "", 5), update("t1", "", "a", 0), update("t1", "", "b", 0), "cut"}, tt.second}}
		if got, err := played(t, s, Config{}); err != nil || !slices.Equal(got, tt.want) || !slices.Equal(s.asked, []string{"", "5"}) {
			t.Errorf("%s: %q, %v, asked behind %q", name, got, err, s.asked)
		}
	}
}

// TestA_07_ResumeIgnoresOtherTasks: what is skipped of other tasks neither ends the
// subscription nor moves its cursor.
func TestA_07_ResumeIgnoresOtherTasks(t *testing.T) {
	s := &script{streams: [][]string{
		{update("t1", "WORKING", "", 5), update("t2", "COMPLETED", "", 9), "cut"},
		{update("t1", "COMPLETED", "", 6)},
	}}
	got, err := played(t, s, Config{Lenient: true})
	if want := []string{"WORKING", "COMPLETED"}; err != nil || !slices.Equal(got, want) || !slices.Equal(s.asked, []string{"", "5"}) {
		t.Errorf("%q, %v, asked behind %q", got, err, s.asked)
	}
}
