package remote_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/remote"
)

// eachStream runs a test over each binding of A2A that streams, in 1.0 and 0.3.
func eachStream(t *testing.T, test func(t *testing.T, w way)) {
	t.Helper()
	eachWay(t, func(t *testing.T, w way) {
		if !w.a2a || w.cfg.NoStream {
			t.Skip("does not stream over A2A")
		}
		test(t, w)
	})
}

// texts are the texts of a message's parts.
func texts(m *a2av1.Message) string {
	var all []string
	for _, p := range m.GetParts() {
		all = append(all, p.GetText())
	}
	return strings.Join(all, "|")
}

// TestA_12_StreamOfSeveralMessages: nothing that a stream says is lost, and where a
// task comes its end decides.
func TestA_12_StreamOfSeveralMessages(t *testing.T) {
	said := []string{"one", "two"}
	for name, tt := range map[string]struct {
		turn           fakeagent.Turn
		reply, failure string
		progress       int
	}{
		"messages alone":                {turn: fakeagent.Turn{Said: said, Direct: true, Text: "three"}, reply: "one|two|three"},
		"then a task":                   {turn: fakeagent.Turn{Said: said, Text: "the answer"}, reply: "the answer", progress: 2},
		"then a task that fails":        {turn: fakeagent.Turn{Said: said, Fail: "no paper"}, failure: "no paper", progress: 2},
		"then a task without an answer": {turn: fakeagent.Turn{Said: said, Parts: []*a2av1.Part{}}, reply: "one|two", progress: 2},
	} {
		t.Run(name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, w way) {
				_, a := w.start(t, func(c *fakeagent.Config) { c.Default = tt.turn })
				j := newJournal("hello")
				err := j.play(t.Context(), a)
				if tt.failure != "" {
					if e := asError(t, err); e.Message != tt.failure {
						t.Errorf("error %+v, want %q", e, tt.failure)
					}
				} else if err != nil || texts(j.reply.GetMessage()) != tt.reply {
					t.Errorf("reply %q, error %v; want %q", texts(j.reply.GetMessage()), err, tt.reply)
				}
				progress := 0
				for _, e := range j.recorded {
					if e.GetProgress() != nil {
						progress++
					}
				}
				if progress != tt.progress {
					t.Errorf("%d messages are on record as progress, want %d", progress, tt.progress)
				}
			})
		})
	}
}

// TestA_12_AnswerInAStatus: a task that is completed without artifacts and without a message
// answers with what the agent said last, in a status or in the history.
func TestA_12_AnswerInAStatus(t *testing.T) {
	empty := []*a2av1.Part{}
	for name, tt := range map[string]struct {
		turns []fakeagent.Turn
		reply string
	}{
		"of a status":             {[]fakeagent.Turn{{Progress: "the answer", Parts: empty}}, "the answer"},
		"of the history":          {[]fakeagent.Turn{{Noted: "the answer", Parts: empty}}, "the answer"},
		"after a question":        {[]fakeagent.Turn{{Ask: "which?"}, {Noted: "the answer", Parts: empty}}, "the answer"},
		"none after a question":   {[]fakeagent.Turn{{Ask: "which?"}, {Parts: empty}}, ""},
		"none":                    {[]fakeagent.Turn{{Parts: empty}}, ""},
		"an artifact comes first": {[]fakeagent.Turn{{Progress: "I think.", Noted: "I thought.", Text: "the answer"}}, "the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				if !w.a2a {
					t.Skip("is not A2A")
				}
				_, a := w.start(t, func(c *fakeagent.Config) { c.Turns = tt.turns })
				j := newJournal("hello")
				if err := j.play(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				if len(tt.turns) > 1 {
					j.answer("this")
					if err := j.play(t.Context(), a); err != nil {
						t.Fatal(err)
					}
				}
				if got := texts(j.reply.GetMessage()); got != tt.reply {
					t.Errorf("reply %q, want %q", got, tt.reply)
				}
			})
		})
	}
}

// TestA_12_NoHistory: a task that is completed without an answer stays so where the peer does
// not tell its task, and what users say is no answer.
func TestA_12_NoHistory(t *testing.T) {
	body := `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`
	said := `{"id":"t","history":[{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}]}`
	for name, answer := range map[string]http.HandlerFunc{
		"no such call": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", http.StatusNotFound) },
		"of the user":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, said) },
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", wire.TypeJSON)
				switch {
				case strings.HasSuffix(r.URL.Path, ".json"):
					_, _ = fmt.Fprintf(w, `{"name":"x","supportedInterfaces":[{"url":"http://%s","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`, r.Host)
				case r.Method == http.MethodPost:
					_, _ = io.WriteString(w, body)
				default:
					asked = true
					answer(w, r)
				}
			})
			j := newJournal("hello")
			if err := j.play(t.Context(), a); err != nil || texts(j.reply.GetMessage()) != "" || !asked {
				t.Errorf("reply %q, asked for the task %t, error %v; want an empty reply", texts(j.reply.GetMessage()), asked, err)
			}
		})
	}
}

// TestA_12_ServerThatRefusesStreams: the card says streaming and the server refuses it,
// so the message is sent without a stream, once.
func TestA_12_ServerThatRefusesStreams(t *testing.T) {
	for name, refusal := range map[string]error{
		"unsupported operation": agent.Errorf(agent.CodeFailedPrecondition, "UNSUPPORTED_OPERATION", "no streams"),
		"unknown method":        status.Error(codes.Unimplemented, "unknown method"),
	} {
		t.Run(name, func(t *testing.T) {
			eachStream(t, func(t *testing.T, w way) {
				f, a := w.start(t, func(c *fakeagent.Config) {
					c.Streams = wire.Status(refusal).Err()
					c.Turns = []fakeagent.Turn{{Ask: "which?"}, {Text: "done"}}
				})
				j := newJournal("hello")
				if err := j.play(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				j.answer("this")
				if err := j.play(t.Context(), a); err != nil || texts(j.reply.GetMessage()) != "done" {
					t.Errorf("reply %v, error %v", j.reply, err)
				}
				if f.Played() != 2 {
					t.Errorf("%d turns played, want 2", f.Played())
				}
			})
		})
	}
}

// TestA_12_BrokenStreamIsLookedAfter: one call of the agent, that is with attempts: 1,
// asks what became of the task before the task is called failed.
func TestA_12_BrokenStreamIsLookedAfter(t *testing.T) {
	eachStream(t, func(t *testing.T, w way) {
		gate := make(chan struct{})
		f, a := w.start(t, func(c *fakeagent.Config) {
			c.Default = fakeagent.Turn{Chunks: []string{"one ", "two"}, Break: -1, Gate: gate}
		})
		ended := make(chan error, 1)
		j := newJournal("hello")
		go func() { ended <- j.play(t.Context(), a) }()
		f.Await(t, "GetTask", 2) // it waits for the end
		close(gate)
		if err := <-ended; err != nil || texts(j.reply.GetMessage()) != "one two" {
			t.Errorf("reply %v, error %v", j.reply, err)
		}
		if f.Played() != 1 {
			t.Errorf("%d turns played, want 1", f.Played())
		}
	})
}

// TestA_12_AnswerThatIsTooLarge is said to be too large, over every binding.
func TestA_12_AnswerThatIsTooLarge(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		_, a := w.start(t, func(c *fakeagent.Config) { c.Default = fakeagent.Turn{Text: strings.Repeat("x", 17<<20)} })
		err := newJournal("hello").play(t.Context(), a)
		const want = `agent "far" sent more than 16777216 bytes at once`
		if e := asError(t, err); e.Reason != "INVALID_AGENT_RESPONSE" || e.Retry || !strings.Contains(e.Message, want) {
			t.Errorf("reason %s, retry %v, message %.200s, cause %.200v", e.Reason, e.Retry, e.Message, e.Err)
		}
	})
}

// answering is an A2A 1.0 agent over one binding that answers every call with one body:
// of REST, which JSON-RPC wraps.
func answering(t *testing.T, binding string, streams bool, body string) *remote.A2A {
	t.Helper()
	return serveCard(t, func(w http.ResponseWriter, r *http.Request) {
		body := body
		switch {
		case strings.HasSuffix(r.URL.Path, ".json"):
			_, _ = fmt.Fprintf(w, `{"name":"x","capabilities":{"streaming":%v},"supportedInterfaces":[{"url":"http://%s","protocolBinding":%q,"protocolVersion":"1.0"}]}`,
				streams, r.Host, binding)
			return
		case binding == remote.BindingJSONRPC:
			body = `{"jsonrpc":"2.0","id":1,"result":` + body + `}`
		}
		if !streams {
			w.Header().Set("Content-Type", wire.TypeJSON)
			_, _ = io.WriteString(w, body)
			return
		}
		w.Header().Set("Content-Type", wire.TypeSSE)
		_, _ = io.WriteString(w, "data: "+body+"\n\n")
	})
}

// TestA_12_TimesOfAPeer: a time without a zone is one of UTC; what is no time is named.
func TestA_12_TimesOfAPeer(t *testing.T) {
	const wrong = `agent "legal" violated the protocol: the answer cannot be read: task.status.timestamp must be a time such as 2006-01-02T15:04:05Z`
	for at, want := range map[string]string{
		"2026-01-02T03:04:05":        "",
		"2026-01-02T03:04:05.123456": "",
		"2026-01-02 03:04:05":        "",
		"2026-01-02T03:04:05Z":       "",
		"yesterday":                  wrong,
	} {
		body := `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","timestamp":"` + at + `",` +
			`"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}}`
		for _, binding := range []string{remote.BindingREST, remote.BindingJSONRPC} {
			for _, streams := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s over %s, streaming %v", at, binding, streams), func(t *testing.T) {
					j := newJournal("hello")
					err := j.play(t.Context(), answering(t, binding, streams, body))
					switch {
					case want == "" && (err != nil || texts(j.reply.GetMessage()) != "done"):
						t.Errorf("reply %v, error %v", j.reply, err)
					case want != "":
						if e := asError(t, err); e.Message != want || e.Reason != "INVALID_AGENT_RESPONSE" {
							t.Errorf("%s: %s\nwant %s", e.Reason, e.Message, want)
						}
					}
				})
			}
		}
	}
}

// TestA_12_AnswersThatCannotBeRead: the error names the agent and what is wrong.
func TestA_12_AnswersThatCannotBeRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"task":{"id":7}}`: "the answer cannot be read: task.id must be a string",
		`{"task":`:          "the answer is not",
	} {
		for _, binding := range []string{remote.BindingREST, remote.BindingJSONRPC} {
			err := newJournal("hello").play(t.Context(), answering(t, binding, false, body))
			if e := asError(t, err); !strings.HasPrefix(e.Message, `agent "legal" violated the protocol: `+want) {
				t.Errorf("%s, %s: %s", binding, body, e.Message)
			}
		}
	}
	a := serveCard(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"name":"x","version":1.5}`) })
	_, err := a.Info(t.Context())
	if e := asError(t, err); !strings.HasPrefix(e.Message, `agent "legal" has a card that cannot be read: http://`) || !strings.HasSuffix(e.Message, `is not an A2A card: the answer cannot be read: version must be a string`) {
		t.Errorf("card: %s", e.Message)
	}
}

// TestA_12_RejectedAnswer: a peer that rejects an answer is not given up: its question is asked again,
// with the reason, and the next answer continues the task.
func TestA_12_RejectedAnswer(t *testing.T) {
	eachStream(t, func(t *testing.T, w way) {
		_, a := w.start(t, func(c *fakeagent.Config) {
			c.Turns = []fakeagent.Turn{{Ask: "how many?"}, {Refuse: status.Error(codes.InvalidArgument, "not a number")}, {Text: "done"}}
		})
		j := newJournal("hello")
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		first := last(j, (*teamv1.Event).GetAsked)
		j.answer("many")
		if err := j.play(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		again := last(j, (*teamv1.Event).GetAsked)
		if again.GetQuestion() == first.GetQuestion() || !strings.Contains(texts(again.GetMessage()), "not accepted") || !strings.Contains(texts(again.GetMessage()), "how many?") {
			t.Fatal(again)
		}
		j.answer("three")
		if err := j.play(t.Context(), a); err != nil || texts(j.reply.GetMessage()) != "done" {
			t.Error(j.reply, err)
		}
	})
}

// TestA_12_EventsOfAnotherVersion: a server that offers 1.0 and streams events in the form of 0.3 with
// states of 1.0, as LangGraph API 0.16.7 does, is understood; what GetTask says is not the answer.
func TestA_12_EventsOfAnotherVersion(t *testing.T) {
	const event = `{"jsonrpc":"2.0","id":%s,"result":%s}`
	a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") {
			_, _ = fmt.Fprintf(w, `{"name":"x","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"http://%s","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, r.Host)
			return
		}
		var req struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&req)
		if req.Method != "SendStreamingMessage" {
			_, _ = fmt.Fprintf(w, event, req.ID, `{"kind":"task","id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"Task completed successfully"}]}}}`)
			return
		}
		w.Header().Set("Content-Type", wire.TypeSSE)
		for _, result := range []string{
			`{"task":{"kind":"task","id":"t","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"}}}`,
			`{"taskId":"t","contextId":"c","kind":"status-update","status":{"state":"TASK_STATE_WORKING","message":{"kind":"message","role":"ROLE_AGENT","parts":[{"kind":"text","text":"far"}],"messageId":"p"}},"final":false}`,
			`{"taskId":"t","contextId":"c","kind":"artifact-update","artifact":{"artifactId":"a","name":"Assistant Response","parts":[{"kind":"text","text":"far: tides"}]},"append":false,"lastChunk":true}`,
			`{"taskId":"t","contextId":"c","kind":"status-update","status":{"state":"TASK_STATE_COMPLETED"},"final":true}`,
		} {
			_, _ = fmt.Fprintf(w, "event: message\ndata: "+event+"\n\n", req.ID, result)
		}
	})
	j := newJournal("tides")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := texts(j.reply.GetMessage()); got != "far: tides" {
		t.Errorf("reply %q", got)
	}
}

// TestA_12_StreamThatBreaksBeforeTheAnswer: what a peer makes up when a task is read, with another id each time as
// LangGraph API 0.16.7 does, is not the answer that a broken stream had begun. A message that stays is the answer, a
// notice of the work is not, and half an answer is none.
func TestA_12_StreamThatBreaksBeforeTheAnswer(t *testing.T) {
	const (
		said     = `{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"p","role":"ROLE_AGENT","parts":[{"text":"far:"}]}}}}`
		beside   = `{"message":{"messageId":"p","role":"ROLE_AGENT","parts":[{"text":"far:"}]}}`
		chunk    = `{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"far:"}]}}}`
		chunks   = chunk + "\n" + `{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":" tides"}]},"append":true,"lastChunk":true}}`
		notice   = `{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"p","role":"ROLE_AGENT","parts":[{"text":"Looking it up."}]}}}}`
		noticed  = `},"history":[{"messageId":"p","role":"ROLE_AGENT","parts":[{"text":"Looking it up."}]}]`
		done     = `,"message":{"messageId":"NEW","role":"ROLE_AGENT","parts":[{"text":"Task completed successfully"}]}}`
		whole    = `,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"far: tides"}]}}`
		artifact = `},"artifacts":[{"artifactId":"b","parts":[{"text":"far: tides"}]}]`
		history  = `},"history":[{"messageId":"h","role":"ROLE_AGENT","parts":[{"text":"far: tides"}]}]`
	)
	for name, tt := range map[string]struct{ events, task, reply string }{
		"after a text in a status":             {said, done, ""},
		"after a text beside the task":         {beside, done, ""},
		"after a chunk of an artifact":         {chunk, done, ""},
		"after a text, and no more":            {said, "}", ""},
		"after a chunk, and no more":           {chunk, "}", ""},
		"after the last chunk":                 {chunks, done, "far: tides"},
		"before any text":                      {"", whole, "far: tides"},
		"text that goes on":                    {said, whole, "far: tides"},
		"text that the history goes on":        {said, history, "far: tides"},
		"notice, then the answer":              {notice, whole, "far: tides"},
		"notice that moves to the history":     {notice, whole[:len(whole)-1] + noticed, "far: tides"},
		"missed notice that is in the history": {"", whole[:len(whole)-1] + noticed, "far: tides"},
		"notice, and no more":                  {notice, "}", ""},
		"notice in the history, and no more":   {notice, noticed, ""},
		"notice, then a text that is made up":  {notice, done, ""},
		"notice, and an answer in the history": {notice, history, "far: tides"},
		"chunk, then a message that stays":     {chunk, whole, ""},
		"notice and chunk, then a message":     {notice + "\n" + chunk, whole, ""},
		"text and a notice":                    {said, done[:len(done)-1] + history, "far: tides"},
		"text in the history, and notice":      {said, done[:len(done)-1] + `},"history":[{"messageId":"h","role":"ROLE_AGENT","parts":[{"text":"far:"}]}]`, ""},
		"the same message, then whole":         {said, done[:len(done)-1] + `},"history":[{"messageId":"p","role":"ROLE_AGENT","parts":[{"text":"far: tides"}]}]`, "far: tides"},
		"notice and an answer not begun":       {"", done[:len(done)-1] + history, ""},
		"answer that is noted as well":         {"", whole[:len(whole)-1] + history, "far: tides"},
		"chunk that the task goes on":          {chunk, artifact, "far: tides"},
		"text that an artifact goes on":        {said, artifact, "far: tides"},
		"all chunks, under another name":       {chunks, artifact, "far: tides"},
	} {
		for end, stay := range map[string]bool{"broken": false, "silent": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				var reads atomic.Int64
				a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case strings.HasSuffix(r.URL.Path, ".json"):
						_, _ = fmt.Fprintf(w, `{"name":"x","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"http://%s","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`, r.Host)
					case r.Method == http.MethodGet:
						task := strings.ReplaceAll(tt.task, "NEW", strconv.FormatInt(reads.Add(1), 10))
						_, _ = io.WriteString(w, `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"`+task+`}`)
					default:
						w.Header().Set("Content-Type", wire.TypeSSE)
						_, _ = io.WriteString(w, `data: {"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`+"\n\n")
						for event := range strings.Lines(tt.events) {
							_, _ = io.WriteString(w, "data: "+strings.TrimSpace(event)+"\n\n")
						}
						if _ = http.NewResponseController(w).Flush(); stay {
							<-r.Context().Done()
						}
						panic(http.ErrAbortHandler)
					}
				}, func(c *remote.A2AConfig) { c.Idle = 50 * time.Millisecond })
				j := newJournal("tides")
				err := j.play(t.Context(), a)
				if tt.reply != "" {
					if err != nil || texts(j.reply.GetMessage()) != tt.reply {
						t.Errorf("reply %q, error %v; want %q", texts(j.reply.GetMessage()), err, tt.reply)
					}
					ids := map[string]bool{}
					for _, ev := range j.recorded {
						if id := ev.GetDelta().GetArtifactId(); id != "" {
							ids[id] = true
						}
					}
					if len(ids) > 1 {
						t.Errorf("%d artifacts were streamed, of which one is the answer", len(ids))
					}
					return
				}
				e := asError(t, err)
				if e.Reason != agent.ReasonUnavailable || !e.Retry || !e.Fresh || !strings.Contains(e.Message, "ended before the answer was there") {
					t.Errorf("%+v, want that the answer is not there, for a new task", e)
				}
			})
		}
	}
}

// TestA_12_QuestionInAnArtifact: a question whose status has no message is asked with what the artifact
// before it says, and a person can answer with data.
func TestA_12_QuestionInAnArtifact(t *testing.T) {
	var answers []string
	waiting := false
	a := serveCard(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") {
			_, _ = fmt.Fprintf(w, `{"name":"x","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"http://%s","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`, r.Host)
			return
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}`)
			return
		}
		var req struct {
			Message struct{ Parts []json.RawMessage }
		}
		_ = json.NewDecoder(r.Body).Decode(&req)
		w.Header().Set("Content-Type", wire.TypeSSE)
		if waiting {
			answers = append(answers, strings.ReplaceAll(string(req.Message.Parts[0]), " ", ""))
			_, _ = io.WriteString(w, `data: {"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"b","parts":[{"text":"paid"}]}]}}`+"\n\n")
			return
		}
		waiting = true
		for _, event := range []string{
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","name":"Interrupt","parts":[{"data":{"id":"i1","value":{"question":"Pay?","options":["yes","no"]}}}]},"lastChunk":true}}`,
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}`,
		} {
			_, _ = io.WriteString(w, "data: "+event+"\n\n")
		}
	})
	j := newJournal("pay")
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	q := last(j, (*teamv1.Event).GetAsked).GetMessage()
	if !strings.HasPrefix(texts(q), "Pay?") || len(q.GetParts()) != 3 || q.GetParts()[2].GetData().GetStructValue().GetFields()["options"].GetListValue() == nil {
		t.Errorf("asked %v, want the question, its data and its options", q)
	}
	j.answer(`{"resume": "yes"}`)
	if err := j.play(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := texts(j.reply.GetMessage()); got != "paid" || len(answers) != 1 || answers[0] != `{"data":{"resume":"yes"}}` {
		t.Errorf("reply %q, after the answers %q", got, answers)
	}
}
