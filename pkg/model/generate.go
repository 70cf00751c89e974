package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// Exchange is how a provider makes a turn.
type Exchange struct {
	// Send makes the request, by the methods of the Call or of Refusals.
	Send func(ctx context.Context, c *Call) error
	// Answer is an empty answer, to which the events of the response are added.
	Answer Answer
	// MaxOutput is the limit of output tokens of the request; 0 means that it has none.
	MaxOutput int64
}

// Answer assembles an answer from the events of a response.
type Answer interface {
	// Add adds an event, a JSON object that is valid until Add returns, and returns the text in it. Its error is
	// io.EOF with the last event, if the provider marks it. Add calls Reported with events that have nothing of
	// an answer.
	Add(event []byte) (text string, err error)
	// Finish returns the provider's reason for the end of the turn; "" if it has sent none. whole reports that
	// the response is a document, not a stream.
	Finish(whole bool) string
	// Used returns what the provider has reported of the usage; zero if nothing. whole reports that it includes
	// all output.
	Used() (u agent.Usage, whole bool)
	// Turn returns the complete turn. text is its text without reasoning, and raw the text of all events.
	Turn(text, raw string) *teamv1.Turn
}

// Generate implements Generate of agent.Model: it makes the single attempt at a turn. Reasoning at the beginning
// of the text is not part of it. If the endpoint reports that it refuses the prompt, or the rest of the answer,
// because of its contents, the turn was filtered; it costs nothing if no event of an answer came before.
func (c *Config) Generate(ctx context.Context, req *agent.ModelRequest, begin func() Exchange) iter.Seq2[agent.ModelChunk, error] {
	return func(yield func(agent.ModelChunk, error) bool) {
		x, filter, refused := begin(), agent.ThoughtFilter{}, false
		var raw strings.Builder
		err := c.attempt(ctx, req.Key, func(ctx context.Context, call *Call) error {
			err := x.Send(ctx, call)
			if err == nil {
				err = call.receive(x.Answer, func(text string) bool {
					raw.WriteString(text)
					text = filter.Add(text)
					return text == "" || yield(agent.ModelChunk{Text: text}, nil)
				})
			}
			if refused = refusedContents(err); refused {
				return nil
			}
			return err
		})
		used, whole := x.Answer.Used()
		switch {
		case errors.Is(err, errStopped):
			return
		case err != nil:
			yield(agent.ModelChunk{}, c.Price.partly(err, used))
			return
		case refused:
			turn := &teamv1.Turn{Text: agent.AfterThoughts(raw.String()), FinishReason: contentFilter, End: EndOf(contentFilter), Model: c.Name}
			spent := &teamv1.Spent{}
			if raw.Len() > 0 || used.Input > 0 {
				spent = c.Price.Spent(turn, used, false)
			}
			yield(agent.ModelChunk{Turn: turn, Spent: spent, MaxOutput: x.MaxOutput}, nil)
			return
		}
		if rest := filter.End(); rest != "" && !yield(agent.ModelChunk{Text: rest}, nil) {
			return
		}
		turn := x.Answer.Turn(agent.AfterThoughts(raw.String()), raw.String())
		turn.End, turn.Model = EndOf(turn.GetFinishReason()), cmp.Or(turn.GetModel(), c.Name)
		yield(agent.ModelChunk{Turn: turn, Spent: c.Price.Spent(turn, used, whole), MaxOutput: x.MaxOutput}, nil)
	}
}

// contentFilter is the reason for the end of a turn that the endpoint has refused because of its contents.
const contentFilter = "content_filter"

// receive adds the events of the response to an answer, and calls text with each piece of text.
func (c *Call) receive(a Answer, text func(string) bool) error {
	for events := c.events(); ; {
		event, err := events.next()
		if err != nil {
			return events.end(a.Finish(events.whole), err)
		}
		piece := ""
		if event[0] == '{' {
			piece, err = a.Add(event)
		} else {
			err = Reported(event)
		}
		switch {
		case piece != "" && !text(piece):
			return errStopped
		case errors.Is(err, io.EOF):
			return events.end(a.Finish(events.whole), err)
		case isText(err, event):
			return &StreamError{Body: bytes.Clone(event)}
		case err != nil:
			return err
		}
	}
}

// isText reports whether an event could not be read because it is a text that begins like an object, such as the
// representation of an error in Python, and not an object that lacks its end.
func isText(err error, event []byte) bool {
	var invalid *json.SyntaxError
	return errors.As(err, &invalid) && invalid.Offset < int64(len(event))
}
