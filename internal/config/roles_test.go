package config

import (
	"strconv"
	"strings"
	"testing"
)

// TestS_51_Roles: what can be a role, of a question and of a key.
func TestS_51_Roles(t *testing.T) {
	file := func(asked, held string) string {
		return `version: v1
agents:
  a: {scripted: {steps: [{text: x}]}}
teams:
  w: {workflow: {steps: [{id: x, agent: a}, {id: h, after: [x], human: {question: "Sure?", roles: ` + asked + `}}]}}
server:
  auth: {api_keys: [{name: ann, sha256: "` + strings.Repeat("0", 64) + `", roles: ` + held + `}]}
`
	}
	many := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = "r" + strconv.Itoa(i)
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	for name, good := range map[string]string{"one": file("[boss]", "[boss]"), "two": file("[9_a-b, boss]", "[boss]"), "most": file(many(16), many(64))} {
		if fs := faultsOf(t, good); len(fs) > 0 {
			t.Errorf("%s: %v", name, fs)
		}
	}
	for _, bad := range []struct{ asked, held, message, at string }{
		{"[Boss]", "[boss]", "this cannot be a role", "roles: [Boss]"},
		{"['']", "[boss]", "this cannot be a role", "roles: ['']"},
		{"[" + strings.Repeat("a", 64) + "]", "[boss]", "this cannot be a role", "aaa"},
		{"[boss]", "['*']", "this cannot be a role", "roles: ['*']"},
		{"[boss]", "[-a]", "this cannot be a role", "roles: [-a]"},
		{many(17), "[r1]", "for has more than 16 roles", "roles: [r0"},
		{"[r1]", many(65), "a key has at most 64 roles", "roles: [r0"},
	} {
		text := file(bad.asked, bad.held)
		fs := faultsOf(t, text)
		if len(fs) != 1 || !strings.Contains(fs[0].Message, bad.message) || !strings.Contains(strings.Split(text, "\n")[fs[0].Line-1], bad.at) {
			t.Errorf("%s, %s: %v", bad.asked, bad.held, fs)
		}
	}
}
