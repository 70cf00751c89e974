package metrics

import "testing"

// TestT_44_LimitNames: limits of this server are named, and what another server calls a limit is not.
func TestT_44_LimitNames(t *testing.T) {
	for _, name := range []string{
		"max_tokens", "max_cost", "max_steps", "max_turns", "max_delegations", "max_handoffs", "max_calls", "max_queued", "max_stored_bytes", "max_upload_bytes", "max_collaborations",
		"max_tokens_per_day", "max_cost_per_day", "max_tokens_in_flight", "max_cost_in_flight", "requests_per_second", "streams.per_caller",
		"per_principal.max_queued", "per_principal.max_upload_bytes", "per_principal.requests_per_second",
	} {
		if got := limitName(name); got != name {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range []string{"", "junk", "per_principal.max_calls", "MAX_COST"} {
		if got := limitName(name); got != Other {
			t.Errorf("%q: %s", name, got)
		}
	}
}
