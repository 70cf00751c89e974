//go:build linux

package durable

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	pushTasks  = 4
	pushPieces = 250 // that each of them says
)

// talkative is an agent that says much.
const talkative = `
version: v1
agents:
  talker: {description: Talks., scripted: {steps: [{chunks: %d}, {text: %q}]}}
server: {egress: {allow: [127.0.0.0/8]}}
`

// TestPush_P6_A_13_A_18_Killed: the server is killed twice and the receiver once
// while 1,000 events are told, to a receiver that fails now and then.
// All arrive, in the order of each task, and make the tasks as they are.
func TestPush_P6_A_13_A_18_Killed(t *testing.T) {
	t.Parallel() // it waits for the receiver, and measures no time
	for _, s := range stores {
		t.Run("P6 A-13 A-18 "+s.name, func(t *testing.T) {
			t.Parallel()
			killedWhileTelling(t, s)
		})
	}
}

func killedWhileTelling(t *testing.T, s database) {
	dir := t.ArtifactDir()
	file := filepath.Join(dir, "team.yaml")
	words := strings.Repeat("word ", pushPieces)
	if err := os.WriteFile(file, fmt.Appendf(nil, talkative, pushPieces, words), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command{config: file, store: s.url(t), args: s.args, dir: dir}
	hook := rig.NewReceiver(t)
	hook.Answer(func(n int) int {
		if n%60 == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	r := startReplica(t, cmd)
	lives := []*replica{r}
	var tasks []string
	for i := range pushTasks {
		req := rig.Text("talker", fmt.Sprint("m", i), "go")
		req.Configuration = &a2av1.SendMessageConfiguration{
			ReturnImmediately: true, TaskPushNotificationConfig: &a2av1.TaskPushNotificationConfig{Id: "mine", Url: hook.URL, Token: "canary-token"},
		}
		resp, err := rig.Clients(t, r.target)[i%bindings].Send(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, resp.GetTask().GetId())
	}
	for _, n := range []int{150, 450} {
		hook.Until(t, fmt.Sprint(n), func(l []rig.Notification) bool { return len(l) >= n })
		r.end(syscall.SIGKILL)
		hook.Kill()
		r = startReplica(t, cmd)
		lives = append(lives, r)
		hook.Start()
	}
	ended := func(l []rig.Notification) bool {
		n := map[string]bool{}
		for _, one := range l {
			if rig.Ended(one) {
				n[rig.TaskOf(one)] = true
			}
		}
		return len(n) == pushTasks
	}
	all := hook.Until(t, "the end of all", ended)
	told := rig.Once(all)
	t.Logf("%d notifications, %d of them again, %d calls", len(told), len(all)-len(told), hook.Calls())
	if len(told) < pushTasks*pushPieces {
		t.Errorf("%d notifications, want at least %d", len(told), pushTasks*pushPieces)
	}
	client := rig.NewREST(r.target)
	for _, id := range tasks {
		checkTold(t, client, id, told)
		got, err := client.GetPush(t.Context(), &a2av1.GetTaskPushNotificationConfigRequest{TaskId: id, Id: "mine"})
		if err != nil || got.GetUrl() != hook.URL {
			t.Errorf("A-13 the configuration of %s: %v, %v", id, got, err)
		}
	}
	for i, r := range lives {
		if strings.Contains(r.said(), "canary") {
			t.Errorf("T42 a secret is in the log of process %d", i+1)
		}
	}
}

// startReplica starts a server that is killed with the test.
func startReplica(t *testing.T, cmd command) *replica {
	t.Helper()
	r, err := cmd.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(syscall.SIGKILL) })
	return r
}

// checkTold: what was told of a task is in order, and makes it as it is.
func checkTold(t *testing.T, c rig.Client, id string, told []rig.Notification) {
	t.Helper()
	task, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	text := ""
	for _, n := range told {
		if rig.TaskOf(n) != id {
			continue
		}
		if seq := n.Seq(); seq != 0 {
			if seq <= last {
				t.Errorf("%s with %d comes behind %d", n.ID, seq, last)
			}
			last = seq
		}
		if u := n.Response.GetArtifactUpdate(); u != nil {
			if !u.GetAppend() {
				text = ""
			}
			text += agent.Text(&a2av1.Message{Parts: u.GetArtifact().GetParts()})
		}
	}
	if len(task.GetArtifacts()) != 1 || text != agent.Text(&a2av1.Message{Parts: task.GetArtifacts()[0].GetParts()}) {
		t.Errorf("%s: told are %d bytes of text, the task has %v", id, len(text), task.GetArtifacts())
	}
	if last != a2a.RunOf(task.GetMetadata()).GetSeq() {
		t.Errorf("%s: told up to %d of %d", id, last, a2a.RunOf(task.GetMetadata()).GetSeq())
	}
}
