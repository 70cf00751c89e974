package remote

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/a2av03"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
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

// TestT_28_UpdatesOfAnotherTaskAreDropped: a peer speaks for its task only.
func TestT_28_UpdatesOfAnotherTaskAreDropped(t *testing.T) {
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

func TestT_17_PeerThatSendsWithoutEnd(t *testing.T) {
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

func FuzzP17_Card(f *testing.F) {
	f.Add([]byte(`{"name":"x","supportedInterfaces":[{"url":"https://x","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{"id":"a"}]}`))
	f.Add([]byte(`{"protocolVersion":"0.3.0"}`))
	p := peer{id: "far", card: mustCard(), call: a2aclient.Config{Token: secret.New("secret")}}
	f.Fuzz(func(t *testing.T, b []byte) {
		card, err := a2av03.ReadCard(b)
		if err != nil {
			return
		}
		info := infoOf("far", card)
		if len(info.GetCapabilities()) != len(info.GetSkills()) || len(info.GetSkills()) > maxSkills {
			t.Errorf("info %v", info)
		}
		if _, err := p.choose(card); err != nil && agent.AsError(err).Reason != agent.ReasonUnavailable {
			t.Error(err)
		}
	})
}

func FuzzP17_Stream(f *testing.F) {
	f.Add([]byte("data: {\"task\":{\"id\":\"t\",\"status\":{\"state\":\"TASK_STATE_WORKING\"}}}\n\n"), false)
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"artifactUpdate\":{\"taskId\":\"t\"}}}\n\n"), true)
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"no\"}}\n\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, rpc bool) {
		x, _ := newCollected()
		binding := BindingREST
		if rpc {
			binding = BindingJSONRPC
		}
		for r, err := range clientOf(t, binding, "1.0", canned{wire.TypeSSE, b}).StreamMessage(t.Context(), &a2av1.SendMessageRequest{}) {
			if err != nil {
				return
			}
			if done, err := x.take(r); done || err != nil {
				return
			}
		}
	})
}

// canned answers every call alike.
type canned struct {
	media string
	body  []byte
}

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {c.media}}, Body: io.NopCloser(bytes.NewReader(c.body))}, nil
}

// clientOf returns a client, as an agent has it, of a peer over HTTP.
func clientOf(t *testing.T, binding, version string, peer http.RoundTripper) *a2aclient.Client {
	t.Helper()
	card := &a2av1.AgentCard{SupportedInterfaces: []*a2av1.AgentInterface{{Url: "http://far", ProtocolBinding: binding, ProtocolVersion: version}}}
	c, err := a2aclient.New(card, "http://far", a2aclient.Config{Resumes: -1, Lenient: true, Transport: peer})
	if err != nil {
		t.Fatal(err)
	}
	return c
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

// overHTTP are clients of a server over HTTP that answers everything alike.
func overHTTP(t *testing.T, media, body string) map[string]*a2aclient.Client {
	t.Helper()
	all := map[string]*a2aclient.Client{}
	for name, binding := range map[string]string{"REST": BindingREST, "JSON-RPC": BindingJSONRPC} {
		all[name] = clientOf(t, binding, "1.0", canned{media, []byte(body)})
		all[name+" 0.3"] = clientOf(t, binding, "0.3", canned{media, []byte(body)})
	}
	return all
}

// streamError is the error that a stream ends with at its first event.
func streamError(t *testing.T, over *a2aclient.Client) error {
	t.Helper()
	var failed error
	n := 0
	for _, err := range over.StreamMessage(t.Context(), &a2av1.SendMessageRequest{Message: agent.UserMessage("m", "hi")}) {
		n, failed = n+1, err
	}
	if n != 1 {
		t.Errorf("%d events, want one", n)
	}
	return failed
}

// TestA_12_ErrorsInStreams: code and text of an error that comes as an event are kept,
// whether the event's type says so or not, and whatever form it has.
func TestA_12_ErrorsInStreams(t *testing.T) {
	const (
		rest  = `{"error":{"code":404,"status":"NOT_FOUND","message":"no such task"}}`
		plain = `{"error":{"code":404,"message":"no such task"}}`
		rpc   = `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}`
		bare  = `{"code":-32001,"message":"no such task"}`
	)
	for name, tt := range map[string]struct {
		event string
		over  []string
	}{
		"by its type":           {"event: error\ndata: " + rest + "\n\n", []string{"REST", "REST 0.3"}},
		"by what it holds":      {"data: " + rest + "\n\n", []string{"REST", "REST 0.3"}},
		"without a status":      {"data: " + plain + "\n\n", []string{"REST", "REST 0.3"}},
		"JSON-RPC":              {"data: " + rpc + "\n\n", []string{"REST 0.3", "JSON-RPC", "JSON-RPC 0.3"}},
		"JSON-RPC, by its type": {"event: error\ndata: " + rpc + "\n\n", []string{"REST 0.3", "JSON-RPC", "JSON-RPC 0.3"}},
		"of JSON-RPC below /v1": {"event: error\ndata: " + bare + "\n\n", []string{"REST 0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			ways := overHTTP(t, wire.TypeSSE, tt.event)
			for _, over := range tt.over {
				if st := status.Convert(streamError(t, ways[over])); st.Code() != codes.NotFound || st.Message() != "no such task" {
					t.Errorf("%s: %v", over, st)
				}
			}
		})
	}
}

// TestA_12_AnswersThatAreNoStream: what is not an event stream is not read as one.
func TestA_12_AnswersThatAreNoStream(t *testing.T) {
	ways := overHTTP(t, "text/html", "<html>data: no</html>")
	for _, over := range []string{"REST", "REST 0.3"} {
		e := agent.AsError(failure("far", streamError(t, ways[over])))
		if e.Reason != reasonInvalidResponse || !strings.Contains(e.Message, `agent "far" violated the protocol: the server answered text/html, not an event stream`) {
			t.Errorf("%s: %+v", over, e)
		}
	}
}

func said(text string) *a2av1.StreamResponse {
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: agent.NewMessage(text)}}
}

func taskIn(s a2av1.TaskState) *a2av1.StreamResponse {
	return &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Task{Task: &a2av1.Task{Id: "ours", Status: &a2av1.TaskStatus{State: s}}}}
}

// TestA_12_MessagesOfAStream: the end of the stream decides what messages are, and a
// stream that breaks is no end.
func TestA_12_MessagesOfAStream(t *testing.T) {
	const working, completed = a2av1.TaskState_TASK_STATE_WORKING, a2av1.TaskState_TASK_STATE_COMPLETED
	bound := &teamv1.Event{Scope: "1", Kind: &teamv1.Event_Bound{Bound: &teamv1.Bound{TaskId: "ours"}}}
	for name, tt := range map[string]struct {
		recorded      []*teamv1.Event
		stream        []*a2av1.StreamResponse
		breaks, hangs bool
		want          string
	}{
		"after a task":                      {stream: []*a2av1.StreamResponse{taskIn(working), said("one"), said("two"), taskIn(completed)}, want: "one\ntwo"},
		"instead of a task that is known":   {recorded: []*teamv1.Event{bound}, stream: []*a2av1.StreamResponse{said("one")}, want: "one"},
		"of a peer that does not hang up":   {stream: []*a2av1.StreamResponse{said("one"), said("two")}, hangs: true, want: "one\ntwo"},
		"before the connection breaks":      {stream: []*a2av1.StreamResponse{said("one")}, breaks: true, want: ""},
		"that are too many to be an answer": {stream: slices.Repeat([]*a2av1.StreamResponse{said("one")}, maxArtifacts+1), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			x, got := newCollected(tt.recorded...)
			x.agent.cfg.Idle = time.Minute
			if tt.hangs {
				x.agent.cfg.Idle = 100 * time.Millisecond // the two messages take far less
			}
			src := read(t.Context(), func(ctx context.Context) iter.Seq2[*a2av1.StreamResponse, error] {
				return func(yield func(*a2av1.StreamResponse, error) bool) {
					for _, r := range tt.stream {
						if !yield(r, nil) {
							return
						}
					}
					if tt.breaks {
						yield(nil, status.Error(codes.Unavailable, "connection reset"))
					}
					if tt.hangs {
						<-ctx.Done()
					}
				}
			})
			defer src.close()
			err := x.follow(src)
			reply := (*got)
			switch {
			case tt.want == "" && (err == nil || len(reply) > 0):
				t.Errorf("error %v, events %v; want an error alone", err, reply)
			case tt.want != "" && (err != nil || agent.Text(reply[len(reply)-1].GetReply().GetMessage()) != tt.want):
				t.Errorf("error %v, events %v; want %q", err, reply, tt.want)
			}
		})
	}
}
