package tests

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/pkg/team/leader"
	"github.com/agentteams/team-server/tests/rig"
)

// refuses is what a talker's model gives an error for.
const refuses = "nonsense"

// newTalker is an agent whose model answers a text with "re: " before it.
func newTalker(t testing.TB, llm *fakellm.Server, memory bool) agent.Agent {
	t.Helper()
	llm.Answer("m", func(r *fakellm.Request) fakellm.Turn {
		if r.Last() == refuses {
			return fakellm.Turn{Status: 400, Message: "no"}
		}
		return fakellm.Turn{Text: "re: " + r.Last()}
	})
	a, err := leader.NewAgent(leader.AgentConfig{ID: "talker", Model: modelOf(t, llm, "m"), Instructions: "Talk.", Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func modelOf(t testing.TB, llm *fakellm.Server, name string) agent.Model {
	t.Helper()
	model, err := openai.New(openai.Config{Name: name, BaseURL: llm.URL, APIKey: secret.New("test")})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// in puts a request into a context.
func in(contextID string, req *a2av1.SendMessageRequest) *a2av1.SendMessageRequest {
	req.Message.ContextId = contextID
	return req
}

// say sends a text in a context and wants it to be answered.
func say(t testing.TB, c rig.Client, tenant, contextID, text string) *a2av1.Task {
	t.Helper()
	task := send(t, c, in(contextID, rig.Text(tenant, rand.Text(), text)))
	if task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
		t.Fatalf("%s: %v", text, task)
	}
	return task
}

func send(t testing.TB, c rig.Client, req *a2av1.SendMessageRequest) *a2av1.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := c.Send(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask()
}

// prompt is what a model was asked last, as "role: text".
func prompt(t testing.TB, llm *fakellm.Server, model string) []string {
	t.Helper()
	all := llm.Requests(model)
	if len(all) == 0 {
		t.Fatalf("model %s was not asked", model)
	}
	list := []string{}
	for _, m := range all[len(all)-1].Messages {
		list = append(list, m.Role+": "+m.Text)
	}
	return list
}

func wantPrompt(t testing.TB, llm *fakellm.Server, model string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(rig.Merged(want...), prompt(t, llm, model)); diff != "" {
		t.Errorf("what model %s was asked (-want +got):\n%s", model, diff)
	}
}

// turn is an exchange with a talker as its model is asked it.
func turn(text string) []string { return []string{"user: " + text, "assistant: re: " + text} }

func warnings(task *a2av1.Task) []string { return a2a.RunOf(task.GetMetadata()).GetWarnings() }

// TestR_002_29_History has a model-backed agent in conversations.
func TestR_002_29_History(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		l := live(t, at, rig.Manager(t, newTalker(t, llm, true)), llm)
		t.Run("R-002-29 the next turn has what was said before, over any binding", func(t *testing.T) {
			var want []string
			for i, c := range l.clients {
				text := fmt.Sprint("hello ", i)
				say(t, c, "talker", "any", text)
				want = append(want, "user: "+text)
				wantPrompt(t, llm, "m", want...)
				want = append(want, "assistant: re: "+text)
			}
		})
		t.Run("R-002-29 S-58 of 26 messages the last 20", func(t *testing.T) {
			var want []string
			for i := range 12 {
				say(t, l.clients[0], "talker", "long", fmt.Sprint(i))
				want = append(want, turn(fmt.Sprint(i))...)
			}
			failed := send(t, l.clients[0], in("long", rig.Text("talker", rand.Text(), refuses)))
			if failed.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_FAILED {
				t.Fatal(failed)
			}
			want = append(want, "user: "+refuses, "assistant: [This request was not completed: "+agent.Text(failed.GetStatus().GetMessage())+"]")
			if n := l.position(t, "long"); n != 26 {
				t.Fatalf("%d messages are stored", n)
			}
			say(t, l.clients[0], "talker", "long", "and now")
			wantPrompt(t, llm, "m", append(want[6:], "user: and now")...)
		})
		t.Run("R-002-4.3 a context that is new is empty", func(t *testing.T) {
			say(t, l.clients[0], "talker", "first", "one")
			say(t, l.clients[0], "talker", "second", "two")
			wantPrompt(t, llm, "m", "user: two")
		})
		t.Run("R-002-41 C-22 without a context id each run begins from nothing", func(t *testing.T) {
			one := send(t, l.clients[0], rig.Text("talker", rand.Text(), "one"))
			two := send(t, l.clients[0], rig.Text("talker", rand.Text(), "two"))
			wantPrompt(t, llm, "m", "user: two")
			if one.GetContextId() == "" || one.GetContextId() == two.GetContextId() {
				t.Errorf("contexts %q and %q", one.GetContextId(), two.GetContextId())
			}
			say(t, l.clients[0], "talker", one.GetContextId(), "go on")
			wantPrompt(t, llm, "m", append(turn("one"), "user: go on")...)
			acc := l.journal(t, two.GetId())[0].Event.GetAccepted()
			if acc.GetOwner() != "local/local" || acc.GetMessage().GetContextId() != two.GetContextId() {
				t.Errorf("R-002-41 on record are owner %q, context %q", acc.GetOwner(), acc.GetMessage().GetContextId())
			}
		})
		t.Run("S-58 a prompt grows by what was said, and not beyond the last 20", func(t *testing.T) {
			var sizes []int
			for i := range 24 {
				say(t, l.clients[0], "talker", "grow", fmt.Sprintf("%04d", i))
				sizes = append(sizes, len(strings.Join(prompt(t, llm, "m"), "\n")))
			}
			step := sizes[1] - sizes[0]
			for i := 1; i < len(sizes); i++ {
				if grown := sizes[i] - sizes[i-1]; grown > step || i > agent.HistoryLength/2 && grown != 0 {
					t.Errorf("turn %d: the prompt has %d bytes, after %d", i+1, sizes[i], sizes[i-1])
				}
			}
		})
	})
}

// position is where a conversation of ours has come to.
func (l *life) position(t testing.TB, contextID string) int64 {
	t.Helper()
	n, err := l.store.Position(t.Context(), ours(contextID))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ours(contextID string) runs.Thread {
	return runs.Thread{Owner: "local/local", ContextID: contextID}
}

// TestR_002_29_Restart: what was said outlives the process.
func TestR_002_29_Restart(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		m := rig.Manager(t, newTalker(t, llm, true))
		l := live(t, at, m, llm)
		say(t, l.clients[0], "talker", "c", "before")
		l.kill(at)
		l = live(t, at, m, llm)
		say(t, l.clients[0], "talker", "c", "after")
		wantPrompt(t, llm, "m", append(turn("before"), "user: after")...)
	})
}

// TestS_55_Conversations: two principals use the same context id, and know
// nothing of each other.
func TestS_55_Conversations(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		s, _ := at.Open(t)
		target := rig.Serve(t, server.Config{
			Agents:   rig.Manager(t, newTalker(t, llm, true)),
			Store:    s,
			Settings: rig.Keys(rig.Key("one", "ann"), rig.Key("one", "bob"), rig.Key("two", "ann")),
		}, llm)
		callers := []rig.Target{target.As("one", "ann"), target.As("one", "bob"), target.As("two", "ann")}
		for round := range 2 {
			for i, who := range callers {
				text := fmt.Sprintf("%d of %d", round, i)
				task := say(t, rig.NewREST(who), "talker", "same", text)
				want := []string{"user: " + text}
				if round > 0 {
					want = append(turn(fmt.Sprintf("0 of %d", i)), want...)
				}
				wantPrompt(t, llm, "m", want...)
				list, err := rig.NewREST(who).List(t.Context(), &a2av1.ListTasksRequest{ContextId: "same"})
				if err != nil || int(list.GetTotalSize()) != round+1 || task.GetContextId() != "same" {
					t.Errorf("S-55 caller %d sees %d tasks in context %q, %v", i, list.GetTotalSize(), task.GetContextId(), err)
				}
			}
		}
	})
}

// TestS_49_Memory: what cannot be read of a conversation, or kept, is a warning
// of a run that completes.
func TestS_49_Memory(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		l := live(t, at, rig.Manager(t, newTalker(t, llm, true)), llm)
		for _, op := range []faulty.Op{faulty.Position, faulty.Recall} {
			t.Run(fmt.Sprintf("S-49 R-002-4.2 C-17 %s fails", op), func(t *testing.T) {
				c := "read-" + string(op)
				say(t, l.clients[0], "talker", c, "one")
				l.store.Break(faulty.Always(faulty.Fail, op))
				task := say(t, l.clients[1], "talker", c, "two")
				l.store.Heal()
				wantText(t, task, "re: two")
				wantPrompt(t, llm, "m", "user: two")
				if w := warnings(task); len(w) != 1 || !strings.Contains(w[0], "history of talker") {
					t.Errorf("warnings %q", w)
				}
				if n := noted(l.journal(t, task.GetId()), agent.NoteStorage); n != 1 {
					t.Errorf("%d notes of it", n)
				}
				say(t, l.clients[2], "talker", c, "three") // nothing is lost
				wantPrompt(t, llm, "m", slices.Concat(turn("one"), turn("two"), []string{"user: three"})...)
			})
		}
		t.Run("S-49 R-002-11.2 C-17 what was said cannot be kept", func(t *testing.T) {
			l.store.Break(faulty.Always(faulty.Fail, faulty.Remember))
			task := say(t, l.clients[0], "talker", "write", "one")
			l.store.Heal()
			wantText(t, task, "re: one")
			if w := warnings(task); len(w) != 1 || !strings.Contains(w[0], "could not be stored") {
				t.Errorf("warnings %q", w)
			}
			again, err := l.clients[2].Get(t.Context(), &a2av1.GetTaskRequest{Id: task.GetId()})
			if err != nil || len(warnings(again)) != 1 {
				t.Errorf("warnings of the task, read again: %q, %v", warnings(again), err)
			}
			if n := noted(l.journal(t, task.GetId()), agent.NoteRemembered); n != 0 {
				t.Error("it is noted as kept")
			}
			say(t, l.clients[0], "talker", "write", "two")
			wantPrompt(t, llm, "m", "user: two")
		})
		t.Run("C-17 a task that cannot be put on record is another matter", func(t *testing.T) {
			before := len(llm.Requests("m"))
			l.store.Break(faulty.Always(faulty.Fail, faulty.Create))
			_, err := l.clients[1].Send(t.Context(), in("write", rig.Text("talker", "unrecorded", "x")))
			l.store.Heal()
			wantUnavailable(t, "rest", err)
			if n := len(llm.Requests("m")); n != before {
				t.Errorf("the model was called %d times", n-before)
			}
		})
	})
}

// noted counts notes of a code.
func noted(records []runs.Record, code string) (n int) {
	for _, r := range records {
		if r.Event.GetNoted().GetCode() == code {
			n++
		}
	}
	return n
}

// TestR_002_40_Order: the exchange is kept before the run's end is on record, and
// is what was answered.
func TestR_002_40_Order(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		m := rig.Manager(t, newTalker(t, llm, true))
		l := live(t, at, m, llm)
		task := say(t, l.clients[0], "talker", "c", "one")
		records := l.journal(t, task.GetId())
		last, before := records[len(records)-1].Event, records[len(records)-2].Event
		if last.GetEnded() == nil || before.GetNoted().GetCode() != agent.NoteRemembered {
			t.Errorf("R-002-40 the last events are %v, %v", before, last)
		}
		r, err := l.store.Recall(t.Context(), ours("c"), "talker", 100)
		if err != nil || len(r.History) != 2 || agent.Text(r.History[1]) != task.GetArtifacts()[0].GetParts()[0].GetText() {
			t.Errorf("R-002-40 stored is %v, %v", r.History, err)
		}
		t.Run("R-002-40 what is kept is on record first", func(t *testing.T) {
			var ops []faulty.Op
			l.store.Break(func(op faulty.Op) faulty.Mode {
				if op == faulty.Append || op == faulty.Commit || op == faulty.Remember {
					ops = append(ops, op)
				}
				return faulty.None
			})
			say(t, l.clients[0], "talker", "c", "again")
			l.store.Heal()
			if i := slices.Index(ops, faulty.Remember); i < 1 || ops[i-1] != faulty.Commit {
				t.Errorf("%v", ops)
			}
		})
		if !at.Durable {
			return
		}
		t.Run("R-002-40 a crash in between repeats nothing", func(t *testing.T) {
			l.store.Break(afterwards(faulty.Remember))
			id := l.sendNow(t, "talker", "crash", "two").GetId()
			<-l.store.Fired()
			l.kill(at)
			calls := len(llm.Requests("m"))
			l = live(t, at, m, llm)
			done := l.until(t, id, ended)
			wantText(t, done, "re: two")
			r, err := l.store.Recall(t.Context(), ours(done.GetContextId()), "talker", 100)
			if err != nil || len(r.History) != 2 {
				t.Errorf("stored is %v, %v", r.History, err)
			}
			if n := len(llm.Requests("m")); n != calls {
				t.Error("the model was asked again")
			}
		})
	})
}

// afterwards has every write fail that comes after an operation.
func afterwards(op faulty.Op) faulty.Plan {
	met := false
	return func(o faulty.Op) faulty.Mode {
		if met && slices.Contains(faulty.Writes(), o) {
			return faulty.Fail
		}
		met = met || o == op
		return faulty.None
	}
}

// TestR_002_27_Together: 50 runs in one context at the same time.
func TestR_002_27_Together(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		const runs = 50
		llm := fakellm.New(t)
		l := live(t, at, rig.Manager(t, newTalker(t, llm, true)), llm)
		var wg sync.WaitGroup
		for i := range runs {
			wg.Go(func() {
				text := fmt.Sprint("text ", i)
				resp, err := l.clients[i%len(l.clients)].Send(t.Context(), in("c", rig.Text("talker", rand.Text(), text)))
				if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED || len(warnings(resp.GetTask())) > 0 {
					t.Errorf("R-002-27 %s: %v, %v", text, resp, err)
				}
			})
		}
		wg.Wait()
		if n := l.position(t, "c"); n != 2*runs {
			t.Fatalf("R-002-27 %d entries, want %d", n, 2*runs)
		}
		seen := map[string]bool{}
		for n := int64(2 * runs); n > 0; n -= agent.HistoryLength {
			r, err := l.store.Recall(t.Context(), ours("c"), "talker", n)
			if err != nil {
				t.Fatal(err)
			}
			for pair := range slices.Chunk(r.History, 2) {
				q, a := agent.Text(pair[0]), agent.Text(pair[1])
				if a != "re: "+q || seen[q] {
					t.Errorf("R-002-27 %q stands behind %q, or was there before", a, q)
				}
				seen[q] = true
			}
		}
		if len(seen) != runs {
			t.Errorf("R-002-27 %d exchanges, want %d", len(seen), runs)
		}
	})
}

// plainStore keeps no conversations.
type plainStore struct{ server.Store }

func (plainStore) Position(context.Context, runs.Thread) (int64, error) { return 0, nil }

func (plainStore) Recall(context.Context, runs.Thread, string, int64) (runs.Recollection, error) {
	return runs.Recollection{}, nil
}

func (plainStore) Remember(context.Context, runs.Thread, runs.Exchange) error { return nil }

// TestR_002_07_Optional: neither memory nor a store that keeps conversations is
// needed.
func TestR_002_07_Optional(t *testing.T) {
	t.Parallel()
	t.Run("R-002-07 an agent without memory", func(t *testing.T) {
		rig.EachStore(t, func(t *testing.T, at rig.Place) {
			llm := fakellm.New(t)
			l := live(t, at, rig.Manager(t, newTalker(t, llm, false)), llm)
			for _, text := range []string{"one", "two"} {
				say(t, l.clients[0], "talker", "c", text)
				wantPrompt(t, llm, "m", "user: "+text)
			}
			if n := l.position(t, "c"); n != 0 {
				t.Errorf("%d entries are kept", n)
			}
		})
	})
	t.Run("R-002-4.1 a store without conversations", func(t *testing.T) {
		llm := fakellm.New(t)
		s, _ := rig.Memory(t).Open(t)
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, newTalker(t, llm, true)), Store: plainStore{s}}, llm)
		rig.Each(t, target, func(t *testing.T, c rig.Client) {
			for _, text := range []string{"one", "two"} {
				task := say(t, c, "talker", "c-"+c.Binding(), text)
				if task.GetContextId() != "c-"+c.Binding() || len(warnings(task)) > 0 {
					t.Errorf("R-002-4.1 context %q, warnings %q", task.GetContextId(), warnings(task))
				}
				wantPrompt(t, llm, "m", "user: "+text)
			}
		})
	})
	t.Run("R-002-07 what callers see of a run tells nothing of the conversation", func(t *testing.T) {
		llm := fakellm.New(t)
		target := rig.Serve(t, server.Config{Agents: rig.Manager(t, newTalker(t, llm, true))}, llm)
		for _, ev := range events(t, target, "talker", "hi") {
			if acc := ev.GetAccepted(); acc.GetConversation() != nil {
				t.Errorf("%v", acc)
			}
		}
	})
}

// TestS_55_Elsewhere: an agent on another server, which knows all callers here by
// one key, mixes up nobody's conversations.
func TestS_55_Elsewhere(t *testing.T) {
	t.Parallel()
	llm := fakellm.New(t)
	far := rig.Serve(t, server.Config{Agents: rig.Manager(t, newTalker(t, llm, true))}, llm)
	m := rig.Manager(t, overService(t, "far", far, "talker"))
	chain(t, m, "desk", "far")
	near := rig.Serve(t, server.Config{Agents: m, Settings: rig.Keys(rig.Key("one", "ann"), rig.Key("one", "bob"))})
	for _, who := range []string{"ann", "bob"} {
		c := rig.NewREST(near.As("one", who))
		say(t, c, "desk", "same", "one of "+who)
		wantPrompt(t, llm, "m", "user: one of "+who)
		say(t, c, "desk", "same", "two of "+who)
		wantPrompt(t, llm, "m", append(turn("one of "+who), "user: two of "+who)...)
		say(t, c, "far", "same", "alone")
		wantPrompt(t, llm, "m", "user: alone") // another path
	}
}

// TestR_002_40_CheckedThenKept: the output middleware has spoken when the exchange
// is kept, and what is kept is what it made of the answer; then comes the end.
func TestR_002_40_CheckedThenKept(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		llm := fakellm.New(t)
		llm.Answer("m", func(r *fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "re: " + r.Last()} })
		signs := agent.Guard{Middleware: ware{"sign", func(p *agent.Passing) (agent.Verdict, error) {
			if strings.Contains(agent.Text(p.Message), "secret") {
				return agent.Verdict{Block: "that stays here"}, nil
			}
			return agent.Verdict{Message: agent.NewMessage(agent.Text(p.Message) + ", signed")}, nil
		}}}
		a, err := leader.NewAgent(leader.AgentConfig{ID: "clerk", Model: modelOf(t, llm, "m"), Memory: true, Guards: agent.Guards{Output: []agent.Guard{signs}}})
		if err != nil {
			t.Fatal(err)
		}
		l := live(t, at, rig.Manager(t, a), llm)
		task := say(t, l.clients[0], "clerk", "c", "one")
		wantText(t, task, "re: one, signed")
		var order []string
		for _, r := range l.journal(t, task.GetId()) {
			switch ev := r.Event; {
			case ev.GetChecked().GetStage() == teamv1.Checked_STAGE_OUTPUT:
				order = append(order, "checked")
			case ev.GetNoted().GetCode() == agent.NoteRemembered:
				order = append(order, "kept")
			case ev.GetScope() == "" && ev.GetEnded() != nil:
				order = append(order, "ended")
			}
		}
		if diff := cmp.Diff([]string{"checked", "kept", "ended"}, order); diff != "" {
			t.Errorf("R-002-40 (-want +got):\n%s", diff)
		}
		r, err := l.store.Recall(t.Context(), ours("c"), "clerk", 100)
		if err != nil || len(r.History) != 2 || agent.Text(r.History[1]) != "re: one, signed" {
			t.Errorf("R-002-40 stored is %v, %v", r.History, err)
		}
		t.Run("R-002-40 what the output guardrail stops is not kept", func(t *testing.T) {
			resp, err := l.clients[0].Send(t.Context(), in("c", rig.Text("clerk", "m-stopped", "secret")))
			if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_REJECTED {
				t.Fatal(resp, err)
			}
			r, err := l.store.Recall(t.Context(), ours("c"), "clerk", 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range r.History {
				if strings.Contains(agent.Text(m), "re: secret") {
					t.Errorf("kept is %v", r.History)
				}
			}
		})
	})
}
