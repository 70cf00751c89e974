package scenario

import (
	"context"
	"slices"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/agent"
)

// othersPoll is how often the tasks that a run has begun are looked at.
const othersPoll = 100 * time.Millisecond

// others waits until none of the tasks works that the runs have begun, such as detached work, and notes what they have cost.
// With stop it cancels them first. The error is the cause of ctx, or that of the store.
func (p *play) others(ctx context.Context, stop bool) error {
	for {
		working, err := p.tally(ctx)
		if err != nil || len(working) == 0 {
			return err
		}
		if stop {
			for _, t := range working {
				_, _ = p.stage.local.Handler().Cancel(ctx, &teamv1.CancelRequest{AgentId: t.GetAgentId(), TaskId: t.GetTaskId()}) // it may have ended
			}
		}
		if err := agent.Sleep(ctx, othersPoll); err != nil {
			return err
		}
	}
}

// tally notes what the tasks have cost that the runs have begun, and returns those that work.
func (p *play) tally(ctx context.Context) (working []*teamv1.FoundTask, err error) {
	q := runs.TaskQuery{Account: account, PageSize: 100}
	var sum *teamv1.Spent
	for {
		page, err := p.stage.tasks.Find(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			if slices.ContainsFunc(p.result.Runs, func(r Run) bool { return r.Task == t.GetTaskId() }) {
				continue
			}
			sum = agent.AddSpent(sum, t.GetSpent())
			if s := t.GetState(); !taskstate.Final(s) && !taskstate.Interrupted(s) {
				working = append(working, t)
			}
		}
		if q.PageToken = page.NextToken; q.PageToken == "" {
			p.result.others = sum
			return working, nil
		}
	}
}

// stopOthers cancels the tasks that the runs have begun, when nothing waits for them any more.
func (p *play) stopOthers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	if p.others(ctx, true) != nil { // what they still cost is not known
		p.result.others = agent.AddSpent(p.result.others, &teamv1.Spent{CostMicros: p.left(), Estimated: true})
	}
}
