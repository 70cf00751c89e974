package simulation

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/taskstate"
)

// check checks what must hold at the end.
func (w *world) check() {
	for _, j := range w.jobs {
		owner := "acme/" + j.owner
		if roots := w.db.sends[owner+" "+j.id]; len(roots) > 1 {
			w.gate.wrong("%s has begun %d tasks", j.id, len(roots))
		}
		if j.task == "" {
			continue // recover reports it
		}
		task, _, err := w.db.Task(context.Background(), runs.Key{Owner: owner, ID: j.task})
		if err != nil {
			w.gate.wrong("the task of %s was acknowledged: %v", j.id, err)
			continue
		}
		w.checkJournal(j, owner, task)
	}
}

// checkJournal checks the journal of a task.
func (w *world) checkJournal(j *job, owner string, task *a2av1.Task) {
	events, log := w.db.events(owner, j.task), w.db.logs[j.task]
	if len(events) != len(log) {
		w.gate.wrong("%s has %d events, of which %d were written", j.task, len(events), len(log))
		return
	}
	starts, ends := map[string]int{}, map[string]int{}
	heard := map[string]int{}
	var epoch int64
	fold := project.New(j.task, "")
	for i, ev := range events {
		fold.Apply(ev)
		if ev.GetSeq() != int64(i+1) || !proto.Equal(ev, log[i].Event) {
			w.gate.wrong("%s: event %d of the journal is %d, and was another when it was written", j.task, i+1, ev.GetSeq())
		}
		if c := ev.GetClaimed(); c != nil {
			if c.GetEpoch() <= epoch {
				w.gate.wrong("%s: epoch %d follows epoch %d", j.task, c.GetEpoch(), epoch)
			}
			epoch = c.GetEpoch()
		}
		if log[i].epoch != epoch {
			w.gate.wrong("%s: epoch %d wrote event %d, in epoch %d", j.task, log[i].epoch, i+1, epoch)
		}
		if i > 0 && ev.GetTime().AsTime().Before(events[i-1].GetTime().AsTime()) {
			w.gate.wrong("%s: the time of event %d is before that of the one before", j.task, i+1)
		}
		count(ev, starts, ends, heard)
	}
	for scope, n := range ends {
		if n > 1 {
			w.gate.wrong("%s: step %q has %d ends", j.task, scope, n)
		}
	}
	w.checkEnd(j, task, fold.State(), events, starts, ends)
	w.checkInputs(j, heard)
}

// count counts what an event says.
func count(ev *teamv1.Event, starts, ends, heard map[string]int) {
	switch {
	case ev.GetStarted().GetAttempt() == 1:
		starts[ev.GetScope()]++
	case ev.GetEnded() != nil:
		ends[ev.GetScope()]++
	case ev.GetReceived() != nil:
		heard[ev.GetReceived().GetMessage().GetMessageId()]++
	case ev.GetAnswered() != nil:
		heard[ev.GetAnswered().GetMessage().GetMessageId()]++
	}
}

// checkEnd checks the end of a task, if it has one.
func (w *world) checkEnd(j *job, task *a2av1.Task, folded a2av1.TaskState, events []*teamv1.Event, starts, ends map[string]int) {
	state := task.GetStatus().GetState()
	if state != folded {
		w.gate.wrong("%s is %v, and its events say %v", j.task, state, folded)
	}
	if taskstate.Final(j.state) && state != j.state {
		w.gate.wrong("%s was seen as %v, and is %v", j.task, j.state, state)
	}
	if j.canceled && state != a2av1.TaskState_TASK_STATE_CANCELED {
		w.gate.wrong("%s was canceled, and is %v", j.task, state)
	}
	for scope, n := range starts {
		if n > 1 && scope == "" {
			w.gate.wrong("%s has started %d times", j.task, n)
		}
		if taskstate.Final(state) && ends[scope] != 1 {
			w.gate.wrong("%s has ended, and its step %q has %d ends", j.task, scope, ends[scope])
		}
	}
	if last := events[len(events)-1]; taskstate.Final(state) && (last.GetEnded() == nil || last.GetScope() != "") {
		w.gate.wrong("%s: event %d follows the end", j.task, last.GetSeq())
	}
}

// checkInputs checks that what was acknowledged is on record, once.
func (w *world) checkInputs(j *job, heard map[string]int) {
	for _, id := range j.order {
		if n := heard[id]; n > 1 || n == 0 && j.inputs[id].acked {
			w.gate.wrong("%s: message %s is %d times on record, acknowledged: %v", j.task, id, n, j.inputs[id].acked)
		}
	}
	for id := range heard {
		if !slices.Contains(j.order, id) {
			w.gate.wrong("%s: message %s was never sent", j.task, id)
		}
	}
}
