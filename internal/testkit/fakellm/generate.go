package fakellm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/agentteams/team-server/pkg/model/scripted"
)

// generateContent is Gemini's API.
type generateContent struct{}

// part is a part of a content.
type part struct {
	Text      string `json:"text,omitempty"`
	Thought   bool   `json:"thought,omitempty"`
	Signature []byte `json:"thoughtSignature,omitempty"`
	Call      *struct {
		ID   string          `json:"id,omitempty"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args,omitempty"`
	} `json:"functionCall,omitempty"`
	Response *struct {
		ID       string         `json:"id"`
		Name     string         `json:"name"`
		Response map[string]any `json:"response"`
	} `json:"functionResponse,omitempty"`
	Inline *struct {
		Data []byte `json:"data"`
		Type string `json:"mimeType"`
	} `json:"inlineData,omitempty"`
	Link *struct {
		URI  string `json:"fileUri"`
		Type string `json:"mimeType"`
	} `json:"fileData,omitempty"`
}

// decode implements wire.
func (generateContent) decode(r *Request, body []byte) error {
	r.Body = body
	var c struct {
		System   struct{ Parts []part } `json:"systemInstruction"`
		Contents []struct {
			Role  string
			Parts []part
		}
		Tools []struct {
			Functions []struct{ Name string } `json:"functionDeclarations"`
		}
		ToolConfig struct {
			Calling struct {
				Mode    string
				Allowed []string `json:"allowedFunctionNames"`
			} `json:"functionCallingConfig"`
		}
		Generation struct {
			MaxOutputTokens int64
		} `json:"generationConfig"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return fmt.Errorf("the body is not a valid request: %w", err)
	}
	name := r.Path[strings.LastIndex(r.Path, "/models/")+len("/models/"):]
	r.Model, _, _ = strings.Cut(name, ":")
	r.Auth = r.Header.Get("X-Goog-Api-Key")
	r.Stream, r.IncludeUsage, r.MaxTokens = true, true, c.Generation.MaxOutputTokens
	for _, p := range c.System.Parts {
		r.System += p.Text
	}
	for i, m := range c.Contents {
		if err := r.parts(i, m.Role, m.Parts); err != nil {
			return err
		}
	}
	for _, t := range c.Tools {
		for _, f := range t.Functions {
			r.Tools = append(r.Tools, f.Name)
		}
	}
	if c.ToolConfig.Calling.Mode == "ANY" && len(c.ToolConfig.Calling.Allowed) == 1 {
		r.ToolChoice = c.ToolConfig.Calling.Allowed[0]
	}
	switch {
	case len(c.Contents) == 0 || c.Contents[0].Role != "user":
		return fmt.Errorf("please ensure that the conversation begins with a user turn")
	case r.ToolChoice != "" && !slices.Contains(r.Tools, r.ToolChoice):
		return fmt.Errorf("allowed_function_names contains a name that is not declared")
	}
	return nil
}

// parts adds an entry of the conversation. A user's entry may contain several results. Results
// without a call id belong to the calls in their order.
func (r *Request) parts(i int, role string, parts []part) error {
	said := Message{Role: map[string]string{"user": "user", "model": "assistant"}[role]}
	results := 0
	for n, p := range parts {
		switch {
		case p.Call != nil:
			if p.Call.ID == "" {
				p.Call.ID = "unnamed_" + strconv.Itoa(i) + "_" + strconv.Itoa(n)
			}
			said.Signature += string(p.Signature)
			said.Calls = append(said.Calls, Call{ID: p.Call.ID, Name: p.Call.Name, Arguments: string(p.Call.Args)})
		case p.Response != nil:
			if p.Response.Name == "" {
				return fmt.Errorf("GenerateContentRequest.contents[%d].parts[%d].function_response.name: Name cannot be empty", i, n)
			}
			if p.Response.ID == "" {
				p.Response.ID = r.unanswered()
			}
			results++
			if err := r.add(i, Message{Role: "tool", Text: fmt.Sprint(p.Response.Response["output"]), ToolCallID: p.Response.ID}); err != nil {
				return err
			}
		case p.Inline != nil && len(p.Inline.Data) > 0 && p.Inline.Type != "":
			said.Files = append(said.Files, File{Type: p.Inline.Type, Data: p.Inline.Data})
		case p.Link != nil && p.Link.URI != "" && p.Link.Type != "":
			said.Files = append(said.Files, File{Type: p.Link.Type, URL: p.Link.URI})
		case p.Text != "":
			said.Text += p.Text
			said.Signature += string(p.Signature)
		default:
			return fmt.Errorf("GenerateContentRequest.contents[%d].parts[%d].data: required oneof field 'data' must have one initialized field", i, n)
		}
	}
	if results > 0 && said.Text == "" {
		if n := len(r.Messages); len(said.Files) > 0 { // the files of results follow them
			r.Messages[n-1].Files = said.Files
		}
		return nil
	}
	return r.add(i, said)
}

// fail implements wire.
func (generateContent) fail(w http.ResponseWriter, t Turn) {
	words := map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
	word := words[t.Status]
	if word == "" {
		word = "INTERNAL"
	}
	e := map[string]any{"code": t.Status, "message": t.Message, "status": word}
	if t.RetryAfter > 0 { // Gemini reports the delay only in the body
		w.Header().Del("Retry-After")
		w.Header().Del("Retry-After-Ms")
		e["details"] = []any{
			map[string]any{"@type": "type.googleapis.com/google.rpc.Help"},
			map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": strconv.FormatFloat(t.RetryAfter.Seconds(), 'f', -1, 64) + "s"},
		}
	}
	writeJSON(w, t.Status, map[string]any{"error": e})
}

// frames implements wire. Arguments that are not JSON cannot be sent.
func (generateContent) frames(a *answer) (before, pieces, after []string) {
	var all []part
	if a.turn.Reasoning != "" {
		all = append(all, part{Text: a.turn.Reasoning, Thought: true})
	}
	text := scripted.Answer{Text: a.turn.Text, Chunks: a.turn.Chunks}
	for _, piece := range text.Pieces() {
		all = append(all, part{Text: piece})
	}
	for i, c := range a.turn.Calls {
		p := part{}
		need(json.Unmarshal([]byte(`{"functionCall":`+callJSON(c)+`}`), &p))
		if i == 0 {
			p.Signature = []byte(a.turn.Signature)
		}
		all = append(all, p)
	}
	for _, f := range a.turn.Files {
		p := part{Inline: &struct {
			Data []byte `json:"data"`
			Type string `json:"mimeType"`
		}{f.Data, f.Type}}
		all = append(all, p)
	}
	for _, p := range all {
		pieces = append(pieces, frame("", a.candidate([]part{p}, "")))
	}
	var rest []part
	if a.turn.Signature != "" && len(a.turn.Calls) == 0 {
		rest = []part{{Signature: []byte(a.turn.Signature)}}
	}
	last := a.candidate(rest, cmp.Or(a.turn.Finish, "STOP"))
	if !a.turn.NoUsage {
		u := a.usage()
		last["usageMetadata"] = map[string]any{"promptTokenCount": u.PromptTokens, "candidatesTokenCount": u.CompletionTokens, "totalTokenCount": u.TotalTokens}
	}
	return nil, pieces, []string{frame("", last)}
}

func callJSON(c Call) string {
	b, err := json.Marshal(map[string]any{"name": c.Name, "args": json.RawMessage(c.Arguments)})
	need(err)
	return string(b)
}

func (a *answer) candidate(parts []part, reason string) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	if reason != "" {
		candidate["finishReason"] = reason
	}
	return map[string]any{"candidates": []any{candidate}, "modelVersion": a.r.Model, "responseId": a.id}
}
