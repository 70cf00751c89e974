// Package endpoints shows what a user sees of real model servers. The night starts them, plays situations with an
// agent, and compares with the bytes that were recorded; the tests of every change replay these bytes.
package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"regexp"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/pkg/model/openai"
	"github.com/agentteams/team-server/pkg/secret"
	"github.com/agentteams/team-server/pkg/team/leader"
)

// situation is one thing that happens to an agent whose model a server runs.
type situation struct {
	name  string
	text  string
	force string                                       // the tool that the model must call, as a router of a team must
	parts []*a2av1.Part                                // besides the text
	set   func(c *model.Config, a *leader.AgentConfig) // what is not as usual; may be nil
	shows func(o *outcome) string                      // what the user sees of an answer; nil means answer
}

// situations are the rows of the table in docs/models.md.
var situations = []situation{
	{name: "streaming", text: "Say hello.", shows: (*outcome).streamed},
	{name: "tools", text: "What is the weather in Paris? Call get_weather.", set: tools("get_weather"), shows: (*outcome).called},
	{name: "two tools", text: "What is the weather in Paris, and what time is it? Call get_weather and get_time.", set: tools("get_weather", "get_time"), shows: (*outcome).called},
	{name: "forced tool", text: "What is the weather in Paris?", force: "get_weather", set: tools("get_weather"), shows: (*outcome).called},
	{name: "usage", text: "Say hello.", shows: (*outcome).counted},
	{name: "cut", text: "Tell a long story about the sea.", set: func(c *model.Config, _ *leader.AgentConfig) { c.MaxOutput = 8 }},
	{name: "filtered", text: "Say something that is filtered."},
	{name: "output_schema", text: "Score this text from 0 to 10, as JSON: The sea is blue.", set: func(_ *model.Config, a *leader.AgentConfig) {
		a.Schema = json.RawMessage(`{"type":"object","properties":{"score":{"type":"integer"}},"required":["score"],"additionalProperties":false}`)
	}, shows: (*outcome).scored},
	{name: "context too long", text: strings.Repeat("word ", 3000)},
	{name: "wrong key", text: "Say hello.", set: func(c *model.Config, _ *leader.AgentConfig) { c.APIKey = secret.New("wrong-key-of-a-test") }},
	{name: "wrong model", text: "Say hello.", set: func(c *model.Config, _ *leader.AgentConfig) { c.Name = "nonesuch" }},
	{name: "image", text: "What is in this image?", parts: []*a2av1.Part{{Content: &a2av1.Part_Raw{Raw: []byte(pixel)}, MediaType: "image/png", Filename: "pixel.png"}}, set: func(c *model.Config, _ *leader.AgentConfig) {
		c.Accepts = append([]string{"image/*"}, agent.TextFiles...)
	}},
	{name: "reasoning", text: "Think, then say hello.", shows: (*outcome).reasoned},
}

// pixel is a PNG image of one pixel.
const pixel = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\xdac\xfc\xcf\xc0P\x0f\x00\x04\x85\x01\x80\x84\xa9\x8c!\x00\x00\x00\x00IEND\xaeB`\x82"

// tools gives an agent tools.
func tools(names ...string) func(*model.Config, *leader.AgentConfig) {
	return func(_ *model.Config, a *leader.AgentConfig) {
		for _, name := range names {
			a.Tools = append(a.Tools, tool(name))
		}
	}
}

// tool is a tool with a fixed result.
type tool string

// Spec implements agent.Tool.
func (t tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: string(t), Description: "Returns the " + strings.TrimPrefix(string(t), "get_") + " of a city.", Effect: agent.EffectSafe,
		Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}
}

// Call implements agent.Tool.
func (t tool) Call(context.Context, json.RawMessage, string) (*teamv1.ToolResult, error) {
	return &teamv1.ToolResult{Text: "It is fine."}, nil
}

// watched is a model that notes what it yields.
type watched struct {
	*openai.Model
	pieces, calls, turns int
	spent                []*teamv1.Spent
}

// Generate implements agent.Model.
func (w *watched) Generate(ctx context.Context, req *agent.ModelRequest) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		for chunk, err := range w.Model.Generate(ctx, req) {
			if chunk.Text != "" {
				w.pieces++
			}
			if chunk.Turn != nil {
				w.turns++
				w.calls += len(chunk.Turn.GetToolCalls())
				w.spent = append(w.spent, chunk.Spent)
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// outcome is what has become of a situation.
type outcome struct {
	text  string
	err   error
	model *watched
}

// play has an agent answer in a situation.
func (s *situation) play(t *testing.T, c model.Config) *outcome {
	t.Helper()
	temperature := 0.0
	c.Settings = &teamv1.ModelSettings{Temperature: &temperature, Stop: []string{"."}} // a sentence, so that records stay small
	one, turns := int32(1), int32(4)
	a := leader.AgentConfig{ID: "agent", Instructions: "Be brief.", Limits: &teamv1.Limits{MaxTurns: &turns, Retry: &teamv1.Retry{Attempts: &one}}}
	if s.set != nil {
		s.set(&c, &a)
	}
	m, err := openai.New(c)
	if err != nil {
		t.Fatal(err)
	}
	o := &outcome{model: &watched{Model: m}}
	if s.force != "" {
		req := &agent.ModelRequest{Agent: "agent", Messages: []agent.ModelMessage{{Role: agent.RoleUser, Text: s.text}}, Tools: []agent.ToolSpec{tool(s.force).Spec()}, Force: s.force}
		for chunk, err := range o.model.Generate(t.Context(), req) {
			for _, c := range chunk.Turn.GetToolCalls() {
				if c.GetName() != s.force || !json.Valid([]byte(c.GetArguments())) {
					o.err = fmt.Errorf("the call %v", c)
				}
			}
			if err != nil {
				o.err = err
			}
		}
		return o
	}
	a.Model = o.model
	built, err := leader.NewAgent(a)
	if err != nil {
		t.Fatal(err)
	}
	ctx := agent.With(t.Context(), &agent.Run{Root: "run", Committer: func(ctx context.Context) error { return ctx.Err() }})
	msg := agent.UserMessage("m", s.text)
	msg.Parts = append(msg.Parts, s.parts...)
	seq := int64(0)
	for ev, err := range built.Process(ctx, &teamv1.ProcessRequest{AgentId: "agent", Message: msg}) {
		if err != nil {
			o.err = err
			break
		}
		seq++
		ev.Seq = seq
		if ev.GetScope() == "" && ev.GetReply() != nil {
			o.text = agent.Text(ev.GetReply().GetMessage())
		}
	}
	return o
}

// cell returns what the user sees, as in the table.
func (o *outcome) cell(s *situation) string {
	var e *agent.Error
	switch {
	case errors.As(o.err, &e):
		return "`" + e.Reason + "`: " + short(e.Message)
	case o.err != nil:
		return "error: " + o.err.Error()
	case s.shows != nil:
		return s.shows(o)
	case strings.TrimSpace(o.text) == "":
		return "an empty answer"
	}
	return "an answer"
}

func (o *outcome) streamed() string {
	if o.model.pieces > 1 {
		return "an answer, in pieces"
	}
	return "an answer, in one piece"
}

func (o *outcome) called() string {
	switch n := o.model.calls; n {
	case 0:
		return "an answer without a call"
	case 1:
		return "a call"
	default:
		return fmt.Sprintf("%d calls", n)
	}
}

func (o *outcome) counted() string {
	for _, s := range o.model.spent {
		if s == nil || s.GetEstimated() {
			return "not reported; booked as estimated"
		}
	}
	return "reported, and booked"
}

func (o *outcome) scored() string {
	var score struct{ Score *int }
	if json.Unmarshal([]byte(o.text), &score) != nil || score.Score == nil {
		return "an answer that does not fit"
	}
	return "an answer that fits"
}

func (o *outcome) reasoned() string {
	if strings.Contains(o.text, "think") || strings.Contains(o.text, "Hmm") {
		return "an answer with reasoning"
	}
	return "an answer without reasoning"
}

// modelName matches the name of a model in an error, which is not shown in the table.
var modelName = regexp.MustCompile(`^(the endpoint of )?model "[^"]*" `)

// short returns the beginning of an error.
func short(message string) string {
	message = strings.ReplaceAll(modelName.ReplaceAllString(message, ""), "|", "/")
	if r := []rune(message); len(r) > 160 {
		return string(r[:160]) + "…"
	}
	return message
}

// transport is a function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
