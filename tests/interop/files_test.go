package interop

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// filesTeam has an agent for each API of a provider, and one whose model takes no files.
const filesTeam = `version: v1
models:
  claude: {provider: anthropic, name: claude, base_url: %[1]q, api_key: none}
  gpt: {provider: openai, name: gpt, base_url: "%[1]s/v1", api_key: none, accepts: ["image/*", application/pdf]}
  text: {provider: openai, name: text, base_url: "%[1]s/v1", api_key: none}
agents:
  claude: {description: Looks., model: claude}
  gpt: {description: Looks., model: gpt}
  text: {description: Reads., model: text}
`

// provider answers requests of both APIs, and keeps the last one.
type provider struct {
	mu   sync.Mutex
	body []byte
	n    int
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.body, p.n = body, p.n+1
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	if strings.HasSuffix(r.URL.Path, "/v1/messages") {
		_, _ = io.WriteString(w, `data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"A cat."}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}

data: {"type":"message_stop"}

`)
		return
	}
	_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"A cat."},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}

data: [DONE]

`)
}

func (p *provider) last() ([]byte, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.body, p.n
}

// TestFiles_A_04_JavaScript has the JavaScript SDK send a PNG and a PDF over every binding: the bytes
// that reach the provider are those that were sent, and a model that takes no files refuses them.
func TestFiles_A_04_JavaScript(t *testing.T) {
	node := interoprig.Node(t)
	p := &provider{}
	llm := httptest.NewServer(p)
	defer llm.Close()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var pic bytes.Buffer
	if err := png.Encode(&pic, image.NewGray(image.Rect(0, 0, 40, 30))); err != nil {
		t.Fatal(err)
	}
	doc := []byte("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n")
	files := []string{write("cat.png", pic.Bytes()) + ":image/png", write("tides.pdf", doc) + ":application/pdf"}
	s := interoprig.Serve(t, interoprig.BuildServer(t), write("files.yaml", fmt.Appendf(nil, filesTeam, llm.URL)))
	for _, b := range bindings() {
		for _, agent := range []string{"claude", "gpt", "text"} {
			t.Run(string(b)+" "+agent, func(t *testing.T) {
				_, before := p.last()
				args := append([]string{filepath.Join("js", "files.mjs"), s.URL, string(b), agent}, files...)
				out, err := exec.CommandContext(t.Context(), node, args...).CombinedOutput() //nolint:gosec // the repository's own script
				var said struct{ State, Error, Message string }
				if err != nil || json.Unmarshal(out, &said) != nil {
					t.Fatalf("%v: %s", err, out)
				}
				body, n := p.last()
				if agent == "text" {
					if !strings.HasSuffix(said.Error, "ContentTypeNotSupportedError") || !strings.Contains(said.Message, `is image/png; agent "text" accepts text/plain`) || n != before {
						t.Errorf("%s; %d requests reached the provider", out, n-before)
					}
					return
				}
				if said.State != "TASK_STATE_COMPLETED" || n != before+1 {
					t.Fatalf("%s; %d requests reached the provider", out, n-before)
				}
				for _, data := range [][]byte{pic.Bytes(), doc} {
					if bytes.Count(body, []byte(base64.StdEncoding.EncodeToString(data))) != 1 {
						t.Errorf("the provider was not given the file once: %.500s", body)
					}
				}
			})
		}
	}
}
