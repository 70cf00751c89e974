package team

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// droppable returns the ids of open steps that were not dropped before: a
// decision that says nothing new is none.
func (f *fold) droppable(ids []string) []string {
	var open []string
	for _, id := range ids {
		if st := f.step(id); st != nil && !st.Done && !st.Dropped && !slices.Contains(open, id) {
			open = append(open, id)
		}
	}
	return open
}

// drop marks the open steps that a decision has dropped.
func (f *fold) drop(ids []string) {
	for _, id := range ids {
		if st := f.step(id); st != nil && !st.Done {
			st.Dropped = true
		}
	}
}

// put puts a decision on record. From there on nothing begins in what it drops.
func (p *process) put(d *choice) error {
	for _, id := range d.Cancel {
		p.run.Fence(p.prefix + id)
	}
	if err := p.emit("", &teamv1.Event{Kind: &teamv1.Event_Decided{Decided: p.record(d)}}); err != nil {
		return err
	}
	p.cancelDropped()
	return nil
}

// cancelDropped cancels the open steps that decisions on record have dropped:
// after a crash also those that nobody came to cancel.
func (p *process) cancelDropped() {
	for st := range p.pending() {
		if st.Dropped {
			p.run.Cancel(st.Scope)
		}
	}
}
