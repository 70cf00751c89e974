package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// TestToolParameters: each schema becomes an object with properties, and is not changed otherwise.
func TestToolParameters(t *testing.T) {
	for schema, want := range map[string]string{
		``:                                    `{"properties":{},"type":"object"}`,
		`null`:                                `{"properties":{},"type":"object"}`,
		`true`:                                `{"properties":{},"type":"object"}`,
		`{}`:                                  `{"properties":{},"type":"object"}`,
		`{"type":"object"}`:                   `{"properties":{},"type":"object"}`,
		`{"type":"object","properties":null}`: `{"properties":{},"type":"object"}`,
		`{"type":null,"properties":{"q":true,"r":false}}`:                                                       `{"properties":{"q":{},"r":false},"type":"object"}`,
		`{"type":"object","additionalProperties":false}`:                                                        `{"additionalProperties":false,"properties":{},"type":"object"}`,
		`{"type":"object", "required":["q"], "properties":{"q":{"type":"integer","maximum":9007199254740993}}}`: `{"type":"object", "required":["q"], "properties":{"q":{"type":"integer","maximum":9007199254740993}}}`,
	} {
		if got := string(agent.ToolParameters(json.RawMessage(schema))); got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}
