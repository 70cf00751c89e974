package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// receive makes the request, assembles the answer and calls text with each piece of text. The
// library makes the request, but its stream reader is not used, because it misses an error in the
// stream if a comment precedes it.
func (m *Model) receive(ctx context.Context, c *model.Call, req *agent.ModelRequest, a *answer, text func(string) bool) error {
	config, r := openai.DefaultConfig(m.config.APIKey.Reveal()), m.request(req)
	config.BaseURL = m.config.BaseURL
	config.HTTPClient = c
	if hasFiles(req) {
		body, err := withFiles(r, req)
		if err != nil {
			return err
		}
		config.HTTPClient = doer{c, body}
	}
	if _, err := openai.NewClientWithConfig(config).CreateChatCompletionStream(ctx, r); err != nil {
		return err
	}
	if err := c.Streams(); err != nil {
		return err
	}
	for events := c.Events(); ; {
		data, err := events.Next()
		if err != nil {
			return a.end(err)
		}
		piece, err := a.add(data)
		if err != nil {
			return err
		}
		if piece != "" && !text(piece) {
			return model.ErrStopped
		}
	}
}

// chunk is an event of the stream. Gateways set Error to report errors of the services behind them.
type chunk struct {
	openai.ChatCompletionStreamResponse
	Error *openai.APIError `json:"error"`
}

// answer is an answer that is assembled from chunks.
type answer struct {
	text    strings.Builder
	calls   []*teamv1.ToolCall
	places  map[int]int // index in calls by the index in the stream
	finish  string
	model   string
	refused bool // the text is why the model refuses to answer
	usage   *openai.Usage
	files   []*a2av1.Part

	counted bool // usage includes all output; some endpoints report it while they generate
}

// add adds a chunk and returns the text it contains.
func (a *answer) add(data []byte) (string, error) {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	if c.Error != nil {
		return "", c.Error
	}
	if bytes.Contains(data, []byte(`"images"`)) {
		a.images(data)
	}
	if c.Model != "" {
		a.model = c.Model
	}
	text := ""
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		if d := choice.Delta; d.Content+d.Refusal+d.ReasoningContent != "" || len(d.ToolCalls) > 0 {
			a.counted = false
		}
		text += choice.Delta.Content + choice.Delta.Refusal
		a.refused = a.refused || choice.Delta.Refusal != ""
		for _, call := range choice.Delta.ToolCalls {
			a.call(call)
		}
		if f := choice.FinishReason; f != "" && f != openai.FinishReasonNull {
			a.finish = string(f)
		}
	}
	if c.Usage != nil {
		a.usage, a.counted = c.Usage, true
	}
	a.text.WriteString(text)
	return text, nil
}

// images adds the images of a chunk. Gateways send those that a model makes as data URLs; the
// library has no types for them. Images in another form, and URLs that are not data URLs, are ignored.
func (a *answer) images(data []byte) {
	var c struct {
		Choices []struct {
			Index int
			Delta struct {
				Images []struct {
					URL imageURL `json:"image_url"`
				}
			}
		}
	}
	if json.Unmarshal(data, &c) != nil {
		return
	}
	for _, choice := range c.Choices {
		for _, image := range choice.Delta.Images {
			if media, raw, ok := model.FromDataURL(image.URL.URL); ok && choice.Index == 0 {
				a.counted = false
				a.files = append(a.files, model.File(media, raw, len(a.files)+1))
			}
		}
	}
}

// call adds a piece of a tool call. Pieces with the same index belong together. Endpoints that send
// no index, or always the same one, begin each call with an id.
func (a *answer) call(d openai.ToolCall) {
	at := len(a.calls) - 1
	if d.Index != nil {
		var known bool
		if at, known = a.places[*d.Index]; !known {
			at = -1
		}
	}
	if at < 0 || d.ID != "" && a.calls[at].GetId() != "" && d.ID != a.calls[at].GetId() {
		at = len(a.calls)
		a.calls = append(a.calls, &teamv1.ToolCall{})
	}
	if d.Index != nil {
		if a.places == nil {
			a.places = map[int]int{}
		}
		a.places[*d.Index] = at
	}
	c := a.calls[at]
	if d.ID != "" {
		c.Id = d.ID
	}
	if c.Name != d.Function.Name { // some endpoints repeat it in every piece
		c.Name += d.Function.Name
	}
	c.Arguments += d.Function.Arguments
}

// used returns the usage that the endpoint has reported; it is zero if there is none. Some endpoints
// count the tokens of reasoning only in the total.
func (a *answer) used() agent.Usage {
	u := a.usage
	if u == nil {
		return agent.Usage{}
	}
	used := agent.Usage{Input: int64(u.PromptTokens), Output: int64(max(u.CompletionTokens, u.TotalTokens-u.PromptTokens))}
	if d := u.PromptTokensDetails; d != nil {
		used.CachedInput = int64(d.CachedTokens)
	}
	if d := u.CompletionTokensDetails; d != nil {
		used.Reasoning = int64(d.ReasoningTokens)
	}
	return used
}

// end returns the error of a stream that ended with err. An answer is complete once its finish
// reason was received, whatever happens to the connection afterwards.
func (a *answer) end(err error) error {
	if broken := model.BrokenEnd(a.finish); broken != nil {
		return broken
	}
	switch {
	case a.finish != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// turn converts a complete answer.
func (a *answer) turn(name string) *teamv1.Turn {
	if a.refused {
		a.finish = "refusal"
	}
	t := &teamv1.Turn{Text: a.text.String(), ToolCalls: a.calls, FinishReason: a.finish, End: model.EndOf(a.finish), Model: a.model, Files: a.files}
	if t.Model == "" {
		t.Model = name
	}
	for i, c := range t.ToolCalls {
		if c.Id == "" { // the result of the call needs an id
			c.Id = fmt.Sprintf("call_%d", i+1)
		}
	}
	return t
}
