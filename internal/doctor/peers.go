package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/mcp"
	"github.com/agentteams/team-server/pkg/model"
)

// otherUsers reports whether files have permissions for other users.
const otherUsers = runtime.GOOS != "windows"

// issuers checks that the keys of the issuers of tokens can be read.
func (r *run) issuers() (jobs []job) {
	for _, i := range auth.IssuersOf(settings.WithDefaults(r.Definition.Settings()).GetAuth()) {
		name := "issuer " + i.Name
		jobs = append(jobs, job{name, func(ctx context.Context) []Check {
			n, err := auth.CheckIssuer(ctx, i)
			if err != nil {
				return failed(name, "check issuer, jwks_url and ca, and that this machine reaches them", "its keys cannot be read, so its tokens are refused: %s", textOf(err))
			}
			return ok(name, "its keys can be read; keys: %d", n)
		}})
	}
	return jobs
}

// models checks that the endpoints of models answer and accept their keys, by calls that cost no tokens.
func (r *run) models() (jobs []job) {
	for _, id := range slices.Sorted(maps.Keys(r.Definition.Server.GetModels())) {
		if !config.Connected(r.Definition.Server.GetModels()[id]) {
			continue // without a key, and no agent uses it
		}
		name := "model " + id
		jobs = append(jobs, job{name, func(ctx context.Context) []Check { return r.model(ctx, name, id) }})
	}
	return jobs
}

func (r *run) model(ctx context.Context, name, id string) []Check {
	m, err := r.parts.Model(id)
	if err != nil {
		return failed(name, "correct the model in the file", "%s", textOf(err))
	}
	c, checks := m.(model.Checker)
	if !checks {
		return ok(name, "it calls no endpoint")
	}
	switch err := c.Check(ctx); {
	case err == nil:
		return ok(name, "its endpoint answers, accepts the key and lists the model")
	case errors.Is(err, model.ErrNoList):
		return warning(name, "run a task to learn whether the key is accepted", "its endpoint answers, but has no list of models")
	case errors.Is(err, model.ErrNotListed):
		return warning(name, "check the name of the model, unless it is an alias", "its endpoint accepts the key, but does not list the model %q", m.Name())
	default:
		return failed(name, "", "%s", textOf(err)) // which says what to do
	}
}

// agents checks the remote agents that are served or that served agents work with.
func (r *run) agents() (jobs []job) {
	all := r.Definition.Server.GetAgents()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		a, name := all[id], "agent "+id
		switch {
		case !r.Definition.Used[id]:
		case a.GetA2A() != nil:
			jobs = append(jobs, job{name, func(ctx context.Context) []Check { return r.a2a(ctx, name, id) }})
		case a.GetGrpc() != nil:
			jobs = append(jobs, job{name, func(ctx context.Context) []Check { return r.grpc(ctx, name, id) }})
		}
	}
	return jobs
}

const doAgent = "check its address, its token and that it runs"

// a2a checks that the card of an agent has an interface that can be used, and that the agent is healthy.
func (r *run) a2a(ctx context.Context, name, id string) []Check {
	a, err := r.parts.A2A(id)
	if err != nil {
		return failed(name, "correct the agent in the file", "%s", textOf(err))
	}
	defer a.Close() //nolint:errcheck // it was only checked
	health, err := a.HealthCheck(ctx)
	if err != nil {
		return failed(name, doAgent, "%s", textOf(err))
	}
	version, binding, err := a.Interface(ctx)
	switch {
	case err != nil:
		return failed(name, doAgent, "%s", textOf(err))
	case !health.GetUsable():
		return failed(name, "ask its operator", "its card can be read, but it is not healthy: %s", textOf(errors.New(health.GetDetail())))
	}
	return ok(name, "its card can be read; calls use A2A %s over %s", version, binding)
}

// grpc checks the health of an agent that implements the Agent service.
func (r *run) grpc(ctx context.Context, name, id string) []Check {
	a, err := r.parts.GRPC(id)
	if err != nil {
		return failed(name, "correct the agent in the file", "%s", textOf(err))
	}
	defer a.Close() //nolint:errcheck // it was only checked
	health, err := a.HealthCheck(ctx)
	switch {
	case err != nil:
		return failed(name, doAgent, "%s", textOf(err))
	case !health.GetUsable():
		return failed(name, "ask its operator", "it is not healthy: %s", textOf(errors.New(health.GetDetail())))
	}
	return ok(name, "it answers and is healthy")
}

// toolText returns what a check shows of the error of an MCP server: the message for callers without its advice, and
// its cause, which callers do not see.
func toolText(err error) string {
	var e *agent.Error
	if !errors.As(err, &e) || e.Err == nil {
		return textOf(err)
	}
	text, _, _ := strings.Cut(e.Message, "; ")
	var missing *exec.Error
	var crash *mcp.Crash
	switch {
	case errors.As(e.Err, &missing) && errors.Is(missing, exec.ErrNotFound):
		return fmt.Sprintf("%s: program %q not found in PATH", text, missing.Name)
	case errors.As(e.Err, &crash) && len(crash.Stderr) > 0:
		return text + ", last line of stderr: " + textOf(errors.New(crash.Stderr[len(crash.Stderr)-1]))
	case crash != nil:
		return text + ", and wrote nothing to stderr"
	}
	return text + ": " + textOf(e.Err)
}

// tools checks the MCP servers that are used. It starts their programs, and stops them.
func (r *run) tools() (jobs []job) {
	for _, id := range slices.Sorted(maps.Keys(r.parts.UsedTools())) {
		name := "tool " + id
		jobs = append(jobs, job{name, func(ctx context.Context) []Check {
			s, err := r.parts.Tool(ctx, id)
			if err != nil {
				do := "check command and env"
				if r.Definition.Server.GetTools()[id].GetMcp().GetUrl() != "" {
					do = "check url and bearer"
				}
				if _, advice, _ := strings.Cut(agent.AsError(err).Message, "; "); strings.Contains(advice, "timeouts.start") {
					do = advice
				}
				place := config.Place(r.Definition, "tools", id) // the cause has it too
				return failed(name, do+" in "+place, "%s", strings.Replace(toolText(err), " "+place+":", "", 1))
			}
			defer s.Shutdown(ctx) //nolint:errcheck // it was only checked
			var offered []string
			for _, t := range s.Known() {
				offered = append(offered, t.Spec().Name)
			}
			if pattern := modes.Unmatched(r.Definition.Server.GetTools()[id].GetApprove(), offered); pattern != "" {
				return failed(name, "correct approve.tools", "approve.tools lists %q, which matches none of its tools: %s", pattern, strings.Join(offered, ", "))
			}
			return ok(name, "it offers tools: %d", len(offered))
		}})
	}
	return jobs
}
