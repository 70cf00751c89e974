package collab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// tape is a journal that is written by hand.
type tape struct {
	events []*teamv1.Event
	at     time.Time
}

func (p *tape) add(scope string, ev *teamv1.Event) {
	p.at = p.at.Add(time.Second)
	ev.Scope, ev.Seq, ev.Time = scope, int64(len(p.events)+1), timestamppb.New(p.at)
	p.events = append(p.events, ev)
}

func begin() *tape {
	p := &tape{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	p.add("", &teamv1.Event{Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{
		TaskId: "t", Agent: "crew", Message: agent.UserMessage("m", "do it"), Collaboration: &teamv1.Brief{TaskDescription: "do it"},
	}}})
	return p
}

func (p *tape) decide(round int32, steps ...*teamv1.Step) {
	p.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Steps: steps, Round: round}}})
}

func (p *tape) start(scope string) {
	p.add(scope, &teamv1.Event{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}})
}

func (p *tape) end(scope string, o teamv1.Outcome) {
	p.add(scope, &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: o, Result: &teamv1.Ended_Reply{Reply: agent.NewMessage("done")}}}})
}

func work(id, name string) *teamv1.Step {
	return &teamv1.Step{Id: id, Kind: teamv1.Step_KIND_STEP, Member: name, Name: name, Input: &teamv1.Input{Message: agent.UserMessage("", "do "+name)}}
}

func crew(steps ...string) plan {
	def := &teamv1.TeamConfig{Workflow: &teamv1.WorkflowConfig{}}
	for _, s := range steps {
		def.Workflow.Steps = append(def.Workflow.Steps, &teamv1.WorkflowStep{Id: s, Agent: s})
	}
	return planOf("crew", def)
}

// TestS_62_ProgressOfAPlan: the steps of the plan on record count, until the next plan or round.
func TestS_62_ProgressOfAPlan(t *testing.T) {
	plan := func(ids ...string) *structpb.Struct {
		var list []any
		for _, id := range ids {
			list = append(list, map[string]any{"id": id, "member": id})
		}
		s, err := structpb.NewStruct(map[string]any{"steps": list})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	p := begin()
	p.start("")
	p.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Plan: plan("a", "b", "c"), Steps: []*teamv1.Step{work("1", "a")}}}})
	p.start("1")
	p.end("1", teamv1.Outcome_OUTCOME_SUCCEEDED)
	p.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Plan: plan("a", "d"), Steps: []*teamv1.Step{work("2", "d")}}}})
	p.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{Round: 2, Input: agent.UserMessage("m", "again")}}})
	r := newRun("t")
	r.plan = planOf("crew", &teamv1.TeamConfig{Members: []*teamv1.MemberConfig{{Agent: "a"}}, Workflow: &teamv1.WorkflowConfig{Plan: &teamv1.PlanConfig{Model: "m"}}})
	var seen []string
	for _, ev := range p.events {
		r.apply(ev)
		seen = append(seen, fmt.Sprintf("%d of %d", r.progress().GetCompletedTasks(), r.progress().GetTotalTasks()))
	}
	if want := []string{"0 of 0", "0 of 0", "0 of 3", "0 of 3", "1 of 3", "1 of 2", "1 of 2"}; !slices.Equal(seen, want) {
		t.Errorf("progress %q, want %q", seen, want)
	}
}

// R-001-27, S-41: it is started, then planned, then executed.
func TestR_001_27_Order(t *testing.T) {
	p := begin()
	p.add("", &teamv1.Event{Kind: &teamv1.Event_Claimed{Claimed: &teamv1.Claimed{Epoch: 1}}})
	p.start("")
	p.decide(0, work("1", "a"))
	p.start("1")
	r := newRun("t")
	r.plan = crew("a")
	var seen []string
	for _, ev := range p.events {
		r.apply(ev)
		if s := r.workflowStatus(); len(seen) == 0 || seen[len(seen)-1] != s {
			seen = append(seen, s)
		}
	}
	if len(seen) != 3 || seen[0] != started || seen[1] != planning || seen[2] != executing {
		t.Errorf("S-41 %v", seen)
	}
}

// TestC_24_Words: what the state of a task is called.
func TestC_24_Words(t *testing.T) {
	ask := &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q", Kind: teamv1.Asked_KIND_INPUT, Message: agent.NewMessage("which?")}}}
	command := func(c teamv1.Commanded_Command) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: c}}}
	}
	waits := &teamv1.Event{Kind: &teamv1.Event_Waiting{Waiting: &teamv1.Waiting{Questions: []string{"q"}}}}
	ends := func(o teamv1.Outcome) *teamv1.Event {
		return &teamv1.Event{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: o, Error: &teamv1.Error{Reason: "R"}}}}
	}
	for name, c := range map[string]struct {
		then        []*teamv1.Event
		word, final string
	}{
		"accepted":  {nil, executing, ""},
		"paused":    {[]*teamv1.Event{command(teamv1.Commanded_COMMAND_PAUSE)}, paused, ""},
		"resumed":   {[]*teamv1.Event{command(teamv1.Commanded_COMMAND_PAUSE), command(teamv1.Commanded_COMMAND_RESUME)}, executing, ""},
		"asks":      {[]*teamv1.Event{ask, waits}, paused, ""},
		"succeeded": {[]*teamv1.Event{ends(teamv1.Outcome_OUTCOME_SUCCEEDED)}, completed, completed},
		"failed":    {[]*teamv1.Event{ends(teamv1.Outcome_OUTCOME_FAILED)}, failed, failed},
		"late":      {[]*teamv1.Event{ends(teamv1.Outcome_OUTCOME_TIMED_OUT)}, failed, failed},
		"blocked":   {[]*teamv1.Event{ends(teamv1.Outcome_OUTCOME_REJECTED)}, failed, failed},
		"canceled":  {[]*teamv1.Event{ends(teamv1.Outcome_OUTCOME_CANCELED)}, failed, terminated},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin()
			p.start("")
			for _, ev := range c.then {
				p.add("", ev)
			}
			r := newRun("t")
			for _, ev := range p.events {
				r.apply(ev)
			}
			if r.word() != c.word || r.finalStatus() != c.final {
				t.Errorf("%q, at its end %q; want %q, %q", r.word(), r.finalStatus(), c.word, c.final)
			}
		})
	}
}

// R-001-35: the percentage is always 100 · completed / total, from 0 to 100, and decreases
// only if there is more work.
func TestR_001_35_Percentages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(rt, "steps")]
		p := begin()
		n := 0
		for round := range int32(rapid.IntRange(1, 3).Draw(rt, "rounds")) {
			if round > 0 {
				p.decide(round + 1)
			}
			for _, name := range names {
				n++
				id := string(rune('0' + n%10))
				if n > 9 {
					id = "1" + id
				}
				p.decide(0, work(id, name))
				o := rapid.SampledFrom([]teamv1.Outcome{
					teamv1.Outcome_OUTCOME_SUCCEEDED, teamv1.Outcome_OUTCOME_EMPTY, teamv1.Outcome_OUTCOME_FAILED, teamv1.Outcome_OUTCOME_SKIPPED, teamv1.Outcome_OUTCOME_TIMED_OUT,
				}).Draw(rt, "outcome")
				if o != teamv1.Outcome_OUTCOME_SKIPPED {
					p.start(id)
				}
				p.end(id, o)
			}
		}
		r := newRun("t")
		r.plan = crew(names...)
		var before *teamv1.CollaborationProgress
		for _, ev := range p.events {
			r.apply(ev)
			now := r.progress()
			c, all, percent := now.GetCompletedTasks(), now.GetTotalTasks(), now.GetCompletionPercentage()
			switch {
			case c < 0, c > all, all == 0 && percent != 0, all > 0 && percent != 100*float64(c)/float64(all):
				rt.Fatalf("behind %v: %v", ev, now)
			case before != nil && percent < before.GetCompletionPercentage() && all <= before.GetTotalTasks():
				rt.Fatalf("behind %v: %v, before %v", ev, now, before)
			}
			before = now
		}
	})
}

// C-19: minutes are rounded up.
func TestC_19_Minutes(t *testing.T) {
	for d, want := range map[time.Duration]int32{0: 0, 1: 1, time.Minute: 1, time.Minute + 1: 2} {
		if got := minutes(d); got != want {
			t.Errorf("%v are %d minutes, want %d", d, got, want)
		}
	}
}

// R-001-48: shares are 1 together, of what there is.
func TestR_001_48_Shares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "n")
		list := func(name string) []float64 {
			return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) float64 { return float64(rapid.IntRange(0, 3).Draw(rt, "v")) }), n, n).Draw(rt, name)
		}
		sum := 0.0
		for _, s := range shares(list("tokens"), list("times")) {
			sum += s
		}
		if sum < 1-1e-9 || sum > 1+1e-9 {
			rt.Errorf("together %v", sum)
		}
	})
}

// R-001-42, R-001-36, R-001-37: how a collaboration stands is shown as before while it is
// being stopped without its results; what members have brought is not.
func TestR_001_42_StatusOfAStop(t *testing.T) {
	for _, keep := range []bool{true, false} {
		const said = "what a member said"
		p := begin()
		p.events[0].GetAccepted().Collaboration.Context = &structpb.Struct{Fields: map[string]*structpb.Value{"audience": structpb.NewStringValue("children")}}
		told := func(id, name string) *teamv1.Step {
			return &teamv1.Step{Id: id, Kind: teamv1.Step_KIND_DELEGATE, Member: name, Input: &teamv1.Input{Message: agent.UserMessage("", said)}}
		}
		p.add("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: &teamv1.Decided{
			Steps: []*teamv1.Step{told("1", "a")}, Updates: map[string]*structpb.Value{"found": structpb.NewStringValue(said)},
		}}})
		p.decide(0, told("2", "b"))
		p.start("1")
		p.end("1", teamv1.Outcome_OUTCOME_SUCCEEDED)
		p.start("2")
		p.add("2", &teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{Question: "q", Message: agent.NewMessage(said)}}})
		p.add("", &teamv1.Event{Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_STOP, SavePartial: keep}}})
		r := newRun("t")
		for _, ev := range p.events {
			r.apply(ev)
		}
		s := r.status(true)
		if (len(s.GetPartialResults()) > 0) != keep || !strings.Contains(protojson.Format(s.GetQuestions()[0]), said) || len(s.GetAgents()) != 2 {
			t.Errorf("save_partial=%t: %v", keep, s)
		}
		if res := r.results(); (len(res.GetContributions()) > 0) != keep {
			t.Errorf("save_partial=%t: %v", keep, res)
		}
		if s.GetSharedContext().GetFields()["audience"].GetStringValue() != "children" {
			t.Errorf("R-001-22 the brief's context is gone: %v", s.GetSharedContext())
		}
	}
}

// R-001-36, R-001-27: once a collaboration has failed there is no more work, so every
// member is completed, even those that failed or never started; the progress remains.
func TestR_001_36_AfterAFailure(t *testing.T) {
	p := begin()
	p.decide(0, work("1", "a"))
	p.start("1")
	p.end("1", teamv1.Outcome_OUTCOME_FAILED)
	p.end("", teamv1.Outcome_OUTCOME_FAILED)
	r := newRun("t")
	r.plan = crew("a", "b")
	for _, ev := range p.events {
		r.apply(ev)
	}
	s := r.status(false)
	if s.GetStatus() != failed || len(s.GetAgents()) != 2 || s.GetAgents()[0].GetStatus() != completed || s.GetAgents()[1].GetStatus() != completed {
		t.Errorf("%v", s)
	}
	if w := r.workflowStatus(); w != executing {
		t.Errorf("R-001-27 %s", w)
	}
}
