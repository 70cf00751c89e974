package team

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// transferTool is the tool by which a member of a swarm hands over (R-004-22).
const transferTool = "transfer_to_agent"

// ownerKey is where a conversation keeps the member that answered last (R-004-26).
const ownerKey = agent.ConversationPrefix + "active_owner"

// SwarmConfig is what a Swarm is made of.
type SwarmConfig struct {
	// Entry is the member that begins. Required.
	Entry string
	// Members that hand over to each other; what State.Team holds at run time.
	Members []Member
	// CrossRequest has the next message of a conversation begin with the member
	// that answered the last one (R-004-26). Not set: each begins with Entry.
	CrossRequest bool
	// Limits: max_handoffs, node_timeout, loop_window and loop_min_unique count
	// here; 0 switches each of them off (R-004-33).
	Limits *teamv1.Limits
}

// Swarm is the scheduler of teams whose members hand control to each other. A
// run begins with the entry member and ends when a member answers without
// handing over; that answer is the run's (R-004-21 to R-004-24). Safe for
// concurrent use.
type Swarm struct {
	entry        string
	members      []Member
	crossRequest bool
	guards       guards
}

// guards bound the hand-offs of a run; 0 is off (C-10).
type guards struct {
	maxHandoffs, window, minUnique int
	nodeTimeout                    time.Duration
}

var (
	_ Scheduler = (*Swarm)(nil)
	_ looper    = (*Swarm)(nil)
)

// NewSwarm returns a swarm. The error joins a *Fault for everything that is wrong
// with the configuration.
func NewSwarm(c SwarmConfig) (*Swarm, error) {
	w := &Swarm{entry: c.Entry, members: c.Members, crossRequest: c.CrossRequest, guards: guardsOf(c.Limits)}
	ids := make([]string, len(c.Members))
	for i := range c.Members {
		ids[i] = memberID(&c.Members[i])
	}
	var fs faults
	known := slices.Sorted(slices.Values(ids))
	if c.Entry == "" {
		fs.addf("entry_member", "swarm", "has no entry member; name the member that begins")
	} else if i := slices.Index(ids, c.Entry); i < 0 {
		fs.add("entry_member", "swarm", unknownName(0, c.Entry, known, "no such member %q", c.Entry))
	} else if c.Members[i].Disabled {
		fs.addf("entry_member", "swarm", "member %q is disabled and cannot begin; enable it or name another one", c.Entry)
	}
	for i, m := range c.Members {
		for k, to := range m.Handoff {
			w.check(&fs, fmt.Sprintf("members[%d].handoff[%d]", i, k), ids[i], to, known)
		}
		if m.HandoffAfter != "" {
			w.check(&fs, fmt.Sprintf("members[%d].handoff_after", i), ids[i], m.HandoffAfter, known)
		}
	}
	return w, fs.err()
}

// check adds the fault of a member that hands over to nobody, or to itself.
func (w *Swarm) check(fs *faults, path, from, to string, known []string) {
	switch {
	case to == from:
		fs.addf(path, "swarm", "member %q would hand over to itself; name another one", from)
	case !slices.Contains(known, to):
		fs.add(path, "swarm", unknownName(0, to, known, "no such member %q", to))
	}
}

func guardsOf(l *teamv1.Limits) guards {
	g := guards{maxHandoffs: 20, window: 8, minUnique: 3, nodeTimeout: l.GetNodeTimeout().AsDuration()}
	if l == nil {
		return g
	}
	for _, v := range []struct {
		to  *int
		set *int32
	}{{&g.maxHandoffs, l.MaxHandoffs}, {&g.window, l.LoopWindow}, {&g.minUnique, l.LoopMinUnique}} { //nolint:protogetter // an explicit 0 is off
		if v.set != nil {
			*v.to = int(*v.set)
		}
	}
	return g
}

// loops implements looper: the window of hand-offs does (C-23).
func (*Swarm) loops() {}

// Next implements Scheduler.
func (w *Swarm) Next(s *State) (Decision, error) {
	if err := staffed(s); err != nil {
		return Decision{}, err
	}
	if len(s.Steps) == 0 {
		return w.begin(s), nil
	}
	last := s.Steps[len(s.Steps)-1]
	if unmanned(last) {
		return w.missed(s, last.Err)
	}
	if err := last.failure(); err != nil {
		return Decision{}, err
	}
	if last.Transfer != nil {
		return w.handOver(s, last, last.Transfer)
	}
	if m := w.member(last.Step.GetMember()); m != nil && m.HandoffAfter != "" {
		return w.after(s, last, m)
	}
	if said := unheard(s); said != nil {
		return Decision{
			Steps: []*teamv1.Step{{
				Kind: teamv1.Step_KIND_DELEGATE, Member: last.Step.GetMember(), Name: followUp,
				Input: &teamv1.Input{Message: said}, Timeout: last.Step.GetTimeout(),
			}},
			Reason: "the user has said more",
		}, nil
	}
	return Decision{
		Reply: last.Message, Reason: last.Step.GetMember() + " answered",
		Updates: map[string]*structpb.Value{ownerKey: structpb.NewStringValue(last.Step.GetMember())},
	}, nil
}

// followUp is the label of a step that hands the user's further messages to the
// member that has just answered.
const followUp = "follow-up"

// unheard is what the user has said while the swarm worked and no member was
// handed yet, as one message; nil is nothing.
func unheard(s *State) *a2av1.Message {
	heard := 0
	for _, st := range s.Steps {
		if st.Step.GetName() == followUp {
			heard = st.heard
		}
	}
	if heard == len(s.Received) {
		return nil
	}
	m := agent.UserMessage("", "")
	m.Parts = nil
	for _, said := range s.Received[heard:] {
		m.Parts = append(m.Parts, said.GetParts()...)
	}
	return m
}

// begin gives the message to the entry member, or to the one that the
// conversation is with.
func (w *Swarm) begin(s *State) Decision {
	who, reason := w.entry, "the entry member begins"
	if owner := s.Context[ownerKey].GetStringValue(); w.crossRequest && owner != "" {
		if m := w.member(owner); m != nil && !m.Disabled {
			who, reason = owner, owner+" answered last in this conversation"
		}
	}
	return Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: who}}, Reason: reason}
}

func (w *Swarm) member(id string) *Member {
	for i := range w.members {
		if memberID(&w.members[i]) == id {
			return &w.members[i]
		}
	}
	return nil
}

// handOver gives control to the target, or tells the member why not. One that was
// told once has to answer (R-004-27).
func (w *Swarm) handOver(s *State, from *StepState, t *teamv1.Transfer) (Decision, error) {
	if reason, again := strings.CutPrefix(from.Step.GetName(), rejectedTransfer); again {
		return Decision{}, agent.Errorf(agent.CodeInternal, reason,
			"team %q: member %q handed over to %q after a hand-over of it was refused; it had to answer: say so in its instructions", s.Team.ID, from.Step.GetMember(), shorten(t.GetTo()))
	}
	if w.member(t.GetTo()) == nil && slices.ContainsFunc(s.Transfers, func(o *teamv1.TransferTarget) bool { return o.GetId() == t.GetTo() }) {
		return Decision{Transfer: t, Reason: from.Step.GetMember() + " hands over to " + t.GetTo()}, nil
	}
	if err := w.guard(s, from.Step.GetMember(), t.GetTo()); err != nil {
		return w.reject(from, err), nil
	}
	return w.transfer(s, from, t), nil
}

// after gives control to the member that takes over from one that cannot hand
// over itself. Where that is refused there is nobody to answer instead.
func (w *Swarm) after(s *State, from *StepState, m *Member) (Decision, error) {
	if err := w.guard(s, from.Step.GetMember(), m.HandoffAfter); err != nil {
		return Decision{}, agent.Errorf(err.Code, err.Reason, "team %q: member %q could not hand over to %q after its reply: %s",
			s.Team.ID, from.Step.GetMember(), m.HandoffAfter, err.Message)
	}
	return w.transfer(s, from, &teamv1.Transfer{To: m.HandoffAfter, Message: agent.Text(from.Message)}), nil
}

// transfer is the decision that a member takes over: with what was said to it,
// else with the user's message.
func (w *Swarm) transfer(s *State, from *StepState, t *teamv1.Transfer) Decision {
	step := &teamv1.Step{Kind: teamv1.Step_KIND_TRANSFER, Member: t.GetTo(), Input: &teamv1.Input{Message: s.Input}}
	if t.GetMessage() != "" {
		step.Input = &teamv1.Input{Message: agent.UserMessage("", t.GetMessage())}
	}
	if w.guards.nodeTimeout > 0 {
		step.Timeout = durationpb.New(w.guards.nodeTimeout)
	}
	return Decision{Steps: []*teamv1.Step{step}, Reason: from.Step.GetMember() + " hands over to " + t.GetTo()}
}

// unmanned reports whether a hand-over went to a member that takes no work now, or
// was one more than a limit above the swarm allows.
func unmanned(st *StepState) bool {
	if st.Step.GetKind() != teamv1.Step_KIND_TRANSFER || st.Outcome != teamv1.Outcome_OUTCOME_REJECTED || st.Err == nil {
		return false
	}
	return slices.Contains([]string{agent.ReasonDisabled, agent.ReasonMemberNotFound, agent.ReasonBreakerOpen, agent.ReasonMaxHandoffs}, st.Err.Reason)
}

// missed tells the member that handed over that nobody took it, as if it had been
// refused before; where it cannot answer itself the run fails.
func (w *Swarm) missed(s *State, why *agent.Error) (Decision, error) {
	for _, st := range slices.Backward(s.Steps[:len(s.Steps)-1]) {
		if st.Transfer != nil {
			return w.reject(st, why), nil
		}
		if !unmanned(st) {
			break
		}
	}
	return Decision{}, why
}

// guard returns why a hand-off is refused.
func (w *Swarm) guard(s *State, from, to string) *agent.Error {
	refused := func(reason, format string, args ...any) *agent.Error {
		return agent.Errorf(agent.CodeInternal, reason, format, args...).With("member", from)
	}
	targets, before := handoffs(s.Steps), len(handoffs(s.earlier))
	recent := append(slices.Clone(targets), to)
	switch m := w.member(to); {
	case m != nil && m.Disabled:
		return refused(agent.ReasonDisabled, "member %q is disabled; hand over to another one of %s", to, listed(w.reaches(from)))
	case m == nil || !slices.Contains(w.reaches(from), to):
		return refused(agent.ReasonMemberNotFound, "%q cannot hand over to %q; it can to %s", from, shorten(to), listed(w.reaches(from)))
	case w.guards.maxHandoffs > 0 && before+len(targets) >= w.guards.maxHandoffs:
		return refused(agent.ReasonMaxHandoffs, "the team has handed over %d times in this run, the most it may (limits.max_handoffs); answer, or raise it", before+len(targets))
	case w.repeats(recent):
		return refused(agent.ReasonRepetitive, "the last %d hand-offs went to fewer than %d different members (limits.loop_window, limits.loop_min_unique); answer, or change them",
			w.guards.window, w.guards.minUnique)
	}
	return nil
}

// repeats reports whether the last hand-offs went round among too few members
// (R-004-29 to R-004-32).
func (w *Swarm) repeats(targets []string) bool {
	n, m := w.guards.window, w.guards.minUnique
	if n == 0 || m == 0 || len(targets) < n {
		return false
	}
	unique := map[string]bool{}
	for _, id := range targets[len(targets)-n:] {
		unique[id] = true
	}
	return len(unique) < m
}

// handoffs are the targets so far (R-004-27, R-004-35).
func handoffs(steps []*StepState) []string {
	var targets []string
	for _, st := range steps {
		if st.Step.GetKind() == teamv1.Step_KIND_TRANSFER && !unmanned(st) {
			targets = append(targets, st.Step.GetMember())
		}
	}
	return targets
}

// reject gives the member the reason: its next reply has to be an answer (R-004-27).
func (w *Swarm) reject(from *StepState, why *agent.Error) Decision {
	text := fmt.Sprintf("%s was refused: %s. Answer the request yourself.", transferTool, why.Message)
	return Decision{
		Steps: []*teamv1.Step{{
			Kind: teamv1.Step_KIND_DELEGATE, Member: from.Step.GetMember(), Name: rejectedTransfer + why.Reason,
			Input: &teamv1.Input{Message: agent.UserMessage("", text)}, Timeout: from.Step.GetTimeout(),
		}},
		Reason: "hand-off refused: " + why.Message, Rule: why.Reason,
	}
}

// rejectedTransfer begins the label of a step whose member was refused a hand-off;
// the reason follows.
const rejectedTransfer = "hand-off refused: "

// reaches are the members that a member may hand over to.
func (w *Swarm) reaches(from string) []string {
	m := w.member(from)
	var ids []string
	for i := range w.members {
		id := memberID(&w.members[i])
		if id != from && !w.members[i].Disabled && (m == nil || len(m.Handoff) == 0 || slices.Contains(m.Handoff, id)) {
			ids = append(ids, id)
		}
	}
	return ids
}

func listed(ids []string) string {
	if len(ids) == 0 {
		return "nobody"
	}
	return strings.Join(ids, ", ")
}

// transfersFor are the members that the member of a step may hand over to: those
// of its swarm, and those that the swarm itself may hand over to (C-13).
func (f *fold) transfersFor(st *StepState) []*teamv1.TransferTarget {
	w, ok := f.Team.Scheduler.(*Swarm)
	if !ok || !st.member() {
		return nil
	}
	var targets []*teamv1.TransferTarget
	known := infos{roster: f.Roster}
	for _, id := range w.reaches(st.Step.GetMember()) {
		m := w.member(id)
		targets = append(targets, &teamv1.TransferTarget{Id: id, Description: descriptionOf(m, known.of(m))})
	}
	for _, t := range f.Transfers {
		if w.member(t.GetId()) == nil {
			targets = append(targets, t)
		}
	}
	return targets
}

// transferSpec is the tool by which a model hands over.
func transferSpec(targets []*teamv1.TransferTarget) agent.ToolSpec {
	var who strings.Builder
	for _, t := range targets {
		fmt.Fprintf(&who, "\n- %s: %s", t.GetId(), t.GetDescription())
	}
	enum, _ := json.Marshal(targetIDs(targets)) // strings always have a JSON
	return agent.ToolSpec{
		Name:        transferTool,
		Description: "Hands the conversation over to another agent, which then answers the user. Do not call it to ask something:" + who.String(),
		Parameters: json.RawMessage(`{"type":"object","properties":{"agent_name":{"type":"string","enum":` + string(enum) + `},` +
			`"message":{"type":"string","description":"What the other agent has to know; none is the user's message."}},"required":["agent_name"]}`),
	}
}

// transfer returns the hand-over that a call asks for; nil when it is none, or
// to nobody: it is then answered as a call that cannot be run.
func (l *leader) transfer(s *State, call *teamv1.ToolCall) *teamv1.Transfer {
	if call.GetName() != transferTool || len(s.Transfers) == 0 {
		return nil
	}
	t, err := readTransfer(call.GetArguments(), s.Transfers)
	if err != nil {
		return nil
	}
	return t
}

// readTransfer reads the arguments of transfer_to_agent. The error tells the model
// what to change.
func readTransfer(arguments string, targets []*teamv1.TransferTarget) (*teamv1.Transfer, error) {
	args, err := readArguments(arguments)
	if err != nil {
		return nil, errors.New(`the arguments are not a JSON object; write {"agent_name": "…"}`)
	}
	to, err := textOf(args, "agent_name", true)
	if err != nil {
		return nil, err
	}
	ids := targetIDs(targets)
	if !slices.Contains(ids, to) {
		return nil, fmt.Errorf("there is no agent %q to hand over to; there are %s", shorten(to), strings.Join(ids, ", "))
	}
	message, err := textOf(args, "message", false)
	return &teamv1.Transfer{To: to, Message: message}, err
}

func targetIDs(targets []*teamv1.TransferTarget) []string {
	ids := make([]string, len(targets))
	for i, t := range targets {
		ids[i] = t.GetId()
	}
	return ids
}
