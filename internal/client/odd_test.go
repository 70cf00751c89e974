package client

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// What is no answer to what was asked is an error that says what is wrong with it.

const goodTask = `{"id":"t1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}`

func TestA_12_ResponsesOfJSONRPC(t *testing.T) {
	for name, tt := range map[string]struct{ envelope, want string }{
		"good":            {`{"jsonrpc":"2.0","id":1,"result":TASK}`, ""},
		"another id":      {`{"jsonrpc":"2.0","id":"zzz","result":TASK}`, `the answer is to another request: its id is "zzz", not 1`},
		"an id of null":   {`{"jsonrpc":"2.0","id":null,"result":TASK}`, "the answer is to another request: its id is null, not 1"},
		"no id":           {`{"jsonrpc":"2.0","result":TASK}`, "the answer is to another request: its id is missing, not 1"},
		"another version": {`{"jsonrpc":"1.0","id":1,"result":TASK}`, "the answer is no response of JSON-RPC 2.0"},
		"no version":      {`{"id":1,"result":TASK}`, "the answer is no response of JSON-RPC 2.0"},
		"a list":          {`[{"jsonrpc":"2.0","id":1,"result":TASK}]`, "the answer is no response of JSON-RPC 2.0"},
		"a page":          {`<html>`, "the answer is no response of JSON-RPC 2.0"},
		"an error of who could not read the request": {`{"jsonrpc":"2.0","id":null,"error":{"code":-32004,"message":"no"}}`, "UNSUPPORTED_OPERATION: no"},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(tt.envelope, "TASK", goodTask, 1)
			via := newJSONRPC(newWeb(Config{}), foreign(t, 200, "application/json", body, nil))
			defer func() { _ = via.close() }()
			_, err := via.task(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
			if text(err) != tt.want {
				t.Errorf("get: %v, want %s", err, tt.want)
			}
			inStream := newJSONRPC(newWeb(Config{}), foreign(t, 200, wire.TypeSSE, "data: "+strings.Replace(body, goodTask, `{"task":`+goodTask+`}`, 1)+"\n\n", nil))
			defer func() { _ = inStream.close() }()
			if err := firstError(inStream.stream(t.Context(), &a2av1.SendMessageRequest{})); text(err) != cmp.Or(tt.want, "no error") {
				t.Errorf("stream: %v, want %s", err, tt.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func restClient(t *testing.T, media, body string) *Client {
	t.Helper()
	c := &Client{via: newREST(newWeb(Config{}), foreign(t, 200, media, body, nil))}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestA_04_AnswersToWhatWasAsked(t *testing.T) {
	for body, want := range map[string]string{
		goodTask:      "",
		`{}`:          "the server was asked for task t1, and answers with none",
		`{"id":"zz"}`: "the server was asked for task t1, and answers with zz",
		`{"id":"t1"}`: "the server does not say how task t1 stands",
		`<html>`:      "the answer is not JSON, at byte 1",
		``:            "the answer is not JSON: it ends early, after 0 bytes",
		`{"id":7}`:    "the answer cannot be read: id must be a string",
	} {
		c := restClient(t, "application/json", body)
		if _, err := c.Task(t.Context(), &a2av1.GetTaskRequest{Id: "t1"}); text(err) != want {
			t.Errorf("get, %s: %v, want %s", body, err, want)
		}
		if _, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: "t1"}); text(err) != want {
			t.Errorf("cancel, %s: %v, want %s", body, err, want)
		}
	}
	c := restClient(t, "application/json", `{}`)
	if _, err := c.Send(t.Context(), &a2av1.SendMessageRequest{}); text(err) != "the answer holds neither a message nor a task" {
		t.Errorf("send: %v", err)
	}
	if _, err := c.Push(t.Context(), &a2av1.GetTaskPushNotificationConfigRequest{TaskId: "t1", Id: "p"}); text(err) != "the answer holds no webhook" {
		t.Errorf("push get: %v", err)
	}
	if _, err := c.SetPush(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: "t1"}); text(err) != "the answer holds no webhook" {
		t.Errorf("push set: %v", err)
	}
}

func TestA_07_EventsOfAnotherTask(t *testing.T) {
	for body, want := range map[string]string{
		`{"task":` + goodTask + `}`:                             "no error",
		`{"task":{"id":"zz"}}`:                                  "the server was asked for task t1, and answers with zz",
		`{"statusUpdate":{"taskId":"zz"}}`:                      "the server was asked for task t1, and answers with zz",
		`{"artifactUpdate":{"artifact":{"artifactId":"a"}}}`:    "the server was asked for task t1, and answers with none",
		`{"message":{"messageId":"m","parts":[{"text":"hi"}]}}`: "no error",
	} {
		c := restClient(t, wire.TypeSSE, "data: "+body+"\n\n")
		if err := firstError(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0)); text(err) != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

func TestA_20_NoStreamAtAll(t *testing.T) {
	c := &Client{via: newREST(newWeb(Config{}), foreign(t, http.StatusNoContent, "", "", nil))}
	defer func() { _ = c.Close() }()
	if err := firstError(c.Stream(t.Context(), &a2av1.SendMessageRequest{})); text(err) != "the server answered 204 No Content, no stream of events" {
		t.Errorf("error is %v", err)
	}
}

func TestP10_EventWithoutEnd(t *testing.T) {
	c := restClient(t, wire.TypeSSE, "data: "+strings.Repeat("a", wire.MaxEvent))
	if err := firstError(c.Stream(t.Context(), &a2av1.SendMessageRequest{})); text(err) != "reading an event: it is larger than 16777216 bytes" {
		t.Errorf("error is %v", err)
	}
}

func TestA_10_WhatIsNoCard(t *testing.T) {
	for body, want := range map[string]string{
		`<html>`: "the answer is not JSON, at byte 1",
		`[]`:     "the answer must be an object",
		`{}`:     "it has neither a name nor interfaces",
	} {
		target := foreign(t, 200, "application/json", body, nil)
		if _, _, err := ReadCard(t.Context(), target, Config{}); text(err) != target+" is no A2A card: "+want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// Cards name addresses of all kinds.
func TestA_10_AddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"/x", "file:///etc/passwd", "::::", "h.example"} {
		for _, binding := range []string{REST, JSONRPC} {
			via, err := newWeb(Config{}).connect(&a2av1.AgentInterface{Url: address, ProtocolBinding: binding, ProtocolVersion: V10}, "http://h")
			if err != nil {
				t.Fatal(err)
			}
			_, err = via.task(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
			if !strings.HasPrefix(text(err), `the card names "`) || !strings.HasSuffix(text(err), `, which is no address`) {
				t.Errorf("%s over %s: %v", address, binding, err)
			}
			_ = via.close()
		}
	}
}

// TestA_21_AddressesAreShownWithoutUsers: what is wrong with an address is told without
// the password in it.
func TestA_21_AddressesAreShownWithoutUsers(t *testing.T) {
	for _, address := range []string{
		"http://ann:hush@127.0.0.1:x", "ann:hush@127.0.0.1", "ftp://ann:hush@127.0.0.1/x", "http://ann:hu@sh@127.0.0.1:x",
		"grpc://ann:hush@127.0.0.1:9", "grpc://ann:hush@127.0.0.1:x/desk",
	} {
		_, err := NewTeam(address, Config{})
		if !strings.Contains(text(err), "127.0.0.1") || strings.Contains(text(err), "hu") || strings.Contains(text(err), "sh@") {
			t.Errorf("a server at %s: %v", address, err)
		}
		c, err := Open(t.Context(), address, Config{})
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			_, err = c.Task(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
		}
		if !strings.Contains(text(err), "127.0.0.1") || strings.Contains(text(err), "hu") || strings.Contains(text(err), "sh@") {
			t.Errorf("an agent at %s: %v", address, err)
		}
	}
}

// Who is called over the wrong protocol is there, and the person is told what else to
// try.
func TestA_21_PortsOfTheOtherProtocol(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for range 300 { // a server of gRPC speaks first, which is seen before the request is sent, or after
		_, err = Open(t.Context(), "http://"+l.Addr().String(), Config{})
		wrongProtocol(t, err, "; a server that speaks gRPC is called as grpc://HOST:PORT/TENANT")
	}

	web := strings.TrimPrefix(foreign(t, http.StatusOK, "text/plain", "hi", nil), "http://")
	c, err := Open(t.Context(), "grpc://"+web, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.Task(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
	wrongProtocol(t, err, ": it does not speak gRPC; a card is read from http://HOST:PORT")
}

func wrongProtocol(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, ErrUnreachable) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// TestWhatIsNoTeamServer: who asks another web server for teams is told that it is
// one, unless it may be a proxy of a team-server.
func TestWhatIsNoTeamServer(t *testing.T) {
	const page, plain = "<html>hi</html>", `{"detail":"Not Found"}`
	for _, tt := range []struct {
		status int
		body   string
		want   string // else all of it
	}{
		{http.StatusNotFound, page, ""},
		{http.StatusNotFound, plain, ""},
		{http.StatusMethodNotAllowed, "", ""},
		{http.StatusNotImplemented, page, ""},
		{http.StatusOK, page, ""},
		{http.StatusOK, "[]", ""},
		{http.StatusBadGateway, page, "UNAVAILABLE: Bad Gateway"},
		{http.StatusUnauthorized, page, "UNAUTHENTICATED: Unauthorized"},
		{http.StatusNotFound, `{"error":{"code":404,"status":"NOT_FOUND","message":"there is no team \"x\"","details":[` +
			`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TEAM_NOT_FOUND","domain":"team-server"}]}}`, `TEAM_NOT_FOUND: there is no team "x"`},
	} {
		base := foreign(t, tt.status, "text/html", tt.body, nil)
		c, err := NewTeam(strings.Replace(base, "http://", "http://ann:hush@", 1), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want := cmp.Or(tt.want, "what answers at "+strings.Replace(base, "http://", "http://ann:xxxxx@", 1)+" does not look like a team-server; "+
			"use the address after http= of a server's ready line, for example http://127.0.0.1:8080")
		if _, err := c.ListTeams(t.Context()); text(err) != want {
			t.Errorf("list, %d %s: %v", tt.status, tt.body, err)
		}
		if _, err := c.Collaboration(t.Context(), "x"); text(err) != want {
			t.Errorf("collaboration, %d %s: %v", tt.status, tt.body, err)
		}
		for _, err := range c.Process(t.Context(), &teamv1.ProcessRequest{AgentId: "x"}, 0) {
			if text(err) != want {
				t.Errorf("process, %d %s: %v", tt.status, tt.body, err)
			}
		}
	}
}
