package supervisor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// routeTool is the name of the tool that a router has to call.
const routeTool = "route"

// routeAttempts is how often a router is asked for one choice.
const routeAttempts = 2

// askRouter returns the decision to ask the model.
func askRouter(reason string) team.Decision {
	return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_MODEL, Name: routeTool}}, Reason: reason}
}

// routes returns the model turns of the current choice: those after the last step of a member.
func routes(s *team.State) []*team.StepState {
	i := len(s.Steps)
	for i > 0 && s.Steps[i-1].Step.GetKind() == teamv1.Step_KIND_MODEL {
		i--
	}
	return s.Steps[i:]
}

// routed turns the router's answer into a decision. An invalid answer is asked for again.
func (v *Supervisor) routed(s *team.State, turns []*team.StepState) (team.Decision, error) {
	last := turns[len(turns)-1]
	if last.Outcome != teamv1.Outcome_OUTCOME_SUCCEEDED && last.Outcome != teamv1.Outcome_OUTCOME_EMPTY {
		return team.Decision{}, routerFailed(s, last.Err)
	}
	choice, err := readRoute(last.Turn, s.Enabled())
	switch {
	case err != nil && len(turns) < routeAttempts:
		return askRouter("the router is asked once more: " + err.Error()), nil
	case err != nil:
		return team.Decision{}, agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError,
			"team %q: the router made no valid choice in %d attempts: %s; say in its instructions when to choose which member", s.Team.ID, len(turns), err)
	}
	return choice.decision(s)
}

// routerFailed returns the error of a run whose model could not be asked.
func routerFailed(s *team.State, cause *agent.Error) error {
	why := "its model did not answer"
	if cause != nil {
		why = cause.Message
	}
	e := agent.Errorf(agent.CodeInternal, agent.ReasonSchedulerError, "team %q: the router could not decide: %s; add a rule that does, or check the model", s.Team.ID, why)
	if cause != nil && (cause.Reason == agent.ReasonAnswerTruncated || cause.Reason == agent.ReasonAnswerFiltered) {
		e.Reason, e.Code = cause.Reason, cause.Code
	}
	if cause != nil {
		e = e.Because(cause)
	}
	return e
}

// route is the router's choice.
type route struct {
	next    []string // ids of members; empty ends the run
	reason  string
	message string
}

func (r *route) decision(s *team.State) (team.Decision, error) {
	d := team.Decision{Reason: r.reason}
	if len(r.next) > 0 {
		if d.Reason == "" {
			d.Reason = "the router chose " + strings.Join(r.next, ", ")
		}
		var message *a2av1.Message
		if r.message != "" {
			message = agent.UserMessage("", r.message)
		}
		d.Steps = delegate(r.next, message)
		return d, nil
	}
	if d.Reason == "" {
		d.Reason = "the router returns the last response"
	}
	if d.Reply = response(s, FinishLast); d.Reply == nil {
		return d, agent.Errorf(agent.CodeInternal, agent.ReasonNoResponse,
			"team %q: the router ended the run before any member had answered; say in its instructions who works first", s.Team.ID)
	}
	return d, nil
}

// readRoute parses a turn: a call of route, its arguments as text, or a member id as text. The error tells the model what
// is wrong.
func readRoute(turn *teamv1.Turn, members []*team.Member) (*route, error) {
	for _, call := range turn.GetToolCalls() {
		if call.GetName() == routeTool {
			return readCall(call.GetArguments(), members)
		}
	}
	if arguments := agent.JSONIn(turn.GetText()); arguments != "" {
		return readCall(arguments, members)
	}
	word := strings.Trim(turn.GetText(), " \t\r\n\"'`*.")
	if word == "" {
		return nil, fmt.Errorf("the answer names no member")
	}
	return choose([]string{word}, members)
}

// readCall parses the arguments of route. It accepts arguments that are wrapped in a string, and a
// single id in place of a list, because models write those.
func readCall(arguments string, members []*team.Member) (*route, error) {
	var inner string
	if json.Unmarshal([]byte(arguments), &inner) == nil {
		arguments = inner
	}
	var args struct {
		Next            json.RawMessage
		Reason, Message string
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		return nil, fmt.Errorf("the arguments of %s are not the JSON object asked for", routeTool)
	}
	var next []string
	if json.Unmarshal(args.Next, &next) != nil {
		var one string
		if json.Unmarshal(args.Next, &one) != nil {
			return nil, fmt.Errorf("next is neither a list of ids nor %q", finishWord)
		}
		next = []string{one}
	}
	r, err := choose(next, members)
	if err != nil {
		return nil, err
	}
	r.reason, r.message = strings.TrimSpace(args.Reason), strings.TrimSpace(args.Message)
	return r, nil
}

// choose returns the route to the members that the router named, without duplicates.
func choose(next []string, members []*team.Member) (*route, error) {
	if len(next) == 0 {
		return nil, fmt.Errorf("next is empty")
	}
	ids := []string{finishWord}
	for _, m := range members {
		ids = append(ids, team.MemberID(m))
	}
	r := &route{}
	for _, said := range next {
		id, ok := prompt.Named(said, ids)
		switch {
		case id == finishWord && len(next) == 1:
			return r, nil
		case !ok || id == finishWord:
			return nil, fmt.Errorf("there is no member %q to choose", agent.Quote(said))
		}
		if !slices.Contains(r.next, id) {
			r.next = append(r.next, id)
		}
	}
	return r, nil
}

// Prompt implements [team.Scheduler]. The prompt has the members, the input, the last response, and
// after an invalid answer what was wrong with it.
func (v *Supervisor) Prompt(s *team.State, step *teamv1.Step) *agent.ModelRequest {
	members := s.Enabled()
	req := &agent.ModelRequest{
		Agent: s.Team.ID, Instructions: v.instructions(s, members),
		Messages: append(team.SelfDescriptions(s, members), prompt.Task(s.Input, s.Brief)...), Tools: []agent.ToolSpec{routeSpec(members)}, Force: routeTool,
	}
	for _, m := range s.Received {
		req.Messages = append(req.Messages, prompt.User(m))
	}
	if l := s.Last; l != nil {
		text := fmt.Sprintf("Last response, by %s (%s):\n\n%s", l.Member, expr.OutcomeWord(l.Outcome), prompt.Text(l.Message))
		req.Messages = append(req.Messages, agent.ModelMessage{Role: agent.RoleUser, Text: text})
	}
	for _, st := range routes(s) {
		if st.Done && st.Step.GetId() != step.GetId() {
			req.Messages = append(req.Messages, correction(st.Turn, members)...)
		}
	}
	return req
}

// correction returns an invalid answer and what was wrong with it.
func correction(turn *teamv1.Turn, members []*team.Member) []agent.ModelMessage {
	_, err := readRoute(turn, members)
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("That is no choice: %s. Call %s with next: a list of member ids, or %q.", err, routeTool, finishWord)
	return prompt.Corrected(turn, text)
}

// instructions returns the system prompt: the configured instructions, the router's task, and the
// members.
func (v *Supervisor) instructions(s *team.State, members []*team.Member) string {
	var b strings.Builder
	if v.router != nil && v.router.Instructions != "" {
		b.WriteString(v.router.Instructions + "\n\n")
	}
	fmt.Fprintf(&b, "You direct the team %q. You do not answer the user yourself: you choose which member works next, "+
		"by calling %s. Each member chosen gets the last response, or your message instead of it. "+
		"With %q the last response goes to the user word for word; choose it when that answers the request.\n\nMembers:\n",
		cmp.Or(s.Team.Name, s.Team.ID), routeTool, finishWord)
	known := s.Infos()
	for _, m := range members {
		info := known.Of(m)
		prompt.Member(&b, team.MemberID(m), m.Role, team.DescriptionOf(m, info), team.SkillsOf(info))
	}
	return b.String()
}

// routeSpec returns the tool that the model has to call.
func routeSpec(members []*team.Member) agent.ToolSpec {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = team.MemberID(m)
	}
	enum, _ := json.Marshal(ids) // cannot fail for strings
	return agent.ToolSpec{
		Name:        routeTool,
		Description: "Chooses which members work next, or returns the last response to the user.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"next":{"description":"Members that work next, at the same time; or finish.","anyOf":[` +
			`{"type":"array","minItems":1,"items":{"type":"string","enum":` + string(enum) + `}},` +
			`{"type":"string","enum":["` + finishWord + `"]}]},` +
			`"reason":{"type":"string","description":"Why, in one sentence."},` +
			`"message":{"type":"string","description":"What the members are given instead of the last response."}},` +
			`"required":["next","reason"],"additionalProperties":false}`),
	}
}
