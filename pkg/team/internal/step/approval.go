package step

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Decision is the decision of people about a tool call or a delegation.
type Decision struct {
	// Request is what they were asked about.
	Request *teamv1.ApprovalRequest
	// Approval is what they decided.
	Approval *teamv1.Approval
}

// rejected reports whether the call must not begin.
func (d *Decision) rejected() bool {
	switch d.Approval.GetDecision() {
	case teamv1.Approval_DECISION_APPROVE, teamv1.Approval_DECISION_APPROVE_ALL:
		return false
	case teamv1.Approval_DECISION_REJECT, teamv1.Approval_DECISION_UNSPECIFIED:
	}
	return true
}

// approve begins tool calls and delegations that need the approval of people only once they have
// approved, with the arguments that they approved.
func approve(next Attempt) Attempt {
	return func(ctx context.Context, w *Work) Result {
		need, req := w.approval()
		d := w.Decision
		switch {
		case req == nil: // no approval is possible
			return next(ctx, w)
		case d != nil && d.rejected():
			return w.rejection(d)
		case w.Attempts > 0 && d == nil: // it began without
			return next(ctx, w)
		case w.Attempts > 0, d != nil && d.Request.GetVersion() == req.GetVersion():
			w.applyDecision(d)
			return next(ctx, w)
		case d == nil && w.by.Run.Allowed(AllowKey(req)):
			return next(ctx, w)
		}
		return w.askApproval(need, req)
	}
}

// approval returns who decides about the step, nil if nobody has to, and what they decide about. The
// latter is nil if the step is neither a delegation nor a call of a tool that can be called.
func (w *Work) approval() (*agent.Approval, *teamv1.ApprovalRequest) {
	req := &teamv1.ApprovalRequest{By: w.by.Path}
	var need *agent.Approval
	switch {
	case agent.IsDelegation(w.Step.GetKind()) && w.Approve != nil:
		need = w.Approve(w.Input)
		req.Member, req.Arguments = w.Step.GetMember(), prompt.HandedOver(w.Input)
	case w.Step.GetKind() == teamv1.Step_KIND_TOOL:
		tool, ok := w.by.Tools.find(w.Step.GetName())
		arguments, valid := w.arguments()
		approved, needs := tool.(agent.ApprovedTool)
		if !ok || !valid || !needs {
			return nil, nil
		}
		spec := tool.Spec()
		req.Tool, req.Arguments = w.Step.GetName(), string(arguments)
		req.Version = agent.HashOf(spec.Description, string(spec.Parameters))
		need = approved.Approval(arguments)
	default:
		return nil, nil
	}
	if need == nil && w.Decision == nil {
		return nil, nil
	}
	req.Hash = agent.HashOf(req.GetArguments())
	return need, req
}

// AllowKey returns the key of the calls that an approval of all later calls allows, for agent.Run. A
// tool that has changed has another key.
func AllowKey(r *teamv1.ApprovalRequest) string {
	return strings.Join([]string{r.GetBy(), r.GetTool(), r.GetMember(), r.GetVersion()}, "\x00")
}

// applyDecision makes the step use the arguments that were approved.
func (w *Work) applyDecision(d *Decision) {
	approved := cmp.Or(d.Approval.GetArguments(), d.Request.GetArguments())
	switch {
	case d.Request.GetTool() != "":
		w.Arguments = approved
	case d.Approval.GetArguments() != "":
		w.Input = proto.CloneOf(w.Input)
		w.Input.Parts = agent.TextParts(approved)
	}
}

// withEdit returns the result of a tool call. If people have changed the arguments, it begins with
// them, because the model knows only its own.
func (w *Work) withEdit(r *teamv1.ToolResult) *teamv1.ToolResult {
	if w.Decision == nil || w.Decision.Approval.GetArguments() == "" || r == nil {
		return r
	}
	r = proto.CloneOf(r)
	r.Text = fmt.Sprintf("A person changed the arguments of this call to %s. The result:\n%s", w.Decision.Approval.GetArguments(), r.GetText())
	return r
}

// given returns what a member is given, if it is not what was decided; else nil.
func (w *Work) given() *teamv1.Input {
	if w.Decision != nil && w.Decision.Request.GetMember() != "" && w.Decision.Approval.GetArguments() != "" {
		return &teamv1.Input{Message: w.Input}
	}
	return w.Checks.given()
}

// rejection returns the result of a step that people have rejected. The model that made a tool call is
// told why.
func (w *Work) rejection(d *Decision) Result {
	why := d.Approval.GetReason()
	if why == "" {
		why = "no reason was given"
	}
	if d.Request.GetTool() != "" {
		text := fmt.Sprintf("The call of %s did not begin, because a person rejected it: %s", d.Request.GetTool(), why)
		return Result{notStarted: true, Reply: &teamv1.Reply{
			Outcome: teamv1.Outcome_OUTCOME_REJECTED, Result: &teamv1.Reply_Tool{Tool: &teamv1.ToolResult{Text: text, IsError: true}},
		}}
	}
	return Result{rejected: true, notStarted: true, Err: agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonApprovalRejected,
		"the task for member %q did not begin, because a person rejected it: %s", d.Request.GetMember(), why)}
}

// maxShownForApproval is the maximum number of bytes of the arguments that the text of a question
// shows. All of them are in its ApprovalRequest.
const maxShownForApproval = 4000

// askApproval asks people about a call. need is nil if no approval is needed any more.
func (w *Work) askApproval(need *agent.Approval, req *teamv1.ApprovalRequest) Result {
	if need == nil {
		need = &agent.Approval{}
	}
	text := fmt.Sprintf("%q wants to call the tool %s with the arguments %s.", w.by.Path, req.GetTool(), agent.Excerpt(req.GetArguments(), maxShownForApproval))
	if req.GetTool() == "" {
		text = fmt.Sprintf("%q wants to give member %q this task: %s", w.by.Path, req.GetMember(), agent.Excerpt(req.GetArguments(), maxShownForApproval))
	}
	if w.Decision != nil {
		text = "The tool has changed since it was approved. " + text
	}
	text += ` May it begin? Answer "approve", "approve all" (later calls in this task too), "reject: REASON", or "edit: " and the changed arguments.`
	expires := QuestionExpiry
	if need.Expires > 0 {
		expires = need.Expires
	}
	id := w.by.Run.ID(w.Scope, "question", w.Questions+1)
	q := &teamv1.Asked{
		Question: id, Kind: teamv1.Asked_KIND_APPROVAL, Roles: need.Roles, Approval: req, Expires: timestamppb.New(w.by.Run.Now().Add(expires)),
		Message: &a2av1.Message{MessageId: id, Role: a2av1.Role_ROLE_AGENT, Parts: QuestionParts(&teamv1.Ask{
			Question: text, Options: []string{agent.WordApprove, agent.WordApproveAll, agent.WordReject},
		})},
	}
	if err := w.emit(w.event(&teamv1.Event{Kind: &teamv1.Event_Asked{Asked: q}})); err != nil {
		return Result{Err: ErrStopped}
	}
	return Result{notStarted: true}
}

// arguments returns the arguments of a tool call as the tool is given them. It reports whether they
// are JSON.
func (w *Work) arguments() (json.RawMessage, bool) {
	arguments := strings.TrimSpace(w.Arguments)
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
