package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// answer is an answer that is assembled from chunks.
type answer struct {
	by       string          // the name of the model in the configuration
	raw      strings.Builder // the text with its reasoning
	calls    []*call
	places   map[model.Count]int // index in calls by the index in the stream
	finish   string
	model    string
	usage    *usage
	files    []*a2av1.Part
	more     collector // what is sent beside the text and the calls
	parts    []any     // the contents, if they are parts that are not only text
	answered bool      // there was a choice
	refused  bool      // the text is why the model refuses to answer
	counted  bool      // usage includes all output; some endpoints report it while they generate
}

// call is a tool call with what is sent beside it.
type call struct {
	*teamv1.ToolCall
	more collector
}

// Add implements model.Answer. Fields of another type than documented are ignored.
func (a *answer) Add(data []byte) (string, error) {
	var c chunk
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &c); err != nil && (!errors.As(err, &odd) || odd.Field == "") {
		return "", fmt.Errorf("reading the stream: %w", err)
	}
	if len(c.Choices) == 0 || c.Object == "error" || model.Holds(c.Error) || model.Holds(c.BaseResp) || model.Holds(c.ErrorCode) {
		if err := model.Reported(data); err != nil {
			return "", err
		}
	}
	a.model = cmp.Or(string(c.Model), a.model)
	said := ""
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		if model.Holds(choice.Error) {
			return "", &model.StreamError{Body: fmt.Appendf(nil, `{"error":%s}`, choice.Error)}
		}
		a.answered = true
		for _, piece := range []fields{choice.Delta, choice.Message} {
			said += a.piece(piece)
		}
		if f := string(choice.FinishReason); f != "" && f != "null" {
			a.finish = f
		}
		c.Usage = cmp.Or(c.Usage, choice.Usage)
	}
	if c.Usage != nil {
		a.usage, a.counted = c.Usage, true
	}
	a.raw.WriteString(said)
	return said, nil
}

// piece adds a piece of the message and returns the text it contains.
func (a *answer) piece(piece fields) string {
	refusal := piece.text("refusal")
	said := a.content(piece["content"]) + refusal
	a.refused = a.refused || refusal != ""
	var calls []fields
	_ = json.Unmarshal(piece["tool_calls"], &calls) // anything else is no call
	for _, c := range calls {
		a.call(c)
	}
	a.more.add(piece, ownFields)
	if a.images(piece["images"]) || said != "" || len(calls) > 0 || len(piece) > 0 && !onlyRole(piece) {
		a.counted = false
	}
	return said
}

// onlyRole reports whether a piece has no contents.
func onlyRole(piece fields) bool {
	for name, raw := range piece {
		if s := string(raw); name != "role" && s != "null" && s != `""` && s != "[]" {
			return false
		}
	}
	return true
}

// content returns the text of a content, which is a text or, for some models of Mistral, a list of parts.
func (a *answer) content(raw json.RawMessage) string {
	switch v := decode(raw).(type) {
	case string:
		if a.parts != nil && v != "" {
			a.part(map[string]any{"type": "text", "text": v})
		}
		return v
	case []any:
		said := ""
		for _, p := range v {
			part, ok := p.(map[string]any)
			if s, text := p.(string); text {
				part, ok = map[string]any{"type": "text", "text": s}, true
			}
			if !ok {
				continue
			}
			s, isText := part["text"].(string)
			if !isText && a.parts == nil && a.raw.Len() > 0 { // texts before the first other part
				a.parts = []any{map[string]any{"type": "text", "text": a.raw.String() + said}}
			}
			if !isText || a.parts != nil {
				a.part(part)
			}
			said += s
		}
		return said
	}
	return ""
}

// part adds a part of the content. Pieces of the same type belong together.
func (a *answer) part(p map[string]any) {
	if n := len(a.parts); n > 0 {
		if last, ok := a.parts[n-1].(map[string]any); ok && last["type"] == p["type"] {
			mergeObjects(last, p)
			return
		}
	}
	a.parts = append(a.parts, p)
}

// images adds the images of a piece, and reports whether there are any. Gateways send those that a model
// makes as data URLs. Images in another form, and URLs that are not data URLs, are ignored.
func (a *answer) images(raw json.RawMessage) (found bool) {
	var images []struct {
		URL imageURL `json:"image_url"`
	}
	if json.Unmarshal(raw, &images) != nil {
		return false
	}
	for _, image := range images {
		if media, raw, ok := model.FromDataURL(image.URL.URL); ok {
			found = true
			a.files = append(a.files, model.File(media, raw, len(a.files)+1))
		}
	}
	return found
}

// call adds a piece of a tool call. Pieces with the same index belong together. Endpoints that send
// no index, or always the same one, begin each call with an id.
func (a *answer) call(piece fields) {
	var index *model.Count
	var function fields
	_ = json.Unmarshal(piece["index"], &index) // missing is nil
	_ = function.UnmarshalJSON(piece["function"])
	id := piece.text("id")
	c := a.place(index, id)
	if id != "" {
		c.Id = id
	}
	if name := function.text("name"); c.Name != name { // some endpoints repeat it in every piece
		c.Name += name
	}
	switch v := decode(function["arguments"]).(type) {
	case nil:
	case string:
		c.Arguments += v
	default: // an object, though a text is documented
		var b bytes.Buffer
		if json.Compact(&b, function["arguments"]) == nil {
			c.Arguments += b.String()
		}
	}
	c.more.add(piece, ownCallFields)
}

// place returns the call that a piece belongs to.
func (a *answer) place(index *model.Count, id string) *call {
	at := len(a.calls) - 1
	if index != nil {
		var known bool
		if at, known = a.places[*index]; !known {
			at = -1
		}
	}
	if at < 0 || id != "" && a.calls[at].GetId() != "" && id != a.calls[at].GetId() {
		at = len(a.calls)
		a.calls = append(a.calls, &call{ToolCall: &teamv1.ToolCall{}})
	}
	if index != nil {
		if a.places == nil {
			a.places = map[model.Count]int{}
		}
		a.places[*index] = at
	}
	return a.calls[at]
}

// Used implements model.Answer. Some endpoints count the tokens of reasoning only in the total.
func (a *answer) Used() (used agent.Usage, whole bool) {
	u := a.usage
	if u == nil {
		return used, false
	}
	return agent.Usage{
		Input: int64(u.Prompt), Output: int64(max(u.Completion, u.Total-u.Prompt)),
		CachedInput: int64(max(u.PromptDetail.Cached, u.CacheHit, u.Cached)), Reasoning: int64(u.CompletionDetail.Reasoning),
	}, a.counted
}

// Finish implements model.Answer. A whole answer is complete without a reason.
func (a *answer) Finish(whole bool) string {
	if a.finish == "" && whole && a.answered {
		return "stop"
	}
	return a.finish
}

// Turn implements model.Answer.
func (a *answer) Turn(text, raw string) *teamv1.Turn {
	if a.refused {
		a.finish = "refusal"
	}
	t := &teamv1.Turn{Text: text, FinishReason: a.finish, Model: a.model, Files: a.files}
	for i, c := range a.calls {
		if c.Id == "" { // the result of the call needs an id
			c.Id = fmt.Sprintf("call_%d", i+1)
		}
		t.ToolCalls = append(t.ToolCalls, c.ToolCall)
	}
	if e := a.echo(text, raw); len(a.calls) > 0 && !e.empty() {
		t.State = model.PackState(provider, a.by, e)
	}
	return t
}

// echo returns what the endpoint has sent beside the text and the calls.
func (a *answer) echo(text, raw string) *echo {
	e := &echo{Message: a.more.fields()}
	for _, c := range a.calls {
		e.Calls = append(e.Calls, c.more.fields())
	}
	switch {
	case a.parts != nil:
		e.Content, _ = json.Marshal(a.parts) //nolint:errchkjson // values of JSON
	case raw != text:
		e.Content, _ = json.Marshal(raw) //nolint:errchkjson // a text
	}
	return e
}
