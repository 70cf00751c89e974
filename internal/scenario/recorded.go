package scenario

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// file returns the content of the test file.
func (r *recorder) file(config string, tasks []Recorded) *yaml.Node {
	first := tasks[0]
	pairs := []any{"name", agent.Excerpt("recorded: "+strings.Join(strings.Fields(agent.Text(first.Message)), " "), 80)}
	if len(r.turns) == 1 {
		for i := 0; i < len(r.turns[0].Content); i += 2 {
			pairs = append(pairs, r.turns[0].Content[i], r.turns[0].Content[i+1])
		}
	} else {
		pairs = append(pairs, "turns", r.turns)
	}
	return mapping(
		"version", "v1", "config", config, "team", r.team, "models", mapping("*", mapping("recorded", true, "agents", r.answersOf())),
		"agents", r.remoteAgents(), "tools", r.toolScripts(), "scenarios", []*yaml.Node{mapping(pairs...)})
}

// comment returns the comment at the head of the test file.
func (r *recorder) comment(tasks []Recorded) []string {
	return append([]string{
		fmt.Sprintf("Recorded from task %s of %s by team-server test record. It calls no model, tool or other agent:", tasks[len(tasks)-1].Task, r.team),
		"what these answered is below. Texts are as they were: look for what should not be kept.",
		"Limits, history and state that the caller sent beside a message are not here.",
	}, r.notes...)
}

// answersOf returns the answers of models by agent. A script has at least one.
func (r *recorder) answersOf() map[string]*yaml.Node {
	all := map[string]*yaml.Node{}
	for id, entries := range r.models {
		all[id] = node(entries)
	}
	if len(all) == 0 {
		all[r.team] = node([]*yaml.Node{flow("error", flow("status", int64(400), "message", "no model was called when this was recorded"))})
	}
	return all
}

// remoteAgents returns the scripts of agents on other servers, also of those that had no work.
func (r *recorder) remoteAgents() map[string]*yaml.Node {
	all := map[string]*yaml.Node{}
	for _, id := range r.remote {
		calls := r.agents[id]
		if len(calls) == 0 {
			calls = []*yaml.Node{mapping("steps", []*yaml.Node{flow("error", flow("reason", agent.ReasonUnavailable, "message", "the agent had no work when this was recorded"))})}
		}
		all[id] = escaped(mapping("calls", calls))
	}
	return all
}

// escaped returns a node in whose texts ${ stands for itself: agents become a part of the configuration, which has
// variables.
func escaped(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.ScalarNode {
		n.Value = strings.ReplaceAll(n.Value, "${", "$${")
	}
	for _, below := range n.Content {
		escaped(below)
	}
	return n
}

// toolScripts returns the scripts of all MCP servers that the team is built from.
func (r *recorder) toolScripts() map[string]*yaml.Node {
	all := map[string]*yaml.Node{}
	for _, name := range sorted(r.def.Server.GetTools()) {
		functions := r.functions[name]
		if len(functions) == 0 && len(r.tools[name]) == 0 {
			functions = r.unseen(name)
		}
		all[name] = mapping("functions", functions, "calls", r.tools[name])
	}
	return all
}

// unseen returns tools of a server whose tools were not listed in the record, with the names that the configuration
// refers to.
func (r *recorder) unseen(server string) map[string]*yaml.Node {
	tool := r.def.Server.GetTools()[server]
	all := map[string]*yaml.Node{}
	for _, name := range slices.Concat(tool.GetMcp().GetAllow(), tool.GetApprove().GetTools()) {
		name = strings.TrimPrefix(strings.NewReplacer("*", "x", "?", "x").Replace(name), tool.GetMcp().GetPrefix())
		if ok, err := path.Match("[A-Za-z0-9_-]*", name); ok && err == nil {
			all[name] = flow("description", "It was not called when this was recorded.")
		}
	}
	if len(all) == 0 {
		all["unused"] = flow("description", "The tools of this server were not listed when this was recorded.")
	}
	return all
}

// turn returns a message with its answers and the results that are expected.
func (r *recorder) turn(t *Recorded, rec *record, calls int64) (*yaml.Node, error) {
	parts := t.Message.GetParts()
	var send any
	if len(parts) > 0 && parts[0].GetText() != "" && parts[0].GetMetadata() == nil && parts[0].GetMediaType() == "" {
		send, parts = parts[0].GetText(), parts[1:]
	}
	var others []*yaml.Node
	for _, p := range parts {
		n, err := part(p)
		if err != nil {
			return nil, err
		}
		others = append(others, n)
	}
	answers, questions, err := r.asked(rec)
	if err != nil {
		return nil, err
	}
	return mapping("send", send, "parts", others, "answers", answers, "want", r.want(rec, questions, calls)), nil
}

// asked returns the answers of people, and the questions.
func (r *recorder) asked(rec *record) (answers, questions []string, err error) {
	given := map[string]*teamv1.Answered{}
	for _, ev := range rec.events {
		if a := ev.GetAnswered(); a != nil && given[a.GetQuestion()] == nil {
			given[a.GetQuestion()] = a
		}
		if ev.GetExpired().GetLimit() == agent.LimitQuestion {
			return nil, nil, errors.New("a question was not answered in time, which a test cannot repeat; write a scenario")
		}
	}
	for _, ev := range rec.events {
		q := ev.GetAsked()
		if q == nil {
			continue
		}
		if askedByTool(ev) {
			r.note("A tool asked people during a call. The test has the result of the call, and does not ask.")
			continue
		}
		questions = append(questions, agent.Text(q.GetMessage()))
		if a := given[q.GetQuestion()]; a != nil {
			answers = append(answers, answerText(a))
		}
	}
	return answers, questions, nil
}

// askedByTool reports whether a tool of an MCP server asks.
func askedByTool(ev *teamv1.Event) bool { return ev.GetAsked().GetToolQuestion().GetServer() != "" }

// answerText returns an answer of people as text.
func answerText(a *teamv1.Answered) string {
	if text := agent.Text(a.GetMessage()); text != "" {
		return text
	}
	switch d := a.GetApproval(); d.GetDecision() {
	case teamv1.Approval_DECISION_APPROVE:
		if d.GetArguments() != "" {
			return "edit: " + d.GetArguments()
		}
		return agent.WordApprove
	case teamv1.Approval_DECISION_APPROVE_ALL:
		return agent.WordApproveAll
	case teamv1.Approval_DECISION_REJECT:
		if d.GetReason() != "" {
			return agent.WordReject + ": " + d.GetReason()
		}
		return agent.WordReject
	case teamv1.Approval_DECISION_UNSPECIFIED:
	}
	switch g := a.GetGrant(); {
	case g.GetOutputTokens() > 0:
		return fmt.Sprintf("%d tokens", g.GetOutputTokens())
	case g.GetCostMicros() > 0:
		return fmt.Sprintf("%d.%06d USD", g.GetCostMicros()/1e6, g.GetCostMicros()%1e6)
	}
	for _, p := range a.GetMessage().GetParts() {
		if n, err := p.GetData().MarshalJSON(); err == nil && p.GetData() != nil {
			return string(n)
		}
	}
	return "no"
}

// want returns what is expected of a turn: how it ended, and what was decided on the way.
func (r *recorder) want(rec *record, questions []string, calls int64) *yaml.Node {
	w, t := rec.lists(), r.def.Server.GetTeams()[r.team]
	state := (&judge{record: rec}).finalState()
	var ended, reason, reply any
	if state != teamv1.FinalState_COMPLETED {
		ended = state.String()
	}
	if e := rec.Top.End.GetError(); e != nil {
		reason = e.GetReason()
	} else if text := agent.Text(rec.said(rec.Top)); text != "" && !r.exchanged {
		reply = mapping("equals", text)
	}
	pairs := []any{"state", ended, "reason", reason, "reply", reply}
	add := func(key string, list, known []string) { // a test may only name what the configuration has
		if !slices.ContainsFunc(list, func(name string) bool { return !slices.Contains(known, first(name)) }) {
			pairs = append(pairs, key, list)
		}
	}
	if t != nil {
		members, steps := memberIDs(t), stepIDs(t.GetWorkflow().GetSteps())
		if t.GetWorkflow().GetPlan() != nil { // a model named them
			steps = namesOf(slices.Concat(w.steps, w.skipped), stepOf)
		}
		rules, _ := rec.ruled()
		add("agents", namesOf(w.all, pathOf), members)
		add("failed", namesOf(w.failed, pathOf), members)
		add("steps", namesOf(w.steps, stepOf), steps)
		add("skipped", namesOf(w.skipped, stepOf), steps)
		add("rules", rules, ruleIDs(t))
	}
	pairs = append(pairs, "questions", questions)
	if !slices.ContainsFunc(rec.events, askedByTool) { // which are calls of their own while people answer
		pairs = append(pairs, "tool_calls", rec.tools)
	}
	if !rec.dropped() {
		pairs = append(pairs, "model_calls", calls)
	}
	return mapping(pairs...)
}

// dropped reports whether the call of a model was canceled: whether it is made depends on what is faster.
func (r *record) dropped() (is bool) {
	r.Top.Walk(func(n *journal.Node) {
		model := n.Step.GetKind() == teamv1.Step_KIND_MODEL || n.Step.GetKind() == teamv1.Step_KIND_JUDGE
		is = is || model && n.Outcome == teamv1.Outcome_OUTCOME_CANCELED
	})
	return is
}
