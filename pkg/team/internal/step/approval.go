package step

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Approval is what people have answered to the request to approve a tool call or a delegation.
type Approval struct {
	// Request is what they were asked about.
	Request *teamv1.ApprovalRequest
	// Answer is what they decided; nil if the question expired.
	Answer *teamv1.Approval
}

// rejects reports whether the call must not begin.
func (a *Approval) rejects() bool {
	switch a.Answer.GetDecision() {
	case teamv1.Approval_DECISION_APPROVE, teamv1.Approval_DECISION_APPROVE_ALL:
		return false
	case teamv1.Approval_DECISION_REJECT, teamv1.Approval_DECISION_UNSPECIFIED:
	}
	return true
}

// arguments returns the arguments that were approved.
func (a *Approval) arguments() string {
	return cmp.Or(a.Answer.GetArguments(), a.Request.GetArguments())
}

// approve begins tool calls and delegations that need the approval of people only once they have
// approved, with the arguments that they approved.
func approve(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		a := w.Approval
		if a != nil && a.rejects() {
			return a.rejection()
		}
		by, req := w.approvers()
		switch {
		case req == nil, w.Attempts > 0 && a == nil: // no approval is needed, or it began without
			return next(ctx, w)
		case a == nil && w.by.Run.Allowed(AllowKey(req)):
			return next(ctx, w)
		case a == nil || w.Attempts == 0 && a.differs(req):
			return w.askApproval(by, req)
		}
		w.useApproved()
		return next(ctx, w)
	}
}

// differs reports whether the call has changed since it was approved: its tool or, for a delegation,
// what the member is given.
func (a *Approval) differs(now *teamv1.ApprovalRequest) bool {
	return a.Request.GetVersion() != now.GetVersion() || now.GetTool() == "" && a.Request.GetHash() != now.GetHash()
}

// approvers returns who decides about the step, and what they decide about. It returns nil for both
// if the step needs no approval and has none.
func (w *Work) approvers() (*agent.Approvers, *teamv1.ApprovalRequest) {
	var by *agent.Approvers
	req := &teamv1.ApprovalRequest{By: w.by.Path}
	switch {
	case agent.IsDelegation(w.Step.GetKind()):
		if w.Approve != nil {
			by = w.Approve(w.Input)
		}
		req.Member, req.Arguments, req.Hash = w.Step.GetMember(), agent.Prompt(w.Input), agent.HashOf(prompt.HandedOver(w.Input))
	case w.Step.GetKind() == teamv1.Step_KIND_TOOL:
		tool, ok := w.by.Tools.find(w.Step.GetName())
		arguments, valid := toolArguments(w.Arguments)
		if !ok || !valid {
			return nil, nil // it is not called
		}
		if t, ok := tool.(agent.ApprovedTool); ok {
			by = t.Approvers(arguments)
		}
		spec := tool.Spec()
		req.Tool, req.Arguments = w.Step.GetName(), string(arguments)
		req.Version = agent.HashOf(spec.Description, string(spec.Parameters))
		if w.Approval != nil { // the tool has changed, and people may have changed the arguments before
			req.Arguments = w.Approval.arguments()
		}
		req.Hash = agent.HashOf(req.GetArguments())
	}
	if by == nil && w.Approval == nil {
		return nil, nil
	}
	return by, req
}

// AllowKey returns the key of the calls that an approval of all later calls allows, for agent.Run. A
// tool that has changed has another key.
func AllowKey(r *teamv1.ApprovalRequest) string {
	return strings.Join([]string{r.GetBy(), r.GetTool(), r.GetMember(), r.GetVersion()}, "\x00")
}

// useApproved makes the step use the arguments that were approved, or the text that people have
// changed. The member's files are kept; data parts are dropped, because the text includes them.
func (w *Work) useApproved() {
	switch {
	case w.Approval.Request.GetTool() != "":
		own, _ := toolArguments(w.Arguments)
		w.Arguments = w.Approval.arguments()
		w.edited = w.Arguments != string(own)
	case w.Approval.Answer.GetArguments() != "":
		changed := proto.CloneOf(w.Input)
		changed.Parts = agent.TextParts(w.Approval.Answer.GetArguments())
		for _, p := range w.Input.GetParts() {
			if agent.IsFile(p) {
				changed.Parts = append(changed.Parts, p)
			}
		}
		if w.Fill != nil {
			changed = w.Fill(changed)
		}
		w.Input, w.edited = changed, true
	}
}

// withEdit returns the result of a tool call. If people have changed the arguments, it begins with
// them, because the model knows only its own.
func (w *Work) withEdit(r *teamv1.ToolResult) *teamv1.ToolResult {
	if !w.edited || r == nil {
		return r
	}
	r = proto.CloneOf(r)
	r.Text = fmt.Sprintf("A person changed the arguments of this call to %s. The result:\n%s", w.Arguments, r.GetText())
	return r
}

// given returns what a member is given, if it is not what was decided; else nil.
func (w *Work) given() *teamv1.Input {
	if w.edited && w.Step.GetKind() != teamv1.Step_KIND_TOOL {
		return &teamv1.Input{Message: w.Input}
	}
	return w.Checks.given()
}

// rejection returns the result of a step that people have rejected. The model that made a tool call is
// told why.
func (a *Approval) rejection() Result {
	r, why := a.Request, "a person rejected it"
	switch reason := a.Answer.GetReason(); {
	case a.Answer == nil:
		why = "it was not approved in time"
	case reason != "":
		why += ": " + reason
	}
	if r.GetTool() != "" {
		text := fmt.Sprintf("The call of %s did not begin, because %s", r.GetTool(), why)
		return Result{notStarted: true, Reply: &teamv1.Reply{
			Outcome: teamv1.Outcome_OUTCOME_REJECTED, Result: &teamv1.Reply_Tool{Tool: &teamv1.ToolResult{Text: text, IsError: true}},
		}}
	}
	return Result{rejected: true, notStarted: true, Err: agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonApprovalRejected,
		"the task for member %q did not begin, because %s", r.GetMember(), why)}
}

// maxShownForApproval is the maximum number of bytes of the arguments that the text of a question
// shows. All of them are in its ApprovalRequest.
const maxShownForApproval = 4000

// askApproval asks people about a call. If by is nil, no approval is needed any more, but the call has
// changed since people decided about it.
func (w *Work) askApproval(by *agent.Approvers, req *teamv1.ApprovalRequest) Result {
	if by == nil {
		by = &agent.Approvers{}
	}
	text := fmt.Sprintf("%q wants to call the tool %s.", w.by.Path, req.GetTool())
	what, these := "the arguments", "These are the arguments"
	if req.GetTool() == "" {
		text, what = fmt.Sprintf("%q wants to give member %q a task.", w.by.Path, req.GetMember()), "the task"
		these = "This is the task"
	}
	if w.Approval != nil {
		text += " It has changed since it was approved."
	}
	text += fmt.Sprintf(` Answer "approve", "approve all" (later ones in this task too), "reject: REASON", or "edit: " and %s as changed. %s:`+"\n", what, these)
	text += agent.Excerpt(req.GetArguments(), maxShownForApproval)
	if n := len(req.GetArguments()); n > maxShownForApproval {
		text += fmt.Sprintf("\n… (the first %d of %d bytes; SHA-256 %s)", maxShownForApproval, n, agent.HashOf(req.GetArguments()))
	}
	res := w.ask(&teamv1.Asked{
		Kind: teamv1.Asked_KIND_APPROVAL, Roles: by.Roles, Approval: req,
		Message: &a2av1.Message{Parts: QuestionParts(&teamv1.Ask{Question: text, Options: []string{agent.WordApprove, agent.WordApproveAll, agent.WordReject}})},
	}, by.Expires)
	res.notStarted = true
	return res
}

// toolArguments returns the arguments of a tool call as the tool is given them. It reports whether they
// are JSON.
func toolArguments(text string) (json.RawMessage, bool) {
	arguments := strings.TrimSpace(text)
	if arguments == "" {
		arguments = "{}"
	}
	if !json.Valid([]byte(arguments)) {
		return nil, false
	}
	if inner, ok := prompt.Unwrap(arguments); ok {
		arguments = inner
	}
	return json.RawMessage(arguments), true
}
