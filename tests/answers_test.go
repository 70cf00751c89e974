package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// TestA_15_OneAnswerToAQuestion has a question answered on every way at the same
// moment: one answer is acknowledged, the others are told which.
func TestA_15_OneAnswerToAQuestion(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		m := defined(t, `version: v1
agents:
  echo: {scripted: {steps: [{text: "{{input}}"}]}}
teams:
  asks:
    workflow:
      steps:
        - {id: ask, human: {question: "Really?"}}
        - {id: hold, after: [ask], human: {question: "Anything else?"}}
`, nil)
		servers := []*life{keyed(t, place, m)}
		if place.Name == "postgres" { // replicas
			servers = append(servers, keyed(t, place, m))
		}
		for round := range 20 {
			id := servers[0].sendNow(t, "asks", fmt.Sprint("m", round), "x").GetId()
			servers[0].until(t, id, asksAll(1))
			first := answerable(t, servers[0].monitor(t, "ann", 0), &teamv1.ListQuestionsRequest{TaskId: id})[0]
			ways := waysToAnswer(t, servers, first, round)
			var wg sync.WaitGroup
			errs := make([]error, len(ways))
			for i, give := range ways {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					errs[i] = give(ctx, fmt.Sprintf("answer %d", i))
				})
			}
			wg.Wait()
			taken := -1
			for i, err := range errs {
				if err == nil && taken >= 0 {
					t.Fatalf("answers %d and %d were both acknowledged", taken, i)
				} else if err == nil {
					taken = i
				}
			}
			words := fmt.Sprintf("answer %d", taken)
			for i, err := range errs {
				if i == taken {
					continue
				}
				f := rig.Fault(err)
				if f == nil || f.Code != "FailedPrecondition" || f.Reason != agent.ReasonQuestionAnswered || !strings.Contains(f.Message, "acme/ann") || !strings.Contains(f.Message, words) {
					t.Fatalf("answer %d: %v, want a refusal that tells %q by acme/ann", i, err, words)
				}
			}
			servers[0].until(t, id, func(task *a2av1.Task) bool {
				return slices.ContainsFunc(task.GetHistory(), func(m *a2av1.Message) bool { return agent.Text(m) == words })
			})
		}
	})
}

// waysToAnswer are all calls that answer a question, on each server.
func waysToAnswer(t *testing.T, servers []*life, q *teamv1.OpenQuestion, round int) []func(context.Context, string) error {
	t.Helper()
	var ways []func(context.Context, string) error
	for n, l := range servers {
		for i, c := range append(slices.Clone(l.clients), rig.ClientsV03(t, l.Target)...) {
			ways = append(ways, func(ctx context.Context, text string) error {
				req := rig.Text("asks", fmt.Sprintf("a-%d-%d-%d", round, n, i), text)
				req.Message.TaskId = q.GetTaskId()
				req.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{a2a.TeamRunURI: structpb.NewStructValue(&structpb.Struct{
					Fields: map[string]*structpb.Value{"question": structpb.NewStringValue(q.GetQuestion().GetQuestion())},
				})}}
				_, err := c.Send(ctx, atOnce(req))
				return err
			})
		}
		for i := range 2 {
			ways = append(ways, func(ctx context.Context, text string) error {
				_, err := l.monitor(t, "ann", i).Answer(ctx, toAsk(q, text))
				return err
			})
		}
	}
	return ways
}
