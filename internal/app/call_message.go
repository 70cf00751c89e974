package app

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
)

// Send says what is sent, and what is wanted back.
type Send struct {
	Calling
	// MessageID of the message; empty makes one.
	MessageID string
	// Context and Task are what is gone on with.
	Context, Task string
	// References are tasks that the message speaks of.
	References []string
	// Files are sent behind the text, then Data, each JSON, and what URLs name.
	Files, Data, URLs []string
	// Metadata of the request: a JSON object.
	Metadata string
	// Accept are the media types that the answer may have.
	Accept []string
	// History is the most messages of the history that come back; nil is the server's.
	History *int32
	// Push is a webhook that is told of the task, PushToken what it is shown.
	Push, PushToken string
	// Stream shows the answer as it comes.
	Stream bool
	// Immediately does not wait for the end.
	Immediately bool
}

// Parts reports whether there is something to send besides the text.
func (f *Send) Parts() bool { return len(f.Files)+len(f.Data)+len(f.URLs) > 0 }

// request is the request to send a text and what goes with it.
func (f *Send) request(text string) (*a2av1.SendMessageRequest, error) {
	m := &a2av1.Message{
		MessageId: f.MessageID, Role: a2av1.Role_ROLE_USER, ContextId: f.Context, TaskId: f.Task, ReferenceTaskIds: f.References,
	}
	if m.MessageId == "" {
		m.MessageId = uuid.NewString()
	}
	var err error
	if m.Parts, err = f.parts(text); err != nil {
		return nil, err
	}
	if f.History != nil && *f.History < 0 {
		return nil, usagef("--history %d: expected 0 or more", *f.History)
	}
	conf := &a2av1.SendMessageConfiguration{AcceptedOutputModes: f.Accept, ReturnImmediately: f.Immediately, HistoryLength: f.History}
	switch {
	case f.Push != "":
		if err := webhook("--push", f.Push); err != nil {
			return nil, err
		}
		conf.TaskPushNotificationConfig = &a2av1.TaskPushNotificationConfig{Url: f.Push, Token: f.PushToken}
	case f.PushToken != "":
		return nil, usagef("--push-token goes with --push URL")
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

// parts are the text and what goes with it. Beside something else an empty text is
// none.
func (f *Send) parts(text string) ([]*a2av1.Part, error) {
	var parts []*a2av1.Part
	if text != "" || !f.Parts() {
		parts = append(parts, &a2av1.Part{Content: &a2av1.Part_Text{Text: text}})
	}
	for _, name := range f.Files {
		p, err := filePart(name)
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
			return nil, usagef("--url %s: expected a URL, such as https://example.com/report.pdf", address)
		}
		p := &a2av1.Part{Content: &a2av1.Part_Url{Url: address}, MediaType: bare(mime.TypeByExtension(path.Ext(u.Path)))}
		if name := path.Base(u.Path); name != "." && name != "/" {
			p.Filename = name
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// filePart is a file with its name, and with a media type by that or by what it holds.
func filePart(name string) (*a2av1.Part, error) {
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, usagef("--file %s: %w", name, reason(err))
	}
	defer f.Close() //nolint:errcheck // it was read
	data, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	switch {
	case err != nil:
		return nil, usagef("--file %s: %w", name, reason(err))
	case len(data) > maxInput:
		return nil, usagef("--file %s: larger than %d bytes", name, maxInput)
	}
	kind := bare(mime.TypeByExtension(filepath.Ext(name)))
	if kind == "" {
		kind = bare(http.DetectContentType(data))
	}
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: data}, Filename: filepath.Base(name), MediaType: kind}, nil
}

// bare is a media type without parameters.
func bare(mediaType string) string {
	kind, _, _ := strings.Cut(mediaType, ";")
	return strings.TrimSpace(kind)
}

// reason is why a file cannot be read, without its name.
func reason(err error) error {
	if e, ok := err.(*os.PathError); ok { //nolint:errorlint // as os.Open returns it
		return e.Err
	}
	return err
}

func parseJSON(flag, expected, text string, m proto.Message) error {
	if err := wire.Unmarshal([]byte(text), m); err != nil {
		return usagef("%s %s: expected %s", flag, text, expected)
	}
	return nil
}

// webhook checks the address of one.
func webhook(what, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usagef("%s %s: expected the address of a webhook, such as https://example.com/hook", what, address)
	}
	return nil
}

// content is what parts hold, for people: texts as they are, of files what they are,
// data as JSON.
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
	file := strings.Join(filled("file", p.GetFilename(), p.GetMediaType()), " ")
	switch c := p.GetContent().(type) {
	case *a2av1.Part_Raw:
		return fmt.Sprintf("[%s %d bytes]", file, len(c.Raw))
	case *a2av1.Part_Url:
		return fmt.Sprintf("[%s %s]", file, c.Url)
	case *a2av1.Part_Data:
		b, err := wire.Marshal(c.Data)
		if err != nil {
			return "[data]"
		}
		return string(b)
	}
	return p.GetText()
}

// filled are the texts that say something.
func filled(texts ...string) []string {
	var all []string
	for _, t := range texts {
		if t != "" {
			all = append(all, t)
		}
	}
	return all
}
