package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// Recorded is a task that has ended, with its record.
type Recorded struct {
	// Task is the id of the task, and Team the agent or team that it was sent to.
	Task, Team string
	// Message began the task.
	Message *a2av1.Message
	// Events are the events after the first one, in order, as callers see them.
	Events []*teamv1.Event
}

// maxRecord is the maximum size of a test file that is recorded, in bytes: that of a script.
const maxRecord = 1 << 20

// Record returns a test file that plays the tasks of a conversation again, without a call of a model, a tool or another
// agent: what these answered is in the file. config is the path of the configuration as the file names it; def is that
// configuration, loaded with stand-ins. The test must hold no secret. The error says what cannot be recorded.
func Record(def *config.Config, configPath string, secrets []secret.Secret, tasks ...Recorded) ([]byte, error) {
	if len(tasks) == 0 {
		return nil, errors.New("there is no task to record")
	}
	r, err := newRecorder(def, tasks[len(tasks)-1].Team)
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		if err := r.task(&tasks[i]); err != nil {
			return nil, fmt.Errorf("task %s: %w", tasks[i].Task, err)
		}
	}
	root := r.file(configPath, tasks)
	if leaks(root, secrets) {
		return nil, errors.New("the texts of the task hold a secret, of the configuration or the key of this command, which a test must not; record a task without it")
	}
	data, err := document(r.comment(tasks), root)
	if err == nil && len(data) > maxRecord {
		err = fmt.Errorf("the test would have %d bytes; at most %d are allowed", len(data), maxRecord)
	}
	return data, err
}

// recorder collects what a test file of recorded tasks needs.
type recorder struct {
	def    *config.Config // what the team is built from
	team   string
	remote []string // agents on other servers
	notes  []string // comments at the head of the file

	exchanged bool // calls that were made at once with the same input may get the answers of each other

	models    map[string][]*yaml.Node          // answers of models, by agent
	agents    map[string][]*yaml.Node          // calls of remote agents
	tools     map[string][]*yaml.Node          // calls, by MCP server
	functions map[string]map[string]*yaml.Node // by MCP server and name
	turns     []*yaml.Node
}

func newRecorder(def *config.Config, id string) (*recorder, error) {
	if def.Server.GetTeams()[id] == nil && def.Server.GetAgents()[id] == nil {
		return nil, fmt.Errorf("%s has no team or agent %q, which the task was sent to; name its file with --file", def.File, id)
	}
	only, err := def.Only(id)
	if err != nil {
		return nil, err
	}
	for _, t := range sorted(only.Server.GetTeams()) {
		if only.Server.GetTeams()[t].GetBoard() {
			return nil, fmt.Errorf("team %q has a board, whose ids are others in each run; write a scenario for it", t)
		}
	}
	_, remote, _ := def.Absent(id)
	return &recorder{
		def: only, team: id, remote: remote, models: map[string][]*yaml.Node{}, agents: map[string][]*yaml.Node{},
		tools: map[string][]*yaml.Node{}, functions: map[string]map[string]*yaml.Node{},
	}, nil
}

// note adds a comment, once.
func (r *recorder) note(text string) {
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// task adds a task.
func (r *recorder) task(t *Recorded) error {
	rec := newRecord()
	rec.add(t.Task, &teamv1.Event{Seq: 1, Agent: t.Team, Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{TaskId: t.Task, Agent: t.Team, Message: t.Message}}})
	for _, ev := range t.Events {
		rec.add(t.Task, ev)
	}
	rec.settle()
	if err := refusal(rec); err != nil {
		return err
	}
	before := r.called()
	if err := r.answers(rec); err != nil {
		return err
	}
	turn, err := r.turn(t, rec, r.called()-before)
	r.turns = append(r.turns, turn)
	return err
}

// called returns the number of answers of models.
func (r *recorder) called() (n int64) {
	for _, list := range r.models {
		n += int64(len(list))
	}
	return n
}

// refusal returns why a task cannot be played again; nil if it can.
func refusal(rec *record) error {
	switch {
	case rec.Top.End == nil:
		return errors.New("it has not ended; wait for its end, or answer its questions")
	case rec.Top.Outcome == teamv1.Outcome_OUTCOME_CANCELED:
		return errors.New("it was canceled, at a moment that a test cannot repeat; record a task that has ended by itself")
	}
	for _, ev := range rec.events {
		switch {
		case ev.GetReceived() != nil && !ev.GetReceived().GetTooLate():
			return errors.New("it received a message while it was at work, at a moment that a test cannot repeat")
		case ev.GetAsked().GetKind() == teamv1.Asked_KIND_OUTCOME:
			return errors.New("it was cut off by a crash, and people were asked what became of a call; a test cannot repeat that")
		}
	}
	var why error
	rec.Top.Walk(func(n *journal.Node) {
		switch {
		case n.Spawned != nil:
			why = fmt.Errorf("it began task %s, which works on its own; record a task that waits for its members", n.Spawned.GetTaskId())
		case n.Outcome == teamv1.Outcome_OUTCOME_TIMED_OUT:
			why = fmt.Errorf("the time of %s ran out, which a test cannot repeat; write a scenario with delay_ms", cmp.Or(n.Path, "the run"))
		case n.End.GetTransfer() != nil && n.Bound != nil:
			why = fmt.Errorf("%s, on another server, handed over to another agent, which a script cannot", n.Path)
		}
		for _, note := range n.Notes {
			if note.GetNoted().GetDetails().GetFields()["missing"] != nil {
				why = errors.New(note.GetNoted().GetText() + "; record a task for which all tools were there")
			}
		}
	})
	return why
}

// call is a call of a model, a tool or a remote agent.
type call struct {
	node  *journal.Node
	seq   int64  // of its beginning
	given string // what the agent was given that makes it
}

// answers adds what models, tools and remote agents answered.
func (r *recorder) answers(rec *record) error {
	models, remote := map[string][]call{}, map[string][]call{}
	var tools []*journal.Node
	rec.Top.Walk(func(n *journal.Node) {
		if len(n.Attempts) == 0 {
			return
		}
		c := call{node: n, seq: n.Attempts[0].Started.GetSeq()}
		switch n.Step.GetKind() {
		case teamv1.Step_KIND_MODEL:
			c.given = agent.Text(n.Parent.Input())
			id := r.agentID(n.Parent.Path)
			models[id] = append(models[id], c)
		case teamv1.Step_KIND_JUDGE:
			if n.Attempts[0].Started.GetStarted().GetModel() != "" {
				c.given = agent.Text(n.Given)
				id := r.agentID(n.Parent.Path)
				models[id] = append(models[id], c)
			}
		case teamv1.Step_KIND_TOOL:
			tools = append(tools, n)
		default:
		}
		if id := r.agentID(n.Path); slices.Contains(r.remote, id) && (n.Delegated() || n.Step.GetKind() == teamv1.Step_KIND_JUDGE || n.Step.GetKind() == teamv1.Step_KIND_ROUND) {
			c.given = agent.Text(n.Input())
			remote[id] = append(remote[id], c)
		}
	})
	for _, id := range sorted(models) {
		if err := r.alike(id, models[id]); err != nil {
			return err
		}
		for _, c := range order(models[id]) {
			list, err := r.attempts(c, condition(c, models[id]))
			if err != nil {
				return err
			}
			r.models[id] = append(r.models[id], list...)
		}
	}
	for _, id := range sorted(remote) {
		if err := r.alike(id, remote[id]); err != nil {
			return err
		}
		for _, c := range order(remote[id]) {
			steps, err := replySteps(rec, c.node)
			if err != nil {
				return err
			}
			r.agents[id] = append(r.agents[id], mapping("given", optional(snippet(c, remote[id])), "steps", steps))
		}
	}
	rec.Top.Walk(r.describe)
	return r.toolCalls(tools)
}

// alike looks for calls of an agent that were made at the same time with the same input and got different answers: in a
// test each may get that of another. With texts alone this changes only what is said; otherwise it is an error.
func (r *recorder) alike(id string, calls []call) error {
	for i, c := range calls {
		for _, o := range calls[:i] {
			if o.given != c.given || !concurrent(c.node, o.node) || proto.Equal(result(c.node), result(o.node)) {
				continue
			}
			if !onlyText(c.node) || !onlyText(o.node) {
				return fmt.Errorf("%s worked several times at once with the same input, and did different things, which a test cannot tell apart; write a scenario", id)
			}
			r.exchange()
		}
	}
	return nil
}

// exchange notes that the answer is not the same each time.
func (r *recorder) exchange() {
	r.exchanged = true
	r.note("Calls were made at once with the same input and got different answers, which are exchanged at random: reply is not checked.")
}

// result returns how a call ended, without what it has cost.
func result(n *journal.Node) *teamv1.Ended {
	return &teamv1.Ended{
		Outcome: n.End.GetOutcome(), Error: n.End.GetError(),
		Result: &teamv1.Ended_Turn{Turn: &teamv1.Turn{Text: n.End.GetTurn().GetText() + agent.Text(n.Reply), ToolCalls: n.End.GetTurn().GetToolCalls()}},
	}
}

// onlyText reports whether a call ended with a text and did nothing else.
func onlyText(n *journal.Node) bool {
	return len(n.Attempts) == 1 && len(n.Asked) == 0 && n.End != nil && n.End.GetError() == nil && len(n.End.GetTurn().GetToolCalls()) == 0
}

// order returns calls in the order in which they began; those with a text of their own are before those without one that
// are made at the same time, whose answers any call may get.
func order(calls []call) []call {
	sorted := slices.Clone(calls)
	slices.SortStableFunc(sorted, func(a, b call) int { return cmp.Compare(a.seq, b.seq) })
	var list []call
	for _, c := range sorted {
		at := len(list)
		if snippet(c, calls) != "" {
			if i := slices.IndexFunc(list, func(o call) bool { return concurrent(c.node, o.node) && snippet(o, calls) == "" }); i >= 0 {
				at = i
			}
		}
		list = slices.Insert(list, at, c)
	}
	return list
}

// optional returns a text, or nil for an empty one.
func optional(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// agentID returns the id of the agent at a path of member ids.
func (r *recorder) agentID(path string) string {
	names := strings.Split(path, "/")
	id := names[0]
	for _, name := range names[1:] {
		of := r.def.Server.GetTeams()[id]
		id = name
		for _, m := range modes.Members(of) {
			if cmp.Or(m.ID, m.Agent) == name {
				id = cmp.Or(m.Agent, name)
			}
		}
	}
	return id
}

// concurrent reports whether two nodes may work at the same time: the branches that lead to them, below the node that
// both are part of, did.
func concurrent(a, b *journal.Node) bool {
	above := map[*journal.Node]*journal.Node{} // by ancestor of a, the branch that leads to a
	for n := a; n.Parent != nil; n = n.Parent {
		above[n.Parent] = n
	}
	for n := b; n.Parent != nil; n = n.Parent {
		if other := above[n.Parent]; other != nil {
			return other != n && before(other.Seq, n) && before(n.Seq, other)
		}
	}
	return false
}

// before reports whether a node had not ended at a sequence number.
func before(seq int64, n *journal.Node) bool { return n.EndSeq == 0 || seq < n.EndSeq }

// snippet returns a text that what c was given has, and what was given to calls that may be made at the same time has
// not; "" if there is no such call, or no such text.
func snippet(c call, all []call) string {
	var others []string
	for _, o := range all {
		if o.given != c.given && concurrent(c.node, o.node) {
			others = append(others, o.given)
		}
	}
	if len(others) == 0 {
		return ""
	}
	const most = 1000
	for _, line := range append(strings.Split(c.given, "\n"), c.given) {
		line = strings.TrimSpace(line)
		if line != "" && len(line) <= most && !slices.ContainsFunc(others, func(o string) bool { return strings.Contains(o, line) }) {
			return line
		}
	}
	return ""
}

// condition returns the condition of the answers to a call, or nil.
func condition(c call, all []call) any {
	text := snippet(c, all)
	if text == "" {
		return nil
	}
	return "inputs.exists(i, i.contains(" + strconv.Quote(text) + "))"
}

// waits is how long an answer takes that did not come, because the call was canceled: longer than a scenario.
const waits = int64(600_000)

// attempts returns the answers of a model to the attempts of a call.
func (r *recorder) attempts(c call, when any) (list []*yaml.Node, err error) {
	spent := c.node.End.GetSpent()
	for i, a := range c.node.Attempts {
		final := i == len(c.node.Attempts)-1
		switch {
		case !final && a.Error == nil: // lost in a crash
			r.note("A call was lost in a crash and made again; the test makes it once.")
		case !final:
			spent = agent.LessSpent(spent, a.Spent)
			list = append(list, failure(a.Error, "", when))
		case c.node.End.GetTurn() != nil && c.node.End.GetError() == nil:
			entry, err := answer(c.node.End.GetTurn(), spent, when)
			if err != nil {
				return nil, err
			}
			list = append(list, entry)
		case c.node.End.GetError() != nil:
			list = append(list, failure(c.node.End.GetError(), c.node.End.GetTurn().GetText(), when))
		default: // canceled
			list = append(list, flow("when", when, "delay_ms", waits, "text", "This was not said: the call was canceled."))
		}
	}
	return list, nil
}

// answer returns the entry of a turn.
func answer(turn *teamv1.Turn, spent *teamv1.Spent, when any) (*yaml.Node, error) {
	var calls, files []*yaml.Node
	for _, c := range turn.GetToolCalls() {
		arguments := object(c.GetArguments())
		if arguments == nil {
			arguments = node(c.GetArguments())
		}
		calls = append(calls, flow("name", c.GetName(), "arguments", arguments))
	}
	for _, f := range turn.GetFiles() {
		n, err := part(f)
		if err != nil {
			return nil, err
		}
		files = append(files, n)
	}
	var text, finish any
	if turn.GetText() != "" || len(calls)+len(files) == 0 {
		text = turn.GetText()
	}
	switch turn.GetEnd() {
	case teamv1.TurnEnd_TURN_END_TRUNCATED:
		finish = "length"
	case teamv1.TurnEnd_TURN_END_FILTERED:
		finish = "content_filter"
	default:
	}
	return mapping("when", when, "text", text, "tool_calls", calls, "files", files, "finish_reason", finish, "usage", usage(spent)), nil
}

// usage returns the tokens of a turn.
func usage(s *teamv1.Spent) *yaml.Node {
	count := func(n int64) any {
		if n == 0 {
			return nil
		}
		return n
	}
	return flow("input", s.GetInputTokens(), "output", s.GetOutputTokens(), "cached_input", count(s.GetCachedInputTokens()),
		"cache_write", count(s.GetCacheWriteTokens()), "reasoning", count(s.GetReasoningTokens()))
}

// failure returns the entry of a call that failed; text is what it said before.
func failure(e *teamv1.Error, text string, when any) *yaml.Node {
	switch e.GetReason() {
	case agent.ReasonAnswerTruncated:
		return mapping("when", when, "text", text, "finish_reason", "length")
	case agent.ReasonAnswerFiltered:
		return mapping("when", when, "text", text, "finish_reason", "content_filter")
	}
	return flow("when", when, "error", flow("status", status(e), "reason", e.GetReason(), "message", e.GetMessage()))
}

// status returns an HTTP status for an error of a model, after which calls are made again as after the error.
func status(e *teamv1.Error) int64 {
	code := agent.Code(e.GetCode())
	switch {
	case code == agent.CodeResourceExhausted && e.GetRetry():
		return 429
	case e.GetRetry():
		return 503
	case code == agent.CodeUnauthenticated:
		return 401
	case code == agent.CodePermissionDenied:
		return 403
	case code == agent.CodeNotFound:
		return 404
	}
	return 400
}

// replySteps returns what a remote agent did in a call, as the steps of a scripted agent.
func replySteps(rec *record, n *journal.Node) (steps []*yaml.Node, err error) {
	for _, q := range n.Asked {
		steps = append(steps, flow("ask", agent.Text(q.Event.GetAsked().GetMessage())))
	}
	if e := n.End.GetError(); e != nil {
		return append(steps, flow("error", flow("reason", e.GetReason(), "message", e.GetMessage()))), nil
	}
	before := len(steps)
	for _, p := range rec.said(n).GetParts() {
		if text := p.GetText(); text != "" && !strings.Contains(text, "{{") && p.GetMetadata() == nil && p.GetMediaType() == "" && len(steps) == before {
			steps = append(steps, mapping("text", text))
			continue
		}
		of, err := part(p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, mapping("part", of))
	}
	if len(steps) == before {
		steps = append(steps, mapping("part", flow("text", "")))
	}
	return steps, nil
}

// toolCalls adds the calls of tools of MCP servers, and what models were told about these.
func (r *recorder) toolCalls(calls []*journal.Node) error {
	slices.SortStableFunc(calls, func(a, b *journal.Node) int {
		return cmp.Compare(a.Attempts[0].Started.GetSeq(), b.Attempts[0].Started.GetSeq())
	})
	for i, n := range calls {
		if slices.ContainsFunc(calls[:i], func(o *journal.Node) bool { return r.exchanges(n, o) }) {
			r.exchange()
		}
		specs := offered(n.Parent)
		if !slices.ContainsFunc(specs, func(s *structpb.Struct) bool { return name(s) == n.Step.GetName() }) {
			continue // a tool of the server itself
		}
		server, function := r.owner(r.agentID(n.Parent.Path), n.Step.GetName())
		if server == "" {
			return fmt.Errorf("%s called %s, and its configuration has no MCP server with that tool any more", n.Parent.Path, n.Step.GetName())
		}
		result := n.End.GetTool()
		if n.End == nil {
			continue // canceled
		}
		var files []*yaml.Node
		for _, f := range result.GetFiles() {
			of, err := part(f)
			if err != nil {
				return err
			}
			files = append(files, of)
		}
		var failed any
		if e := n.End.GetError(); e != nil {
			result, failed = &teamv1.ToolResult{Text: e.GetMessage()}, true
		} else if result.GetIsError() {
			failed = true
		}
		given, edited := arguments(n)
		text := result.GetText()
		if edited {
			_, text, _ = strings.Cut(text, "\n") // the first line tells the model what people have changed
		}
		r.tools[server] = append(r.tools[server], mapping("name", function, "arguments", object(given), "text", text, "error", failed, "files", files))
	}
	return nil
}

// exchanges reports whether two calls of the same tool were made at once with the same arguments and got different results.
func (r *recorder) exchanges(a, b *journal.Node) bool {
	one, _ := arguments(a)
	other, _ := arguments(b)
	return a.Step.GetName() == b.Step.GetName() && one == other && concurrent(a, b) && !proto.Equal(a.End.GetTool(), b.End.GetTool())
}

// describe adds what models were told about the tools of an agent.
func (r *recorder) describe(n *journal.Node) {
	for _, spec := range offered(n) {
		server, function := r.owner(r.agentID(n.Path), name(spec))
		if server == "" {
			continue
		}
		if r.functions[server] == nil {
			r.functions[server] = map[string]*yaml.Node{}
		}
		r.functions[server][function] = flow("description", spec.GetFields()["description"].GetStringValue(), "parameters", object(spec.GetFields()["parameters"].GetStringValue()))
	}
}

// offered returns what was recorded of the tools that an agent has.
func offered(n *journal.Node) (specs []*structpb.Struct) {
	for _, note := range n.Notes {
		for _, v := range note.GetNoted().GetDetails().GetFields()["tools"].GetListValue().GetValues() {
			specs = append(specs, v.GetStructValue())
		}
	}
	return specs
}

// name returns the name of a tool.
func name(spec *structpb.Struct) string { return spec.GetFields()["name"].GetStringValue() }

// arguments returns the arguments of the call of a tool: those of the model, or those to which people have edited them.
func arguments(n *journal.Node) (text string, edited bool) {
	for _, q := range slices.Backward(n.Asked) {
		if changed := q.Answer.GetAnswered().GetApproval().GetArguments(); changed != "" {
			return changed, true
		}
	}
	for _, before := range n.Parent.Steps {
		if before == n {
			break
		}
		for _, c := range before.End.GetTurn().GetToolCalls() {
			if c.GetId() == n.Step.GetCallId() {
				text = cmp.Or(c.GetArguments(), "{}")
			}
		}
	}
	return text, false
}

// owner returns the MCP server that has a tool of an agent, and the server's name of the tool; "" if there is no such server.
func (r *recorder) owner(id, tool string) (server, function string) {
	best := -1
	for _, name := range r.serversOf(id) {
		m := r.def.Server.GetTools()[name].GetMcp()
		own, ok := strings.CutPrefix(tool, m.GetPrefix())
		if !ok || len(m.GetAllow()) > 0 && !slices.Contains(m.GetAllow(), own) && !slices.Contains(m.GetAllow(), "*") {
			continue
		}
		score := len(m.GetPrefix()) + len(m.GetAllow())
		if score > best {
			best, server, function = score, name, own
		}
	}
	return server, function
}

// serversOf returns the MCP servers of an agent, or of the leader of a team.
func (r *recorder) serversOf(id string) (names []string) {
	leader := modes.Leader(r.def.Server.GetTeams()[id])
	agents := r.def.Server.GetAgents()
	for _, name := range slices.Concat(agents[id].GetTools(), leader.GetTools(), agents[leader.GetAgent()].GetTools()) {
		if r.def.Server.GetTools()[name].GetMcp() != nil {
			names = append(names, name)
		}
	}
	return names
}
