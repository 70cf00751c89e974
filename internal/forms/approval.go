// Package forms reads what people answer to the questions of tools, approvals and budgets, and says what they may answer.
package forms

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// wordEdit is the word of people who approve with changes; the others are agent.WordApprove and those beside it.
const wordEdit = "edit"

// maxReason is the maximum number of bytes of the reason of a decision.
const maxReason = 1000

// expectedDecision says what an answer to an approval may be.
func expectedDecision(r *teamv1.ApprovalRequest) string {
	if r.GetPlan() != nil {
		return `answer "approve", "reject" or "reject: REASON", or "edit: " and the changed plan as JSON`
	}
	return `answer "approve", "approve all" (later calls too), "reject" or "reject: REASON", or "edit: " and the changed arguments`
}

// ReadApproval returns the decision that the answer m to the request r makes: as text "approve",
// "approve all", "reject: REASON" or "edit: ARGUMENTS", or as data {"decision": WORD, "reason": TEXT,
// "arguments": ARGUMENTS}. The answer to a request about a plan may also be the changed plan alone, as
// text or as data, and not "approve all". Any other answer is an error, which says what was expected.
func ReadApproval(r *teamv1.ApprovalRequest, m *a2av1.Message) (*teamv1.Approval, error) {
	text, data, err := onlyPart(m)
	if err != nil {
		return nil, err
	}
	if r.GetPlan() != nil && hasSteps(text) {
		text = wordEdit + ":" + text
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(text), ":")
	rest = strings.TrimSpace(rest)
	word, reason, arguments := strings.ToLower(strings.TrimSpace(word)), rest, rest
	if data != nil {
		if word, reason, arguments, err = decisionOf(r, data); err != nil {
			return nil, err
		}
		rest = ""
	}
	if len(reason) > maxReason && word != wordEdit {
		return nil, fmt.Errorf("has a reason of %d bytes; at most %d are allowed", len(reason), maxReason)
	}
	switch word {
	case agent.WordApprove, "yes", agent.WordApproveAll:
		switch {
		case rest != "":
			return nil, errors.New(`has a text after the decision; to change the arguments, answer "edit: " and the arguments`)
		case word != agent.WordApproveAll:
			return &teamv1.Approval{Decision: teamv1.Approval_DECISION_APPROVE}, nil
		case r.GetPlan() == nil: // there are no later calls of a plan
			return &teamv1.Approval{Decision: teamv1.Approval_DECISION_APPROVE_ALL}, nil
		}
	case agent.WordReject, "no":
		return &teamv1.Approval{Decision: teamv1.Approval_DECISION_REJECT, Reason: reason}, nil
	case wordEdit:
		if err := checkArguments(r, arguments); err != nil {
			return nil, err
		}
		return &teamv1.Approval{Decision: teamv1.Approval_DECISION_APPROVE, Arguments: arguments}, nil
	}
	return nil, errors.New("is not a decision; " + expectedDecision(r))
}

// hasSteps reports whether a text is a JSON object with the key steps, as a plan is.
func hasSteps(text string) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &object) != nil {
		return false
	}
	_, ok := object["steps"]
	return ok
}

// decisionOf returns the data of an answer to an approval: its word, its reason and its arguments as
// text.
func decisionOf(r *teamv1.ApprovalRequest, data any) (word, reason, arguments string, err error) {
	d, _ := data.(map[string]any)
	if _, ok := d["steps"]; ok && r.GetPlan() != nil && d["decision"] == nil {
		d = map[string]any{"decision": wordEdit, "arguments": d}
	}
	word, _ = d["decision"].(string)
	reason, _ = d["reason"].(string)
	switch v := d["arguments"].(type) {
	case nil:
	case string:
		arguments = v
	default:
		if r.GetTool() == "" && r.GetPlan() == nil {
			return "", "", "", errors.New(`has arguments that are not text; write the changed task like this: {"decision": "edit", "arguments": "TEXT"}`)
		}
		b, err := json.Marshal(v)
		if err != nil {
			return "", "", "", errors.New("has arguments that are not valid JSON; " + expectedDecision(r))
		}
		arguments = string(b)
	}
	word = strings.ToLower(strings.TrimSpace(word))
	if arguments != "" && word != wordEdit {
		return "", "", "", errors.New(`has arguments, which only the decision "edit" may have; ` + expectedDecision(r))
	}
	return word, reason, arguments, nil
}

// checkArguments returns an error if the call that r asks about cannot be made with arguments.
func checkArguments(r *teamv1.ApprovalRequest, arguments string) error {
	var object map[string]json.RawMessage
	switch {
	case arguments == "":
		return errors.New(`has no arguments; write them after "edit:"`)
	case r.GetTool() == "" && r.GetPlan() == nil:
		return nil
	case json.Unmarshal([]byte(arguments), &object) != nil || object == nil:
		return errors.New(`has arguments that are not a JSON object; write them like this: edit: {"key": "value"}`)
	}
	return nil
}
