package manager_test

import (
	"fmt"
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

func fill(tb testing.TB, n int) *manager.Manager {
	tb.Helper()
	m := newManager(tb)
	for _, id := range []string{"x", "y", "z"} {
		if err := m.Register(id, &leaf{}); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range n {
		if err := m.Register(fmt.Sprintf("team-%d", i), team("x", "y", "z")); err != nil {
			tb.Fatal(err)
		}
	}
	return m
}

// TestRegister100k registers as many teams as one server should hold; BenchmarkRegister100k
// times it.
func TestRegister100k(t *testing.T) {
	if m := fill(t, 100_000); m.Len() != 100_003 {
		t.Errorf("Len() = %d", m.Len())
	}
}

func BenchmarkRegister100k(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		fill(b, 100_000)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := fill(b, n)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := m.Get(ids[i%len(ids)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

var ids = []string{"team-0", "team-7", "team-9", "x"}

func BenchmarkHealth(b *testing.B) {
	m := fill(b, 1000)
	if _, err := m.Check(b.Context(), "x"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Health("x")
	}
}

var _ agent.Composite = (*composite)(nil)
