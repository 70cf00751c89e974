package mcp

import (
	"context"
	"testing"
	"time"
)

// TestKeepOpenAfterTheEnd: a call is not kept open after the end of the attempt, whose release may have
// come before.
func TestKeepOpenAfterTheEnd(t *testing.T) {
	s, o := &Server{}, &openCall{}
	s.asking = o
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.keepOpen(ctx, o, time.Hour) || s.Kept() != 0 {
		t.Errorf("%d calls are kept open", s.Kept())
	}
}
