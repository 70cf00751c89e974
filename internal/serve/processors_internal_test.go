package serve

import "testing"

func TestP11_Processors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		now, cores int
		set        bool
		want       int
	}{
		{"two cores", 2, 2, false, 4},
		{"many cores", 16, 16, false, 16},
		{"a quota of two", 2, 16, false, 2},
		{"set by the operator", 2, 2, true, 2},
	} {
		if got := processors(c.now, c.cores, c.set); got != c.want {
			t.Errorf("%s: %d processors, want %d", c.name, got, c.want)
		}
	}
}
