package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/agentteams/team-server/tests/interoprig"
)

// cli is the command line program of the official Go SDK, with one binding.
type cli struct {
	*testing.T
	interoprig.Server
	ctx     context.Context
	program string
	binding a2a.TransportProtocol
}

// at are the arguments that name an agent on the binding, without the help of its card.
func (c *cli) at(agent string) []string {
	switch c.binding {
	case a2a.TransportProtocolGRPC:
		return []string{"--transport", "grpc", "--insecure", "--tenant", agent, c.GRPC}
	case a2a.TransportProtocolJSONRPC:
		return []string{"--transport", "jsonrpc", c.URL + "/" + agent + "/rpc"}
	default:
		return []string{"--transport", "rest", "--tenant", agent, c.URL}
	}
}

// run runs a command, and returns what it prints, or what it says is wrong.
func (c *cli) run(args ...string) ([]byte, error) {
	out, err := exec.CommandContext(c.ctx, c.program, append([]string{"-o", "json"}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// task runs a command that has to print a task.
func (c *cli) task(args ...string) *a2a.Task {
	c.Helper()
	out, err := c.run(args...)
	task := &a2a.Task{}
	if err := errors.Join(err, json.Unmarshal(out, task)); err != nil {
		c.Fatalf("%v: %v\n%s", args, err, out)
	}
	return task
}

// send runs send: at an agent, with flags.
func (c *cli) send(agent, text string, flags ...string) *a2a.Task {
	c.Helper()
	return c.task(slices.Concat([]string{"send"}, flags, c.at(agent), []string{text})...)
}

// on runs a command for a task of an agent.
func (c *cli) on(command []string, agent string, id a2a.TaskID) *a2a.Task {
	c.Helper()
	return c.task(slices.Concat(command, c.at(agent), []string{string(id)})...)
}

// events reads what a stream printed.
func (c *cli) events(out []byte) []a2a.Event {
	c.Helper()
	var events []a2a.Event
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var r a2a.StreamResponse
		if err := in.Decode(&r); err == io.EOF {
			return events
		} else if err != nil {
			c.Fatalf("%v\n%s", err, out)
		}
		events = append(events, r.Event)
	}
}

func (c *cli) is(task *a2a.Task, state a2a.TaskState) {
	c.Helper()
	if task.Status.State != state {
		c.Errorf("state %s, want %s", task.Status.State, state)
	}
}

func (c *cli) refused(want string, args ...string) {
	c.Helper()
	if out, err := c.run(args...); err == nil || !strings.Contains(err.Error(), want) {
		c.Errorf("%v: %v, want %q\n%s", args, err, want, out)
	}
}

// The official program for the command line, over each binding.
func TestA_12_GoCLI(t *testing.T) {
	program := executable(t, "a2a")
	build := exec.CommandContext(t.Context(), goCommand(t), "build", "-o", program, "github.com/a2aproject/a2a-go/v2/cmd/a2a")
	if log, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, log)
	}
	s := interoprig.Serve(t, interoprig.BuildServer(t), interoprig.Team(t))
	for _, b := range bindings() {
		column := interoprig.Column{Client: "a2a (CLI)", Version: interoprig.Pinned(t, "go.mod", "a2a-go/v2"), Binding: string(b)}
		t.Run(string(b), func(t *testing.T) {
			for _, step := range interoprig.Steps {
				play := cliSteps()[step]
				if play == nil {
					column.Lacks(t, step, "There is no command for it.")
					continue
				}
				t.Run(step, func(t *testing.T) {
					column.Records(t, step)
					ctx, cancel := context.WithTimeout(t.Context(), callTime)
					defer cancel()
					play(&cli{T: t, Server: s, ctx: ctx, program: program, binding: b})
				})
			}
			limited(column)
		})
	}
}

const tides = "high and low tide"

func cliSteps() map[string]func(*cli) {
	return map[string]func(*cli){
		"card": func(c *cli) {
			out, err := c.run("discover", c.URL+"/relay")
			card := &a2a.AgentCard{}
			if err := errors.Join(err, json.Unmarshal(out, card)); err != nil || card.Name != "relay" || len(card.SupportedInterfaces) != 3 {
				c.Errorf("%v\n%s", err, out)
			}
		},
		"send": func(c *cli) {
			task := c.send("relay", tides)
			c.is(task, a2a.TaskStateCompleted)
			if len(task.Artifacts) != 1 || text(task.Artifacts[0].Parts) != tides {
				c.Errorf("artifacts %+v", task.Artifacts)
			}
		},
		"stream": func(c *cli) {
			out, err := c.run(slices.Concat([]string{"send", "--stream"}, c.at("echo"), []string{tides})...)
			events := c.events(out)
			if err != nil || len(events) < 6 || fold(&a2a.Task{}, events) != tides {
				c.Errorf("%v\n%s", err, out)
			}
		},
		"get": func(c *cli) {
			task := c.send("relay", tides)
			c.is(c.on([]string{"get", "task"}, "relay", task.ID), a2a.TaskStateCompleted)
		},
		"list": func(c *cli) {
			first := c.send("relay", tides)
			second := c.send("relay", tides, "--context", first.ContextID)
			var page a2a.ListTasksResponse
			out, err := c.run(slices.Concat([]string{"list", "tasks", "--context", first.ContextID}, c.at("relay"))...)
			if err := errors.Join(err, json.Unmarshal(out, &page)); err != nil || len(page.Tasks) != 2 {
				c.Errorf("without a page size: %v\n%s", err, out)
			}
			out, err = c.run(slices.Concat([]string{"list", "tasks", "--context", first.ContextID, "--limit", "1"}, c.at("relay"))...)
			page = a2a.ListTasksResponse{}
			if err := errors.Join(err, json.Unmarshal(out, &page)); err != nil {
				c.Fatalf("%v\n%s", err, out)
			}
			if len(page.Tasks) != 1 || page.Tasks[0].ID != second.ID || page.TotalSize != 2 || page.NextPageToken == "" {
				c.Errorf("page %s", out)
			}
		},
		"cancel": func(c *cli) {
			task := c.send("bureau", "Wait", "--immediate")
			c.is(c.on([]string{"cancel"}, "bureau", task.ID), a2a.TaskStateCanceled)
		},
		"subscribe": func(c *cli) {
			asked := c.send("desk", "High tide")
			watch := exec.CommandContext(c.ctx, c.program, slices.Concat([]string{"-o", "json", "subscribe"}, c.at("desk"), []string{string(asked.ID)})...)
			out, err := watch.StdoutPipe()
			if err := errors.Join(err, watch.Start()); err != nil {
				c.Fatal(err)
			}
			stream := bufio.NewReader(out)
			if _, err := stream.Peek(1); err != nil { // it is there
				c.Fatal(err)
			}
			c.is(c.send("desk", "Brest", "--task", string(asked.ID)), a2a.TaskStateCompleted)
			printed, err := io.ReadAll(stream)
			if err := errors.Join(err, watch.Wait()); err != nil {
				c.Fatal(err)
			}
			if got := fold(asked, c.events(printed)); got != answered {
				c.Errorf("artifact %q", got)
			}
		},
		"question": func(c *cli) {
			asked := c.send("desk", "High tide")
			c.is(asked, a2a.TaskStateInputRequired)
			done := c.send("desk", "Brest", "--task", string(asked.ID))
			c.is(done, a2a.TaskStateCompleted)
			if done.ID != asked.ID {
				c.Errorf("answered by %s, want %s", done.ID, asked.ID)
			}
		},
		"unknown": func(c *cli) {
			const id, want = "00000000-0000-7000-8000-000000000000", "there is no task"
			c.refused(want, slices.Concat([]string{"get", "task"}, c.at("relay"), []string{id})...)
			c.refused(want, slices.Concat([]string{"cancel"}, c.at("relay"), []string{id})...)
			c.refused(want, slices.Concat([]string{"send", "--task", id}, c.at("relay"), []string{"more"})...)
			c.stream(want, slices.Concat([]string{"subscribe"}, c.at("relay"), []string{id})...)
		},
		"ended": func(c *cli) {
			id := string(c.send("relay", tides).ID)
			c.refused("has ended", slices.Concat([]string{"cancel"}, c.at("relay"), []string{id})...)
			c.refused("has ended", slices.Concat([]string{"send", "--task", id}, c.at("relay"), []string{"more"})...)
			c.stream("has ended", slices.Concat([]string{"subscribe"}, c.at("relay"), []string{id})...)
		},
	}
}

// stream runs a command whose stream is refused. Over JSON-RPC the program does not see it.
func (c *cli) stream(want string, args ...string) {
	c.Helper()
	if c.binding != a2a.TransportProtocolJSONRPC {
		c.refused(want, args...)
	} else if out, err := c.run(args...); err != nil || len(out) != 0 {
		c.Errorf("%v: %v\n%s\nit sees refused streams by now: want %q, and drop losesRefusals", args, err, out, want)
	}
}
