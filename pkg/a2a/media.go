package a2a

import (
	"fmt"
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
		if media := mediaType(p); len(info.GetInputModes()) > 0 && !fits(media, info.GetInputModes()) {
			faults = append(faults, Violation{
				Field:       "message.parts[" + strconv.Itoa(i) + "].mediaType",
				Description: fmt.Sprintf("is %s; the agent accepts %s", clip(media), strings.Join(info.GetInputModes(), ", ")),
			})
		}
	}
	out := modes(info.GetOutputModes())
	answers := func(wanted string) bool {
		return slices.ContainsFunc(out, func(mode string) bool { return fits(mode, []string{wanted}) || fits(wanted, []string{mode}) })
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

// mediaType returns the media type of a part in lower case and without parameters. If the part
// has none, it returns the default for its kind of content.
func mediaType(p *a2av1.Part) string {
	if media, _, _ := strings.Cut(p.GetMediaType(), ";"); strings.TrimSpace(media) != "" {
		return strings.ToLower(strings.TrimSpace(media))
	}
	switch p.GetContent().(type) {
	case *a2av1.Part_Text:
		return "text/plain"
	case *a2av1.Part_Data:
		return "application/json"
	}
	return "application/octet-stream"
}

// fits reports whether media matches an entry of list. Entries may end in "/*", and "*/*" matches
// all.
func fits(media string, list []string) bool {
	return slices.ContainsFunc(list, func(one string) bool {
		one, _, _ = strings.Cut(strings.ToLower(one), ";")
		one = strings.TrimSpace(one)
		group, all := strings.CutSuffix(one, "/*")
		return one == media || all && (group == "*" || strings.HasPrefix(media, group+"/"))
	})
}
