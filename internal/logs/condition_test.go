package logs_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agentteams/team-server/internal/logs"
)

// TestCondition: a failure that lasts is logged when it begins, every five minutes, and when it is over.
func TestCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.InfoLevel)
		var c logs.Condition
		for second := range 1000 {
			var err error
			if second >= 10 && second < 650 {
				err = errors.New("no store")
			}
			c.Report(zap.New(core), "cannot read", "reads again", err)
			time.Sleep(time.Second)
		}
		var got []string
		for _, line := range seen.All() {
			got = append(got, fmt.Sprint(line.Level, " ", line.Message, " ", line.ContextMap()["not_logged"], " ", line.ContextMap()["error"]))
		}
		want := []string{"warn cannot read 0 no store", "warn cannot read 299 no store", "warn cannot read 299 no store", "info reads again <nil> <nil>"}
		if !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}
