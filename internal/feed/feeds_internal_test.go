package feed

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// feedAt is a feed that has come to a sequence and keeps what is behind base.
func feedAt(base, seq int64) *feed {
	f := &feed{journal: journal{stop: func() {}}}
	f.ring.Base, f.told.seq = base, seq
	return f
}

func TestP5_FeedOfACursor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cursor int64
		early  bool
		found  bool
	}{
		{"at the oldest that is kept", 10, false, true}, {"older", 9, false, false},
		{"at the newest", 20, false, true}, {"newer", 21, false, false},
		{"early: half the way", 15, true, true}, {"early: close to what is dropped next", 14, true, false},
	} {
		t.Run("P5 "+tt.name, func(t *testing.T) {
			var s Feeds
			l := s.join(Key{})
			s.add(l, feedAt(10, 20))
			if got := s.find(l, tt.cursor, tt.early) != nil; got != tt.found {
				t.Errorf("found %v, want %v", got, tt.found)
			}
		})
	}
}

func TestP5_FeedsThatComeAndGo(t *testing.T) {
	var s Feeds
	l := s.join(Key{})
	far, late := feedAt(0, 20), feedAt(0, 5)
	s.add(l, late)
	s.add(l, far)
	if far.behind.Load() || !late.behind.Load() {
		t.Error("which one is behind: ", far.behind.Load(), late.behind.Load())
	}
	if s.newest(l) != far {
		t.Error("it is not the one that has come furthest")
	}
	if s.left(l, far) || !s.left(l, far) {
		t.Error("the last of two readers ends a feed, not the first")
	}
	if late.behind.Load() {
		t.Error("the only one is behind")
	}
}

// TestP10_WhatAFeedKeeps: each response counts three times.
func TestP10_WhatAFeedKeeps(t *testing.T) {
	m := &a2av1.StreamResponse{Payload: &a2av1.StreamResponse_Message{Message: &a2av1.Message{MessageId: strings.Repeat("x", 100)}}}
	told, first := &entry{updates: []Update{{Response: m}}}, &entry{first: Update{Response: m}}
	told.measure()
	first.measure()
	if n := proto.Size(m); told.size != 512+3*n || first.size != 256+3*n {
		t.Error(n, told.size, first.size)
	}
}
