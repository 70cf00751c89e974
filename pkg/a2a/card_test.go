package a2a_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// TestA_10_CardIsTheSameEachTime: its tag and its signatures are over what it says,
// in that order.
func TestA_10_CardIsTheSameEachTime(t *testing.T) {
	schemes := map[string]*a2av1.SecurityScheme{"a": {}, "b": {}, "c": {}, "d": {}}
	r := startWith(t, a2a.Config{Security: schemes}, echo("echo"))
	first, _, err := r.Card(t.Context(), "echo")
	if err != nil || len(first.GetSecurityRequirements()) != len(schemes) {
		t.Fatal(first, err)
	}
	for range 100 {
		if again, _, err := r.Card(t.Context(), "echo"); err != nil || !proto.Equal(first, again) {
			t.Fatalf("%v after %v: %v", again.GetSecurityRequirements(), first.GetSecurityRequirements(), err)
		}
	}
}
