package agent_test

import (
	"testing"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestS_55_ConversationID(t *testing.T) {
	id := func(owner, context string, path ...string) string {
		return (&agent.Run{Owner: owner}).ConversationID(&teamv1.ProcessRequest{AgentId: "a", ContextId: context, Path: path})
	}
	mine := id("acme/ann", "c", "desk")
	if again := id("acme/ann", "c", "desk"); again != mine || mine == "c" {
		t.Errorf("S-55 %q, and then %q", mine, again)
	}
	for name, other := range map[string]string{
		"owner": id("acme/bob", "c", "desk"), "context": id("acme/ann", "d", "desk"), "path": id("acme/ann", "c", "other"),
	} {
		if other == mine {
			t.Errorf("S-55 another %s has the same id", name)
		}
	}
	if got := id("", "c"); got != "c" {
		t.Errorf("without an owner it is %q", got)
	}
	if got := id("acme/ann", ""); got != "" {
		t.Errorf("of no context it is %q", got)
	}
}
