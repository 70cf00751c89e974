package remote

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/forms"
	"github.com/agentteams/team-server/pkg/agent"
)

// errLeft means that the consumer of the sequence has stopped it, so that no more events are
// yielded.
var errLeft = errors.New("the reader has stopped")

// call is one call of Process: its request, and where its events go.
type call struct {
	ctx   context.Context //nolint:containedctx // a call does not outlive its context
	req   *teamv1.ProcessRequest
	run   *agent.Run
	key   string
	past  past
	yield func(*teamv1.Event, error) bool

	state   a2av1.TaskState // last known state of the peer's task
	sent    bool            // this call may have delivered a message to the peer
	replied bool            // the call has its reply
	settled bool            // the end of ctx has been handled at the peer
	late    bool            // the call ended because it exceeded a limit; the peer is then asked to cancel only once
	silence silence
}

// newCall returns the call for a request. A nil yield is for calls that yield no events.
func newCall(ctx context.Context, req *teamv1.ProcessRequest, yield func(*teamv1.Event, error) bool) *call {
	run := agent.From(ctx)
	c := &call{ctx: ctx, req: req, run: run, key: keyOf(req, run), past: readPast(req), yield: yield}
	switch {
	case c.past.bound == nil:
	case c.past.waits():
		c.state = a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
	default:
		c.state = a2av1.TaskState_TASK_STATE_WORKING
	}
	return c
}

// keyOf returns the key that identifies the call at the peer.
func keyOf(req *teamv1.ProcessRequest, run *agent.Run) string {
	switch {
	case req.GetKey() != "":
		return req.GetKey()
	case req.GetMessage().GetMessageId() != "":
		return req.GetMessage().GetMessageId()
	}
	return run.ID(req.GetScope(), "call", 1)
}

// emit yields an event in the scope of the call. It returns errLeft if the consumer has stopped.
func (c *call) emit(e *teamv1.Event) error {
	e.Scope = c.req.GetScope()
	if e.Agent == "" {
		e.Agent = agent.Path(c.req)
	}
	if !c.yield(e, nil) {
		return errLeft
	}
	return nil
}

// reply yields the reply of the call.
func (c *call) reply(r *teamv1.Reply) error {
	c.replied = true
	return c.emit(&teamv1.Event{Kind: &teamv1.Event_Reply{Reply: r}})
}

// asked yields a question.
func (c *call) asked(q *teamv1.Asked) error {
	return c.emit(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
}

// bind records the peer's task and waits until that is durable, before any other event of the task
// is yielded. After a crash, the call continues with that task instead of sending the message
// again.
func (c *call) bind(b *teamv1.Bound) error {
	if err := c.emit(&teamv1.Event{Kind: &teamv1.Event_Bound{Bound: b}}); err != nil {
		return err
	}
	return agent.Commit(c.ctx)
}

// finish ends the sequence with an error, if there is one. It yields none after ErrShutdown and
// ErrFenced.
func (c *call) finish(err error) {
	cause := context.Cause(c.ctx)
	switch {
	case err == nil, errors.Is(err, errLeft):
	case errors.Is(cause, agent.ErrShutdown), errors.Is(cause, agent.ErrFenced):
	default:
		c.yield(nil, err)
	}
}

// answerKey returns the key of the message that answers a question. It is the same each time the
// answer is sent.
func (c *call) answerKey(question string) string {
	return c.run.ID(c.req.GetScope(), "answer/"+c.key+"/"+question, 1)
}

// question returns the id of a peer's question in our run. It is the peer's id, made unique by the
// scope.
func (c *call) question(theirs string) string { return agent.Scope(c.req.GetScope(), theirs) }

// budget returns a peer's request for more budget as ours; nil for nil. The limit is that of an agent
// below us, so a grant raises none of ours.
func (c *call) budget(theirs *teamv1.BudgetRequest) *teamv1.BudgetRequest {
	if theirs == nil {
		return nil
	}
	return &teamv1.BudgetRequest{
		Limit: theirs.GetLimit(), SetBy: agent.Path(c.req) + "/" + clip(theirs.GetSetBy()), Value: theirs.GetValue(),
		Spent: theirs.GetSpent(), Reserved: theirs.GetReserved(), Least: theirs.GetLeast(), Most: theirs.GetMost(),
	}
}

// approval returns a peer's request for an approval as ours; nil for nil. The call is made by an agent
// below us.
func (c *call) approval(theirs *teamv1.ApprovalRequest) *teamv1.ApprovalRequest {
	if theirs == nil {
		return nil
	}
	ours := proto.CloneOf(theirs)
	ours.By = agent.Path(c.req) + "/" + clip(theirs.GetBy())
	return ours
}

// toolQuestion returns a question that a peer's tool asks as ours; nil for nil. The call is made by an
// agent below us. It returns nil as well if answers cannot be checked here; the peer checks them then.
func (c *call) toolQuestion(theirs *teamv1.ToolQuestion) *teamv1.ToolQuestion {
	if _, err := forms.ParseToolForm(theirs); err != nil || theirs == nil {
		return nil
	}
	ours := proto.CloneOf(theirs)
	ours.By = agent.Path(c.req) + "/" + clip(theirs.GetBy())
	return ours
}

// foreign returns a copy of one of our messages for a peer, with id as its id. It omits our task
// and context ids, which have no meaning there.
func foreign(m *a2av1.Message, id string) *a2av1.Message {
	c := &a2av1.Message{}
	if m != nil {
		c = proto.CloneOf(m)
	}
	c.MessageId, c.TaskId, c.ContextId, c.ReferenceTaskIds = id, "", "", nil
	c.Role = a2av1.Role_ROLE_USER
	return c
}

// foreignAll returns a history for a peer.
func foreignAll(history []*a2av1.Message) []*a2av1.Message {
	var all []*a2av1.Message
	for _, m := range history {
		c := foreign(m, m.GetMessageId())
		c.Role = m.GetRole()
		all = append(all, c)
	}
	return all
}

// own returns a copy of a peer's message for our record, without the peer's task and context ids;
// nil for nil.
func own(m *a2av1.Message) *a2av1.Message {
	if m == nil {
		return nil
	}
	c := proto.CloneOf(m)
	c.TaskId, c.ContextId, c.ReferenceTaskIds = "", "", nil
	c.Role = a2av1.Role_ROLE_AGENT
	return c
}

// past holds what earlier calls have recorded. Progress and text deltas may be missing from it,
// because they are not needed to resume.
type past struct {
	bound     *teamv1.Bound
	silent    bool                        // the task was canceled because the peer was silent
	artifacts int                         // number of Artifact events since bound
	progress  map[string]bool             // ids of progress messages
	begun     bool                        // the peer has sent text in a message since bound and the latest answer
	streamed  bool                        // the peer has sent a part of an artifact since then
	asked     []*teamv1.Asked             // in order
	answers   []*teamv1.Answered          // since bound, in order
	newest    *teamv1.Answered            // the latest of all answers
	answered  map[string]*teamv1.Answered // by our question id
}

// readPast collects the recorded events of the request's scope.
func readPast(req *teamv1.ProcessRequest) past {
	p := past{answered: map[string]*teamv1.Answered{}, progress: map[string]bool{}}
	for _, e := range req.GetRecorded() {
		if e.GetScope() == req.GetScope() {
			p.fold(e)
		}
	}
	return p
}

// fold applies a recorded event.
func (p *past) fold(e *teamv1.Event) {
	switch k := e.GetKind().(type) {
	case *teamv1.Event_Bound:
		if k.Bound.GetSilent() {
			p.silent = true
			return
		}
		p.silent = p.silent && (p.bound == nil || p.bound.GetTaskId() == k.Bound.GetTaskId())
		p.bound, p.artifacts, p.answers, p.begun, p.streamed = k.Bound, 0, nil, false, false
	case *teamv1.Event_Artifact:
		p.artifacts++
		p.streamed = true
	case *teamv1.Event_Progress:
		p.progress[k.Progress.GetMessage().GetMessageId()] = true
		p.begun = p.begun || agent.Text(k.Progress.GetMessage()) != ""
	case *teamv1.Event_Delta:
		p.streamed = true
	case *teamv1.Event_Asked:
		p.asked = append(p.asked, k.Asked)
	case *teamv1.Event_Answered:
		p.answers = append(p.answers, k.Answered)
		p.newest = k.Answered
		p.begun, p.streamed = false, false
		p.answered[k.Answered.GetQuestion()] = k.Answered
	}
}

// waits reports whether the latest question has no answer.
func (p *past) waits() bool {
	return len(p.asked) > 0 && p.answered[p.asked[len(p.asked)-1].GetQuestion()] == nil
}

// wasAsked reports whether a question is recorded. question is our id of it.
func (p *past) wasAsked(question string) bool {
	return slices.ContainsFunc(p.asked, func(a *teamv1.Asked) bool { return a.GetQuestion() == question })
}
