package machine

import (
	"fmt"
	"slices"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// States, by their short names.
const (
	completed = "COMPLETED"
	failed    = "FAILED"
	rejected  = "REJECTED"
	canceled  = "CANCELED"
	working   = "WORKING"
	required  = "INPUT_REQUIRED"
)

// task is what the model knows of a task. Its number stands for its id, which is
// another one in every world.
type task struct {
	n         int
	owner     *owner
	agent     string
	context   string // as the client named it; empty: the server did
	text      string
	state     string
	history   []string
	artifact  string // empty: none
	questions []string
	pending   []string // taken while it works, not on record
	answers   map[string]string
	hooks     map[string]string // URLs of push configurations, by id
}

// owner is who tasks belong to. Both owners use the same message ids, and the
// same names of contexts.
type owner struct {
	name  string
	tasks []*task
	sent  []*sent
}

// sent is a message that was taken, for repetition.
type sent struct {
	id, text, agent, context string
	task                     *task  // it began, or was left for; nil: it was answered with a message
	child                    string // of the task, that it was left for: "~1"
	began                    bool   // it began the task
	direct                   bool
}

// begin is the task that a message begins, once all is quiet.
func begin(n int, o *owner, agent, context, text string) *task {
	t := &task{n: n, owner: o, agent: agent, context: context, text: text, history: []string{text}, answers: map[string]string{}, hooks: map[string]string{}}
	switch agent {
	case echoes:
		t.end(completed, "echo: "+text)
	case direct:
		t.end(completed, "direct: "+text)
	case streams:
		t.end(completed, text)
	case fails:
		t.end(failed, "")
	case refuses:
		t.end(rejected, "no")
	case gates:
		t.state = working
	case asks:
		t.wait("who?")
	case twice:
		t.wait("one?")
	case pair:
		t.wait("left?", "right?")
	}
	return t
}

func (t *task) end(state, artifact string) {
	t.state, t.artifact, t.questions = state, artifact, nil
	t.record()
}

func (t *task) wait(questions ...string) { t.state, t.questions = required, questions }

// record puts what is pending on record: it came too late, or a new driver reads it.
func (t *task) record() {
	t.history = append(t.history, t.pending...)
	t.pending = nil
}

func (t *task) terminal() bool { return t.state != working && t.state != required }

// answer answers an open question.
func (t *task) answer(question, text string) {
	t.history = append(t.history, question, text)
	t.answers[question] = text
	t.questions = slices.DeleteFunc(slices.Clone(t.questions), func(q string) bool { return q == question })
	switch {
	case question == "one?":
		t.wait("two?")
	case len(t.questions) > 0:
	case t.agent == pair:
		t.end(completed, "## left\n\n"+t.answers["left?"]+"\n\n## right\n\n"+t.answers["right?"])
	case t.agent == twice:
		t.end(completed, t.answers["one?"]+"\n"+t.answers["two?"])
	default:
		t.end(completed, text)
	}
}

// open opens its gate.
func (t *task) open() { t.end(completed, "through: "+t.text) }

// taken is a message that the task takes as it is: an answer where one question
// is open, else something it finds later.
func (t *task) taken(text string) {
	if t.state == required {
		t.answer(t.questions[0], text)
		return
	}
	t.pending = append(t.pending, text)
}

// picture is what a caller sees of a task.
type picture struct {
	State     string
	History   []string
	Artifact  string
	Questions []string
}

func (t *task) picture() picture {
	q := slices.Sorted(slices.Values(t.questions))
	return picture{State: t.state, History: t.history, Artifact: t.artifact, Questions: q}
}

// String names the task in outcomes.
func (t *task) String() string { return fmt.Sprint("task ", t.n) }

func (t *task) describe() string { return fmt.Sprintf("%v %+v", t, t.picture()) }

// stateOf is the wire's name of a state.
func stateOf(short string) a2av1.TaskState {
	return a2av1.TaskState(a2av1.TaskState_value["TASK_STATE_"+short])
}

func short(s a2av1.TaskState) string { return strings.TrimPrefix(s.String(), "TASK_STATE_") }

// GoString names the owner in the log of a sequence.
func (o *owner) GoString() string { return o.name }
