package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/halt/inforce"
)

// Halt halts a subject of the server and prints what that has stopped. It returns ErrFailed if a
// replica may still begin calls.
func (s *Shell) Halt(ctx context.Context, req *teamv1.HaltRequest) error {
	c, err := s.Manager("halt")
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.Halt(ctx, req)
	if err != nil {
		return err
	}
	if s.JSON {
		err = s.Print(resp)
	} else {
		err = s.receipt(resp)
	}
	if err != nil {
		return err
	}
	for _, replica := range resp.GetStragglers() {
		s.Sayf("replica %s has not applied the halt in time: it may begin calls until it does, or until it loses its lease", replica)
	}
	if len(resp.GetStragglers()) > 0 {
		return ErrFailed
	}
	return nil
}

// receipt prints what a halt has stopped, and what may still be running on other servers.
func (s *Shell) receipt(resp *teamv1.HaltResponse) error {
	if _, err := fmt.Fprintf(s.Out, "%s is halted\n", inforce.Describe(resp.GetHalt())); err != nil {
		return err
	}
	if len(resp.GetTasks()) == 0 {
		return nil
	}
	err := console.Table(&s.Console, resp.GetTasks(), "TASK\tOWNER\tAGENT\tSTATE", func(t *teamv1.HaltedTask) []string {
		return []string{t.GetTaskId(), t.GetOwner(), cmp.Or(t.GetAgent(), "-"), lower(t.GetState(), "HALTED_STATE_")}
	})
	if err != nil {
		return err
	}
	if more := int(resp.GetTotal()) - len(resp.GetTasks()); more > 0 {
		s.Sayf("and %d more", more)
	}
	for _, t := range resp.GetTasks() {
		for _, e := range t.GetReceipt().GetEntries() {
			if e.GetUnconfirmed() {
				s.Sayf("%s may still be working for %s on another server, task %s", e.GetAgent(), t.GetTaskId(), cmp.Or(e.GetRemoteTaskId(), "unknown"))
			}
		}
	}
	return nil
}

// EndHalt ends the halt of a subject.
func (s *Shell) EndHalt(ctx context.Context, req *teamv1.ResumeRequest) error {
	c, err := s.Manager("resume")
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.EndHalt(ctx, req)
	if err != nil || s.JSON {
		return s.printed(err, resp)
	}
	subject, became := &teamv1.Halt{Kind: req.GetKind(), Name: req.GetName()}, "is resumed"
	if resp.GetHalt() == nil {
		became = "was not halted"
	}
	_, err = fmt.Fprintf(s.Out, "%s %s\n", inforce.Describe(subject), became)
	return err
}

// ListHalts prints the halts in force.
func (s *Shell) ListHalts(ctx context.Context) error {
	c, err := s.Manager("halt ls")
	if err != nil {
		return err
	}
	defer c.Close()
	halts, err := c.Halts(ctx)
	if err != nil {
		return err
	}
	return console.Table(&s.Console, halts, "KIND\tNAME\tACCOUNT\tMODE\tBY\tSINCE\tREASON", func(h *teamv1.Halt) []string {
		mode := "cancel"
		if h.GetPause() {
			mode = "pause"
		}
		return []string{lower(h.GetKind(), "HALT_KIND_"), cmp.Or(h.GetName(), "-"), cmp.Or(h.GetAccount(), "-"), mode, h.GetBy(), h.GetAt().AsTime().Local().Format(time.DateTime), h.GetReason()}
	})
}
