package board_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/board"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// clerk is a model that makes one tool call per turn and then says that it is done. It
// records its input.
type clerk struct {
	calls []*teamv1.ToolCall
	told  []string
}

func (*clerk) Name() string { return "clerk" }

func (c *clerk) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	turns := 0
	c.told = nil
	for _, m := range req.Messages {
		if m.Role == agent.RoleTool {
			turns++
			c.told = append(c.told, m.Text)
		}
	}
	turn := &teamv1.Turn{Text: "done"}
	if turns < len(c.calls) {
		turn = &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{c.calls[turns]}}
	}
	return func(yield func(agent.ModelChunk, error) bool) { yield(agent.ModelChunk{Turn: turn}, nil) }
}

func call(name, arguments string) *teamv1.ToolCall {
	return &teamv1.ToolCall{Id: name, Name: name, Arguments: arguments}
}

// office is a team whose member and leader have a board.
func office(t *testing.T, d *desk, c *clerk) agent.Agent {
	t.Helper()
	a, err := leader.NewAgent(leader.AgentConfig{
		ID: "clerk", Model: c, ToolSets: []agent.ToolSet{board.NewTools(d.store, key.Team, []string{"clerk", "y"}, "clerk")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// process runs an agent with a journal until the journal has a number of events.
func process(t *testing.T, a agent.Agent, recorded []*teamv1.Event, until int) []*teamv1.Event {
	t.Helper()
	run := &agent.Run{Root: "7d1fbd2d-5d5c-4a2f-8a44-0d6a60a5a3b1", Seed: 1, Owner: "acme/ann"}
	events := []*teamv1.Event{}
	for _, ev := range recorded {
		events = append(events, proto.CloneOf(ev))
	}
	req := &teamv1.ProcessRequest{AgentId: "clerk", Message: agent.UserMessage("m-1", "go on"), Recorded: events}
	for ev, err := range a.Process(agent.With(t.Context(), run), req) {
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == until {
			return events
		}
		ev.Seq, ev.Time = int64(len(events)+2), timestamppb.Now()
		events = append(events, ev)
	}
	return events
}

// TestR_003_18_R_003_26_ToolsActOnceAfterACrash ends a run of a member at each of its
// events, with the effect done that was under way, and has it go on: everything is on
// the board once.
func TestR_003_18_R_003_26_ToolsActOnceAfterACrash(t *testing.T) {
	calls := []*teamv1.ToolCall{
		call("add_task", `{"title":"draft","priority":4}`), call("claim_task", `{"item_id":"t1"}`), call("update_task", `{"item_id":"t1","progress":50}`),
		call("post_message", `{"text":"half of it is there","to":"y"}`), call("read_messages", `{}`), call("complete_task", `{"item_id":"t1","result":"words"}`),
		call("add_task", `{"title":"print","depends_on":["t1"]}`), call("claim_task", `{"item_id":"t6"}`), call("fail_task", `{"item_id":"t6","error":"no paper"}`),
		call("list_tasks", `{"claimable":true}`),
	}
	whole := len(process(t, office(t, newDesk(t), &clerk{calls: calls}), nil, -1))
	if whole < 3*len(calls) {
		t.Fatalf("%d events", whole)
	}
	for crash := range whole {
		d, c := newDesk(t), &clerk{calls: calls}
		a := office(t, d, c)
		if _, err := d.PostMessage(d.ctx, as("x"), &teamv1.PostMessageRequest{Text: "before", To: "y"}); err != nil { // so that seq is not of the run alone
			t.Fatal(err)
		}
		for i := range c.calls { // whose ids are one higher then
			c.calls[i] = proto.CloneOf(calls[i])
			c.calls[i].Arguments = strings.NewReplacer("t6", "t7", "t1", "t2").Replace(calls[i].GetArguments())
		}
		process(t, a, process(t, a, nil, crash), -1)
		d.is("t2:COMPLETED t7:PENDING")
		var kinds []string
		events, err := d.Events(d.ctx, key, 1)
		d.must(err)
		for _, ev := range events {
			kinds = append(kinds, strings.TrimPrefix(ev.GetKind().String(), "KIND_"))
			if ev.GetActor().GetAgent() != "clerk" || ev.GetActor().GetPrincipal() != "acme/ann" || ev.GetActor().GetTaskId() == "" {
				t.Errorf("by %v", ev.GetActor())
			}
		}
		if got, want := fmt.Sprint(kinds), "[ADDED CLAIMED UPDATED MESSAGE COMPLETED ADDED CLAIMED RETURNED]"; got != want {
			t.Fatalf("after a crash at event %d: %s, want %s", crash, got, want)
		}
		if last := c.told[len(c.told)-1]; len(c.told) != len(calls) || !strings.HasPrefix(last, `{"id":"t7","team_id":"crew","title":"print"`) {
			t.Fatalf("the model was told %q", c.told)
		}
	}
}

// TestR_003_26_ToolsSayWhatIsWrong: what a tool refuses is its result, for the model.
func TestR_003_26_ToolsSayWhatIsWrong(t *testing.T) {
	d := newDesk(t)
	c := &clerk{calls: []*teamv1.ToolCall{
		call("claim_task", `{"item_id":"none"}`), call("add_task", `{"title":""}`), call("add_task", `{"headline":"x"}`), call("list_tasks", `{}`),
		call("post_message", `{"text":"hi","to":"nobody"}`), call("read_messages", `{"up_to":9}`),
	}}
	process(t, office(t, d, c), nil, -1)
	for i, want := range []string{"there is no item", "title is required", "invalid arguments for this tool", "none", `to is "nobody", which is not a recipient here; use one of crew, clerk, y`, "upTo is 9"} {
		if i >= len(c.told) || !strings.Contains(c.told[i], want) {
			t.Errorf("answer %d of %q, want %q", i, c.told, want)
		}
	}
}

// TestR_003_26_ToolsReadWithoutLoss: messages that a model has not acknowledged are
// returned again.
func TestR_003_26_ToolsReadWithoutLoss(t *testing.T) {
	d := newDesk(t)
	for _, text := range []string{"one", "two"} {
		_, err := d.PostMessage(d.ctx, as("x"), &teamv1.PostMessageRequest{Text: text, To: "crew"})
		d.must(err)
		_, err = d.PostMessage(d.ctx, as("y"), &teamv1.PostMessageRequest{Text: text, To: "x"})
		d.must(err)
	}
	lead := &clerk{calls: []*teamv1.ToolCall{call("read_messages", `{}`), call("read_messages", `{"up_to":1}`), call("read_messages", `{"up_to":3}`)}}
	a, err := leader.NewAgent(leader.AgentConfig{ID: "lead", Model: lead, ToolSets: []agent.ToolSet{board.NewTools(d.store, key.Team, nil, key.Team)}})
	d.must(err)
	process(t, a, nil, -1)
	for i, want := range []int{2, 1, 0} {
		if got := strings.Count(lead.told[i], `"text"`); got != want {
			t.Errorf("read %d shows %s", i, lead.told[i])
		}
	}
	if lead.told[2] != "none" {
		t.Errorf("%s", lead.told[2])
	}
}

// TestR_003_18_ToolsListOn: a model gets the token of the next page.
func TestR_003_18_ToolsListOn(t *testing.T) {
	d := newDesk(t)
	for range 51 {
		_, err := d.AddWorkItem(d.ctx, as("x"), &teamv1.AddWorkItemRequest{Title: "x"})
		d.must(err)
	}
	c := &clerk{calls: []*teamv1.ToolCall{call("list_tasks", `{}`), call("list_tasks", `{"page_token":"3.50"}`)}}
	process(t, office(t, d, c), nil, -1)
	for i, want := range []int{50, 1} {
		if got := strings.Count(c.told[i], `"title"`); got != want || strings.HasSuffix(c.told[i], "\n"+`{"next_page_token":"3.50"}`) != (i == 0) {
			t.Errorf("page %d has %d tasks: %s", i, got, c.told[i])
		}
	}
}
