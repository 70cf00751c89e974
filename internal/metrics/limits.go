package metrics

import (
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// limitNames are the names of the limits of this server, as errors have them in agent.DetailLimit. The error of another
// server may name any other.
var limitNames = func() map[string]bool {
	known := map[string]bool{}
	for _, of := range []struct {
		prefix   string
		settings proto.Message
	}{
		{"", &teamv1.Limits{}}, {"", &teamv1.AccountLimits{}}, {"per_principal.", &teamv1.PrincipalLimits{}}, {"", &teamv1.LimitSettings{}}, {"streams.", &teamv1.StreamSettings{}},
	} {
		fields := of.settings.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			known[of.prefix+string(fields.Get(i).Name())] = true
		}
	}
	return known
}()

// limitName returns the name of a limit, or Other if it is not one of this server.
func limitName(name string) string {
	if limitNames[name] {
		return name
	}
	return Other
}
