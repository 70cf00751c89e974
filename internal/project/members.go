package project

import (
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
)

// What members say becomes artifacts of their own, named by the path of the
// member: as it comes, where the team streams it; results that the
// answer joins; and what was finished when the task fails. The
// artifact of the answer never holds any of it but what the answer says itself.

// routeStep names the turns of a router, whose text is no answer.
const routeStep = "route"

// piece is what an event has put into an artifact.
type piece struct {
	artifact  *a2av1.Artifact
	add, last bool
	by        *journal.Node // the delegation whose artifact it is; nil: it is the task's own
}

// voice is what readers were shown of a delegation.
type voice struct {
	streamed string           // the artifact that its text went into
	told     bool             // its result is an artifact of the task
	metadata *structpb.Struct // of its artifacts
}

// memberWork is what a fold shows of the steps below its scope.
type memberWork struct {
	view  *journal.View
	scope string // of the fold

	output
	members []*journal.Node          // the delegations below the scope, as they were decided
	voices  map[*journal.Node]*voice // of those that were shown; nil: none was
}

// has reports whether a step is a delegation below the scope.
func (m *memberWork) has(n *journal.Node) bool {
	return n.Delegated() && agent.Within(n.Parent.Scope, m.scope)
}

// voice returns what readers were shown of a delegation.
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

// prose reports whether a step is a turn of a model that may be an answer.
func prose(n *journal.Node) bool {
	return n.Step.GetKind() == teamv1.Step_KIND_MODEL && n.Step.GetName() != routeStep
}

// speaks reports whether streamed text of a step is the scope's own: a turn of
// its own model.
func (m *memberWork) speaks(n *journal.Node) bool {
	return n != nil && prose(n) && n.Parent.Scope == m.scope
}

// speaker returns the delegation that an event of a step below the task has output of. It
// returns nil for events of other steps.
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

// shown is how much of a delegation's output readers of the task see: as much as
// every team on the way to it shows.
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

// innerText adds streamed text of a member to its artifact.
func (m *memberWork) innerText(n *journal.Node, d *teamv1.Delta) {
	n = m.speaker(n)
	if n == nil || m.shown(n) != teamv1.Step_INNER_TEXT {
		return
	}
	v := m.voice(n)
	v.streamed = m.artifactID(n, d.GetArtifactId())
	m.put(piece{artifact: m.memberArtifact(n, v.streamed, agent.TextParts(d.GetText())), add: !d.GetRestart(), by: n})
}

// innerArtifact shows an artifact of a member.
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

// visible are the parts that readers see.
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

// artifactID is the id of a member's artifact in the task: its own where that is
// unique, as the id of its answer is.
func (m *memberWork) artifactID(n *journal.Node, own string) string {
	run := &agent.Run{Root: m.view.Root}
	answer := run.ID(n.Scope, "artifact", 1)
	if own == "" || own == answer {
		return answer
	}
	return run.ID(n.Scope, "artifact/"+own, 1)
}

// memberArtifact is an artifact named by the member's path.
func (m *memberWork) memberArtifact(n *journal.Node, id string, parts []*a2av1.Part) *a2av1.Artifact {
	v := m.voice(n)
	if v.metadata == nil {
		v.metadata = Metadata(&teamv1.TeamRun{Path: n.Path, DelegationId: m.task(n), Parent: m.task(n.Parent)})
	}
	return &a2av1.Artifact{ArtifactId: id, Name: n.Path, Parts: parts, Metadata: v.metadata}
}

// task is the id of the task that a node is.
func (m *memberWork) task(n *journal.Node) string { return agent.ChildTask(m.view.Root, n.Scope) }

// delegation returns a delegation as it is shown.
func (m *memberWork) delegation(n *journal.Node) *teamv1.Delegation {
	return &teamv1.Delegation{
		Id: m.task(n), Path: n.Path, Kind: n.Step.GetKind(), Attempts: n.Tries,
		Outcome: n.End.GetOutcome(), Error: n.End.GetError(), Spent: n.End.GetSpent(),
	}
}

// delegations returns delegations as they are shown.
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

// resultOf is the result that a delegation has ended with, nil without one.
func resultOf(n *journal.Node) *a2av1.Message {
	if n.End.GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED || n.Spawned != nil || len(n.Reply.GetParts()) == 0 {
		return nil
	}
	return n.Reply
}

// finished shows the result of a delegation where the team streams the member: what was
// streamed is replaced, as it may not be all.
func (m *memberWork) finished(n *journal.Node) {
	if resultOf(n) != nil {
		m.tell(n, m.shown(n))
	}
}

// joined shows the results that the answer joins, by the ids of their steps.
func (m *memberWork) joined(ids []string) {
	for _, id := range ids {
		if n := m.view.Node(agent.Scope(m.scope, id)); n != nil && resultOf(n) != nil {
			m.tell(n, teamv1.Step_INNER_TEXT)
		}
	}
}

// partial shows what was finished of a task that fails: the last
// result of each piece of work, unless it went into the result of a team above it.
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

// keyOf is the key of the delegations whose results stand for each other. A model's calls
// are work of their own.
func keyOf(n *journal.Node) string {
	if n.Step.GetCallId() != "" {
		return n.Scope
	}
	return n.Path + "\x00" + n.Step.GetName()
}

// covered reports whether a team between the delegation and the task has succeeded.
func (m *memberWork) covered(n *journal.Node) bool {
	for n = n.Parent; n.Scope != m.scope && n.Parent != nil; n = n.Parent {
		if o := n.End.GetOutcome(); n.Delegated() && (o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY) {
			return true
		}
	}
	return false
}

// isWithheld reports whether a team between the delegation and the task shows
// nothing of what its members say: guardrails look at its own answer.
func (m *memberWork) isWithheld(n *journal.Node) bool {
	for ; n.Scope != m.scope && n.Parent != nil; n = n.Parent {
		if n.Delegated() && n.Step.GetWithheld() {
			return true
		}
	}
	return false
}

// tell puts the result of a delegation into its artifact, once.
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
