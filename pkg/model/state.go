package model

import (
	"encoding/json"
)

// state is Turn.state as the providers here write it. What one model signed no
// other one takes, so it says whose it is.
type state struct {
	Provider string          `json:"provider"`
	Model    string          `json:"model"`
	Content  json.RawMessage `json:"content"`
}

// PackState returns what a model wants back with its turn, as Turn.state; nil
// where it cannot be written.
func PackState(provider, name string, content any) []byte {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil
	}
	b, err := json.Marshal(state{Provider: provider, Model: name, Content: raw})
	if err != nil {
		return nil
	}
	return b
}

// UnpackState reads what PackState wrote for the same model into content, and
// reports whether it is there. What another model wrote is not.
func UnpackState(b []byte, provider, name string, content any) bool {
	var s state
	if len(b) == 0 || json.Unmarshal(b, &s) != nil || s.Provider != provider || s.Model != name {
		return false
	}
	return json.Unmarshal(s.Content, content) == nil
}
