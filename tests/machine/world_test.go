package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// world is what happens over one binding, in an account of its own: the same as
// in the others.
type world struct {
	binding, account string
	seed             uint64 // of a choice of bindings

	clients  map[string]rig.Client // by owner
	detailed map[string]rig.Client // the same, told every step
	closers  []func()

	ids  []string // of the tasks, by number
	seen []sight  // by number
}

// sight is how a task looked when it was last seen.
type sight struct {
	state   string
	seq     int64
	at      time.Time
	context string
	owner   string
}

// connect makes the clients for a server.
func (w *world) connect(target rig.Target, owners []*owner) error {
	w.disconnect()
	w.clients, w.detailed = map[string]rig.Client{}, map[string]rig.Client{}
	for _, o := range owners {
		as := target.As(w.account, o.name)
		var err error
		if w.clients[o.name], err = w.client(as); err != nil {
			return err
		}
		as.Headers = map[string]string{"a2a-extensions": a2a.TeamRunURI}
		if w.detailed[o.name], err = w.client(as); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) client(target rig.Target) (rig.Client, error) {
	switch w.binding {
	case "rest":
		return rig.NewREST(target), nil
	case "jsonrpc":
		return rig.NewJSONRPC(target), nil
	case anyBinding:
		return w.mixed(target)
	}
	g, err := rig.NewGRPC(target)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() { _ = g.Close() })
	return g, nil
}

func (w *world) disconnect() {
	for _, c := range w.closers {
		c()
	}
	w.closers = nil
}

// name is what an id is called in all worlds. The next unknown one is the task of a number.
func (w *world) name(id string, next int) string {
	root, scope := agent.SplitTask(id)
	n := slices.Index(w.ids, root)
	if n < 0 && next == len(w.ids) {
		n = next
		w.ids, w.seen = append(w.ids, root), append(w.seen, sight{})
	}
	if n < 0 {
		return "an unknown task"
	}
	if scope != "" {
		scope = "~" + scope
	}
	return fmt.Sprint("task ", n, scope)
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// anonymous is a text with the names of ids in their place.
func (w *world) anonymous(text string) string {
	return uuids.ReplaceAllStringFunc(text, func(id string) string {
		if n := slices.Index(w.ids, id); n >= 0 {
			return fmt.Sprint("task ", n)
		}
		return "id"
	})
}

// fault is what an error means. Questions that were asked at the same moment
// have no order.
func (w *world) fault(err error) string {
	f := rig.Fault(err)
	text, _, _ := strings.Cut(w.anonymous(f.Message), "open: ")
	return fmt.Sprint("error ", f.Code, " ", f.Reason, " ", f.Fields, " ", text)
}

// pictureOf is what the model also knows of a task.
func pictureOf(t *a2av1.Task) picture {
	p := picture{State: short(t.GetStatus().GetState())}
	for _, m := range t.GetHistory() {
		p.History = append(p.History, agent.Text(m))
	}
	var artifacts []string
	for _, a := range t.GetArtifacts() {
		if a2a.RunOf(a.GetMetadata()).GetDelegationId() != "" {
			continue // a member's
		}
		artifacts = append(artifacts, agent.Text(&a2av1.Message{Parts: project.JoinTexts(a.GetParts())}))
	}
	p.Artifact = strings.Join(artifacts, " | ")
	for _, q := range a2a.RunOf(t.GetMetadata()).GetQuestions() {
		p.Questions = append(p.Questions, agent.Text(q.GetMessage()))
	}
	slices.Sort(p.Questions)
	return p
}

// meaning is all that a task says, without what is another in every world: ids,
// times, and what happened at the same moment in some order.
func (w *world) meaning(t *a2av1.Task) (string, error) {
	t = proto.CloneOf(t)
	if len(a2a.RunOf(t.GetMetadata()).GetQuestions()) > 1 {
		t.Status.Message = nil
	}
	b, err := wire.Marshal(t)
	if err != nil {
		return "", err
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return "", err
	}
	return w.anonymous(fmt.Sprint(plain(m))), nil
}

// plain drops what differs, and sorts what has no order.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			switch key {
			case "timestamp", "expires", "seq":
				delete(v, key)
			case "questions", "failedDelegations", "entries":
				list, _ := v[key].([]any)
				texts := make([]string, len(list))
				for i, q := range list {
					texts[i] = uuids.ReplaceAllString(fmt.Sprint(plain(q)), "id")
				}
				slices.Sort(texts)
				v[key] = texts
			default:
				v[key] = plain(v[key])
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// look checks what must hold whenever a task is seen: what has ended stays as it
// is, and neither the sequence nor the time goes back.
func (w *world) look(n int, owner string, t *a2av1.Task) error {
	now := sight{
		state: short(t.GetStatus().GetState()), seq: a2a.RunOf(t.GetMetadata()).GetSeq(),
		at: t.GetStatus().GetTimestamp().AsTime(), context: t.GetContextId(), owner: owner,
	}
	last := w.seen[n]
	w.seen[n] = now
	switch {
	case last.state == "":
	case taskstate.Final(stateOf(last.state)) && (now.state != last.state || !now.at.Equal(last.at)):
		return fmt.Errorf("task %d has left its end: it was %+v, and is %+v", n, last, now)
	case now.seq < last.seq || now.at.Before(last.at) || now.context != last.context:
		return fmt.Errorf("task %d goes back: it was %+v, and is %+v", n, last, now)
	}
	return nil
}

// get gets a task and checks what must hold.
func (w *world) get(ctx context.Context, t *task) (*a2av1.Task, error) {
	got, err := w.clients[t.owner.name].Get(ctx, &a2av1.GetTaskRequest{Id: w.ids[t.n]})
	if err != nil {
		return nil, err
	}
	return got, w.look(t.n, t.owner.name, got)
}

// settle waits until a task is as the model says, and returns it.
func (w *world) settle(ctx context.Context, t *task) (*a2av1.Task, error) {
	got, diff, err := w.compare(ctx, t)
	if err != nil || diff == "" {
		return got, err
	}
	for _, err := range w.detailed[t.owner.name].Subscribe(ctx, &a2av1.SubscribeToTaskRequest{Id: w.ids[t.n]}, 0) {
		if err != nil {
			break // it has ended, or time is over: compared once more
		}
		if got, diff, err = w.compare(ctx, t); err != nil || diff == "" {
			return got, err
		}
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // says what it waited for
	defer cancel()
	if got, diff, err = w.compare(again, t); err == nil && diff != "" {
		err = fmt.Errorf("%v (-want +got):\n%s", t, diff)
	}
	return got, err
}

func (w *world) compare(ctx context.Context, t *task) (*a2av1.Task, string, error) {
	got, err := w.get(ctx, t)
	if err != nil {
		return nil, "", err
	}
	return got, cmp.Diff(t.picture(), pictureOf(got)), nil
}

// sameTask compares what a reader has put together with what GetTask says.
// History is no part of updates, and a snapshot's cursor may be behind the last event.
func sameTask(got, want *a2av1.Task) string {
	got, want = proto.CloneOf(got), proto.CloneOf(want)
	for _, t := range []*a2av1.Task{got, want} {
		t.History = nil
		for _, a := range t.GetArtifacts() {
			a.Parts = project.JoinTexts(a.GetParts())
		}
		delete(t.GetMetadata().GetFields()[a2a.TeamRunURI].GetStructValue().GetFields(), "seq")
	}
	return cmp.Diff(want, got, protocmp.Transform())
}
