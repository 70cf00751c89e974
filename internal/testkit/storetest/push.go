package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
)

const lease = 15 * time.Second

func pushConfig(id string) *a2av1.TaskPushNotificationConfig {
	return &a2av1.TaskPushNotificationConfig{
		Id: id, TaskId: "one", Url: "https://example.com/" + id, Token: "canary-token",
		Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "canary-credentials"}, //nolint:gosec // none
	}
}

// putPush stores a configuration for a task of the owner me.
func (r *rig) putPush(task, id string, seen int64) {
	r.Helper()
	if err := r.PutPush(r.ctx(), runs.Push{Task: key(task), Config: pushConfig(id), PushState: runs.PushState{Seen: seen}}); err != nil {
		r.Fatalf("PutPush(%s, %s): %v", task, id, err)
	}
}

// pushed returns the ids of the configurations of a task.
func (r *rig) pushed(task string) []string {
	r.Helper()
	list, err := r.ListPushes(r.ctx(), key(task), "", 100)
	if err != nil {
		r.Fatalf("ListPushes(%s): %v", task, err)
	}
	ids := []string{}
	for _, p := range list {
		ids = append(ids, p.Config.GetId())
	}
	return ids
}

// claimPushes claims all configurations that are due.
func (r *rig) claimPushes() []runs.PushClaim {
	r.Helper()
	claims, _, err := r.ClaimPushes(r.ctx(), 100, lease)
	if err != nil {
		r.Fatalf("ClaimPushes: %v", err)
	}
	return claims
}

// claimPush claims the configuration with an id, and fails unless it is the only one that is due.
func (r *rig) claimPush(id string) runs.PushClaim {
	r.Helper()
	claims := r.claimPushes()
	if len(claims) != 1 || claims[0].Config.GetId() != id {
		r.Fatalf("due are %d, want only %s: %v", len(claims), id, claims)
	}
	return claims[0]
}

func (r *rig) settle(c runs.PushClaim, s runs.PushStep) {
	r.Helper()
	if err := r.SettlePush(r.ctx(), c, s); err != nil {
		r.Fatalf("SettlePush(%s): %v", c.Config.GetId(), err)
	}
}

// idle releases a claim until there is an event after the sequence number seen.
func (r *rig) idle(c runs.PushClaim, seen int64) {
	r.Helper()
	r.settle(c, runs.PushStep{PushState: runs.PushState{Seen: seen}, Then: runs.PushIdle})
}

func pushes(t *testing.T, open Open) {
	for _, s := range []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"A-18 kept", pushKept}, {"A-25 with its version", pushVersioned}, {"A-21 of their owner", pushOwned}, {"T19 limits", pushLimits}, {"A-18 created with the task", pushInline},
		{"A-18 claimed", pushClaimed}, {"A-18 woken by an event", pushWoken}, {"A-18 made while a run is driven", pushBetween},
		{"A-18 given up", pushDead}, {"A-18 replaced", pushReplaced}, {"A-18 made again", pushAgain}, {"A-18 A-15 with a message", pushWithInput}, {"A-18 ended", pushEnded}, {"A-18 of a child", pushChild}, {"A-18 wake race", pushRace},
	} {
		t.Run(s.name, func(t *testing.T) { s.test(t, newRig(t, open)) })
	}
}

func pushKept(t *testing.T, r *rig) {
	r.create(task("one"), task("two"))
	for _, id := range []string{"b", "c", "a"} {
		r.putPush("one", id, 1)
	}
	r.putPush("two", "a", 1)
	if got := r.pushed("one"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("there are %v", got)
	}
	page, err := r.ListPushes(r.ctx(), key("one"), "a", 1)
	if err != nil || len(page) != 1 || page[0].Config.GetId() != "b" {
		t.Errorf("a page behind a: %v, %v", page, err)
	}
	p, err := r.Push(r.ctx(), key("one"), "b")
	if err != nil || !proto.Equal(p.Config, pushConfig("b")) || p.Task != key("one") || p.Seen != 1 {
		t.Errorf("Push = %v, %v", p, err)
	}
	for range 2 { // idempotent
		if err := r.DeletePush(r.ctx(), key("one"), "b"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Push(r.ctx(), key("one"), "b"); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("Push of what was deleted: %v", err)
	}
	if got := r.pushed("one"); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("there are %v", got)
	}
}

// pushVersioned tests that the protocol version of a configuration is stored, also if the
// configuration comes with its task, and that a replacement has its own version.
func pushVersioned(t *testing.T, r *rig) {
	n := task("one")
	n.Push, n.PushVersion = pushConfig("a"), "0.3"
	r.create(n)
	version := func(id string) string {
		t.Helper()
		p, err := r.Push(r.ctx(), key("one"), id)
		if err != nil {
			t.Fatal(err)
		}
		return p.Version
	}
	r.putPush("one", "b", 1)
	if a, b := version("a"), version("b"); a != "0.3" || b != "" {
		t.Errorf("versions %q and %q", a, b)
	}
	r.putPush("one", "a", 1)
	if err := r.PutPush(r.ctx(), runs.Push{Task: key("one"), Config: pushConfig("b"), Version: "0.3"}); err != nil {
		t.Fatal(err)
	}
	if a, b := version("a"), version("b"); a != "" || b != "0.3" {
		t.Errorf("versions %q and %q after they were replaced", a, b)
	}
	for _, c := range r.claimPushes() {
		if (c.Config.GetId() == "b") != (c.Version == "0.3") {
			t.Errorf("claimed %s of version %q", c.Config.GetId(), c.Version)
		}
	}
}

func pushOwned(t *testing.T, r *rig) {
	r.create(task("one"))
	r.putPush("one", "a", 1)
	foreign := runs.Key{Owner: "acme/bob", ID: "one"}
	for _, k := range []runs.Key{foreign, key("nothing")} {
		_, err1 := r.Push(r.ctx(), k, "a")
		_, err2 := r.ListPushes(r.ctx(), k, "", 10)
		err3 := r.DeletePush(r.ctx(), k, "a")
		err4 := r.PutPush(r.ctx(), runs.Push{Task: k, Config: pushConfig("x")})
		_, _, err5 := r.DeadPushes(r.ctx(), k, 10)
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, runs.ErrNotFound) {
				t.Errorf("%v, call %d: %v", k, i, err)
			}
		}
	}
	if got := r.pushed("one"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("there are %v", got)
	}
}

func pushLimits(t *testing.T, r *rig) {
	tasks := runs.MaxPushOwner/runs.MaxPushTask + 1
	for i := range tasks {
		r.create(task(id(i)))
	}
	var err error
	n := 0
	for i := range tasks {
		for j := range runs.MaxPushTask {
			if err = r.PutPush(r.ctx(), runs.Push{Task: key(id(i)), Config: pushConfig(id(j))}); err != nil {
				break
			}
			n++
		}
		if i == 0 {
			if err := r.PutPush(r.ctx(), runs.Push{Task: key(id(i)), Config: pushConfig("one-more")}); !errors.Is(err, runs.ErrPushTask) {
				t.Fatalf("the 17th of a task: %v", err)
			}
			r.putPush(id(i), id(3), 0) // replaces one, so their number stays the same
		}
	}
	if n != runs.MaxPushOwner || !errors.Is(err, runs.ErrPushOwner) {
		t.Fatalf("%d were taken, then %v", n, err)
	}
	more := task("more")
	more.Push = pushConfig("inline")
	if _, _, err := r.Create(r.ctx(), more); !errors.Is(err, runs.ErrPushOwner) {
		t.Errorf("a task with one more: %v", err)
	}
	known := task("other") // of a message that is there already
	known.MessageID, known.Push = task(id(0)).MessageID, pushConfig("inline")
	if root, existed, err := r.Create(r.ctx(), known); root != id(0) || !existed || err != nil {
		t.Errorf("a message that is sent again = %q, %v, %v", root, existed, err)
	}
	if _, _, err := r.Task(r.ctx(), key("more")); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("the task was made: %v", err)
	}
	if err := r.DeletePush(r.ctx(), key(id(0)), id(0)); err != nil {
		t.Fatal(err)
	}
	r.create(more)
}

func pushInline(t *testing.T, r *rig) {
	n := task("one")
	n.Push = pushConfig("inline")
	r.create(n)
	again := task("other") // the same message, with another configuration
	again.MessageID, again.Push = n.MessageID, pushConfig("second")
	root, existed, err := r.Create(r.ctx(), again)
	if root != "one" || !existed || err != nil {
		t.Fatalf("the same message again = %q, %v, %v", root, existed, err)
	}
	if got := r.pushed("one"); !slices.Equal(got, []string{"inline"}) {
		t.Errorf("there are %v", got)
	}
	c := r.claimPush("inline")
	if c.Seen != 0 || c.Task != key("one") || !proto.Equal(c.Config, pushConfig("inline")) {
		t.Errorf("claimed is %v", c)
	}
}

func pushClaimed(t *testing.T, r *rig) {
	r.create(task("one"))
	r.putPush("one", "a", 1)
	first := r.claimPush("a")
	if first.Until.Before(r.clock.Now().Add(lease)) {
		t.Errorf("the lease ends at %v", first.Until)
	}
	if more := r.claimPushes(); len(more) != 0 {
		t.Fatalf("claimed twice: %v", more)
	}
	if ok, err := r.HoldsPush(r.ctx(), first); !ok || err != nil {
		t.Errorf("HoldsPush = %v, %v", ok, err)
	}
	r.clock.Move(lease)
	second := r.claimPush("a") // the first one has gone
	if ok, err := r.HoldsPush(r.ctx(), first); ok || err != nil {
		t.Errorf("HoldsPush of a claim that lapsed = %v, %v", ok, err)
	}
	if err := r.SettlePush(r.ctx(), first, runs.PushStep{Then: runs.PushIdle}); !errors.Is(err, runs.ErrPushLost) {
		t.Errorf("a claim that lapsed settles: %v", err)
	}
	state := runs.PushState{Seen: 1, Part: 2, Tries: 3, Since: r.clock.Now(), Error: "why"}
	r.settle(second, runs.PushStep{PushState: state, Then: runs.PushHold, At: r.clock.Now().Add(lease)})
	r.settle(second, runs.PushStep{PushState: state, Then: runs.PushDue, At: r.clock.Now().Add(time.Minute)})
	if more := r.claimPushes(); len(more) != 0 {
		t.Fatalf("claimed before it is due: %v", more)
	}
	_, next, err := r.ClaimPushes(r.ctx(), 1, lease)
	if limit := r.clock.Now().Add(time.Minute); err != nil || next.IsZero() || next.After(limit) {
		t.Errorf("next is %v, %v, want at most %v", next, err, limit)
	}
	r.clock.Move(time.Minute)
	third := r.claimPush("a")
	third.Since = third.Since.UTC()
	if diff := cmp.Diff(state, third.PushState); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if err := r.DeletePush(r.ctx(), key("one"), "a"); err != nil {
		t.Fatal(err)
	}
	if ok, err := r.HoldsPush(r.ctx(), third); ok || err != nil {
		t.Errorf("HoldsPush of what was deleted = %v, %v", ok, err)
	}
	if err := r.SettlePush(r.ctx(), third, runs.PushStep{Then: runs.PushIdle}); !errors.Is(err, runs.ErrPushLost) {
		t.Errorf("what was deleted settles: %v", err)
	}
}

// told waits for the signal that a configuration is due.
func (r *rig) told() {
	r.Helper()
	select {
	case <-r.PushWake():
	case <-time.After(10 * time.Second):
		r.Fatalf("no watcher is told that something is due")
	}
}

// quiet discards pending signals.
func (r *rig) quiet() {
	for {
		select {
		case <-r.PushWake():
		default:
			return
		}
	}
}

func pushWoken(t *testing.T, r *rig) {
	r.create(task("other"))
	n := task("one")
	n.Push = pushConfig("a")
	r.create(n)
	r.told()
	var run runs.Claim
	for _, c := range r.claims() {
		if c.Root == "one" {
			run = c
			continue
		}
		r.append(c, noted("no receiver is told"))
	}
	r.idle(r.claimPush("a"), 1)
	if more := r.claimPushes(); len(more) != 0 {
		t.Fatalf("due although nothing happened: %v", more)
	}
	for seq := int64(2); seq <= 4; seq++ {
		r.quiet()
		r.append(run, noted("something"))
		r.told()
		r.idle(r.claimPush("a"), seq)
	}
	r.append(run, noted("one more"))
	c := r.claimPush("a")
	r.append(run, noted("while it is held"))
	r.idle(c, 5) // what came meanwhile was not seen
	r.idle(r.claimPush("a"), 6)
	r.quiet()
	r.append(run, succeeded())
	r.told()
	r.claimPush("a")
}

// pushBetween tests that the first event after a configuration was stored wakes the configuration,
// even if the journal was open before.
func pushBetween(t *testing.T, r *rig) {
	run := r.run("one")
	r.append(run, noted("before"))
	r.putPush("one", "a", 2)
	r.idle(r.claimPush("a"), 2)
	r.append(run, noted("after"))
	r.idle(r.claimPush("a"), 3)
	if err := r.DeletePush(r.ctx(), key("one"), "a"); err != nil {
		t.Fatal(err)
	}
	r.append(run, noted("no receiver is told"))
	r.putPush("one", "b", 4)
	r.idle(r.claimPush("b"), 4)
	r.append(run, succeeded())
	r.claimPush("b")
	if n := len(r.events("one")); n != 5 {
		t.Errorf("%d events are on record, want 5", n)
	}
}

func pushDead(t *testing.T, r *rig) {
	r.create(task("one"))
	r.putPush("one", "a", 0)
	r.putPush("one", "b", 0)
	for i, c := range r.claimPushes() {
		r.clock.Move(time.Second)
		step := runs.PushStep{PushState: runs.PushState{Seen: 1, Failing: true, Error: "no"}, Then: runs.PushHold, At: r.clock.Now().Add(lease)}
		step.Dead = &runs.DeadPush{Config: c.Config.GetId(), Seq: 1, Part: i + 1, Tries: 20, Error: "no", At: r.clock.Now()}
		r.settle(c, step)
		r.settle(c, step) // its answer was lost
	}
	list, total, err := r.DeadPushes(r.ctx(), key("one"), 10)
	if err != nil || total != 2 || len(list) != 2 || list[0].Config != "b" || list[0].Part != 2 || list[0].Tries != 20 || list[0].Error != "no" || !list[0].At.Equal(r.clock.Now()) {
		t.Fatalf("given up are %v, %v", list, err)
	}
	if list, n, err := r.DeadPushes(r.ctx(), key("one"), 1); len(list) != 1 || n != total || err != nil {
		t.Errorf("one of them: %v, %d, %v", list, n, err)
	}
	if err := r.DeletePush(r.ctx(), key("one"), "b"); err != nil {
		t.Fatal(err)
	}
	if list, _, err := r.DeadPushes(r.ctx(), key("one"), 10); err != nil || slices.ContainsFunc(list, func(d runs.DeadPush) bool { return d.Config == "b" }) {
		t.Errorf("after the end of b: %v, %v", list, err)
	}
	p, err := r.Push(r.ctx(), key("one"), "a")
	if err != nil || !p.Failing || p.Error != "no" {
		t.Errorf("Push = %+v, %v", p.PushState, err)
	}
}

func pushReplaced(t *testing.T, r *rig) {
	r.create(task("one"))
	r.putPush("one", "a", 0)
	c := r.claimPush("a")
	r.settle(c, runs.PushStep{PushState: runs.PushState{Seen: 1, Part: 1, Tries: 4, Failing: true, Error: "no"}, Then: runs.PushDue, At: r.clock.Now().Add(time.Hour)})
	other := pushConfig("a")
	other.Url = "https://example.org"
	if err := r.PutPush(r.ctx(), runs.Push{Task: key("one"), Config: other, PushState: runs.PushState{Seen: 7}}); err != nil {
		t.Fatal(err)
	}
	again := r.claimPush("a") // at once
	if !proto.Equal(again.Config, other) {
		t.Errorf("claimed is %v", again.Config)
	}
	if diff := cmp.Diff(runs.PushState{Seen: 1, Part: 1}, again.PushState); diff != "" {
		t.Errorf("the new claim begins in another state than the old one was left in (-want +got):\n%s", diff)
	}
	if ok, err := r.HoldsPush(r.ctx(), c); ok || err != nil {
		t.Errorf("the claim of the one before: %v, %v", ok, err)
	}
}

// pushAgain tests that a claim of a deleted configuration does not hold a new configuration with
// the same id.
func pushAgain(t *testing.T, r *rig) {
	r.create(task("one"))
	r.putPush("one", "a", 0)
	old := r.claimPush("a")
	if err := r.DeletePush(r.ctx(), key("one"), "a"); err != nil {
		t.Fatal(err)
	}
	r.putPush("one", "a", 0)
	made := r.claimPush("a")
	if ok, err := r.HoldsPush(r.ctx(), old); ok || err != nil {
		t.Errorf("the claim of what was deleted: %v, %v", ok, err)
	}
	if err := r.SettlePush(r.ctx(), old, runs.PushStep{PushState: runs.PushState{Seen: 7, Ended: true}, Then: runs.PushIdle}); !errors.Is(err, runs.ErrPushLost) {
		t.Errorf("what was deleted settles: %v", err)
	}
	if ok, err := r.HoldsPush(r.ctx(), made); !ok || err != nil {
		t.Errorf("the claim of what was made: %v, %v", ok, err)
	}
	if p, err := r.Push(r.ctx(), key("one"), "a"); err != nil || p.Seen != 0 || p.Ended {
		t.Errorf("Push = %+v, %v", p.PushState, err)
	}
}

// pushWithInput tests that a message and the configuration that comes with it are both stored, or
// neither of them.
func pushWithInput(t *testing.T, r *rig) {
	run := r.run("one")
	r.create(task("two"))
	r.put("two", followUp("used"))
	put := func(message, digest, id, url string) (bool, error) {
		conf := pushConfig(id)
		conf.Url = url
		_, existed, err := r.Put(r.ctx(), key("one"), followUp(message), []byte(digest), &runs.Push{Task: key("one"), Config: conf, PushState: runs.PushState{Seen: 1}})
		return existed, err
	}
	urls := func() map[string]string {
		list, err := r.ListPushes(r.ctx(), key("one"), "", 100)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, p := range list {
			got[p.Config.GetId()] = p.Config.GetUrl()
		}
		return got
	}
	const first, second = "https://example.com/first", "https://example.com/second"
	r.quiet()
	if existed, err := put("f1", "d", "a", first); existed || err != nil {
		t.Fatalf("the first: %v, %v", existed, err)
	}
	r.told()
	if c := r.claimPush("a"); c.Seen != 1 {
		t.Errorf("it has seen %d", c.Seen)
	}
	for _, c := range []struct {
		name, message, digest string
		existed               bool
		err                   error
	}{
		{"the same message again", "f1", "d", true, nil},
		{"with other content", "f1", "other", false, runs.ErrReused},
		{"of another task", "used", "used", false, runs.ErrReused},
	} {
		for _, id := range []string{"a", "b"} {
			if existed, err := put(c.message, c.digest, id, second); existed != c.existed || !errors.Is(err, c.err) {
				t.Errorf("%s, %s: %v, %v", c.name, id, existed, err)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"a": first}, urls()); diff != "" {
		t.Errorf("after what was not taken (-want +got):\n%s", diff)
	}
	if _, err := put("f2", "d", "a", second); err != nil || urls()["a"] != second {
		t.Errorf("a replacement: %v, %v", err, urls())
	}
	for i := range runs.MaxPushTask - 1 {
		r.putPush("one", id(i), 1)
	}
	if _, err := put("f3", "d", "one-more", first); !errors.Is(err, runs.ErrPushTask) {
		t.Errorf("one configuration more: %v", err)
	}
	if _, err := r.Sent(r.ctx(), me, "a", "f3"); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("its message was taken: %v", err)
	}
	rows, err := run.Journal.Inbound(r.ctx())
	if err != nil || len(rows) != 2 {
		t.Errorf("in the inbox are %v, %v", rows, err)
	}
	r.append(run, succeeded())
	if _, err := put("f4", "d", "a", first); !errors.Is(err, runs.ErrTerminal) || urls()["a"] != second {
		t.Errorf("after the end: %v, %v", err, urls())
	}
	if _, _, err := r.Put(r.ctx(), runs.Key{Owner: "acme/bob", ID: "one"}, followUp("f5"), []byte("d"), &runs.Push{Task: runs.Key{Owner: "acme/bob", ID: "one"}, Config: pushConfig("a")}); !errors.Is(err, runs.ErrNotFound) {
		t.Errorf("of a foreign task: %v", err)
	}
}

func pushEnded(t *testing.T, r *rig) {
	run := r.run("one")
	r.putPush("one", "a", 1)
	c := r.claimPush("a")
	r.append(run, succeeded())
	r.settle(c, runs.PushStep{PushState: runs.PushState{Seen: 2, Ended: true}, Then: runs.PushIdle})
	if more := r.claimPushes(); len(more) != 0 {
		t.Errorf("due after its end: %v", more)
	}
	p, err := r.Push(r.ctx(), key("one"), "a")
	if err != nil || !p.Ended || p.Seen != 2 {
		t.Errorf("Push = %+v, %v", p.PushState, err)
	}
	r.putPush("one", "late", runs.TaskFirst)
	if c := r.claimPush("late"); c.Seen != runs.TaskFirst {
		t.Errorf("a late one has seen %d", c.Seen)
	}
}

func pushChild(t *testing.T, r *rig) {
	run := r.run("one")
	r.append(run, decided("1"), started("1"))
	r.putPush("one~1", "a", 2)
	if got := r.pushed("one"); len(got) != 0 {
		t.Errorf("the root has %v", got)
	}
	c := r.claimPush("a")
	if c.Task != key("one~1") {
		t.Errorf("claimed is of %v", c.Task)
	}
	r.idle(c, 3)
	r.append(run, ended("1", teamv1.Outcome_OUTCOME_SUCCEEDED))
	r.claimPush("a")
}

// pushRace tests that an event is delivered in whatever order the event and the end of a claim are
// stored.
func pushRace(t *testing.T, r *rig) {
	run := r.run("one")
	r.putPush("one", "a", 1)
	c := r.claimPush("a")
	for i := range int64(50) {
		done := make(chan error, 1)
		go func() {
			err := run.Journal.Append(r.ctx(), noted(fmt.Sprint(i)))
			if err == nil {
				err = run.Journal.Commit(r.ctx())
			}
			done <- err
		}()
		r.idle(c, i+1)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		c = r.claimPush("a")
	}
}
