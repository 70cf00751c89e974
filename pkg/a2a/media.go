package a2a

import (
	"slices"
	"strconv"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
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
	var faults []Violation
	for i, p := range m.GetParts() {
		takes := len(info.GetInputModes()) == 0 || agent.MatchesMedia(agent.MediaType(p), info.GetInputModes())
		if agent.IsFile(p) {
			takes = agent.AcceptsFile(info, p)
		}
		if !takes {
			faults = append(faults, Violation{Field: "message.parts[" + strconv.Itoa(i) + "].mediaType", Description: agent.Refused(info, p)})
		}
	}
	out := modes(info.GetOutputModes())
	answers := func(wanted string) bool {
		return slices.ContainsFunc(out, func(mode string) bool {
			return agent.MatchesMedia(mode, []string{wanted}) || agent.MatchesMedia(wanted, []string{mode})
		})
	}
	if len(accepted) > 0 && !slices.ContainsFunc(accepted, answers) {
		faults = append(faults, Violation{Field: "configuration.acceptedOutputModes", Description: "contains no media type that the agent produces; it produces " + strings.Join(out, ", ")})
	}
	if len(faults) == 0 {
		return nil
	}
	e := Invalid(faults...)
	e.Reason, e.Code = ReasonContentTypeNotSupported, agent.CodeInvalidArgument
	return e
}
