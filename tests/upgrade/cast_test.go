package upgrade

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// cast answers for the models of the file. What it says depends on what it is asked
// alone, so that a run comes to the same end in whichever process.
type cast struct {
	*fakellm.Server
	file string

	mu    sync.Mutex
	gates map[string]*fakellm.Gate // of runs in which beta works until they are opened; guarded by mu
}

// newCast returns a cast for a file.
func newCast(t testing.TB, file string) *cast {
	t.Helper()
	c := &cast{Server: fakellm.New(t), file: file, gates: map[string]*fakellm.Gate{}}
	for model, answer := range map[string]func(*fakellm.Request) fakellm.Turn{
		"alpha": says, "beta": c.beta, "gamma": says, "memory": remembers, "router": routes, "judge": judges,
		"all": callsAll, "later": callsLater, "leaves": leaves, "one": callsOne, "sum": sums,
	} {
		c.Answer(model, answer)
	}
	return c
}

// open serves the file on a store, as acme/ann.
func (c *cast) open(t testing.TB, at rig.Place) *whole.Server {
	t.Helper()
	return whole.Open(t, at, c.file, c.Server)
}

// hold has beta work in a run until the gate is opened.
func (c *cast) hold(r run) *fakellm.Gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := fakellm.NewGate()
	c.gates[r.name()] = gate
	return gate
}

// runName is how a text names the run that it belongs to.
var runName = regexp.MustCompile(`[a-z]+/[a-z]+`)

// nameOf is the name of the run that a request belongs to.
func nameOf(r *fakellm.Request) string {
	for _, m := range r.Messages {
		if name := runName.FindString(m.Text); name != "" {
			return name
		}
	}
	return ""
}

// fails is the answer in runs that are to fail.
func fails(r *fakellm.Request) (turn fakellm.Turn, failing bool) {
	if !strings.HasSuffix(nameOf(r), "/failed") {
		return turn, false
	}
	return fakellm.Turn{Status: http.StatusBadRequest, Message: "out of ink"}, true
}

// says repeats what it was told, and hands over where it can and is not the last.
func says(r *fakellm.Request) fakellm.Turn {
	to := map[string]string{"alpha": "beta", "beta": "gamma"}[r.Model]
	if to == "beta" && strings.HasSuffix(nameOf(r), "/waiting") {
		to = "editor"
	}
	if to == "" || !slices.Contains(r.Tools, "transfer_to_agent") {
		return fakellm.Turn{Text: r.Model + "<" + r.Last() + ">"}
	}
	arguments := fmt.Sprintf(`{"agent_name": %q, "message": %q}`, to, r.Model+"<"+r.Messages[0].Text+">")
	return fakellm.Turn{Calls: []fakellm.Call{{ID: "to-" + to, Name: "transfer_to_agent", Arguments: arguments}}}
}

// beta is who works while runs are stopped in their middle.
func (c *cast) beta(r *fakellm.Request) fakellm.Turn {
	if turn, failing := fails(r); failing {
		return turn
	}
	turn, name := says(r), nameOf(r)
	if strings.HasSuffix(name, "/improving") && !strings.Contains(r.Last(), "nicer") {
		return turn // it is in its first round
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	turn.Gate = c.gates[name]
	return turn
}

// remembers repeats all that it is shown.
func remembers(r *fakellm.Request) fakellm.Turn {
	var all []string
	for _, m := range r.Messages {
		all = append(all, m.Role+": "+m.Text)
	}
	return fakellm.Turn{Text: "[" + strings.Join(all, "; ") + "]"}
}

// routes has beta, or the editor, follow alpha, then gamma.
func routes(r *fakellm.Request) fakellm.Turn {
	next := `["gamma"]`
	switch {
	case strings.Contains(r.Last(), "Last response, by alpha "):
		next = fmt.Sprintf("[%q]", middle(r))
	case strings.Contains(r.Last(), "Last response, by gamma "):
		next = `"finish"`
	}
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "route", Arguments: fmt.Sprintf(`{"next": %s, "reason": "its turn"}`, next)}}}
}

// middle is who works in the middle of a run.
func middle(r *fakellm.Request) string {
	if strings.HasSuffix(nameOf(r), "/waiting") {
		return "editor"
	}
	return "beta"
}

// judges wants texts that are better; the answer to its advice is.
func judges(r *fakellm.Request) fakellm.Turn {
	arguments := `{"score": 0.4, "feedback": "Make it nicer."}`
	if strings.Contains(r.Last(), "nicer") {
		arguments = `{"score": 0.9, "feedback": ""}`
	}
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "judge", Arguments: arguments}}}
}

// sums puts together what the members of a broadcast said.
func sums(r *fakellm.Request) fakellm.Turn {
	if turn, failing := fails(r); failing {
		return turn
	}
	var said []string
	for _, m := range r.Messages {
		said = append(said, m.Text)
	}
	return fakellm.Turn{Text: "sum<" + strings.Join(said, " + ") + ">"}
}

// callsAll is a leader that calls all its members at the same time.
func callsAll(r *fakellm.Request) fakellm.Turn {
	if said := results(r); len(said) > 0 {
		if turn, failing := fails(r); failing {
			return turn
		}
		return fakellm.Turn{Text: strings.Join(said, " + ")}
	}
	var members []string
	for _, tool := range r.Tools {
		if member, ok := strings.CutPrefix(tool, "delegate_to_"); ok {
			members = append(members, member)
		}
	}
	return calls(r, members...)
}

// callsLater is a leader that calls all its members in the background, looks once what
// became of them, and answers; when it is told the rest it answers again.
func callsLater(r *fakellm.Request) fakellm.Turn {
	var called, heard []string
	for _, m := range r.Messages {
		for _, c := range m.Calls {
			called = append(called, c.Name)
		}
		for _, name := range []string{"alpha", "beta", "gamma"} {
			if strings.Contains(m.Text, name+"<") {
				heard = append(heard, name)
			}
		}
	}
	slices.Sort(heard)
	heard = slices.Compact(heard)
	switch {
	case len(called) == 0:
		return callsAll(r)
	case !slices.Contains(called, "check_delegated_tasks"):
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "check_delegated_tasks", Arguments: `{"wait_seconds": 30}`}}}
	}
	if turn, failing := fails(r); failing {
		return turn
	}
	if len(heard) < 3 {
		return fakellm.Turn{Text: "Not yet."}
	}
	return fakellm.Turn{Text: strings.Join(heard, ", ") + " have answered."}
}

// leaves is a leader that calls a member and does not wait for it. Later it is told how
// that ended.
func leaves(r *fakellm.Request) fakellm.Turn {
	switch {
	case strings.Contains(r.Last(), "has ended: "):
		return fakellm.Turn{Text: "told<" + r.Last() + ">"}
	case len(results(r)) > 0:
		return fakellm.Turn{Text: "It is under way."}
	}
	return calls(r, middle(r))
}

// callsOne is a leader that chooses a member.
func callsOne(r *fakellm.Request) fakellm.Turn {
	if turn, failing := fails(r); failing && len(results(r)) > 0 {
		return turn
	}
	return calls(r, middle(r))
}

// calls gives members the request.
func calls(r *fakellm.Request, members ...string) (turn fakellm.Turn) {
	for _, m := range members {
		turn.Calls = append(turn.Calls, fakellm.Call{ID: "call-" + m, Name: "delegate_to_" + m, Arguments: fmt.Sprintf(`{"task": %q}`, r.Last())})
	}
	return turn
}

// results are what the tools have answered since the last message of a user.
func results(r *fakellm.Request) (said []string) {
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			said = nil
		case "tool":
			_, text, _ := strings.Cut(m.Text, "\n\n")
			said = append(said, text)
		}
	}
	return said
}
