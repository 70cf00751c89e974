package a2a_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/broadcast"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/pkg/team/workflow"
)

// shelf is what a task's artifacts say, each a line: its name, whose it is, its text.
func shelf(task *a2av1.Task) []string {
	var out []string
	for _, a := range task.GetArtifacts() {
		_, scope, _ := strings.Cut(project.RunOf(a.GetMetadata()).GetDelegationId(), "~")
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s: %s", a.GetName(), scope, artifactText(a))))
	}
	return out
}

func wantShelf(t testing.TB, task *a2av1.Task, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, shelf(task)); diff != "" {
		t.Errorf("artifacts (-want +got):\n%s", diff)
	}
}

// streaming is a team of one wave whose members stream.
func (r *rig) streaming(t testing.TB, c team.Config, members ...team.Member) {
	t.Helper()
	var ids []string
	for _, m := range members {
		ids = append(ids, m.Agent)
	}
	c.Members, c.Registry = members, r.agents
	if c.Scheduler == nil {
		c.Scheduler = together(ids...)
	}
	tm, err := team.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.add(t, tm)
}

func TestC_16_ArtifactsOfMembers(t *testing.T) {
	t.Run("C-16 results that the answer joins are an artifact each, besides", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "team", together("two", "one"), "one", "two")
		v := follow(t, r.stream(t, message("team", "hi")))
		task := wantState(t, r.get(t, v.task.GetId()), completed)
		sameTask(t, v.task, task)
		wantShelf(t, task, "result : ## two\n\necho: hi\n\n## one\n\necho: hi", "team/two 1: echo: hi", "team/one 2: echo: hi")
	})
	t.Run("C-16 a workflow's parallel last wave", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
			{ID: "a", Member: "one"}, {ID: "de", Member: "two", After: []string{"a"}}, {ID: "fr", Member: "two", After: []string{"a"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		r.newTeam(t, "team", w, "one", "two")
		task := r.send(t, ann(t), message("team", "hi"))
		wantShelf(t, task, "result : ## two (de)\n\necho: echo: hi\n\n## two (fr)\n\necho: echo: hi",
			"team/two 2: echo: echo: hi", "team/two 3: echo: echo: hi")
	})
	t.Run("C-16 a single result is the answer and nothing else", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "team", through("one", "two"), "one", "two")
		wantShelf(t, r.send(t, ann(t), message("team", "hi")), "result : echo: echo: hi")
	})
	t.Run("C-16 a nested team shows its members in its own task", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "inner", together("one", "two"), "one", "two")
		r.newTeam(t, "outer", through("inner"), "inner")
		joined := "result : ## one\n\necho: hi\n\n## two\n\necho: hi"
		task := r.send(t, ann(t), message("outer", "hi"))
		wantShelf(t, task, joined)
		wantShelf(t, r.get(t, task.GetId()+"~1"), joined, "outer/inner/one 1.1: echo: hi", "outer/inner/two 1.2: echo: hi")
	})
}

func TestR_002_31_PartialResults(t *testing.T) {
	late := func() *agent.Func {
		return &agent.Func{ID: "late", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
	}
	t.Run("R-002-31 C-09 that work has begun by itself is no result", func(t *testing.T) {
		r := start(t, echo("one"), failing("two", agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "no")))
		r.newTeam(t, "team", plan(func(s *team.State) (team.Decision, error) {
			d, err := through("one", "two").Next(s)
			if s.Rounds == 0 {
				d.Steps[0].Async, d.Steps[0].Detached = true, true
			}
			return d, err
		}), "one", "two")
		v := follow(t, r.stream(t, message("team", "hi")))
		task := wantState(t, r.get(t, v.task.GetId()), failed)
		sameTask(t, v.task, task)
		wantShelf(t, task)
	})
	t.Run("R-002-31 R-002-8.3 the time of the run is up: what was finished is kept", func(t *testing.T) {
		r := start(t, echo("one"), late())
		limits := &teamv1.Limits{Timeout: durationpb.New(200 * time.Millisecond)}
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: through("one", "late"), Limits: limits}, "one", "late")
		v := follow(t, r.stream(t, message("team", "hi")))
		task := wantState(t, r.get(t, v.task.GetId()), failed)
		sameTask(t, v.task, task)
		wantShelf(t, task, "team/one 1: echo: hi")
		if e := project.RunOf(task.GetMetadata()).GetError(); e.GetReason() != agent.ReasonTimeout {
			t.Error(e)
		}
	})
	t.Run("R-002-31 a member fails: the others' results are kept", func(t *testing.T) {
		r := start(t, echo("one"), failing("bad", agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "no ink")))
		r.newTeam(t, "team", together("one", "bad"), "one", "bad")
		wantShelf(t, wantState(t, r.send(t, ann(t), message("team", "hi")), failed), "team/one 1: echo: hi")
	})
	t.Run("R-002-31 of a team that had not finished its members' results are kept, of one that had its own", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"), failing("bad", agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "no ink")))
		r.newTeam(t, "good", through("one", "two"), "one", "two")
		r.newTeam(t, "half", through("one", "bad"), "one", "bad")
		r.newTeam(t, "team", through("good", "half"), "good", "half")
		task := wantState(t, r.send(t, ann(t), message("team", "hi")), failed)
		wantShelf(t, task, "team/good 1: echo: echo: hi", "team/half/one 2.1: echo: echo: echo: hi")
		wantShelf(t, r.get(t, task.GetId()+"~2"), "team/half/one 2.1: echo: echo: echo: hi")
	})
	t.Run("R-002-31 of work that was done again the last result is kept", func(t *testing.T) {
		r := start(t, echo("one"))
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: through("one", "one", "one", "one"), Limits: &teamv1.Limits{MaxSteps: new(int32(3))}}, "one")
		task := wantState(t, r.send(t, ann(t), message("team", "hi")), failed)
		wantShelf(t, task, "team/one 3: echo: echo: echo: hi")
	})
	t.Run("a canceled task keeps nothing", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, echo("one"), g)
		r.newTeam(t, "team", through("one", "gate"), "one", "gate")
		id := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		if _, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		wantShelf(t, wantState(t, r.get(t, id), canceled))
	})
}

// chatty is a leaf that streams texts under an id that others use as well, and puts
// a file on record.
func chatty(id string, words ...string) agent.Agent {
	return &talker{id: id, talk: func(_ context.Context, emit func(*teamv1.Event) bool) {
		for i, w := range words {
			emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "text", Text: w, Restart: i == 0}}})
		}
		data := &a2av1.Part{Content: &a2av1.Part_Data{Data: structpb.NewNumberValue(7)}}
		emit(&teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
			Artifact: &a2av1.Artifact{ArtifactId: "file", Name: "score", Parts: append(agent.TextParts("scored"), data)}, LastChunk: true,
		}}})
		emit(&teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: agent.NewMessage(id + " is busy")}}})
	}}
}

// chunk is what a stream tells of an artifact.
type chunk struct{ name, scope, text string }

// heard are the pieces of artifacts and the status texts that a stream tells.
func heard(t testing.TB, r *rig, ctx context.Context, req *a2av1.SendMessageRequest) (pieces []chunk, busy []string, v *view) {
	t.Helper()
	updates, err := r.SendStreamingMessage(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	v = &view{}
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		v.take(t, u)
		if a := u.Response.GetArtifactUpdate(); a != nil {
			run := project.RunOf(a.GetMetadata())
			_, scope, _ := strings.Cut(run.GetDelegationId(), "~")
			pieces = append(pieces, chunk{a.GetArtifact().GetName(), scope, artifactText(a.GetArtifact())})
			if scope != "" && (run.GetPath() != a.GetArtifact().GetName() || run.GetParent() == "") {
				t.Errorf("the piece is attributed to %v", run)
			}
		}
		if text := agent.Text(u.Response.GetStatusUpdate().GetStatus().GetMessage()); text != "" && !slices.Contains(busy, text) {
			busy = append(busy, text)
		}
	}
	return pieces, busy, v
}

func TestS_26_InnerStreams(t *testing.T) {
	done := chunk{"result", "", "## a\n\ndone\n\n## b\n\ndone"}
	cast := func(t *testing.T, a, b team.Member) *rig {
		r := start(t, chatty("a", "one ", "two"), chatty("b", "three ", "four"))
		a.Agent, b.Agent = "a", "b"
		r.streaming(t, team.Config{ID: "team"}, a, b)
		return r
	}
	of := func(pieces []chunk, scope string) []string {
		var out []string
		for _, p := range pieces {
			if p.scope == scope {
				out = append(out, p.text)
			}
		}
		return out
	}
	t.Run("R-004-11 by default no text of a member is in the stream", func(t *testing.T) {
		r := cast(t, team.Member{}, team.Member{})
		pieces, busy, v := heard(t, r, ann(t), message("team", "hi"))
		want := []chunk{done, {"team/a", "1", "done"}, {"team/b", "2", "done"}} // C-16
		if diff := cmp.Diff(want, pieces, cmp.AllowUnexported(chunk{})); diff != "" {
			t.Error(diff)
		}
		if len(busy) != 2 {
			t.Errorf("progress: %v", busy)
		}
		sameTask(t, v.task, r.get(t, v.task.GetId()))
	})
	t.Run("S-26 R-004-14 stream_inner: each piece under the member's path, never in the answer", func(t *testing.T) {
		r := cast(t, team.Member{StreamInner: true}, team.Member{StreamInner: true})
		pieces, _, v := heard(t, r, ann(t), message("team", "hi"))
		for scope, want := range map[string][]string{"1": {"one ", "two", "scored", "done"}, "2": {"three ", "four", "scored", "done"}, "": {done.text}} {
			if diff := cmp.Diff(want, of(pieces, scope)); diff != "" {
				t.Errorf("%s: %s", scope, diff)
			}
		}
		task := r.get(t, v.task.GetId())
		sameTask(t, v.task, task)
		got := shelf(task)
		slices.Sort(got)
		want := []string{"result : " + done.text, "team/a 1: done", "team/a 1: scored", "team/b 2: done", "team/b 2: scored"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("S-26 inner_text false hides prose and keeps progress and data", func(t *testing.T) {
		r := cast(t, team.Member{StreamInner: true, HideText: true}, team.Member{})
		pieces, busy, _ := heard(t, r, ann(t), message("team", "hi"))
		want := []chunk{{"team/a", "1", ""}, done, {"team/a", "1", "done"}, {"team/b", "2", "done"}} // of the data no text
		if diff := cmp.Diff(want, pieces, cmp.AllowUnexported(chunk{})); diff != "" {
			t.Error(diff)
		}
		if len(busy) != 2 {
			t.Errorf("progress: %v", busy)
		}
	})
	t.Run("S-26 through teams: as far as each of them shows it", func(t *testing.T) {
		for _, shown := range []bool{true, false} {
			r := start(t, chatty("a", "one ", "two"))
			r.streaming(t, team.Config{ID: "inner"}, team.Member{Agent: "a", StreamInner: true})
			r.streaming(t, team.Config{ID: "outer"}, team.Member{Agent: "inner", StreamInner: shown})
			pieces, _, v := heard(t, r, ann(t), message("outer", "hi"))
			if got := of(pieces, "1.1"); (len(got) == 4) != shown {
				t.Errorf("%v: %v", shown, got)
			}
			sameTask(t, v.task, r.get(t, v.task.GetId()))
			pieces, _, _ = heard(t, r, ann(t), message("inner", "hi"))
			if got := of(pieces, "1"); len(got) != 4 {
				t.Errorf("of the inner team alone: %v", got)
			}
		}
	})
	t.Run("S-26 a model's turns are its agent's, a router's are nobody's", func(t *testing.T) {
		r := start(t, echo("one"))
		m := &saying{text: "It will rain."}
		a, err := leader.NewAgent(leader.AgentConfig{ID: "model", Model: m})
		if err != nil {
			t.Fatal(err)
		}
		r.add(t, a)
		r.newTeamOf(t, team.Config{ID: "routed", Scheduler: routed{}, Model: m}, "one")
		r.streaming(t, team.Config{ID: "team"}, team.Member{Agent: "model", StreamInner: true}, team.Member{Agent: "routed", StreamInner: true})
		pieces, _, v := heard(t, r, ann(t), message("team", "hi"))
		if got := of(pieces, "1"); strings.Join(got, "") != m.text || got[len(got)-1] != "" {
			t.Errorf("the model's: %q", got)
		}
		if diff := cmp.Diff([]string{"echo: hi"}, of(pieces, "2")); diff != "" {
			t.Errorf("the routed team's: %s", diff)
		}
		sameTask(t, v.task, r.get(t, v.task.GetId()))
	})
}

// TestR_002_35_EventClasses: with the extension a stream tells decisions, the
// state of delegations, members' pieces and the answer's, each with its lineage;
// each start has one end (I1).
func TestR_002_35_EventClasses(t *testing.T) {
	r := start(t, chatty("a", "one "), chatty("b", "two "))
	m := &saying{text: "All in all."}
	r.streaming(t, team.Config{ID: "team", Model: m, ReportErrors: true, Scheduler: broadcast.New(broadcast.Config{})},
		team.Member{Agent: "a", StreamInner: true}, team.Member{Agent: "b", StreamInner: true})
	updates, err := r.SendStreamingMessage(detailed(ann(t)), message("team", "hi"))
	if err != nil {
		t.Fatal(err)
	}
	classes, open := map[string]int{}, map[string]int{}
	var last int64
	for u, err := range updates {
		if err != nil {
			t.Fatal(err)
		}
		if u.Seq != 0 && u.Seq <= last {
			t.Errorf("%d comes behind %d", u.Seq, last)
		}
		last = max(last, u.Seq)
		run := project.RunOf(u.Response.GetStatusUpdate().GetMetadata())
		piece := project.RunOf(u.Response.GetArtifactUpdate().GetMetadata())
		switch {
		case piece.GetDelegationId() != "":
			classes["member"]++
		case piece != nil && piece.GetPath() == "team":
			classes["final"]++
		case run.GetDecision().GetReason() != "" && run.GetPath() == "team":
			classes["decision"]++
		case run.GetKind() == "started" && run.GetParent() != "":
			classes["delegation"]++
			open[run.GetDelegationId()]++
		case run.GetKind() == "ended" && run.GetParent() != "":
			open[run.GetDelegationId()]--
		}
	}
	for _, class := range []string{"decision", "delegation", "member", "final"} {
		if classes[class] == 0 {
			t.Errorf("nothing of class %s in %v", class, classes)
		}
	}
	for id, n := range open {
		if n != 0 {
			t.Errorf("I1: %s has %+d ends too few", id, n)
		}
	}
}

// TestDroppedIsNoFailure: who is canceled because nobody needs it has not failed.
func TestDroppedIsNoFailure(t *testing.T) {
	g := newGate("gate")
	r := start(t, echo("one"), g)
	w, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "slow", Member: "gate"}, {ID: "fast", Member: "one"},
		{ID: "end", Member: "one", After: []string{"slow", "fast"}, Join: workflow.JoinAny, Task: "end"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.newTeam(t, "team", w, "one", "gate")
	task := wantState(t, r.send(t, detailed(ann(t)), message("team", "hi")), completed)
	if got := answer(t, task); got != "echo: end" {
		t.Errorf("answer %q", got)
	}
	run := project.RunOf(task.GetMetadata())
	if len(run.GetFailedDelegations()) > 0 {
		t.Errorf("failed: %v", run.GetFailedDelegations())
	}
	if d := run.GetDelegations(); len(d) != 3 || d[0].GetOutcome() != teamv1.Outcome_OUTCOME_CANCELED {
		t.Errorf("delegations: %v", d)
	}
}
