package remote

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// errLeft: the reader of the sequence took a break; nothing more is yielded.
var errLeft = errors.New("the reader has left")

// call is one Process: what it was asked, and where its events go.
type call struct {
	ctx   context.Context //nolint:containedctx // a call is its context's own, and no longer
	req   *teamv1.ProcessRequest
	run   *agent.Run
	key   string
	past  past
	yield func(*teamv1.Event, error) bool

	state   a2av1.TaskState // of the peer's task, as it was last heard of
	sent    bool            // the peer may have got the message from this call
	replied bool            // the call has its reply
	settled bool            // what the end of ctx means for the peer was done
	late    bool            // the call ended for a limit: the peer is told once
}

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

// keyOf is what makes the call unique at the peer.
func keyOf(req *teamv1.ProcessRequest, run *agent.Run) string {
	switch {
	case req.GetKey() != "":
		return req.GetKey()
	case req.GetMessage().GetMessageId() != "":
		return req.GetMessage().GetMessageId()
	}
	return run.ID(req.GetScope(), "call", 1)
}

// emit yields an event of the call's own scope.
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

func (c *call) reply(r *teamv1.Reply) error {
	c.replied = true
	return c.emit(&teamv1.Event{Kind: &teamv1.Event_Reply{Reply: r}})
}

func (c *call) asked(q *teamv1.Asked) error {
	return c.emit(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})
}

// bind records which task of the peer works for this call, before anything else
// comes of it: whoever continues reattaches instead of sending again.
func (c *call) bind(b *teamv1.Bound) error {
	if err := c.emit(&teamv1.Event{Kind: &teamv1.Event_Bound{Bound: b}}); err != nil {
		return err
	}
	return agent.Commit(c.ctx)
}

// finish ends the sequence. After ErrShutdown and ErrFenced nothing is yielded.
func (c *call) finish(err error) {
	cause := context.Cause(c.ctx)
	switch {
	case err == nil, errors.Is(err, errLeft):
	case errors.Is(cause, agent.ErrShutdown), errors.Is(cause, agent.ErrFenced):
	default:
		c.yield(nil, err)
	}
}

// answerKey is the key of the message that answers a question: the same when it
// is sent again.
func (c *call) answerKey(question string) string {
	return c.run.ID(c.req.GetScope(), "answer/"+c.key+"/"+question, 1)
}

// question is our id of a peer's question: its own, made unique in this root.
func (c *call) question(theirs string) string { return agent.Scope(c.req.GetScope(), theirs) }

// foreign returns a message of ours as a peer may see it: without our ids of
// tasks and conversations, which mean something else there.
func foreign(m *a2av1.Message, id string) *a2av1.Message {
	c := &a2av1.Message{}
	if m != nil {
		c = proto.CloneOf(m)
	}
	c.MessageId, c.TaskId, c.ContextId, c.ReferenceTaskIds = id, "", "", nil
	c.Role = a2av1.Role_ROLE_USER
	return c
}

// foreignAll is history as a peer may see it.
func foreignAll(history []*a2av1.Message) []*a2av1.Message {
	var all []*a2av1.Message
	for _, m := range history {
		c := foreign(m, m.GetMessageId())
		c.Role = m.GetRole()
		all = append(all, c)
	}
	return all
}

// own returns a peer's message as it enters our record, without its ids of
// tasks and conversations.
func own(m *a2av1.Message) *a2av1.Message {
	if m == nil {
		return nil
	}
	c := proto.CloneOf(m)
	c.TaskId, c.ContextId, c.ReferenceTaskIds = "", "", nil
	c.Role = a2av1.Role_ROLE_AGENT
	return c
}

// past is what the call has on record. Progress and deltas may be missing: nobody
// needs them to resume.
type past struct {
	bound     *teamv1.Bound
	artifacts int                         // pieces of artifacts since bound
	progress  map[string]bool             // message ids of progress
	asked     []*teamv1.Asked             // in order
	answers   []*teamv1.Answered          // since bound, in order
	newest    *teamv1.Answered            // of all answers
	answered  map[string]*teamv1.Answered // by our question id
}

func readPast(req *teamv1.ProcessRequest) past {
	p := past{answered: map[string]*teamv1.Answered{}, progress: map[string]bool{}}
	for _, e := range req.GetRecorded() {
		if e.GetScope() == req.GetScope() {
			p.fold(e)
		}
	}
	return p
}

func (p *past) fold(e *teamv1.Event) {
	switch k := e.GetKind().(type) {
	case *teamv1.Event_Bound:
		p.bound, p.artifacts, p.answers = k.Bound, 0, nil
	case *teamv1.Event_Artifact:
		p.artifacts++
	case *teamv1.Event_Progress:
		p.progress[k.Progress.GetMessage().GetMessageId()] = true
	case *teamv1.Event_Asked:
		p.asked = append(p.asked, k.Asked)
	case *teamv1.Event_Answered:
		p.answers = append(p.answers, k.Answered)
		p.newest = k.Answered
		p.answered[k.Answered.GetQuestion()] = k.Answered
	}
}

// waits reports whether the newest question has no answer.
func (p *past) waits() bool {
	return len(p.asked) > 0 && p.answered[p.asked[len(p.asked)-1].GetQuestion()] == nil
}

// wasAsked reports whether a question, by our id, is on record.
func (p *past) wasAsked(question string) bool {
	return slices.ContainsFunc(p.asked, func(a *teamv1.Asked) bool { return a.GetQuestion() == question })
}
