package call

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/wire"
)

// Send holds the flags of a command that sends a message.
type Send struct {
	Flags
	// MessageID is the id of the message; "" generates one.
	MessageID string
	// Context and Task are the ids of the conversation and the task to continue.
	Context, Task string
	// References are the ids of tasks that the message refers to.
	References []string
	// Files, Data and URLs are sent after the text, in this order. Data is JSON.
	Files, Data, URLs []string
	// Metadata is the metadata of the request, a JSON object.
	Metadata string
	// Accept lists the media types that the client accepts.
	Accept []string
	// History is the maximum number of history messages in the response; nil means the server's
	// default.
	History *int32
	// Push is the URL of a webhook for updates of the task, PushToken the token that is sent to it.
	Push, PushToken string
	// Stream makes the command print the answer as it arrives.
	Stream bool
	// Immediately makes the command return before the task has ended.
	Immediately bool
}

// Parts reports whether there is anything to send besides the text.
func (f *Send) Parts() bool { return len(f.Files)+len(f.Data)+len(f.URLs) > 0 }

// request returns the request that sends text and the other parts.
func (f *Send) request(text string) (*a2av1.SendMessageRequest, error) {
	m := &a2av1.Message{
		MessageId: f.MessageID, Role: a2av1.Role_ROLE_USER, ContextId: f.Context, TaskId: f.Task, ReferenceTaskIds: f.References,
	}
	if m.MessageId == "" {
		m.MessageId = uuid.NewString()
	}
	if slices.Contains(f.References, "") {
		return nil, console.Usagef(`--reference "": expected an id`)
	}
	var err error
	if m.Parts, err = f.parts(text); err != nil {
		return nil, err
	}
	if f.History != nil && *f.History < 0 {
		return nil, console.Usagef("--history %d: expected 0 or more", *f.History)
	}
	conf := &a2av1.SendMessageConfiguration{AcceptedOutputModes: f.Accept, ReturnImmediately: f.Immediately, HistoryLength: f.History}
	switch {
	case f.Push != "":
		if err := webhook("--push", f.Push); err != nil {
			return nil, err
		}
		conf.TaskPushNotificationConfig = &a2av1.TaskPushNotificationConfig{Url: f.Push, Token: f.PushToken}
	case f.PushToken != "":
		return nil, console.Usagef("--push-token requires --push URL")
	}
	req := &a2av1.SendMessageRequest{Tenant: f.Tenant, Message: m, Configuration: conf}
	if f.Metadata != "" {
		req.Metadata = &structpb.Struct{}
		if err := parseJSON("--metadata", `an object such as {"city": "Brest"}`, f.Metadata, req.Metadata); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// parts returns the parts of the message. An empty text is left out if there are other parts.
func (f *Send) parts(text string) ([]*a2av1.Part, error) {
	var parts []*a2av1.Part
	if text != "" || !f.Parts() {
		parts = append(parts, &a2av1.Part{Content: &a2av1.Part_Text{Text: text}})
	}
	for _, name := range f.Files {
		p, err := FilePart("--file", name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	for _, data := range f.Data {
		v := &structpb.Value{}
		if err := parseJSON("--data", `JSON such as {"city": "Brest"}`, data, v); err != nil {
			return nil, err
		}
		parts = append(parts, &a2av1.Part{Content: &a2av1.Part_Data{Data: v}, MediaType: wire.TypeJSON})
	}
	for _, address := range f.URLs {
		u, err := url.Parse(address)
		if err != nil || u.Scheme == "" || u.Host == "" && u.Opaque == "" && u.Path == "" {
			return nil, console.Usagef("--url %s: expected a URL, such as https://example.com/report.pdf", address)
		}
		p := &a2av1.Part{Content: &a2av1.Part_Url{Url: address}, MediaType: bare(mime.TypeByExtension(path.Ext(u.Path)))}
		if name := path.Base(u.Path); name != "." && name != "/" {
			p.Filename = name
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// FilePart returns a part with the content and name of a file that a flag names. The media type is derived from the
// name, or from the content if the name does not determine it.
func FilePart(flag, name string) (*a2av1.Part, error) {
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, console.Usagef("%s %s: %w", flag, name, reason(err))
	}
	defer f.Close() //nolint:errcheck // it was read
	data, err := io.ReadAll(io.LimitReader(f, console.MaxInput+1))
	switch {
	case err != nil:
		return nil, console.Usagef("%s %s: %w", flag, name, reason(err))
	case len(data) > console.MaxInput:
		return nil, console.Usagef("%s %s: larger than %d bytes", flag, name, console.MaxInput)
	}
	kind := bare(mime.TypeByExtension(filepath.Ext(name)))
	if kind == "" {
		kind = bare(http.DetectContentType(data))
	}
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: data}, Filename: filepath.Base(name), MediaType: kind}, nil
}

// bare returns a media type without its parameters.
func bare(mediaType string) string {
	kind, _, _ := strings.Cut(mediaType, ";")
	return strings.TrimSpace(kind)
}

// reason returns why a file cannot be read, without the path.
func reason(err error) error {
	if e, ok := err.(*os.PathError); ok { //nolint:errorlint // as os.Open returns it
		return e.Err
	}
	return err
}

// parseJSON parses the value of a flag into m.
func parseJSON(flag, expected, text string, m proto.Message) error {
	if err := wire.Unmarshal([]byte(text), m); err != nil {
		return console.Usagef("%s %s: expected %s", flag, text, expected)
	}
	return nil
}

// webhook checks the URL of a webhook.
func webhook(what, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return console.Usagef("%s %s: expected the address of a webhook, such as https://example.com/hook", what, address)
	}
	return nil
}

// content formats parts for people: text unchanged, data as JSON, and a description of each file.
func content(parts []*a2av1.Part) string {
	var all []string
	for _, p := range parts {
		if text := partContent(p); text != "" || len(parts) == 1 {
			all = append(all, text)
		}
	}
	return strings.Join(all, "\n")
}

func partContent(p *a2av1.Part) string {
	file := console.Line(strings.Join(filled("file", p.GetFilename(), p.GetMediaType()), " "))
	switch c := p.GetContent().(type) {
	case *a2av1.Part_Raw:
		return fmt.Sprintf("[%s %d bytes]", file, len(c.Raw))
	case *a2av1.Part_Url:
		return fmt.Sprintf("[%s %s]", file, console.Line(c.Url))
	case *a2av1.Part_Data:
		b, err := wire.Marshal(c.Data)
		if err != nil {
			return "[data]"
		}
		return string(b)
	}
	return p.GetText()
}

// filled returns the texts that are not empty.
func filled(texts ...string) []string {
	var all []string
	for _, t := range texts {
		if t != "" {
			all = append(all, t)
		}
	}
	return all
}
