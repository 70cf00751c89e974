package agent

import "testing"

func TestBinds(t *testing.T) {
	over := func(by string) *Error {
		return Errorf(CodeInternal, ReasonBudgetExceeded, "x").With(DetailSetBy, by)
	}
	for _, c := range []struct {
		err  *Error
		path string
		want bool
	}{
		{nil, "a", false}, {Errorf(0, ReasonTimeout, "x"), "a", false}, {over("a"), "a", true}, {over("a"), "a/b", true},
		{over("a/b"), "a", false}, {over("a"), "ab", false}, {over(SetByCaller), "a/b", true},
	} {
		if got := Binds(c.err, c.path); got != c.want {
			t.Errorf("%v at %s: %v", c.err, c.path, got)
		}
	}
}
