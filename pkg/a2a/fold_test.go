package a2a_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/pkg/agent"
)

// run draws journals of a team of two members, one of them a team with a model.
type run struct {
	events []*teamv1.Event
	ended  map[string]bool
	asked  map[string]string // open questions: their scopes
}

func (r *run) add(scope string, ev *teamv1.Event) {
	ev.Seq, ev.Scope, ev.Agent = int64(len(r.events)+1), scope, "team"
	ev.Time = timestamppb.New(time.Unix(1_700_000_000, 0).Add(time.Duration(len(r.events)) * 300 * time.Microsecond))
	r.events = append(r.events, ev)
}

func (r *run) over(scope string) bool {
	for ; scope != ""; scope = agent.Parent(scope) {
		if r.ended[scope] {
			return true
		}
	}
	return r.ended[""]
}

func step(id string, kind teamv1.Step_Kind, member string) *teamv1.Step {
	return &teamv1.Step{Id: id, Kind: kind, Member: member}
}

// journalOf draws a journal.
func journalOf(t *rapid.T) []*teamv1.Event {
	r := &run{ended: map[string]bool{}, asked: map[string]string{}}
	acc := &teamv1.Accepted{TaskId: "root", Agent: "team", Message: agent.UserMessage("m", "hi")}
	acc.Message.ContextId = "c"
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: acc}})
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	steps := []*teamv1.Step{
		step("1", teamv1.Step_KIND_DELEGATE, "inner"), step("2", teamv1.Step_KIND_MODEL, ""), step("3", teamv1.Step_KIND_DELEGATE, "other"),
	}
	for _, s := range steps {
		s.Inner = teamv1.Step_Inner(rapid.IntRange(0, 2).Draw(t, "inner"))
	}
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: steps}}})
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: []*teamv1.Step{step("1", teamv1.Step_KIND_MODEL, "")}}}})
	for range rapid.IntRange(0, 60).Draw(t, "events") {
		scope := rapid.SampledFrom([]string{"", "1", "1.1", "2", "3"}).Draw(t, "scope")
		if !r.over(scope) {
			r.draw(t, scope)
		}
	}
	return r.events
}

// draw adds an event of a scope.
func (r *run) draw(t *rapid.T, scope string) {
	n := len(r.events)
	parts := agent.TextParts(fmt.Sprint("text ", n))
	m := &a2av1.Message{MessageId: fmt.Sprint("message-", n), Role: a2av1.Role_ROLE_AGENT, Parts: parts}
	artifact := fmt.Sprint("artifact-", rapid.IntRange(1, 2).Draw(t, "artifact"))
	flag := rapid.Bool().Draw(t, "flag")
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 10:
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Cancel: []string{"1"}, Joins: []string{"1", "3"}}}})
	case 0:
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 2}}})
	case 1, 2:
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: artifact, Text: "x", Restart: flag}}})
	case 3:
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{
			Artifact: &a2av1.Artifact{ArtifactId: artifact, Parts: parts}, Append: flag,
		}}})
	case 4:
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{Message: m}}})
	case 5:
		id := fmt.Sprint("question-", n)
		r.asked[id] = scope
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: id, Message: m, Kind: teamv1.Asked_KIND_INPUT}}})
	case 6:
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{}}})
	case 7:
		for id, asker := range r.asked {
			if agent.Within(asker, scope) {
				delete(r.asked, id)
				r.add(asker, &teamv1.Event{Kind: &teamv1.Event_Answered{Answered: &teamv1.Answered{Question: id, Message: m}}})
				break
			}
		}
	case 8:
		command := &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_CANCEL}
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: command}})
	case 9:
		r.ended[scope] = true
		r.add(scope, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: endedBy(t, m)}})
	}
}

func endedBy(t *rapid.T, m *a2av1.Message) *teamv1.Ended {
	switch rapid.IntRange(0, 3).Draw(t, "end") {
	case 0:
		e := agent.Errorf(agent.CodeInternal, agent.ReasonTeamError, "it broke").Proto()
		return &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: e}
	case 1:
		return &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_CANCELED}
	case 2:
		return &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_EMPTY}
	}
	return &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Result: &teamv1.Ended_Reply{Reply: m}}
}

// TestA_07_FoldOfStreamIsTask: whatever is on record, at every event a reader
// who folds what it is told has what GetTask says; and a task ends once.
func TestA_07_FoldOfStreamIsTask(t *testing.T) {
	for _, scope := range []string{"", "1", "3"} {
		t.Run("scope "+scope, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				f, applied := project.New("root", scope), project.New("root", scope)
				v := &view{}
				ends := 0
				for _, ev := range journalOf(rt) {
					responses := f.Project(ev, false)
					applied.Apply(ev)
					equal(rt, f.Task(), applied.Task())
					if v.task == nil {
						if f.Exists() {
							v.task = proto.CloneOf(f.Task())
						}
						continue
					}
					for _, resp := range responses {
						v.take(rt, feed.Update{Response: resp})
						switch resp.GetStatusUpdate().GetStatus().GetState() {
						case completed, failed, canceled:
							ends++
						}
					}
					sameTask(rt, v.task, f.Task())
				}
				if ends > 1 || f.Terminal() != (ends == 1) {
					rt.Fatalf("the task ended %d times", ends)
				}
			})
		})
	}
}

func TestFoldOfAQuestionThatLapses(t *testing.T) {
	r := &run{}
	acc := &teamv1.Accepted{TaskId: "root", Agent: "team", Message: agent.UserMessage("m", "hi")}
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: acc}})
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q", Message: agent.NewMessage("who?")}}})
	r.add("", &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: []string{"q"}}}})
	f := project.New("root", "")
	for _, ev := range r.events {
		f.Apply(ev)
	}
	wantState(t, f.Task(), inputRequired)
	r.add("1", &teamv1.Event{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: "question"}}})
	told := f.Project(r.events[len(r.events)-1], false)
	task := wantState(t, f.Task(), working)
	if q := project.RunOf(task.GetMetadata()).GetQuestions(); len(q) > 0 || len(told) != 1 {
		t.Errorf("open: %v, told: %v", q, told)
	}
}

// TestFoldKeepsNothingOfItsInput: what is told and returned may be read while
// the fold goes on.
func TestFoldKeepsNothingOfItsInput(t *testing.T) {
	f := project.New("root", "")
	events := journal(300)
	done := make(chan struct{})
	tasks := make(chan *a2av1.Task, len(events))
	go func() {
		defer close(done)
		for task := range tasks {
			if _, err := proto.Marshal(task); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, ev := range events {
		f.Apply(ev)
		tasks <- f.Task()
	}
	close(tasks)
	<-done
}
