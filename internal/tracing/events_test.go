package tracing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/agent"
)

// recorded returns a tracer, and the spans that it has made.
func recorded(t *testing.T) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	r := tracetest.NewSpanRecorder()
	tr, err := New(Config{Provider: sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(IDs{}), sdktrace.WithSpanProcessor(r))}, nil, "v", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return tr, r
}

// journaled is a journal in memory.
type journaled struct {
	runs.Journal
	events []*teamv1.Event
}

func (j *journaled) Load(context.Context) ([]*teamv1.Event, error)  { return j.events, nil }
func (j *journaled) Append(context.Context, ...*teamv1.Event) error { return nil }

// TestT_51_Names: without content no span has the name or the id of a call that a model has made up, and those of
// calls of tools are cut.
func TestT_51_Names(t *testing.T) {
	tr, made := recorded(t)
	r := newRun(tr, runs.Claim{Root: "t1", Owner: "acme/ann", Journal: &journaled{events: []*teamv1.Event{
		{Agent: "desk", Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Agent: "desk"}}},
	}}})
	if _, err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	mode, err := structpb.NewStruct(map[string]any{"mode": "leader"})
	if err != nil {
		t.Fatal(err)
	}
	const canary = "my password is canary"
	long := strings.Repeat("x", 10*maxName)
	tool := func(id, called, call string, refusal *teamv1.Refusal) *teamv1.Step {
		return &teamv1.Step{Id: id, Kind: teamv1.Step_KIND_TOOL, Name: called, CallId: call, Refusal: refusal}
	}
	ended := &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED}}
	if err := r.Append(t.Context(),
		&teamv1.Event{Seq: 2, Agent: "desk", Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{Code: agent.NoteTeamPrepared, Details: mode}}},
		&teamv1.Event{Seq: 3, Agent: "desk", Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{
			tool("1", canary, canary, &teamv1.Refusal{Outcome: teamv1.Outcome_OUTCOME_FAILED}), tool("2", "height", long, nil),
		}}}},
		&teamv1.Event{Seq: 4, Scope: "1", Agent: "desk", Kind: ended}, &teamv1.Event{Seq: 5, Scope: "2", Agent: "desk", Kind: ended},
	); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range made.Ended() {
		names = append(names, s.Name())
		if text := fmt.Sprint(s.Name(), s.Attributes()); strings.Contains(text, "canary") || strings.Contains(text, long[:maxName+1]) {
			t.Errorf("exported: %s", text)
		}
	}
	if want := "[plan desk execute_tool execute_tool height]"; fmt.Sprint(names) != want {
		t.Errorf("spans %v, want %s", names, want)
	}
}

// TestT_51_Header: of the header traceparent only a valid trace context is recorded with a task.
func TestT_51_Header(t *testing.T) {
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for header, want := range map[string]string{
		valid: valid, "cc" + valid[2:] + "-" + strings.Repeat("x", 1<<12): valid, "": "", "canary": "", valid + strings.Repeat("x", 1<<16): "",
	} {
		if got := (*Request)(nil).Record([]string{header})[traceparent.Key]; got != want {
			t.Errorf("%.80q: %.80q, want %q", header, got, want)
		}
	}
	tr, _ := recorded(t)
	_, span := tr.Request(t.Context(), "SendMessage", "rest", nil, []string{"canary"})
	defer span.End("OK", "", false)
	if got := span.Record([]string{"canary"}); len(got) != 1 || !traceparent.Parse(got[requestOf]).IsValid() {
		t.Errorf("recorded: %v", got)
	}
}
