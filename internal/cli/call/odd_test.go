package call_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/call"
	"github.com/agentteams/team-server/internal/cli/console"
)

// odd is an agent of others at a URL: it answers all calls over a binding in the same
// words.
func odd(t *testing.T, binding, version, media, answer string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".json") {
			_, _ = fmt.Fprintf(w, oddCard, "http://"+r.Host, binding, version)
			return
		}
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const oddCard = `{"name":"odd\u001b[31m\nforged","version":"1\u0007","description":"\u001b]0;t\u0007said\nHTTP+JSON 1.0","supportedInterfaces":[
{"url":%q,"protocolBinding":%q,"protocolVersion":%q}],"skills":[{"id":"s\n","description":"\u009b2J","tags":["a\rb"]}]}`

// shell is one whose output is kept.
func shell() (s *cli.Shell, out, talk *bytes.Buffer) {
	out, talk = &bytes.Buffer{}, &bytes.Buffer{}
	return &cli.Shell{Console: console.Console{Out: out, Talk: talk}}, out, talk
}

// calls are the calls of a shell.
func calls(s *cli.Shell) *call.Commands {
	return &call.Commands{Console: &s.Console, Connection: &s.Connection}
}

// A stream is a success only if it ends with a status in which the task does not work.
func TestA_12_StreamsThatEndEarly(t *testing.T) {
	const (
		working  = `{"statusUpdate":{"taskId":"t1","status":{"state":"TASK_STATE_WORKING"}}}`
		artifact = `{"artifactUpdate":{"taskId":"t1","artifact":{"artifactId":"a","parts":[{"text":"hi"}]}}}`
		done     = `{"statusUpdate":{"taskId":"t1","status":{"state":"TASK_STATE_COMPLETED"}}}`
		message  = `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`
	)
	for _, tt := range []struct {
		name, binding, version string
		events                 []string
		exit                   int
		told                   string
	}{
		{"nothing, REST", "HTTP+JSON", "1.0", nil, cli.ExitFailed, "the stream ended before an answer\n"},
		{"nothing, JSON-RPC", "JSONRPC", "1.0", nil, cli.ExitFailed, "the stream ended before an answer\n"},
		{"nothing, 0.3", "JSONRPC", "0.3.0", nil, cli.ExitFailed, "the stream ended before an answer\n"},
		{"no status", "HTTP+JSON", "1.0", []string{artifact}, cli.ExitFailed, "the stream ended before an answer\n"},
		{"a task that goes on", "HTTP+JSON", "1.0", []string{artifact, working}, cli.ExitFailed, "task t1  working\ntask t1 is still running; to see the rest: team-server call subscribe "},
		{"the end", "HTTP+JSON", "1.0", []string{artifact, working, done}, cli.ExitOK, "task t1  completed\n"},
		{"a message", "HTTP+JSON", "1.0", []string{message}, cli.ExitOK, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := ": hello\n\n"
			for _, e := range tt.events {
				stream += "data: " + e + "\n\n"
			}
			for _, json := range []bool{false, true} {
				s, out, talk := shell()
				s.JSON = json
				err := calls(s).Send(t.Context(), odd(t, tt.binding, tt.version, "text/event-stream", stream), "hi", &call.Send{Stream: true})
				if got := s.Exit(err); got != tt.exit {
					t.Errorf("JSON %v: exit code %d, want %d: %v", json, got, tt.exit, err)
				}
				if !json && !strings.HasPrefix(talk.String(), tt.told) {
					t.Errorf("told is %q, want %q", talk, tt.told)
				}
				if json && tt.exit == cli.ExitFailed && talk.Len() == 0 && !strings.Contains(out.String(), `{"error":{"message":"the stream ended before an answer",`) {
					t.Error("it fails without a word")
				}
			}
		})
	}
}

const steering = `{"id":"t1\u001b[2J\nforged","contextId":"c\nforged","status":{"state":"TASK_STATE_FAILED","message":{"messageId":"m","parts":[{"text":"\u001b[1mno\nforged"}]}},
"artifacts":[{"artifactId":"a","name":"n\nforged","parts":[{"text":"\u001b[2Jhigh\ttide\r\nforged not\u007f"},{"raw":"","filename":"f\nforged","mediaType":"x\u0007"},{"url":"http://h/\nforged"}]}],
"history":[{"messageId":"m\nforged","parts":[{"text":"hi\nforged"}]}]}`

// What a remote says cannot steer the terminal, nor forge lines where one is meant.
func TestA_21_T_29_TextsOfOthersAreText(t *testing.T) {
	const clean = "\t\n"
	rest := func(answer string) string { return odd(t, "HTTP+JSON", "1.0", "application/json", answer) }
	refusal := `{"code":500,"jsonrpc":"2.0","error":{"code":-32004,"message":"\u001b[31mno\nforged"}}`
	for name, tt := range map[string]struct {
		do       func(*cli.Shell) error
		out, say string
	}{
		"card": {
			func(s *cli.Shell) error { return calls(s).Card(t.Context(), rest(""), false, &call.Flags{}) },
			"odd\ufffd[31m forged  1\ufffd\n\ufffd]0;t\ufffdsaid HTTP+JSON 1.0\n\n  HTTP+JSON  1.0  http://", "",
		},
		"send": {
			func(s *cli.Shell) error {
				return calls(s).Send(t.Context(), rest(`{"task":`+steering+`}`), "hi", &call.Send{})
			},
			"\ufffd[2Jhigh\ttide\nforged not\ufffd\n[file f forged x\ufffd 0 bytes]\n[file http://h/ forged]\n",
			"task t1\ufffd[2J forged  failed  \ufffd[1mno\n  forged\n",
		},
		"message": {
			func(s *cli.Shell) error {
				return calls(s).Send(t.Context(), rest(`{"message":{"messageId":"m","parts":[{"text":"\u001b[2Jhi"}]}}`), "hi", &call.Send{})
			},
			"\ufffd[2Jhi\n", "",
		},
		"stream": {
			func(s *cli.Shell) error {
				events := "data: " + strings.ReplaceAll(`{"task":`+steering+`}`, "\n", "") + "\n\n"
				return calls(s).Send(t.Context(), odd(t, "HTTP+JSON", "1.0", "text/event-stream", events), "hi", &call.Send{Stream: true})
			},
			"\ufffd[2Jhigh\ttide\nforged not\ufffd\n", "task t1\ufffd[2J forged  failed  \ufffd[1mno\n  forged\n",
		},
		"get": {
			func(s *cli.Shell) error {
				return calls(s).Get(t.Context(), rest(steering), "t1\x1b[2J\nforged", nil, &call.Flags{})
			},
			"task     t1\ufffd[2J forged\ncontext  c forged\nstate    failed\nmessage  \ufffd[1mno\n  forged\nartifact n forged\n" +
				"  \ufffd[2Jhigh\ttide\n  forged not\ufffd\n  [file f forged x\ufffd 0 bytes]\n  [file http://h/ forged]\nagent    m forged\n  hi\n  forged\n", "",
		},
		"list": {
			func(s *cli.Shell) error {
				return calls(s).List(t.Context(), rest(`{"tasks":[`+steering+`],"nextPageToken":"p\u001b\nforged"}`), &call.List{})
			},
			"t1\ufffd[2J forged", "1 task of 1; the next page: --page-token p\ufffd forged\n",
		},
		"webhooks": {
			func(s *cli.Shell) error {
				return calls(s).ListPush(t.Context(), rest(`{"configs":[{"id":"p\u001b\nforged","url":"http://h/\nforged"}]}`), "t1", &call.Flags{})
			},
			"p\ufffd forged", "1 webhook of task t1\n",
		},
		"webhook": {
			func(s *cli.Shell) error {
				return calls(s).GetPush(t.Context(), rest(`{"id":"p\u001b","taskId":"t\nforged","url":"http://h/\nforged","authentication":{"scheme":"B\nforged"}}`), "t1", "p", &call.Flags{})
			},
			"webhook  p\ufffd\ntask     t forged\nurl      http://h/ forged\nauth     B forged ***\n", "",
		},
		"error": {
			func(s *cli.Shell) error {
				return calls(s).Get(t.Context(), odd(t, "JSONRPC", "1.0", "application/json", refusal), "t1", nil, &call.Flags{})
			},
			"", "UNSUPPORTED_OPERATION: \ufffd[31mno forged\n",
		},
		"another command's error": {func(*cli.Shell) error { return errors.New("no\x1b[2J") }, "", "no\ufffd[2J\n"},
		"run": {
			func(s *cli.Shell) error {
				s.Server = odd(t, "", "", "text/event-stream", `data: {"taskId":"t1","event":{"seq":"1","agent":"a","noted":{"code":"MEMBER_UNAVAILABLE","text":"\u001b[2J"}}}

data: {"taskId":"t1","event":{"seq":"2","agent":"a","ended":{"outcome":"OUTCOME_SUCCEEDED","reply":{"parts":[{"text":"\u001b[2Jhi"}]}}}}

`)
				return s.Run(t.Context(), "a", "hi", &cli.Run{})
			},
			"\ufffd[2Jhi\n", "",
		},
		"raw": {
			func(s *cli.Shell) error {
				return calls(s).Get(t.Context(), rest("\x1b[2J"), "t1", nil, &call.Flags{Raw: true})
			},
			"", "> GET ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, out, talk := shell()
			s.Exit(tt.do(s))
			if !strings.HasPrefix(out.String(), tt.out) || !strings.HasPrefix(talk.String(), tt.say) {
				t.Errorf("printed is %q, said %q; want %q, %q", out, talk, tt.out, tt.say)
			}
			for _, c := range out.String() + talk.String() {
				if (c < ' ' || c >= 0x7f && c < 0xa0) && !strings.ContainsRune(clean, c) {
					t.Errorf("%q is passed on: %q, %q", c, out, talk)
				}
			}
		})
	}
}

// For machines what comes is passed on as it is.
func TestA_21_JSONIsExact(t *testing.T) {
	s, out, _ := shell()
	s.JSON = true
	err := calls(s).Send(t.Context(), odd(t, "HTTP+JSON", "1.0", "application/json", `{"task":`+steering+`}`), "hi", &call.Send{})
	if !errors.Is(err, console.ErrFailed) {
		t.Error(err)
	}
	if !strings.Contains(out.String(), `\u001b[2Jhigh\ttide\r\nforged not`+"\u007f") {
		t.Errorf("printed is %q", out)
	}
}

// What no header can hold is a fault of the command line, and is not shown.
func TestA_21_WhatHeadersCannotHold(t *testing.T) {
	for want, f := range map[string]*call.Flags{
		"--header X: expected a value without line breaks or other control characters": {Headers: []string{"X=s3same\nb"}},
		"--token: expected a token without line breaks or other control characters":    {},
		`--extension "a\nb": expected a URI`:                                           {Extensions: []string{"a\nb"}},
	} {
		s, _, talk := shell()
		if strings.HasPrefix(want, "--token") {
			s.Token = "s3same\n"
		}
		code := s.Exit(calls(s).Get(t.Context(), "http://127.0.0.1:1", "t1", nil, f))
		if got := talk.String(); code != cli.ExitUsage || got != want+"\nSee team-server --help\n" {
			t.Errorf("exit code %d, said %q, want %q", code, got, want)
		}
	}
}
