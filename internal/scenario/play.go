package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/inputs"
)

// Result is the result of running a scenario.
type Result struct {
	*Scenario
	// Failures are the expectations that were not met; the scenario passed if the list is empty.
	Failures []Failure
	// Took is the duration of the scenario.
	Took time.Duration
	// Runs holds the run of each message.
	Runs []Run
	// Unchecked are the keys of expectations that were not checked, because what a real model says differs each time.
	Unchecked []string
	// NotPlayed says why the scenario was not played; "" if it was.
	NotPlayed string

	others *teamv1.Spent // what tasks have cost that the runs have begun, with real models
}

// Spent returns what the runs have cost, and with real models the tasks that they have begun.
func (r *Result) Spent() *teamv1.Spent {
	sum := r.others
	for _, run := range r.Runs {
		sum = agent.AddSpent(sum, run.spent)
	}
	return sum
}

// Run is the run that a message started.
type Run struct {
	// Task is the id of the task.
	Task string
	// Events are the recorded events of the run.
	Events []*teamv1.Event

	spent *teamv1.Spent
}

var errTimeout = errors.New("scenario timeout")

// Play runs a scenario with agents and a store of its own. It returns an error if these cannot be
// set up; all other problems are failures in the result. It is safe for concurrent use.
func (s *Scenario) Play(ctx context.Context, log *zap.Logger) (*Result, error) {
	return s.PlayAt(ctx, Place{}, log)
}

// PlayAt is Play at a place.
func (s *Scenario) PlayAt(ctx context.Context, at Place, log *zap.Logger) (*Result, error) {
	return s.play(ctx, at, 0, log)
}

// play is PlayAt with the most that the scenario may cost, in millionths of a USD; 0 means any amount.
func (s *Scenario) play(ctx context.Context, at Place, most int64, log *zap.Logger) (*Result, error) {
	var st *stage
	def, err := s.def.Only(s.Team)
	if err == nil {
		st, err = newStage(def, at, log)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %q: %w", s.File.Path, s.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	began := time.Now()
	p := &play{Scenario: s, stage: st, result: &Result{Scenario: s}, conversation: uuid.NewString(), most: most}
	err = st.play(ctx, func(ctx context.Context) error {
		if p.real {
			defer p.stopOthers(ctx)
		}
		return p.turns(ctx)
	})
	p.result.Took = time.Since(began)
	if err != nil {
		return nil, fmt.Errorf("%s, %q: %w", s.File.Path, s.Name, err)
	}
	return p.result, nil
}

// play is the state of a running scenario. It is not safe for concurrent use.
type play struct {
	*Scenario
	stage        *stage
	result       *Result
	conversation string
	most         int64 // millionths of a USD; 0 means any amount
}

// turns runs the turns in order, until one fails.
func (p *play) turns(ctx context.Context) error {
	for i := range p.Scenario.turns {
		j := &judge{record: newRecord(), scenario: p.Scenario, turn: &p.Scenario.turns[i]}
		if len(p.Scenario.turns) > 1 {
			j.prefix = fmt.Sprintf("message %d: ", i+1)
		}
		err := p.turn(ctx, j)
		late := err != nil && errors.Is(context.Cause(ctx), errTimeout)
		spent := j.Top.Spent()
		if p.real && (late || err != nil && j.Root != "") {
			spent = p.stop(ctx, j.record)
		}
		p.result.Runs = append(p.result.Runs, Run{j.Root, j.events, spent})
		switch {
		case late:
			j.failf(nil, j.ending(), "the scenario has not ended after %s (timeout)", p.timeout)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			j.failf(nil, "", "the message was refused: %s", err)
		case p.real && i+1 < len(p.Scenario.turns) && p.others(ctx, false) != nil: // the next message may cost what is left then
			j.failf(nil, "", "the tasks that it has begun have not ended after %s (timeout)", p.timeout)
		default:
			j.all()
			p.result.Unchecked = append(p.result.Unchecked, j.unchecked()...)
		}
		if p.result.Failures = append(p.result.Failures, j.failures...); len(j.failures) > 0 {
			return nil
		}
	}
	return nil
}

// stopWait is how long a run that is canceled has for its end.
const stopWait = 10 * time.Second

// stop cancels a run, so that its calls of models cost nothing more, and returns what it has cost: what its end says, and
// without an end all that it was allowed to.
func (p *play) stop(ctx context.Context, r *record) *teamv1.Spent {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	c, err := p.stage.local.Handler().Cancel(ctx, &teamv1.CancelRequest{AgentId: p.Team, TaskId: r.Root})
	if err == nil && taskstate.Final(c.GetState()) {
		return c.GetSpent()
	}
	known := r.Top.Spent()
	return agent.AddSpent(known, &teamv1.Spent{CostMicros: max(p.left()-known.GetCostMicros(), 0), Estimated: true})
}

// left returns what the next run may cost, in millionths of a USD; 0 if most is 0.
func (p *play) left() int64 { return max(p.most-p.result.Spent().GetCostMicros(), 0) }

// turn sends a message and answers the questions of the run, as long as there are answers.
func (p *play) turn(ctx context.Context, j *judge) error {
	req := &teamv1.ProcessRequest{AgentId: p.Team, ContextId: p.conversation, Message: agent.UserMessage(uuid.NewString(), j.turn.GetSend())}
	if j.turn.GetSend() == "" {
		req.Message.Parts = nil
	}
	req.Message.Parts = append(req.GetMessage().GetParts(), j.turn.parts...)
	if p.most > 0 {
		left := float64(p.left()) / 1e6
		req.Envelope = &teamv1.Limits{MaxCost: &left}
	}
	if len(p.inputs) > 0 {
		req.Message.Parts = append(req.GetMessage().GetParts(), inputs.Part(p.inputs))
	}
	answers := j.turn.GetAnswers()
	for {
		if err := p.collect(ctx, j.record, req); err != nil {
			return err
		}
		if j.Top.End != nil || len(j.Questions("")) == 0 {
			break
		}
		if len(answers) == 0 {
			return nil
		}
		req = &teamv1.ProcessRequest{
			AgentId: p.Team, TaskId: j.Root, Question: j.Questions("")[0].ID(), Message: agent.UserMessage(uuid.NewString(), answers[0]),
		}
		answers = answers[1:]
	}
	if len(answers) > 0 && !p.real { // a real model may not ask
		j.failures = append(j.failures, Failure{
			File: p.File.Path, Line: p.File.doc.Line(append(j.turn.path[:len(j.turn.path):len(j.turn.path)], "answers")...),
			Message: fmt.Sprintf("%sunused answer %s", j.prefix, quoted(answers[0])),
		})
	}
	return nil
}

// collect records the events of a call until the run has ended or waits for an answer.
func (p *play) collect(ctx context.Context, r *record, req *teamv1.ProcessRequest) error {
	defer r.settle()
	for resp, err := range p.stage.process(ctx, req, r.Seq) {
		if err != nil {
			return err
		}
		r.add(resp.GetTaskId(), resp.GetEvent())
	}
	return context.Cause(ctx)
}
