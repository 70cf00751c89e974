package team_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// sendTool is called "send" and answers its n-th call with the n-th error, then
// with a text. It keeps the keys of its calls.
type sendTool struct {
	effect agent.Effect
	errs   []error
	keys   []string
}

func (s *sendTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: "send", Effect: s.effect}
}

func (s *sendTool) Call(_ context.Context, _ json.RawMessage, key string) (*teamv1.ToolResult, error) {
	n := len(s.keys)
	s.keys = append(s.keys, key)
	if n < len(s.errs) && s.errs[n] != nil {
		return nil, s.errs[n]
	}
	return &teamv1.ToolResult{Text: "sent"}, nil
}

var (
	errConnection = &agent.Error{Reason: agent.ReasonUnavailable, Message: "the connection broke", Retry: true}
	errBusyNow    = &agent.Error{Reason: agent.ReasonUnavailable, Message: "busy", Retry: true, Fresh: true}
	errLater      = &agent.Error{Reason: agent.ReasonUnavailable, Message: "later", Retry: true, Fresh: true, RetryAfter: 12 * time.Hour}
	errNotToday   = &agent.Error{Reason: agent.ReasonUnavailable, Message: "not today", Fresh: true}
)

// sender is an agent whose model calls send once and says what came of it.
func sender(t *testing.T, tool agent.Tool) *leader.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{
		ID: "sender", Tools: []agent.Tool{tool}, Limits: &teamv1.Limits{Retry: &teamv1.Retry{Backoff: durationpb.New(1)}},
		Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
			if last := req.Messages[len(req.Messages)-1]; last.Role == agent.RoleTool {
				return &teamv1.Turn{Text: last.Text}
			}
			return &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{{Id: "c", Name: "send", Arguments: `{"to":"ann"}`}}}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// asked returns the last question on record.
func (r *record) asked() *teamv1.Event {
	for _, ev := range slices.Backward(r.events) {
		if ev.GetAsked() != nil {
			return ev
		}
	}
	return nil
}

// answer puts an answer to the last question on record.
func (r *record) answer(text string) {
	q := r.asked()
	r.events = append(r.events, &teamv1.Event{
		Seq: int64(len(r.events) + 2), Time: timestamppb.Now(), Scope: q.GetScope(),
		Kind: &teamv1.Event_Answered{Answered: answerTo(q, text).GetAnswered()},
	})
}

func TestOutcome_OfAnUnsafeTool(t *testing.T) {
	for name, c := range map[string]struct {
		effect  agent.Effect
		errs    []error
		answers []string
		calls   int
		keys    int // different ones
		says    string
	}{
		"it was done":                     {agent.EffectUnsafe, []error{errConnection}, []string{"it was done"}, 1, 1, "A person has looked and says that it was done"},
		"it counts as failed":             {agent.EffectUnsafe, []error{errConnection}, []string{"fail"}, 1, 1, "it counts as failed"},
		"it is called again":              {agent.EffectUnsafe, []error{errConnection}, []string{" Call it again "}, 2, 1, "sent"},
		"they are asked each time":        {agent.EffectUnsafe, []error{errConnection, errConnection, errConnection, errConnection}, []string{"call it again", "call it again", "call it again", "it was done"}, 4, 1, "it was done"},
		"a known failure is no question":  {agent.EffectUnsafe, []error{errBusyNow, errBusyNow}, nil, 3, 3, "sent"},
		"nor is one that does not pass":   {agent.EffectUnsafe, []error{errNotToday}, nil, 1, 1, "send failed: not today"},
		"it wants to be left for long":    {agent.EffectUnsafe, []error{errLater}, nil, 1, 1, "send failed: later"},
		"a keyed tool keeps its key":      {agent.EffectKeyed, []error{errConnection, errConnection}, nil, 3, 1, "sent"},
		"and is given up in the end":      {agent.EffectKeyed, []error{errConnection, errConnection, errConnection}, nil, 3, 1, "send failed: the connection broke"},
		"a safe tool is called again too": {agent.EffectSafe, []error{errConnection}, nil, 2, 1, "sent"},
	} {
		t.Run(name, func(t *testing.T) {
			tool := &sendTool{effect: c.effect, errs: c.errs}
			a, r := sender(t, tool), newRecord()
			r.process(t.Context(), a, nil)
			for _, text := range c.answers {
				q := r.asked().GetAsked()
				if r.reply != nil || q.GetKind() != teamv1.Asked_KIND_OUTCOME {
					t.Fatalf("it did not ask: %v %v", r.reply, r.err)
				}
				if said := agent.Text(q.GetMessage()); !strings.Contains(said, `sender called send with {"to":"ann"}`) || !strings.Contains(said, "the connection broke") {
					t.Errorf("question %q", said)
				}
				r.process(t.Context(), a, nil) // without an answer nothing happens
				r.answer(text)
				r.process(t.Context(), a, nil)
			}
			if r.reply == nil || !strings.Contains(agent.Text(r.reply.GetMessage()), c.says) {
				t.Fatalf("reply %v, error %v, want %q", r.reply, r.err, c.says)
			}
			if bad := unended(r.events); len(bad) > 0 {
				t.Error(bad)
			}
			slices.Sort(tool.keys)
			if len(tool.keys) != c.calls || len(slices.Compact(tool.keys)) != c.keys {
				t.Errorf("called with %v, want %d calls and %d keys", tool.keys, c.calls, c.keys)
			}
		})
	}
}

// TestOutcome_QuestionHasOptions: the question names its answers as data, so that
// clients can show them.
func TestOutcome_QuestionHasOptions(t *testing.T) {
	a, r := sender(t, &sendTool{effect: agent.EffectUnsafe, errs: []error{errConnection}}), newRecord()
	r.process(t.Context(), a, nil)
	ev := r.asked()
	parts := ev.GetAsked().GetMessage().GetParts()
	options := parts[len(parts)-1].GetData().GetStructValue().GetFields()["options"].GetListValue().GetValues()
	if len(options) != 3 || options[0].GetStringValue() != "it was done" || ev.GetScope() != "2" || ev.GetAsked().GetExpires() == nil {
		t.Errorf("question = %v", ev)
	}
}

// TestOutcome_Crash: a call that was begun and whose end is not on record is not
// made again by itself.
func TestOutcome_Crash(t *testing.T) {
	for _, effect := range []agent.Effect{agent.EffectUnsafe, agent.EffectKeyed, agent.EffectSafe} {
		t.Run(fmt.Sprint(effect), func(t *testing.T) {
			tool := &sendTool{effect: effect}
			a, r := sender(t, tool), newRecord()
			r.process(t.Context(), a, func(ev *teamv1.Event) bool { return ev.GetScope() != "2" || ev.GetEnded() == nil })
			r.events = r.events[:len(r.events)-1] // the end is lost
			r.process(t.Context(), a, nil)
			if effect != agent.EffectUnsafe {
				if r.reply == nil || len(tool.keys) != 2 || tool.keys[0] != tool.keys[1] {
					t.Error(r.reply, r.err, tool.keys)
				}
				return
			}
			if said := agent.Text(r.asked().GetAsked().GetMessage()); r.reply != nil || len(tool.keys) != 1 || !strings.Contains(said, "this server stopped before it ended") {
				t.Fatal(r.reply, tool.keys, said)
			}
			r.answer("call it again")
			r.process(t.Context(), a, func(ev *teamv1.Event) bool { return ev.GetStarted() == nil }) // and it stops again
			r.process(t.Context(), a, nil)
			if r.reply != nil || len(tool.keys) != 1 {
				t.Fatal("the word of a person counted twice: ", r.reply, tool.keys)
			}
			r.answer("call it again")
			r.process(t.Context(), a, nil)
			if r.reply == nil || len(tool.keys) != 2 || tool.keys[0] != tool.keys[1] {
				t.Error(r.reply, r.err, tool.keys)
			}
		})
	}
}

// TestOutcome_NobodyAnswers ends the run when the question lapses, and a cancel ends
// it at once.
func TestOutcome_NobodyAnswers(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		tool := &sendTool{effect: agent.EffectUnsafe, errs: []error{errConnection}}
		a := sender(t, tool)
		w := newWorld(t)
		now := time.Now()
		r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return a, nil }, Clock: func() time.Time { return now }}
		claim := runs.Claim{Root: crashRoot, Epoch: 1, Journal: w}
		park, err := r.Drive(t.Context(), claim)
		if err != nil || park.Done || park.Until.IsZero() {
			t.Fatal(park, err)
		}
		want := teamv1.Outcome_OUTCOME_TIMED_OUT
		if cancel {
			want = teamv1.Outcome_OUTCOME_CANCELED
			w.inbox = append(w.inbox, &teamv1.Inbound{N: 1, Kind: &teamv1.Inbound_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}}})
		} else {
			now = park.Until.Add(time.Second)
		}
		if park, err = r.Drive(t.Context(), claim); err != nil || !park.Done {
			t.Fatal(park, err)
		}
		if end := w.events[len(w.events)-1].GetEnded(); end.GetOutcome() != want || len(tool.keys) != 1 {
			t.Error(end, tool.keys)
		}
		if bad := unended(w.events); len(bad) > 0 {
			t.Error(bad)
		}
	}
}
