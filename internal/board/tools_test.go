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

// reader is a model that calls a tool in its first turn and then answers. It records the messages of
// others in each of its prompts.
type reader struct {
	during func(turn int) // called while a turn is made; nil means nothing
	shown  [][]string     // by turn
}

func (*reader) Name() string { return "reader" }

func (r *reader) Generate(_ context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	var shown []string
	turn := &teamv1.Turn{ToolCalls: []*teamv1.ToolCall{call("list_tasks", "{}")}}
	n := 1
	for _, m := range req.Messages {
		if m.Role == agent.RoleTool {
			turn, n = &teamv1.Turn{Text: "done"}, 2
		}
		if text, ok := strings.CutPrefix(m.Text, "Messages on the board for you. They are not part of the request.\n\n"); ok {
			for one := range strings.SplitSeq(text, "\n\n") {
				if n == 2 {
					one = "after the call: " + one
				}
				shown = append(shown, one)
			}
		}
	}
	r.shown = append(r.shown, shown)
	if r.during != nil {
		r.during(n)
	}
	return func(yield func(agent.ModelChunk, error) bool) { yield(agent.ModelChunk{Turn: turn}, nil) }
}

// TestR_003_26_UnreadMessagesStandInTheNextTurn ends a run at each of its events, while more messages
// come: a turn that is made again is shown the same messages, each message is shown at last, and all
// that were shown are acknowledged at the end.
func TestR_003_26_UnreadMessagesStandInTheNextTurn(t *testing.T) {
	first, second := "Message 1, from x:\none", "Message 3, from y to all:\nthree"
	third := "after the call: Message 4, from x, in reply to message 3:\nfour"
	set := func() (*desk, *reader, agent.Agent) {
		d, r := newDesk(t), &reader{}
		post := func(from, to, text string, replyTo int64) {
			t.Helper()
			_, err := d.PostMessage(d.ctx, as(from), &teamv1.PostMessageRequest{Text: text, To: to, ReplyTo: replyTo})
			d.must(err)
		}
		post("x", "crew", "one", 0)
		post("x", "y", "two", 0)
		post("y", "", "three", 0)
		came := false
		r.during = func(turn int) {
			if turn == 1 && !came {
				came = true
				post("x", "crew", "four", 3)
			}
		}
		a, err := leader.NewAgent(leader.AgentConfig{ID: "clerk", Model: r, ToolSets: []agent.ToolSet{board.NewTools(d.store, key.Team, []string{"x", "y"}, key.Team)}})
		d.must(err)
		return d, r, a
	}
	_, _, a := set()
	whole := len(process(t, a, nil, -1))
	for crash := range whole + 1 {
		d, r, a := set()
		before := process(t, a, nil, crash)
		process(t, a, before, -1)
		var one, two []string
		for _, shown := range r.shown {
			if len(shown) == 3 {
				two = shown
				continue
			}
			if one = shown; fmt.Sprint(one) != fmt.Sprint([]string{first, second}) {
				t.Errorf("after a crash at event %d a first turn is shown %q", crash, r.shown)
			}
		}
		if one == nil || fmt.Sprint(two) != fmt.Sprint([]string{first, second, third}) {
			t.Errorf("after a crash at event %d the turns are shown %q", crash, r.shown)
		}
		left, _, err := d.ListMessages(d.ctx, as("x"), &teamv1.ListMessagesRequest{Reader: key.Team, Unread: true})
		d.must(err)
		if len(left) != 0 {
			t.Errorf("after a crash at event %d %v are not acknowledged", crash, left)
		}
	}
}

// TestR_003_26_UnreadMessagesAreBounded: a turn is shown at most 20 messages, and 32 KiB; the next one
// is shown the rest. What a model has not been shown stays unread, and read_messages returns it.
func TestR_003_26_UnreadMessagesAreBounded(t *testing.T) {
	d, r := newDesk(t), &reader{}
	for i := range 41 {
		text := fmt.Sprint("text ", i)
		if i >= 20 && i < 23 {
			text = strings.Repeat("x", 12<<10)
		}
		_, err := d.PostMessage(d.ctx, as("x"), &teamv1.PostMessageRequest{Text: text, To: "crew"})
		d.must(err)
	}
	lead := func(m agent.Model) agent.Agent {
		a, err := leader.NewAgent(leader.AgentConfig{ID: "lead", Model: m, ToolSets: []agent.ToolSet{board.NewTools(d.store, key.Team, nil, key.Team)}})
		d.must(err)
		return a
	}
	process(t, lead(r), nil, -1)
	if len(r.shown) != 2 || len(r.shown[0]) != 20 || len(r.shown[1]) != 22 {
		t.Errorf("%d and %d messages are shown", len(r.shown[0]), len(r.shown[1]))
	}
	left, _, err := d.ListMessages(d.ctx, as("x"), &teamv1.ListMessagesRequest{Reader: key.Team, Unread: true})
	d.must(err)
	if len(left) != 19 {
		t.Errorf("%d are unread", len(left))
	}
	c := &clerk{calls: []*teamv1.ToolCall{call("read_messages", `{}`), call("read_messages", `{"up_to":99}`)}}
	process(t, lead(c), nil, -1)
	if len(c.told) != 2 || c.told[0] != "none" || !strings.Contains(c.told[1], "upTo is 99") {
		t.Errorf("the model was told %q", c.told)
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
