package team_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/fallback"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// writing is a model whose answer has need tokens. It writes at most as many as the request allows, or
// byDefault if the request has no limit.
type writing struct {
	name      string
	need      int64
	byDefault int64 // limit of a request without one
	own       int64 // what the configuration allows; 0: no limit
	window    int64 // what the provider writes at most, whatever the limit is; 0: no bound
	refuses   int64 // a limit from here on is refused; 0: none
	end       teamv1.TurnEnd
	calls     []*teamv1.ToolCall
	limits    *[]string // the models and limits that were asked for
}

func (w *writing) Name() string     { return w.name }
func (w *writing) MaxOutput() int64 { return w.own }

func (w *writing) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		limit := cmp.Or(req.MaxOutput, w.own)
		if w.own > 0 {
			limit = min(limit, w.own)
		}
		*w.limits = append(*w.limits, fmt.Sprintf("%s %d", w.name, limit))
		if w.refuses > 0 && limit >= w.refuses {
			yield(agent.ModelChunk{}, &agent.Error{Reason: agent.ReasonUnavailable, Message: "max_tokens is too large", Fresh: true})
			return
		}
		most := cmp.Or(limit, w.byDefault)
		if w.window > 0 {
			most = min(most, w.window)
		}
		turn := &teamv1.Turn{Text: fmt.Sprintf("%s:%d", w.name, min(w.need, most)), End: teamv1.TurnEnd_TURN_END_COMPLETE, ToolCalls: w.calls}
		if w.need > most {
			turn.End = teamv1.TurnEnd_TURN_END_TRUNCATED
		}
		turn.End = max(turn.End, w.end)
		if yield(agent.ModelChunk{Text: turn.Text}, nil) {
			yield(agent.ModelChunk{Turn: turn, MaxOutput: limit, Spent: &teamv1.Spent{InputTokens: 10, OutputTokens: min(w.need, most)}}, nil)
		}
	}
}

// TestTruncated: a turn that a limit cut is asked for once more with twice the limit, then from the
// fallbacks, and then fails; what was written and billed is kept.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		models []writing
		limits *teamv1.Limits
		asked  []string
		text   string   // of the answer
		fails  []string // parts of the error
		spent  int64    // output tokens
	}{
		"the provider's default: twice what it wrote": {
			models: []writing{{need: 150, byDefault: 100}},
			asked:  []string{"a 0", "a 200"}, text: "a:150", spent: 250,
		},
		"once only": {
			models: []writing{{need: 500, byDefault: 100}},
			asked:  []string{"a 0", "a 200"}, fails: []string{"cut after 200 output tokens", `model "a"`, "raise max_output_tokens"}, spent: 300,
		},
		"not beyond the limit of the model": {
			models: []writing{{need: 500, own: 100}},
			asked:  []string{"a 100"}, fails: []string{"cut after 100 output tokens", "raise max_output_tokens"}, spent: 100,
		},
		"up to the limit of the model": {
			models: []writing{{need: 5000, own: 5000}}, limits: &teamv1.Limits{MaxTokens: proto.Int64(4300)},
			asked: []string{"a 4215"}, fails: []string{"cut after 4215", "max_tokens"}, spent: 4215,
		},
		"with a budget the default is 4096": {
			models: []writing{{need: 5000}}, limits: &teamv1.Limits{MaxTokens: proto.Int64(1 << 20)},
			asked: []string{"a 4096", "a 8192"}, text: "a:5000", spent: 9096,
		},
		"the budget does not allow it": {
			models: []writing{{need: 5000}}, limits: &teamv1.Limits{MaxTokens: proto.Int64(8000)},
			asked: []string{"a 4096"}, fails: []string{"cut after 4096"}, spent: 4096,
		},
		"a limit of the provider's own": {
			models: []writing{{need: 500, own: 1000, window: 200}},
			asked:  []string{"a 1000"}, fails: []string{"cut after 200", "the provider's own limit"}, spent: 200,
		},
		"then the fallback": {
			models: []writing{{need: 500, byDefault: 100}, {need: 150, byDefault: 300}},
			asked:  []string{"a 0", "a 200", "b 200"}, text: "b:150", spent: 450,
		},
		"at once, if more is of no use": {
			models: []writing{{need: 500, own: 100}, {need: 150, byDefault: 300}},
			asked:  []string{"a 100", "b 0"}, text: "b:150", spent: 250,
		},
		"the model that was cut is named, and is not asked again": {
			models: []writing{{need: 500, own: 100}, {need: 500, own: 20, refuses: 1}},
			asked:  []string{"a 100", "b 20"}, fails: []string{`cut after 100 output tokens (model "a"); raise max_output_tokens`}, spent: 100,
		},
		"the fallbacks are cut too": {
			models: []writing{{need: 500, own: 100}, {need: 500, own: 100}, {need: 500, own: 200}},
			asked:  []string{"a 100", "b 100", "c 200"}, fails: []string{"cut after 200"}, spent: 400,
		},
		"twice the limit is refused": {
			models: []writing{{need: 500, byDefault: 100, refuses: 150}},
			asked:  []string{"a 0", "a 200"}, fails: []string{"cut after 100"}, spent: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			var models []agent.Model
			for i := range c.models {
				m := c.models[i]
				m.name, m.limits = string(rune('a'+i)), &asked
				models = append(models, &m)
			}
			model := models[0]
			if len(models) > 1 {
				both, err := fallback.New(models[0], models[1:]...)
				if err != nil {
					t.Fatal(err)
				}
				model = both
			}
			a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Model: model, Limits: c.limits})
			if err != nil {
				t.Fatal(err)
			}
			r := newRecord()
			r.process(t.Context(), a, nil)
			if diff := gocmp.Diff(c.asked, asked); diff != "" {
				t.Error(diff)
			}
			end := endOf(t, r.events, "1")
			if got := end.GetSpent().GetOutputTokens(); got != c.spent {
				t.Errorf("%d output tokens are booked, want %d", got, c.spent)
			}
			if c.text != "" {
				if r.err != nil || agent.Text(r.reply.GetMessage()) != c.text {
					t.Fatal(r.reply, r.err)
				}
				if d := lastDelta(r.events); !d.GetRestart() || d.GetText() != c.text {
					t.Errorf("the last text that readers see is %v", d)
				}
				return
			}
			e := wantReason(t, r.err, agent.ReasonAnswerTruncated)
			for _, part := range c.fails {
				if !strings.Contains(e.Message, part) {
					t.Errorf("%q has no %q", e.Message, part)
				}
			}
		})
	}
}

func lastDelta(events []*teamv1.Event) *teamv1.Delta {
	for _, ev := range slices.Backward(events) {
		if d := ev.GetDelta(); d != nil {
			return d
		}
	}
	return nil
}

// TestTruncated_Resumed: after a crash the turn is asked for with the limit that was decided on.
func TestTruncated_Resumed(t *testing.T) {
	t.Parallel()
	var asked []string
	a, err := leader.NewAgent(leader.AgentConfig{ID: "m", Model: &writing{name: "a", need: 150, byDefault: 100, limits: &asked}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord()
	r.process(t.Context(), a, nil)
	at := slices.IndexFunc(r.events, func(ev *teamv1.Event) bool { return ev.GetRetried() != nil })
	if at < 0 {
		t.Fatal("nothing was repeated")
	}
	again := newRecord()
	again.events = r.events[:at+1]
	again.process(t.Context(), a, nil)
	if want := []string{"a 0", "a 200", "a 200"}; !slices.Equal(asked, want) || agent.Text(again.reply.GetMessage()) != "a:150" {
		t.Errorf("asked %q, want %q; %v, %v", asked, want, again.reply, again.err)
	}
}

func TestTruncated_Accepted(t *testing.T) {
	t.Parallel()
	var asked []string
	call := []*teamv1.ToolCall{{Id: "1", Name: "echo", Arguments: "{}"}}
	a, err := leader.NewAgent(leader.AgentConfig{
		ID: "m", AcceptTruncated: true, Tools: []agent.Tool{echoTool{}}, Model: &writing{name: "a", need: 150, byDefault: 100, calls: call, limits: &asked},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord()
	r.process(t.Context(), a, nil)
	if r.err != nil || agent.Text(r.reply.GetMessage()) != "a:100" || len(asked) != 1 {
		t.Fatal(r.reply, r.err, asked)
	}
	if w := r.reply.GetWarnings(); len(w) != 1 || !strings.Contains(w[0], "cut the answer") {
		t.Error(w)
	}
	nested := newTeamWith(t, team.Config{ID: "t1", Scheduler: inOrder("m", "m"), Members: members("m"), Registry: registry{"m": a}})
	whole := newTeamWith(t, team.Config{ID: "t0", Scheduler: inOrder("t1"), Members: members("t1"), Registry: registry{"t1": nested}})
	r = newRecord()
	r.process(t.Context(), whole, nil)
	if w := r.reply.GetWarnings(); len(w) != 1 || !strings.HasPrefix(w[0], `member "t1": member "m": a limit`) {
		t.Error("of a member: ", w)
	}
}

// TestTruncated_Kept: what there is of an answer that was cut is an artifact of the task that ends with it, also
// if readers were not shown it while it was written, and is not what guardrails would have to check.
func TestTruncated_Kept(t *testing.T) {
	t.Parallel()
	var w wares
	cutter := func(id string, change func(*leader.AgentConfig)) agent.Agent {
		c := leader.AgentConfig{ID: id, Model: &writing{name: "a", need: 500, own: 100, limits: new([]string)}}
		change(&c)
		a, err := leader.NewAgent(c)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	plain := func(*leader.AgentConfig) {}
	formatted := func(c *leader.AgentConfig) {
		c.Output = func(*a2av1.Message) (*structpb.Value, error) { return structpb.NewNullValue(), nil }
	}
	checked := func(c *leader.AgentConfig) { c.Guards.Output = []agent.Guard{w.passes("x")} }
	inTeam := func(of agent.Agent, change func(*team.Config)) agent.Agent {
		c := team.Config{ID: "t1", Scheduler: inOrder("m"), Members: members("m"), Registry: registry{"m": of}}
		change(&c)
		return newTeamWith(t, c)
	}
	same := func(*team.Config) {}
	for name, c := range map[string]struct {
		of   agent.Agent
		kept bool
	}{
		"an agent with a format":      {cutter("m", formatted), true},
		"a member":                    {inTeam(cutter("m", plain), same), true},
		"a member with a format":      {inTeam(cutter("m", formatted), same), true},
		"a member of a nested team":   {inTeam(inTeam(cutter("m", plain), same), same), true},
		"a checked agent":             {cutter("m", checked), false},
		"a member whose team checks":  {inTeam(cutter("m", plain), func(c *team.Config) { c.Guards.Output = []agent.Guard{w.passes("x")} }), false},
		"a member with checks":        {inTeam(cutter("m", checked), same), false},
		"checks of a team in between": {inTeam(inTeam(cutter("m", plain), func(c *team.Config) { c.Guards.Result = []agent.Guard{w.passes("x")} }), same), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecord()
			r.process(t.Context(), c.of, nil)
			wantReason(t, r.err, agent.ReasonAnswerTruncated)
			kept := ""
			for _, ev := range r.events {
				if a := ev.GetArtifact().GetArtifact(); a != nil && ev.GetScope() == "" {
					kept += agent.Text(&a2av1.Message{Parts: a.GetParts()})
				}
			}
			if want := map[bool]string{true: "a:100"}[c.kept]; kept != want {
				t.Errorf("kept %q, want %q", kept, want)
			}
		})
	}
}

// TestTruncated_CallsNothing: the tool calls of a turn that was cut are not made, even if their
// arguments happen to be valid.
func TestTruncated_CallsNothing(t *testing.T) {
	t.Parallel()
	var asked []string
	a := newModelAgent(t, &writing{name: "a", need: 500, own: 100, calls: []*teamv1.ToolCall{{Id: "1", Name: "echo", Arguments: "{}"}}, limits: &asked}, echoTool{})
	r := newRecord()
	r.process(t.Context(), a, nil)
	wantReason(t, r.err, agent.ReasonAnswerTruncated)
	for _, ev := range r.events {
		for _, s := range ev.GetDecided().GetSteps() {
			if s.GetKind() == teamv1.Step_KIND_TOOL {
				t.Error(s)
			}
		}
	}
}

// TestFiltered: an answer that the provider has filtered is not asked for again.
func TestFiltered(t *testing.T) {
	t.Parallel()
	var asked []string
	m := &writing{name: "a", need: 10, byDefault: 100, end: teamv1.TurnEnd_TURN_END_FILTERED, limits: &asked}
	both, err := fallback.New(m, &writing{name: "b", need: 10, byDefault: 100, limits: &asked})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord()
	r.process(t.Context(), newModelAgent(t, both), nil)
	if e := wantReason(t, r.err, agent.ReasonAnswerFiltered); len(asked) != 1 || !strings.Contains(e.Message, "content filter") {
		t.Error(asked, e)
	}
	if got := endOf(t, r.events, "1").GetSpent().GetOutputTokens(); got != 10 {
		t.Errorf("%d output tokens are booked, want 10", got)
	}
}

// TestEmptyAnswer: an answer without content is asked for once more.
func TestEmptyAnswer(t *testing.T) {
	t.Parallel()
	run := func(allow bool, answers ...string) (*record, []*agent.ModelRequest) {
		var requests []*agent.ModelRequest
		a, err := leader.NewAgent(leader.AgentConfig{ID: "m", AllowEmpty: allow, Tools: []agent.Tool{echoTool{}}, Model: modelFunc(func(req *agent.ModelRequest) *teamv1.Turn {
			requests = append(requests, req)
			if len(requests) == 1 {
				return echoCall()
			}
			return &teamv1.Turn{Text: answers[len(requests)-2]}
		})})
		if err != nil {
			t.Fatal(err)
		}
		r := newRecord()
		r.process(t.Context(), a, nil)
		return r, requests
	}
	r, requests := run(false, " \n", "seven")
	if r.err != nil || agent.Text(r.reply.GetMessage()) != "seven" {
		t.Error(r.reply, r.err)
	}
	if last := requests[2].Messages[len(requests[2].Messages)-1]; last.Role != agent.RoleUser || !strings.Contains(last.Text, "was empty") {
		t.Errorf("%+v", last)
	}
	r, requests = run(false, "", "")
	if e := wantReason(t, r.err, agent.ReasonNoResponse); !strings.Contains(e.Message, "allow_empty") || len(requests) != 3 {
		t.Error(e, len(requests))
	}
	r, requests = run(true, "")
	if r.err != nil || r.reply.GetOutcome() != teamv1.Outcome_OUTCOME_EMPTY || len(requests) != 2 {
		t.Error(r.reply, r.err, len(requests))
	}
}
