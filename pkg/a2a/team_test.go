package a2a_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// through gives the message to one member after the other.
func through(members ...string) team.Scheduler {
	return plan(func(s *team.State) (team.Decision, error) {
		if s.Rounds == len(members) {
			return team.Decision{Reply: s.Last.Message, Reason: "that was the last"}, nil
		}
		d := team.Decision{
			Steps:  []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: members[s.Rounds]}},
			Reason: members[s.Rounds] + " is next", Rule: "order",
		}
		if s.Rounds == 0 {
			d.Updates = map[string]*structpb.Value{"topic": structpb.NewStringValue("weather")}
		}
		return d, nil
	})
}

func detailed(ctx context.Context) context.Context {
	return a2a.WithExtensions(ctx, project.TeamRunURI)
}

func TestTeam(t *testing.T) {
	t.Run("R-000-18 the answer is the last member's, byte for byte", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "pair", through("one", "two"), "one", "two")
		task := wantState(t, r.send(t, ann(t), message("pair", "hi")), completed)
		if got := answer(t, task); got != "echo: echo: hi" {
			t.Errorf("answer is %q", got)
		}
		v := follow(t, r.stream(t, message("pair", "hi again")))
		sameTask(t, v.task, r.get(t, v.task.GetId()))
	})
	t.Run("R-000-42 the run's context is in the metadata for who activates the extension", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "pair", through("one", "two"), "one", "two")
		id := r.send(t, ann(t), message("pair", "hi")).GetId()
		task, err := r.GetTask(detailed(ann(t)), &a2av1.GetTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		run := project.RunOf(task.GetMetadata())
		if got := run.GetContext()["topic"].GetStringValue(); got != "weather" {
			t.Errorf("context is %v", run.GetContext())
		}
		if plain := project.RunOf(r.get(t, id).GetMetadata()); len(plain.GetContext()) > 0 || len(plain.GetDelegations()) > 0 {
			t.Errorf("unasked: %v", plain)
		}
		var got []string
		for _, d := range run.GetDelegations() {
			got = append(got, fmt.Sprintf("%s %s %s %d", strings.TrimPrefix(d.GetId(), id), d.GetPath(), d.GetOutcome(), d.GetAttempts()))
		}
		if diff := cmp.Diff([]string{"~1 pair/one OUTCOME_SUCCEEDED 1", "~2 pair/two OUTCOME_SUCCEEDED 1"}, got); diff != "" {
			t.Errorf("delegations:\n%s", diff)
		}
	})
	t.Run("R-000-42 decisions are told with their reason, rule and path", func(t *testing.T) {
		r := start(t, echo("one"))
		r.newTeam(t, "solo", through("one"), "one")
		updates, err := r.SendStreamingMessage(detailed(ann(t)), message("solo", "hi"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		v := &view{}
		for u, err := range updates {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
			run := project.RunOf(u.Response.GetStatusUpdate().GetMetadata())
			switch {
			case run.GetDecision() != nil:
				got = append(got, run.GetPath()+": "+run.GetDecision().GetReason()+" ("+run.GetDecision().GetRule()+")")
			case run.GetKind() == "started" || run.GetKind() == "ended":
				got = append(got, run.GetPath()+" "+run.GetKind())
			}
		}
		want := []string{"solo started", "solo: one is next (order)", "solo/one started", "solo/one ended", "solo: that was the last ()", "solo ended"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		wantState(t, v.task, completed)
	})
	t.Run("failed delegations are told, whatever the answer claims", func(t *testing.T) {
		r := start(t, echo("one"), failing("bad", agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "out of paper")))
		r.newTeamOf(t, team.Config{ID: "pair", Scheduler: together("one", "bad"), ReportErrors: true}, "one", "bad")
		v := follow(t, r.stream(t, message("pair", "hi")))
		task := wantState(t, r.get(t, v.task.GetId()), completed)
		sameTask(t, v.task, task)
		f := project.RunOf(task.GetMetadata()).GetFailedDelegations()
		if len(f) != 1 || f[0].GetPath() != "pair/bad" || f[0].GetError().GetMessage() != "out of paper" || f[0].GetOutcome() != teamv1.Outcome_OUTCOME_FAILED {
			t.Errorf("failed delegations: %v", f)
		}
	})
	t.Run("a model's text is streamed, a router's is not", func(t *testing.T) {
		r := start(t)
		m := &saying{text: "It will rain all day."}
		a, err := leader.NewAgent(leader.AgentConfig{ID: "model", Model: m})
		if err != nil {
			t.Fatal(err)
		}
		r.add(t, a, echo("one"))
		v := &view{}
		pieces := 0
		for u, err := range r.stream(t, message("model", "x")) {
			if err != nil {
				t.Fatal(err)
			}
			v.take(t, u)
			if a := u.Response.GetArtifactUpdate(); a != nil && !a.GetLastChunk() {
				pieces++
			}
		}
		if got := answer(t, v.task); got != m.text || pieces == 0 {
			t.Errorf("answer %q after %d pieces", got, pieces)
		}
		sameTask(t, v.task, r.get(t, v.task.GetId()))
		r.newTeamOf(t, team.Config{ID: "routed", Scheduler: routed{}, Model: m}, "one")
		v = follow(t, r.stream(t, message("routed", "x")))
		if got := answer(t, v.task); got != "echo: x" {
			t.Errorf("the router's words are in the answer: %q", got)
		}
	})
}

// saying is a model that streams one text.
type saying struct{ text string }

func (*saying) Name() string { return "saying" }

func (m *saying) Generate(_ context.Context, _ *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		for _, word := range strings.SplitAfter(m.text, " ") {
			if !yield(agent.ModelChunk{Text: word}, nil) {
				return
			}
		}
		yield(agent.ModelChunk{Turn: &teamv1.Turn{Text: m.text}}, nil)
	}
}

// routed asks its model whom to ask, and asks "one".
type routed struct{ team.Base }

func (routed) Next(s *team.State) (team.Decision, error) {
	switch len(s.Steps) {
	case 0:
		return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_MODEL, Name: "route"}}}, nil
	case 1:
		return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "one"}}}, nil
	}
	return team.Decision{Reply: s.Last.Message}, nil
}

func (routed) Prompt(*team.State, *teamv1.Step) *agent.ModelRequest { return &agent.ModelRequest{} }

func TestS_51_ChildTasks(t *testing.T) {
	t.Run("a delegation is a task by its id", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g, echo("next"))
		r.newTeam(t, "team", through("gate", "next"), "gate", "next")
		root := r.send(t, ann(t), atOnce(message("team", "hi")))
		<-g.entered
		child := wantState(t, r.get(t, root.GetId()+"~1"), working)
		if child.GetId() != root.GetId()+"~1" || child.GetContextId() != root.GetContextId() {
			t.Errorf("child is %v", child)
		}
		if diff := cmp.Diff([]string{"hi"}, texts(child.GetHistory())); diff != "" {
			t.Errorf("history:\n%s", diff)
		}
		updates := r.subscribe(t, child.GetId(), 0)
		g.open()
		v := follow(t, updates)
		done := wantState(t, r.get(t, child.GetId()), completed)
		sameTask(t, v.task, done)
		if got := answer(t, done); got != "through: hi" {
			t.Errorf("the child's answer is %q", got)
		}
		wantState(t, r.until(t, root.GetId(), completed), completed)
		next := wantState(t, r.get(t, root.GetId()+"~2"), completed)
		if diff := cmp.Diff([]string{"through: hi"}, texts(next.GetHistory())); diff != "" {
			t.Errorf("history of the next:\n%s", diff)
		}
		for _, task := range r.list(t, &a2av1.ListTasksRequest{}).GetTasks() {
			if strings.Contains(task.GetId(), "~") {
				t.Errorf("a child is listed: %v", task)
			}
		}
	})
	t.Run("the tenant of a child is its own agent or the root's", func(t *testing.T) {
		r := start(t, echo("one"), echo("two"))
		r.newTeam(t, "team", through("one", "two"), "one", "two")
		id := r.send(t, ann(t), message("team", "hi")).GetId() + "~2"
		for tenant, ok := range map[string]bool{"": true, "team": true, "two": true, "one": false} {
			_, err := r.GetTask(ann(t), &a2av1.GetTaskRequest{Tenant: tenant, Id: id})
			if (err == nil) != ok {
				t.Errorf("tenant %q: %v", tenant, err)
			}
		}
		_, err := r.GetTask(bob(t), &a2av1.GetTaskRequest{Id: id})
		wantError(t, err, a2aerror.ReasonTaskNotFound)
	})
	t.Run("cancel of a child ends the child alone", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g, echo("other"))
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("gate", "other"), ReportErrors: true}, "gate", "other")
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		id := root + "~1"
		task, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, task, canceled)
		r.until(t, root, completed)
		wantState(t, r.get(t, root+"~2"), completed)
	})
	t.Run("S-24 cancel of the root ends all", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g, echo("never"))
		r.newTeamOf(t, team.Config{ID: "inner", Scheduler: through("gate", "never")}, "gate", "never")
		r.newTeamOf(t, team.Config{ID: "outer", Scheduler: through("inner")}, "inner")
		root := r.send(t, ann(t), atOnce(message("outer", "hi"))).GetId()
		<-g.entered
		if _, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: root}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{root, root + "~1", root + "~1.1"} {
			wantState(t, r.get(t, id), canceled)
		}
	})
	t.Run("what was decided and never began ends with the root", func(t *testing.T) {
		g := newGate("gate")
		r := start(t, g, echo("other"))
		limits := &teamv1.Limits{MaxParallel: new(int32(1))}
		r.newTeamOf(t, team.Config{ID: "team", Scheduler: together("gate", "other"), Limits: limits}, "gate", "other")
		root := r.send(t, ann(t), atOnce(message("team", "hi"))).GetId()
		<-g.entered
		wantState(t, r.get(t, root+"~2"), submitted)
		updates := r.subscribe(t, root+"~2", 0)
		if _, err := r.CancelTask(ann(t), &a2av1.CancelTaskRequest{Id: root}); err != nil {
			t.Fatal(err)
		}
		wantState(t, follow(t, updates).task, canceled)
		wantState(t, r.get(t, root+"~2"), canceled)
	})
}

func TestQuestionsOfSeveralMembers(t *testing.T) {
	begin := func(t *testing.T) (*rig, *a2av1.Task, []*teamv1.Question) {
		t.Helper()
		r := start(t, script(t, "left", ask("left?"), say("L:{{answer}}")), script(t, "right", ask("right?"), say("R:{{answer}}")))
		r.newTeam(t, "team", together("left", "right"), "left", "right")
		task := wantState(t, r.send(t, ann(t), message("team", "go")), inputRequired)
		q := project.RunOf(task.GetMetadata()).GetQuestions()
		if len(q) != 2 {
			t.Fatalf("open questions: %v", q)
		}
		slices.SortFunc(q, func(a, b *teamv1.Question) int { return strings.Compare(a.GetPath(), b.GetPath()) })
		if q[0].GetPath() != "team/left" || q[0].GetDelegationId() != task.GetId()+"~1" {
			t.Fatalf("question is %v", q[0])
		}
		return r, task, q
	}
	finish := func(t *testing.T, r *rig, task *a2av1.Task, req *a2av1.SendMessageRequest) {
		t.Helper()
		wantState(t, task, inputRequired)
		if q := project.RunOf(task.GetMetadata()).GetQuestions(); len(q) != 1 {
			t.Fatalf("open questions: %v", q)
		}
		done := wantState(t, r.send(t, ann(t), req), completed)
		if got := answer(t, done); !strings.Contains(got, "L:l") || !strings.Contains(got, "R:r") {
			t.Errorf("answer is %q", got)
		}
	}
	t.Run("without a name it is not clear which one is meant", func(t *testing.T) {
		r, task, q := begin(t)
		_, err := r.SendMessage(ann(t), reply(task.GetId(), "?"))
		wantError(t, err, agent.ReasonInvalidRequest)
		for _, q := range q {
			if !strings.Contains(err.Error(), q.GetQuestion()) {
				t.Errorf("the error does not list %s: %v", q.GetQuestion(), err)
			}
		}
		if diff := cmp.Diff([]string{"go"}, texts(r.get(t, task.GetId()).GetHistory())); diff != "" {
			t.Errorf("something was consumed:\n%s", diff)
		}
	})
	t.Run("by question", func(t *testing.T) {
		r, task, q := begin(t)
		task = r.send(t, ann(t), about(reply(task.GetId(), "r"), "question", q[1].GetQuestion()))
		finish(t, r, task, reply(task.GetId(), "l"))
	})
	t.Run("by delegation", func(t *testing.T) {
		r, task, q := begin(t)
		task = r.send(t, ann(t), about(reply(task.GetId(), "r"), "delegationId", q[1].GetDelegationId()))
		finish(t, r, task, reply(task.GetId(), "l"))
	})
	t.Run("by the task of the one that asks", func(t *testing.T) {
		r, task, q := begin(t)
		child := wantState(t, r.get(t, q[1].GetDelegationId()), inputRequired)
		wantState(t, r.send(t, ann(t), reply(child.GetId(), "r")), completed)
		task = r.until(t, task.GetId(), inputRequired)
		finish(t, r, task, reply(task.GetId(), "l"))
		_, err := r.SendMessage(ann(t), reply(child.GetId(), "more"))
		wantError(t, err, a2aerror.ReasonUnsupportedOperation)
	})
}

// A question with options takes nothing else, and the refusal consumes nothing.
func TestA_23_AnswerIsOneOfTheOptions(t *testing.T) {
	r := start(t)
	r.newTeamOf(t, team.Config{ID: "team", Scheduler: plan(func(s *team.State) (team.Decision, error) {
		if len(s.Steps) == 0 {
			return team.Decision{Steps: []*teamv1.Step{{
				Kind: teamv1.Step_KIND_HUMAN, Ask: &teamv1.Ask{Question: "Publish?", Options: []string{"yes", "no"}},
			}}}, nil
		}
		return team.Decision{Reply: s.Steps[0].Message}, nil
	})})
	id := wantState(t, r.send(t, ann(t), message("team", "hi")), a2av1.TaskState_TASK_STATE_INPUT_REQUIRED).GetId()
	_, err := r.SendMessage(ann(t), reply(id, "maybe"))
	wantFields(t, err, "message.parts")
	wantState(t, r.get(t, id), a2av1.TaskState_TASK_STATE_INPUT_REQUIRED)
	if got := answer(t, wantState(t, r.send(t, ann(t), reply(id, " yes ")), completed)); got != " yes " {
		t.Errorf("the answer is %q", got)
	}
}
