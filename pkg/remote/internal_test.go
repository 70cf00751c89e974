package remote

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// TransferOf is what the tests outside see of transferOf.
func TransferOf(m ...*structpb.Struct) *teamv1.Transfer { return transferOf(m...) }

// collector gathers what an exchange yields.
func newCollected(recorded ...*teamv1.Event) (*exchange, *[]*teamv1.Event) {
	var got []*teamv1.Event
	req := &teamv1.ProcessRequest{AgentId: "far", Scope: "1", Key: "k", Recorded: recorded}
	ctx := agent.With(context.Background(), &agent.Run{Root: "root"})
	c := newCall(ctx, req, func(e *teamv1.Event, _ error) bool {
		got = append(got, e)
		return true
	})
	return newExchange(&A2A{cfg: A2AConfig{ID: "far"}, peer: peer{card: mustCard()}}, c), &got
}

func mustCard() *url.URL { return &url.URL{Scheme: "http", Host: "far"} }

func taskUpdate(id string, parts ...*a2av1.Part) *a2av1.StreamResponse {
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2av1.TaskArtifactUpdateEvent{
		TaskId: id, Artifact: &a2av1.Artifact{ArtifactId: "a", Parts: parts},
	}}}
}

// TestT28_UpdatesOfAnotherTaskAreDropped: a peer speaks for its task only.
func TestT28_UpdatesOfAnotherTaskAreDropped(t *testing.T) {
	x, got := newCollected()
	for _, id := range []string{"ours", "theirs", "ours"} {
		if done, err := x.take(taskUpdate(id, agent.TextParts(id+" ")...)); done || err != nil {
			t.Fatal(done, err)
		}
	}
	for _, e := range *got {
		if strings.Contains(e.GetDelta().GetText(), "theirs") {
			t.Errorf("event %v", e)
		}
	}
	foreign := &a2av1.Task{Id: "theirs", Status: &a2av1.TaskStatus{State: a2av1.TaskState_TASK_STATE_COMPLETED}}
	if done, err := x.take(&a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: foreign}}); done || err != nil {
		t.Errorf("another task's end was taken: %v, %v", done, err)
	}
}

func TestT17_PeerThatSendsWithoutEnd(t *testing.T) {
	x, _ := newCollected()
	part := &a2av1.Part{Content: &a2av1.Part_Raw{Raw: make([]byte, 1<<20)}}
	var err error
	for i := 0; err == nil; i++ {
		if i > 100 {
			t.Fatal("100 MiB were taken")
		}
		u := taskUpdate("ours", part)
		u.GetArtifactUpdate().Append = true
		_, err = x.take(u)
	}
	if e := agent.AsError(err); e.Reason != reasonInvalidResponse {
		t.Errorf("error %+v", e)
	}
}

// TestStreamedTextFollowsTheSnapshots: whatever way the text comes, its deltas
// give what the artifact holds.
func TestStreamedTextFollowsTheSnapshots(t *testing.T) {
	x, got := newCollected(&teamv1.Event{Scope: "1", Kind: &teamv1.Event_Bound{Bound: &teamv1.Bound{TaskId: "ours"}}})
	for _, text := range []string{"a", "ab", "ab", "xyz"} {
		if _, err := x.take(taskUpdate("ours", agent.TextParts(text)...)); err != nil {
			t.Fatal(err)
		}
		shown := ""
		for _, e := range *got {
			if e.GetDelta().GetRestart() {
				shown = ""
			}
			shown += e.GetDelta().GetText()
		}
		if shown != text {
			t.Errorf("deltas give %q, want %q", shown, text)
		}
	}
	if !(*got)[0].GetDelta().GetRestart() {
		t.Error("what comes again after a crash does not begin anew")
	}
}

func FuzzCard(f *testing.F) {
	f.Add([]byte(`{"name":"x","supportedInterfaces":[{"url":"https://x","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{"id":"a"}]}`))
	f.Add([]byte(`{"protocolVersion":"0.3.0"}`))
	p := peer{id: "far", card: mustCard(), token: true, trusted: []string{"far:80"}}
	f.Fuzz(func(t *testing.T, b []byte) {
		card, err := parseCard("far", b)
		if err != nil {
			return
		}
		info := infoOf("far", card)
		if len(info.GetCapabilities()) != len(info.GetSkills()) || len(info.GetSkills()) > maxSkills {
			t.Errorf("info %v", info)
		}
		if i, err := p.choose(card); err == nil && !p.trusts(i) {
			t.Errorf("the token goes to %v", i)
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("data: {\"task\":{\"id\":\"t\",\"status\":{\"state\":\"TASK_STATE_WORKING\"}}}\n\n"), false)
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"artifactUpdate\":{\"taskId\":\"t\"}}}\n\n"), true)
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"no\"}}\n\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, rpc bool) {
		x, _ := newCollected()
		parse := parseBare
		if rpc {
			parse = func(b []byte) (*a2av1.StreamResponse, error) {
				r := &a2av1.StreamResponse{}
				return r, parseRPC(200, b, r)
			}
		}
		readStream(io.NopCloser(bytes.NewReader(b)), parse, func(r *a2av1.StreamResponse, err error) bool {
			if err != nil {
				return false
			}
			done, err := x.take(r)
			return !done && err == nil
		})
	})
}

func TestAPeersMessageIsOurOwnCopy(t *testing.T) {
	m := &a2av1.Message{MessageId: "m", TaskId: "t", ContextId: "c", Role: a2av1.Role_ROLE_USER, ReferenceTaskIds: []string{"x"}}
	before := proto.CloneOf(m)
	c := own(m)
	if c.GetTaskId() != "" || c.GetContextId() != "" || c.GetReferenceTaskIds() != nil || c.GetRole() != a2av1.Role_ROLE_AGENT {
		t.Errorf("own = %v", c)
	}
	if !proto.Equal(m, before) {
		t.Errorf("the peer's message was changed: %v", m)
	}
}

// TestA_12_ErrorsInStreams: the reason of an error that comes as an event is kept,
// whether the event's type says so or not.
func TestA_12_ErrorsInStreams(t *testing.T) {
	const rest = `{"error":{"code":404,"status":"NOT_FOUND","message":"no such task"}}`
	for name, event := range map[string]string{
		"by its type":       "event: error\ndata: " + rest + "\n\n",
		"by what it holds":  "data: " + rest + "\n\n",
		"JSON-RPC":          `data: {"error":{"code":-32001,"message":"no such task"},"id":1,"jsonrpc":"2.0"}` + "\n\n",
		"JSON-RPC, in turn": `data: {"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}` + "\n\n",
	} {
		parse := parseBare
		if strings.HasPrefix(name, "JSON-RPC") {
			parse = func(b []byte) (*a2av1.StreamResponse, error) {
				r := &a2av1.StreamResponse{}
				return r, parseRPC(200, b, r)
			}
		}
		n := 0
		readStream(io.NopCloser(strings.NewReader(event)), parse, func(_ *a2av1.StreamResponse, err error) bool {
			n++
			if codeOf(err) != codes.NotFound {
				t.Errorf("%s: %v", name, err)
			}
			return true
		})
		if n != 1 {
			t.Errorf("%s: %d events", name, n)
		}
	}
}
