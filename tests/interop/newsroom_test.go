package interop

import (
	"slices"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/tests/interoprig"
)

// teamRun is the extension that tells what goes on in a team.
const teamRun = "https://github.com/agentteams/team-server/ext/team-run/v1"

// story is what the demo's newsroom makes of "tides".
const story = `First version. On "tides": begin with what the reader knows, name the cause, give one figure and its source.`

// The well-known card is that of the default team; every team has its own.
func testCard(t *testing.T, s interoprig.Server) {
	resolve := func(base string) *a2a.AgentCard {
		card, err := agentcard.DefaultResolver.Resolve(t.Context(), base)
		if err != nil {
			t.Fatal(err)
		}
		return card
	}
	card := resolve(s.URL)
	if diff := cmp.Diff(card, resolve(s.URL+"/newsroom")); diff != "" {
		t.Errorf("the default card is not newsroom's:\n%s", diff)
	}
	want := []*a2a.AgentInterface{
		{URL: s.URL + "/newsroom/rpc", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2a.Version},
		{URL: s.URL + "/newsroom", ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: a2a.Version},
		{URL: s.GRPC, ProtocolBinding: a2a.TransportProtocolGRPC, Tenant: "newsroom", ProtocolVersion: a2a.Version},
	}
	if diff := cmp.Diff(want, card.SupportedInterfaces); diff != "" {
		t.Errorf("interfaces (- want, + got):\n%s", diff)
	}
	if !card.Capabilities.Streaming || !card.Capabilities.PushNotifications || card.Capabilities.ExtendedAgentCard {
		t.Errorf("capabilities %+v, want streaming and push notifications", card.Capabilities)
	}
	if got, want := skills(card), []string{"review", "search", "write"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
	params := card.Capabilities.Extensions[0].Params
	if diff := cmp.Diff(map[string]any{"type": "team", "mode": "supervisor", "member_count": "3"}, params); diff != "" {
		t.Errorf("parameters of %s (- want, + got):\n%s", card.Capabilities.Extensions[0].URI, diff)
	}
	for _, team := range []string{"release", "company"} {
		if other := resolve(s.URL + "/" + team); other.SupportedInterfaces[0].URL != s.URL+"/"+team+"/rpc" {
			t.Errorf("the card of %s is for %q", team, other.SupportedInterfaces[0].URL)
		}
	}
}

func skills(card *a2a.AgentCard) []string {
	var ids []string
	for _, s := range card.Skills {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

// newsroom are the scenarios of the demo's team.
func newsroom() []scenario {
	return []scenario{
		{"send", "R-000-14 send and wait", "newsroom", playSend},
		{"stream", "stream", "newsroom", playStream},
		{"stream", "stream with the steps of the team", "newsroom", playDetails},
		{"get", "R-000-40 poll", "newsroom", playPoll},
		{"list", "A-05 list", "newsroom", playList},
	}
}

func playSend(s *stage) any {
	task := s.task(say("tides"))
	s.is(task, a2a.TaskStateCompleted)
	if got := s.answer(task); got != story {
		s.Errorf("answer %q, want %q", got, story)
	}
	if len(task.History) != 1 || task.History[0].TaskID != task.ID || task.History[0].ContextID != task.ContextID {
		s.Errorf("history %+v, want the message with the ids of its task", task.History)
	}
	if diff := cmp.Diff(task, s.get(task.ID)); diff != "" {
		s.Errorf("get (- send, + get):\n%s", diff)
	}
	return task
}

// playStream streams a run: the task, its states, the artifact, the end.
func playStream(s *stage) any {
	events := s.collect(s.SendStreamingMessage(s.ctx, say("tides")))
	task, ok := events[0].(*a2a.Task)
	if !ok {
		s.Fatalf("the first event is a %T, not a task", events[0])
	}
	if got := fold(task, events[1:]); got != story {
		s.Errorf("artifact %q, want %q", got, story)
	}
	end, ok := events[len(events)-1].(*a2a.TaskStatusUpdateEvent)
	if !ok || end.Status.State != a2a.TaskStateCompleted {
		s.Errorf("the last event is %+v, not the end", events[len(events)-1])
	}
	for i, ev := range events {
		if info := ev.TaskInfo(); info.TaskID != task.ID || info.ContextID != task.ContextID {
			s.Errorf("event %d is of task %s, want %s", i, info.TaskID, task.ID)
		}
	}
	if got := s.answer(s.get(task.ID)); got != story {
		s.Errorf("get: answer %q, want %q", got, story)
	}
	return events
}

// playDetails activates the team-run extension: who was asked, in order.
func playDetails(s *stage) any {
	ctx := a2aclient.AttachServiceParams(s.ctx, a2aclient.ServiceParams{a2a.SvcParamExtensions: {teamRun}})
	var turns []string
	for _, ev := range s.collect(s.SendStreamingMessage(ctx, say("tides"))) {
		run, _ := ev.Meta()[teamRun].(map[string]any)
		if path, _ := run["path"].(string); run["kind"] == "started" && path != "newsroom" && !slices.Contains(turns, path) {
			turns = append(turns, path)
		}
	}
	if want := []string{"newsroom/researcher", "newsroom/writer", "newsroom/critic"}; !slices.Equal(turns, want) {
		s.Errorf("turns %v, want %v", turns, want)
	}
	return turns
}

// playPoll begins a task and reads it until it is done.
func playPoll(s *stage) any {
	task := s.task(atOnce(say("tides")))
	if task.Status.State.Terminal() {
		s.Errorf("state %s right away", task.Status.State)
	}
	for !task.Status.State.Terminal() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
			s.Fatalf("still %s", task.Status.State)
		}
		task = s.get(task.ID)
	}
	s.is(task, a2a.TaskStateCompleted)
	return task
}

// playList pages through a conversation of three tasks.
func playList(s *stage) any {
	first := s.task(say("one"))
	second := s.task(in(first.ContextID, say("two")))
	third := s.task(in(first.ContextID, say("three")))
	want := []a2a.TaskID{third.ID, second.ID, first.ID}
	var got []a2a.TaskID
	var pages []*a2a.ListTasksResponse
	req := &a2a.ListTasksRequest{ContextID: first.ContextID, PageSize: 2}
	for {
		page, err := s.ListTasks(s.ctx, req)
		if err != nil {
			s.Fatal(err)
		}
		for _, task := range page.Tasks {
			got = append(got, task.ID)
			if len(task.Artifacts) != 0 {
				s.Error("artifacts that were not asked for")
			}
		}
		req.PageToken, page.NextPageToken = page.NextPageToken, "" // no two tokens are alike
		pages = append(pages, page)
		if req.PageToken == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("tasks, newest first (- want, + got):\n%s", diff)
	}
	if page, err := s.ListTasks(s.ctx, &a2a.ListTasksRequest{ContextID: first.ContextID}); err != nil || len(page.Tasks) != len(want) {
		s.Errorf("without a page size: %v %v", page, err)
	}
	_, err := s.ListTasks(s.ctx, &a2a.ListTasksRequest{PageSize: 101})
	return []any{pages, s.invalid(err, "pageSize")}
}
