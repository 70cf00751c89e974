package collab

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// results returns the results of a collaboration, without content if it was stopped without
// saving them.
func (r *run) results() *teamv1.CollaborationResults {
	_, score := r.score()
	res := &teamv1.CollaborationResults{CompletionTime: timestamppb.New(r.Now), QualityScore: score, QualityUnknown: score == nil}
	if r.dropped() {
		res.QualityScore, res.QualityUnknown = nil, true
		return res
	}
	res.Output, res.Message, res.Contributions = agent.Text(r.reply()), r.reply(), r.contributions()
	return res
}

// contributions returns the results of the members and the leader, each with its share of
// the effort.
func (r *run) contributions() []*teamv1.CollaborationContribution {
	var list []*teamv1.CollaborationContribution
	var tokens, times []float64
	add := func(id, role, text string, spent *teamv1.Spent, took time.Duration) {
		list = append(list, &teamv1.CollaborationContribution{AgentId: id, Role: role, Text: text})
		tokens = append(tokens, float64(spent.GetInputTokens()+spent.GetOutputTokens()))
		times = append(times, took.Seconds())
	}
	delivered, partial := r.delivered(), r.partial()
	for _, id := range r.members() {
		if len(delivered[id]) == 0 {
			continue
		}
		spent, took := r.effort(func(n *journal.Node) bool { return n.Delegated() && n.Step.GetMember() == id })
		add(id, r.activity(id).GetRole(), partial[id], spent, took)
	}
	if text := agent.Text(r.reply()); r.leads() && r.finalStatus() == completed && text != "" {
		spent, took := r.effort(func(n *journal.Node) bool { return !n.Delegated() && n.Step.GetKind() != teamv1.Step_KIND_JUDGE })
		add(r.Accepted.GetAgent(), roleLead, text, spent, took)
	}
	for i, share := range shares(tokens, times) {
		list[i].EffortScore = share
	}
	return list
}

// effort returns the cost and the duration of the team's steps that match.
func (r *run) effort(match func(*journal.Node) bool) (spent *teamv1.Spent, took time.Duration) {
	for _, n := range r.Top.Steps {
		if match(n) {
			spent, took = agent.AddSpent(spent, n.Spent()), took+r.took(n)
		}
	}
	return spent, took
}

// shares converts values to shares whose sum is 1. It uses the first list whose sum is not
// 0; without such a list, all shares are equal.
func shares(lists ...[]float64) []float64 {
	for _, list := range lists {
		var sum float64
		for _, v := range list {
			sum += v
		}
		if sum == 0 {
			continue
		}
		parts := make([]float64, len(list))
		for i, v := range list {
			parts[i] = v / sum
		}
		return parts
	}
	parts := make([]float64, len(lists[0]))
	for i := range parts {
		parts[i] = 1 / float64(len(parts))
	}
	return parts
}

// metrics returns the metrics of a collaboration.
func (r *run) metrics() *teamv1.CollaborationMetrics {
	took := r.Now.Sub(r.Top.Since)
	m := &teamv1.CollaborationMetrics{
		TotalDurationMinutes: minutes(took), TotalDuration: durationpb.New(took.Truncate(time.Millisecond)), MessagesExchanged: 1,
		IterationsCompleted: r.rounds(), Spent: r.Top.End.GetSpent(),
	}
	for _, n := range r.given() {
		if !n.Begun.IsZero() {
			m.MessagesExchanged++
		}
		if n.End.GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED {
			m.MessagesExchanged++
		}
	}
	if r.finalStatus() == completed {
		m.MessagesExchanged++
	}
	return m
}

// minutes converts a duration to minutes, rounded up.
func minutes(d time.Duration) int32 {
	return int32((d + time.Minute - 1) / time.Minute) //nolint:gosec // overflows after 4,000 years
}

// rounds returns the number of completed rounds: those with a judged result, and the one
// whose result is the answer.
func (r *run) rounds() int32 {
	if r.finalStatus() == completed {
		return r.currentRound()
	}
	judged, _ := r.score()
	return max(judged, r.currentRound()-1)
}
