package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// patience is the deadline of each call of a client.
const patience = 30 * time.Second

// job is a message that begins a task, and what its sender knows of it.
type job struct {
	owner, agent, id string
	task             string           // the task, once it was acknowledged
	state            a2av1.TaskState  // the latest that was seen
	inputs           map[string]input // later messages, by id
	order            []string         // of inputs
	canceled         bool             // a cancel was answered
	open             int              // calls that are not answered yet
	waits            int              // those that wait for the end
}

type input struct{ acked, refused bool }

// answer is how a call of a client ended.
type answer struct {
	n    int
	what string
	job  *job
	take func() string // applies it to the job, and describes it
}

// callKey is the key of the number of a call in its context.
type callKey struct{}

// call makes a call to a replica in a goroutine of its own.
func (w *world) call(n *node, what string, j *job, do func(ctx context.Context) (*a2av1.Task, error), taken func(*a2av1.Task, error)) {
	w.clients++
	j.open++
	number := w.clients
	a := answer{n: w.clients, what: fmt.Sprintf("call %d: %s of %s at %s", w.clients, what, j.id, n.name), job: j}
	w.gate.note("%s", a.what)
	w.calling.Go(func() {
		ctx, stop := context.WithTimeout(context.WithValue(caller(n.ctx, j.owner), callKey{}, number), patience)
		defer stop()
		task, err := do(ctx)
		a.take = func() string {
			j.open--
			if task != nil {
				w.saw(j, task)
			}
			taken(task, err)
			if err != nil {
				return fault(err)
			}
			return task.GetStatus().GetState().String()
		}
		w.gate.mu.Lock()
		defer w.gate.mu.Unlock()
		w.answers = append(w.answers, a)
	})
	settle()
	w.collect()
}

// fault is the reason of an error.
func fault(err error) string {
	var e *agent.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	var p *a2aerror.Error
	if errors.As(err, &p) {
		return p.Reason
	}
	return brief(err)
}

// collect applies the answers that have arrived, in the order of the calls.
func (w *world) collect() {
	w.gate.mu.Lock()
	all := w.answers
	w.answers = nil
	w.gate.mu.Unlock()
	slices.SortFunc(all, func(a, b answer) int { return cmp.Compare(a.n, b.n) })
	for _, a := range all {
		w.gate.note("%s: %s", a.what, a.take())
	}
}

// saw checks a task against what its client knows of it.
func (w *world) saw(j *job, t *a2av1.Task) {
	state := t.GetStatus().GetState()
	if j.task != "" && t.GetId() != j.task {
		w.gate.wrong("%s is task %s, and was %s", j.id, t.GetId(), j.task)
	}
	if taskstate.Final(j.state) { // an answer that was under way for long may be older than the end
		if taskstate.Final(state) && state != j.state {
			w.gate.wrong("%s has ended as %v, and as %v", j.id, j.state, state)
		}
		return
	}
	j.task, j.state = t.GetId(), state
}

// send sends the message of a job, for the first time or again.
func (w *world) send(n *node, j *job, wait bool) {
	wait = wait && j.waits == 0 // which of two readers reads the store for both is not repeated
	if wait {
		j.waits++
	}
	w.call(n, "send", j, func(ctx context.Context) (*a2av1.Task, error) {
		resp, err := n.SendMessage(ctx, message(j.agent, "", j.id, "text of "+j.id, !wait))
		return resp.GetTask(), err
	}, func(*a2av1.Task, error) {
		if wait {
			j.waits--
		}
	})
}

// get gets the task of a job.
func (w *world) get(n *node, j *job) {
	id := j.task
	w.call(n, "get", j, func(ctx context.Context) (*a2av1.Task, error) {
		return n.GetTask(ctx, &a2av1.GetTaskRequest{Id: id})
	}, func(_ *a2av1.Task, err error) {
		if err != nil && fault(err) == "TASK_NOT_FOUND" {
			w.gate.wrong("%s: task %s is not found", j.id, id)
		}
	})
}

// cancel cancels the task of a job.
func (w *world) cancel(n *node, j *job) {
	id := j.task
	w.call(n, "cancel", j, func(ctx context.Context) (*a2av1.Task, error) {
		return n.CancelTask(ctx, &a2av1.CancelTaskRequest{Id: id})
	}, func(t *a2av1.Task, err error) {
		if err == nil && t.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_CANCELED {
			j.canceled = true
		}
	})
}

// say sends a message to the task of a job: it is the answer if the task asks.
func (w *world) say(n *node, j *job, id string) {
	task := j.task
	if _, known := j.inputs[id]; !known {
		j.order = append(j.order, id)
		j.inputs[id] = input{}
	}
	w.call(n, "message "+id, j, func(ctx context.Context) (*a2av1.Task, error) {
		resp, err := n.SendMessage(ctx, message("", task, id, "more of "+id, true))
		return resp.GetTask(), err
	}, func(_ *a2av1.Task, err error) {
		in := j.inputs[id]
		switch {
		case err == nil:
			in.acked = true
		case fault(err) == "UNSUPPORTED_OPERATION":
			in.refused = true
		}
		j.inputs[id] = in
	})
}

// act makes a random call.
func (w *world) act() {
	n := w.living()
	if n == nil {
		return
	}
	if len(w.jobs) < w.most && (len(w.jobs) == 0 || chance(w.rand, 1, 3)) {
		j := &job{id: fmt.Sprint("m", len(w.jobs)), owner: []string{"ann", "bob"}[w.rand.IntN(2)], agent: []string{one, flow, asks}[w.rand.IntN(3)], inputs: map[string]input{}}
		w.jobs = append(w.jobs, j)
		w.send(n, j, chance(w.rand, 1, 4))
		return
	}
	j := w.jobs[w.rand.IntN(len(w.jobs))]
	switch p := w.rand.IntN(12); {
	case j.open > 2:
		w.advance()
	case j.task == "":
		w.send(n, j, false)
	case p < 2 && w.with.repeats:
		w.send(n, j, chance(w.rand, 1, 4))
	case p < 4 && w.with.cancels && chance(w.rand, 1, 2):
		w.cancel(n, j)
	case p < 8 && w.with.messages:
		id := fmt.Sprintf("%s-%d", j.id, len(j.order))
		if len(j.order) > 0 && chance(w.rand, 1, 3) {
			id = j.order[w.rand.IntN(len(j.order))] // again
		}
		w.say(n, j, id)
	default:
		w.get(n, j)
	}
}
