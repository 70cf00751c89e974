package team

import (
	"context"
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Entry says who receives the message that a run begins with. The zero value means one of the members,
// which is not known in advance.
type Entry struct {
	// Model says that the model of the team receives it.
	Model bool
	// Members are the ids of the members that receive it, each of them.
	Members []string
	// All says that every member receives it.
	All bool
}

// modes returns the id and the media types of the team. It calls no member: one whose media types are
// not known yet, such as an agent on another server, counts as accepting all files. known caches the
// results of nested teams.
func (l *Loop) modes(known map[*Config]*teamv1.AgentInfo) *teamv1.AgentInfo {
	if info, ok := known[l.cfg]; ok {
		return info
	}
	info := &teamv1.AgentInfo{Id: l.cfg.ID, InputModes: l.cfg.InputModes, OutputModes: l.cfg.OutputModes}
	known[l.cfg] = &teamv1.AgentInfo{} // a team that contains itself fails when it is called
	l.setFiles(info, func(i int) *teamv1.AgentInfo { return l.lent(i, l.memberModes(i, known)) })
	known[l.cfg] = info
	return info
}

// memberModes returns the media types of a member without asking it; nil if they are not known.
func (l *Loop) memberModes(i int, known map[*Config]*teamv1.AgentInfo) *teamv1.AgentInfo {
	a, err := l.cfg.Registry.Agent(l.cfg.Members[i].Agent)
	if err != nil {
		return nil
	}
	switch a := a.(type) {
	case interface {
		modes(known map[*Config]*teamv1.AgentInfo) *teamv1.AgentInfo
		nested
	}:
		return a.modes(known)
	case agent.Describer:
		return a.KnownInfo()
	}
	if k := l.last.Load(); k != nil {
		return k.infos[i]
	}
	return nil
}

// setFiles stores in the description of the team which files it takes: those that its entry takes.
// Input modes that the team has of its own replace them. member returns the description of a member.
func (l *Loop) setFiles(info *teamv1.AgentInfo, member func(i int) *teamv1.AgentInfo) {
	entry := l.traits.Entry
	switch {
	case len(l.cfg.InputModes) > 0:
		return
	case entry.Model && l.cfg.Model != nil:
		agent.SetFiles(info, agent.FilesOf(l.cfg.Model))
		return
	case entry.Model:
		return
	}
	all := entry.All || len(entry.Members) > 0
	var sum *agent.Files
	for i := range l.cfg.Members {
		m := &l.cfg.Members[i]
		if m.Disabled || len(entry.Members) > 0 && !slices.Contains(entry.Members, m.ID) {
			continue
		}
		f := agent.FilesAccepted(member(i))
		switch {
		case sum == nil:
			sum = &f
		case all:
			sum = &agent.Files{Types: agent.CommonMedia(sum.Types, f.Types), URLs: agent.CommonMedia(sum.URLs, f.URLs)}
		default:
			sum = &agent.Files{Types: union(sum.Types, f.Types), URLs: union(sum.URLs, f.URLs)}
		}
	}
	if sum != nil {
		agent.SetFiles(info, *sum)
	}
}

// union returns the media types that match one of the lists.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, media := range b {
		if !agent.MatchesMedia(media, all) {
			all = append(all, media)
		}
	}
	return all
}

// lent returns the description of a member with the files that the model of the team takes, if the
// member has no model of its own.
func (l *Loop) lent(i int, info *teamv1.AgentInfo) *teamv1.AgentInfo {
	return l.borrowing(&l.cfg.Members[i], info, l.cfg.Model)
}

// borrowing is like lent, with the model that the team lends.
func (l *Loop) borrowing(m *Member, info *teamv1.AgentInfo, lends agent.Model) *teamv1.AgentInfo {
	a, err := l.cfg.Registry.Agent(m.Agent)
	if b, ok := a.(interface{ borrows() bool }); err != nil || !ok || !b.borrows() || lends == nil {
		return info
	}
	with := &teamv1.AgentInfo{Id: m.Agent, InputModes: info.GetInputModes()}
	agent.SetFiles(with, agent.FilesOf(lends))
	return with
}

// borrows reports whether the loop is an agent without a model, which uses that of its team.
func (l *Loop) borrows() bool { return l.traits.Entry.Model && l.cfg.Model == nil }

// accepts returns the media types of the member of a step, as recorded when the run began.
func (p *process) accepts(ctx context.Context, st *StepState) *teamv1.AgentInfo {
	m := p.member(st.Step.GetMember())
	if m == nil {
		return nil
	}
	known := p.Infos()
	return p.borrowing(m, known.Of(m), p.model(ctx))
}

// checkFiles returns CONTENT_TYPE_NOT_SUPPORTED if the run is to begin with a file that the model
// does not take. Servers check that before a run begins; this is for all other callers.
func (p *process) checkFiles(ctx context.Context) error {
	m := p.model(ctx)
	if !p.traits.Entry.Model || m == nil || len(p.Steps) > 0 || len(p.cfg.Members) > 0 && len(p.cfg.InputModes) > 0 {
		return nil
	}
	info := &teamv1.AgentInfo{Id: p.cfg.ID}
	agent.SetFiles(info, agent.FilesOf(m))
	return agent.CheckFiles(info, p.Input)
}
