package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"path"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// ask has what the door uses of a request of any API that asks an agent. Other fields are ignored.
type ask struct {
	Model    string         `json:"model"`
	Stream   bool           `json:"stream"`
	User     string         `json:"user"`
	Metadata map[string]any `json:"metadata"`

	field        string // that of the messages, for errors
	all          []message
	conversation string           // id of the conversation, "" without one
	previous     string           // id of the response that it follows, "" without one
	inputs       *structpb.Struct // values by name, nil without any
	background   bool             // its caller does not wait
	echo         *structpb.Struct // what the task keeps of the request
}

// chatRequest is a request for a chat completion.
type chatRequest struct {
	ask
	Messages []message `json:"messages"`
	Options  struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// message is a message of a chat.
type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is the content of a message: a text or a list of parts.
type content []*a2av1.Part

// piece is a part of a message.
type piece struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL link   `json:"image_url"`
	File     file   `json:"file"`
	file            // as responses have it
	Audio    struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
}

// file is a file in a message.
type file struct {
	Name string `json:"filename"`
	Data string `json:"file_data"`
	URL  string `json:"file_url"`
	ID   string `json:"file_id"`
}

// link is an URL, as a text or in an object.
type link string

// UnmarshalJSON implements json.Unmarshaler.
func (l *link) UnmarshalJSON(b []byte) error {
	var in struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(b, (*string)(l)); err == nil {
		return nil
	}
	err := json.Unmarshal(b, &in)
	*l = link(in.URL)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) == nil {
		*c = nil
		if text != nil && *text != "" {
			*c = content{textPart(*text)}
		}
		return nil
	}
	var pieces []piece
	if err := json.Unmarshal(b, &pieces); err != nil {
		return errors.New("content must be a text or a list of parts")
	}
	for i := range pieces {
		p, err := pieces[i].part()
		if err != nil {
			return err
		}
		if p != nil {
			*c = append(*c, p)
		}
	}
	return nil
}

func textPart(text string) *a2av1.Part { return &a2av1.Part{Content: &a2av1.Part_Text{Text: text}} }

// part returns a part of a message as one of A2A, nil for an empty one and for one of an unknown type.
func (p *piece) part() (*a2av1.Part, error) {
	of := p.File
	if of == (file{}) {
		of = p.file
	}
	switch data := cmp.Or(of.Data, of.URL); {
	case p.ImageURL != "":
		return filePart("", "image/png", string(p.ImageURL))
	case data != "":
		return filePart(of.Name, mime.TypeByExtension(path.Ext(of.Name)), data)
	case of.ID != "":
		return nil, errors.New("file_id is not supported; send the file as file_data")
	case p.Audio.Data != "":
		return filePart("audio."+p.Audio.Format, "audio/"+p.Audio.Format, p.Audio.Data)
	case p.Text+p.Refusal != "":
		return textPart(p.Text + p.Refusal), nil
	}
	return nil, nil //nolint:nilnil // nothing of the part is for the agent
}

// filePart returns a file whose data is a data URL, the URL of the file, or base64. media is its type if the data does not say.
func filePart(name, media, data string) (*a2av1.Part, error) {
	if u, err := url.Parse(data); err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" {
		return &a2av1.Part{Content: &a2av1.Part_Url{Url: data}, Filename: name, MediaType: media}, nil
	}
	if rest, ok := strings.CutPrefix(data, "data:"); ok {
		head, body, found := strings.Cut(rest, ",")
		kind, encoded := strings.CutSuffix(head, ";base64")
		if !found || !encoded {
			return nil, errors.New("a data URL must be data:TYPE;base64,DATA")
		}
		if kind != "" {
			media = kind
		}
		data = body
	}
	if m, _, err := mime.ParseMediaType(media); err == nil {
		media = m
	} else {
		media = "application/octet-stream"
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(data))
	if err != nil {
		return nil, errors.New("a file must be base64 or a data URL")
	}
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: raw}, Filename: name, MediaType: media}, nil
}

// readChat reads a request for a chat completion.
func readChat(body []byte) (*chatRequest, error) {
	req := &chatRequest{}
	if err := decode(body, req); err != nil {
		return nil, err
	}
	req.field, req.all = "messages", req.Messages
	return req, req.check()
}

// check returns the error of a request that names no model or has no message.
func (a *ask) check() error {
	switch {
	case a.Model == "":
		return wire.Invalid("model", "is required; it is the id of an agent or a team, see /v1/models")
	case len(a.all) == 0:
		return wire.Invalid(a.field, "must have at least one message")
	}
	return nil
}

// readInputs reads the values that the agent wants by name. Most clients can only send texts as metadata, so a text with the JSON
// is the same.
func (a *ask) readInputs() error {
	given, ok := a.Metadata["inputs"]
	if !ok {
		return nil
	}
	b, err := json.Marshal(given)
	if text, is := given.(string); is {
		b = []byte(text)
	}
	if err == nil {
		err = wire.ScanJSON(b)
	}
	a.inputs = &structpb.Struct{}
	if err != nil || a.inputs.UnmarshalJSON(b) != nil {
		return wire.Invalid("metadata.inputs", `must be an object of values by name, or a text with its JSON, such as {"company_id": "7"}`)
	}
	return nil
}

// decode decodes the body of a request within the bounds of all bindings.
func decode(body []byte, to any) error {
	if err := wire.ScanJSON(body); err != nil {
		return wire.Invalid("", err.Error())
	}
	if err := json.Unmarshal(body, to); err != nil {
		return wire.Invalid(wire.Mismatch(err))
	}
	return nil
}
