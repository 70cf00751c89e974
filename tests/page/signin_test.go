package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/agentteams/team-server/tests/interoprig"
)

// issuerServer starts a server that accepts tokens of an issuer, without leeway, and whose
// page signs in with it. more is added to the issuer, and page to its page.
func issuerServer(t *testing.T, issuer, more, page string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "team.yaml")
	config := fmt.Sprintf(`version: v1
agents: {parrot: {description: Repeats., scripted: {steps: [{echo: true}]}}}
teams: {zoo: {name: Zoo, description: Has the parrot say it., workflow: {steps: [{id: say, agent: parrot}]}}}
server:
  auth:
    api_keys: [{name: ann, sha256: d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272}]
    jwt: [{name: corp, issuer: %q, audiences: [team-monitor], leeway: 0s%s, page: {client_id: team-monitor%s}}]
`, issuer, more, page)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return interoprig.Start(t, interoprig.BuildServer(t), "serve", "-c", file).URL
}

// served starts a provider, and a server whose page is a client of it.
func served(t *testing.T, more, page string) (*provider, string) {
	t.Helper()
	p := newProvider(t, "")
	server := issuerServer(t, p.url, more, page)
	p.redirect = server + "/"
	return p, server
}

// signIn signs in through the form of the provider.
func (p *tab) signIn() {
	p.Helper()
	p.clickOn(".issuers button:enabled", "Sign in with corp")
	p.do(chromedp.WaitVisible(chromedp.CSS("#login")), chromedp.SendKeys(chromedp.CSS("#name"), "test-user2"), chromedp.SendKeys(chromedp.CSS("#password"), "verysecure"))
	p.click("#login")
}

// between fails unless all requests went to the server or to the provider, and only the
// provider was sent the code of a sign-in, apart from the address that the provider opens.
func (p *tab) between(server, provider string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.requests {
		if !strings.HasPrefix(url, server+"/") && !strings.HasPrefix(url, provider+"/") {
			p.Errorf("the page asked for %s", url)
		}
		if strings.Contains(url, "code=") && !strings.HasPrefix(url, server+"/?code=") {
			p.Errorf("the code is in %s", url)
		}
	}
}

// kept is what the tab stores.
func (p *tab) kept() string {
	p.Helper()
	return value[string](p, "JSON.stringify([Object.keys(sessionStorage), Object.keys(localStorage), document.cookie])")
}

// TestR_003_31_SignInWithAnIssuer: a user signs in with the provider's form, is where he was,
// and runs a task. The tokens stay in the tab, and the address shows nothing of the sign-in.
func TestR_003_31_SignInWithAnIssuer(t *testing.T) {
	p := open(t, 1280, 900)
	provider, server := served(t, "", "")
	p.do(chromedp.Navigate(server + "/#team=zoo"))
	p.shows(".issuers button:enabled", "Sign in with corp")
	p.focused(".issuers button", "as the first control")
	p.shot("sign-in")
	p.dark()
	p.shot("sign-in-dark")
	p.signIn()
	p.shows("#connection", "live")
	if at := value[string](p, "location.href"); at != server+"/#team=zoo" {
		t.Errorf("the address is %s", at)
	}
	p.say("hello")
	p.shows("#trace .io", "hello")
	p.shows("[data-stat=done] strong", "1")
	p.shot("signed-in")
	if kept := p.kept(); kept != `[["team-monitor.token"],[],""]` {
		t.Errorf("kept is %s", kept)
	}
	p.again()
	p.shows("#trace .io", "hello")
	if issued, _ := provider.count(); issued != 1 {
		t.Errorf("%d tokens were issued", issued)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "; connect-src 'self' "+provider.url+"; ") || resp.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the policies are %q and %q", policy, resp.Header.Get("Referrer-Policy"))
	}
	called := make(chan string, 8)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		called <- r.URL.Path
	}))
	defer elsewhere.Close()
	value[bool](p, "(document.addEventListener('securitypolicyviolation', e => { window.blocked = e.blockedURI }), fetch("+quoted(elsewhere.URL+"/")+").catch(() => 0), true)")
	p.wait("window.blocked?.startsWith(%s)", quoted(elsewhere.URL))
	if len(called) > 0 {
		t.Errorf("the page called %s of another origin", <-called)
	}
	t.Run("answers that no sign-in of the tab asked for change nothing", func(t *testing.T) {
		p.T = t
		p.do(chromedp.Navigate(server + "/?code=stolen&state=mine"))
		p.shows("#connection", "live")
		if issued, _ := provider.count(); issued != 1 || value[string](p, "location.search") != "" {
			t.Errorf("%d tokens were issued", issued)
		}
	})
	p.T = t
	p.clickOn("header button", "Sign out")
	p.shows(".issuers button:enabled", "Sign in with corp")
	if kept := p.kept(); kept != `[[],[],""]` {
		t.Errorf("kept is %s", kept)
	}
	p.do(chromedp.SendKeys(chromedp.CSS("#key"), "sesame"))
	p.click(".key form button")
	p.shows("#connection", "live")
	p.between(server, provider.url)
}

// TestR_003_31_SignInRefused: what the provider or the server refuses, and what another tab
// began, is said in words, and leaves no tokens behind.
func TestR_003_31_SignInRefused(t *testing.T) {
	t.Run("by the user", func(t *testing.T) {
		p := open(t, 1280, 900)
		_, server := served(t, "", "")
		p.do(chromedp.Navigate(server + "/#team=zoo"))
		p.clickOn(".issuers button:enabled", "Sign in with corp")
		p.click("#refuse")
		p.shows(".key [role=alert]", "corp refused the sign-in: You <b>refused</b>.")
		p.shot("sign-in-refused")
		if at := value[string](p, "location.href"); at != server+"/#team=zoo" || p.kept() != `[[],[],""]` {
			t.Errorf("the address is %s, kept is %s", at, p.kept())
		}
		p.signIn()
		p.shows("#connection", "live")
	})
	t.Run("with the state of another sign-in", func(t *testing.T) {
		p := open(t, 1280, 900)
		provider, server := served(t, "", "")
		p.do(chromedp.Navigate(server + "/"))
		p.clickOn(".issuers button:enabled", "Sign in with corp")
		p.do(chromedp.WaitVisible(chromedp.CSS("#login")))
		p.do(chromedp.Navigate(server + "/?code=stolen&state=mine"))
		p.shows(".key [role=alert]", "This answer belongs to no sign-in of this tab.")
		p.do(chromedp.Navigate(server + "/?error=x&error_description=Call+0900&state=mine"))
		p.shows(".key [role=alert]", "This answer belongs to no sign-in of this tab.")
		if issued, _ := provider.count(); issued != 0 || value[string](p, "location.search") != "" || p.kept() != `[[],[],""]` {
			t.Errorf("%d tokens were issued, kept is %s", issued, p.kept())
		}
		p.between(server, provider.url)
	})
	t.Run("for its audience", func(t *testing.T) {
		p := open(t, 1280, 900)
		provider := newProvider(t, "")
		file := filepath.Join(t.TempDir(), "team.yaml")
		config := fmt.Sprintf("version: v1\nagents: {parrot: {scripted: {steps: [{echo: true}]}}}\nserver: {auth: {jwt: [{name: corp, issuer: %q, audiences: [else], page: {client_id: team-monitor, scopes: [openid, offline_access]}}]}}\n", provider.url)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		server := interoprig.Start(t, interoprig.BuildServer(t), "serve", "-c", file).URL
		provider.redirect = server + "/"
		p.do(chromedp.Navigate(server + "/"))
		p.signIn()
		p.shows(".key [role=alert]", "it is for another audience")
		p.shows(".key [role=alert]", "check that corp issues signed JSON web tokens with one of the audiences in the configuration")
		p.shot("sign-in-audience")
		if issued, _ := provider.count(); issued > 2 {
			t.Errorf("%d tokens were issued", issued)
		}
	})
	t.Run("for its permissions", func(t *testing.T) {
		p := open(t, 1280, 900)
		_, server := served(t, ", permissions: [READ]", "")
		p.do(chromedp.Navigate(server + "/"))
		p.signIn()
		p.shows("#connection", "live")
		p.do(chromedp.SendKeys(chromedp.CSS("#message"), "hello"))
		p.click("#send")
		p.shows(".send [role=alert]", "CALL")
		p.wait("!document.querySelector('#halt, .halts, .halt')")
		_, server = served(t, ", permissions: [CALL]", "")
		p.do(chromedp.Navigate(server + "/"))
		p.signIn()
		p.shows("main .empty", "READ")
		p.shows("header button", "Sign out")
	})
}

// TestR_003_31_SignInExpires: with a refresh token the page and its streams go on behind the
// end of a token, without one the page keeps what it shows and asks to sign in.
func TestR_003_31_SignInExpires(t *testing.T) {
	t.Run("with a refresh token", func(t *testing.T) {
		p := open(t, 1280, 900)
		provider, server := served(t, "", ", scopes: [openid, offline_access]")
		provider.set(func() { provider.lifetime = 4 * time.Second })
		p.do(chromedp.Navigate(server + "/#team=zoo"))
		p.signIn()
		p.shows("#connection", "live")
		p.say("before")
		p.shows("#events li", "task: before")
		streams := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			n := 0
			for _, url := range p.requests {
				if strings.Contains(url, ":watch") {
					n++
				}
			}
			return n
		}
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if _, renewed := provider.count(); renewed >= 2 && streams() >= 3 {
				break
			}
			if time.Now().After(end) {
				issued, renewed := provider.count()
				t.Fatalf("%d tokens were issued, %d renewed, for %d streams", issued, renewed, streams())
			}
		}
		p.say("after")
		p.shows("#events li", "task: after")
		p.shows("#events li", "task: before")
		p.shows("#trace .io", "after")
		if n := value[int](p, "document.querySelectorAll('#events .gap').length"); n != 0 {
			t.Error("the stream began anew")
		}
		provider.set(func() { provider.revoked = true })
		p.shows("section.key [role=alert]", "The sign-in with corp has ended")
		p.between(server, provider.url)
	})
	t.Run("without one", func(t *testing.T) {
		p := open(t, 1280, 900)
		provider, server := served(t, "", "")
		provider.set(func() { provider.lifetime = 12 * time.Second })
		p.do(chromedp.Navigate(server + "/#team=zoo"))
		p.signIn()
		p.shows("#connection", "live")
		task := p.say("hello")
		p.shows("#trace .io", "hello")
		p.shows("section.key [role=alert]", "The sign-in with corp has ended: the token has expired; sign in again.")
		p.shows("#trace .io", "hello")
		p.shows("[data-stat=done] strong", "1")
		p.shows("#connection", "not connected")
		p.shot("sign-in-expired")
		provider.set(func() { provider.lifetime = time.Hour })
		p.signIn()
		p.shows("#connection", "live")
		if p.task() != task {
			t.Errorf("the open task is %q", p.task())
		}
		p.shows("#trace .io", "hello")
		p.between(server, provider.url)
	})
}

// TestR_003_31_SignInLater: an issuer that cannot be reached when the server starts is
// offered as soon as it can be, without a reload.
func TestR_003_31_SignInLater(t *testing.T) {
	p := open(t, 1280, 900)
	address := interoprig.FreeAddress(t)
	server := issuerServer(t, "http://"+address, "", "")
	p.do(chromedp.Navigate(server + "/#team=zoo"))
	p.shows(".issuers button:disabled", "Sign in with corp")
	p.shows(".key [role=status]", "This server cannot reach corp yet.")
	p.shot("sign-in-waiting")
	provider := newProvider(t, address)
	provider.set(func() { provider.redirect = server + "/" })
	p.signIn()
	p.shows("#connection", "live")
	p.between(server, provider.url)
}

// TestR_003_31_SignInWithoutHTTPS: where the browser computes no SHA-256, the page says why it
// cannot sign in, also on a narrow screen.
func TestR_003_31_SignInWithoutHTTPS(t *testing.T) {
	p := open(t, 360, 740)
	_, server := served(t, "", "")
	p.do(chromedp.Navigate(strings.Replace(server, "127.0.0.1", "team.example", 1) + "/"))
	p.shows(".issuers button:disabled", "Sign in with corp")
	p.shows(".key [role=status]", "over HTTPS only")
	if got := value[int](p, "document.documentElement.scrollWidth"); got > 360 {
		t.Errorf("the page is %d pixels wide", got)
	}
	p.shot("sign-in-http")
}
