package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/testkit/sample"
)

// models compares a store with a simple model under random calls.
func models(t *testing.T, open Open) {
	t.Run("A-16 a store does what the model does", func(t *testing.T) {
		sample.Checks(t, 100)
		rapid.Check(t, func(rt *rapid.T) {
			check := &scope{TB: t}
			defer check.end()
			r := newRig(check, open)
			r.failer = rt
			m := &model{rig: r, tasks: map[string]*modelTask{}, requests: map[string]modelRequest{}}
			rt.Repeat(map[string]func(*rapid.T){
				"create": m.create, "put": m.put, "claim": m.claim, "take": m.take,
				"start": m.start, "end": m.end, "park": m.park, "pass": m.pass, "": m.check,
			})
		})
	})
}

// scope is a part of a test with its own cleanup functions.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup calls f at the end of the scope.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// model is a simple store for one owner, with which the store under test is compared.
type model struct {
	*rig
	tasks    map[string]*modelTask
	requests map[string]modelRequest // by message id
}

// modelTask is a task of the model.
type modelTask struct {
	id       string
	state    a2av1.TaskState
	statusAt time.Time
	rows     []int64 // unread
	lastRow  int64
	claim    *runs.Claim
	due      time.Time // zero is never
	ended    bool
}

// modelRequest is the result of a request, stored by its message id.
type modelRequest struct {
	digest, root string
	n            int64
	at           time.Time
}

func (m *model) known(id string) (modelRequest, bool) {
	q, ok := m.requests[id]
	return q, ok && m.clock.Now().Sub(q.at) < 24*time.Hour
}

func (m *model) create(t *rapid.T) {
	n := task(id(len(m.tasks)))
	n.MessageID = rapid.SampledFrom([]string{"m1", "m2", "m3", "m4", "m5"}).Draw(t, "message")
	digest := rapid.SampledFrom([]string{"d1", "d1", "d2"}).Draw(t, "digest")
	n.Digest = []byte(digest)
	root, existed, err := m.Create(m.ctx(), n)
	if q, known := m.known(n.MessageID); known {
		m.repeated(q, digest, "", root, q.n, existed, err)
		return
	}
	if err != nil || existed || root != n.Accepted.GetTaskId() {
		t.Fatalf("Create = %q, %v, %v", root, existed, err)
	}
	now := m.clock.Now()
	m.requests[n.MessageID] = modelRequest{digest: digest, root: root, at: now}
	m.tasks[root] = &modelTask{id: root, state: a2av1.TaskState_TASK_STATE_SUBMITTED, statusAt: now, due: now}
}

// repeated checks the result of a repeated request.
func (m *model) repeated(q modelRequest, digest, wantRoot, root string, n int64, existed bool, err error) {
	m.Helper()
	if q.digest != digest || wantRoot != "" && wantRoot != q.root {
		if existed || !errors.Is(err, runs.ErrReused) {
			m.Fatalf("reused message: %v, %v, want ErrReused", existed, err)
		}
		return
	}
	if !existed || err != nil || root != q.root || n != q.n {
		m.Fatalf("repeated message: %s, %d, %v, %v, want %+v", root, n, existed, err, q)
	}
}

// draw returns a random task that ok accepts. It skips the action if there is none.
func (m *model) draw(t *rapid.T, ok func(*modelTask) bool) *modelTask {
	var fit []string
	for id, task := range m.tasks {
		if ok(task) {
			fit = append(fit, id)
		}
	}
	if len(fit) == 0 {
		t.Skip("none")
	}
	slices.Sort(fit)
	return m.tasks[rapid.SampledFrom(fit).Draw(t, "task")]
}

func anyTask(*modelTask) bool   { return true }
func claimed(t *modelTask) bool { return t.claim != nil }
func running(t *modelTask) bool { return t.claim != nil && !t.ended }

func (m *model) put(t *rapid.T) {
	task := m.draw(t, anyTask)
	message := rapid.SampledFrom([]string{"m1", "m2", "f1", "f2", "f3", "f4", "f5"}).Draw(t, "message")
	n, existed, err := m.Put(m.ctx(), key(task.id), followUp(message), []byte("d1"), nil)
	if q, known := m.known(message); known {
		m.repeated(q, "d1", task.id, task.id, n, existed, err)
		return
	}
	if task.ended {
		if existed || !errors.Is(err, runs.ErrTerminal) {
			t.Fatalf("Put after the end = %v, %v, want ErrTerminal", existed, err)
		}
		return
	}
	task.lastRow++
	if n != task.lastRow || existed || err != nil {
		t.Fatalf("Put = %d, %v, %v, want row %d", n, existed, err, task.lastRow)
	}
	task.rows = append(task.rows, n)
	m.requests[message] = modelRequest{digest: "d1", root: task.id, n: n, at: m.clock.Now()}
	if task.claim == nil {
		task.due = m.clock.Now()
	}
}

func (m *model) claim(t *rapid.T) {
	var want []string
	for id, task := range m.tasks {
		if task.claim == nil && !task.due.IsZero() && !task.due.After(m.clock.Now()) {
			want = append(want, id)
		}
	}
	claims := m.claims()
	got := roots(claims)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
	for _, c := range claims {
		m.tasks[c.Root].claim, m.tasks[c.Root].due = &c, time.Time{}
	}
}

func (m *model) take(t *rapid.T) {
	task := m.draw(t, func(t *modelTask) bool { return running(t) && len(t.rows) > 0 })
	rows := m.inbound(*task.claim)
	i := rapid.IntRange(0, len(task.rows)-1).Draw(t, "row")
	m.append(*task.claim, taken(rows[i]))
	task.rows = slices.Delete(task.rows, i, i+1)
}

func (m *model) start(t *rapid.T) {
	task := m.draw(t, running)
	m.append(*task.claim, started(""))
	task.state, task.statusAt = a2av1.TaskState_TASK_STATE_WORKING, m.clock.Now()
}

func (m *model) end(t *rapid.T) {
	task := m.draw(t, running)
	m.append(*task.claim, succeeded())
	task.state, task.statusAt, task.ended, task.rows = a2av1.TaskState_TASK_STATE_COMPLETED, m.clock.Now(), true, nil
}

func (m *model) park(t *rapid.T) {
	task := m.draw(t, claimed)
	p := runs.Park{Done: task.ended}
	if rapid.Bool().Draw(t, "until") {
		p.Until = m.clock.Now().Add(time.Hour)
	}
	m.rig.park(*task.claim, p)
	task.claim = nil
	switch {
	case task.ended:
	case len(task.rows) > 0:
		task.due = m.clock.Now()
	default:
		task.due = p.Until
	}
}

func (m *model) pass(t *rapid.T) {
	m.clock.Move(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Minute, 9 * time.Hour}).Draw(t, "time"))
}

// check compares everything that can be read from the store with the model.
func (m *model) check(*rapid.T) {
	for _, state := range []a2av1.TaskState{0, a2av1.TaskState_TASK_STATE_WORKING, a2av1.TaskState_TASK_STATE_COMPLETED} {
		var want []*modelTask
		for _, task := range m.tasks {
			if state == 0 || task.state == state {
				want = append(want, task)
			}
		}
		slices.SortFunc(want, func(a, b *modelTask) int {
			if d := b.statusAt.Compare(a.statusAt); d != 0 {
				return d
			}
			if a.id > b.id {
				return -1
			}
			return 1
		})
		got, total := m.list(runs.Filter{State: state, PageSize: 3})
		if len(got) != len(want) || total != len(want) {
			m.Fatalf("%d tasks listed, total %d, want %d", len(got), total, len(want))
		}
		for i, t := range got {
			if t.GetId() != want[i].id || t.GetStatus().GetState() != want[i].state {
				m.Fatalf("task %d is %s, %v, want %+v", i, t.GetId(), t.GetStatus().GetState(), want[i])
			}
		}
	}
	for _, task := range m.tasks {
		if task.claim == nil {
			continue
		}
		rows := []int64{}
		for _, in := range m.inbound(*task.claim) {
			rows = append(rows, in.GetN())
		}
		if !slices.Equal(rows, task.rows) && len(rows)+len(task.rows) > 0 {
			m.Fatalf("inbox of %s holds %v, want %v", task.id, rows, task.rows)
		}
	}
}
