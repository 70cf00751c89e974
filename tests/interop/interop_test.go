// Package interop drives the server, as a process, with the client of the
// official Go SDK over every binding, and compares our definition of the
// protocol with the SDK's. It is a module of its own: the SDK is needed here only.
package interop

import (
	"os"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/tests/interoprig"
)

// scenario is what one client does with one agent. What it returns has to be
// alike on all bindings.
type scenario struct {
	step  string // of the matrix
	name  string
	agent string
	play  func(s *stage) any
}

// Every scenario on every binding, with the same checks, and then the answers
// of the bindings against each other.
func TestA_12_GoSDK(t *testing.T) {
	program := interoprig.BuildServer(t)
	t.Run("demo", func(t *testing.T) {
		s := interoprig.Serve(t, program)
		t.Run("card", func(t *testing.T) {
			for _, b := range bindings() {
				goSDK(t, b).Records(t, "card")
			}
			testCard(t, s)
		})
		playAll(t, s, newsroom())
	})
	t.Run("scripted", func(t *testing.T) {
		s := interoprig.Serve(t, program, interoprig.Team(t))
		playAll(t, s, tasks())
		playAll(t, s, questions())
		playAll(t, s, refusals())
		playAll(t, s, pushes())
	})
	for _, b := range bindings() {
		limited(goSDK(t, b))
	}
}

func TestMain(m *testing.M) { os.Exit(interoprig.Main(m)) }

// goSDK is the SDK that this program is linked with, in the matrix.
func goSDK(t *testing.T, b a2a.TransportProtocol) interoprig.Column {
	t.Helper()
	return interoprig.Column{Client: "a2a-go", Version: interoprig.Pinned(t, "go.mod", "a2a-go/v2"), Binding: string(b)}
}

func playAll(t *testing.T, s interoprig.Server, scenarios []scenario) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			answers := map[a2a.TransportProtocol]string{}
			for _, b := range bindings() {
				t.Run(string(b), func(t *testing.T) {
					goSDK(t, b).Records(t, sc.step)
					answers[b] = alike(t, sc.play(newStage(t, s, sc.agent, b)))
				})
			}
			first := bindings()[0]
			for _, b := range bindings()[1:] {
				if diff := cmp.Diff(answers[first], answers[b]); diff != "" {
					t.Errorf("%s answers otherwise than %s (-%s +%s):\n%s", b, first, first, b, diff)
				}
			}
		})
	}
}
