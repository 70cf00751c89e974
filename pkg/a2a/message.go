package a2a

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// defaultModes are the media types on the card of an agent that does not specify any.
var defaultModes = []string{"text/plain", "application/json"}

// modes returns own or, if it is empty, the default. A card must name at least one media type.
func modes(own []string) []string {
	if len(own) == 0 {
		return defaultModes
	}
	return own
}

// checkMedia returns CONTENT_TYPE_NOT_SUPPORTED if the message has a part of a media type that
// the agent does not accept, or if the client accepts none that the agent produces; see A2A 1.0,
// section 3.3.2. An agent that does not specify media types accepts everything.
func checkMedia(info *teamv1.AgentInfo, m *a2av1.Message, accepted []string) error {
	var faults []agent.Violation
	for i, p := range m.GetParts() {
		takes := len(info.GetInputModes()) == 0 || agent.MatchesMedia(agent.MediaType(p), info.GetInputModes())
		if agent.IsFile(p) {
			takes = agent.AcceptsFile(info, p)
		}
		if !takes {
			faults = append(faults, agent.Violation{Field: "message.parts[" + strconv.Itoa(i) + "].mediaType", Description: agent.Refused(info, p)})
		}
	}
	out := modes(info.GetOutputModes())
	answers := func(wanted string) bool {
		return slices.ContainsFunc(out, func(mode string) bool {
			return agent.MatchesMedia(mode, []string{wanted}) || agent.MatchesMedia(wanted, []string{mode})
		})
	}
	if len(accepted) > 0 && !slices.ContainsFunc(accepted, answers) {
		faults = append(faults, agent.Violation{Field: "configuration.acceptedOutputModes", Description: "contains no media type that the agent produces; it produces " + strings.Join(out, ", ")})
	}
	if len(faults) == 0 {
		return nil
	}
	e := a2aerror.Invalid(faults...)
	e.Reason, e.Code = a2aerror.ReasonContentTypeNotSupported, agent.CodeInvalidArgument
	return e
}

// checkInputs returns INVALID_REQUEST if the message lacks a value that the agent wants by name, or has a wrong one. Agents
// with inputs implement the method InputFaults.
func checkInputs(a agent.Agent, m *a2av1.Message) error {
	by, ok := a.(interface {
		InputFaults(m *a2av1.Message) []string
	})
	if !ok {
		return nil
	}
	var faults []agent.Violation
	for _, f := range by.InputFaults(m) {
		faults = append(faults, agent.Violation{Field: "message.parts", Description: f})
	}
	if len(faults) == 0 {
		return nil
	}
	return a2aerror.Invalid(faults...)
}

// maxReference is the maximum number of bytes of the request, and of the result, of a referenced
// task that an agent is shown.
const maxReference = 8 << 10

// referenced returns the requests and results of the tasks that a message refers to, in the order
// of the references. A task of the message's own conversation is left out if the agent remembers
// conversations. It returns TASK_NOT_FOUND if a task does not exist or belongs to another owner.
func referenced(ctx context.Context, store runs.Store, owner string, m *a2av1.Message, remembers bool) ([]*a2av1.Message, error) {
	var shown []*a2av1.Message
	for i, id := range m.GetReferenceTaskIds() {
		t, _, err := store.Task(ctx, runs.Key{Owner: owner, ID: id})
		switch {
		case errors.Is(err, runs.ErrNotFound):
			return nil, a2aerror.TaskNotFound(id)
		case err != nil:
			return nil, runs.StoreError(id, err)
		case slices.Contains(m.GetReferenceTaskIds()[:i], id):
		case remembers && t.GetContextId() == m.GetContextId():
		default:
			shown = append(shown, about(t)...)
		}
	}
	return shown, nil
}

// about returns a task as two messages: its request, and its result or, if it has none, the text
// of its status.
func about(t *a2av1.Task) []*a2av1.Message {
	var asked, came string
	for _, m := range t.GetHistory() {
		if m.GetRole() == a2av1.Role_ROLE_USER {
			asked = agent.Text(m)
			break
		}
	}
	for _, a := range t.GetArtifacts() {
		if a.GetName() == "result" {
			came = agent.Text(&a2av1.Message{Parts: a.GetParts()})
		}
	}
	if came == "" {
		came = agent.Text(t.GetStatus().GetMessage())
	}
	list := []*a2av1.Message{agent.UserMessage(t.GetId()+"-request", a2aerror.ClipTo(asked, maxReference))}
	if came != "" {
		m := agent.NewMessage(a2aerror.ClipTo(came, maxReference))
		m.MessageId = t.GetId() + "-result"
		list = append(list, m)
	}
	return list
}
