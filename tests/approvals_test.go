package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/workflow"
	"github.com/agentteams/team-server/tests/rig"
)

// roleKeys are those of an account: ann has no role, bob and carl some; and of
// another account, whose dora has all of these roles.
func roleKeys() []*teamv1.ApiKey {
	keys := []*teamv1.ApiKey{rig.Key("acme", "ann"), rig.Key("acme", "bob"), rig.Key("acme", "carl"), rig.Key("other", "dora")}
	keys[1].Roles = []string{"approver"}
	keys[2].Roles = []string{"approver", "boss"}
	keys[3].Roles = []string{"approver", "boss", "signer"}
	return keys
}

// approvals are teams whose questions go to roles: outer asks people by itself, by
// the member inner, and by two members that are on another server.
func approvals(t *testing.T, peer rig.Target) *manager.Manager {
	t.Helper()
	return defined(t, `version: v1
agents:
  echo: {scripted: {steps: [{text: "{{input}}"}]}}
  signs: {a2a: {card: "`+peer.HTTP+`/signs"}}
  seals: {grpc: {address: "`+peer.GRPC+`", agent_id: signs}}
teams:
  inner:
    workflow:
      steps:
        - {id: draft, agent: echo}
        - {id: approve, after: [draft], human: {question: "Publish?", options: ["yes", "no"], roles: [approver]}}
  hasty:
    workflow:
      steps:
        - {id: draft, agent: echo}
        - {id: approve, after: [draft], timeout: 100ms, human: {question: "Now?", roles: [approver]}}
  outer:
    workflow:
      steps:
        - parallel:
            - {id: in, agent: inner}
            - {id: sign, agent: signs}
            - {id: seal, agent: seals}
            - {id: pay, human: {question: "Pay?", roles: [boss, accountant]}}
            - {id: who, human: {question: "Who?"}}
`, nil)
}

// signing is a server whose team asks signers; who calls it may answer.
func signing(t *testing.T) rig.Target {
	return rig.Serve(t, server.Config{Agents: defined(t, `version: v1
agents:
  echo: {scripted: {steps: [{text: "{{input}}"}]}}
teams:
  signs:
    workflow:
      steps:
        - {id: draft, agent: echo}
        - {id: sign, after: [draft], human: {question: "Sign?", roles: [signer, approver]}}
`, nil)})
}

// keyed serves agents on what a place keeps, for the callers of roleKeys.
func keyed(t *testing.T, place rig.Place, m *manager.Manager) *life {
	t.Helper()
	inner, done := place.Open(t)
	l := &life{store: faulty.New(inner), close: done}
	l.Target, l.stop = rig.Start(t, server.Config{Agents: m, Store: l.store, Settings: rig.Keys(roleKeys()...)})
	return l.as(t, "acme", "ann")
}

// as is the server as a caller sees it.
func (l *life) as(t testing.TB, account, principal string) *life {
	theirs := *l
	theirs.Target = l.As(account, principal)
	theirs.clients = rig.Clients(t, theirs.Target)
	return &theirs
}

// monitor is one of the two bindings of the monitor service as a caller has it.
func (l *life) monitor(t testing.TB, principal string, n int) rig.Monitor {
	account := "acme"
	if principal == "dora" {
		account = "other"
	}
	return rig.Monitors(t, l.As(account, principal))[n%2]
}

// inWords are questions as text, sorted: who asks what, by role or as the owner.
func inWords(t testing.TB, list []*teamv1.OpenQuestion) []string {
	t.Helper()
	out := []string{}
	for _, q := range list {
		text := q.GetQuestion().GetPath() + " " + agent.Text(&a2av1.Message{Parts: q.GetQuestion().GetMessage().GetParts()[:1]})
		if q.GetByRole() {
			text += " by role"
		}
		if q.GetByRole() == (q.GetContextId() != "") || q.GetSince() == nil || q.GetTaskId() == "" {
			t.Errorf("S-51: %v", q)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func toAsk(q *teamv1.OpenQuestion, text string) *teamv1.AnswerQuestionRequest {
	return &teamv1.AnswerQuestionRequest{TaskId: q.GetTaskId(), Question: q.GetQuestion().GetQuestion(), Answer: &teamv1.AnswerQuestionRequest_Text{Text: text}}
}

// asksAll waits until a task has so many questions and nothing else to do.
func asksAll(n int) func(*a2av1.Task) bool {
	return func(task *a2av1.Task) bool {
		return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && len(questions(task)) == n
	}
}

// TestS_51_ApprovalsByRole: what people are asked by role, also by members of members
// and on other servers, is listed to those who have it, and taken from them alone, in
// any order, over a restart.
func TestS_51_ApprovalsByRole(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		m := approvals(t, signing(t))
		one := keyed(t, place, m)
		id := one.sendNow(t, "outer", "m1", "x").GetId()
		one.until(t, id, asksAll(5))
		own := []string{"outer Pay?", "outer Who?", "outer/inner Publish?", "outer/seals Sign?", "outer/signs Sign?"}
		approver := []string{"outer/inner Publish? by role", "outer/seals Sign? by role", "outer/signs Sign? by role"}
		for n := range 2 {
			for caller, want := range map[string][]string{"ann": own, "bob": approver, "carl": append([]string{"outer Pay? by role"}, approver...), "dora": {}} {
				for _, size := range []int32{0, 1, 2, 3, 5} {
					list := answerable(t, one.monitor(t, caller, n), &teamv1.ListQuestionsRequest{PageSize: size})
					if diff := cmp.Diff(want, inWords(t, list)); diff != "" {
						t.Errorf("S-51 %s, pages of %d:\n%s", caller, size, diff)
					}
				}
			}
		}
		one.kill(place)

		two := keyed(t, place, m)
		list := answerable(t, two.monitor(t, "carl", 0), &teamv1.ListQuestionsRequest{})
		slices.SortFunc(list, func(a, b *teamv1.OpenQuestion) int {
			return strings.Compare(b.GetQuestion().GetPath(), a.GetQuestion().GetPath())
		})
		by := map[string]string{}
		for n, q := range list {
			who := "bob"
			if q.GetQuestion().GetPath() == "outer" {
				who = "carl"
			}
			by[q.GetQuestion().GetQuestion()] = "acme/" + who
			for range 2 { // the same again is taken once
				if resp, err := two.monitor(t, who, n).Answer(t.Context(), toAsk(q, "yes")); err != nil || resp.GetTask() != nil {
					t.Fatalf("S-51 %s of %s: %v, %v", who, q.GetQuestion().GetPath(), resp, err)
				}
			}
			two.until(t, id, asksAll(4-n))
			if _, err := two.monitor(t, who, n).Answer(t.Context(), toAsk(q, "yes")); err != nil {
				t.Errorf("S-51: the same answer once more: %v", err)
			}
			if _, err := two.monitor(t, who, n).Answer(t.Context(), toAsk(q, "no")); rig.Fault(err).Reason != agent.ReasonQuestionAnswered {
				t.Errorf("S-51: another answer to what is closed: %v", err)
			}
		}
		left := answerable(t, two.monitor(t, "ann", 1), &teamv1.ListQuestionsRequest{})
		if diff := cmp.Diff([]string{"outer Who?"}, inWords(t, left)); diff != "" {
			t.Fatal(diff)
		}
		if _, err := two.monitor(t, "ann", 1).Answer(t.Context(), toAsk(left[0], "me")); err != nil {
			t.Fatal(err)
		}
		task := two.until(t, id, ended)
		if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("S-51: %v", task)
		}
		by[left[0].GetQuestion().GetQuestion()] = "acme/ann"
		tr, err := two.monitor(t, "ann", 0).Trace(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		gave(tr.GetStep(), got)
		if diff := cmp.Diff(by, got); diff != "" {
			t.Errorf("S-51 who answered:\n%s", diff)
		}
		for _, who := range []string{"ann", "bob", "carl"} {
			if list := answerable(t, two.monitor(t, who, 0), &teamv1.ListQuestionsRequest{}); len(list) > 0 {
				t.Errorf("S-51: %s is still asked %v", who, list)
			}
		}
	})
}

// gave collects who answered each question of a trace.
func gave(s *teamv1.TraceStep, by map[string]string) {
	for _, q := range s.GetQuestions() {
		by[q.GetQuestion()] = q.GetBy()
	}
	for _, below := range s.GetSteps() {
		gave(below, by)
	}
}

// TestS_51_OnlyByRole: who has not the role may not answer, over any binding; the
// question stays open.
func TestS_51_OnlyByRole(t *testing.T) {
	t.Parallel()
	place := rig.Memory(t)
	l := keyed(t, place, approvals(t, signing(t)))
	id := l.sendNow(t, "inner", "m1", "x").GetId()
	l.until(t, id, asksAll(1))
	q := answerable(t, l.monitor(t, "bob", 0), &teamv1.ListQuestionsRequest{})[0]
	denied := func(what string, err error) {
		t.Helper()
		f := rig.Fault(err)
		if f.Code != "PermissionDenied" || f.Reason != agent.ReasonPermissionDenied || !strings.Contains(f.Message, "approver") {
			t.Errorf("S-51 %s: %v", what, err)
		}
	}
	for n, c := range l.clients {
		for _, named := range []map[string]any{{}, {"question": q.GetQuestion().GetQuestion()}, {"delegation_id": q.GetQuestion().GetDelegationId()}} {
			req := rig.Text("", fmt.Sprint("a", n, "-", len(named)), "yes")
			req.Message.TaskId = id
			var err error
			if req.Metadata, err = structpb.NewStruct(map[string]any{a2a.TeamRunURI: named}); err != nil {
				t.Fatal(err)
			}
			_, err = c.Send(t.Context(), req)
			denied(fmt.Sprint(c.Binding(), " ", named), err)
		}
	}
	for n := range 2 {
		_, err := l.monitor(t, "ann", n).Answer(t.Context(), toAsk(q, "yes"))
		denied("AnswerQuestion", err)
	}
	l.until(t, id, asksAll(1))
	for n := range 2 { // faults are of the fields that the request has
		unknown, odd, message := toAsk(q, "yes"), toAsk(q, "yes"), toAsk(q, "")
		unknown.Question, odd.TaskId = "q9", "no id"
		message.Answer = &teamv1.AnswerQuestionRequest_Message{Message: &a2av1.Message{Parts: agent.TextParts("perhaps")}}
		for field, req := range map[string]*teamv1.AnswerQuestionRequest{
			"text": toAsk(q, "perhaps"), "question": unknown, "taskId": odd, "message.parts": message,
		} {
			_, err := l.monitor(t, "bob", n).Answer(t.Context(), req)
			if f := rig.Fault(err); f.Reason != agent.ReasonInvalidRequest || !slices.Equal(f.Fields, []string{field}) || !strings.HasPrefix(f.Message, field+" ") {
				t.Errorf("S-51: %s: %v %v", field, f.Fields, f)
			}
		}
	}

	// The id of the delegation that asks is enough, where it asks one thing.
	req := &teamv1.AnswerQuestionRequest{TaskId: q.GetQuestion().GetDelegationId(), Answer: &teamv1.AnswerQuestionRequest_Text{Text: "no"}}
	if _, err := l.monitor(t, "bob", 0).Answer(t.Context(), req); err != nil {
		t.Errorf("S-51: %v", err)
	}
	l.until(t, id, ended)

	// An owner that has the role answers by itself.
	carls := l.as(t, "acme", "carl")
	theirs := carls.sendNow(t, "inner", "m2", "x").GetId()
	carls.until(t, theirs, asksAll(1))
	mine := rig.Text("", "a", "yes")
	mine.Message.TaskId = theirs
	resp, err := carls.clients[2].Send(t.Context(), mine)
	if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("S-51: an owner with the role: %v, %v", resp, err)
	}
}

// TestA_05_ApprovalsShowNothingElse: who answers by role is shown the question alone;
// without one nobody learns that there is a task.
func TestA_05_ApprovalsShowNothingElse(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		l := keyed(t, place, approvals(t, signing(t)))
		id := l.sendNow(t, "outer", "m1", "secret").GetId()
		l.until(t, id, asksAll(5))
		mine := answerable(t, l.monitor(t, "ann", 0), &teamv1.ListQuestionsRequest{})
		if list := answerable(t, l.monitor(t, "bob", 0), &teamv1.ListQuestionsRequest{AgentId: "inner"}); len(list) != 0 {
			t.Errorf("A-05: of another agent: %v", list)
		}
		if list := answerable(t, l.monitor(t, "bob", 0), &teamv1.ListQuestionsRequest{TaskId: id, AgentId: "outer"}); len(list) != 3 {
			t.Errorf("A-05: of the task: %v", list)
		}
		hidden := func(what string, err error) {
			t.Helper()
			if f := rig.Fault(err); f.Reason != a2aerror.ReasonTaskNotFound || strings.Contains(f.Message, "?") {
				t.Errorf("A-05 %s: %v", what, err)
			}
		}
		for _, who := range []struct{ account, principal string }{{"acme", "bob"}, {"other", "dora"}} {
			other := l.as(t, who.account, who.principal)
			for _, c := range other.clients {
				_, got := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
				req := rig.Text("", "s", "yes")
				req.Message.TaskId = id
				_, sent := c.Send(t.Context(), req)
				_, canceled := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id})
				for n, err := range []error{got, sent, canceled} {
					hidden(fmt.Sprint(who.principal, " ", c.Binding(), " ", n), err)
				}
				if tasks, err := c.List(t.Context(), &a2av1.ListTasksRequest{}); err != nil || tasks.GetTotalSize() != 0 {
					t.Errorf("A-05: %s is shown %v, %v", who.principal, tasks, err)
				}
			}
			for n := range 2 {
				monitor := l.monitor(t, who.principal, n)
				_, traced := monitor.Trace(t.Context(), id)
				hidden("trace", traced)
				for _, q := range mine {
					roles := q.GetQuestion().GetRoles()
					if who.principal == "bob" && slices.Contains(roles, "approver") {
						continue
					}
					_, err := monitor.Answer(t.Context(), toAsk(q, "yes"))
					if who.principal == "bob" { // it knows that the task asks
						if f := rig.Fault(err); f.Reason != agent.ReasonInvalidRequest || strings.Contains(f.Message, "Pay?") || strings.Contains(f.Message, "Who?") {
							t.Errorf("A-05: %v", err)
						}
						continue
					}
					hidden("answer", err)
					_, err = monitor.Questions(t.Context(), &teamv1.ListQuestionsRequest{TaskId: id})
					hidden("questions", err)
				}
			}
		}
		ours := answerable(t, l.monitor(t, "bob", 0), &teamv1.ListQuestionsRequest{TaskId: id, PageSize: 1})[0]
		with := toAsk(ours, "")
		with.Answer = &teamv1.AnswerQuestionRequest_Message{Message: &a2av1.Message{MessageId: "x", ContextId: "guessed", Parts: agent.TextParts("yes")}}
		if _, err := l.monitor(t, "bob", 0).Answer(t.Context(), with); rig.Fault(err).Reason != agent.ReasonInvalidRequest {
			t.Errorf("A-05: a context: %v", err)
		}
		with.GetMessage().ContextId, with.GetMessage().ReferenceTaskIds = "", []string{id}
		_, err := l.monitor(t, "bob", 0).Answer(t.Context(), with)
		hidden("reference", err)
		large := toAsk(ours, strings.Repeat("x", 3<<20))
		for n := range 2 {
			if _, err := l.monitor(t, "bob", n).Answer(t.Context(), large); rig.Fault(err).Reason != agent.ReasonInsufficientResources {
				t.Errorf("A-05: what is too large: %.300v", err)
			}
		}
		if resp, err := l.clients[0].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id}); err != nil || !ended(resp) {
			t.Fatalf("%v, %v", resp, err)
		}
		_, err = l.monitor(t, "bob", 0).Answer(t.Context(), toAsk(ours, "yes"))
		hidden("a task that has ended", err)
		lapsed := l.sendNow(t, "hasty", "m2", "x").GetId()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, err := range l.monitor(t, "ann", 0).WatchTask(ctx, lapsed, 0) { // until its end
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err = l.monitor(t, "bob", 0).Answer(t.Context(), &teamv1.AnswerQuestionRequest{TaskId: lapsed, Answer: &teamv1.AnswerQuestionRequest_Text{Text: "yes"}})
		hidden("a question that has lapsed", err)
		if list := answerable(t, l.monitor(t, "bob", 1), &teamv1.ListQuestionsRequest{}); len(list) > 0 {
			t.Errorf("S-51: still asked is %v", list)
		}
	})
}

// TestS_51_ApprovalsOnAnotherReplica: a question is answered at a server that does not
// drive the run, whether somebody does or it is parked.
func TestS_51_ApprovalsOnAnotherReplica(t *testing.T) {
	t.Parallel() // most of its time it waits for the other replica
	place := rig.PostgreSQL(t)
	m := approvals(t, signing(t))
	one, two := keyed(t, place, m), keyed(t, place, m)
	id := one.sendNow(t, "outer", "m1", "x").GetId()
	one.until(t, id, asksAll(5))
	var wg sync.WaitGroup
	var taken atomic.Int32
	for _, q := range answerable(t, two.monitor(t, "carl", 0), &teamv1.ListQuestionsRequest{}) {
		for n, who := range []string{"carl", "bob", "carl", "bob"} { // at once, each twice
			m := []*life{two, one}[n/2].monitor(t, who, n/2)
			wg.Go(func() {
				_, err := m.Answer(t.Context(), toAsk(q, "yes"))
				f := rig.Fault(err)
				switch {
				case err == nil:
					taken.Add(1)
				case f.Reason != agent.ReasonQuestionAnswered && (who == "carl" || q.GetQuestion().GetPath() != "outer"): // which bob is not asked
					t.Errorf("S-51 %s: %v", who, err)
				}
			})
		}
	}
	wg.Wait()
	if taken.Load() < 4 {
		t.Errorf("S-51: %d answers were taken", taken.Load())
	}
	one.until(t, id, asksAll(1))
	records, err := one.store.Events(t.Context(), runs.Key{Owner: "acme/ann", ID: id}, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]int{}
	for _, rec := range records {
		if q := rec.Event.GetAnswered().GetQuestion(); q != "" {
			answers[q]++
		}
	}
	for q, n := range answers {
		if n != 1 || len(answers) != 4 {
			t.Errorf("S-51: %d answers to %s of %d", n, q, len(answers))
		}
	}
	left := answerable(t, two.monitor(t, "ann", 1), &teamv1.ListQuestionsRequest{})
	if _, err := two.monitor(t, "ann", 0).Answer(t.Context(), toAsk(left[0], "me")); err != nil {
		t.Fatal(err)
	}
	one.until(t, id, ended)
}

// TestS_51_ApprovalsWhileOthersWork: an answer by role reaches a run that is at work,
// also from another server.
func TestS_51_ApprovalsWhileOthersWork(t *testing.T) {
	t.Parallel()
	place := rig.PostgreSQL(t)
	c := newCrew("c")
	m := c.members(t)
	s, err := workflow.New(workflow.Config{Steps: []workflow.Step{
		{ID: "approve", Human: &workflow.Human{Question: "Go?", Roles: []string{"approver"}}}, {ID: "c", Member: "c"}, {ID: "d", Member: "d", After: []string{"approve"}},
	}})
	register(t, m, "workflow", s, err, team.Member{Agent: "c"}, team.Member{Agent: "d"})
	one, two := keyed(t, place, m), keyed(t, place, m)
	asks := func(n int) func(*a2av1.Task) bool {
		return func(task *a2av1.Task) bool {
			return task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_WORKING && len(questions(task)) == n
		}
	}
	var ids []string
	for n, there := range []*life{one, two} {
		id := one.sendNow(t, "team", fmt.Sprint("m", n), "x").GetId()
		ids = append(ids, id)
		<-c.entered["c"]
		one.until(t, id, asks(1))
		q := answerable(t, there.monitor(t, "bob", n), &teamv1.ListQuestionsRequest{TaskId: id})
		if len(q) != 1 {
			t.Fatalf("S-51: bob is asked %v", q)
		}
		if _, err := there.monitor(t, "bob", n).Answer(t.Context(), toAsk(q[0], "yes")); err != nil {
			t.Fatal(err)
		}
		one.until(t, id, asks(0))
	}
	c.open("c")
	for _, id := range ids {
		if task := one.until(t, id, ended); task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("S-51: %v", task)
		}
	}
}

// TestA_15_AnsweredByRole: who comes too late with an answer by role is told who was
// first and what they said, for as long as the task is kept; who might not have answered
// is told nothing.
func TestA_15_AnsweredByRole(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		l := keyed(t, place, approvals(t, signing(t)))
		id := l.sendNow(t, "outer", "m1", "x").GetId()
		l.until(t, id, asksAll(5))
		asked := map[string]*teamv1.OpenQuestion{}
		for _, q := range answerable(t, l.monitor(t, "carl", 0), &teamv1.ListQuestionsRequest{}) {
			asked[q.GetQuestion().GetPath()] = q
		}
		publish, pay := asked["outer/inner"], asked["outer"]
		give := func(who string, q *teamv1.OpenQuestion, n int) {
			t.Helper()
			if _, err := l.monitor(t, who, n).Answer(t.Context(), toAsk(q, "yes")); err != nil {
				t.Fatal(err)
			}
		}
		give("bob", publish, 0)
		give("carl", pay, 1)
		named := func(q *teamv1.OpenQuestion) []*teamv1.AnswerQuestionRequest {
			byDelegation, child := toAsk(q, "no"), toAsk(q, "no")
			byDelegation.Question = q.GetQuestion().GetDelegationId()
			child.TaskId, child.Question = q.GetQuestion().GetDelegationId(), ""
			return []*teamv1.AnswerQuestionRequest{toAsk(q, "no"), byDelegation, child}
		}
		late := func(when string) {
			t.Helper()
			for n := range 2 {
				for i, req := range named(publish) {
					_, err := l.monitor(t, "carl", n).Answer(t.Context(), req)
					f := rig.Fault(err)
					if f == nil || f.Code != "FailedPrecondition" || f.Reason != agent.ReasonQuestionAnswered || !strings.Contains(f.Message, `acme/bob first: "yes"`) {
						t.Errorf("A-15 %s, way %d: %v", when, i, err)
					}
				}
				for _, q := range []*teamv1.OpenQuestion{publish, pay} {
					_, err := l.monitor(t, "dora", n).Answer(t.Context(), toAsk(q, "no"))
					if f := rig.Fault(err); f == nil || f.Reason != a2aerror.ReasonTaskNotFound {
						t.Errorf("A-05 %s, another account: %v", when, err)
					}
				}
				_, err := l.monitor(t, "bob", n).Answer(t.Context(), toAsk(pay, "no"))
				if f := rig.Fault(err); f == nil || f.Reason != a2aerror.ReasonTaskNotFound && f.Reason != agent.ReasonInvalidRequest || strings.Contains(f.Message, "carl") {
					t.Errorf("A-05 %s, other roles: %v", when, err)
				}
			}
		}
		l.until(t, id, asksAll(3))
		late("while the task asks something else")
		for n, path := range []string{"outer/signs", "outer/seals"} {
			give("bob", asked[path], n)
		}
		l.until(t, id, asksAll(1))
		_, err := l.monitor(t, "bob", 0).Answer(t.Context(), toAsk(pay, "no"))
		if f := rig.Fault(err); f == nil || f.Reason != a2aerror.ReasonTaskNotFound {
			t.Errorf("A-05: others are not asked any more: %v", err)
		}
		if _, err := l.clients[0].Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		l.until(t, id, ended)
		late("after the task's end")
	})
}
