package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentteams/team-server/tests/interoprig"
)

// speaker is a model that says what is sent to says, and is done when that is closed.
func speaker(t *testing.T) (url string, says chan<- string) {
	t.Helper()
	words := make(chan string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		chunk := func(delta, finish string) {
			fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","model":"slow","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
			_ = flush.Flush() // who has gone reads nothing
		}
		for {
			select {
			case text, more := <-words:
				if more {
					chunk(`{"role":"assistant","content":`+quoted(text)+`}`, "null")
					continue
				}
				chunk("{}", `"stop"`)
				fmt.Fprint(w, "data: [DONE]\n\n")
			case <-r.Context().Done():
			}
			return
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, words
}

// TestR_003_31_StreamedText: what a model says is seen in the trace while it says it, once,
// as text, and where it is done as its result. It is streamed on where the page was not
// there at its beginning.
func TestR_003_31_StreamedText(t *testing.T) {
	p := open(t, 1280, 900)
	url, says := speaker(t)
	file := filepath.Join(t.TempDir(), "team.yaml")
	config := fmt.Sprintf(`version: v1
models: {slow: {provider: openai, name: slow, base_url: %q}}
agents: {bard: {description: Sings., model: slow, instructions: Sing.}}
teams: {choir: {name: Choir, workflow: {steps: [{id: sing, agent: bard}]}}}
`, url)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := interoprig.Serve(t, interoprig.BuildServer(t), file).URL
	p.goTo(server + "/#team=choir")
	p.say("tides")
	said := func(text string) {
		t.Helper()
		p.wait("[...document.querySelectorAll('#trace .said')].map(e => e.textContent).join() === %s", quoted(text))
	}
	says <- "The <b>sea</b> "
	said("The <b>sea</b> ")
	more := strings.Repeat("It rises and it falls. ", 200) // 4 KiB go on record at once
	says <- more
	last := "…" + more[len(more)-1000:] // as much as is shown
	said(last)
	p.shot("streaming")
	p.again()
	p.shows("#trace .line .state", "working")
	says <- more
	said(last)
	close(says)
	p.shows("#trace .io", "The <b>sea</b> It rises")
	p.shows("#trace .line .state", "completed")
	said("")
	p.healthy(server)
}
