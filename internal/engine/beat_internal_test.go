package engine

import (
	"testing"
	"time"
)

func TestA_16_WhenRunsAreGivenUp(t *testing.T) {
	type beat struct {
		at   int // seconds, when it came back
		ok   bool
		lost bool // the runs must be given up
	}
	for name, beats := range map[string][]beat{
		"heard of":               {{5, true, false}, {10, true, false}, {15, true, false}},
		"not heard of":           {{5, false, false}, {10, false, true}, {15, false, true}},
		"heard of again in time": {{5, false, false}, {14, true, false}, {19, true, false}},
		"stopped for a minute":   {{5, true, false}, {65, true, true}, {70, true, false}},
		"heard of after long":    {{10, false, true}, {20, false, true}, {25, true, false}, {30, true, false}},
	} {
		start := time.Now()
		p := pulse{every: 5 * time.Second, heard: start}
		for _, b := range beats {
			now := start.Add(time.Duration(b.at) * time.Second)
			if lost := p.beaten(now, now, b.ok); lost != b.lost {
				t.Errorf("%s: after %d s %v, want %v", name, b.at, lost, b.lost)
			}
		}
	}
}
