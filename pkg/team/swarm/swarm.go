// Package swarm has the scheduler of teams whose members hand control to each other.
package swarm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// Config is the configuration of a Swarm.
type Config struct {
	// Entry is the id of the member that begins. Required.
	Entry string
	// Members of the team, the same as in the team's Config.
	Members []team.Member
	// CrossRequest starts the next run of a conversation with the member that answered last. If it
	// is not set, each run starts with Entry.
	CrossRequest bool
	// Limits of a run. The swarm reads max_handoffs, node_timeout, loop_window and loop_min_unique;
	// 0 switches each of them off.
	Limits *teamv1.Limits
}

// Swarm is the scheduler of teams whose members hand control to each other. A run starts with the
// entry member and ends when a member answers without handing over; that answer is the run's. Safe
// for concurrent use.
type Swarm struct {
	team.Base
	entry        string
	members      []team.Member
	crossRequest bool
	guards       guards
}

// guards bound the hand-overs of a run; 0 means no limit.
type guards struct {
	maxHandoffs, window, minUnique int
	nodeTimeout                    time.Duration
}

var _ team.Scheduler = (*Swarm)(nil)

// New returns a swarm. The error joins a *team.Fault for each fault of the configuration.
func New(c Config) (*Swarm, error) {
	w := &Swarm{entry: c.Entry, members: c.Members, crossRequest: c.CrossRequest, guards: guardsOf(c.Limits)}
	ids := make([]string, len(c.Members))
	for i := range c.Members {
		ids[i] = team.MemberID(&c.Members[i])
	}
	var fs team.Faults
	known := slices.Sorted(slices.Values(ids))
	if c.Entry == "" {
		fs.Addf("entry_member", "swarm", "has no entry member; set entry_member")
	} else if i := slices.Index(ids, c.Entry); i < 0 {
		fs.Add("entry_member", "swarm", expr.Unknown(0, c.Entry, known, "no such member %q", c.Entry))
	} else if c.Members[i].Disabled {
		fs.Addf("entry_member", "swarm", "member %q is disabled and cannot begin; enable it or name another one", c.Entry)
	}
	for i, m := range c.Members {
		for k, to := range m.Handoff {
			w.check(&fs, fmt.Sprintf("members[%d].handoff[%d]", i, k), ids[i], to, known)
		}
		if m.HandoffAfter != "" {
			w.check(&fs, fmt.Sprintf("members[%d].handoff_after", i), ids[i], m.HandoffAfter, known)
		}
	}
	return w, fs.Err()
}

// check adds the fault of a hand-over to an unknown member, or to the member itself.
func (w *Swarm) check(fs *team.Faults, path, from, to string, known []string) {
	switch {
	case to == from:
		fs.Addf(path, "swarm", "member %q would hand over to itself; name another one", from)
	case !slices.Contains(known, to):
		fs.Add(path, "swarm", expr.Unknown(0, to, known, "no such member %q", to))
	}
}

// guardsOf returns the bounds that limits set, and the defaults for all others.
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

// Traits implements [team.Scheduler]. The bounds on hand-overs replace cycle detection, and
// limits.node_timeout replaces limits.member_timeout.
func (w *Swarm) Traits() team.Traits {
	t := team.Traits{History: team.HistoryConversation, DetectsCycles: true, SetsTimeouts: true}
	if !w.crossRequest {
		t.Entry.Members = []string{w.entry}
	}
	return t
}

// Handles implements [team.Scheduler]. A hand-over that was not accepted is reported to the member
// that made it.
func (*Swarm) Handles(st *team.StepState) bool { return notAccepted(st) }

// Next implements [team.Scheduler].
func (w *Swarm) Next(s *team.State) (team.Decision, error) {
	if err := team.Staffed(s); err != nil {
		return team.Decision{}, err
	}
	if len(s.Steps) == 0 {
		return w.begin(s), nil
	}
	last := s.Steps[len(s.Steps)-1]
	if notAccepted(last) {
		return w.reportNotAccepted(s, last.Err)
	}
	if err := last.Failure(); err != nil {
		return team.Decision{}, err
	}
	if last.Transfer != nil {
		return w.handOver(s, last, last.Transfer)
	}
	if m := w.member(last.Step.GetMember()); m != nil && m.HandoffAfter != "" {
		return w.handOverAfter(s, last, m)
	}
	if m := unreadFollowUps(s); m != nil {
		return team.Decision{
			Steps: []*teamv1.Step{{
				Kind: teamv1.Step_KIND_DELEGATE, Member: last.Step.GetMember(), Name: followUp,
				Input: &teamv1.Input{Message: m}, Timeout: last.Step.GetTimeout(),
			}},
			Reason: "the user has said more",
		}, nil
	}
	return team.Decision{
		Reply: last.Message, Reason: last.Step.GetMember() + " answered",
		Updates: map[string]*structpb.Value{agent.OwnerKey: structpb.NewStringValue(last.Step.GetMember())},
	}, nil
}

// followUp is the name of a step that passes follow-up messages of the user to the member that has
// just answered.
const followUp = "follow-up"

// unreadFollowUps returns, as one message, the follow-up messages of the user that no member was
// given yet; nil if there are none.
func unreadFollowUps(s *team.State) *a2av1.Message {
	given := 0
	for _, st := range s.Steps {
		if st.Step.GetName() == followUp {
			given = st.ReceivedBefore
		}
	}
	if given == len(s.Received) {
		return nil
	}
	m := agent.UserMessage("", "")
	m.Parts = nil
	for _, received := range s.Received[given:] {
		m.Parts = append(m.Parts, received.GetParts()...)
	}
	return m
}

// begin gives the message to the entry member or, with CrossRequest, to the member that answered
// last in the conversation.
func (w *Swarm) begin(s *team.State) team.Decision {
	who, reason := w.entry, "the entry member begins"
	if owner := s.Context[agent.OwnerKey].GetStringValue(); w.crossRequest && owner != "" {
		if m := w.member(owner); m != nil && !m.Disabled {
			who, reason = owner, owner+" answered last in this conversation"
		}
	}
	return team.Decision{Steps: []*teamv1.Step{{Kind: teamv1.Step_KIND_DELEGATE, Member: who}}, Reason: reason}
}

func (w *Swarm) member(id string) *team.Member {
	for i := range w.members {
		if team.MemberID(&w.members[i]) == id {
			return &w.members[i]
		}
	}
	return nil
}

// handOver gives control to the target of a transfer, or tells the member why it was refused. A
// member that was told so must answer; a second hand-over ends the run.
func (w *Swarm) handOver(s *team.State, from *team.StepState, t *teamv1.Transfer) (team.Decision, error) {
	if reason := team.RefusedTransfer(from.Step); reason != "" {
		return team.Decision{}, agent.Errorf(agent.CodeInternal, reason,
			"team %q: member %q handed over to %.64q after a hand-over of it was refused; it had to answer: say so in its instructions. %s", s.Team.ID, from.Step.GetMember(), t.GetTo(), firstRefusal(from))
	}
	if w.member(t.GetTo()) == nil && slices.ContainsFunc(s.Transfers, func(o *teamv1.TransferTarget) bool { return o.GetId() == t.GetTo() }) {
		return team.Decision{Transfer: t, Reason: from.Step.GetMember() + " hands over to " + t.GetTo()}, nil
	}
	if err := w.checkHandoff(s, from.Step.GetMember(), t.GetTo()); err != nil {
		return w.reject(from, err), nil
	}
	return w.transfer(s, from, t), nil
}

// handOverAfter gives control to the HandoffAfter of a member that has replied. If that is refused,
// the run fails.
func (w *Swarm) handOverAfter(s *team.State, from *team.StepState, m *team.Member) (team.Decision, error) {
	if err := w.checkHandoff(s, from.Step.GetMember(), m.HandoffAfter); err != nil {
		return team.Decision{}, agent.Errorf(err.Code, err.Reason, "team %q: member %q could not hand over to %q after its reply: %s",
			s.Team.ID, from.Step.GetMember(), m.HandoffAfter, err.Message)
	}
	return w.transfer(s, from, &teamv1.Transfer{To: m.HandoffAfter, Message: agent.Text(from.Message)}), nil
}

// transfer returns the decision that a member takes over. It is given the message of the transfer,
// or the run's input if there is none.
func (w *Swarm) transfer(s *team.State, from *team.StepState, t *teamv1.Transfer) team.Decision {
	step := &teamv1.Step{Kind: teamv1.Step_KIND_TRANSFER, Member: t.GetTo(), Input: &teamv1.Input{Message: s.Input}}
	if t.GetMessage() != "" {
		step.Input = &teamv1.Input{Message: agent.UserMessage("", t.GetMessage())}
	}
	if w.guards.nodeTimeout > 0 {
		step.Timeout = durationpb.New(w.guards.nodeTimeout)
	}
	return team.Decision{Steps: []*teamv1.Step{step}, Reason: from.Step.GetMember() + " hands over to " + t.GetTo()}
}

// notAccepted reports whether a step is a hand-over that was not accepted: its member takes no work
// now, or a limit above the swarm refused it.
func notAccepted(st *team.StepState) bool {
	if st.Step.GetKind() != teamv1.Step_KIND_TRANSFER || st.Outcome != teamv1.Outcome_OUTCOME_REJECTED || st.Err == nil {
		return false
	}
	return slices.Contains([]string{agent.ReasonDisabled, agent.ReasonMemberNotFound, agent.ReasonBreakerOpen, agent.ReasonMaxHandoffs}, st.Err.Reason)
}

// reportNotAccepted tells the member that handed over that its hand-over was not accepted. If no
// member has asked for the hand-over, the run fails.
func (w *Swarm) reportNotAccepted(s *team.State, why *agent.Error) (team.Decision, error) {
	for _, st := range slices.Backward(s.Steps[:len(s.Steps)-1]) {
		if st.Transfer != nil {
			return w.reject(st, why), nil
		}
		if !notAccepted(st) {
			break
		}
	}
	return team.Decision{}, why
}

// checkHandoff returns why a hand-over is refused; nil if it is allowed.
func (w *Swarm) checkHandoff(s *team.State, from, to string) *agent.Error {
	refused := func(reason, format string, args ...any) *agent.Error {
		return agent.Errorf(agent.CodeInternal, reason, format, args...).With("member", from)
	}
	targets, before := handoffs(s.Steps), len(handoffs(s.Earlier))
	recent := append(slices.Clone(targets), to)
	switch m := w.member(to); {
	case m != nil && m.Disabled:
		return refused(agent.ReasonDisabled, "member %q is disabled; hand over to another one of %s", to, listed(w.targets(from)))
	case m == nil || !slices.Contains(w.targets(from), to):
		return refused(agent.ReasonMemberNotFound, "%q cannot hand over to %.64q; it can to %s", from, to, listed(w.targets(from)))
	case w.guards.maxHandoffs > 0 && before+len(targets) >= w.guards.maxHandoffs:
		return refused(agent.ReasonMaxHandoffs, "the team has handed over %d times in this run, the most it may (limits.max_handoffs); answer, or raise it", before+len(targets))
	case w.isRepetitive(recent):
		return refused(agent.ReasonRepetitive, "the last %d hand-offs went to fewer than %d different members (limits.loop_window, limits.loop_min_unique); answer, or change them",
			w.guards.window, w.guards.minUnique)
	}
	return nil
}

// isRepetitive reports whether the last hand-overs went to too few different members.
func (w *Swarm) isRepetitive(targets []string) bool {
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

// handoffs returns the targets of the accepted hand-overs among steps.
func handoffs(steps []*team.StepState) []string {
	var targets []string
	for _, st := range steps {
		if st.Step.GetKind() == teamv1.Step_KIND_TRANSFER && !notAccepted(st) {
			targets = append(targets, st.Step.GetMember())
		}
	}
	return targets
}

// reject returns the decision to tell a member why its hand-over was refused. The member has to
// answer instead.
func (w *Swarm) reject(from *team.StepState, why *agent.Error) team.Decision {
	text := fmt.Sprintf("%s was refused: %s. Answer the request yourself.", team.TransferTool, why.Message)
	return team.Decision{
		Steps: []*teamv1.Step{{
			Kind: teamv1.Step_KIND_DELEGATE, Member: from.Step.GetMember(), Name: team.RefusedTransferName(why.Reason), RefusedTransfer: why.Reason,
			Input: &teamv1.Input{Message: agent.UserMessage("", text)}, Timeout: from.Step.GetTimeout(),
		}},
		Reason: "hand-off refused: " + why.Message, Rule: why.Reason,
	}
}

// firstRefusal returns why the hand-over was refused that a step tells its member about.
func firstRefusal(st *team.StepState) string {
	_, why, _ := strings.Cut(agent.Text(st.Given), " was refused: ")
	return "The first was refused because " + strings.TrimSuffix(why, ". Answer the request yourself.")
}

// targets returns the ids of the members that a member may hand over to.
func (w *Swarm) targets(from string) []string {
	m := w.member(from)
	var ids []string
	for i := range w.members {
		id := team.MemberID(&w.members[i])
		if id != from && !w.members[i].Disabled && (m == nil || len(m.Handoff) == 0 || slices.Contains(m.Handoff, id)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// listed joins ids for an error text.
func listed(ids []string) string {
	if len(ids) == 0 {
		return "nobody"
	}
	return strings.Join(ids, ", ")
}

// Transfers implements [team.Scheduler]. It returns the members of the swarm that the member may
// hand over to, and the agents that the swarm itself may hand over to.
func (w *Swarm) Transfers(s *team.State, st *team.StepState) []*teamv1.TransferTarget {
	var targets []*teamv1.TransferTarget
	known := s.Infos()
	for _, id := range w.targets(st.Step.GetMember()) {
		m := w.member(id)
		t := &teamv1.TransferTarget{Id: id, Description: team.DescriptionOf(m, known.Of(m))}
		if m.Description == "" && known.Of(m).GetExternal() {
			t.Description, t.External = known.Of(m).GetDescription(), true
		}
		targets = append(targets, t)
	}
	for _, t := range s.Transfers {
		if w.member(t.GetId()) == nil {
			targets = append(targets, t)
		}
	}
	return targets
}
