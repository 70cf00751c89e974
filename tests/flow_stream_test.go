package tests

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// said is a piece of an artifact with whose it is.
type said struct{ name, delegation, text string }

// spoken are the pieces of artifacts in a stream, by the scope of the delegation.
func spoken(t testing.TB, updates []*a2av1.StreamResponse) map[string][]said {
	t.Helper()
	all := map[string][]said{}
	for _, u := range updates {
		a := u.GetArtifactUpdate()
		if a == nil {
			continue
		}
		run := a2a.RunOf(a.GetMetadata())
		_, scope, _ := strings.Cut(run.GetDelegationId(), "~")
		if scope != "" && (run.GetPath() != a.GetArtifact().GetName() || !strings.HasPrefix(run.GetDelegationId(), run.GetParent())) {
			t.Errorf("S-26: a piece without its lineage: %v of %s", run, a.GetArtifact().GetName())
		}
		all[scope] = append(all[scope], said{a.GetArtifact().GetName(), run.GetDelegationId(), agent.Text(&a2av1.Message{Parts: a.GetArtifact().GetParts()})})
	}
	return all
}

// statuses are the status texts in a stream.
func statuses(updates []*a2av1.StreamResponse) []string {
	var all []string
	for _, u := range updates {
		if text := agent.Text(u.GetStatusUpdate().GetStatus().GetMessage()); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// together joins what pieces say but the last, which adds nothing.
func together(pieces []said) (streamed, last string) {
	for _, p := range pieces[:len(pieces)-1] {
		streamed += p.text
	}
	return streamed, pieces[len(pieces)-1].text
}

func TestS_26_Attribution(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, `
models: {a: MODEL(a), b: MODEL(b), lead: MODEL(lead)}
agents:
  a: {model: a}
  b: {model: b}
  busy: {scripted: {steps: [{progress: "reading {{input}}"}, {chunks: 4}, {text: "prose of {{input}}"}]}}
teams:
  open: {members: [{agent: a, stream_inner: true}, {agent: b, stream_inner: true}], broadcast: {model: lead}}
  shut: {members: [{agent: a}, {agent: b}], broadcast: {model: lead}}
  mute: {members: [{agent: busy, stream_inner: true, inner_text: false}, {agent: b}], broadcast: {model: lead}}
  outer: {members: [{agent: open, stream_inner: true}], supervisor: {rules: [{id: one, when: "turn == 1", next: [open]}, {id: end, when: "true", finish: open}]}}
`)
		s.llm.Answer("lead", func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "That is all.", Chunks: 3} })
		// Two members stream at the same time: each waits for the other in the middle.
		parallel := func() {
			gate := fakellm.NewGate()
			s.llm.Script("a", fakellm.Turn{Text: "one two three four", Chunks: 4, Gate: gate, GateAfter: 2})
			s.llm.Script("b", fakellm.Turn{Text: "five six seven eight", Chunks: 4, Gate: gate, GateAfter: 2})
			go func() {
				if gate.Wait(t.Context(), 2) == nil {
					gate.Open()
				}
			}()
		}
		rig.Each(t, s.Target, func(t *testing.T, c rig.Client) {
			t.Run("S-26 R-004-14 every piece has its path and delegation, none is in the answer", func(t *testing.T) {
				parallel()
				updates, task := s.told(t, c, "open", "x", completedTask)
				pieces := spoken(t, updates)
				for scope, want := range map[string]string{"1": "one two three four", "2": "five six seven eight"} {
					streamed, last := together(pieces[scope])
					if streamed != want || last != "" || pieces[scope][0].delegation != task.GetId()+"~"+scope || len(pieces[scope]) < 3 {
						t.Errorf("%s: %v", scope, pieces[scope])
					}
				}
				if streamed, last := together(pieces[""]); streamed != "That is all." || last != "" {
					t.Errorf("the answer: %v", pieces[""])
				}
				got := shelf(task)
				slices.Sort(got)
				if diff := cmp.Diff([]string{"open/a 1: one two three four", "open/b 2: five six seven eight", "result: That is all."}, got); diff != "" {
					t.Error(diff)
				}
			})
			t.Run("R-004-11 by default nothing of a member is in the stream", func(t *testing.T) {
				parallel()
				updates, task := s.told(t, c, "shut", "x", completedTask)
				if p := spoken(t, updates); len(p["1"])+len(p["2"]) > 0 {
					t.Error(p)
				}
				if diff := cmp.Diff([]string{"result: That is all."}, shelf(task)); diff != "" {
					t.Error(diff)
				}
			})
			t.Run("S-26 inner_text: false hides prose and keeps progress", func(t *testing.T) {
				s.llm.Script("b", fakellm.Turn{Text: "b"})
				updates, task := s.told(t, c, "mute", "x", completedTask)
				if p := spoken(t, updates); len(p["1"]) > 0 || len(p[""]) == 0 {
					t.Error(p)
				}
				if diff := cmp.Diff([]string{"reading x"}, statuses(updates)); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"result: That is all."}, shelf(task)); diff != "" {
					t.Error(diff)
				}
			})
			t.Run("S-26 through a nested team, with the whole path", func(t *testing.T) {
				parallel()
				updates, task := s.told(t, c, "outer", "x", completedTask)
				p := spoken(t, updates)
				if len(p["1.1"]) < 3 || p["1.1"][0].name != "outer/open/a" || p["1.1"][0].delegation != task.GetId()+"~1.1" {
					t.Error(p["1.1"])
				}
				if streamed, _ := together(p["1"]); streamed != "That is all." || p["1"][0].name != "outer/open" {
					t.Error(p["1"])
				}
				if got := p[""]; len(got) != 1 || got[0].text != "That is all." {
					t.Error(got)
				}
			})
		})
	})
}

// TestR_002_35_Stream: decisions, the state of delegations, members' pieces and the
// answer's, each with its lineage, a start for each end (I1), and a cursor that goes
// forward (I2).
func TestR_002_35_Stream(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+"\n  all: {members: [{agent: a, stream_inner: true}, {agent: b, stream_inner: true}], broadcast: {model: lead}}\n")
		s.repeats("a", "b")
		s.llm.Script("lead", fakellm.Turn{Text: "That is all.", Chunks: 3})
		updates, task := s.told(t, s.client(t, true), "all", "x", completedTask)
		classes, open := map[string]int{}, map[string]int{}
		var cursor int64
		for _, u := range updates {
			run := a2a.RunOf(u.GetStatusUpdate().GetMetadata())
			piece := a2a.RunOf(u.GetArtifactUpdate().GetMetadata())
			if seq := max(run.GetSeq(), piece.GetSeq()); seq != 0 && seq <= cursor {
				t.Errorf("%d comes behind %d", seq, cursor)
			} else if seq != 0 {
				cursor = seq
			}
			switch {
			case piece.GetDelegationId() != "":
				classes["member chunk"]++
			case piece != nil && piece.GetPath() == "all":
				classes["final chunk"]++
			case run.GetDecision().GetReason() != "" && run.GetPath() == "all" && run.GetDelegationId() == task.GetId():
				classes["decision"]++
			case run.GetKind() == "started" && strings.HasPrefix(run.GetDelegationId(), task.GetId()+"~") && run.GetParent() != "":
				classes["delegation status"]++
				open[run.GetDelegationId()]++
			case run.GetKind() == "ended" && run.GetParent() != "":
				open[run.GetDelegationId()]--
				if d := run.GetDelegations(); len(d) != 1 || d[0].GetOutcome() == teamv1.Outcome_OUTCOME_UNSPECIFIED {
					t.Errorf("an end without an outcome: %v", run)
				}
			}
		}
		for _, class := range []string{"decision", "delegation status", "member chunk", "final chunk"} {
			if classes[class] == 0 {
				t.Errorf("R-002-35: no %s in %v", class, classes)
			}
		}
		for id, n := range open {
			if n != 0 {
				t.Errorf("I1: %s has %+d ends too few", id, n)
			}
		}
	})
}

func TestS_27_StreamsBreak(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, `
models: {a: MODEL(a), b: MODEL(b), lead: MODEL(lead)}
agents: {a: {model: a}, b: {model: b}}
teams:
  all: {members: [{agent: a}, {agent: b, stream_inner: true}], broadcast: {model: lead}, limits: {retry: {attempts: 2, backoff: 1ms}}}
`)
		broken := fakellm.Turn{Text: "one two three four", Chunks: 4, Broken: true, BreakAfter: 2}
		rig.Each(t, s.Target, func(t *testing.T, c rig.Client) {
			t.Run("S-27 R-002-7.1 R-002-7.3 the leader's stream is cut: FAILED, and the stream is closed", func(t *testing.T) {
				s.repeats("a", "b")
				s.llm.Script("lead", broken, broken)
				updates, task := s.told(t, c, "all", "x", failedTask)
				last := updates[len(updates)-1].GetStatusUpdate()
				if e := a2a.RunOf(last.GetMetadata()).GetError(); e.GetReason() != agent.ReasonUnavailable || !strings.Contains(agent.Text(last.GetStatus().GetMessage()), e.GetReason()) {
					t.Error(last)
				}
				if got := shelf(task); !slices.Contains(got, "all/a 1: a(x)") || !slices.Contains(got, "all/b 2: b(x)") {
					t.Errorf("R-002-31: %v", got)
				}
			})
			t.Run("S-27 R-002-7.2 one of two members is cut: an error event, the other one finishes, the leader answers", func(t *testing.T) {
				s.repeats("a")
				s.llm.Script("b", broken, broken)
				s.llm.Script("lead", fakellm.Turn{Text: "One of two."})
				updates, task := s.told(t, c, "all", "x", completedTask)
				told := slices.IndexFunc(updates, func(u *a2av1.StreamResponse) bool {
					f := a2a.RunOf(u.GetStatusUpdate().GetMetadata()).GetFailedDelegations()
					return len(f) == 1 && f[0].GetPath() == "all/b" && f[0].GetError().GetReason() == agent.ReasonUnavailable
				})
				if told < 0 || told == len(updates)-1 {
					t.Errorf("the failure is told at %d of %d", told, len(updates))
				}
				got := shelf(task)
				if !slices.Contains(got, "result: One of two.") || len(runOf(task).GetFailedDelegations()) != 1 {
					t.Error(got, runOf(task))
				}
				// The second attempt begins its text anew.
				if p := spoken(t, updates)["2"]; len(p) < 2 || slices.ContainsFunc(got, func(a string) bool { return strings.Contains(a, "one two one") }) {
					t.Error(p, got)
				}
			})
		})
	})
}

// TestS_25_ReaderOfInnerStreams: who comes back with a cursor is told every piece
// once, those of members too.
func TestS_25_ReaderOfInnerStreams(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, place rig.Place) {
		s := play(t, place, cast+"\n  all: {members: [{agent: a, stream_inner: true}, {agent: b, stream_inner: true}], broadcast: {model: lead}}\n")
		s.repeats("b")
		s.llm.Script("a", fakellm.Turn{Text: "one two three four five six", Chunks: 6})
		s.llm.Script("lead", fakellm.Turn{Text: "That is all.", Chunks: 3})
		whole, task := s.told(t, s.client(t, false), "all", "x", completedTask)
		var cursors []int64
		for _, u := range whole[1:] {
			if seq := cursorOf(u); seq != 0 {
				cursors = append(cursors, seq)
			}
		}
		for i, after := range cursors[:len(cursors)-1] {
			ctx, stop := context.WithCancel(t.Context())
			rest, err := rig.Collect(s.client(t, false).Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, after))
			stop()
			if err != nil {
				t.Fatal(err)
			}
			from := slices.IndexFunc(whole, func(u *a2av1.StreamResponse) bool { return cursorOf(u) == after }) + 1
			if diff := cmp.Diff(lines(whole[from:]), lines(rest)); diff != "" {
				t.Fatalf("behind cursor %d (%d): %d updates, want %d", after, i, len(rest), len(whole)-from)
			}
		}
	})
}
