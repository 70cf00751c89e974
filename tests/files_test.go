package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// picture is a small PNG.
func picture(t testing.TB) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 9, 5))
	for x := range 9 {
		for y := range 5 {
			img.Set(x, y, color.RGBA{uint8(x * 28), uint8(y * 50), 120, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// document is a PDF of one page with a text.
func document(text string) []byte {
	content := "BT /F1 24 Tf 72 720 Td (" + text + ") Tj ET"
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
	var places []int
	for i, object := range []string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
		fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(content), content),
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
	} {
		places = append(places, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	table := b.Len()
	b.WriteString("xref\n0 6\n0000000000 65535 f \n")
	for _, at := range places {
		fmt.Fprintf(&b, "%010d 00000 n \n", at)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", table)
	return b.Bytes()
}

// rawFile is a part with bytes.
func rawFile(name, media string, data []byte) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: data}, Filename: name, MediaType: media}
}

// link is a part with the URL of a file.
func link(media, url string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Url{Url: url}, MediaType: media}
}

// with is a request with a text followed by files.
func (s *stage) with(tenant, text string, files ...*a2av1.Part) *a2av1.SendMessageRequest {
	req := s.message(tenant, text)
	req.Message.Parts = append(req.Message.Parts, files...)
	return req
}

// wires are the APIs of the providers: what each model of filesFile is.
var wires = []string{"openai", "anthropic", "gemini"}

// filesFile has agents and teams of each mode: "see" and "boss" take files, "blind" takes none.
const filesFile = `version: v1
models:
  see: {provider: PROVIDER, name: see, base_url: URL, api_key: none, accepts: [text/plain, text/csv, "image/*", application/pdf]}
  boss: {provider: PROVIDER, name: boss, base_url: URL, api_key: none, accepts: [text/plain, "image/*", application/pdf]}
  blind: {provider: PROVIDER, name: blind, base_url: URL, api_key: none, accepts: [text/plain]}
agents:
  see: {description: Looks., model: see}
  blind: {description: Reads., model: blind}
  guest: {description: Has no model., instructions: Look.}
teams:
  lead: {members: [{agent: see}, {agent: blind}], coordinator: {leader: {model: boss}}}
  lends: {members: [{agent: guest}], coordinator: {leader: {model: boss}}}
  flow: {members: [{agent: see}], workflow: {steps: [{id: a, agent: see}, {id: b, agent: see, task: "Again: {{input}}"}]}}
  rules: {members: [{agent: see}, {agent: blind}], supervisor: {rules: [{id: one, when: "turn == 1", next: [see]}, {id: end, when: "true", finish: see}]}}
  swarm: {members: [{agent: see}, {agent: blind}], swarm: {entry_member: see}}
  all: {members: [{agent: see}], broadcast: {model: boss}}
  outer: {members: [{agent: lead}], workflow: {steps: [{id: a, agent: lead}]}}
  wrong: {members: [{agent: see}, {agent: blind}], supervisor: {rules: [{id: one, when: "turn == 1", next: [blind]}, {id: end, when: "true", finish: blind}]}}
  reads: {members: [{agent: see}], coordinator: {leader: {model: blind}}}
  pair: {members: [{agent: see}, {agent: blind}], workflow: {steps: [{parallel: [{id: a, agent: see}, {id: b, agent: blind}]}]}}
  wrapped: {members: [{agent: reads}], workflow: {steps: [{id: a, agent: reads}]}}
`

// playFiles serves filesFile with the models of a provider.
func playFiles(t testing.TB, place rig.Place, provider, text string) *stage {
	t.Helper()
	llm := fakellm.New(t)
	url := llm.Root
	if provider == "openai" {
		url = llm.URL
	}
	text = strings.NewReplacer("PROVIDER", provider, "URL", url).Replace(text)
	s := playAgents(t, place, llm, defined(t, text, nil))
	for _, name := range []string{"see", "blind"} {
		llm.Answer(name, func(*fakellm.Request) fakellm.Turn { return fakellm.Turn{Text: "I have looked."} })
	}
	llm.Answer("boss", func(r *fakellm.Request) fakellm.Turn {
		if len(r.Tools) > 0 && r.Messages[len(r.Messages)-1].Role == "user" {
			if slices.Contains(r.Tools, "delegate_to_guest") {
				return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_guest", Arguments: `{"task":"look at it"}`}}}
			}
			return fakellm.Turn{Calls: []fakellm.Call{
				{Name: "delegate_to_see", Arguments: `{"task":"look at it"}`}, {Name: "delegate_to_blind", Arguments: `{"task":"read it"}`},
			}}
		}
		return fakellm.Turn{Text: "We have looked."}
	})
	return s
}

// TestFiles_ReachModels sends a PNG and a PDF to an agent and to teams of each mode, over each
// binding, and compares what reached the provider, in the format of each provider.
func TestFiles_ReachModels(t *testing.T) {
	t.Parallel()
	pic, doc := picture(t), document("Tides")
	for _, provider := range wires {
		t.Run(provider, func(t *testing.T) {
			onStages(t, func(t *testing.T, place rig.Place) {
				s := playFiles(t, place, provider, filesFile)
				for _, c := range []struct {
					to     string
					models []string // that are given the files
				}{
					{"see", []string{"see"}},
					{"lead", []string{"boss", "see", "boss"}},
					{"lends", []string{"boss", "boss", "boss"}},
					{"flow", []string{"see", "see"}},
					{"rules", []string{"see"}},
					{"swarm", []string{"see"}},
					{"all", []string{"see", "boss"}},
					{"outer", []string{"boss", "see", "boss"}},
				} {
					rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
						before := len(s.llm.Requests())
						resp, err := client.Send(t.Context(), s.with(c.to, "What is it?", rawFile("cat.png", "image/png", pic), rawFile("tides.pdf", "application/pdf", doc)))
						if err != nil {
							t.Fatal(err)
						}
						if state := resp.GetTask().GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_COMPLETED {
							t.Fatalf("%s: %s", c.to, resp.GetTask().GetStatus())
						}
						var given []string
						for _, r := range s.llm.Requests()[before:] {
							if r.Model == "blind" {
								all := fmt.Sprint(r.Messages)
								if len(r.Files()) > 0 || !strings.Contains(all, "[file cat.png of type image/png]") {
									t.Errorf("%s: the model without files was asked %s", c.to, all)
								}
								continue
							}
							given = append(given, r.Model)
							checkFiles(t, c.to, &r, pic, doc)
						}
						if !slices.Equal(given, c.models) {
							t.Errorf("%s: asked %v, want %v", c.to, given, c.models)
						}
					})
				}
			})
		})
	}
}

// checkFiles checks that a request has a picture and a document, unchanged and once.
func checkFiles(t *testing.T, to string, r *fakellm.Request, pic, doc []byte) {
	t.Helper()
	files := r.Files()
	if len(files) != 2 || files[0].Type != "image/png" || !bytes.Equal(files[0].Data, pic) ||
		files[1].Type != "application/pdf" || !bytes.Equal(files[1].Data, doc) {
		t.Errorf("%s: model %s was given %d files, request %.2000s", to, r.Model, len(files), r.Body)
	}
	if strings.Contains(fmt.Sprint(r.Messages), "[file ") {
		t.Errorf("%s: a line stands for a file that is there: %v", to, r.Messages)
	}
}

// TestFiles_A_04_Refused sends files to what does not take them, over each binding.
func TestFiles_A_04_Refused(t *testing.T) {
	t.Parallel()
	pic := rawFile("cat.png", "image/png", picture(t))
	onStages(t, func(t *testing.T, place rig.Place) {
		s := playFiles(t, place, "anthropic", filesFile)
		for _, c := range []struct{ to, says string }{
			{"blind", `parts[1].mediaType is image/png; agent "blind" accepts text/plain, application/json`},
			{"reads", `agent "reads" accepts text/plain, application/json`},
			{"pair", `agent "pair" accepts text/plain, application/json`},
			{"wrapped", `agent "wrapped" accepts text/plain, application/json`},
		} {
			t.Run("the card of "+c.to, func(t *testing.T) {
				card, _, err := rig.PublicCard(t.Context(), s.Target, c.to)
				if err != nil || !slices.Equal(card.GetDefaultInputModes(), []string{"text/plain", "application/json"}) {
					t.Errorf("%v %v", card.GetDefaultInputModes(), err)
				}
			})
			rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
				_, err := client.Send(t.Context(), s.with(c.to, "What is it?", pic))
				e := rig.Fault(err)
				if e == nil || e.Reason != a2aerror.ReasonContentTypeNotSupported || e.Code != "InvalidArgument" || !strings.Contains(e.Message, c.says) || !slices.Equal(e.Fields, []string{"message.parts[1].mediaType"}) {
					t.Errorf("%s: %v", c.to, err)
				}
				if e != nil && (client.Binding() == "jsonrpc" && e.RPC != -32005 || client.Binding() == "rest" && e.HTTP != http.StatusBadRequest) {
					t.Errorf("%s: HTTP status %d, code %d", c.to, e.HTTP, e.RPC)
				}
			})
		}
		if n := len(s.llm.Requests()); n != 0 {
			t.Errorf("%d requests reached the provider", n)
		}
		for to, want := range map[string][]string{
			"see":   {"text/plain", "application/json", "text/csv", "image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"},
			"lead":  {"text/plain", "application/json", "image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"},
			"guest": {"text/plain", "application/json"}, // the default of a card: it depends on the team
		} {
			card, _, err := rig.PublicCard(t.Context(), s.Target, to)
			if err != nil || !slices.Equal(card.GetDefaultInputModes(), want) {
				t.Errorf("the card of %s: %v %v", to, card.GetDefaultInputModes(), err)
			}
		}
		rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
			resp, err := client.Send(t.Context(), s.with("wrong", "What is it?", pic))
			if err != nil {
				t.Fatal(err)
			}
			e := a2a.RunOf(resp.GetTask().GetMetadata()).GetError()
			want := `member "blind" was given a file that it does not take: part 1 of the message for "blind" is image/png; agent "blind" accepts text/plain, application/json`
			if said := resp.GetTask().GetStatus().GetMessage().GetParts()[0].GetText(); said != a2aerror.ReasonContentTypeNotSupported+": "+want {
				t.Errorf("the task says %q, error %v", said, e)
			}
		})
		if n := len(s.llm.Requests()); n != 0 {
			t.Errorf("%d requests reached the provider for a refused member", n)
		}
	})
}

// TestFiles_URLs sends the URLs of files. They are passed on or refused, and never fetched.
func TestFiles_URLs(t *testing.T) {
	t.Parallel()
	fetched := 0
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched++ }))
	defer web.Close()
	place := rig.Memory(t)
	for _, c := range []struct {
		provider, media string
		refused         string // empty: it is passed on
	}{
		{"openai", "image/png", ""},
		{"openai", "application/pdf", `parts[1].mediaType is the URL of a file of type application/pdf; agent "see" accepts by URL only image/*; send its bytes`},
		{"openai", "text/csv", `agent "see" accepts by URL only image/*; send its bytes`},
		{"openai", "", `is the URL of a file of type application/octet-stream; agent "see" accepts by URL only image/*, and as bytes text/plain, application/json, text/csv, image/*, application/pdf`},
		{"anthropic", "image/png", ""},
		{"anthropic", "application/pdf", ""},
		{"gemini", "application/pdf", ""},
	} {
		s := playFiles(t, place.Another(t), c.provider, filesFile)
		rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
			url := web.URL + "/cat"
			_, err := client.Send(t.Context(), s.with("see", "What is it?", link(c.media, url)))
			switch e := rig.Fault(err); {
			case c.refused != "":
				if e == nil || e.Reason != a2aerror.ReasonContentTypeNotSupported || !strings.Contains(e.Message, c.refused) {
					t.Errorf("%s %s: %v", c.provider, c.media, err)
				}
			case err != nil:
				t.Errorf("%s %s: %v", c.provider, c.media, err)
			default:
				rs := s.llm.Requests()
				if files := rs[len(rs)-1].Files(); len(files) != 1 || files[0].URL != url {
					t.Errorf("%s %s: the provider was given %v", c.provider, c.media, files)
				}
			}
		})
	}
	if fetched != 0 {
		t.Errorf("the server fetched %d files", fetched)
	}
}

// TestFiles_Text has a file of text reach models as text.
func TestFiles_Text(t *testing.T) {
	t.Parallel()
	for _, provider := range wires {
		s := playFiles(t, rig.Memory(t), provider, filesFile)
		rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
			if _, err := client.Send(t.Context(), s.with("see", "Sum it up.", rawFile("a.csv", "text/csv", []byte("höhe;1\n\xffx;2")))); err != nil {
				t.Fatal(err)
			}
			rs := s.llm.Requests()
			if r := rs[len(rs)-1]; r.Last() != "Sum it up.\n[file a.csv of type text/csv]\nhöhe;1\n\uFFFDx;2" {
				t.Errorf("%s: %q", provider, r.Last())
			}
		})
	}
}

// TestFiles_AfterRestart has a run wait for people, and go on in another server: the model is given
// the files of the message that the run began with. Conversations store no content of files.
func TestFiles_AfterRestart(t *testing.T) {
	t.Parallel()
	pic, doc := picture(t), document("Tides")
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		llm := fakellm.New(t)
		llm.Script("see", fakellm.Turn{Text: "I have looked.", Forever: true})
		text := fmt.Sprintf(`version: v1
models: {see: {provider: anthropic, name: see, base_url: %q, api_key: none}}
agents: {see: {description: Looks., model: see}}
teams: {desk: {members: [{agent: see}], workflow: {steps: [{id: may, human: {question: "May I?"}}, {id: look, agent: see, task: "Look: {{input}}"}]}}}
`, llm.Root)
		store, closed := place.Open(t)
		target, stop := rig.Start(t, server.Config{Agents: defined(t, text, nil), Store: store}, llm)
		s := &stage{Target: target, llm: llm, store: store}
		files := []*a2av1.Part{rawFile("cat.png", "image/png", pic), rawFile("tides.pdf", "application/pdf", doc)}
		resp, err := s.client(t, false).Send(t.Context(), s.with("desk", "What is it?", files...))
		if err != nil || resp.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED {
			t.Fatal(resp, err)
		}
		alone, err := s.client(t, false).Send(t.Context(), s.with("see", "And this?", files...))
		if err != nil {
			t.Fatal(err)
		}
		stop()
		closed()
		store, _ = place.Open(t)
		s.Target, s.store = rig.Serve(t, server.Config{Agents: defined(t, text, nil), Store: store}, llm), store
		answer := s.message("desk", "yes")
		answer.Message.TaskId = resp.GetTask().GetId()
		done, err := s.client(t, false).Send(t.Context(), answer)
		if err != nil || done.GetTask().GetStatus().GetState() != a2av1.TaskState_TASK_STATE_COMPLETED {
			t.Fatal(done, err)
		}
		more := s.message("see", "And again?")
		more.Message.ContextId = alone.GetTask().GetContextId()
		if _, err := s.client(t, false).Send(t.Context(), more); err != nil {
			t.Fatal(err)
		}
		rs := llm.Requests("see")
		if len(rs) != 3 {
			t.Fatalf("%d requests", len(rs))
		}
		checkFiles(t, "an agent", &rs[0], pic, doc)
		checkFiles(t, "a run that goes on", &rs[1], pic, doc)
		if first := rs[2].Messages[0]; len(rs[2].Files()) > 0 || first.Text != "And this?\n[file cat.png of type image/png]\n[file tides.pdf of type application/pdf]" {
			t.Errorf("the conversation is %v", rs[2].Messages)
		}
	})
}

// chart is an MCP server with a tool that returns a picture and a document.
func chart(t *testing.T, pic, doc []byte) string {
	s := sdk.NewServer(&sdk.Implementation{Name: "charts", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "draw", Description: "Draws.", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: "Drawn."}, &sdk.ImageContent{Data: pic, MIMEType: "image/png"},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///out/tides.pdf", MIMEType: "application/pdf", Blob: doc}},
			}}, nil
		})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close()
		}
		h.Close()
	})
	return h.URL
}

// TestFiles_OfTools has a tool return files: they are an artifact of the task of the agent that
// called it, and its model is given those that it takes. Guardrails on the answer keep them back.
func TestFiles_OfTools(t *testing.T) {
	t.Parallel()
	pic, doc := picture(t), document("Tides")
	text := filesFile + `
  inner: {members: [{agent: draws, stream_inner: true}], workflow: {steps: [{id: a, agent: draws}]}}
  quiet: {members: [{agent: draws}], workflow: {steps: [{id: a, agent: draws}]}}
  others: {members: [{agent: talks}, {agent: kept}], broadcast: {model: boss}}
tools: {charts: {mcp: {url: "` + chart(t, pic, doc) + `"}}}
`
	text = strings.Replace(text, "agents:\n", `agents:
  draws: {description: Draws., model: see, tools: [charts]}
  talks: {description: Draws., model: blind, tools: [charts]}
  kept: {description: Draws., model: blind, tools: [charts], guardrails: {output: [{max_length: 1000}]}}
`, 1)
	for _, provider := range wires {
		t.Run(provider, func(t *testing.T) {
			s := playFiles(t, rig.Memory(t), provider, text)
			for _, model := range []string{"see", "blind"} {
				s.llm.Answer(model, func(r *fakellm.Request) fakellm.Turn {
					if !slices.ContainsFunc(r.Messages, func(m fakellm.Message) bool { return m.Role == "tool" }) {
						return fakellm.Turn{Calls: []fakellm.Call{{Name: "draw", Arguments: "{}"}}}
					}
					return fakellm.Turn{Text: "There it is."}
				})
			}
			for _, c := range []struct {
				to, model string
				artifact  bool // the task has the files
			}{{"draws", "see", true}, {"talks", "blind", true}, {"kept", "blind", false}, {"inner", "see", true}, {"quiet", "see", false}} {
				rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
					_, task := s.told(t, client, c.to, "Draw the tides.", a2av1.TaskState_TASK_STATE_COMPLETED)
					var files []*a2av1.Part
					for _, a := range task.GetArtifacts() {
						for _, p := range a.GetParts() {
							if p.GetRaw() != nil {
								files = append(files, p)
							}
						}
					}
					switch {
					case !c.artifact && len(files) > 0:
						t.Errorf("%s: the task has files: %v", c.to, task.GetArtifacts())
					case c.artifact && (len(files) != 2 || !bytes.Equal(files[0].GetRaw(), pic) || !bytes.Equal(files[1].GetRaw(), doc) || files[1].GetFilename() != "tides.pdf"):
						t.Errorf("%s: the artifacts are %v", c.to, task.GetArtifacts())
					}
					rs := s.llm.Requests(c.model)
					r := rs[len(rs)-1]
					if c.model == "see" {
						checkToolFiles(t, &r, pic, doc)
					} else if len(r.Files()) > 0 {
						t.Errorf("%s: the model was given %v", c.to, r.Files())
					}
					if !strings.Contains(fmt.Sprint(r.Messages), "[image of type image/png") {
						t.Errorf("%s: the model was told %v", c.to, r.Messages)
					}
				})
			}
		})
	}
}

func checkToolFiles(t *testing.T, r *fakellm.Request, pic, doc []byte) {
	t.Helper()
	if files := r.Files(); len(files) != 2 || !bytes.Equal(files[0].Data, pic) || !bytes.Equal(files[1].Data, doc) {
		t.Errorf("the model was given %d files: %.2000s", len(files), r.Body)
	}
}

// TestFiles_OfModels has a model make a picture: it is part of the answer.
func TestFiles_OfModels(t *testing.T) {
	t.Parallel()
	pic := picture(t)
	for _, provider := range []string{"openai", "gemini"} {
		s := playFiles(t, rig.Memory(t), provider, filesFile)
		s.llm.Answer("see", func(*fakellm.Request) fakellm.Turn {
			return fakellm.Turn{Text: "A cat.", Files: []fakellm.File{{Type: "image/png", Data: pic}}}
		})
		for _, to := range []string{"see", "flow", "rules"} {
			rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
				_, task := s.told(t, client, to, "Draw a cat.", a2av1.TaskState_TASK_STATE_COMPLETED)
				parts := task.GetArtifacts()[0].GetParts()
				if len(parts) != 2 || parts[0].GetText() != "A cat." || !bytes.Equal(parts[1].GetRaw(), pic) || parts[1].GetMediaType() != "image/png" || parts[1].GetFilename() != "image-1.png" {
					t.Errorf("%s %s: %v", provider, to, task.GetArtifacts())
				}
			})
		}
	}
}

// TestFiles_ModesOfATeam has a team accept files that its leader does not take: the leader is shown a
// line for each, and gives the work to a member that is given them.
func TestFiles_ModesOfATeam(t *testing.T) {
	t.Parallel()
	pic, doc := picture(t), document("Tides")
	s := playFiles(t, rig.Memory(t), "openai", filesFile+`  open: {input_modes: [text/plain, "image/*", application/pdf], members: [{agent: see}], coordinator: {leader: {model: blind}}}
`)
	s.llm.Answer("blind", func(r *fakellm.Request) fakellm.Turn {
		if r.Messages[len(r.Messages)-1].Role == "tool" {
			return fakellm.Turn{Text: "We have looked."}
		}
		return fakellm.Turn{Calls: []fakellm.Call{{Name: "delegate_to_see", Arguments: `{"task":"look at it"}`}}}
	})
	rig.Each(t, s.Target, func(t *testing.T, client rig.Client) {
		resp, err := client.Send(t.Context(), s.with("open", "What is it?", rawFile("cat.png", "image/png", pic), rawFile("tides.pdf", "application/pdf", doc)))
		if err != nil || resultOf(resp.GetTask()) != "We have looked." {
			t.Fatal(resp, err)
		}
		lead, member := s.llm.Requests("blind"), s.llm.Requests("see")
		first := lead[len(lead)-2]
		if first.Last() != "What is it?\n[file cat.png of type image/png]\n[file tides.pdf of type application/pdf]" || len(first.Files()) > 0 {
			t.Errorf("the leader was given %q", first.Messages)
		}
		checkFiles(t, "the member", &member[len(member)-1], pic, doc)
		_, err = client.Send(t.Context(), s.with("open", "And this?", rawFile("a.wav", "audio/wav", []byte("RIFF"))))
		if e := rig.Fault(err); e == nil || e.Reason != a2aerror.ReasonContentTypeNotSupported || !strings.Contains(e.Message, `is audio/wav; agent "open" accepts text/plain, image/*, application/pdf`) {
			t.Error(err)
		}
	})
}
