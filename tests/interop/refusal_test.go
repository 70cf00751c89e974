package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/agentteams/team-server/tests/interoprig"
)

// refusal is an error as a client of the SDK sees it.
type refusal struct {
	Reason  string // the SDK's name of the error
	Message string
}

// refused checks that a call failed in the way it has to.
func (s *stage) refused(err, want error) refusal {
	s.Helper()
	if err == nil {
		s.Errorf("no error, want %v", want)
		return refusal{}
	}
	if !errors.Is(err, want) {
		s.Errorf("error %v (%s), want %v", err, a2a.ErrorReason(err), want)
	}
	return refusal{Reason: a2a.ErrorReason(err), Message: err.Error()}
}

// invalid checks that a call failed because of a field. A2A has no error of its
// own for that, so the SDK's differ from binding to binding; the text does not.
func (s *stage) invalid(err error, field string) string {
	s.Helper()
	if err == nil {
		s.Fatalf("no error, want one about %s", field)
	}
	if !strings.HasPrefix(err.Error(), field+" ") {
		s.Errorf("error %q, want one about %s", err, field)
	}
	return err.Error()
}

// losesRefusals is what the SDK makes of a stream that is refused over JSON-RPC, and
// what it gets: a plain answer, as the official conformance kit wants it. See
// https://github.com/a2aproject/a2a-tck/pull/168 for the answer, and
// https://github.com/a2aproject/a2a-rs/issues/134 for the same in another SDK.
const losesRefusals = "A stream that is refused seems empty to the client: it looks for events alone, and is answered " +
	"`Content-Type: application/json` and `" + refusedStream + "` (a2a-tck#168; as in a2a-rs#134)."

const refusedStream = `{"jsonrpc":"2.0","id":"1","error":{"code":-32001,"message":"there is no task \"none\"",` +
	`"data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}`

// limited puts down what the SDK, and its program for the command line, do not bring off.
func limited(c interoprig.Column) {
	if c.Binding == string(a2a.TransportProtocolJSONRPC) {
		c.Limited("unknown", losesRefusals)
		c.Limited("ended", losesRefusals)
	}
}

// What the server answers, and that the SDK makes nothing of it: as long as that is so,
// refusalReader is needed.
func TestA_02_GoSDKLosesRefusedStreams(t *testing.T) {
	s := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/echo/rpc",
		strings.NewReader(`{"jsonrpc":"2.0","id":"1","method":"SubscribeToTask","params":{"id":"none"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "text/event-stream", "A2A-Version": "1.0"} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(bytes.TrimSpace(b)) != refusedStream || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%v %v\n%s", err, resp.Header, b)
	}
	client, err := a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{a2a.NewAgentInterface(s.URL+"/echo/rpc", a2a.TransportProtocolJSONRPC)})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: "none"}) {
		t.Errorf("it sees %v, %v by now: drop refusalReader and losesRefusals", ev, err)
	}
}

// refusalReader is a transport for JSON-RPC. The SDK looks for events in
// whatever answers a streaming call, and finds none in the plain error that
// refuses it: the stream seems to be empty. This hands it the error as an event.
type refusalReader struct{}

func (refusalReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || req.Header.Get("Accept") != "text/event-stream" || resp.Header.Get("Content-Type") != "application/json" {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(fmt.Appendf(nil, "data: %s\n\n", bytes.TrimSpace(body))))
	return resp, nil
}

// refusals are calls that make no sense.
func refusals() []scenario {
	return []scenario{
		{"unknown", "A-02 a task that is not there", "echo", playNoTask},
		{"unknown", "an agent that is not there", "echo", playNoAgent},
		{"send", "A-04 a message without content", "echo", playNoContent},
		{"send", "R-000-27 a member that fails", "press", playFailure},
	}
}

func playNoTask(s *stage) any {
	const id = "00000000-0000-7000-8000-000000000000"
	_, getting := s.GetTask(s.ctx, &a2a.GetTaskRequest{ID: id})
	_, canceling := s.CancelTask(s.ctx, &a2a.CancelTaskRequest{ID: id})
	_, sending := s.SendMessage(s.ctx, to(id, say("more")))
	return []refusal{
		s.refused(getting, a2a.ErrTaskNotFound),
		s.refused(canceling, a2a.ErrTaskNotFound),
		s.refused(sending, a2a.ErrTaskNotFound),
		s.refused(s.failure(s.SendStreamingMessage(s.ctx, to(id, say("more")))), a2a.ErrTaskNotFound),
		s.refused(s.failure(s.SubscribeToTask(s.ctx, &a2a.SubscribeToTaskRequest{ID: id})), a2a.ErrTaskNotFound),
	}
}

// playNoAgent names an agent that is not served. Which of its errors the SDK
// makes of that depends on the binding, since A2A has none for it.
func playNoAgent(s *stage) any {
	client := s.other("nobody")
	_, sending := client.SendMessage(s.ctx, say("hello"))
	_, listing := client.ListTasks(s.ctx, &a2a.ListTasksRequest{PageSize: 10}) // over gRPC the SDK sends 0 for none
	var messages []string
	for _, err := range []error{sending, s.failure(client.SendStreamingMessage(s.ctx, say("hello"))), listing} {
		if err == nil {
			s.Fatal("no error")
		}
		messages = append(messages, err.Error())
	}
	return messages
}

func playNoContent(s *stage) any {
	empty := &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser)}
	_, sending := s.SendMessage(s.ctx, empty)
	asAgent := say("hello")
	asAgent.Message.Role = a2a.MessageRoleAgent
	_, posing := s.SendMessage(s.ctx, asAgent)
	nameless := say("hello")
	nameless.Message.ID = ""
	_, unnamed := s.SendMessage(s.ctx, nameless)
	return []string{
		s.invalid(sending, "message.parts"),
		s.invalid(s.failure(s.SendStreamingMessage(s.ctx, empty)), "message.parts"),
		s.invalid(posing, "message.role"),
		s.invalid(unnamed, "message.messageId"),
	}
}

// playFailure has a member fail: the task does, with the member's error.
func playFailure(s *stage) any {
	task := s.task(say("hello"))
	s.is(task, a2a.TaskStateFailed)
	if task.Status.Message == nil {
		s.Fatal("the task does not say why")
	}
	return task
}
