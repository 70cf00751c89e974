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
	dropped    bool   // it was canceled because nobody needs it
	spawned    bool   // it has become a task of its own
	withheld   bool   // readers above see nothing that it says
	inner      teamv1.Step_Inner
	delegation *teamv1.Delegation // where it is one below the fold's scope

	streamed string           // the artifact that its text went into
	result   *a2av1.Message   // it has ended with
	told     bool             // the result is an artifact of the task
	metadata *structpb.Struct // of its artifacts
}

// workOf keeps what later events of a step need to know of it.
func (f *Fold) workOf(scope string, ev *teamv1.Event, s *teamv1.Step) *work {
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
	if agent.Within(scope, f.scope) {
		w.delegation = &teamv1.Delegation{Id: agent.ChildTask(f.root, w.scope), Path: w.path, Kind: s.GetKind()}
		f.delegations = append(f.delegations, w.delegation)
		f.members = append(f.members, w)
	}
	return w
}

// speaks reports whether streamed text of a step is the scope's own: a turn of
// its own model.
func (f *Fold) speaks(scope string) bool {
	w := f.works[scope]
	return w != nil && w.prose && agent.Parent(scope) == f.scope
}

// voice returns the delegation whose output an event of a scope below the task
// holds, nil where it is nobody's.
func (f *Fold) voice(scope string) *work {
	w := f.works[scope]
	if w != nil && w.path == "" {
		if !w.prose {
			return nil
		}
		w = f.works[agent.Parent(scope)]
	}
	if w == nil || w.delegation == nil {
		return nil
	}
	return w
}

// shown is how much of a delegation's output readers of the task see: as much as
// every team on the way to it shows.
func (f *Fold) shown(w *work) teamv1.Step_Inner {
	shown := teamv1.Step_INNER_TEXT
	for s := w.scope; s != f.scope; s = agent.Parent(s) {
		at := f.works[s]
		if at == nil || at.path == "" || at.withheld {
			return teamv1.Step_INNER_UNSPECIFIED
		}
		shown = min(shown, at.inner)
	}
	return shown
}

// innerText adds streamed text of a member to its artifact.
func (f *Fold) innerText(scope string, d *teamv1.Delta) {
	w := f.voice(scope)
	if w == nil || f.shown(w) != teamv1.Step_INNER_TEXT {
		return
	}
	w.streamed = f.artifactID(w, d.GetArtifactId())
	f.put(piece{artifact: f.memberArtifact(w, w.streamed, agent.TextParts(d.GetText())), add: !d.GetRestart(), work: w})
}

// innerArtifact shows an artifact of a member.
func (f *Fold) innerArtifact(scope string, u *teamv1.ArtifactUpdate) {
	w := f.voice(scope)
	if w == nil {
		return
	}
	parts := visible(u.GetArtifact().GetParts(), f.shown(w))
	if len(parts) == 0 {
		return
	}
	a := f.memberArtifact(w, f.artifactID(w, u.GetArtifact().GetArtifactId()), parts)
	a.Description = u.GetArtifact().GetName()
	f.put(piece{artifact: a, add: u.GetAppend(), last: u.GetLastChunk(), work: w})
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
func (f *Fold) artifactID(w *work, own string) string {
	run := &agent.Run{Root: f.root}
	answer := run.ID(w.scope, "artifact", 1)
	if own == "" || own == answer {
		return answer
	}
	return run.ID(w.scope, "artifact/"+own, 1)
}

// memberArtifact is an artifact named by the member's path.
func (f *Fold) memberArtifact(w *work, id string, parts []*a2av1.Part) *a2av1.Artifact {
	if w.metadata == nil {
		w.metadata = brief(&teamv1.TeamRun{Path: w.path, DelegationId: w.delegation.GetId(), Parent: f.parent(w)})
	}
	return &a2av1.Artifact{ArtifactId: id, Name: w.path, Parts: parts, Metadata: w.metadata}
}

// parent is the task that a delegation belongs to.
func (f *Fold) parent(w *work) string { return agent.ChildTask(f.root, agent.Parent(w.scope)) }

// finished keeps the result of a delegation, and shows it where the team streams
// the member: what was streamed is replaced, as it may not be all.
func (f *Fold) finished(w *work, e *teamv1.Ended) {
	if e.GetOutcome() != teamv1.Outcome_OUTCOME_SUCCEEDED || w.spawned {
		return
	}
	m := e.GetReply()
	if ref := e.GetReplyRef(); ref > 0 {
		m = f.texts[ref]
	}
	if len(m.GetParts()) == 0 {
		return
	}
	w.result = m
	f.tell(w, f.shown(w))
}

// joined shows the results that the answer joins.
func (f *Fold) joined() {
	for _, id := range f.joins {
		if w := f.works[agent.Scope(f.scope, id)]; w != nil && w.result != nil {
			f.tell(w, teamv1.Step_INNER_TEXT)
		}
	}
}

// partial shows what was finished of a task that fails: the last
// result of each piece of work, unless it went into the result of a team above it.
func (f *Fold) partial() {
	last := map[string]*work{}
	for _, w := range f.members {
		if w.result != nil {
			last[w.key] = w
		}
	}
	for _, w := range f.members {
		if w.result != nil && last[w.key] == w && !f.covered(w) {
			f.tell(w, teamv1.Step_INNER_TEXT)
		}
	}
}

// covered reports whether a team between the delegation and the task has succeeded.
func (f *Fold) covered(w *work) bool {
	for s := agent.Parent(w.scope); s != f.scope && s != ""; s = agent.Parent(s) {
		if above := f.works[s]; above != nil && succeeded(above.delegation.GetOutcome()) {
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
func (f *Fold) isWithheld(w *work) bool {
	for s := w.scope; s != f.scope && s != ""; s = agent.Parent(s) {
		if at := f.works[s]; at != nil && at.withheld {
			return true
		}
	}
	return false
}

// tell puts the result of a delegation into its artifact, once.
func (f *Fold) tell(w *work, shown teamv1.Step_Inner) {
	parts := visible(w.result.GetParts(), shown)
	if w.told || len(parts) == 0 || f.isWithheld(w) {
		return
	}
	w.told = shown == teamv1.Step_INNER_TEXT
	id := w.streamed
	if id == "" {
		id = f.artifactID(w, "")
	}
	f.put(piece{artifact: f.memberArtifact(w, id, parts), last: true, work: w})
}
