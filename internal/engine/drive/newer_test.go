package drive_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
)

// TestP19_EventOfALaterVersion: a run with an event that this version cannot read is not driven, and nothing is
// appended to it.
func TestP19_EventOfALaterVersion(t *testing.T) {
	all := newAgents(t, echo("echo"))
	s := newSingle(t, "echo")
	unknown := &teamv1.Event{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), nil))
	c := s.take(t)
	if err := c.Journal.Append(t.Context(), unknown); err != nil {
		t.Fatal(err)
	}
	if err := c.Journal.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(s.events(t))
	s.die(t)
	if _, err := all.runner().Drive(t.Context(), s.take(t)); !errors.Is(err, runs.ErrNewer) {
		t.Errorf("%v, want %v", err, runs.ErrNewer)
	}
	if after := len(s.events(t)); after != before {
		t.Errorf("%d events were appended", after-before)
	}
}
