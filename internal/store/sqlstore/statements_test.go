package sqlstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
)

// TestP11_StatementsOfASmallTask: what a server asks of its database for a message that is answered at once.
// A statement more is paid for by every task.
func TestP11_StatementsOfASmallTask(t *testing.T) {
	// Three commits: the task, its claim and its end. What an acknowledgement needs is the first and the last.
	statements := []string{
		"INSERT INTO event x 2",   // its first event, and all further ones
		"INSERT INTO request",     // the id of the message, which may be sent again
		"INSERT INTO run",         //
		"INSERT INTO task",        //
		"SELECT (SELECT count(*)", // what is due, and when to look again
		"UPDATE run SET",          // the fence of the end
		"UPDATE task SET",         // its state, and how it is read from now on
		"WITH c AS",               // the claim
	}
	const commits = 3
	for name, at := range map[string]struct {
		url        string
		statements []string
		trips      float64
	}{
		"SQLite": {sqliteURL(t), statements, 0},
		// A trip each for the task, what is due, the claim and the end; the notification delays nobody.
		"PostgreSQL": {pgtest.URL(t), append(slices.Clone(statements), "SELECT pg_notify"), 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, at.url, sqlstore.Config{})
			counts := s.CountStatements()
			echo := &agent.Func{ID: "echo", Call: func(_ context.Context, m *a2av1.Message) (*a2av1.Message, error) {
				return &a2av1.Message{Role: a2av1.Role_ROLE_AGENT, Parts: m.GetParts()}, nil
			}}
			srv, err := server.New(server.Config{Agent: echo, Store: s, Settings: &teamv1.ServerSettings{Http: "127.0.0.1:0"}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- srv.Serve(ctx) }()
			defer func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			n := 0
			send := func() {
				n++
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, n)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.Addrs().URL+"/rpc", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("A2A-Version", "1.0")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				var answer struct {
					Result struct {
						Task struct{ Status struct{ State string } }
					}
				}
				if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Result.Task.Status.State != "TASK_STATE_COMPLETED" {
					t.Fatalf("the answer is %s, %+v, %v", resp.Status, answer, err)
				}
			}
			send() // after this the server has begun
			const tasks = 20
			var got []string
			var trips, committed float64
			// A heartbeat, or the look at what is due that the engine takes every second, is no part of a task.
			for range 5 {
				counts.Take(1)
				for range tasks {
					send()
				}
				if got, trips, committed = counts.Take(tasks); slices.Equal(got, slices.Sorted(slices.Values(at.statements))) {
					break
				}
			}
			if want := slices.Sorted(slices.Values(at.statements)); !slices.Equal(got, want) || committed != commits || at.trips > 0 && trips != at.trips {
				t.Errorf("a task costs %g trips and %g commits with\n%s\nwant %g and %d with\n%s", trips, committed, strings.Join(got, "\n"), at.trips, commits, strings.Join(want, "\n"))
			}
		})
	}
}

// An input that the journal of a run has not heard of, because another process took it just before the end, is
// recorded before the end.
func TestA_10_TheEndOfARunMeetsItsFirstInput(t *testing.T) {
	for name, url := range map[string]string{"SQLite": sqliteURL(t), "PostgreSQL": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			s := open(t, url, sqlstore.Config{})
			other := s
			if name == "PostgreSQL" {
				other = open(t, url, sqlstore.Config{})
			}
			create(t, s, "one")
			c := claim(t, s, "r")
			if rows, err := c.Journal.Inbound(t.Context()); err != nil || len(rows) > 0 {
				t.Fatalf("Inbound = %v, %v", rows, err)
			}
			if _, _, err := other.Put(t.Context(), key("one"), followUp("late"), []byte("d"), nil); err != nil {
				t.Fatal(err)
			}
			record(t, c, note("x"), end())
			records, err := other.Events(t.Context(), key("one"), 0, 10)
			if err != nil || len(records) != 4 || !records[2].Event.GetReceived().GetTooLate() || records[3].Event.GetEnded() == nil {
				t.Errorf("the journal is %v, %v", records, err)
			}
			if n := s.Count(t.Context(), t, "inbox"); n != 0 {
				t.Errorf("%d inputs are left", n)
			}
			task, seq, err := other.Task(t.Context(), key("one"))
			if err != nil || seq != 4 || len(task.GetHistory()) == 0 || task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
				t.Errorf("Task = %v at %d, %v", task, seq, err)
			}
			if _, _, err := other.Put(t.Context(), key("one"), followUp("later"), []byte("d"), nil); !errors.Is(err, runs.ErrTerminal) {
				t.Errorf("Put after the end: %v", err)
			}
		})
	}
}

// Who reads a run when it ends reads its last events without the database, and nobody else is shown less.
func TestP5_ReadersOfARunThatEnds(t *testing.T) {
	s := open(t, sqliteURL(t), sqlstore.Config{}) // nothing else wakes readers here
	counts := s.CountStatements()
	wake, leave := s.Watch("one") // before it exists
	create(t, s, "one")
	select {
	case <-wake:
		t.Error("woken before the run has done anything")
	default:
	}
	c := claim(t, s, "r")
	record(t, c, note("x"), end())
	if _, err := s.Park(t.Context(), c, runs.Park{Done: true}); err != nil {
		t.Fatal(err)
	}
	<-wake
	counts.Take(1)
	kept, err := s.Events(t.Context(), key("one"), 0, 10)
	if err != nil || len(kept) != 3 {
		t.Errorf("Events = %v, %v", kept, err)
	}
	if _, err := s.Events(t.Context(), runs.Key{Owner: "acme/eve", ID: "one"}, 0, 10); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("another owner's read: %v", err)
	}
	if statements, _, _ := counts.Take(1); len(statements) > 0 {
		t.Errorf("the reader cost %v", statements)
	}
	leave()
	read, err := s.Events(t.Context(), key("one"), 0, 10)
	if err != nil || len(read) != len(kept) {
		t.Fatalf("Events = %v, %v", read, err)
	}
	for i := range read {
		if !proto.Equal(read[i].Event, kept[i].Event) {
			t.Errorf("event %d is %v, and was %v", i+1, read[i].Event, kept[i].Event)
		}
	}
	if statements, _, _ := counts.Take(1); len(statements) == 0 {
		t.Error("the journal was kept without readers")
	}
}
