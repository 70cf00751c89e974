package project

import (
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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
	work      *work // whose it is; nil: the task's own
}

// work is what is known of a step.
type work struct {
	scope      string
	key        string // of steps whose results stand for each other
	path       string // of the agent that works; empty of steps that are no delegation
	prose      bool   // it is a turn of a model that may be an answer
	dropped    bool   // it was canceled because its result was not needed any more
	spawned    bool   // it has become a task of its own
	withheld   bool   // readers above see nothing that it says
	inner      teamv1.Step_Inner
	delegation *teamv1.Delegation // where it is one below the fold's scope

	streamed string           // the artifact that its text went into
	result   *a2av1.Message   // it has ended with
	told     bool             // the result is an artifact of the task
	metadata *structpb.Struct // of its artifacts
}

// memberWork is what a fold knows of the steps below its scope, and shows of them.
type memberWork struct {
	root, scope string // of the fold
	out         *output

	works       map[string]*work     // of steps, by scope
	members     []*work              // the delegations below the scope, as they were decided
	delegations []*teamv1.Delegation // the same, as they are shown
}

// workOf keeps what later events of a step need to know of it.
func (m *memberWork) workOf(scope string, ev *teamv1.Event, s *teamv1.Step) *work {
	w := &work{
		scope: agent.Scope(scope, s.GetId()), inner: s.GetInner(),
		prose: s.GetKind() == teamv1.Step_KIND_MODEL && s.GetName() != routeStep,
	}
	if !agent.IsDelegation(s.GetKind()) {
		return w
	}
	w.path, w.withheld = ev.GetAgent()+"/"+s.GetMember(), s.GetWithheld()
	w.key = w.path + "\x00" + s.GetName()
	if s.GetCallId() != "" { // a model's calls are work of their own
		w.key = w.scope
	}
	if agent.Within(scope, m.scope) {
		w.delegation = &teamv1.Delegation{Id: agent.ChildTask(m.root, w.scope), Path: w.path, Kind: s.GetKind()}
		m.delegations = append(m.delegations, w.delegation)
		m.members = append(m.members, w)
	}
	return w
}

// speaks reports whether streamed text of a step is the scope's own: a turn of
// its own model.
func (m *memberWork) speaks(scope string) bool {
	w := m.works[scope]
	return w != nil && w.prose && agent.Parent(scope) == m.scope
}

// voice returns the delegation that an event of a scope below the task has output of. It
// returns nil for events of other steps.
func (m *memberWork) voice(scope string) *work {
	w := m.works[scope]
	if w != nil && w.path == "" {
		if !w.prose {
			return nil
		}
		w = m.works[agent.Parent(scope)]
	}
	if w == nil || w.delegation == nil {
		return nil
	}
	return w
}

// shown is how much of a delegation's output readers of the task see: as much as
// every team on the way to it shows.
func (m *memberWork) shown(w *work) teamv1.Step_Inner {
	shown := teamv1.Step_INNER_TEXT
	for s := w.scope; s != m.scope; s = agent.Parent(s) {
		at := m.works[s]
		if at == nil || at.path == "" || at.withheld {
			return teamv1.Step_INNER_UNSPECIFIED
		}
		shown = min(shown, at.inner)
	}
	return shown
}

// innerText adds streamed text of a member to its artifact.
func (m *memberWork) innerText(scope string, d *teamv1.Delta) {
	w := m.voice(scope)
	if w == nil || m.shown(w) != teamv1.Step_INNER_TEXT {
		return
	}
	w.streamed = m.artifactID(w, d.GetArtifactId())
	m.out.put(piece{artifact: m.memberArtifact(w, w.streamed, agent.TextParts(d.GetText())), add: !d.GetRestart(), work: w})
}

// innerArtifact shows an artifact of a member.
func (m *memberWork) innerArtifact(scope string, u *teamv1.ArtifactUpdate) {
	w := m.voice(scope)
	if w == nil {
		return
	}
	parts := visible(u.GetArtifact().GetParts(), m.shown(w))
	if len(parts) == 0 {
		return
	}
	a := m.memberArtifact(w, m.artifactID(w, u.GetArtifact().GetArtifactId()), parts)
	a.Description = u.GetArtifact().GetName()
	m.out.put(piece{artifact: a, add: u.GetAppend(), last: u.GetLastChunk(), work: w})
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
func (m *memberWork) artifactID(w *work, own string) string {
	run := &agent.Run{Root: m.root}
	answer := run.ID(w.scope, "artifact", 1)
	if own == "" || own == answer {
		return answer
	}
	return run.ID(w.scope, "artifact/"+own, 1)
}

// memberArtifact is an artifact named by the member's path.
func (m *memberWork) memberArtifact(w *work, id string, parts []*a2av1.Part) *a2av1.Artifact {
	if w.metadata == nil {
		w.metadata = Metadata(&teamv1.TeamRun{Path: w.path, DelegationId: w.delegation.GetId(), Parent: m.parent(w)})
	}
	return &a2av1.Artifact{ArtifactId: id, Name: w.path, Parts: parts, Metadata: w.metadata}
}

// parent is the task that a delegation belongs to.
func (m *memberWork) parent(w *work) string { return agent.ChildTask(m.root, agent.Parent(w.scope)) }

// finished keeps the result of a delegation, and shows it where the team streams
// the member: what was streamed is replaced, as it may not be all.
func (m *memberWork) finished(w *work, outcome teamv1.Outcome, result *a2av1.Message) {
	if outcome != teamv1.Outcome_OUTCOME_SUCCEEDED || w.spawned || len(result.GetParts()) == 0 {
		return
	}
	w.result = result
	m.tell(w, m.shown(w))
}

// joined shows the results that the answer joins, by the ids of their steps.
func (m *memberWork) joined(ids []string) {
	for _, id := range ids {
		if w := m.works[agent.Scope(m.scope, id)]; w != nil && w.result != nil {
			m.tell(w, teamv1.Step_INNER_TEXT)
		}
	}
}

// partial shows what was finished of a task that fails: the last
// result of each piece of work, unless it went into the result of a team above it.
func (m *memberWork) partial() {
	last := map[string]*work{}
	for _, w := range m.members {
		if w.result != nil {
			last[w.key] = w
		}
	}
	for _, w := range m.members {
		if w.result != nil && last[w.key] == w && !m.covered(w) {
			m.tell(w, teamv1.Step_INNER_TEXT)
		}
	}
}

// covered reports whether a team between the delegation and the task has succeeded.
func (m *memberWork) covered(w *work) bool {
	for s := agent.Parent(w.scope); s != m.scope && s != ""; s = agent.Parent(s) {
		if above := m.works[s]; above != nil && succeeded(above.delegation.GetOutcome()) {
			return true
		}
	}
	return false
}

func succeeded(o teamv1.Outcome) bool {
	return o == teamv1.Outcome_OUTCOME_SUCCEEDED || o == teamv1.Outcome_OUTCOME_EMPTY
}

// isWithheld reports whether a team between the delegation and the task shows
// nothing of what its members say: guardrails look at its own answer.
func (m *memberWork) isWithheld(w *work) bool {
	for s := w.scope; s != m.scope && s != ""; s = agent.Parent(s) {
		if at := m.works[s]; at != nil && at.withheld {
			return true
		}
	}
	return false
}

// tell puts the result of a delegation into its artifact, once.
func (m *memberWork) tell(w *work, shown teamv1.Step_Inner) {
	parts := visible(w.result.GetParts(), shown)
	if w.told || len(parts) == 0 || m.isWithheld(w) {
		return
	}
	w.told = shown == teamv1.Step_INNER_TEXT
	id := w.streamed
	if id == "" {
		id = m.artifactID(w, "")
	}
	m.out.put(piece{artifact: m.memberArtifact(w, id, parts), last: true, work: w})
}
