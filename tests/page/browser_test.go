// Package page tests the Team Monitor in a real Chromium, against a real server. It is a
// module of its own because chromedp is needed here alone.
package page

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience bounds every wait.
const patience = 30 * time.Second

var shots = flag.String("shots", "", "folder to keep screenshots in")

// browser is the one of all tests. Each test has a tab, with storage of its own.
var browser struct {
	once sync.Once
	ctx  context.Context
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.ctx != nil {
		ctx, cancel := context.WithTimeout(browser.ctx, patience)
		defer cancel()
		if err := chromedp.Cancel(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "closing the browser:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// chromium starts the browser; without one the test is skipped.
func chromium(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("SKIP-MISSING-TOOL chromium: install the package chromium")
	}
	browser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900), chromedp.Flag("host-resolver-rules", "MAP team.example 127.0.0.1"))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // Chromium has none for root
		}
		ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
		browser.ctx, _ = chromedp.NewContext(ctx)
		browser.err = chromedp.Do(browser.ctx)
	})
	if browser.err != nil {
		t.Fatal(browser.err)
	}
	return browser.ctx
}

// tab is an open page.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex // guards what follows
	requests []string   // URLs, in order
	trouble  []string   // exceptions, and errors of the console
}

// open opens an empty tab of that size; it is closed with the test.
func open(t *testing.T, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium(t), chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	messages := chromedp.Console(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" {
				p.note(&p.trouble, m.String())
			}
		}
	})
	t.Cleanup(reading.Wait)
	t.Cleanup(cancel)
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(width, height))
	t.Cleanup(func() {
		if t.Failed() {
			p.shot(strings.ReplaceAll(t.Name(), "/", "-") + "-failed")
		}
	})
	return p
}

func (p *tab) hear(ev any) {
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		p.note(&p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.note(&p.trouble, e.ExceptionDetails.Text)
	}
}

func (p *tab) note(in *[]string, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*in = append(*in, text)
}

// inside fails unless all requests went to the server, without the secrets.
func (p *tab) inside(server string, secrets ...string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		p.Error("no request was heard of")
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, server+"/") || slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(url, s) }) {
			p.Errorf("the page asked for %s", url)
		}
	}
}

// healthy fails unless all requests went to the server, and the console has no errors.
func (p *tab) healthy(server string) {
	p.Helper()
	p.inside(server)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.trouble {
		p.Errorf("the console says %s", text)
	}
}

// do does things in the tab, each within patience.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	for i, a := range actions {
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		err := chromedp.Do(ctx, a)
		cancel()
		if err != nil {
			p.Fatalf("action %d: %v\n%s", i, err, p.body())
		}
	}
}

// wait waits until an expression of JavaScript is true.
func (p *tab) wait(expression string, args ...any) {
	p.Helper()
	expression = fmt.Sprintf(expression, args...)
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void]("Boolean("+expression+")", chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(0)))
		switch {
		case err == nil:
			return
		case ctx.Err() == nil && (strings.Contains(err.Error(), "Cannot find context") || strings.Contains(err.Error(), "target navigated")): // another document has come
			continue
		}
		p.Fatalf("waiting for %s: %v\n%s", expression, err, p.body())
	}
}

// shows waits until an element has a text.
func (p *tab) shows(css, text string) {
	p.Helper()
	p.wait("[...document.querySelectorAll(%s)].some(e => e.textContent.includes(%s))", quoted(css), quoted(text))
}

// value is what an expression of JavaScript gives.
func value[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// body is the text of the page, to explain a failure.
func (p *tab) body() string {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(text, errors.Join(err), p.trouble)
}

// goTo opens an address and waits until the page is live, and shows the team that the
// address names: another team of the same page comes without another document.
func (p *tab) goTo(url string) {
	p.Helper()
	p.do(chromedp.Navigate(url))
	p.wait("(team => !team || document.querySelector('.send')?.dataset.team === team)(new URLSearchParams(location.hash.slice(1)).get('team'))")
	p.shows("#connection", "live")
}

// again opens the same address anew: behind a reload one might look at the document before.
func (p *tab) again() {
	p.Helper()
	link := value[string](p, "location.href")
	p.do(chromedp.Navigate("about:blank"))
	p.goTo(link)
}

// click clicks on the first element once that can be clicked on, wherever it is by then:
// what comes meanwhile moves it.
func (p *tab) click(css string) {
	p.Helper()
	p.wait("(e => e?.checkVisibility() && !e.disabled && (e.click(), true))(document.querySelector(%s))", quoted(css))
}

// clickOn clicks on the button of a text.
func (p *tab) clickOn(css, text string) {
	p.Helper()
	p.shows(css, text)
	value[bool](p, fmt.Sprintf("([...document.querySelectorAll(%s)].find(e => e.textContent.includes(%s)).click(), true)", quoted(css), quoted(text)))
}

// say sends a message with the form, and returns the task that is open then.
func (p *tab) say(text string) string {
	p.Helper()
	before := p.task()
	p.do(chromedp.SendKeys(chromedp.CSS("#message"), text))
	p.click("#send")
	p.wait("(new URLSearchParams(location.hash.slice(1)).get('task') ?? '') !== %s", quoted(before))
	return p.task()
}

// task is the one that the address names.
func (p *tab) task() string {
	p.Helper()
	return value[string](p, "new URLSearchParams(location.hash.slice(1)).get('task') ?? ''")
}

// shot takes a picture, if they are kept.
func (p *tab) shot(name string) {
	p.Helper()
	if *shots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	b, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), b, 0o600)
	}
	if err != nil {
		p.Error(err)
	}
}

// tabTo presses Tab until the element has the focus, and fails if that is not to be seen.
func (p *tab) tabTo(css string) {
	p.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS(css)))
	var passed []string
	for range 200 {
		p.do(chromedp.KeyEvent(kb.Tab))
		passed = append(passed, value[string](p, "document.activeElement.outerHTML.slice(0, 60)"))
		if value[bool](p, fmt.Sprintf("document.activeElement.matches(%s)", quoted(css))) {
			if style := value[string](p, "getComputedStyle(document.activeElement).outlineStyle"); style == "none" {
				p.Errorf("the focus on %s is not visible", css)
			}
			return
		}
	}
	p.Fatalf("Tab does not get to %s, but to %q; the page is %s", css, passed[:20], value[string](p, "document.querySelector('main').outerHTML"))
}

// focused waits until an element has the focus.
func (p *tab) focused(css, when string) {
	p.Helper()
	p.wait("document.activeElement.matches(%s) || /* %s */ false", quoted(css), when)
}

// dark has the tab look as it does for who likes it dark.
func (p *tab) dark() {
	p.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, media); err != nil {
		p.Fatal(err)
	}
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // texts can be rendered
	}
	return string(b)
}
