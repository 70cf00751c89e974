package metrics

import (
	"maps"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// limited are settings that have limits, and what precedes the name of a field in the name of its limit.
type limited struct {
	prefix   string
	settings proto.Message
}

// requestLimits and runLimits are the limits because of which requests are refused, and runs and steps end.
var (
	requestLimits = []limited{{"", &teamv1.AccountLimits{}}, {"per_principal.", &teamv1.PrincipalLimits{}}, {"", &teamv1.LimitSettings{}}, {"streams.", &teamv1.StreamSettings{}}}
	runLimits     = []limited{{"", &teamv1.Limits{}}, {"", &teamv1.AccountLimits{}}}
)

// limitNames are the names of the limits of this server, as errors have them in agent.DetailLimit. The error of another
// server may name any other.
var limitNames = namesOf(slices.Concat(requestLimits, runLimits))

// isLimit matches the fields that are limits; others say for example how they apply.
var isLimit = regexp.MustCompile(`^(max_\w+|requests_per_second|per_caller|per_task)$`)

func namesOf(all []limited) map[string]bool {
	known := map[string]bool{}
	for _, of := range all {
		fields := of.settings.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if name := string(fields.Get(i).Name()); isLimit.MatchString(name) {
				known[of.prefix+name] = true
			}
		}
	}
	return known
}

// limitsOf returns the names of limits, and Other.
func limitsOf(all []limited) []string {
	return append(slices.Sorted(maps.Keys(namesOf(all))), Other)
}

// limitName returns the name of a limit, or Other if it is not one of this server.
func limitName(name string) string {
	if limitNames[name] {
		return name
	}
	return Other
}
