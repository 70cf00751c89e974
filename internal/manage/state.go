package manage

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/agent"
)

// state is all that is served at one time: a catalog together with the configurations that result from it and the
// configuration file, and the agents that are built from those. It is immutable once it is served; until then, leaveOut,
// build and commit change it.
type state struct {
	file    *config.Config
	open    bool  // see Config.Open
	version int64 // of the catalog
	entries map[string]*entry
	owners  map[string]string // by the id of an agent or team: the entry that defines it

	// The file and its additions are a revision each, so that a change rebuilds only what it affects. build sets them.
	def       *config.Config // the file and all additions combined
	base      *revision      // of the file
	additions map[string]*revision
	by        map[string]*revision // the revision that serves an agent or team, by id
}

// entry is an entry of the catalog and what it defines.
type entry struct {
	catalog.Entry                 // Data is the document, not its stored form
	outline       *config.Outline // nil if the document cannot be parsed
	def           *config.Config  // the file with this entry and those it refers to; nil if the entry is not served
	faults        source.Faults   // why the entry is not served
	unbuilt       bool            // the definition is valid but its agents could not be built
}

// team reports whether the entry was created as a team rather than as an agent.
func (e *entry) team() bool { return e.outline != nil && slices.Contains(e.outline.Teams, e.ID) }

// fault returns the first reason why the entry is not served, "" if none is known.
func (e *entry) fault() string {
	if len(e.faults) == 0 {
		return ""
	}
	return e.faults[0].Message
}

// ids returns the ids of the agents and teams that the entry defines.
func (e *entry) ids() []string {
	if e == nil || e.outline == nil {
		return nil
	}
	return slices.Concat(e.outline.Agents, e.outline.Teams)
}

// with returns the state for another catalog or file. Configurations that are not affected are
// reused. If ctx ends before all others are loaded, the error is its cause.
func (s *state) with(ctx context.Context, file *config.Config, snap catalog.Snapshot) (*state, error) {
	next := &state{file: file, open: s.open, version: snap.Version, entries: make(map[string]*entry, len(snap.Entries)), owners: map[string]string{}}
	stale := map[string]bool{} // entries to load again
	for _, e := range snap.Entries {
		if old := s.entries[e.ID]; old != nil && old.Version == e.Version {
			next.entries[e.ID], stale[e.ID] = old, old.def == nil && !old.unbuilt || s.file != file
			continue
		}
		made := &entry{Entry: e}
		made.outline, _ = config.Addition{Name: e.ID, Data: e.Data}.Outline() // faults are reported with the definition
		next.entries[e.ID], stale[e.ID] = made, true
	}
	touched := map[string]bool{} // ids whose definition may have changed
	for id, e := range next.entries {
		for _, of := range e.ids() {
			next.owners[of] = id
			touched[of] = touched[of] || stale[id]
		}
	}
	for id, old := range s.entries {
		for _, of := range old.ids() {
			touched[of] = touched[of] || next.entries[id] != old
		}
	}
	maps.DeleteFunc(touched, func(_ string, is bool) bool { return !is })
	next.spread(stale, touched)
	for id := range stale {
		if stale[id] {
			e := *next.entries[id]
			e.def, e.faults = next.load(ctx, &e)
			e.unbuilt = false
			next.entries[id] = &e
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return next, nil
}

// spread marks the entries that refer to touched ids as stale, directly or indirectly.
func (s *state) spread(stale, touched map[string]bool) {
	for more := true; more; {
		more = false
		for id, e := range s.entries {
			if stale[id] || e.outline == nil || !e.names(touched) {
				continue
			}
			stale[id], more = true, true
			for _, of := range e.ids() {
				touched[of] = true
			}
		}
	}
}

func (e *entry) names(ids map[string]bool) bool {
	for id := range ids {
		if e.outline.Words[id] {
			return true
		}
	}
	return false
}

// load loads the file with an entry and those that it refers to, directly or indirectly. Referenced
// entries that have faults of their own are left out.
func (s *state) load(ctx context.Context, e *entry) (*config.Config, source.Faults) {
	others := s.named(e)
	for {
		var list []config.Addition
		for _, id := range others {
			list = append(list, s.addition(s.entries[id]))
		}
		def, err := s.file.With(ctx, append(list, s.addition(e)))
		if err == nil {
			return def, nil
		}
		var faults source.Faults
		if !errors.As(err, &faults) {
			return nil, source.Faults{{File: e.ID, Message: err.Error()}}
		}
		left := slices.DeleteFunc(slices.Clone(others), func(id string) bool {
			return slices.ContainsFunc(faults, func(f source.Fault) bool { return f.File == id })
		})
		if len(left) == len(others) {
			return nil, faults
		}
		others = left
	}
}

// addition returns the document of an entry. Without authentication it may use all that the file defines.
func (s *state) addition(e *entry) config.Addition {
	return config.Addition{Name: e.ID, Data: e.Data, Account: e.Account, Open: s.open}
}

// named returns the entries that an entry refers to, directly or indirectly, sorted.
func (s *state) named(e *entry) []string {
	seen := map[string]bool{e.ID: true}
	for todo := []*entry{e}; len(todo) > 0; todo = todo[1:] {
		if todo[0].outline == nil {
			continue
		}
		for word := range todo[0].outline.Words {
			if id, ok := s.owners[word]; ok && !seen[id] && s.mayName(todo[0], s.entries[id]) {
				seen[id] = true
				todo = append(todo, s.entries[id])
			}
		}
	}
	delete(seen, e.ID)
	return slices.Sorted(maps.Keys(seen))
}

// mayName reports whether an entry may refer to another one. With authentication both must be of the
// same account: a reference must not lead to what another account has changed since.
func (s *state) mayName(e, other *entry) bool { return s.open || e.Account == other.Account }

// leaveOut marks an entry as not served because it cannot be built.
func (s *state) leaveOut(id string) {
	e := *s.entries[id]
	e.def, e.unbuilt, e.faults = nil, true, source.Faults{{File: id, Message: "its agents or their tools cannot be set up; see the log of the server"}}
	s.entries[id] = &e
}

// definitions returns the configurations to serve, by entry.
func (s *state) definitions() map[string]*config.Config {
	defs := make(map[string]*config.Config, len(s.entries))
	for id, e := range s.entries {
		if e.def != nil {
			defs[id] = e.def
		}
	}
	return defs
}

// after returns the catalog after a change. Entries that are put have version 0 until commit.
func (s *state) after(c catalog.Change) catalog.Snapshot {
	next := make(map[string]catalog.Entry, len(s.entries)+len(c.Put))
	for id, e := range s.entries {
		next[id] = e.Entry
	}
	for _, id := range c.Delete {
		delete(next, id)
	}
	for _, e := range c.Put {
		next[e.ID] = e
	}
	return catalog.Snapshot{Version: s.version, Entries: slices.Collect(maps.Values(next))}
}

// missingParts returns the error for a valid entry that needs something the server does not have,
// such as an API key.
func missingParts(e *entry) error {
	err := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonInitializationFailed, "these agents cannot be set up")
	for _, f := range e.faults {
		err.Message += "; " + f.Message
	}
	return err.With(e.ID, e.faults[0].Message)
}

// commit sets the version of the catalog and of the entries that the change put.
func (s *state) commit(version int64) {
	s.version = version
	for _, e := range s.entries {
		if e.Version == 0 {
			e.Version = version
		}
	}
}

// fits returns an error if next has too many entries, if an entry that the change puts cannot be
// served, or if an entry that was served no longer can be. field returns the field of the request
// that a fault is about.
func (s *state) fits(next *state, c catalog.Change, field func(*entry, source.Fault) string) error {
	for _, p := range c.Put {
		if len(next.entries) > maxEntries || len(next.entries) > len(s.entries) && next.ofAccount(p.Account) > maxOfAccount {
			return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
				"there are too many teams and agents: an account may have %d, and all accounts together %d; delete some", maxOfAccount, maxEntries)
		}
	}
	for _, p := range c.Put {
		switch e := next.entries[p.ID]; {
		case e.def != nil:
		case slices.ContainsFunc(e.faults, func(f source.Fault) bool { return f.File == e.ID }):
			return invalid(violations(e.faults, func(f source.Fault) string { return field(e, f) }))
		default:
			return missingParts(e)
		}
	}
	for id, e := range s.entries {
		if now := next.entries[id]; e.def != nil && now != nil && now.def == nil {
			return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig,
				"%q depends on what this change removes: %s; change it first", id, now.faults[0].Message)
		}
	}
	return nil
}

// ofAccount returns the number of entries of an account.
func (s *state) ofAccount(account string) (n int) {
	for _, e := range s.entries {
		if e.Account == account {
			n++
		}
	}
	return n
}
