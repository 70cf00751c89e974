package model

import (
	"encoding/json"
)

// state is the content of Turn.state. It names the model, because a model does not accept what
// another one has signed.
type state struct {
	Provider string          `json:"provider"`
	Model    string          `json:"model"`
	Content  json.RawMessage `json:"content"`
}

// PackState encodes what a model needs to get back with its turn, for Turn.state. It returns nil if
// content cannot be encoded.
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

// UnpackState decodes a state that PackState encoded for the same model into content. It reports
// false if there is none, or if another model wrote it.
func UnpackState(b []byte, provider, name string, content any) bool {
	var s state
	if len(b) == 0 || json.Unmarshal(b, &s) != nil || s.Provider != provider || s.Model != name {
		return false
	}
	return json.Unmarshal(s.Content, content) == nil
}
