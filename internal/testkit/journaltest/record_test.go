package journaltest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

// owner is who sends the messages.
const owner = "acme/ann"

// record plays a scenario and returns what is on record then.
func record(t *testing.T, s scenario) (events []*teamv1.Event) {
	play := func(t *testing.T) {
		c := newCast(t, false)
		s.agents(c)
		r := &recorder{T: t, agents: c.Manager, store: memstore.Open(t), wired: s.wired}
		r.serve()
		story := s.story
		if story == nil {
			story = answerAll
		}
		id := story(r)
		r.stop()
		c.Close()
		events = r.events(id)
	}
	if s.wired {
		play(t)
	} else {
		synctest.Test(t, play)
	}
	return events
}

// answerAll sends a message and answers what is asked, the first question first.
func answerAll(r *recorder) string {
	id := r.send("", "tides", false)
	for i := 1; i < 10; i++ {
		task := r.get(id)
		q := project.RunOf(task.GetMetadata()).GetQuestions()
		if len(q) == 0 {
			return id
		}
		req := r.request(id, answerTo(q[0].GetMessage()))
		req.Metadata = about("question", q[0].GetQuestion())
		r.take(req)
	}
	r.Fatal("there is no end of questions")
	return ""
}

// answerTo is the answer to a question.
func answerTo(question *a2av1.Message) string {
	for _, p := range question.GetParts() {
		if options := p.GetData().GetStructValue().GetFields()["options"].GetListValue().GetValues(); len(options) > 0 {
			return options[0].GetStringValue()
		}
	}
	return "yes to " + agent.Text(question)
}

// recorder serves a scenario on a store in memory.
type recorder struct {
	*testing.T
	*a2a.Handler
	agents *manager.Manager
	store  *sqlstore.Store
	wired  bool
	sent   int
	stop   func()
}

func (r *recorder) serve() {
	e := engine.New(engine.Config{Leases: r.store, Replica: "golden"})
	runner := &drive.Runner{Agent: r.agents.Get}
	r.Handler = a2a.NewHandler(a2a.Config{Agents: r.agents, Store: r.store, Wake: e.Wake, Version: "golden"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, runner.Drive) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			r.Error(err)
		}
	}
}

// restart stops serving and begins again.
func (r *recorder) restart() {
	r.stop()
	r.serve()
	r.settle()
}

// settle waits until nothing more happens by itself.
func (r *recorder) settle() { synctest.Wait() }

func (r *recorder) ctx() context.Context {
	return identity.WithCaller(context.Background(), identity.Caller{Account: "acme", Principal: "ann"})
}

func (r *recorder) request(task, text string) *a2av1.SendMessageRequest {
	r.sent++
	req := &a2av1.SendMessageRequest{Message: agent.UserMessage(fmt.Sprint("m-", r.sent), text)}
	if task == "" {
		req.Tenant = "root"
	}
	req.Message.TaskId = task
	return req
}

// take sends a request and returns the task's id.
func (r *recorder) take(req *a2av1.SendMessageRequest) string {
	r.Helper()
	resp, err := r.SendMessage(r.ctx(), req)
	if err != nil {
		r.Fatal(err)
	}
	if resp.GetTask() == nil { // answered with a message: the only run there is
		return r.only()
	}
	return resp.GetTask().GetId()
}

func (r *recorder) send(task, text string, atOnce bool) string {
	r.Helper()
	req := r.request(task, text)
	req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: atOnce}
	return r.take(req)
}

// only is the run of the last message, which is no task.
func (r *recorder) only() string {
	root, err := r.store.Sent(r.ctx(), owner, "root", fmt.Sprint("m-", r.sent))
	if err != nil {
		r.Fatal(err)
	}
	return root
}

func (r *recorder) get(id string) *a2av1.Task {
	task, err := r.GetTask(r.ctx(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		return &a2av1.Task{Id: id} // no task
	}
	return task
}

func (r *recorder) cancel(id string) {
	r.Helper()
	if _, err := r.CancelTask(r.ctx(), &a2av1.CancelTaskRequest{Id: id}); err != nil {
		r.Fatal(err)
	}
}

// end waits for the end of a task.
func (r *recorder) end(id string) string {
	r.Helper()
	updates, err := r.SubscribeToTask(r.ctx(), &a2av1.SubscribeToTaskRequest{Id: id}, 0)
	if err != nil { // it has ended
		return id
	}
	for _, err := range updates {
		if err != nil {
			r.Fatal(err)
		}
	}
	return id
}

// events is what is on record.
func (r *recorder) events(id string) []*teamv1.Event {
	r.Helper()
	records, err := r.store.Events(r.ctx(), runs.Key{Owner: owner, ID: id}, 0, 10_000)
	if err != nil {
		r.Fatal(err)
	}
	events := make([]*teamv1.Event, len(records))
	for i, rec := range records {
		events[i] = rec.Event
	}
	if last := events[len(events)-1]; last.GetEnded() == nil || last.GetScope() != "" {
		r.Fatalf("the run has not ended: %v", last)
	}
	return events
}

// about names something in a request's metadata.
func about(field, value string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{project.TeamRunURI: structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{field: structpb.NewStringValue(value)},
	})}}
}
