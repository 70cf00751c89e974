package model_test

import (
	"encoding/json"
	"testing"

	"github.com/agentteams/team-server/pkg/model"
)

// TestArgumentsKeepTheirDigits: what goes back to a provider has the numbers that its model wrote.
func TestArgumentsKeepTheirDigits(t *testing.T) {
	for written, want := range map[string]string{
		`{"id":9007199254740993,"in":{"n":0.1234567890123456789}}`: `{"id":9007199254740993,"in":{"n":0.1234567890123456789}}`,
		``:      `{}`,
		`[1]`:   `{"arguments":"[1]"}`,
		`null`:  `{"arguments":"null"}`,
		`a "b"`: `{"arguments":"a \"b\""}`,
	} {
		if got, err := json.Marshal(model.Arguments(written)); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", written, got, err)
		}
	}
}
