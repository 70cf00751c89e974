package project

import (
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// The output of members becomes artifacts of the task, named by the path of the member. Readers see
// streamed text and artifacts if the team streams its members, the results that the answer
// combines, and the finished results of a task that fails. The artifact of the answer holds only
// the answer itself.

// routeStep is the name of the model turns of a router, whose text is not an answer.
const routeStep = "route"

// piece is what an event has written to an artifact.
type piece struct {
	artifact  *a2av1.Artifact
	add, last bool
	by        *journal.Node // the delegation that the artifact belongs to; nil for the task's own
}

// voice is the output of a delegation that readers were shown.
type voice struct {
	streamed string           // id of the artifact that holds its streamed text
	told     bool             // its complete result is an artifact of the task
	metadata *structpb.Struct // metadata of its artifacts; nil until the first one
}

// memberWork is the output of the steps below the scope of a fold.
type memberWork struct {
	place
	output
	members []*journal.Node          // the delegations below the scope, in the order of their decisions
	voices  map[*journal.Node]*voice // by delegation, for those with shown output; nil without any
}

// has reports whether a step is a delegation below the scope.
func (m *memberWork) has(n *journal.Node) bool {
	return n.Delegated() && agent.Within(n.Parent.Scope, m.scope)
}

// voice returns the shown output of a delegation, which it creates if needed.
func (m *memberWork) voice(n *journal.Node) *voice {
	v := m.voices[n]
	if v == nil {
		v = &voice{}
		if m.voices == nil {
			m.voices = map[*journal.Node]*voice{}
		}
		m.voices[n] = v
	}
	return v
}

// prose reports whether a step is a model turn whose text may be an answer.
func prose(n *journal.Node) bool {
	return n.Step.GetKind() == teamv1.Step_KIND_MODEL && n.Step.GetName() != routeStep
}

// speaks reports whether the streamed text of a step is the scope's own, because the step is a turn
// of the scope's own model.
func (m *memberWork) speaks(n *journal.Node) bool {
	return n != nil && prose(n) && n.Parent.Scope == m.scope
}

// speaker returns the delegation whose output an event of step n holds. It returns nil if the
// step's text is not an answer, or if the delegation is not below the scope.
func (m *memberWork) speaker(n *journal.Node) *journal.Node {
	if n != nil && !n.Delegated() {
		if !prose(n) {
			return nil
		}
		n = n.Parent
	}
	if n == nil || !m.has(n) {
		return nil
	}
	return n
}

// shown returns how much of a delegation's output readers of the task see: the least that any team
// between the delegation and the task allows.
func (m *memberWork) shown(n *journal.Node) teamv1.Step_Inner {
	shown := teamv1.Step_INNER_TEXT
	for ; n.Scope != m.scope; n = n.Parent {
		if !n.Delegated() || n.Step.GetWithheld() {
			return teamv1.Step_INNER_UNSPECIFIED
		}
		shown = min(shown, n.Step.GetInner())
	}
	return shown
}

// innerText adds streamed text of a member to the member's artifact.
func (m *memberWork) innerText(n *journal.Node, d *teamv1.Delta) {
	n = m.speaker(n)
	if n == nil || m.shown(n) != teamv1.Step_INNER_TEXT {
		return
	}
	v := m.voice(n)
	v.streamed = m.artifactID(n, d.GetArtifactId())
	m.put(piece{artifact: m.memberArtifact(n, v.streamed, agent.TextParts(d.GetText())), add: !d.GetRestart(), by: n})
}

// innerArtifact adds an artifact of a member to the task.
func (m *memberWork) innerArtifact(n *journal.Node, u *teamv1.ArtifactUpdate) {
	n = m.speaker(n)
	if n == nil {
		return
	}
	parts := visible(u.GetArtifact().GetParts(), m.shown(n))
	if len(parts) == 0 {
		return
	}
	a := m.memberArtifact(n, m.artifactID(n, u.GetArtifact().GetArtifactId()), parts)
	a.Description = u.GetArtifact().GetName()
	m.put(piece{artifact: a, add: u.GetAppend(), last: u.GetLastChunk(), by: n})
}

// toolFiles shows the files that a tool has returned as an artifact of the agent that called it.
func (m *memberWork) toolFiles(n *journal.Node, t *teamv1.ToolResult) {
	if n == nil || len(t.GetFiles()) == 0 || n.Step.GetWithheld() {
		return
	}
	name := t.GetFiles()[0].GetFilename()
	if name == "" {
		name = n.Step.GetName()
	}
	a := &a2av1.Artifact{
		ArtifactId: (&agent.Run{Root: m.view.Root}).ID(n.Scope, "artifact", 1), Name: name, Description: "returned by " + n.Step.GetName(), Parts: t.GetFiles(),
	}
	if n.Parent.Scope == m.scope {
		m.put(piece{artifact: a, last: true})
		return
	}
	m.innerArtifact(n.Parent, &teamv1.ArtifactUpdate{Artifact: a, LastChunk: true})
}

// visible returns those parts that readers see at a level.
func visible(parts []*a2av1.Part, shown teamv1.Step_Inner) []*a2av1.Part {
	switch shown {
	case teamv1.Step_INNER_TEXT:
		return parts
	case teamv1.Step_INNER_EVENTS:
		return slices.DeleteFunc(slices.Clone(parts), func(p *a2av1.Part) bool {
			_, text := p.GetContent().(*a2av1.Part_Text)
			return text
		})
	case teamv1.Step_INNER_UNSPECIFIED:
	}
	return nil
}

// artifactID returns the id in the task of a member's artifact with the id own. The id of the
// member's answer is unique already; others are derived from own. An empty own means the answer.
func (m *memberWork) artifactID(n *journal.Node, own string) string {
	run := &agent.Run{Root: m.view.Root}
	answer := run.ID(n.Scope, "artifact", 1)
	if own == "" || own == answer {
		return answer
	}
	return run.ID(n.Scope, "artifact/"+own, 1)
}

// memberArtifact returns an artifact with the path of the member as its name.
func (m *memberWork) memberArtifact(n *journal.Node, id string, parts []*a2av1.Part) *a2av1.Artifact {
	v := m.voice(n)
	if v.metadata == nil {
		v.metadata = Metadata(&teamv1.TeamRun{Path: n.Path, DelegationId: m.task(n), Parent: m.task(n.Parent)})
	}
	return &a2av1.Artifact{ArtifactId: id, Name: n.Path, Parts: parts, Metadata: v.metadata}
}

// delegation returns a delegation as callers see it.
func (m *memberWork) delegation(n *journal.Node) *teamv1.Delegation {
	return &teamv1.Delegation{
		Id: m.task(n), Path: n.Path, Kind: n.Step.GetKind(), Attempts: n.Tries,
		Outcome: n.End.GetOutcome(), Error: n.End.GetError(), Spent: n.End.GetSpent(),
	}
}

// delegations returns delegations as callers see them, nil for an empty list.
func (m *memberWork) delegations(list []*journal.Node) []*teamv1.Delegation {
	if len(list) == 0 {
		return nil
	}
	out := make([]*teamv1.Delegation, len(list))
	for i, n := range list {
		out[i] = m.delegation(n)
	}
	return out
}

// resultOf returns the result of a delegation that has succeeded, nil without one.
func resultOf(n *journal.Node) *a2av1.Message {
	if n.End.GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED || n.Spawned != nil || len(n.Reply.GetParts()) == 0 {
		return nil
	}
	return n.Reply
}

// finished shows the result of a delegation if the team streams its members. It replaces streamed
// text, which may be incomplete.
func (m *memberWork) finished(n *journal.Node) {
	if resultOf(n) != nil {
		m.tell(n, m.shown(n))
	}
}

// joined shows the results that the answer combines. ids are those of their steps.
func (m *memberWork) joined(ids []string) {
	for _, id := range ids {
		if n := m.view.Node(agent.Scope(m.scope, id)); n != nil && resultOf(n) != nil {
			m.tell(n, teamv1.Step_INNER_TEXT)
		}
	}
}

// partial shows the finished results of a task that fails: the last result of each piece of work,
// except those that are covered by the result of a team above them.
func (m *memberWork) partial() {
	last := map[string]*journal.Node{}
	for _, n := range m.members {
		if resultOf(n) != nil {
			last[keyOf(n)] = n
		}
	}
	for _, n := range m.members {
		if last[keyOf(n)] == n && !m.covered(n) {
			m.tell(n, teamv1.Step_INNER_TEXT)
		}
	}
}

// keyOf returns a key that is the same for delegations that repeat the same work, of which only the
// last result is shown. Each call by a model is work of its own.
func keyOf(n *journal.Node) string {
	if n.Step.GetCallId() != "" {
		return n.Scope
	}
	return n.Path + "\x00" + n.Step.GetName()
}

// covered reports whether a team between the delegation and the task has succeeded, so that the
// result of that team includes the delegation's.
func (m *memberWork) covered(n *journal.Node) bool {
	for n = n.Parent; n.Scope != m.scope && n.Parent != nil; n = n.Parent {
		if o := n.End.GetOutcome(); n.Delegated() && (o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY) {
			return true
		}
	}
	return false
}

// isWithheld reports whether the delegation, or a team between it and the task, must not show its
// output, because guardrails check the answer first, or a judge the result of a round.
func (m *memberWork) isWithheld(n *journal.Node) bool {
	for ; n.Scope != m.scope && n.Parent != nil; n = n.Parent {
		if n.Delegated() && n.Step.GetWithheld() || n.Step.GetKind() == teamv1.Step_KIND_ROUND {
			return true
		}
	}
	return false
}

// tell shows the result of a delegation in its artifact. It does nothing after the complete result
// was shown.
func (m *memberWork) tell(n *journal.Node, shown teamv1.Step_Inner) {
	parts := visible(n.Reply.GetParts(), shown)
	if len(parts) == 0 || m.isWithheld(n) {
		return
	}
	v := m.voice(n)
	if v.told {
		return
	}
	v.told = shown == teamv1.Step_INNER_TEXT
	id := v.streamed
	if id == "" {
		id = m.artifactID(n, "")
	}
	m.put(piece{artifact: m.memberArtifact(n, id, parts), last: true, by: n})
}
