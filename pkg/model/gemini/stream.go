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

var errSchema = errors.New("the parameters of a tool are no JSON")

// receive makes the request and puts the answer together, handing on each piece
// of text.
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
	if !readable(req.Tools) {
		return errSchema
	}
	for _, err := range m.client.Models.GenerateContentStream(through(ctx, c), m.config.Name, m.contents(req), m.options(req)) {
		if err != nil {
			return err
		}
	}
	if c.Status() == 0 {
		return errors.New("the library made no request")
	}
	return c.Streams()
}

// answer is put together from the pieces of the stream.
type answer struct {
	text    strings.Builder
	parts   []*growing
	finish  string
	model   string
	in, out int64
}

// growing is a part of which pieces come: only plain text does.
type growing struct {
	part *genai.Part
	text strings.Builder
}

// blocked: the provider does not answer such a prompt.
type blocked struct{ reason string }

func (b *blocked) Error() string { return "the prompt was blocked: " + b.reason }

// piece is what is read of a message of the stream. The library's own type panics
// on some JSON.
type piece struct {
	Error         *genai.APIError                             `json:"error"`
	ModelVersion  string                                      `json:"modelVersion"`
	UsageMetadata *genai.GenerateContentResponseUsageMetadata `json:"usageMetadata"`
	Feedback      *struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Candidates []*struct {
		Index        int                `json:"index"`
		FinishReason genai.FinishReason `json:"finishReason"`
		Content      struct {
			Parts []*part `json:"parts"`
		} `json:"content"`
	} `json:"candidates"`
}

// part is what is read of a part.
type part struct {
	Text             string              `json:"text"`
	Thought          bool                `json:"thought"`
	ThoughtSignature []byte              `json:"thoughtSignature"`
	FunctionCall     *genai.FunctionCall `json:"functionCall"`
}

// add takes a message of the stream and returns the text it adds.
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

func (a *answer) fold(r *piece) (string, error) {
	if r.ModelVersion != "" {
		a.model = r.ModelVersion
	}
	if u := r.UsageMetadata; u != nil {
		a.in = int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount)
		a.out = int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount)
	}
	if f := r.Feedback; f != nil && f.BlockReason != "" && len(r.Candidates) == 0 {
		return "", &blocked{f.BlockReason}
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

// part keeps a part and returns the text for the reader. What holds nothing but a
// signature cannot be sent back: no part may be empty.
func (a *answer) part(p *part) string {
	switch {
	case p == nil || p.Text == "" && p.FunctionCall == nil:
		return ""
	case p.FunctionCall != nil:
		a.parts = append(a.parts, &growing{part: &genai.Part{FunctionCall: p.FunctionCall, ThoughtSignature: p.ThoughtSignature}})
		return ""
	}
	last := len(a.parts) - 1
	if last < 0 || !plain(a.parts[last].part) || p.Thought || len(p.ThoughtSignature) > 0 {
		a.parts = append(a.parts, &growing{part: &genai.Part{Thought: p.Thought, ThoughtSignature: p.ThoughtSignature}})
		last++
	}
	a.parts[last].text.WriteString(p.Text)
	if p.Thought {
		return ""
	}
	return p.Text
}

func plain(p *genai.Part) bool {
	return p.FunctionCall == nil && !p.Thought && len(p.ThoughtSignature) == 0
}

// content is the turn as it goes back, and whether the provider signed it.
func (a *answer) content() (parts []*genai.Part, signed bool) {
	for _, g := range a.parts {
		g.part.Text = g.text.String()
		parts = append(parts, g.part)
		signed = signed || len(g.part.ThoughtSignature) > 0
	}
	return parts, signed
}

// end judges how the stream ended. An answer is whole once its finish reason is
// there, whatever becomes of the connection then; a call that the model could not
// write is none.
func (a *answer) end(err error) error {
	switch {
	case slices.Contains(broken, genai.FinishReason(a.finish)):
		return model.ErrBroken
	case a.finish != "" && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return nil
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

var broken = []genai.FinishReason{genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonContinuation}

// said finds what the provider reports of a failure.
func said(err error) *model.Said {
	var api genai.APIError
	var no *blocked
	switch {
	case errors.As(err, &no):
		return &model.Said{Status: http.StatusBadRequest, Message: no.Error()}
	case errors.As(err, &api):
		s := &model.Said{Status: api.Code, Message: api.Message}
		for _, d := range api.Details {
			if d["reason"] == "API_KEY_INVALID" {
				s.KeyRefused = true
			}
			if after, ok := d["retryDelay"].(string); ok {
				s.After, _ = time.ParseDuration(after) // else it is unknown
			}
		}
		return s
	}
	return nil
}
