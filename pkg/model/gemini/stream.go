package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

var errSchema = errors.New("the parameters of a tool are not valid JSON")

// receive makes the request, assembles the answer and calls text with each piece of text.
func (m *Model) receive(ctx context.Context, c *model.Call, req *agent.ModelRequest, a *answer, text func(string) bool) error {
	if err := m.send(ctx, c, req); err != nil {
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

// send makes the request.
func (m *Model) send(ctx context.Context, c *model.Call, req *agent.ModelRequest) error {
	if !validSchemas(req.Tools) {
		return errSchema
	}
	for _, err := range m.client.Models.GenerateContentStream(withCall(ctx, c), m.config.Name, m.contents(req), m.options(req)) {
		if err != nil {
			return err
		}
	}
	if c.Status() == 0 {
		return errors.New("the library sent no request")
	}
	return c.Streams()
}

// answer is an answer that is assembled from the events of the stream.
type answer struct {
	text   strings.Builder
	parts  []*partialPart
	finish string
	model  string
	used   agent.Usage

	counted bool // used includes all output; the provider reports it while it generates
}

// partialPart is a part that is still being received. Only text parts arrive in pieces.
type partialPart struct {
	part *genai.Part
	text strings.Builder
}

// blockedError is the error for a prompt that the provider does not answer.
type blockedError struct{ reason string }

func (b *blockedError) Error() string { return "the prompt was blocked: " + b.reason }

// piece is an event of the stream. It is used instead of the library's type, which panics on some
// JSON.
type piece struct {
	Error         *genai.APIError                             `json:"error"`
	ModelVersion  string                                      `json:"modelVersion"`
	UsageMetadata *genai.GenerateContentResponseUsageMetadata `json:"usageMetadata"`
	Feedback      *struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Candidates []*candidate `json:"candidates"`
}

// candidate is a piece of one of the answers.
type candidate struct {
	Index        int                `json:"index"`
	FinishReason genai.FinishReason `json:"finishReason"`
	Content      struct {
		Parts []*part `json:"parts"`
	} `json:"content"`
}

// part is a part of an event.
type part struct {
	Text             string              `json:"text"`
	Thought          bool                `json:"thought"`
	ThoughtSignature []byte              `json:"thoughtSignature"`
	FunctionCall     *genai.FunctionCall `json:"functionCall"`
	InlineData       *genai.Blob         `json:"inlineData"`
}

// add adds an event and returns the text it contains.
func (a *answer) add(data []byte) (string, error) {
	var r piece
	if err := json.Unmarshal(data, &r); err != nil {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	if r.Error != nil {
		return "", *r.Error
	}
	return a.fold(&r)
}

// fold applies an event to the answer.
func (a *answer) fold(r *piece) (string, error) {
	if r.ModelVersion != "" {
		a.model = r.ModelVersion
	}
	a.counted = a.counted && !slices.ContainsFunc(r.Candidates, func(c *candidate) bool { return c != nil && len(c.Content.Parts) > 0 })
	if u := r.UsageMetadata; u != nil {
		a.counted = true
		a.used = agent.Usage{
			Input: int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount), CachedInput: int64(u.CachedContentTokenCount),
			Output: int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount), Reasoning: int64(u.ThoughtsTokenCount),
		}
	}
	if f := r.Feedback; f != nil && f.BlockReason != "" && len(r.Candidates) == 0 {
		return "", &blockedError{f.BlockReason}
	}
	text := ""
	for _, c := range r.Candidates {
		if c == nil || c.Index != 0 {
			continue
		}
		if c.FinishReason != "" && c.FinishReason != genai.FinishReasonUnspecified {
			a.finish = string(c.FinishReason)
		}
		for _, p := range c.Content.Parts {
			text += a.part(p)
		}
	}
	a.text.WriteString(text)
	return text, nil
}

// part adds a part and returns the text for the reader. A part that consists only of a signature is
// dropped, because it could not be sent back: parts must not be empty.
func (a *answer) part(p *part) string {
	switch {
	case p == nil || p.Text == "" && p.FunctionCall == nil && p.InlineData == nil:
		return ""
	case p.InlineData != nil:
		a.parts = append(a.parts, &partialPart{part: &genai.Part{InlineData: p.InlineData, Thought: p.Thought, ThoughtSignature: p.ThoughtSignature}})
		return ""
	case p.FunctionCall != nil:
		a.parts = append(a.parts, &partialPart{part: &genai.Part{FunctionCall: p.FunctionCall, ThoughtSignature: p.ThoughtSignature}})
		return ""
	}
	last := len(a.parts) - 1
	if last < 0 || !isText(a.parts[last].part) || p.Thought || len(p.ThoughtSignature) > 0 {
		a.parts = append(a.parts, &partialPart{part: &genai.Part{Thought: p.Thought, ThoughtSignature: p.ThoughtSignature}})
		last++
	}
	a.parts[last].text.WriteString(p.Text)
	if p.Thought {
		return ""
	}
	return p.Text
}

// isText reports whether a part is text without a signature.
func isText(p *genai.Part) bool {
	return p.FunctionCall == nil && p.InlineData == nil && !p.Thought && len(p.ThoughtSignature) == 0
}

// content returns the parts of the turn, and whether the provider signed any of them.
func (a *answer) content() (parts []*genai.Part, signed bool) {
	for _, g := range a.parts {
		g.part.Text = g.text.String()
		parts = append(parts, g.part)
		signed = signed || len(g.part.ThoughtSignature) > 0
	}
	return parts, signed
}

// end returns the error of a stream that ended with err. An answer is complete once its finish
// reason was received, whatever happens to the connection afterwards. A malformed call is an error.
func (a *answer) end(err error) error {
	switch {
	case slices.Contains(brokenReasons, genai.FinishReason(a.finish)):
		return model.ErrBroken
	case a.finish != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// brokenReasons are the finish reasons of answers that cannot be used.
var brokenReasons = []genai.FinishReason{genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonContinuation}

// endpointError returns what the provider reports in an error, or nil.
func endpointError(err error) *model.EndpointError {
	var api genai.APIError
	var no *blockedError
	switch {
	case errors.As(err, &no):
		return &model.EndpointError{Status: http.StatusBadRequest, Message: no.Error()}
	case errors.As(err, &api):
		s := &model.EndpointError{Status: api.Code, Message: api.Message}
		for _, d := range api.Details {
			if d["reason"] == "API_KEY_INVALID" {
				s.KeyRefused = true
			}
			if after, ok := d["retryDelay"].(string); ok {
				s.RetryAfter, _ = time.ParseDuration(after) // 0 if malformed
			}
		}
		return s
	}
	return nil
}
