package teams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
)

// ListAgents prints the agents and teams of the server. skill and kind select agents; "" matches
// all.
func (c *Commands) ListAgents(ctx context.Context, skill, kind string) error {
	agents, err := console.Ask(c.Connection, "agents ls", func(server *client.Team) ([]*teamv1.RegisteredAgent, error) {
		return server.ListAgents(ctx, skill, kind)
	})
	if err != nil {
		return err
	}
	return console.Table(c.Console, agents, "ID\tKIND\tORIGIN\tSKILLS\tNAME", func(a *teamv1.RegisteredAgent) []string {
		return []string{a.GetId(), a.GetKind(), console.Enum(a.GetOrigin(), "ORIGIN_"), cmp.Or(strings.Join(a.GetInfo().GetCapabilities(), ","), "-"), a.GetInfo().GetName()}
	})
}

// GetAgent prints an agent or a team: what it says about itself, and its health, which the server checks first.
func (c *Commands) GetAgent(ctx context.Context, id string) error {
	a, err := console.Ask(c.Connection, "agents get", func(server *client.Team) (*teamv1.RegisteredAgent, error) { return server.GetAgent(ctx, id) })
	if err != nil {
		return err
	}
	if c.Console.JSON {
		return c.Console.Print(a)
	}
	health := "healthy"
	if !a.GetHealth().GetHealthy() {
		health = strings.TrimSuffix("not healthy: "+a.GetHealth().GetDetail(), ": ")
	}
	rows := [][]string{
		{"id", a.GetId()}, {"kind", a.GetKind()}, {"origin", console.Enum(a.GetOrigin(), "ORIGIN_")}, {"name", a.GetInfo().GetName()}, {"does", a.GetInfo().GetDescription()},
		{"health", health}, {"accepts", strings.Join(a.GetInfo().GetInputModes(), ", ")}, {"answers", strings.Join(a.GetInfo().GetOutputModes(), ", ")},
	}
	for _, key := range slices.Sorted(maps.Keys(a.GetInfo().GetMetadata())) {
		rows = append(rows, []string{key, a.GetInfo().GetMetadata()[key]})
	}
	for _, skill := range a.GetInfo().GetSkills() {
		rows = append(rows, []string{"skill", skill.GetId() + ": " + skill.GetDescription()})
	}
	if a.GetChangedBy() != "" {
		rows = append(rows, []string{"changed", a.GetChanged().AsTime().Format(time.RFC3339) + " by " + a.GetChangedBy()})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(c.Console.Text(), "%-12s %s\n", console.Line(row[0]), console.Below(row[1]))
		}
	}
	return nil
}

// checks is the number of agents that CheckAgents checks concurrently.
const checks = 8

// CheckAgents makes the server check the health of each agent and prints the results. For a remote
// agent the server fetches its card. It returns console.ErrFailed if an agent is unhealthy.
func (c *Commands) CheckAgents(ctx context.Context) error {
	server, err := c.Connection.Manager("agents check")
	if err != nil {
		return err
	}
	defer server.Close()
	agents, err := server.ListAgents(ctx, "", "")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, checks)
	errs := make([]error, len(agents))
	for i := range agents {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var a *teamv1.RegisteredAgent
			if a, errs[i] = server.GetAgent(ctx, agents[i].GetId()); errs[i] == nil {
				agents[i] = a
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	well := true
	err = console.Table(c.Console, agents, "ID\tKIND\tHEALTH\tDETAIL", func(a *teamv1.RegisteredAgent) []string {
		h := a.GetHealth()
		if h.GetHealthy() {
			return []string{a.GetId(), a.GetKind(), "ok", h.GetDetail()}
		}
		well = false
		return []string{a.GetId(), a.GetKind(), "down", h.GetDetail()}
	})
	if err == nil && !well {
		return console.ErrFailed
	}
	return err
}
