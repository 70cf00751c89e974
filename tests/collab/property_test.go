package collab

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/tests/rig"
)

// parts are agents that end in each way, and a team of two of them.
const parts = `
  good: {api: true, scripted: {steps: [{text: "good"}]}}
  mute: {api: true, model: b, instructions: Say nothing.}
  bad: {api: true, scripted: {steps: [{fail: 1000}]}}
  thinker: {api: true, model: a, instructions: Think.}
  hare: {api: true, model: lead, instructions: Pass it on.}
  fox: {api: true, model: lead, instructions: Pass it on.}
`

// randomWorkflow is a workflow of some steps, and how many there are.
func randomWorkflow(rt *rapid.T) (yaml string, steps int) {
	var list []string
	steps = rapid.IntRange(1, 6).Draw(rt, "steps")
	for i := range steps {
		s := fmt.Sprintf("id: s%d, agent: %s", i, member(rt))
		s += fmt.Sprintf(", task: \"%d {{input}}\"", i)
		if i > 0 && rapid.Bool().Draw(rt, "behind") {
			s += fmt.Sprintf(", after: [s%d]", rapid.IntRange(0, i-1).Draw(rt, "after"))
		}
		if rapid.IntRange(0, 4).Draw(rt, "when") == 0 {
			s += `, when: "false"`
		}
		list = append(list, "{"+s+"}")
	}
	how := rapid.SampledFrom([]string{"FAIL", "CONTINUE_PARTIAL"}).Draw(rt, "on error")
	return fmt.Sprintf("workflow: {on_member_error: %s, steps: [%s]}", how, strings.Join(list, ", ")), steps
}

func member(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"good", "good", "thinker", "mute", "bad", "pair"}).Draw(rt, "agent")
}

// randomCoordinator is a coordinator, and has its leader delegate something at each
// turn, also to nobody and the same again, until it answers.
func (h *house) randomCoordinator(rt *rapid.T) (yaml string) {
	var turns []fakellm.Turn
	for i := range rapid.IntRange(0, 4).Draw(rt, "turns") {
		var calls []fakellm.Call
		for j := range rapid.IntRange(1, 3).Draw(rt, "calls") {
			to := rapid.OneOf(rapid.Just("nobody"), rapid.Custom(member), rapid.Custom(member), rapid.Custom(member)).Draw(rt, "to")
			task := fmt.Sprintf(`{"task":"work %d"}`, rapid.IntRange(0, 8).Draw(rt, "task"))
			calls = append(calls, fakellm.Call{ID: fmt.Sprintf("%d-%d", i, j), Name: "delegate_to_" + to, Arguments: task})
		}
		turns = append(turns, fakellm.Turn{Calls: calls})
	}
	h.turns(turns)
	return fmt.Sprintf("members: [{agent: good}, {agent: thinker}, {agent: mute}, {agent: bad}, {agent: pair}], coordinator: {allow_parallel: %t, leader: {model: lead}}",
		rapid.Bool().Draw(rt, "parallel"))
}

// turns are what the model lead says first; then it answers.
func (h *house) turns(turns []fakellm.Turn) {
	var asked atomic.Int32
	h.llm.Answer("lead", func(*fakellm.Request) fakellm.Turn {
		if n := int(asked.Add(1)); n <= len(turns) {
			return turns[n-1]
		}
		return fakellm.Turn{Text: "the answer"}
	})
}

// randomSwarm is a swarm whose members hand over to each other, and to one who answers.
func (h *house) randomSwarm(rt *rapid.T) (yaml string) {
	var turns []fakellm.Turn
	for i := range rapid.IntRange(0, 5).Draw(rt, "hand-overs") {
		to := rapid.SampledFrom([]string{"hare", "fox", "fox", "thinker", "nobody"}).Draw(rt, "to")
		turns = append(turns, fakellm.Turn{Calls: []fakellm.Call{{
			ID: fmt.Sprint(i), Name: "transfer_to_agent", Arguments: fmt.Sprintf(`{"agent_name":%q,"message":"go on %d"}`, to, i),
		}}})
	}
	h.turns(turns)
	return "members: [{agent: hare}, {agent: fox}, {agent: thinker}], swarm: {entry_member: hare}"
}

// randomTeam is a team of some mode, maybe with rounds, and how many steps it has in
// each of them from the start.
func (h *house) randomTeam(rt *rapid.T, id string) (yaml string, steps int) {
	switch rapid.SampledFrom([]string{"workflow", "coordinator", "swarm"}).Draw(rt, "mode") {
	case "workflow":
		yaml, steps = randomWorkflow(rt)
	case "coordinator":
		yaml = h.randomCoordinator(rt)
	default:
		yaml = h.randomSwarm(rt)
	}
	if rapid.Bool().Draw(rt, "review") {
		yaml += fmt.Sprintf(", review: {judge: {check: 'round >= %d ? 0.9 : 0.2'}, threshold: 0.5, max_rounds: %d}",
			rapid.IntRange(1, 3).Draw(rt, "good in round"), rapid.IntRange(1, 3).Draw(rt, "rounds"))
	}
	return fmt.Sprintf("teams: {%s: {limits: {retry: {attempts: 1}}, %s}}", id, yaml), steps
}

// recount is what a journal says, counted in the plainest way.
type recount struct {
	kind                           map[string]teamv1.Step_Kind // by scope
	started, good, empty, needless map[string]bool
	tokens                         map[string]int64 // by member of the team
	member                         map[string]string
	end                            *teamv1.Ended
	last                           time.Time
	done, total, messages          int32
	rounds, judged                 int32
	score                          *float64
}

func count(events []*teamv1.Event, planned int) *recount {
	c := &recount{
		kind: map[string]teamv1.Step_Kind{}, started: map[string]bool{}, good: map[string]bool{}, empty: map[string]bool{}, needless: map[string]bool{},
		tokens: map[string]int64{}, member: map[string]string{}, messages: 1,
	}
	c.rounds = 1
	for _, ev := range events {
		c.last = ev.GetTime().AsTime()
		if ev.GetScope() == "" {
			c.rounds = max(c.rounds, ev.GetDecided().GetRound())
		}
		prefix := ev.GetScope()
		if prefix != "" {
			prefix += "."
		}
		for _, s := range ev.GetDecided().GetSteps() {
			c.kind[prefix+s.GetId()], c.member[prefix+s.GetId()] = s.GetKind(), s.GetMember()
		}
		if ev.GetStarted() != nil {
			c.started[ev.GetScope()] = true
		}
		e := ev.GetEnded()
		switch {
		case e == nil:
		case ev.GetScope() == "":
			c.end = e
		default:
			c.good[ev.GetScope()] = e.GetOutcome() == teamv1.Outcome_OUTCOME_SUCCEEDED
			c.empty[ev.GetScope()] = e.GetOutcome() == teamv1.Outcome_OUTCOME_EMPTY
			c.needless[ev.GetScope()] = e.GetOutcome() == teamv1.Outcome_OUTCOME_SKIPPED && e.GetError().GetReason() == "" ||
				e.GetOutcome() == teamv1.Outcome_OUTCOME_REJECTED && !c.started[ev.GetScope()] && c.kind[ev.GetScope()] != teamv1.Step_KIND_STEP
			if e.GetVerdict() != nil {
				c.judged, c.score = c.judged+1, e.GetVerdict().Score //nolint:protogetter // set or not matters
			}
			if !strings.Contains(ev.GetScope(), ".") && c.kind[ev.GetScope()] != teamv1.Step_KIND_JUDGE {
				c.tokens[c.member[ev.GetScope()]] += e.GetSpent().GetInputTokens() + e.GetSpent().GetOutputTokens()
			}
		}
	}
	c.total = int32(planned) * c.rounds
	for scope, kind := range c.kind {
		if kind != teamv1.Step_KIND_STEP && kind != teamv1.Step_KIND_DELEGATE && kind != teamv1.Step_KIND_TRANSFER {
			continue
		}
		top := !strings.Contains(scope, ".")
		if c.started[scope] {
			c.messages++
		}
		if c.good[scope] {
			c.messages++
		}
		switch {
		case !top:
		case c.good[scope] || c.empty[scope]:
			c.done++
		case c.needless[scope]:
			c.total--
		}
		if top && planned == 0 {
			c.total++
		}
	}
	if o := c.end.GetOutcome(); o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY {
		c.messages++
	}
	return c
}

// journal reads what is on record of a task that has ended, over the wire.
func (h *house) journal(t testing.TB, id string) []*teamv1.Event {
	t.Helper()
	g := h.grpc(t)
	stream, err := teamv1.NewMonitorServiceClient(g.Conn).WatchTask(g.Context(t.Context()), &teamv1.WatchTaskRequest{TaskId: id, After: 1})
	if err != nil {
		t.Fatal(err)
	}
	var events []*teamv1.Event
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, m.GetEvent().GetEvent())
	}
}

// TestI5_Collaborations: status, progress and metrics are what the journal says, after
// any run.
func TestI5_Collaborations(t *testing.T) {
	file := strings.Replace(base, "agents:\n", "agents:"+parts, 1)
	file = strings.Replace(file, "teams:\n", "teams:\n  pair: {api: true, workflow: {steps: [{id: x, agent: good}, {id: y, agent: thinker, after: [x]}]}}\n", 1)
	h := open(t, rig.Memory(t), file, fakellm.New(t))
	h.says("a")
	h.llm.Script("b", fakellm.Turn{Forever: true})
	a := apis(t, h.Target)[1]
	sample.Checks(t, 40)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		id := fmt.Sprintf("random%d", n)
		yaml, steps := h.randomTeam(rt, id)
		if _, err := a.teams.CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: yaml}}); err != nil {
			rt.Fatalf("%s: %v", yaml, err)
		}
		task := a.start(t, request(id)).GetCollaborationId()
		s := a.ended(t, task)
		resp := a.finish(t, task)
		want := count(h.journal(t, task), steps)
		p, m := s.GetProgress(), resp.GetMetrics()
		word := map[bool]string{true: "completed", false: "failed"}[want.end.GetError() == nil]
		rounds := want.judged
		if word == "completed" {
			rounds = want.rounds
		}
		percent := 0.0
		if want.total > 0 {
			percent = 100 * float64(want.done) / float64(want.total)
		}
		took := want.last.Sub(s.GetStarted().AsTime())
		switch {
		case s.GetStatus() != word, resp.GetFinalStatus() != word:
			rt.Errorf("%s: it is %s, %s, want %s", yaml, s.GetStatus(), resp.GetFinalStatus(), word)
		case p.GetCompletedTasks() != want.done, p.GetTotalTasks() != want.total, math.Abs(p.GetCompletionPercentage()-percent) > 1e-9:
			rt.Errorf("%s: %v, want %d of %d", yaml, p, want.done, want.total)
		case m.GetIterationsCompleted() != rounds, s.GetRound() != want.rounds:
			rt.Errorf("%s: %d rounds, in round %d, want %d, %d", yaml, m.GetIterationsCompleted(), s.GetRound(), rounds, want.rounds)
		case !cmp.Equal(resp.GetResults().QualityScore, want.score): //nolint:protogetter // set or not matters
			rt.Errorf("%s: the score is %v, want %v", yaml, resp.GetResults(), want.score)
		case m.GetMessagesExchanged() != want.messages:
			rt.Errorf("%s: %d messages, want %d", yaml, m.GetMessagesExchanged(), want.messages)
		case m.GetTotalDuration().AsDuration() != took.Truncate(time.Millisecond), m.GetTotalDurationMinutes() != 1:
			rt.Errorf("%s: it took %v, want %v", yaml, m, took)
		}
		checkEfforts(rt, resp.GetResults().GetContributions(), want)
	})
}

// checkEfforts: they are 1 together, and the shares of the tokens where there are some.
func checkEfforts(rt *rapid.T, list []*teamv1.CollaborationContribution, want *recount) {
	var tokens int64
	of := func(c *teamv1.CollaborationContribution) int64 {
		if c.GetRole() == "lead" { // its turns are no member's
			return want.tokens[""]
		}
		return want.tokens[c.GetAgentId()]
	}
	for _, c := range list {
		tokens += of(c)
	}
	sum := 0.0
	for _, c := range list {
		sum += c.GetEffortScore()
		if share := float64(of(c)) / float64(tokens); tokens > 0 && math.Abs(c.GetEffortScore()-share) > 1e-9 {
			rt.Errorf("effort of %s is %v, want %v", c.GetAgentId(), c.GetEffortScore(), share)
		}
	}
	if len(list) > 0 && math.Abs(sum-1) > 1e-9 {
		rt.Errorf("efforts are %v together", sum)
	}
}
