package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/build"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

const (
	// mostInput is more tokens than a request of a probe has, with what providers add to it.
	mostInput = 2000
	// mostOutput is the limit of tokens of an answer. Models that reason need some hundred.
	mostOutput = 1024
	// patience is how long a call may take. A server of one's own may have to load the model.
	patience = 3 * time.Minute
)

// probes are the calls, in their order.
var probes = []probe{
	{
		name: "text", request: agent.ModelRequest{Messages: say("Count from 1 to 12 in digits, with a space between two numbers. Answer with the numbers alone.")},
		judge: func(a *answer) (bool, string) { return a.turn.GetText() != "", quoted(a.turn.GetText()) },
	},
	{
		name: "tools", request: agent.ModelRequest{Messages: say("What is 19 plus 23? Use the tool add."), Tools: []agent.ToolSpec{{
			Name: "add", Description: "Adds two numbers.", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`),
		}}},
		judge: func(a *answer) (bool, string) {
			var sum struct{ A, B *float64 }
			calls := a.turn.GetToolCalls()
			if len(calls) == 0 {
				return false, "it answered without a call of the tool: " + quoted(a.turn.GetText())
			}
			text := calls[0].GetName() + " " + calls[0].GetArguments()
			err := json.Unmarshal([]byte(calls[0].GetArguments()), &sum)
			return calls[0].GetName() == "add" && err == nil && sum.A != nil && sum.B != nil, quoted(text)
		},
	},
	{
		name: "json", request: agent.ModelRequest{
			Messages: say(`Answer with a JSON object that has the key "sum": a whole number, the sum of 19 and 23.`),
			Schema:   json.RawMessage(`{"type":"object","properties":{"sum":{"type":"integer"}},"required":["sum"],"additionalProperties":false}`),
		},
		judge: func(a *answer) (bool, string) {
			var object struct{ Sum *int }
			err := json.Unmarshal([]byte(a.turn.GetText()), &object)
			return err == nil && object.Sum != nil, quoted(a.turn.GetText())
		},
	},
}

// probe is a call that shows whether a model can do something.
type probe struct {
	name    string
	request agent.ModelRequest
	// judge says whether it can, and what it did.
	judge func(*answer) (bool, string)
}

// answer is how a model has answered.
type answer struct {
	turn   *teamv1.Turn
	spent  *teamv1.Spent // nil if the endpoint has not reported it
	pieces int           // in which the text arrived
	took   time.Duration
}

// finding is what a probe has found out.
type finding struct {
	Name   string `json:"name"`
	Works  bool   `json:"works"`
	Detail string `json:"detail"`
}

// result is what Test has found out, as -o json prints it.
type result struct {
	ID        string        `json:"id"`
	Provider  string        `json:"provider"`
	Name      string        `json:"name"`
	Findings  []finding     `json:"findings"`
	Price     *teamv1.Price `json:"price,omitempty"`
	PriceFrom string        `json:"price_from,omitempty"`
	Calls     int           `json:"calls"`
	Input     int64         `json:"input_tokens"`
	Output    int64         `json:"output_tokens"`
	// CostUSD is what the calls have cost; nil if the price or the use is not known.
	CostUSD *float64 `json:"cost_usd,omitempty"`
}

// Test calls a model of the file and prints what works. If the model gives no answer at all, the error says what to do.
func (c *Commands) Test(ctx context.Context, id string) error {
	m := c.Definition.Server.GetModels()[id]
	switch lack := config.Lacks(c.Definition, id); {
	case m == nil:
		return console.Usagef("the file has no model %q; it has %s", console.Line(id), strings.Join(c.Names(), ", "))
	case m.GetProvider() == "scripted":
		return console.Usagef("model %q is scripted: it plays its file and calls no endpoint, so there is nothing to test", id)
	case lack != "":
		return fmt.Errorf("model %q needs %s; set it, or add it to .env", id, lack)
	}
	parts, err := build.OpenParts(c.Definition)
	if err != nil {
		return err
	}
	defer parts.Close()
	model, err := parts.Model(id)
	if err != nil {
		return err
	}
	r := &result{ID: id, Provider: m.GetProvider(), Name: m.GetName(), Price: m.GetPrice(), PriceFrom: c.priceFrom(id)}
	c.announce(r, model)
	spent, err := c.probe(ctx, model, r, parts.Close)
	if err != nil {
		return err
	}
	return c.show(r, spent)
}

// announce says what the calls can cost at most.
func (c *Commands) announce(r *result, model agent.Model) {
	most := "its price is not known"
	if r.Price != nil {
		most = "at most " + spending.Dollars(int64(len(probes))*agent.PriceOf(model).Ceil(mostInput, mostOutput)) + " USD"
	}
	c.Console.Sayf("testing model %s (%s of %s) with %d calls of at most %d input and %d output tokens: %s", r.ID, console.Line(r.Name), r.Provider, len(probes), mostInput, mostOutput, most)
}

// probe makes the calls, and returns what they have spent. The error is that of the first call: if that fails, there are no
// others. Each call has a connection of its own, as hangUp closes the idle ones: llama.cpp closes a connection at the end of
// a stream, so that a call that follows at once would fail.
func (c *Commands) probe(ctx context.Context, model agent.Model, r *result, hangUp func()) (spent []*teamv1.Spent, err error) {
	for i, p := range probes {
		c.Console.Sayf("call %d of %d: %s", i+1, len(probes), p.name)
		a, err := call(ctx, model, p.request)
		hangUp()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil && i == 0 {
			return nil, errors.New(reason(err))
		}
		r.Calls++
		if err != nil {
			r.add(p.name, false, reason(err))
			spent = append(spent, agent.AsError(err).Spent)
			continue
		}
		works, detail := p.judge(a)
		if end := a.turn.GetFinishReason(); !works && a.turn.GetText() == "" && len(a.turn.GetToolCalls()) == 0 {
			detail = fmt.Sprintf("no text and no call of a tool; the reason for the end is %q", end)
		}
		r.add(p.name, works, detail)
		if i == 0 {
			r.add("streaming", a.pieces > 1, fmt.Sprintf("the text arrived in %d pieces within %s", a.pieces, a.took.Round(time.Millisecond)))
		}
		spent = append(spent, a.spent)
	}
	return spent, nil
}

// show prints the findings, and what was spent.
func (c *Commands) show(r *result, spent []*teamv1.Spent) error {
	whole, micros := true, int64(0)
	for _, s := range spent {
		whole = whole && s != nil && !s.GetEstimated()
		r.Input, r.Output, micros = r.Input+s.GetInputTokens(), r.Output+s.GetOutputTokens(), micros+s.GetCostMicros()
	}
	usage := fmt.Sprintf("%d input and %d output tokens in %d calls", r.Input, r.Output, r.Calls)
	if !whole {
		usage += "; what a call does not report, budgets count as the most that it could be"
	}
	r.add("usage", whole, usage)
	price := "not known: add price: {input: X, output: Y} in USD per million tokens, or max_cost refuses the model"
	if r.Price != nil {
		price = fmt.Sprintf("%s input and %s output, USD per million tokens, from %s", usd(&r.Price.Input), usd(&r.Price.Output), r.PriceFrom)
	}
	r.add("price", r.Price != nil, price)
	if whole && r.Price != nil {
		cost := float64(micros) / 1e6
		r.CostUSD = &cost
	}
	if c.Console.JSON {
		return console.Lines(c.Console, []*result{r})
	}
	err := console.Columns(c.Console, r.Findings, "CHECK\tWORKS\tDETAIL", func(f finding) []string {
		works := "no"
		if f.Works {
			works = "yes"
		}
		return []string{f.Name, works, console.Line(f.Detail)}
	})
	if err == nil && r.CostUSD != nil {
		_, err = fmt.Fprintf(c.Console.Text(), "cost: %s USD\n", spending.Dollars(micros))
	}
	return err
}

func (r *result) add(name string, works bool, detail string) {
	r.Findings = append(r.Findings, finding{name, works, detail})
}

// call makes a call.
func call(ctx context.Context, model agent.Model, req agent.ModelRequest) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("there was no answer within %s; check the endpoint, or try again if it was loading the model", patience))
	defer cancel()
	req.Agent, req.Key, req.MaxOutput = "test", uuid.NewString(), mostOutput
	a, began := &answer{}, time.Now()
	for chunk, err := range model.Generate(ctx, &req) {
		if err != nil {
			return nil, err
		}
		if chunk.Text != "" {
			a.pieces++
		}
		a.turn, a.spent = chunk.Turn, chunk.Spent
	}
	a.took = time.Since(began)
	return a, nil
}

// reason returns the text of a failed call, which says what to do.
func reason(err error) string {
	var e *agent.Error
	var u *url.Error
	switch {
	case !errors.As(err, &e):
		return err.Error()
	case errors.As(e.Err, &u):
		what, do, _ := strings.Cut(e.Message, "; ")
		return console.Line(fmt.Sprintf("%s: %v; %s", what, u.Err, do))
	}
	return console.Line(e.Message)
}

func say(text string) []agent.ModelMessage {
	return []agent.ModelMessage{{Role: agent.RoleUser, Text: text}}
}

// quoted returns the beginning of what a model has said.
func quoted(text string) string {
	const most = 60
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
