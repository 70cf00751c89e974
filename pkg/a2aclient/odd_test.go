package a2aclient

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// What is no answer to what was asked is an error that says what is wrong with it.

const goodTask = `{"id":"t1","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}`

func TestA_12_ResponsesOfJSONRPC(t *testing.T) {
	for name, tt := range map[string]struct{ envelope, want string }{
		"good":            {`{"jsonrpc":"2.0","id":1,"result":TASK}`, ""},
		"another id":      {`{"jsonrpc":"2.0","id":"zzz","result":TASK}`, `the response is for another request: its id is "zzz", not 1`},
		"an id of null":   {`{"jsonrpc":"2.0","id":null,"result":TASK}`, "the response is for another request: its id is null, not 1"},
		"no id":           {`{"jsonrpc":"2.0","result":TASK}`, "the response is for another request: its id is missing, not 1"},
		"another version": {`{"jsonrpc":"1.0","id":1,"result":TASK}`, "the answer is not a JSON-RPC 2.0 response"},
		"no version":      {`{"id":1,"result":TASK}`, "the answer is not a JSON-RPC 2.0 response"},
		"a list":          {`[{"jsonrpc":"2.0","id":1,"result":TASK}]`, "the answer is not a JSON-RPC 2.0 response"},
		"a page":          {`<html>`, "the answer is not a JSON-RPC 2.0 response"},
		"an error of who could not read the request": {`{"jsonrpc":"2.0","id":null,"error":{"code":-32004,"message":"no"}}`, "UNSUPPORTED_OPERATION: no"},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(tt.envelope, "TASK", goodTask, 1)
			via := newJSONRPC(newWeb(Config{}, V1), foreign(t, 200, "application/json", body, nil))
			defer func() { _ = via.close() }()
			_, err := via.task(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
			if text(err) != tt.want {
				t.Errorf("get: %v, want %s", err, tt.want)
			}
			inStream := newJSONRPC(newWeb(Config{}, V1), foreign(t, 200, wire.TypeSSE, "data: "+strings.Replace(body, goodTask, `{"task":`+goodTask+`}`, 1)+"\n\n", nil))
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
	c := &Client{at: &a2av1.AgentInterface{}, via: newREST(newWeb(Config{}, V1), foreign(t, 200, media, body, nil))}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestA_04_AnswersToWhatWasAsked(t *testing.T) {
	for body, want := range map[string]string{
		goodTask:      "",
		`{}`:          "the server was asked for task t1, but returned none",
		`{"id":"zz"}`: "the server was asked for task t1, but returned zz",
		`{"id":"t1"}`: "the response has no status for task t1",
		`<html>`:      "the answer is not JSON, at byte 1",
		``:            "the answer is not JSON: it ends early, after 0 bytes",
		`{"id":7}`:    "the answer cannot be read: id must be a string",
	} {
		c := restClient(t, "application/json", body)
		if _, err := c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t1"}); text(err) != want {
			t.Errorf("get, %s: %v, want %s", body, err, want)
		}
		if _, err := c.CancelTask(t.Context(), &a2av1.CancelTaskRequest{Id: "t1"}); text(err) != want {
			t.Errorf("cancel, %s: %v, want %s", body, err, want)
		}
	}
	c := restClient(t, "application/json", `{}`)
	if _, err := c.SendMessage(t.Context(), &a2av1.SendMessageRequest{}); text(err) != "the answer is neither a task nor a message nor an update" {
		t.Errorf("send: %v", err)
	}
	if _, err := c.GetTaskPushNotificationConfig(t.Context(), &a2av1.GetTaskPushNotificationConfigRequest{TaskId: "t1", Id: "p"}); text(err) != "the response contains no push configuration" {
		t.Errorf("push get: %v", err)
	}
	if _, err := c.CreateTaskPushNotificationConfig(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: "t1"}); text(err) != "the response contains no push configuration" {
		t.Errorf("push set: %v", err)
	}
}

func TestA_07_EventsOfAnotherTask(t *testing.T) {
	for body, want := range map[string]string{
		`{"task":` + goodTask + `}`:                             "no error",
		`{"task":{"id":"zz"}}`:                                  "the server was asked for task t1, but returned zz",
		`{"statusUpdate":{"taskId":"zz"}}`:                      "the server was asked for task t1, but returned zz",
		`{"artifactUpdate":{"artifact":{"artifactId":"a"}}}`:    "the server was asked for task t1, but returned none",
		`{"message":{"messageId":"m","parts":[{"text":"hi"}]}}`: "no error",
	} {
		c := restClient(t, wire.TypeSSE, "data: "+body+"\n\n")
		if err := firstError(c.SubscribeToTask(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0)); text(err) != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// TestA_07_EventsThatAreNotInTheFormOf10: an event is read by its kind and fields, or fails. It is never
// left out.
func TestA_07_EventsThatAreNotInTheFormOf10(t *testing.T) {
	first := "data: {\"task\":" + strings.Replace(goodTask, "COMPLETED", "WORKING", 1) + "}\n\n"
	for body, want := range map[string]string{
		`{"kind":"artifact-update","taskId":"t1","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"hi"}]},"append":false,"lastChunk":true}`: "no error",
		`{"taskId":"t1","status":{"state":"completed"},"final":true}`:                                                                                  "no error",
		`{"progress":{"percent":50}}`: "the answer is neither a task nor a message nor an update",
		`{"artifactUpdate":{"taskId":"t1","artifact":{"artifactId":"a","parts":[{"video":"x"}]}}}`: "the answer cannot be read: artifactUpdate.artifact.parts[0] has no content; set one of text, file, data, raw, url",
	} {
		c := restClient(t, wire.TypeSSE, first+"data: "+body+"\n\n")
		n := 0
		var err error
		for r, failed := range c.StreamMessage(t.Context(), &a2av1.SendMessageRequest{}) {
			if err = failed; err == nil && r.GetPayload() != nil {
				n++
			}
		}
		if got := cmp.Or(text(err), "no error"); got != want || (err == nil) != (n == 2) {
			t.Errorf("%s: %s after %d events, want %s", body, got, n, want)
		}
	}
}

func TestA_20_NoStreamAtAll(t *testing.T) {
	c := &Client{at: &a2av1.AgentInterface{}, via: newREST(newWeb(Config{}, V1), foreign(t, http.StatusNoContent, "", "", nil))}
	defer func() { _ = c.Close() }()
	if err := firstError(c.StreamMessage(t.Context(), &a2av1.SendMessageRequest{})); text(err) != "the server answered 204 No Content, not an event stream" {
		t.Errorf("error is %v", err)
	}
}

func TestP10_EventWithoutEnd(t *testing.T) {
	c := restClient(t, wire.TypeSSE, "data: "+strings.Repeat("a", wire.MaxEvent))
	if err := firstError(c.StreamMessage(t.Context(), &a2av1.SendMessageRequest{})); text(err) != "reading an event: it is larger than 16777216 bytes" {
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
		if _, _, err := ReadCard(t.Context(), target, Config{}); text(err) != target+wellKnown+" is not an A2A card: "+want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// Cards name addresses of all kinds.
func TestA_10_AddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"/x", "file:///etc/passwd", "::::", "h.example"} {
		for _, binding := range []string{REST, JSONRPC} {
			via, err := newWeb(Config{}, V1).connect(&a2av1.AgentInterface{Url: address, ProtocolBinding: binding}, &url.URL{Scheme: "http", Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = via.task(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
			if !strings.HasPrefix(text(err), `the card contains "`) || !strings.HasSuffix(text(err), `, which is not a valid address`) {
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
		c, err := Open(t.Context(), address, Config{})
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			_, err = c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
		}
		if !strings.Contains(text(err), "127.0.0.1") || strings.Contains(text(err), "hu") || strings.Contains(text(err), "sh@") {
			t.Errorf("an agent at %s: %v", address, err)
		}
	}
}

// TestA_21_QueriesAreNotShown: an error about a card does not show the query of its address.
func TestA_21_QueriesAreNotShown(t *testing.T) {
	for what, answer := range map[string]http.HandlerFunc{
		"no card": http.NotFound,
		"another place": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example/?key=hush", http.StatusFound)
		},
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) },
		"no agent": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"nothing":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		srv := httptest.NewServer(answer)
		defer srv.Close()
		_, _, err := ReadCard(t.Context(), srv.URL+"/card.json?key=hush", Config{})
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", what, err)
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
		wrongProtocol(t, err, "; to call a gRPC server, use grpc://HOST:PORT/TENANT")
	}

	web := strings.TrimPrefix(foreign(t, http.StatusOK, "text/plain", "hi", nil), "http://")
	c, err := Open(t.Context(), "grpc://"+web, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.GetTask(t.Context(), &a2av1.GetTaskRequest{Id: "t"})
	wrongProtocol(t, err, ": it does not speak gRPC; to read a card, use http://HOST:PORT")
}

func wrongProtocol(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, ErrUnreachable) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
}
