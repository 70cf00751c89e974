package a2a_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
)

// inContext puts a request into a context.
func inContext(id string, req *a2av1.SendMessageRequest) *a2av1.SendMessageRequest {
	req.Message.ContextId = id
	return req
}

func thread(id string) runs.Thread {
	return runs.Thread{Owner: "acme/ann", ContextID: id}
}

// kept is what is remembered of a path in a context of Ann's, as "ROLE: text".
func (r *rig) kept(t testing.TB, contextID, path string) []string {
	t.Helper()
	got, err := r.store.Recall(t.Context(), thread(contextID), path, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, m := range got.History {
		list = append(list, strings.TrimPrefix(m.GetRole().String(), "ROLE_")+": "+agent.Text(m))
	}
	return list
}

func (r *rig) wantKept(t testing.TB, contextID, path string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), r.kept(t, contextID, path)); diff != "" {
		t.Errorf("kept of %s in %s (-want +got):\n%s", path, contextID, diff)
	}
}

// rememberer makes an agent one that remembers.
type rememberer struct{ agent.Agent }

func (rememberer) Remembers() bool { return true }

// listener waits for a follow-up, and then does what a func says.
type listener struct {
	talker
	then func(got *teamv1.Received) *a2av1.Message
}

func (listener) Remembers() bool { return true }

func (a listener) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		l := agent.From(ctx).Listen("")
		defer l.Close()
		var got *teamv1.Received
		for _, ev := range req.GetRecorded() { // it came before the run began
			got = ev.GetReceived()
		}
		if got == nil {
			select {
			case <-l.Wake():
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
			in := l.Take()[0]
			got = in.GetReceived()
			got.Inbound = in.GetN()
			if !yield(&teamv1.Event{Agent: a.id, Kind: &teamv1.Event_Received{Received: got}}, nil) {
				return
			}
		}
		yield(agent.ReplyEvent(req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: a.then(got)}}), nil)
	}
}

func TestR_002_29_What_is_remembered(t *testing.T) {
	t.Run("R-002-29 what the user said meanwhile", func(t *testing.T) {
		r := start(t, listener{talker{id: "a"}, func(got *teamv1.Received) *a2av1.Message {
			return agent.NewMessage("and " + agent.Text(got.GetMessage()))
		}})
		task := r.send(t, ann(t), atOnce(inContext("c", message("a", "one"))))
		r.send(t, ann(t), atOnce(reply(task.GetId(), "two")))
		if w := project.RunOf(r.until(t, task.GetId(), completed).GetMetadata()).GetWarnings(); len(w) > 0 {
			t.Error(w)
		}
		r.wantKept(t, "c", "a", "USER: one", "USER: two", "AGENT: and two")
	})
	t.Run("R-002-29 what it asked, and the answer", func(t *testing.T) {
		r := start(t)
		r.newTeamOf(t, team.Config{ID: "a", Memory: true, Scheduler: plan(func(s *team.State) (team.Decision, error) {
			if agent.Text(s.Messages[0]) == "weather?" {
				return team.Decision{Ask: agent.NewMessage("where?"), Reason: "it is not said"}, nil
			}
			return team.Decision{Reply: agent.NewMessage("sunny in " + agent.Text(s.Messages[0])), Reason: "known"}, nil
		})})
		task := r.send(t, ann(t), inContext("c", message("a", "weather?")))
		r.send(t, ann(t), reply(task.GetId(), "Lagos"))
		r.until(t, task.GetId(), completed)
		r.wantKept(t, "c", "a", "USER: weather?", "AGENT: where?", "USER: Lagos", "AGENT: sunny in Lagos")
	})
	t.Run("R-002-29 a file by its name, and nothing of what came along", func(t *testing.T) {
		r := start(t, rememberer{echo("a")})
		req := inContext("c", message("a", "look"))
		req.Message.Parts = append(req.Message.Parts, &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte("bytes")}, Filename: "f.bin", MediaType: "x/y"})
		req.Message.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"token": structpb.NewStringValue("secret")}}
		r.send(t, ann(t), req)
		got, err := r.store.Recall(t.Context(), thread("c"), "a", 10)
		if err != nil || len(got.History) != 2 {
			t.Fatal(got, err)
		}
		m := got.History[0]
		if p := m.GetParts()[1]; len(p.GetRaw()) > 0 || p.GetFilename() != "f.bin" || p.GetMediaType() != "x/y" || m.GetMetadata() != nil {
			t.Errorf("kept is %v", m)
		}
	})
	t.Run("S-55 an agent that does not remember leaves nothing", func(t *testing.T) {
		r := start(t, echo("a"))
		r.send(t, ann(t), inContext("c", message("a", "one")))
		r.wantKept(t, "c", "a")
	})
}

// TestC_17_What_failed_runs_leave: the user's words after a failure; nothing of
// what was canceled or refused.
func TestC_17_What_failed_runs_leave(t *testing.T) {
	t.Run("C-17 failed", func(t *testing.T) {
		r := start(t, rememberer{failing("a", errors.New("no"))})
		r.send(t, ann(t), inContext("c", message("a", "one")))
		r.wantKept(t, "c", "a", "USER: one", "AGENT: [This request was not completed: INTERNAL: internal error]")
	})
	t.Run("C-17 canceled", func(t *testing.T) {
		g := newGate("a")
		r := start(t, rememberer{g})
		t.Cleanup(g.open)
		task := r.send(t, ann(t), atOnce(inContext("c", message("a", "one"))))
		<-g.entered
		if _, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: task.GetId()}); err != nil {
			t.Fatal(err)
		}
		r.until(t, task.GetId(), canceled)
		r.wantKept(t, "c", "a")
	})
	for name, checked := range map[string]*teamv1.Checked{
		"blocked":  {Stage: teamv1.Checked_STAGE_INPUT, By: "rule", Blocked: true},
		"reworded": {Stage: teamv1.Checked_STAGE_INPUT, By: "rule", Message: agent.UserMessage("m", "one, without names")},
	} {
		t.Run("R-002-40 "+name, func(t *testing.T) {
			r := start(t, rememberer{talker{id: "a", talk: func(_ context.Context, emit func(*teamv1.Event) bool) {
				emit(&teamv1.Event{Kind: &teamv1.Event_Checked{Checked: checked}})
			}}})
			r.send(t, ann(t), inContext("c", message("a", "one")))
			var want []string
			if !checked.GetBlocked() {
				want = []string{"USER: one, without names", "AGENT: done"}
			}
			r.wantKept(t, "c", "a", want...)
		})
	}
}

// TestR_002_30_Delegations: a remembered answer says who worked for it.
func TestR_002_30_Delegations(t *testing.T) {
	long := strings.Repeat("ü", 300)
	r := start(t, echo("good"), failing("bad", agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "no")))
	r.newTeamOf(t, team.Config{ID: "lead", Memory: true, ReportErrors: true, Scheduler: plan(func(s *team.State) (team.Decision, error) {
		step := func(member, text string) *teamv1.Step {
			return &teamv1.Step{Kind: teamv1.Step_KIND_DELEGATE, Member: member, Input: &teamv1.Input{Message: agent.NewMessage(text)}}
		}
		switch len(s.Steps) {
		case 0:
			return team.Decision{Steps: []*teamv1.Step{step("good", long), step("bad", "try")}, Reason: "both"}, nil
		case 2:
			return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "good"}}, Reason: "once more"}, nil
		}
		return team.Decision{Reply: agent.NewMessage("done"), Reason: "enough"}, nil
	})}, "good", "bad")
	r.send(t, ann(t), inContext("c", message("lead", "do it")))
	got, err := r.store.Recall(t.Context(), thread("c"), "lead", 10)
	if err != nil || len(got.History) != 2 {
		t.Fatal(got, err)
	}
	want := []string{
		fmt.Sprintf("good was asked %q: SUCCEEDED", strings.Repeat("ü", 200)+"…"), `bad was asked "try": FAILED`,
		fmt.Sprintf("good was asked %q: SUCCEEDED", "echo: "+strings.Repeat("ü", 194)+"…"),
	}
	if diff := cmp.Diff(want, team.PastDelegations(got.History)); diff != "" {
		t.Errorf("R-002-30 (-want +got):\n%s", diff)
	}
	if m := got.History[0].GetMetadata(); m != nil {
		t.Errorf("the question has %v", m)
	}
}

// TestS_39_Teams_below: a team in a team is remembered under its path, unless it
// does not remember.
func TestS_39_Teams_below(t *testing.T) {
	pass := func(member string) team.Scheduler {
		return plan(func(s *team.State) (team.Decision, error) {
			if s.Last != nil {
				return team.Decision{Reply: s.Last.Message, Reason: "answered"}, nil
			}
			return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: member}}, Reason: "pass it on"}, nil
		})
	}
	for _, memory := range []bool{true, false} {
		t.Run(fmt.Sprintf("S-39 memory %v", memory), func(t *testing.T) {
			r := start(t, echo("worker"))
			r.newTeamOf(t, team.Config{ID: "low", Memory: memory, Scheduler: pass("worker")}, "worker")
			r.newTeamOf(t, team.Config{ID: "top", Memory: true, Scheduler: pass("low")}, "low")
			r.send(t, ann(t), inContext("c", message("top", "x")))
			r.wantKept(t, "c", "top", "USER: x", "AGENT: echo: x")
			r.wantKept(t, "c", "low")
			r.wantKept(t, "c", "top/low/worker")
			if memory {
				r.wantKept(t, "c", "top/low", "USER: x", "AGENT: echo: x")
			} else {
				r.wantKept(t, "c", "top/low")
			}
		})
	}
}

// TestR_002_29_Direct: an answer that is a plain message stays one, and is
// remembered.
func TestR_002_29_Direct(t *testing.T) {
	reads := rememberer{talking{direct("a")}}
	r := start(t, reads)
	for range 2 {
		resp, err := r.SendMessage(ann(t), inContext("c", message("a", "one")))
		if err != nil || resp.GetMessage() == nil {
			t.Fatalf("R-002-29 got %v, %v", resp, err)
		}
	}
	r.wantKept(t, "c", "a", "USER: one", "AGENT: echo: one", "USER: one", "AGENT: echo: one, after 2")
}

// talking is an agent that says how much it knows.
type talking struct{ *agent.Func }

func (a talking) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	f := &agent.Func{ID: a.ID, MayReplyDirectly: a.MayReplyDirectly, Call: a.Call}
	if n := len(agent.From(ctx).Memory.History("a")); n > 0 {
		f.Call = func(ctx context.Context, m *a2av1.Message) (*a2av1.Message, error) {
			got, err := a.Call(ctx, m)
			got.Parts[0].Content = &a2av1.Part_Text{Text: fmt.Sprintf("%s, after %d", agent.Text(got), n)}
			return got, err
		}
	}
	return f.Process(ctx, req)
}
