package manager_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leaf is an agent that counts; its answers can be changed by a test.
type leaf struct {
	id     string
	health func(context.Context) (*teamv1.Health, error)
}

func (l *leaf) Info(context.Context) (*teamv1.AgentInfo, error) {
	return &teamv1.AgentInfo{Id: l.id}, nil
}

func (l *leaf) Process(context.Context, *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error] {
	return func(func(*teamv1.Event, error) bool) {}
}

func (l *leaf) HealthCheck(ctx context.Context) (*teamv1.Health, error) {
	if l.health == nil {
		return agent.Healthy(), nil
	}
	return l.health(ctx)
}

// composite is an agent with members.
type composite struct {
	leaf
	members []string
}

func (c *composite) Members() []string { return c.members }

func team(members ...string) *composite { return &composite{members: members} }

func newManager(t testing.TB) *manager.Manager {
	t.Helper()
	m := manager.New(manager.Config{})
	t.Cleanup(m.Close)
	return m
}

func reason(t *testing.T, err error) string {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *agent.Error", err)
	}
	return e.Reason
}

func TestManager(t *testing.T) {
	t.Run("R-000-37 agents and teams are registered by id", func(t *testing.T) {
		m := newManager(t)
		writer := &leaf{id: "writer"}
		newsroom := team("writer")
		for id, a := range map[string]agent.Agent{"writer": writer, "newsroom": newsroom} {
			if err := m.Register(id, a); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.Get("newsroom")
		if err != nil || got != agent.Agent(newsroom) {
			t.Fatalf("Get(newsroom) = %v, %v", got, err)
		}
		if ids := m.IDs(); !slices.Equal(ids, []string{"newsroom", "writer"}) || m.Len() != 2 {
			t.Errorf("IDs() = %v, Len() = %d", ids, m.Len())
		}
		info, err := m.Info(t.Context(), "writer")
		if err != nil || info.GetId() != "writer" {
			t.Errorf("Info(writer) = %v, %v", info, err)
		}
	})
	t.Run("R-000-38 teams and managers share an agent", func(t *testing.T) {
		shared := &leaf{id: "shared"}
		a, b := newManager(t), newManager(t)
		for _, m := range []*manager.Manager{a, b} {
			for id, x := range map[string]agent.Agent{"shared": shared, "t1": team("shared"), "t2": team("shared")} {
				if err := m.Register(id, x); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := b.Agent("shared")
		if err != nil || got != agent.Agent(shared) {
			t.Errorf("Agent(shared) = %v, %v", got, err)
		}
	})
	t.Run("R-000-26 an unknown id is named", func(t *testing.T) {
		m := newManager(t)
		if err := m.Register("writer", &leaf{}); err != nil {
			t.Fatal(err)
		}
		_, err := m.Get("writter")
		if r := reason(t, err); r != agent.ReasonAgentNotFound {
			t.Errorf("reason %s", r)
		}
		if s := err.Error(); !strings.Contains(s, `"writter"`) {
			t.Errorf("text %q", s)
		}
	})
	t.Run("bad and taken ids are refused", func(t *testing.T) {
		m := newManager(t)
		for _, id := range []string{"", "Upper", "a.b", "tasks", strings.Repeat("a", 64)} {
			if r := reason(t, m.Register(id, &leaf{})); r != agent.ReasonInvalidRequest {
				t.Errorf("Register(%q): %s", id, r)
			}
		}
		if err := m.Register("a", &leaf{}); err != nil {
			t.Fatal(err)
		}
		if r := reason(t, m.Register("a", &leaf{})); r != agent.ReasonInvalidRequest {
			t.Errorf("second Register: %s", r)
		}
		if r := reason(t, m.Replace("b", &leaf{})); r != agent.ReasonAgentNotFound {
			t.Errorf("Replace of nothing: %s", r)
		}
		if r := reason(t, m.Remove("b")); r != agent.ReasonAgentNotFound {
			t.Errorf("Remove of nothing: %s", r)
		}
	})
}

func TestS_37_NestingLoop(t *testing.T) {
	m := newManager(t)
	for id, a := range map[string]agent.Agent{"writer": &leaf{}, "newsroom": team("writer", "desk"), "company": team("legal", "newsroom")} {
		if err := m.Register(id, a); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ name, id, path string }{
		{"by a member that is registered last", "desk", "desk -> company -> newsroom -> desk"},
		{"by replacing", "newsroom", "newsroom -> company -> newsroom"},
		{"with itself", "self", "self -> self"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := m.Register
			members := []string{"writer", "company"}
			switch tt.id {
			case "newsroom":
				set = m.Replace
			case "self":
				members = []string{"self"}
			}
			err := set(tt.id, team(members...))
			if r := reason(t, err); r != agent.ReasonInvalidTeamConfig {
				t.Errorf("reason %s", r)
			}
			if want := "teams form a cycle: " + tt.path; !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		})
	}
	t.Run("nothing was stored", func(t *testing.T) {
		if ids := m.IDs(); !slices.Equal(ids, []string{"company", "newsroom", "writer"}) {
			t.Errorf("IDs() = %v", ids)
		}
		if err := m.Replace("newsroom", team("writer")); err != nil {
			t.Errorf("a legal replacement: %v", err)
		}
	})
}

func TestS_37_TwoWritersCannotCloseACircleTogether(t *testing.T) {
	for range 200 {
		m := newManager(t)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		wg.Go(func() { errs[0] = m.Register("a", team("b")) })
		wg.Go(func() { errs[1] = m.Register("b", team("a")) })
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("want exactly one refused, got %v and %v", errs[0], errs[1])
		}
	}
}

// TestModel compares a manager with a plain map under random operations.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := manager.New(manager.Config{})
		defer m.Close()
		model := map[string][]string{} // id to members
		id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		set := func(exists bool, f func(string, agent.Agent) error) func(*rapid.T) {
			return func(t *rapid.T) {
				key, members := id.Draw(t, "id"), rapid.SliceOfN(id, 0, 2).Draw(t, "members")
				_, known := model[key]
				want := known == exists && !reaches(model, members, key)
				if err := f(key, team(members...)); (err == nil) != want {
					t.Fatalf("set %s %v: error %v, want success %v", key, members, err, want)
				}
				if want {
					model[key] = members
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"register": set(false, m.Register),
			"replace":  set(true, m.Replace),
			"remove": func(t *rapid.T) {
				key := id.Draw(t, "id")
				_, known := model[key]
				if err := m.Remove(key); (err == nil) != known {
					t.Fatalf("remove %s: %v, known %v", key, err, known)
				}
				delete(model, key)
			},
			"": func(t *rapid.T) {
				if m.Len() != len(model) || len(m.IDs()) != len(model) {
					t.Fatalf("Len() = %d, IDs() = %v, want %d", m.Len(), m.IDs(), len(model))
				}
				for _, key := range []string{"a", "b", "c", "d", "e"} {
					_, known := model[key]
					if _, err := m.Get(key); (err == nil) != known {
						t.Fatalf("Get(%s): %v, known %v", key, err, known)
					}
				}
			},
		})
	})
}

func reaches(model map[string][]string, from []string, target string) bool {
	for _, id := range from {
		if id == target || reaches(model, model[id], target) {
			return true
		}
	}
	return false
}

func TestRegistryIsConcurrent(t *testing.T) {
	m := newManager(t)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				id := fmt.Sprintf("a%d-%d", w, i)
				if err := m.Register(id, team("x", "y")); err != nil {
					t.Error(err)
				}
				m.Health(id)
				if i%2 == 0 {
					if err := m.Remove(id); err != nil {
						t.Error(err)
					}
				}
				m.IDs()
			}
		})
	}
	wg.Wait()
	if m.Len() != 8*100 {
		t.Errorf("Len() = %d", m.Len())
	}
}
