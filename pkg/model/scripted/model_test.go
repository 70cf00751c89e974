package scripted_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/modeltest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model/scripted"
)

func start(t *testing.T, script string) modeltest.Subject {
	t.Helper()
	s, err := scripted.Parse("test.script.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	m, err := scripted.New(scripted.Config{Script: s})
	if err != nil {
		t.Fatal(err)
	}
	return modeltest.Subject{Model: m}
}

func TestModel(t *testing.T) { modeltest.Run(t, start) }

func TestNewNeedsAScript(t *testing.T) {
	if _, err := scripted.New(scripted.Config{}); err == nil {
		t.Error("no error without a script")
	}
}

func TestDelayIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, `agents: {writer: [{delay_ms: 250, text: x}]}`)
		began := time.Now()
		a := modeltest.Collect(t.Context(), t, s.Model, modeltest.Ask("x"))
		if a.Err != nil || time.Since(began) != 250*time.Millisecond {
			t.Errorf("answered after %v with %v, want 250ms", time.Since(began), a.Err)
		}
	})
}

func TestFailureOfOnesOwnWords(t *testing.T) {
	s := start(t, `agents: {writer: [{error: {status: 500, reason: DATA_LOSS, message: "The disk is gone."}}]}`)
	e := agent.AsError(modeltest.Collect(t.Context(), t, s.Model, modeltest.Ask("x")).Err)
	if e.Reason != agent.ReasonDataLoss || e.Message != "The disk is gone." || !e.Retry {
		t.Errorf("error = %+v", e)
	}
}

// A script keeps no state: the same request gets the same answer, also from
// another process.
func TestAnswersAreRepeatable(t *testing.T) {
	const script = `agents: {writer: [{text: "{{input}}", tool_calls: [{name: a}, {name: b, arguments: {x: [1, "{{input}}"], a: true}}]}]}`
	first := modeltest.Collect(context.Background(), t, start(t, script).Model, modeltest.Ask("q"))
	second := modeltest.Collect(context.Background(), t, start(t, script).Model, modeltest.Ask("q"))
	if first.Turn.String() != second.Turn.String() || first.Spent.String() != second.Spent.String() {
		t.Errorf("%v %v, then %v %v", first.Turn, first.Spent, second.Turn, second.Spent)
	}
}

// TestPrice counts what a turn would cost.
func TestPrice(t *testing.T) {
	m, err := scripted.New(scripted.Config{Script: parse(t, `agents: {a: [{text: one two three}]}`), Price: &teamv1.Price{Input: 0.25, Output: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if p := m.Price(); p != agent.FlatPrice(250_000, 2_000_000) {
		t.Errorf("price %v", p)
	}
	for c, err := range m.Generate(t.Context(), request("user: a b c d")) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Turn != nil && c.Spent.GetCostMicros() != 7 { // 4 tokens at 0.25, 3 at 2
			t.Errorf("cost %d", c.Spent.GetCostMicros())
		}
	}
}
