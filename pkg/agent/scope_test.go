package agent

import "testing"

func TestScopes(t *testing.T) {
	for _, c := range []struct {
		scope, top string
		within     bool
	}{{"1.2", "1", true}, {"1", "1", true}, {"11", "1", false}, {"2", "", true}, {"1", "1.2", false}} {
		if got := Within(c.scope, c.top); got != c.within {
			t.Errorf("Within(%q, %q) is %v", c.scope, c.top, got)
		}
	}
	if root, scope := SplitTask("r~"); root != "r~" || scope != "" {
		t.Errorf("no scope: %q, %q", root, scope)
	}
	if root, scope := SplitTask(ChildTask("r", "1.2")); root != "r" || scope != "1.2" {
		t.Error(root, scope)
	}
	if Parent("1.2") != "1" || Parent("1") != "" || Scope("", "1") != "1" || Scope("1", "2") != "1.2" {
		t.Error("scopes do not add up")
	}
}
