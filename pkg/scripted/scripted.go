// Package scripted implements an agent that performs a list of steps, for demos and tests. It needs
// no model and no API key.
package scripted

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Members finds the agents that steps call. A manager.Manager implements it.
type Members interface {
	// Agent returns the agent registered under id, or an *agent.Error.
	Agent(id string) (agent.Agent, error)
}

// Config configures a scripted agent.
type Config struct {
	// ID is the id of the agent. Required.
	ID string
	// Name is the name for people; "" means the ID.
	Name string
	// Description says what the agent does.
	Description string
	// InputModes are the media types that the agent accepts; nil means all.
	InputModes []string
	// OutputModes are the media types of its answers; nil means unspecified.
	OutputModes []string
	// Skills are the skills of the agent.
	Skills []*teamv1.Skill
	// Steps are performed in order on every call. The reply consists of the texts of text, echo and
	// call steps, one per line, and of part steps; without any it is the last answer of a person, or else the
	// input. Required, unless there are Calls.
	Steps []*teamv1.ScriptedStep
	// Calls are the steps of calls that differ. A call gets the first that matches its input and that no other
	// call has got, else the last one that matches.
	Calls []*teamv1.ScriptedCall
	// Members finds the agents that call steps name. Required if there is such a step.
	Members Members
}

// questionLife is how long a question can be answered.
const questionLife = 7 * 24 * time.Hour

// maxFailing is the maximum number of calls whose failures are counted.
const maxFailing = 10_000

// Agent performs its steps. It is safe for concurrent use.
//
// Failures are counted in memory by the key of the call: after a restart, a step `fail: k` fails k
// times again. In the same way, Calls are assigned anew after a restart.
type Agent struct {
	cfg  Config
	info *teamv1.AgentInfo

	mu       sync.Mutex
	failures map[string]int32 // failures so far, by key of the call and step; guarded by mu
	assigned map[string]int   // indexes of Config.Calls, by key of the call; guarded by mu
	taken    map[int]bool     // indexes that a call has got; guarded by mu
}

// caller is an Agent that calls others and therefore implements agent.Composite.
type caller struct{ *Agent }

var _ agent.Composite = caller{}

// Members returns the ids of the agents that the steps call.
func (c caller) Members() []string { return c.calls() }

// New returns a scripted agent. The error names the first fault.
func New(cfg Config) (agent.Agent, error) {
	if len(cfg.Steps)+len(cfg.Calls) == 0 {
		return nil, invalid("agent %q has no steps", cfg.ID)
	}
	for i, s := range cfg.steps() {
		if s.GetDo() == nil {
			return nil, invalid("agent %q: steps[%d] is empty", cfg.ID, i)
		}
	}
	if cfg.Name == "" {
		cfg.Name = cfg.ID
	}
	a := &Agent{cfg: cfg, info: infoOf(cfg), failures: map[string]int32{}, assigned: map[string]int{}, taken: map[int]bool{}}
	if len(a.calls()) == 0 {
		return a, nil
	}
	if cfg.Members == nil {
		return nil, invalid("agent %q calls other agents, so Members is required", cfg.ID)
	}
	return caller{a}, nil
}

// steps returns the steps of all calls.
func (c *Config) steps() []*teamv1.ScriptedStep {
	all := slices.Clone(c.Steps)
	for _, call := range c.Calls {
		all = append(all, call.GetSteps()...)
	}
	return all
}

// stepsFor returns the steps of a call, which are the same whenever the call is continued. It returns nil if
// none of Config.Calls matches.
func (a *Agent) stepsFor(req *teamv1.ProcessRequest) []*teamv1.ScriptedStep {
	if len(a.cfg.Calls) == 0 {
		return a.cfg.Steps
	}
	input := agent.Text(req.GetMessage())
	a.mu.Lock()
	defer a.mu.Unlock()
	key := keyOf(req)
	if i, known := a.assigned[key]; known {
		return a.cfg.Calls[i].GetSteps()
	}
	last := -1
	for i, c := range a.cfg.Calls {
		if !strings.Contains(input, c.GetGiven()) {
			continue
		}
		if last = i; !a.taken[i] {
			break
		}
	}
	if last < 0 {
		return nil
	}
	if len(a.assigned) >= maxFailing {
		clear(a.assigned)
	}
	a.assigned[key], a.taken[last] = last, true
	return a.cfg.Calls[last].GetSteps()
}

// keyOf returns the key of a call.
func keyOf(req *teamv1.ProcessRequest) string {
	return cmp.Or(req.GetKey(), req.GetMessage().GetMessageId())
}

func invalid(format string, args ...any) error {
	return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, format, args...)
}

func infoOf(cfg Config) *teamv1.AgentInfo {
	info := &teamv1.AgentInfo{
		Id: cfg.ID, Name: cfg.Name, Description: cfg.Description, Skills: cfg.Skills,
		Metadata: map[string]string{"type": "scripted"}, InputModes: cfg.InputModes, OutputModes: cfg.OutputModes,
	}
	for _, s := range cfg.Skills {
		info.Capabilities = append(info.Capabilities, s.GetId())
	}
	return info
}

func (a *Agent) calls() []string {
	var ids []string
	for _, s := range a.cfg.steps() {
		if id := s.GetCall(); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Info implements agent.Agent.
func (a *Agent) Info(context.Context) (*teamv1.AgentInfo, error) { return a.info, nil }

// KnownInfo implements agent.Describer.
func (a *Agent) KnownInfo() *teamv1.AgentInfo { return a.info }

// HealthCheck implements agent.Agent. The agent is always healthy.
func (a *Agent) HealthCheck(context.Context) (*teamv1.Health, error) { return agent.Healthy(), nil }

// Process implements agent.Agent.
func (a *Agent) Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(yield func(*teamv1.Event, error) bool) {
		p := &play{agent: a, run: agent.From(ctx), req: req, yield: yield}
		steps := a.stepsFor(req)
		if steps == nil {
			yield(nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, "no call of the script of agent %q is given %q; add one", a.cfg.ID, agent.Excerpt(agent.Text(req.GetMessage()), 200)))
			return
		}
		for i, step := range steps {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			if more, err := p.do(ctx, i, step); err != nil {
				yield(nil, p.withSpent(err))
				return
			} else if !more {
				return
			}
		}
		p.reply()
	}
}

// play is the state of a call.
type play struct {
	agent  *Agent
	run    *agent.Run
	req    *teamv1.ProcessRequest
	yield  func(*teamv1.Event, error) bool
	texts  []string
	parts  []*a2av1.Part // of part steps
	length int           // of all texts, in bytes
	answer string
	chunks int
	asked  int64         // number of ask steps so far
	said   int64         // number of progress steps so far
	spent  *teamv1.Spent // consumption of the agents it called
}

// do performs a step. more reports whether the next step follows: it is false while a question is
// open, and after the consumer stopped reading.
func (p *play) do(ctx context.Context, i int, step *teamv1.ScriptedStep) (more bool, err error) {
	switch s := step.GetDo().(type) {
	case *teamv1.ScriptedStep_DelayMs:
		return true, agent.Sleep(ctx, time.Duration(s.DelayMs)*time.Millisecond)
	case *teamv1.ScriptedStep_Fail:
		return true, p.fail(i, s.Fail)
	case *teamv1.ScriptedStep_Chunks:
		p.chunks = int(s.Chunks)
	case *teamv1.ScriptedStep_Ask:
		return p.ask(s.Ask)
	case *teamv1.ScriptedStep_Progress:
		return p.progress(s.Progress)
	case *teamv1.ScriptedStep_Call:
		return p.call(ctx, i, s.Call)
	case *teamv1.ScriptedStep_Echo:
		return true, p.say(agent.Text(p.req.GetMessage()))
	case *teamv1.ScriptedStep_Text:
		text, err := p.fill(s.Text)
		if err != nil {
			return false, err
		}
		return true, p.say(text)
	case *teamv1.ScriptedStep_Error:
		return false, &agent.Error{Code: agent.CodeFailedPrecondition, Reason: s.Error.GetReason(), Message: s.Error.GetMessage(), Fresh: true}
	case *teamv1.ScriptedStep_Part:
		return true, p.add(s.Part)
	}
	return true, nil
}

// add adds a part to the answer.
func (p *play) add(s *structpb.Struct) error {
	part := &a2av1.Part{}
	data, err := s.MarshalJSON()
	if err == nil {
		err = protojson.Unmarshal(data, part)
	}
	if err != nil || part.GetContent() == nil {
		return invalid("a part of agent %q is not a part of A2A; for example {data: {n: 1}}", p.agent.cfg.ID)
	}
	p.parts = append(p.parts, part)
	return nil
}

// fill replaces {{input}} and {{answer}} in a text. The error is that of a text that would become too long.
func (p *play) fill(text string) (string, error) {
	input := agent.Text(p.req.GetMessage())
	length := len(text) + strings.Count(text, "{{input}}")*len(input) + strings.Count(text, "{{answer}}")*len(p.answer)
	if length > agent.MaxText {
		return "", agent.TextTooLong(fmt.Sprintf("a text of agent %q", p.agent.cfg.ID), length)
	}
	var b strings.Builder
	b.Grow(length)
	_, err := strings.NewReplacer("{{input}}", input, "{{answer}}", p.answer).WriteString(&b, text)
	return b.String(), err
}

// say adds a text to the answer. The error is that of an answer that would become too long.
func (p *play) say(text string) error {
	if p.length += len(text); p.length > agent.MaxText {
		return agent.TextTooLong(fmt.Sprintf("the answer of agent %q", p.agent.cfg.ID), p.length)
	}
	p.texts = append(p.texts, text)
	return nil
}

// fail fails the first attempts of a call.
func (p *play) fail(i int, times int32) error {
	n, failing := p.agent.count(fmt.Sprintf("%s/%d", keyOf(p.req), i), times)
	if !failing {
		return nil
	}
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, "agent %q fails as its script says, %d of %d times", p.agent.cfg.ID, n, times)
	e.Retry = true
	return e
}

// count counts a failure of a call. failing is false once the call has failed often enough.
func (a *Agent) count(key string, times int32) (n int32, failing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failures[key] >= times {
		delete(a.failures, key)
		return 0, false
	}
	if len(a.failures) >= maxFailing {
		clear(a.failures)
	}
	a.failures[key]++
	return a.failures[key], true
}

// ask asks a person, unless the answer is recorded.
func (p *play) ask(question string) (more bool, err error) {
	p.asked++
	id := p.run.ID(p.req.GetScope(), "question", p.asked)
	open := false
	for _, ev := range p.req.GetRecorded() {
		if ev.GetScope() != p.req.GetScope() {
			continue
		}
		if ev.GetAsked().GetQuestion() == id {
			open = true
		}
		if a := ev.GetAnswered(); a.GetQuestion() == id {
			p.answer = agent.Text(a.GetMessage())
			return true, nil
		}
	}
	if open {
		return false, nil
	}
	if question, err = p.fill(question); err != nil {
		return false, err
	}
	p.emit(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{
		Question: id, Kind: teamv1.Asked_KIND_INPUT,
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: agent.TextParts(question)},
		Expires: timestamppb.New(p.run.Now().Add(questionLife)),
	}}})
	return false, nil
}

// progress sets the status text, unless it is already recorded.
func (p *play) progress(text string) (more bool, err error) {
	p.said++
	id := p.run.ID(p.req.GetScope(), "progress", p.said)
	for _, ev := range p.req.GetRecorded() {
		if ev.GetScope() == p.req.GetScope() && ev.GetProgress().GetMessage().GetMessageId() == id {
			return true, nil
		}
	}
	if text, err = p.fill(text); err != nil {
		return false, err
	}
	return p.emit(&teamv1.Event{Kind: &teamv1.Event_Progress{Progress: &teamv1.Progress{
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: agent.TextParts(text)},
	}}}), nil
}

// emit yields an event in the scope of the call.
func (p *play) emit(ev *teamv1.Event) bool {
	ev.Scope, ev.Agent = p.req.GetScope(), agent.Path(p.req)
	return p.yield(ev, nil)
}

// noteCalled is the code of the note that records the reply of another agent.
const noteCalled = "CALLED"

// call sends the input to another agent, which runs without a journal of its own. Its reply is
// recorded, so that a call that was answered is not repeated.
func (p *play) call(ctx context.Context, i int, id string) (more bool, err error) {
	if text, ok := p.replied(i); ok {
		return true, p.say(text)
	}
	if int(p.req.GetDepth()) >= agent.MaxDepth {
		return false, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonMaxDepth,
			"agent %q cannot call %q: it is nested %d levels deep", p.agent.cfg.ID, id, agent.MaxDepth)
	}
	peer, err := p.agent.cfg.Members.Agent(id)
	if err != nil {
		return false, err
	}
	if err := agent.Commit(ctx); err != nil {
		return false, err
	}
	key := p.run.ID(p.req.GetScope(), "call", int64(i))
	m, spent, err := agent.ReplyFor(agent.With(ctx, &agent.Run{Root: key, Seed: p.run.Seed, Clock: p.run.Clock}), peer, &teamv1.ProcessRequest{
		AgentId: id, Key: key, ContextId: p.req.GetContextId(), Deadline: p.req.GetDeadline(),
		Message: &a2av1.Message{MessageId: key, Role: a2av1.Role_ROLE_USER, Parts: p.req.GetMessage().GetParts()},
		Path:    append(slices.Clip(p.req.GetPath()), p.req.GetAgentId()), Depth: p.req.GetDepth() + 1,
	})
	if err != nil {
		return false, err
	}
	p.spent = agent.AddSpent(p.spent, spent)
	if err := p.say(agent.Text(m)); err != nil {
		return false, err
	}
	return p.emit(&teamv1.Event{Kind: &teamv1.Event_Noted{Noted: &teamv1.Noted{
		Code: noteCalled, Text: fmt.Sprintf("%s replied", id), Details: detailsOf(i, agent.Text(m), spent),
	}}}), nil
}

// withSpent returns err with the consumption of the calls before it added.
func (p *play) withSpent(err error) error {
	if p.spent == nil {
		return err
	}
	e := agent.AsError(err).Because(err)
	e.Spent = agent.AddSpent(p.spent, e.Spent)
	return e
}

// detailsOf encodes the reply and the consumption of a call.
func detailsOf(step int, text string, spent *teamv1.Spent) *structpb.Struct {
	number := func(n int64) *structpb.Value { return structpb.NewNumberValue(float64(n)) }
	s := &structpb.Struct{Fields: map[string]*structpb.Value{"step": number(int64(step)), "text": structpb.NewStringValue(text)}}
	if spent != nil {
		s.Fields["spent"] = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			number(spent.GetInputTokens()), number(spent.GetOutputTokens()), number(spent.GetCostMicros()), number(spent.GetModelCalls()), number(spent.GetToolCalls()),
		}})
	}
	return s
}

// spentOf decodes the consumption that detailsOf encoded, or returns nil.
func spentOf(s *structpb.Struct) *teamv1.Spent {
	v := s.GetFields()["spent"].GetListValue().GetValues()
	if len(v) < 5 {
		return nil
	}
	n := func(i int) int64 { return int64(v[i].GetNumberValue()) }
	return &teamv1.Spent{InputTokens: n(0), OutputTokens: n(1), CostMicros: n(2), ModelCalls: n(3), ToolCalls: n(4)}
}

// replied returns the recorded reply of a call.
func (p *play) replied(i int) (string, bool) {
	for _, ev := range p.req.GetRecorded() {
		n := ev.GetNoted()
		if n.GetCode() == noteCalled && ev.GetScope() == p.req.GetScope() && int(n.GetDetails().GetFields()["step"].GetNumberValue()) == i {
			p.spent = agent.AddSpent(p.spent, spentOf(n.GetDetails()))
			return n.GetDetails().GetFields()["text"].GetStringValue(), true
		}
	}
	return "", false
}

// reply ends the call with all texts, after streaming them if there was a chunks step.
func (p *play) reply() {
	text := strings.Join(p.texts, "\n")
	switch {
	case len(p.texts)+len(p.parts) > 0:
	case p.asked > 0:
		text = p.answer
	default:
		text = agent.Text(p.req.GetMessage())
	}
	artifact := p.run.ID(p.req.GetScope(), "artifact", 1)
	for i, piece := range pieces(text, p.chunks) {
		delta := &teamv1.Delta{ArtifactId: artifact, Text: piece, Restart: i == 0}
		if !p.emit(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: delta}}) {
			return
		}
	}
	m := agent.NewMessage(text)
	if text == "" && len(p.parts) > 0 {
		m.Parts = nil
	}
	m.Parts = append(m.Parts, p.parts...)
	m.MessageId = p.run.ID(p.req.GetScope(), "reply", 1)
	p.yield(agent.ReplyEvent(p.req, &teamv1.Reply{Result: &teamv1.Reply_Message{Message: m}, Spent: p.spent}), nil)
}

// pieces divides a text into n pieces of about the same length, or into single characters if it has
// fewer.
func pieces(text string, n int) []string {
	r := []rune(text)
	n = min(n, len(r))
	var out []string
	for i := range n {
		out = append(out, string(r[i*len(r)/n:(i+1)*len(r)/n]))
	}
	return out
}
