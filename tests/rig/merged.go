package rig

import "strings"

// Merged returns a conversation, with entries like "user: text", as an OpenAI-compatible endpoint is sent it:
// it begins with the user, and entries of one role in a row are one.
func Merged(list ...string) []string {
	var out []string
	for _, entry := range list {
		role, text, _ := strings.Cut(entry, ": ")
		if len(out) == 0 && role == "assistant" {
			out = append(out, "user: (empty)")
		}
		if n := len(out); n > 0 && strings.HasPrefix(out[n-1], role+": ") {
			out[n-1] += "\n\n" + text
			continue
		}
		out = append(out, entry)
	}
	return out
}
