package mcp

import (
	"context"
	"testing"
	"time"
)

// TestKeepOpenAfterTheEnd: a call is not kept open after the end of the attempt, whose release may have
// come before.
func TestKeepOpenAfterTheEnd(t *testing.T) {
	s := &Server{open: map[string]*openCall{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.keepOpen(ctx, "key", &openCall{}, time.Hour) || s.Kept() != 0 {
		t.Errorf("%d calls are kept open", s.Kept())
	}
}
