package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/tests/rig"
)

// companyFile is three coordinators in each other, with a worker at the bottom. Each
// leader has a model of its own.
const companyFile = `version: v1
models:
  top: {provider: openai, name: top, base_url: "${LLM}", api_key: ` + rig.Secret + `}
  mid: {provider: openai, name: mid, base_url: "${LLM}", api_key: ` + rig.Secret + `}
  low: {provider: openai, name: low, base_url: "${LLM}", api_key: ` + rig.Secret + `}
agents:
  worker: {scripted: {steps: [{text: "worker({{input}})"}]}}
teams:
  low: {members: [{agent: worker}], coordinator: {leader: {model: low}}}
  mid: {members: [{agent: low}], coordinator: {leader: {model: mid}}}
  top: {members: [{agent: mid}], coordinator: {leader: {model: top}}}
`

// company is what companyFile defines. A leader gives its member what it was told,
// and answers with what the member says.
func company(t testing.TB, llm *fakellm.Server) *manager.Manager {
	t.Helper()
	for id, member := range map[string]string{"top": "mid", "mid": "low", "low": "worker"} {
		llm.Answer(id, func(r *fakellm.Request) fakellm.Turn {
			if last := r.Messages[len(r.Messages)-1]; last.Role == "tool" {
				_, text, _ := strings.Cut(last.Text, "\n\n")
				return fakellm.Turn{Text: id + " got " + text}
			}
			return fakellm.Turn{Calls: []fakellm.Call{{ID: "c", Name: "delegate_to_" + member, Arguments: fmt.Sprintf(`{"task":%q}`, id+" asks "+r.Last()[strings.LastIndex(r.Last(), "\n")+1:])}}}
		})
	}
	return defined(t, companyFile, map[string]string{"LLM": llm.URL})
}

// TestS_39_NestedHistory: two turns of one context through three levels, each with
// a history of its own.
func TestS_39_NestedHistory(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		m := company(t, llm)
		l := live(t, at, m, llm)
		first := say(t, l.clients[0], "top", "c", "one")
		wantText(t, first, "top got mid got low got worker(low asks mid asks top asks one)")
		l.kill(at) // it is not this process that remembers
		l = live(t, at, m, llm)
		say(t, l.clients[1], "top", "c", "two")
		const earlier = "user: Earlier in this conversation:\n- "
		for model, want := range map[string][]string{
			"top": {earlier + `mid was asked "top asks one": SUCCEEDED`, "user: one", "assistant: top got mid got low got worker(low asks mid asks top asks one)", "user: two"},
			// Besides their own turn, what the team above was given in this run (R-004-15).
			"mid": {earlier + `low was asked "mid asks top asks one": SUCCEEDED`, "user: top asks one", "assistant: mid got low got worker(low asks mid asks top asks one)", "user: two", "user: top asks two"},
			"low": {earlier + `worker was asked "low asks mid asks top asks one": SUCCEEDED`, "user: mid asks top asks one", "assistant: low got worker(low asks mid asks top asks one)", "user: top asks two", "user: mid asks top asks two"},
		} {
			all := llm.Requests(model)
			second := all[2] // the first of the second turn
			var got []string
			for _, m := range second.Messages {
				got = append(got, m.Role+": "+m.Text)
			}
			if diff := cmp.Diff(rig.Merged(want...), got); diff != "" {
				t.Errorf("S-39 what %s is asked in its second turn (-want +got):\n%s", model, diff)
			}
		}
		t.Run("R-002-30 S-58 who did what in turn one", func(t *testing.T) {
			if got := llm.Requests("low")[0].Messages; strings.Contains(got[0].Text, "was asked") {
				t.Errorf("the leader is told %q in turn one", got)
			}
		})
		t.Run("S-39 a member asked on its own has another history", func(t *testing.T) {
			say(t, l.clients[2], "low", "c", "alone")
			all := llm.Requests("low")
			if got := all[len(all)-2].Messages; len(got) != 1 {
				t.Errorf("low is asked %v", got)
			}
		})
		t.Run("R-003-33 the members of every team are on record with their number", func(t *testing.T) {
			prepared := map[string]float64{}
			for _, r := range l.journal(t, first.GetId()) {
				if n := r.Event.GetNoted(); n.GetCode() == agent.NoteTeamPrepared {
					prepared[r.Event.GetAgent()] += n.GetDetails().GetFields()["members"].GetNumberValue()
				}
			}
			if diff := cmp.Diff(map[string]float64{"top": 1, "top/mid": 1, "top/mid/low": 1}, prepared); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	})
}

// TestS_58_Growth: the prompt of a leader grows linearly at most, and not beyond
// the last 20 entries.
func TestS_58_Growth(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		m := company(t, llm)
		l := live(t, at, m, llm)
		var sizes []int
		for i := range 14 {
			say(t, l.clients[0], "low", "c", fmt.Sprintf("%04d", i))
			r := llm.Requests("low")[2*i]
			size := len(r.System)
			for _, m := range r.Messages {
				size += len(m.Text)
			}
			sizes = append(sizes, size)
			told := strings.Count(r.Messages[0].Text, "worker was asked")
			if n := min(i, agent.HistoryLength/2); len(r.Messages) != 2*n+1 || told != n {
				t.Errorf("S-58 turn %d: %d messages, delegations %d", i, len(r.Messages), told)
			}
		}
		step := sizes[2] - sizes[1] // with a line break between two delegations
		for i := 2; i < len(sizes); i++ {
			if grown := sizes[i] - sizes[i-1]; grown > step || i > agent.HistoryLength/2 && grown != 0 {
				t.Errorf("S-58 turn %d: the prompt has %d bytes, after %d", i, sizes[i], sizes[i-1])
			}
		}
	})
}

// TestS_49_NestedMemory: no history can be read, of a company of three levels: one
// warning a team, and the run completes.
func TestS_49_NestedMemory(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		l := live(t, at, company(t, llm), llm)
		say(t, l.clients[0], "top", "c", "one")
		l.store.Break(faulty.Always(faulty.Fail, faulty.Recall))
		task := say(t, l.clients[1], "top", "c", "two")
		l.store.Heal()
		if w := warnings(task); len(w) != 3 {
			t.Errorf("S-49 warnings %q", w)
		}
		if got := llm.Requests("low")[2].Messages; len(got) != 1 || got[0].Text != "top asks two\n\nmid asks top asks two" { // what mid was given, and what low is
			t.Errorf("S-49 R-002-4.2 low is asked %v", got)
		}
	})
}

// TestR_002_4_4_Damaged: an entry whose delegations cannot be read counts for what
// was said.
func TestR_002_4_4_Damaged(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		m := company(t, llm)
		l := live(t, at, m, llm)
		say(t, l.clients[0], "low", "c", "one")
		for i, damage := range []any{"no list", []any{1.0, map[string]any{"member": 5.0}}} {
			v, err := structpb.NewValue(damage)
			if err != nil {
				t.Fatal(err)
			}
			bad := agent.NewMessage(fmt.Sprint("answer ", i))
			bad.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{agent.DelegationsKey: v}}
			err = l.store.Remember(t.Context(), ours("c"), runs.Exchange{Task: fmt.Sprint("damaged", i), By: []runs.Contribution{{Path: "low", Messages: []*a2av1.Message{bad}}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		task := say(t, l.clients[1], "low", "c", "two")
		r := llm.Requests("low")[2]
		if len(r.Messages) != 3 || r.Messages[0].Text != "Earlier in this conversation:\n- worker was asked \"low asks one\": SUCCEEDED\n\none" {
			t.Errorf("R-002-4.4 the leader is asked %v", r.Messages)
		}
		if w := warnings(task); len(w) != 1 || !strings.Contains(w[0], "3 earlier delegations") {
			t.Errorf("R-002-4.4 warnings %q", w)
		}
	})
}

// setter is a scheduler that answers with the keys its run began with, and sets two.
type setter struct{ team.Base }

func (setter) Next(s *team.State) (team.Decision, error) {
	if len(s.Steps) > 0 {
		return team.Decision{Reply: s.Last.Message, Reason: "answered"}, nil
	}
	keys := []string{}
	for k, v := range s.Context {
		keys = append(keys, fmt.Sprint(k, "=", v.AsInterface()))
	}
	slices.Sort(keys)
	return team.Decision{
		Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: "worker", Input: &teamv1.Input{Message: agent.NewMessage(strings.Join(keys, " "))}}},
		Updates: map[string]*structpb.Value{
			"plain": structpb.NewBoolValue(true), agent.ConversationPrefix + "k": structpb.NewStringValue(agent.Text(s.Input)),
		},
		Reason: "say what there is",
	}, nil
}

// TestR_000_15_Context: a run begins with an empty context; what a conversation
// keeps are the keys that say so.
func TestR_000_15_Context(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		m := rig.Manager(t, says("worker"))
		for id, memory := range map[string]bool{"keeps": true, "forgets": false} {
			tm, err := team.New(team.Config{ID: id, Scheduler: setter{}, Members: []team.Member{{Agent: "worker"}}, Registry: m, Memory: memory})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Register(id, tm); err != nil {
				t.Fatal(err)
			}
		}
		l := live(t, at, m)
		for i, want := range []struct{ tenant, context, text, answer string }{
			{"keeps", "c", "one", ""},
			{"keeps", "c", "two", "conversation.k=one"},
			{"keeps", "c", "three", "conversation.k=two"},
			{"keeps", "d", "one", ""},
			{"forgets", "c", "one", ""},
			{"forgets", "c", "two", ""},
		} {
			task := say(t, l.clients[i%3], want.tenant, want.context, want.text)
			if got := agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}); got != "worker("+want.answer+")" {
				t.Errorf("R-000-15 C-22 %s of %s in %s began with %q, want %q", want.text, want.tenant, want.context, got, want.answer)
			}
		}
	})
}
