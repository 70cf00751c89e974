package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/serve"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/scripted"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

// hasty are pauses for tests.
var hasty = server.PushPolicy{First: time.Millisecond, Most: 5 * time.Millisecond, Tries: 3, Timeout: 5 * time.Second, Lease: 10 * time.Second, Linger: time.Second}

// asking is an agent that asks, and echoes the answer.
func asking(t testing.TB) agent.Agent {
	t.Helper()
	a, err := scripted.New(scripted.Config{ID: "asks", Steps: []*teamv1.ScriptedStep{
		{Do: &teamv1.ScriptedStep_Ask{Ask: "which?"}}, {Do: &teamv1.ScriptedStep_Text{Text: "{{answer}}"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// strict serves the agent; webhooks may lead to public addresses and to those allowed.
func strict(t testing.TB, allow ...string) (rig.Target, *observer.ObservedLogs) {
	t.Helper()
	needNetwork(t)
	core, logs := observer.New(zap.DebugLevel)
	return rig.Serve(t, server.Config{Agents: rig.Manager(t, asking(t)), Push: hasty, Log: zap.New(core), Settings: &teamv1.ServerSettings{Egress: &teamv1.EgressSettings{Allow: append([]string{}, allow...)}}}), logs
}

// open begins a task that waits for an answer.
func open(t testing.TB, c rig.Client, name string) string {
	t.Helper()
	resp, err := c.Send(t.Context(), rig.Text("asks", name, "begin"))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask().GetId()
}

// reply answers the question of a task.
func reply(t testing.TB, c rig.Client, task string) {
	t.Helper()
	req := rig.Text("asks", "reply-"+task, "blue")
	req.Message.TaskId = task
	if _, err := c.Send(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// status waits until a configuration of a task has a status.
func status(t testing.TB, target rig.Target, task, id string, enough func(*teamv1.PushStatus) bool) *teamv1.PushStatus {
	t.Helper()
	target.Headers = map[string]string{"A2A-Extensions": a2a.TeamRunURI}
	c := rig.NewREST(target)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last *a2av1.Task
	for ctx.Err() == nil {
		got, err := c.Get(ctx, &a2av1.GetTaskRequest{Tenant: "asks", Id: task})
		if err != nil {
			t.Fatal(err)
		}
		last = got
		for _, s := range a2a.RunOf(got.GetMetadata()).GetPush() {
			if s.GetId() == id && enough(s) {
				return s
			}
		}
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	t.Fatalf("the status of %s is still %v", id, a2a.RunOf(last.GetMetadata()).GetPush())
	return nil
}

func failing(s *teamv1.PushStatus) bool { return s.GetFailing() && s.GetEnded() }

// addresses are hosts that are not public, in many spellings.
var addresses = []string{
	"127.0.0.1", "127.1.2.3", "127.0.0.1.", "[::1]", "localhost", "LOCALHOST.", "foo.localhost", "0.0.0.0", "0.1.2.3", "[::]",
	"10.0.0.5", "172.16.0.1", "172.31.255.254", "192.168.1.1", "169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200",
	"192.0.0.1", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250",
	"240.0.0.1", "255.255.255.255", "168.63.129.16", "[fd00::1]", "[fc00::1]", "[fe80::1]", "[fe80::1%25eth0]", "[ff02::1]", "[fec0::1]",
	"[::ffff:127.0.0.1]", "[::ffff:10.0.0.5]", "[::ffff:a9fe:a9fe]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::10.0.0.5]", "[64:ff9b:1::1]",
	"[2002:7f00:1::]", "[2002:0a00:0005::1]", "[2001::1]", "[2001:db8::1]", "[100::1]", "[5f00::1]", "[3fff::1]",
	"2130706433", "0x7f000001", "017700000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.1", "00000177.0.0.1", "0x7f.0x0.0x0.0x1", "4294967295", "1572395042",
	"①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "lOcAlHoSt",
}

// TestT_14_AddressesInAnySpelling: a webhook at an address that is not public is rejected where it is
// registered, on all bindings and in both versions of the protocol, and the error names the field.
func TestT_14_AddressesInAnySpelling(t *testing.T) {
	canary(t, ":80", ":443", ":8080", ":8443")
	target, _ := strict(t)
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		p := c.(rig.PushClient)
		task := open(t, c, "begin-"+c.Binding())
		for _, host := range addresses {
			for _, form := range []string{"https://%s/hook", "https://%s:8443/hook", "http://%s/hook", "http://%s:8080/hook"} {
				url := fmt.Sprintf(form, host)
				_, err := p.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: task, Url: url})
				refused(t, url, err, "url")
				req := rig.Text("asks", "inline-"+c.Binding(), "x")
				req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: &a2av1.TaskPushNotificationConfig{Url: url}}
				_, err = c.Send(t.Context(), req)
				refused(t, url, err, "configuration.taskPushNotificationConfig.url")
			}
		}
		for _, url := range []string{"http://hooks.example/", "https://hooks.example:22/", "https://hooks.example:80/", "http://93.184.216.34/", "https://93.184.216.34:9443/"} {
			_, err := p.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: task, Url: url})
			refused(t, url, err, "url")
		}
		for _, url := range []string{"https://hooks.example/", "https://hooks.example:8443/", "https://HOOKS.example:443/x?y", "https://93.184.216.34/", "https://[2606:2800:220:1::1]/"} {
			if _, err := p.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: task, Id: "mine", Url: url}); err != nil {
				t.Errorf("%s: %v", url, err)
			}
		}
		if err := p.DeletePush(t.Context(), &a2av1.DeleteTaskPushNotificationConfigRequest{TaskId: task, Id: "mine"}); err != nil {
			t.Error(err)
		}
	})
	t.Run("0.3", func(t *testing.T) {
		task := open(t, rig.NewREST(target), "begin-0.3")
		for _, host := range addresses {
			url := "https://" + host + "/hook"
			for method, params := range map[string]string{
				"tasks/pushNotificationConfig/set": fmt.Sprintf(`{"taskId": %q, "pushNotificationConfig": {"url": %q}}`, task, url),
				"message/send": fmt.Sprintf(`{"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]},
					"configuration": {"pushNotificationConfig": {"url": %q}}}`, url),
			} {
				got := rpc(t, target, method, params)
				if !strings.Contains(got, "-32602") && !strings.Contains(got, "-32600") || strings.Contains(got, `"result"`) {
					t.Errorf("%s with %s: %s", method, url, got)
				}
			}
		}
	})
}

func refused(t testing.TB, url string, err error, field string) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil || f.Reason != agent.ReasonInvalidRequest || !slices.Equal(f.Fields, []string{field}) {
		t.Errorf("%s: %v %+v", url, err, f)
	}
}

// rpc makes a call over A2A 0.3.
func rpc(t testing.TB, target rig.Target, method, params string) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc": "2.0", "id": 1, "method": %q, "params": %s}`, method, params)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+"/asks/rpc", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestT_14_NamesOfOtherAddresses: a name that resolves to an address that is not public is called at
// none; the caller cannot tell it from a public host that cannot be reached, and the log has the
// address.
func TestT_14_NamesOfOtherAddresses(t *testing.T) {
	canary(t, ":443") // 8443 is closed
	hosts := map[string][]string{
		"loop.example": {"127.0.0.1"}, "six.example": {"::1"}, "meta.example": {"169.254.169.254"}, "private.example": {"10.0.0.5"},
		"shared.example": {"100.64.0.1"}, "nat.example": {"64:ff9b::7f00:1"}, "relay.example": {"2002:7f00:1::"}, "unique.example": {"fd00::1"},
		"both.example": {"10.0.0.5", "192.168.1.1", "fd00::1"}, "wire.example": {"168.63.129.16"},
	}
	table(t, hosts)
	target, logs := strict(t)
	c := rig.NewREST(target)
	task := open(t, c, "begin")
	for name := range hosts {
		for _, port := range []string{"443", "8443"} {
			task := open(t, c, "begin-"+name+port)
			conf := &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: "https://" + name + ":" + port + "/hook"}
			if _, err := c.CreatePush(t.Context(), conf); err != nil {
				t.Fatal(err)
			}
			reply(t, c, task)
			s := status(t, target, task, "mine", failing)
			if s.GetError() != "connection failed" {
				t.Errorf("%s: %v", conf.GetUrl(), s)
			}
			most := int32(0)
			for _, g := range s.GetGivenUp() {
				most = max(most, g.GetTries())
				if g.GetError() != "connection failed" {
					t.Errorf("%s: given up %v", conf.GetUrl(), g)
				}
			}
			if int(most) != hasty.Tries { // as for a public host: the number of attempts tells nothing either
				t.Errorf("%s: given up after %d attempts", conf.GetUrl(), most)
			}
		}
	}
	reply(t, c, task)
	for _, want := range []string{"10.0.0.5:443", "169.254.169.254:8443", "127.0.0.1:443", "[::1]:8443"} {
		if !slices.ContainsFunc(logs.All(), func(e observer.LoggedEntry) bool { return strings.Contains(fmt.Sprint(e.ContextMap()), want) }) {
			t.Errorf("the log does not have %s", want)
		}
	}
}

// TestT_14_TheOperatorAllows: what server.egress.allow lists is called, and nothing beside it.
func TestT_14_TheOperatorAllows(t *testing.T) {
	got := make(chan string, 100)
	take := func(_ http.ResponseWriter, r *http.Request) { got <- r.Host }
	receive(t, "10.0.0.5:8080", take)
	receive(t, "10.0.0.6:80", take)
	receive(t, "10.9.0.1:8443", take, "inside.example")
	canary(t, "10.0.0.5:443", "10.0.0.7:80", ":9090")
	table(t, map[string][]string{"inside.example": {"10.9.0.1"}, "other.example": {"10.9.0.1"}, "ten.example": {"10.0.0.6"}})
	target, _ := strict(t, "10.0.0.5:8080", "10.0.0.6", "inside.example:8443", "64:ff9b::/96")
	c := rig.NewREST(target)
	for url, allowed := range map[string]bool{
		"http://10.0.0.5:8080/": true, "http://10.0.0.5:9090/": false, "https://10.0.0.5/": false, "http://10.0.0.6/": true, "http://10.0.0.7/": false,
		"https://inside.example:8443/": true, "http://inside.example/": false, "http://ten.example/": false, "https://[64:ff9b::7f00:1]/": false, "https://[64:ff9b::5db8:d822]/": true,
	} {
		task := open(t, c, fmt.Sprintf("begin-%x", url))
		_, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: url})
		if (err == nil) != allowed {
			t.Errorf("%s: %v", url, err)
		}
		if !allowed || strings.Contains(url, "64:") {
			reply(t, c, task)
			continue
		}
		reply(t, c, task)
		status(t, target, task, "mine", func(s *teamv1.PushStatus) bool { return s.GetEnded() && !s.GetFailing() })
		if len(got) == 0 {
			t.Errorf("%s received nothing", url)
		}
	}
	task := open(t, c, "begin-other")
	if _, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: "https://other.example:8443/"}); err != nil {
		t.Fatal(err)
	}
	reply(t, c, task)
	if s := status(t, target, task, "mine", failing); s.GetError() != "connection failed" {
		t.Errorf("another name of an address that is allowed by its name: %v", s)
	}
}

// TestT_15_Rebinding: a name that is public when it is registered and first called, and private
// later, is not called any more; a connection that is kept leads where it led.
func TestT_15_Rebinding(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept connections %t", keep), func(t *testing.T) {
			seen := canary(t, "10.0.0.5:443", "127.0.0.1:443", "169.254.169.254:443")
			got := make(chan string, 100)
			receive(t, "93.184.216.34:443", func(w http.ResponseWriter, r *http.Request) {
				if !keep {
					w.Header().Set("Connection", "close")
				}
				got <- r.URL.Path
			}, "rebind.example", "pair.example")
			names(t, func(name string, n int) []string {
				switch {
				case name == "pair.example":
					return []string{"10.0.0.5", "93.184.216.34"}
				case n == 0:
					return []string{"93.184.216.34"}
				}
				return []string{[]string{"10.0.0.5", "127.0.0.1", "169.254.169.254"}[n%3]}
			})
			target, _ := strict(t)
			c := rig.NewREST(target)
			first, second := open(t, c, "first"), open(t, c, "second")
			add := func(task, url string) {
				if _, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: url}); err != nil {
					t.Fatal(err)
				}
			}
			delivered := func(s *teamv1.PushStatus) bool {
				return s.GetSeq() > 0 && s.GetError() == "" && !s.GetFailing() && len(got) > 0
			}
			if keep {
				add(first, "https://rebind.example/first")
				reply(t, c, first)
				status(t, target, first, "mine", func(s *teamv1.PushStatus) bool { return s.GetEnded() && delivered(s) })
				add(second, "https://rebind.example/second")
				reply(t, c, second)
				status(t, target, second, "mine", func(s *teamv1.PushStatus) bool { return s.GetEnded() && !s.GetFailing() })
			} else {
				add(first, "https://rebind.example/first")
				reply(t, c, first)
				s := status(t, target, first, "mine", func(s *teamv1.PushStatus) bool { return s.GetEnded() })
				if len(got) != 1 || !s.GetFailing() || s.GetError() != "connection failed" {
					t.Errorf("%d calls, then %v", len(got), s)
				}
				add(second, "https://pair.example/second")
				reply(t, c, second)
				status(t, target, second, "mine", func(s *teamv1.PushStatus) bool { return s.GetEnded() })
			}
			if l := seen(); len(l) > 0 {
				t.Errorf("connections to %v", l)
			}
		})
	}
}

// TestT_16_Redirects: a webhook that redirects to a private address has failed; what it is sent goes
// nowhere else.
func TestT_16_Redirects(t *testing.T) {
	canary(t, ":8099")
	table(t, map[string][]string{"hooks.example": {"93.184.216.34"}})
	receive(t, "93.184.216.34:443", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://10.0.0.5:8099/steal", http.StatusTemporaryRedirect)
	}, "hooks.example")
	target, _ := strict(t, "10.0.0.5") // even where it could be called
	c := rig.NewREST(target)
	task := open(t, c, "begin")
	if _, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: "https://hooks.example/", Token: "canary-token"}); err != nil {
		t.Fatal(err)
	}
	reply(t, c, task)
	if s := status(t, target, task, "mine", failing); s.GetError() != "refused by receiver" {
		t.Errorf("status %v", s)
	}
}

// TestT_14_ErrorsHaveThreeWords: callers see of a failed delivery three words at most.
func TestT_14_ErrorsHaveThreeWords(t *testing.T) {
	table(t, map[string][]string{"down.example": {"93.184.216.35"}, "sick.example": {"93.184.216.34"}, "other.example": {"93.184.216.34"}})
	receive(t, "93.184.216.34:443", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "sick.example")
	target, _ := strict(t)
	c := rig.NewREST(target)
	for host, want := range map[string]string{"sick": "refused by receiver", "other": "connection failed", "down": "connection failed", "unknown": "connection failed"} {
		task := open(t, c, "begin-"+host)
		if _, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: "https://" + host + ".example/"}); err != nil {
			t.Fatal(err)
		}
		reply(t, c, task)
		if s := status(t, target, task, "mine", failing); s.GetError() != want || s.GetGivenUp()[0].GetError() != want {
			t.Errorf("%s: %v", host, s)
		}
	}
}

// TestT_19_ConfigurationsOfATask: a task has 16 webhooks and no more.
func TestT_19_ConfigurationsOfATask(t *testing.T) {
	target, _ := strict(t)
	c := rig.NewREST(target)
	task := open(t, c, "begin")
	for i := range 17 {
		_, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: fmt.Sprint(i), Url: "https://hooks.example/"})
		if f := rig.Fault(err); (i == 16) != (f != nil && f.Reason == agent.ReasonInsufficientResources) {
			t.Errorf("configuration %d: %v", i+1, err)
		}
	}
}

// TestT_14_DevAllowsThisMachine: dev notifies webhooks on this machine, and uses agents there that are
// made over the API; serve does only what its file allows.
func TestT_14_DevAllowsThisMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "team.yaml")
	text := "version: v1\nagents: {asks: {description: Asks., scripted: {steps: [{ask: \"which?\"}]}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dev := &serve.Dev{Path: file, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: zap.NewNop(), Say: t.Logf}
	r, err := dev.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	here := rig.Target{HTTP: "http://" + r.HTTP, GRPC: r.GRPC}
	for _, s := range []struct {
		target rig.Target
		dev    bool
	}{{here, true}, {whole.Open(t, rig.Memory(t), text+"server: {auth: {api_keys: [{name: ann, account: acme, sha256: \"${ANN}\", manage: true}]}}\n", fakellm.New(t)).Target, false}} {
		c := rig.NewREST(s.target)
		for url, allowed := range map[string]bool{"http://127.0.0.1:1/": s.dev, "http://localhost:1/": s.dev, "http://[::1]:1/": s.dev, "http://10.0.0.5/": false} {
			_, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{TaskId: open(t, c, fmt.Sprintf("dev-%x", url)), Url: url})
			if (err == nil) != allowed {
				t.Errorf("dev is %t: %s: %v", s.dev, url, err)
			}
		}
		yaml := "agents: {away: {a2a: {card: \"http://127.0.0.1:1\"}}}\nteams: {t: {members: [{agent: away}], supervisor: {rules: [{id: end, when: \"true\", finish: last}]}}}\n"
		_, err := teamv1.NewTeamServiceClient(rig.Services(t, s.target)[0]).CreateTeam(t.Context(), &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Yaml{Yaml: yaml}})
		want := agent.ReasonInvalidTeamConfig
		if s.dev {
			want = agent.ReasonInitializationFailed // it was called, and is not there
		}
		if f := rig.Fault(err); f == nil || f.Reason != want {
			t.Errorf("dev is %t: an agent on this machine: %v", s.dev, err)
		}
	}
}
