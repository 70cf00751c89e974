package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/halt/inforce"
)

// Halt halts a subject of the server and prints what that has stopped. It returns console.ErrFailed if a
// replica may still begin calls.
func (c *Commands) Halt(ctx context.Context, req *teamv1.HaltRequest) error {
	resp, err := console.Ask(c.Connection, "halt", func(server *client.Team) (*teamv1.HaltResponse, error) { return server.Halt(ctx, req) })
	if err != nil {
		return err
	}
	if c.Console.JSON {
		err = c.Console.Print(resp)
	} else {
		err = c.receipt(resp)
	}
	if err != nil {
		return err
	}
	for _, replica := range resp.GetStragglers() {
		c.Console.Sayf("replica %s has not applied the halt in time: it may begin calls until it does, or until it loses its lease", replica)
	}
	if len(resp.GetStragglers()) > 0 {
		return console.ErrFailed
	}
	return nil
}

// receipt prints what a halt has stopped, and what may still be running on other servers.
func (c *Commands) receipt(resp *teamv1.HaltResponse) error {
	if _, err := fmt.Fprintf(c.Console.Out, "%s is halted\n", inforce.Describe(resp.GetHalt())); err != nil {
		return err
	}
	if len(resp.GetTasks()) == 0 {
		return nil
	}
	err := console.Table(c.Console, resp.GetTasks(), "TASK\tOWNER\tAGENT\tSTATE", func(t *teamv1.HaltedTask) []string {
		return []string{t.GetTaskId(), t.GetOwner(), cmp.Or(t.GetAgent(), "-"), console.Enum(t.GetState(), "HALTED_STATE_")}
	})
	if err != nil {
		return err
	}
	if more := int(resp.GetTotal()) - len(resp.GetTasks()); more > 0 {
		c.Console.Sayf("and %d more", more)
	}
	for _, t := range resp.GetTasks() {
		for _, e := range t.GetReceipt().GetEntries() {
			if e.GetUnconfirmed() {
				c.Console.Sayf("%s may still be working for %s on another server, task %s", e.GetAgent(), t.GetTaskId(), cmp.Or(e.GetRemoteTaskId(), "unknown"))
			}
		}
	}
	return nil
}

// EndHalt ends the halt of a subject.
func (c *Commands) EndHalt(ctx context.Context, req *teamv1.ResumeRequest) error {
	resp, err := console.Ask(c.Connection, "resume", func(server *client.Team) (*teamv1.ResumeResponse, error) { return server.EndHalt(ctx, req) })
	if err != nil {
		return err
	}
	if c.Console.JSON {
		return c.Console.Print(resp)
	}
	subject, became := &teamv1.Halt{Kind: req.GetKind(), Name: req.GetName()}, "is resumed"
	if resp.GetHalt() == nil {
		became = "was not halted"
	}
	_, err = fmt.Fprintf(c.Console.Out, "%s %s\n", inforce.Describe(subject), became)
	return err
}

// ListHalts prints the halts in force.
func (c *Commands) ListHalts(ctx context.Context) error {
	halts, err := console.Ask(c.Connection, "halt ls", func(server *client.Team) ([]*teamv1.Halt, error) { return server.Halts(ctx) })
	if err != nil {
		return err
	}
	return console.Table(c.Console, halts, "KIND\tNAME\tACCOUNT\tMODE\tBY\tSINCE\tREASON", func(h *teamv1.Halt) []string {
		mode := "cancel"
		if h.GetPause() {
			mode = "pause"
		}
		return []string{console.Enum(h.GetKind(), "HALT_KIND_"), cmp.Or(h.GetName(), "-"), cmp.Or(h.GetAccount(), "-"), mode, h.GetBy(), h.GetAt().AsTime().Local().Format(time.DateTime), h.GetReason()}
	})
}
