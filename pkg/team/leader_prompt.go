package team

import (
	"fmt"
	"strings"
	"unicode/utf8"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// maxResult is how many bytes of a result a leader is shown; the rest it can read
// with a tool (C-31).
const maxResult = 16 << 10

// Prompt implements Prompter: the conversation so far, with results under the
// calls they answer, and what the user said meanwhile before the turn that heard it.
func (l *leader) Prompt(s *State, step *teamv1.Step) *agent.ModelRequest {
	req := &agent.ModelRequest{Agent: s.Team.ID, Instructions: l.system(s)}
	if step.GetName() != finalTurn {
		req.Tools = l.specs(s)
	}
	for _, m := range s.History {
		req.Messages = append(req.Messages, said(m))
	}
	req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleUser, Text: promptText(s.Input)})
	w := wording{leader: l, state: s, request: req}
	for i, st := range s.Steps {
		if st.Step.GetKind() == teamv1.Step_KIND_MODEL {
			w.turn(i, st)
		}
	}
	return req
}

// wording writes the messages of a prompt.
type wording struct {
	*leader
	state   *State
	request *agent.ModelRequest
	heard   int // follow-ups written
}

func (w *wording) add(m agent.ModelMessage) { w.request.Messages = append(w.request.Messages, m) }

// turn writes what a turn was told, what it said, and what its calls were answered.
func (w *wording) turn(i int, st *StepState) {
	for ; w.heard < st.heard; w.heard++ {
		w.add(said(w.state.Received[w.heard]))
	}
	switch st.Step.GetName() {
	case resultsTurn:
		w.add(agent.ModelMessage{Role: agent.RoleUser, Text: resultsText(w.state, st)})
	case againTurn:
		w.add(agent.ModelMessage{Role: agent.RoleUser, Text: st.Step.GetAsk().GetQuestion()})
	case finalTurn:
		w.add(agent.ModelMessage{Role: agent.RoleUser, Text: "A limit is reached: no more tools can be called. Answer the request now with what you have, and say what is missing."})
	}
	if st.Turn == nil {
		return
	}
	w.add(agent.ModelMessage{Role: agent.RoleAssistant, Text: st.Turn.GetText(), ToolCalls: st.Turn.GetToolCalls(), State: st.Turn.GetState()})
	for k, call := range st.Turn.GetToolCalls() {
		answer := agent.ModelMessage{Role: agent.RoleTool, CallID: call.GetId(), Tool: call.GetName(), Text: "not run"}
		if i+1+k < len(w.state.Steps) {
			answer.Text = w.answer(w.state.Steps[i+1+k])
		}
		w.add(answer)
	}
}

// answer is what a call is answered with.
func (w *wording) answer(st *StepState) string {
	switch {
	case st.Tool != nil:
		return st.Tool.GetText()
	case st.refusal != nil:
		return st.refusal.Message
	case st.Step.GetAsync():
		return fmt.Sprintf("Under way as %s. Go on; call %s to see how it stands.", ticket(w.state, st), checkTool)
	case st.member():
		return w.result(st)
	case st.Err != nil:
		return st.Err.Message
	}
	return "no result"
}

// result words a delegation's result for the leader: who, how it went, the text (R-002-39).
func (w *wording) result(st *StepState) string {
	text := resultText(st)
	if st.failure() != nil {
		text += "\nYou can call it again with other words, or go on without it: " + w.crew.others()
	}
	return text
}

// resultText is a delegation's result in words: member, outcome, why it failed,
// and the text, cut where it is long (R-002-39, R-002-2.4).
func resultText(st *StepState) string {
	head := st.Step.GetMember() + ": " + outcomeWord(st.Outcome)
	switch {
	case !st.Done:
		return st.Step.GetMember() + ": working"
	case st.Err != nil && st.Err.Reason != "":
		head += " (" + st.Err.Reason + ")"
	}
	text := promptText(st.Message)
	switch {
	case st.Err != nil:
		return head + "\n\n" + st.Err.Message
	case strings.TrimSpace(text) == "":
		return head + "\n\n(member returned no content)"
	}
	return head + "\n\n" + cut(text, st.Step.GetId())
}

// cut shortens a long result and says where the rest is.
func cut(text, id string) string {
	if len(text) <= maxResult {
		return text
	}
	return fmt.Sprintf("%s\n\n[the first %d of %d bytes. The whole is result %q: read on with %s]",
		upTo(text, maxResult), maxResult, len(text), id, readTool)
}

// upTo is the beginning of a text, at most n bytes, with whole characters.
func upTo(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// specs are the tools that the model sees: the members, its own, and those by
// which it looks at what the team has.
func (l *leader) specs(s *State) []agent.ToolSpec {
	specs := l.crew.specs(s)
	specs = append(specs, l.tools...)
	if l.crew.anyAsync() {
		specs = append(specs, checkSpec)
	}
	if l.crew != nil && hasLong(s) {
		specs = append(specs, readSpec)
	}
	if len(s.Transfers) > 0 {
		specs = append(specs, transferSpec(s.Transfers))
	}
	return specs
}

// system is the system text: the instructions, and for a leader the members and
// how to work with them (R-002-15).
func (l *leader) system(s *State) string {
	if l.crew == nil || len(l.crew.enabled()) == 0 {
		return l.instructions
	}
	var b strings.Builder
	if l.instructions != "" {
		b.WriteString(l.instructions + "\n\n")
	}
	fmt.Fprintf(&b, "You lead the team %q. Answer simple requests yourself. For the rest give members tasks by calling "+
		"their tools, then write the answer from their results. A member sees the task you write and nothing you do not tell it: "+
		"name everything it needs. Do not repeat a task in the same words. What a member reports as failed is not done: say so.\n\nMembers:\n",
		teamName(s.Team))
	for _, m := range l.crew.members {
		if !m.Disabled {
			describe(&b, m.Member, s.Roster)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func said(m *a2av1.Message) agent.ModelMessage {
	role := agent.RoleUser
	if m.GetRole() == a2av1.Role_ROLE_AGENT {
		role = agent.RoleAssistant
	}
	return agent.ModelMessage{Role: role, Text: promptText(m)}
}

// promptText is a message as a model reads it.
func promptText(m *a2av1.Message) string { return agent.Prompt(m) }
