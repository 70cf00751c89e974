package measure

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/engine/drive"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/memstore"
	"github.com/agentteams/team-server/pkg/agent"
)

// Job is a run of an agent that is measured many times.
type Job struct {
	Agent   agent.Agent
	Input   string
	History []*a2av1.Message // earlier messages of the conversation, for Loop only
	Answer  string           // expected text of the answer
}

// check returns an error if m is not the expected answer.
func (j Job) check(m *a2av1.Message) error {
	if got := agent.Text(m); got != j.Answer {
		return fmt.Errorf("the run ended with %q, want %q", got, j.Answer)
	}
	return nil
}

// Loop returns a Call that runs the agent without a server, with a slice as the journal.
func (j Job) Loop() Call {
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ctx = agent.With(ctx, &agent.Run{Root: uuid.NewString(), Committer: func(ctx context.Context) error { return ctx.Err() }})
		var journal []*teamv1.Event
		var m *a2av1.Message
		req := &teamv1.ProcessRequest{AgentId: "bench", Message: agent.UserMessage("input", j.Input), History: j.History}
		for ev, err := range j.Agent.Process(ctx, req) {
			if err != nil {
				return err
			}
			journal = append(journal, ev)
			ev.Seq, ev.Time = int64(len(journal)), timestamppb.Now()
			if ev.GetScope() == "" && ev.GetReply() != nil {
				m = ev.GetReply().GetMessage()
			}
		}
		return j.check(m)
	}
}

// Store returns a Call that drives the agent as the server does, with the journal in a
// store in memory, which is closed at the end of the test.
func (j Job) Store(t testing.TB) Call {
	s := memstore.Open(t)
	r := &drive.Runner{Agent: func(string) (agent.Agent, error) { return j.Agent, nil }, Replica: "bench"}
	return func(ctx context.Context, _ int64) error {
		return j.Drive(ctx, s, r, nil)
	}
}

// Drive creates a task for the agent in s, drives it to its end with r, and checks the
// answer. c is the earlier conversation; nil means none. There must be no other task to
// claim in s.
func (j Job) Drive(ctx context.Context, s *sqlstore.Store, r *drive.Runner, c *teamv1.Conversation) error {
	id := uuid.NewString()
	accepted := &teamv1.Accepted{TaskId: id, Agent: "bench", Owner: Owner, Message: agent.UserMessage("input", j.Input), Conversation: c}
	if _, _, err := s.Create(ctx, runs.New{Owner: Owner, Accepted: accepted, MessageID: id}); err != nil {
		return err
	}
	claims, _, err := s.Claim(ctx, "bench", engine.NewRoom(1, nil))
	if err != nil || len(claims) != 1 {
		return fmt.Errorf("%d claims: %w", len(claims), err)
	}
	park, err := r.Drive(ctx, claims[0])
	_, parked := s.Park(ctx, claims[0], park)
	if err = errors.Join(err, parked); err != nil {
		return err
	}
	task, _, err := s.Task(ctx, runs.Key{Owner: Owner, ID: id})
	if err != nil {
		return err
	}
	if len(task.GetArtifacts()) == 0 {
		return fmt.Errorf("the run ended %s: %s", task.GetStatus().GetState(), agent.Text(task.GetStatus().GetMessage()))
	}
	return j.check(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()})
}

// Owner is the owner of all runs.
const Owner = "bench/bench"

// Registry holds agents by id. It reports every agent as healthy.
type Registry map[string]agent.Agent

// Agent returns the agent with the id, or the error NOT_FOUND.
func (r Registry) Agent(id string) (agent.Agent, error) {
	if a, ok := r[id]; ok {
		return a, nil
	}
	return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is no agent %q", id)
}

// Health returns Well for every id. Like a manager, it returns the same message to all
// callers.
func (r Registry) Health(string) *teamv1.Health { return Well }

// Well is the health that Registry reports for every agent.
var Well = agent.Healthy()
