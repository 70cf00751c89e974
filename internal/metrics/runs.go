package metrics

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// Runs measures the runs that this process drives, from the events that it appends to their journals. An
// event counts when it is appended. If the process ends before the event is durable, the next owner of
// the run appends it again, and it counts there as well.
type Runs struct {
	active                                                               metric.Int64UpDownCounter
	claimed, started, ended, steps, attempts, retries, questions, limits metric.Int64Counter
	tokens, modelCalls, modelFailures, toolCalls                         metric.Int64Counter
	money                                                                metric.Float64Counter
	duration                                                             metric.Float64Histogram

	byAgent, byAgentOutcome, byOutcome, byEvent, byLimit, byKind, byModel *labels
	agents, models                                                        *names
	named                                                                 func(agentID string) bool
	store                                                                 *Store
}

// NewRuns returns the instruments of a meter, or nil if m is nil. named reports whether an agent may be named;
// nil means each. Others are Other, as are those beyond the first hundred. Commits are measured with s.
func NewRuns(m metric.Meter, named func(agentID string) bool, s *Store) (*Runs, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no metrics
	}
	i := &instruments{Meter: m}
	r := &Runs{
		active:        i.upDown("team_server.runs.active", "{run}", "Runs that this replica drives at the moment."),
		claimed:       i.total("team_server.runs.claimed", "{run}", "Claims of runs by this replica; a run that waits is claimed again when it continues."),
		started:       i.counter("team_server.runs.started", "{run}", "Runs that have started."),
		ended:         i.counter("team_server.runs.ended", "{run}", "Runs that have ended."),
		duration:      i.seconds("team_server.run.duration", "Time from the message that began a task to its end, including waits.", .01, .1, 1, 10, 60, 600, 3600, 86400),
		steps:         i.counter("team_server.steps.ended", "{step}", "Steps of runs that have ended: work of members, models and tools."),
		attempts:      i.total("team_server.attempts", "{attempt}", "Attempts of steps that have started."),
		retries:       i.total("team_server.retries", "{attempt}", "Attempts of steps that have failed and are followed by another."),
		questions:     i.counter("team_server.questions", "{question}", "Questions to people, by what happened to them."),
		limits:        i.counter("team_server.budgets.hit", "{step}", "Runs and steps that ended because of a budget or another limit on what runs may use."),
		tokens:        i.counter("team_server.tokens", "{token}", "Tokens of models, as in the costs of the server."),
		money:         i.money("team_server.cost.usd", "Costs in USD, as in the costs of the server."),
		modelCalls:    i.counter("team_server.model.calls", "{call}", "Calls of models that have used tokens or may have, as in the costs of the server."),
		modelFailures: i.counter("team_server.model.failures", "{attempt}", "Attempts of steps to call a model that have failed."),
		toolCalls:     i.total("team_server.tool.calls", "{call}", "Calls of tools."),
		byAgent:       newLabels("agent"), byAgentOutcome: newLabels("agent", "outcome"), byOutcome: newLabels("outcome"), byEvent: newLabels("event"),
		byLimit: newLabels("limit", "level"), byKind: newLabels("model", "kind"), byModel: newLabels("model"),
		agents: newNames(maxAgents), models: newNames(maxModels), named: named, store: s,
	}
	if err := i.err(); err != nil {
		return nil, err
	}
	for _, event := range []string{"asked", "answered", "expired"} {
		r.byEvent.begin(r.questions, event)
	}
	for _, limit := range limitsOf(runLimits) {
		r.byLimit.begin(r.limits, limit, levelRun)
		r.byLimit.begin(r.limits, limit, levelStep)
	}
	return r, nil
}

// Levels of what ended because of a limit.
const (
	levelRun  = "run"
	levelStep = "step"
)

func (i *instruments) money(name, text string) metric.Float64Counter {
	c, err := i.Float64Counter(name, metric.WithDescription(text))
	i.errs = append(i.errs, err)
	return c
}

// Driving returns drive with the measurement of what it appends.
func (r *Runs) Driving(drive func(context.Context, runs.Claim) (runs.Park, error)) func(context.Context, runs.Claim) (runs.Park, error) {
	if r == nil {
		return drive
	}
	return func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		r.claimed.Add(ctx, 1)
		r.active.Add(ctx, 1)
		defer r.active.Add(ctx, -1)
		c.Journal = &measured{Journal: c.Journal, runs: r, book: cost.NewBook(identity.AccountOf(c.Owner)), calling: map[string]string{}}
		return drive(ctx, c)
	}
}

// measured is a journal whose appended events are measured.
type measured struct {
	runs.Journal
	runs *Runs

	mu       sync.Mutex
	book     *cost.Book // guarded by mu
	agent    string     // label of the agent; guarded by mu
	accepted time.Time  // guarded by mu
	// calling are the models that steps call, by the scope of the step; guarded by mu.
	calling map[string]string
}

// Load implements runs.Journal. What was recorded before is not counted again.
func (j *measured) Load(ctx context.Context) ([]*teamv1.Event, error) {
	events, err := j.Journal.Load(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, ev := range events {
		if ev.GetAccepted() != nil {
			j.agent, j.accepted = j.runs.agentLabel(ev.GetAgent()), ev.GetTime().AsTime()
		}
		if !taskstate.EndsRun(ev) {
			j.book.Apply(ev)
		}
		j.attempted(ev)
	}
	return events, err
}

// Append implements runs.Journal. It counts the end of the run from a copy of the sums that it adds, because the
// store may set the time of that event after Append has returned.
func (j *measured) Append(ctx context.Context, events ...*teamv1.Event) error {
	last := j.end(events)
	if err := j.Journal.Append(ctx, events...); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, ev := range events {
		if taskstate.EndsRun(ev) {
			j.runs.spent(ctx, last)
		} else {
			j.runs.spent(ctx, j.book.Apply(ev))
		}
		j.runs.count(ctx, j, ev)
		if model := j.attempted(ev); model != "" {
			j.runs.modelFailures.Add(ctx, 1, j.runs.byModel.of(j.runs.models.name(model)).add...)
		}
	}
	return nil
}

// attempted notes an event of an attempt. It returns the model whose call has failed with the event, "" if none has.
// The caller must hold j.mu.
func (j *measured) attempted(ev *teamv1.Event) (failed string) {
	model := j.calling[ev.GetScope()]
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		if name := k.Started.GetModel(); name != "" {
			j.calling[ev.GetScope()] = name
		}
		return ""
	case *teamv1.Event_Retried:
		failed = model
	case *teamv1.Event_Ended:
		if o := k.Ended.GetOutcome(); o == teamv1.Outcome_OUTCOME_FAILED || o == teamv1.Outcome_OUTCOME_TIMED_OUT {
			failed = model
		}
	default:
		return ""
	}
	delete(j.calling, ev.GetScope())
	return failed
}

// end returns what the end of the run adds to the costs, if it is one of the events.
func (j *measured) end(events []*teamv1.Event) []cost.Sum {
	for _, ev := range events {
		if taskstate.EndsRun(ev) {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.book.End(ev)
		}
	}
	return nil
}

// Commit implements runs.Journal.
func (j *measured) Commit(ctx context.Context) error {
	defer j.runs.store.Time(ctx, "commit")()
	return j.Journal.Commit(ctx)
}

// count counts an event. The caller must hold j.mu.
func (r *Runs) count(ctx context.Context, j *measured, ev *teamv1.Event) {
	root := ev.GetScope() == ""
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		if root {
			r.started.Add(ctx, 1, r.byAgent.of(j.agent).add...)
		} else {
			r.attempts.Add(ctx, 1)
		}
	case *teamv1.Event_Retried:
		r.retries.Add(ctx, 1)
	case *teamv1.Event_Asked:
		r.questions.Add(ctx, 1, r.byEvent.of("asked").add...)
	case *teamv1.Event_Answered:
		r.questions.Add(ctx, 1, r.byEvent.of("answered").add...)
	case *teamv1.Event_Expired:
		if k.Expired.GetLimit() == agent.LimitQuestion {
			r.questions.Add(ctx, 1, r.byEvent.of("expired").add...)
		}
	case *teamv1.Event_Ended:
		r.countEnd(ctx, j, root, k.Ended)
	}
}

// countEnd counts the end of a run or of a step.
func (r *Runs) countEnd(ctx context.Context, j *measured, root bool, e *teamv1.Ended) {
	outcome := taskstate.Word(e.GetOutcome())
	level := levelStep
	if root {
		level = levelRun
		r.ended.Add(ctx, 1, r.byAgentOutcome.of(j.agent, outcome).add...)
		if !j.accepted.IsZero() {
			r.duration.Record(ctx, max(time.Since(j.accepted), 0).Seconds(), r.byOutcome.of(outcome).record...)
		}
	} else {
		r.steps.Add(ctx, 1, r.byOutcome.of(outcome).add...)
	}
	if limit := e.GetError().GetDetails()[agent.DetailLimit]; limit != "" {
		r.limits.Add(ctx, 1, r.byLimit.of(limitName(limit), level).add...)
	}
}

// spent counts costs.
func (r *Runs) spent(ctx context.Context, sums []cost.Sum) {
	for _, s := range sums {
		model := "none" // for example another server
		if s.Model != "" {
			model = r.models.name(s.Model)
		}
		of := s.Spent()
		r.tokens.Add(ctx, of.GetInputTokens(), r.byKind.of(model, "input").add...)
		r.tokens.Add(ctx, of.GetOutputTokens(), r.byKind.of(model, "output").add...)
		r.money.Add(ctx, float64(of.GetCostMicros())/1e6, r.byModel.of(model).add...)
		r.modelCalls.Add(ctx, of.GetModelCalls(), r.byModel.of(model).add...)
		r.toolCalls.Add(ctx, of.GetToolCalls())
	}
}

// Broken counts the end of a run that cannot be driven, which the engine records. Its agent is Other, because only those
// who drive a run know it.
func (r *Runs) Broken(ctx context.Context) {
	if r != nil {
		r.ended.Add(ctx, 1, r.byAgentOutcome.of(Other, taskstate.Word(teamv1.Outcome_OUTCOME_FAILED)).add...)
	}
}

func (r *Runs) agentLabel(id string) string {
	if r.named != nil && !r.named(id) {
		return Other
	}
	return r.agents.name(id)
}
