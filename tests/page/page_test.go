package page

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/agentteams/team-server/tests/interoprig"
)

const team = "testdata/team.yaml"

// serve runs a server of the teams of a file.
func serve(t *testing.T) string {
	t.Helper()
	return interoprig.Serve(t, interoprig.BuildServer(t), team).URL
}

// TestR_003_28_FirstLoad: the page comes from the server alone, and shows a team.
func TestR_003_28_FirstLoad(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/")
	p.shows("title", "Archive – Team Monitor") // the first team
	p.shows("#team option", "Company")
	p.shows("[data-stat=members]", "1")
	for _, name := range []string{"tasks", "done", "active", "pending", "failed"} {
		p.shows(fmt.Sprintf("[data-stat=%s] strong", name), "0")
	}
	p.shows(".panel .empty", "No active tasks.")
	p.shows(".panel .empty code", `team-server run archive "Write about tides" --server `+server)
	p.do(chromedp.SetValue(chromedp.CSS("#team"), "company"))
	value[bool](p, "document.querySelector('#team').dispatchEvent(new Event('change', {bubbles: true}))")
	p.shows("title", "Company – Team Monitor")
	p.shows("[data-stat=members]", "2")
	if hash := value[string](p, "location.hash"); hash != "#team=company" {
		t.Errorf("the address is %s", hash)
	}
	p.shot("empty")
	light := value[string](p, background)
	p.dark()
	if dark := value[string](p, background); dark == light {
		t.Errorf("the background is %s in the dark, too", dark)
	}
	p.healthy(server)
}

const background = "getComputedStyle(document.body).backgroundColor"

// TestR_003_31_NoTeam: a team or task that is not there is said to be not there, and the
// page goes on to one that is.
func TestR_003_31_NoTeam(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.do(chromedp.Navigate(server + "/#team=nobody"))
	p.shows("main .empty", `agent "nobody" not found`)
	p.shows("main .empty code", "team-server agents ls --server "+server)
	p.shows("#connection", "not connected")
	p.goTo(server + "/#team=guide&task=none")
	p.shows("#trace [role=alert]", "none")
	p.inside(server)
}

// TestR_003_29_R_003_30_RunningNestedTask: a nested task is shown while it runs, by who
// works on it, by its events, and by its trace with the reason of each decision; and the
// address opens the same.
func TestR_003_29_R_003_30_RunningNestedTask(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=company")
	task := p.say("Write about tides")
	check := func(t *testing.T) {
		t.Helper()
		p.T = t
		p.shows("#active [data-task='"+task+"'] .worker", "company/archive/archivist")
		p.shows("[data-stat=active] strong", "1")
		p.shows("[data-stat=done] span", "3 steps") // the newsroom, and both of its members
		trace := "#trace [data-step='" + task + "']"
		p.shows(trace+" .decision", "rule story → newsroom because turn == 1 turn = 1")
		p.shows(trace+" .decision", "rule facts-first → researcher because turn == 1")
		p.shows(trace+" .decision", "rule look-up → archive because turn == 2")
		p.shows("#trace [data-step='"+task+"~1.2'] summary", "writer")
		p.shows("#trace [data-step='"+task+"~2.1'][data-state=STATE_RUNNING] summary", "archivist")
		p.shows("#trace .io", "High water follows the Moon")
	}
	check(t)
	for _, text := range []string{"task: Write about tides", `rule "story" → newsroom because turn == 1`, "Reading old papers."} {
		p.shows("#events li", text)
	}
	p.shot("running")
	p.do(chromedp.ScrollIntoView(chromedp.CSS("#trace [data-step='" + task + "~2.1']")))
	p.shot("running-trace")
	p.do(chromedp.SetValue(chromedp.CSS("#agent"), "company/archive/archivist"))
	value[bool](p, "document.querySelector('#agent').dispatchEvent(new Event('change', {bubbles: true}))")
	p.wait("[...document.querySelectorAll('#events strong')].every(e => e.textContent === 'company/archive/archivist')")
	t.Run("a link opens the same", func(t *testing.T) {
		p.again()
		check(t)
		p.clickOn("#trace button", "Close")
		p.shows("#trace", "Open a task to see which agents worked on it, and why.")
		value[bool](p, "(history.back(), true)")
		check(t)
	})
	p.T = t
	p.dark()
	p.shot("dark")
	t.Run("its trace is followed beside another team, too", func(t *testing.T) {
		p.T = t
		p.goTo(server + "/#team=newsroom&task=" + task)
		p.shows("title", "Newsroom – Team Monitor")
		p.shows("#trace [data-step='"+task+"~2.1'][data-state=STATE_RUNNING] summary", "archivist")
		cancel(t, server, task)
		p.shows("#trace [data-step='"+task+"~2.1'] summary", "canceled")
	})
	p.T = t
	p.healthy(server)
}

// TestR_003_28_WorkAsAMember: a team's page shows what it does for another team, with a
// link to the task that this belongs to; canceled there, only that ends.
func TestR_003_28_WorkAsAMember(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=archive")
	root := send(t, server, "company", "Write about tides")
	part := "#active [data-task='" + root + "~2']"
	p.shows(part+" .worker", "company/archive/archivist")
	p.shows("[data-stat=active] strong", "1")
	p.shows("#events strong", "company/archive")
	p.click(part + " button.row")
	p.shows("#trace [data-step='"+root+"~2.1'][data-state=STATE_RUNNING] summary", "archivist")
	p.shot("member")
	p.shows(part+" .origin", "for company")
	p.click(part + " .origin a")
	p.shows("title", "Company – Team Monitor")
	p.shows("#trace [data-step='"+root+"'] .decision", "rule story")
	p.goTo(server + "/#team=archive")
	p.clickOn(part+" > button", "Cancel")
	p.clickOn(part+" > button", "Really cancel?")
	p.shows(".panel .empty", "No active tasks.")
	if n := value[int](p, "document.querySelectorAll('#events li').length"); n == 0 {
		t.Error("the end is not told")
	}
	p.healthy(server)
}

// TestS_21_LiveUpdate: what another client sends is seen without a touch of the page.
func TestS_21_LiveUpdate(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=newsroom")
	task := send(t, server, "newsroom", "tides")
	p.shows("[data-stat=done] strong", "1")
	p.shows("[data-stat=done] span", "2 steps")
	p.shows("#events li", "succeeded")
	p.shows("#recent [data-task='"+task+"']", "tides")
	p.shows("[data-member=writer]", "1 done")
	p.clickOn(".events button", "Pause")
	held := value[int](p, "document.querySelectorAll('#events li').length")
	send(t, server, "newsroom", "the moon")
	p.shows("[data-stat=done] strong", "2")
	p.wait("/Resume \\([1-9]\\d* new\\)/.test(document.querySelector('.events button').textContent)")
	if n := value[int](p, "document.querySelectorAll('#events li').length"); n != held {
		t.Errorf("%d events are shown, there were %d before the pause", n, held)
	}
	p.clickOn(".events button", "Resume")
	p.shows("#events li", "task: the moon")
	p.click("#recent [data-task='" + task + "'] button")
	p.shows("#trace .io", "The harbour rises twice a day.")
	p.shot("ended")
	fail := send(t, server, "broken", "tides")
	p.goTo(server + "/#team=broken&task=" + fail)
	p.shows("#trace .problem", `agent "faulty" fails as its script says`)
	p.shows("[data-stat=failed] strong", "1")
	p.shot("failed")
	p.healthy(server)
}

// TestR_003_30_Busy: of many events the newest are kept, and the figures are right.
func TestR_003_30_Busy(t *testing.T) {
	const tasks = 60
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=newsroom")
	for i := range tasks {
		send(t, server, "newsroom", fmt.Sprint("task ", i))
	}
	p.shows("[data-stat=done] strong", fmt.Sprint(tasks))
	p.shows("[data-stat=done] span", fmt.Sprint(2*tasks, " steps"))
	p.wait("Number(document.querySelector('#total').dataset.total) > 1000")
	p.do(chromedp.SetValue(chromedp.CSS("#level"), "detail"))
	value[bool](p, "document.querySelector('#level').dispatchEvent(new Event('change', {bubbles: true}))")
	p.wait("document.querySelectorAll('[data-event]').length === 500")
	p.click("#events [data-event] a")
	p.shows("#trace .state", "completed")
	p.healthy(server)
}

// TestS_51_Questions: questions of members of members are answered in place, with an
// option or in words.
func TestS_51_Questions(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=house")
	task := p.say("Write about tides")
	p.shows("#questions-title", "A question is waiting for you")
	p.shows(".questions li", "house/press asks")
	p.shows("#active [data-task='"+task+"']", "waiting")
	p.shows("#trace form.question label", "Print it?")
	p.shot("question")
	p.clickOn(".questions .options button", "yes")
	p.wait("document.querySelectorAll('.questions form').length === 0")
	p.shows("#trace .answered", "yes")
	p.shows("#trace .io", "In print: The harbour rises twice a day.")
	p.shows("#trace .state", "completed")
	p.do(chromedp.ScrollIntoView(chromedp.CSS("#trace .answered")))
	p.shot("answered")

	t.Run("in words, beside the decision that asked", func(t *testing.T) {
		p.T = t
		p.goTo(server + "/#team=guide")
		p.say("A walk")
		p.shows("#questions-title", "A question is waiting for you") // what comes above moves what is below
		p.do(chromedp.SendKeys(chromedp.CSS("#trace form.question input"), "Lisbon"))
		p.click("#trace form.question button")
		p.shows("#trace .io", "A walk in Lisbon")
	})
	p.T = t
	p.healthy(server)
}

// TestS_51_Approvals: what needs an approval is approved with a changed task, or rejected with a
// reason.
func TestS_51_Approvals(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=stationer")
	p.say("Print tides")
	p.shows(".questions form label", `wants to give member "printer" a task`)
	p.clickOn(".questions summary", "change the task")
	p.do(chromedp.SendKeys(chromedp.CSS(".questions textarea"), " and the moon"))
	p.shot("approval")
	p.clickOn(".questions button.edit", "Approve the changed task")
	p.shows("#trace .io", "In print: Print tides and the moon")
	p.shows("#trace .state", "completed")

	p.say("Print a secret")
	p.shows(".questions form label", "Print a secret")
	p.clickOn(".questions summary", "change the task")
	p.do(chromedp.SendKeys(chromedp.CSS(".questions .decision input"), "not this one"))
	p.clickOn(".questions button.reject", "Reject with this reason")
	p.shows("#trace .problem", "not this one")
	p.shows("#trace .state", "failed")
	p.healthy(server)
}

// TestS_62_PlanOnThePage: a plan that needs approval is shown, a person changes it, and the trace has
// the plan that began.
func TestS_62_PlanOnThePage(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=briefing")
	p.say("Tides")
	p.shows(".questions form label", `1. facts (writer): "Find facts on {{input}}"`)
	p.clickOn(".questions summary", "change the plan")
	p.do(chromedp.SetValue(chromedp.CSS(".questions textarea"), `{"steps": [{"id": "facts", "member": "nobody", "task": "Find"}]}`))
	p.do(chromedp.SendKeys(chromedp.CSS(".questions textarea"), " "))
	p.shot("plan")
	p.clickOn(".questions button.edit", "Approve the changed plan")
	p.shows(".questions [role=alert]", `there is no member "nobody"`)
	p.do(chromedp.SetValue(chromedp.CSS(".questions textarea"), `{"steps": [{"id": "alone", "member": "printer", "task": "Print it"}]}`))
	p.do(chromedp.SendKeys(chromedp.CSS(".questions textarea"), " "))
	p.clickOn(".questions button.edit", "Approve the changed plan")
	p.shows("#trace .plan li", "alone printer")
	p.shows("#trace .plan li", "Print it")
	p.shows("#trace .state", "completed")
	p.shot("planned")
	p.inside(server) // the console shows the rejected answer
}

// TestS_51_QuestionsOfAllTeams: a question of another team than the one that is shown is
// there too, and opens in its own.
func TestS_51_QuestionsOfAllTeams(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=guide")
	p.say("A walk")
	p.shows("#questions-title", "A question is waiting for you")
	p.goTo(server + "/#team=archive")
	p.shows(".questions li", "Team guide")
	p.shows(".questions label", "Which city?")
	p.shot("other-team")
	p.click(".questions li .link")
	p.shows("title", "Guide – Team Monitor")
	p.shows("#trace form.question label", "Which city?")
	p.healthy(server)
}

// TestS_51_AnsweredByAnother: who answers second is told that somebody was first, also
// where the question is gone by then.
func TestS_51_AnsweredByAnother(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=guide")
	task := p.say("A walk")
	p.shows(".questions label", "Which city?")
	value[bool](p, `(window.send = window.fetch, window.fetch = (to, how) => !String(to).endsWith(":answer") ? window.send(to, how)
		: new Promise((done) => (window.release = () => done(window.send(to, how)))), true)`)
	p.do(chromedp.SendKeys(chromedp.CSS(".questions form input"), "Lisbon"))
	p.click(".questions form button")
	p.wait("window.release")
	p.answerElsewhere(server, task, "Porto")
	p.wait("document.querySelectorAll('.questions form').length === 0")
	value[bool](p, "(window.release(), true)")
	p.shows(".questions [role=alert]", "answer")
	p.shows(".questions [role=alert]", "Which city?")
	p.shows("#trace .io", "A walk in Porto")
	p.shot("second-answer")
}

// answerElsewhere answers the only question of a task, not by the page.
func (p *tab) answerElsewhere(server, task, text string) {
	p.Helper()
	resp, err := http.Post(server+"/team/v1/monitor/tasks/"+task+":answer", "application/json", strings.NewReader(`{"text":"`+text+`"}`)) //nolint:noctx,gosec // a test's
	if err != nil || resp.StatusCode != http.StatusOK {
		p.Fatalf("answering: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

// TestS_25_Cancel: a task is canceled, with everything below it.
func TestS_25_Cancel(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=company")
	task := p.say("Write about tides")
	p.shows(".worker", "company/archive/archivist")
	p.clickOn("#active [data-task='"+task+"'] > button", "Cancel")
	p.clickOn("#active [data-task='"+task+"'] > button", "Really cancel?")
	p.shows("#recent [data-task='"+task+"']", "canceled")
	p.shows("#trace [data-step='"+task+"~2.1'] summary", "canceled")
	p.shows(".panel .empty", "No active tasks.")
	p.healthy(server)
}

// TestHalt: a team is halted with a reason, what it did ends, messages to it are refused, and it is
// resumed.
func TestHalt(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=company")
	task := p.say("Write about tides")
	p.shows(".worker", "company/archive/archivist")
	p.clickOn(".halt summary", "Halt")
	p.do(chromedp.SendKeys(chromedp.CSS(".halt input"), "wrong prices"))
	p.clickOn(".halt button", "Halt")
	p.clickOn(".halt button", "Really halt?")
	p.shows(".halt [role=status]", "Halted. 1 task was stopped.")
	p.shows(".halts", "team company is stopped: wrong prices")
	p.shows("#recent [data-task='"+task+"']", "canceled")
	p.shot("halted")
	p.do(chromedp.SendKeys(chromedp.CSS("#message"), "Write about the moon"))
	p.click("#send")
	p.shows(".send [role=alert]", "was halted by")
	p.clickOn(".halts button", "Resume")
	p.clickOn(".halts button", "Really resume?")
	p.wait("!document.querySelector('.halts')")
	p.click("#send")
	p.shows(".worker", "company/archive/archivist")
}

// TestS_60_Costs: what tasks have spent is shown by agent, team, model, account and day, of one team or of all,
// without a mouse.
func TestS_60_Costs(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=archive")
	p.tabTo(".costs summary")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.shows(".costs .empty", "Nothing was spent in this period.")
	p.shows(".costs .empty code", `team-server run archive "Write about tides" --server `+server)
	p.goTo(server + "/#team=newsroom")
	p.say("Write about tides")
	p.shows("#trace .state", "completed")
	p.tabTo(".costs summary")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.shows("[data-cost='newsroom/writer'] td:last-of-type", "0")
	rows := "document.querySelectorAll('.costs tbody tr').length"
	if n := value[int](p, rows); n != 2 {
		t.Errorf("%d agents have spent something, want researcher and writer", n)
	}
	calls := value[string](p, "document.querySelector('[data-cost=total] td:nth-of-type(9)').textContent")
	if calls != "2" {
		t.Errorf("the total has %s model calls, want 2", calls)
	}
	p.shot("costs")
	p.tabTo("#costs-by")
	first := "document.querySelector('.costs tbody th')?.textContent"
	for _, want := range []string{"'newsroom'", "'script'", "'local'"} { // team, model, account
		p.do(chromedp.KeyEvent(kb.ArrowDown))
		p.wait(first + " === " + want)
	}
	p.do(chromedp.KeyEvent(kb.ArrowDown))
	p.wait("/^20..-..-..$/.test(" + first + ")")
	p.shows(".costs caption", "Costs by day (UTC)")
	p.wait("/UTC$/.test(document.querySelector('.costs [role=status]').textContent)")
	p.tabTo("#costs-days")
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	p.wait("document.querySelector('#costs-days').value === '30'")
	p.tabTo("#costs-team")
	p.do(chromedp.KeyEvent(kb.ArrowDown))
	p.wait("document.querySelector('#costs-team').value === 'newsroom'")
	p.tabTo(".costs .line button")
	ready := "document.querySelector('.costs .line button').getAttribute('aria-disabled') !== 'true'" // else it ignores the key
	p.wait(ready)
	value[int](p, "window.real = window.fetch, window.fetch = () => Promise.reject(new Error('not now')), 0")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.wait("document.querySelector('.costs [role=alert]') !== null && document.querySelector('.costs table') === null") // no figures that may be of another choice
	value[int](p, "window.fetch = window.real, 0")
	p.wait(ready)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.tabTo(".costs .sideways")
	p.healthy(server)
}

// TestR_003_31_Texts: what agents and people say is shown as it is; nothing of it is
// taken for a part of the page.
func TestR_003_31_Texts(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=newsroom")
	const text = `<img src="http://192.0.2.1/x.png" onerror="alert(1)"><b>bold</b>`
	p.say(text)
	p.shows("#trace .words", text)
	p.shows("#trace .state", "completed")
	if n := value[int](p, "document.querySelectorAll('main img, main b').length"); n != 0 {
		t.Errorf("%d elements were made of a text", n)
	}
	p.healthy(server)
}

// TestR_003_28_Keyboard: everything is done without a mouse, and the focus is seen.
func TestR_003_28_Keyboard(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=guide")
	p.tabTo("#team")
	p.do(chromedp.KeyEvent("H"), chromedp.KeyEvent(kb.Enter))
	p.shows("title", "House – Team Monitor")
	p.tabTo("#message")
	p.do(chromedp.KeyEvent("Write about tides"), chromedp.KeyEvent(kb.Enter))
	p.shows("#questions-title", "A question is waiting for you")
	p.tabTo(".questions .options button")
	p.shot("keyboard")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.focused("#trace summary", "behind the only question")
	p.tabTo("#recent button.row")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.shows("#trace .answered", "yes")
	p.tabTo("#trace summary")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.wait("document.querySelector('#trace details').open === false")
	p.tabTo("#events")
	p.goTo(server + "/#team=company")
	p.tabTo("#message")
	p.do(chromedp.KeyEvent("Look it up"), chromedp.KeyEvent(kb.Enter))
	p.tabTo("#active li > button:not(.row)")
	p.do(chromedp.KeyEvent(" "), chromedp.KeyEvent(" "))
	p.shows("#recent li", "canceled")
	p.focused("#trace summary", "behind the only task")
	p.shows("#trace .line .state", "canceled")
	p.wait("document.querySelectorAll('#trace .line button').length === 1") // Close
	p.tabTo("#trace .line button")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.focused("#recent button.row", "behind a trace that was closed")
	for _, landmark := range []string{"header", "main", "[role=status]", "section[aria-labelledby]"} {
		p.do(chromedp.WaitReady(chromedp.CSS(landmark)))
	}
	if n := value[int](p, "[...document.querySelectorAll('button, input, select, textarea')].filter(e => !(e.textContent.trim() || e.labels?.length || e.ariaLabel)).length"); n != 0 {
		t.Errorf("%d controls have no name", n)
	}
	p.healthy(server)
}

// TestR_003_28_Focus: what has the focus goes away, and hands it on to what is next to it:
// it is never lost, neither while the server is asked nor after.
func TestR_003_28_Focus(t *testing.T) {
	p, server := open(t, 1280, 900), serve(t)
	p.goTo(server + "/#team=guide")
	for _, text := range []string{"one", "two", "three"} {
		send(t, server, "guide", text)
		p.shows("#active .text", text)
	}
	p.wait("document.querySelectorAll('.questions form').length === 3")
	questions := value[[]string](p, "[...document.querySelectorAll('.questions li')].map(e => e.dataset.question)")
	at := func(i int) string { return "[data-question='" + questions[i] + "'] input" }
	p.tabTo(".questions input")
	p.do(chromedp.KeyEvent("Lisbon"), chromedp.KeyEvent(kb.Enter))
	p.focused(at(1), "behind the first question")
	value[bool](p, "(document.querySelector("+quoted(at(2))+").focus(), true)")
	p.do(chromedp.KeyEvent("Porto"), chromedp.KeyEvent(kb.Enter))
	p.focused(at(1), "behind the last question")

	left := send(t, server, "guide", "four")
	p.shows("#active .text", "four")
	p.wait("document.querySelectorAll('#active li').length === 2")
	value[bool](p, "(document.querySelector('#active li:not([data-task=\""+left+"\"]) button:not(.row)').focus(), true)")
	p.do(chromedp.KeyEvent(" "), chromedp.KeyEvent(" "))
	p.focused("#active [data-task='"+left+"'] button.row", "behind a task that was canceled")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.tabTo("#trace form.question input")
	p.do(chromedp.KeyEvent("Faro"), chromedp.KeyEvent(kb.Enter))
	p.shows("#trace .answered", "Faro")
	p.focused("#trace summary", "behind a question in the trace")
	p.healthy(server)
}

// TestR_003_28_Narrow: at 360 pixels the page scrolls down, never sideways.
func TestR_003_28_Narrow(t *testing.T) {
	p, server := open(t, 360, 740), serve(t)
	wide := func(when string) {
		t.Helper()
		if got := value[string](p, `[...document.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > 360.5 && !e.closest(".unseen")).map(e => e.outerHTML.slice(0, 80)).join("\n")`); got != "" {
			t.Errorf("%s, these are too wide:\n%s", when, got)
		}
		if got := value[int](p, "document.documentElement.scrollWidth"); got > 360 {
			t.Errorf("%s, the page is %d pixels wide", when, got)
		}
	}
	p.goTo(server + "/#team=house")
	wide("empty")
	p.say("Write about " + strings.Repeat("verylongword", 20))
	p.shows("#trace form.question label", "Print it?")
	wide("with a question")
	p.shot("narrow-question")
	p.goTo(server + "/#team=company")
	p.say("Write about tides")
	p.shows("#trace [data-state=STATE_RUNNING] summary", "archivist")
	wide("with a nested task")
	if got := value[float64](p, `document.querySelector("#trace [data-step$='~2.1']").getBoundingClientRect().width`); got < 240 {
		t.Errorf("a step of a member of a member has %v pixels", got)
	}
	p.shot("narrow-running")
	p.do(chromedp.ScrollIntoView(chromedp.CSS("#trace")))
	p.shot("narrow-trace")
	p.healthy(server)
}

// payer serves an A2A agent that asks in an artifact's data, and wants its answer as data. It returns
// its address.
func payer(t *testing.T) string {
	t.Helper()
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".json") {
			_, _ = fmt.Fprintf(w, `{"name":"payer","description":"Pays.","version":"1","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
				"skills":[{"id":"pay","name":"pay","description":"Pays.","tags":["pay"]}],"supportedInterfaces":[{"url":"http://%s","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`, r.Host)
			return
		}
		const waiting = `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED"},"artifacts":[{"artifactId":"a","parts":[{"data":{"id":"i1","value":{"question":"Pay ann?"}}}]}]}`
		body, _ := io.ReadAll(r.Body)
		answer := strings.ReplaceAll(string(body), " ", "")
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, waiting)
		case !asked:
			asked = true
			_, _ = io.WriteString(w, `{"task":`+waiting+`}`)
		case strings.Contains(answer, `"data":{"resume":{"pay":true}}`):
			_, _ = io.WriteString(w, `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"b","parts":[{"text":"Ann is paid."}]}]}}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"answer with data"}}`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestS_51_QuestionsWithData: a question in data is shown, and answered with data.
func TestS_51_QuestionsWithData(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(file, []byte("version: v1\nagents: {payer: {a2a: {card: "+payer(t)+"}}}\nteams: {desk: {workflow: {steps: [{id: pay, agent: payer}]}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, server := open(t, 1280, 900), interoprig.Serve(t, interoprig.BuildServer(t), file).URL
	p.goTo(server + "/#team=desk")
	p.say("Pay ann")
	p.shows(".questions form label", "Pay ann?")
	p.clickOn(".questions summary", "Show the data")
	p.shows(".questions pre", `"id": "i1"`)
	p.shot("data")
	p.do(chromedp.SendKeys(chromedp.CSS(".questions textarea"), `{"resume": {"pay": true}}`))
	p.clickOn(".questions button.send", "Send this answer")
	p.shows("#trace .io", "Ann is paid.")
	p.healthy(server)
}
