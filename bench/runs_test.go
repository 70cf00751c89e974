package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// job is a run of an agent, over and over, with the answer that has to come of it.
type job struct {
	agent   agent.Agent
	input   string
	history []*a2av1.Message // that the caller hands over
	answer  string
}

// check finds out whether a run has come to its end.
func (j job) check(m *a2av1.Message) error {
	if got := agent.Text(m); got != j.answer {
		return fmt.Errorf("the run ended with %q, want %q", got, j.answer)
	}
	return nil
}

// loop runs the agent as a library does, with a slice for a journal.
func (j job) loop() call {
	return func(ctx context.Context, _ int64) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ctx = agent.With(ctx, &agent.Run{Root: uuid.NewString(), Committer: func(ctx context.Context) error { return ctx.Err() }})
		var journal []*teamv1.Event
		var m *a2av1.Message
		req := &teamv1.ProcessRequest{AgentId: "bench", Message: agent.UserMessage("input", j.input), History: j.history}
		for ev, err := range j.agent.Process(ctx, req) {
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

// store drives the agent as the server does, with the journal of the store in
// memory, which keeps the last run besides.
func (j job) store() call {
	s := store.NewMemory(store.MemoryConfig{MaxFinished: 1})
	r := &a2a.Runner{Agent: func(string) (agent.Agent, error) { return j.agent, nil }, Replica: "bench"}
	return func(ctx context.Context, _ int64) error {
		return j.drive(ctx, s, r, nil)
	}
}

// drive makes a task of the agent and drives it to its end.
func (j job) drive(ctx context.Context, s *store.Memory, r *a2a.Runner, c *teamv1.Conversation) error {
	id := uuid.NewString()
	accepted := &teamv1.Accepted{TaskId: id, Agent: "bench", Owner: owner, Message: agent.UserMessage("input", j.input), Conversation: c}
	if _, _, err := s.Create(ctx, a2a.New{Owner: owner, Accepted: accepted, MessageID: id}); err != nil {
		return err
	}
	claims, _, err := s.Claim(ctx, "bench", 1)
	if err != nil || len(claims) != 1 {
		return fmt.Errorf("%d claims: %w", len(claims), err)
	}
	park, err := r.Drive(ctx, claims[0])
	if err = errors.Join(err, s.Park(ctx, claims[0], park)); err != nil {
		return err
	}
	task, _, err := s.Task(ctx, a2a.Key{Owner: owner, ID: id})
	if err != nil {
		return err
	}
	if len(task.GetArtifacts()) == 0 {
		return fmt.Errorf("the run ended %s: %s", task.GetStatus().GetState(), agent.Text(task.GetStatus().GetMessage()))
	}
	return j.check(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()})
}

// owner of all runs.
const owner = "bench/bench"

// registry finds agents by id; all of them are well.
type registry map[string]agent.Agent

func (r registry) Agent(id string) (agent.Agent, error) {
	if a, ok := r[id]; ok {
		return a, nil
	}
	return nil, agent.Errorf(agent.CodeNotFound, agent.ReasonAgentNotFound, "there is no agent %q", id)
}
func (r registry) Health(string) *teamv1.Health { return agent.Healthy() }
