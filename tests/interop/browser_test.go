package interop

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/agentteams/team-server/tests/interoprig"
)

// The JavaScript SDK in Chromium, in a page of another origin: it calls a server whose file
// names the page's origin in cors, and cannot call one whose file does not.
func TestA_12_BrowserFromAnotherOrigin(t *testing.T) {
	interoprig.Node(t) // installs the SDK
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = path
		}
	}
	if chromium == "" {
		t.Skip("SKIP-MISSING-TOOL chromium: install the package chromium")
	}
	reports := make(chan string, 1)
	mux := http.NewServeMux()
	mux.Handle("GET /node_modules/", http.StripPrefix("/node_modules/", http.FileServer(http.Dir(filepath.Join("js", "node_modules")))))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join("testdata", "browser.html"))
	})
	mux.HandleFunc("POST /report", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what came is compared
		reports <- string(b)
	})
	page := httptest.NewServer(mux)
	t.Cleanup(page.Close)
	program, dir := interoprig.BuildServer(t), t.TempDir()
	for name, c := range map[string]struct{ settings, want string }{
		"allowed": {"server: {cors: {origins: [" + page.URL + "]}}\n", "JSONRPC tides 3\nHTTP+JSON tides 3"},
		"unnamed": {"server: {cors: {origins: [https://app.example]}}\n", "TypeError: Failed to fetch"},
	} {
		t.Run(name, func(t *testing.T) {
			file := "version: v1\nagents:\n  echo: {description: Echoes., scripted: {steps: [{chunks: 3}, {echo: true}]}}\n" + c.settings
			s := interoprig.Start(t, program, "serve", "-c", write(t, dir, name+".yaml", []byte(file)))
			card := url.QueryEscape(s.URL + "/echo/.well-known/agent-card.json")
			profile := filepath.Join(dir, name)
			run := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
				"--user-data-dir="+profile, page.URL+"/?card="+card)
			run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
				_ = run.Wait() // it was killed
				// The browser's other processes write to its folder until they have ended as well.
				for end := time.Now().Add(scriptTime); os.RemoveAll(profile) != nil; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Errorf("%s is still written to", profile)
						return
					}
				}
			}()
			select {
			case got := <-reports:
				if got != c.want {
					t.Errorf("the page reports %q, want %q", got, c.want)
				}
			case <-time.After(2 * scriptTime):
				t.Error("the page reported nothing")
			}
		})
	}
}
