package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/agentteams/team-server/tests/interoprig"
)

// send gives a team a task as another client does, and returns the task's id at once.
func send(t *testing.T, server, team, text string) string {
	t.Helper()
	body := fmt.Sprintf(`{"message": {"messageId": %s, "role": "ROLE_USER", "parts": [{"text": %s}]}, "configuration": {"returnImmediately": true}}`,
		quoted(strings.ReplaceAll(t.Name()+"-"+team+"-"+text, " ", "-")), quoted(text))
	var sent struct{ Task struct{ ID string } }
	call(t, http.MethodPost, server+"/"+team+"/message:send", body, &sent)
	if sent.Task.ID == "" {
		t.Fatal("no task")
	}
	return sent.Task.ID
}

// cancel ends a task.
func cancel(t *testing.T, server, task string) {
	t.Helper()
	call(t, http.MethodPost, server+"/tasks/"+task+":cancel", "{}", &struct{}{})
}

func call(t *testing.T, method, url, body string, into any) {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), patience)
	defer done()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
}

// journal are the sequences of the events that watchers of a task are shown, from the
// server's own record. The task has ended.
func journal(t *testing.T, server, task string) []int {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), patience)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/team/v1/monitor/tasks/"+task+":watch", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", "1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	seqs := []int{1}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			seq, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, seq)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return seqs
}

// TestR_003_30_Reconnect: over a server that is killed and one that follows it on the same
// database, the open page shows every event of every task once, in order.
func TestR_003_30_Reconnect(t *testing.T) {
	p, program := open(t, 1280, 900), interoprig.BuildServer(t)
	db := filepath.Join(t.TempDir(), "team.db")
	first := interoprig.Start(t, program, "dev", team, "--db", db)
	p.goTo(first.URL + "/#team=company")
	p.do(chromedp.SetValue(chromedp.CSS("#level"), "detail"))
	value[bool](p, "document.querySelector('#level').dispatchEvent(new Event('change', {bubbles: true}))")
	var tasks []string
	for i := range 3 {
		tasks = append(tasks, send(t, first.URL, "company", fmt.Sprint("before ", i)))
	}
	opened := p.say("Write about tides")
	tasks = append(tasks, opened)
	p.shows("#trace [data-state=STATE_RUNNING] summary", "archivist")
	first.Kill()
	p.shows("#connection", "reconnecting")
	p.shows("#trace [data-state=STATE_RUNNING] summary", "archivist") // what is known stays
	p.shot("reconnecting")

	second := interoprig.Start(t, program, "dev", team, "--db", db, "--http", strings.TrimPrefix(first.URL, "http://"))
	for i := range 3 {
		tasks = append(tasks, send(t, second.URL, "company", fmt.Sprint("after ", i)))
	}
	p.shows("#connection", "live")
	for _, task := range tasks {
		p.shows("#active [data-task='"+task+"'] .worker", "archivist")
		cancel(t, second.URL, task)
	}
	p.shows("#trace [data-step='"+opened+"~2.1'] summary", "canceled") // live again, too
	shown := map[string][]int{}
	want := map[string][]int{}
	for _, task := range tasks {
		want[task] = journal(t, second.URL, task)
		p.wait("document.querySelector('[data-event=%s]')", quoted(fmt.Sprintf("%s:%d", task, slices.Max(want[task]))))
	}
	keys := value[[]string](p, "[...document.querySelectorAll('[data-event]')].map(e => e.dataset.event).reverse()")
	for _, key := range keys {
		task, seq, _ := strings.Cut(key, ":")
		n, err := strconv.Atoi(seq)
		if err != nil {
			t.Fatal(err)
		}
		shown[task] = append(shown[task], n)
	}
	for _, task := range tasks {
		if !slices.Equal(shown[task], want[task]) {
			t.Errorf("of task %s the page shows %v, there are %v", task, shown[task], want[task])
		}
	}
	if len(shown) != len(tasks) {
		t.Errorf("the page shows %d tasks, there are %d", len(shown), len(tasks))
	}
	if n := value[int](p, "document.querySelectorAll('#events .gap').length"); n != 0 {
		t.Error("the page began anew")
	}
	p.inside(first.URL)
}

// TestR_003_31_APIKey: where the server wants a key, the page asks for one and keeps it in
// its tab alone.
func TestR_003_31_APIKey(t *testing.T) {
	p := open(t, 1280, 900)
	server := interoprig.Start(t, interoprig.BuildServer(t), "serve", "-c", "testdata/keys.yaml").URL
	p.do(chromedp.Navigate(server + "/#team=zoo"))
	p.do(chromedp.SendKeys(chromedp.CSS("#key"), "ключ")) // what no header carries is not tried
	p.click("form button")
	p.wait("document.querySelector('#key:invalid')")
	value[bool](p, "document.querySelector('#key').value = '', true")
	p.do(chromedp.SendKeys(chromedp.CSS("#key"), "wrong"))
	p.click("form button")
	p.shows("[role=alert]", "Unknown API key")
	p.do(chromedp.SendKeys(chromedp.CSS("#key"), "sesame"))
	p.shot("key")
	p.click("form button")
	p.shows("#connection", "live")
	p.say("hello")
	p.shows("#trace .io", "hello")
	p.shows("[data-stat=done] strong", "1")
	p.again()
	if kept := value[string](p, "JSON.stringify([Object.values(sessionStorage), Object.values(localStorage), document.cookie])"); kept != `[["sesame"],[],""]` {
		t.Errorf("kept is %s", kept)
	}
	p.inside(server, "sesame")
	p.clickOn("header button", "Forget key")
	p.do(chromedp.WaitVisible(chromedp.CSS("#key")))
}

// TestS_51_ByRole: what a task asks roles is answered by who has one, who may open nothing
// of the task; its owner, who has none, is told so.
func TestS_51_ByRole(t *testing.T) {
	ann, bob := open(t, 1280, 900), open(t, 1280, 900)
	server := interoprig.Start(t, interoprig.BuildServer(t), "serve", "-c", "testdata/approvals.yaml").URL
	for p, key := range map[*tab]string{ann: "sesame", bob: "hush"} {
		p.do(chromedp.Navigate(server + "/#team=press"))
		p.do(chromedp.SendKeys(chromedp.CSS("#key"), key))
		p.click("form button")
		p.shows("#connection", "live")
	}
	ann.say("tides")
	ann.shows("#questions-title", "A question is waiting for you")
	ann.clickOn(".questions .options button", "yes")
	ann.shows(".questions [role=alert]", "is addressed to the roles editor")

	bob.shows("#questions-title", "A question is waiting for you")
	bob.shows(".questions li", "another user's task")
	bob.shows(".questions label", "Publish A text about tides.")
	bob.shot("by-role")
	if n := value[int](bob, "document.querySelectorAll('.questions .link, #active [data-task], #recent [data-task]').length"); n != 0 {
		t.Errorf("%d links to the task of somebody else", n)
	}
	bob.clickOn(".questions .options button", "yes")
	bob.shows(".questions [role=status]", "Answered: yes")
	ann.shows("#trace .answered", "yes")
	ann.shows("#trace .state", "completed")
	bob.wait("document.querySelectorAll('.questions form').length === 0")
	bob.inside(server, "hush")
}
