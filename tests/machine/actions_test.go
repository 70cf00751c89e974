package machine

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/faulty"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// act draws an action and takes it.
func (s *sequence) act() {
	actions := []struct {
		name string
		do   func(*owner) bool // false: there is nothing to do it with
	}{
		{"new", s.new}, {"new", s.new}, {"new", s.new}, {"to task", s.toTask}, {"to task", s.toTask}, {"repeat", s.repeat}, {"reuse", s.reuse},
		{"open", s.open}, {"cancel", s.cancelSome}, {"subscribe", s.subscribe}, {"follow", s.follow}, {"history", s.history},
		{"list", s.listSome}, {"foreign", s.foreign}, {"restart", s.restart}, {"wrong context", s.wrongContext},
		{"invalid", s.invalid}, {"hook", s.hook},
	}
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = a.name
	}
	i := slices.Index(names, rapid.SampledFrom(names).Draw(s.T, "action"))
	o := rapid.SampledFrom(s.owners).Draw(s.T, "owner")
	if !actions[i].do(o) {
		s.new(o)
	}
	s.acts++
	for i, o := range s.owners { // over one binding each time
		s.list(s.worlds[(s.acts+i)%len(s.worlds)], o, filter{size: 4})
	}
}

// some draws one of an owner's tasks that fit.
func (s *sequence) some(o *owner, fits func(*task) bool) *task {
	var fit []*task
	for _, t := range o.tasks {
		if fits(t) {
			fit = append(fit, t)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(s.T, "task")]
}

func anyTask(*task) bool     { return true }
func isWorking(t *task) bool { return t.state == working }

// Ways to send.
const (
	blocking  = "blocking"
	immediate = "immediate"
	streaming = "streaming"
	cut       = "cut" // a stream that is left early
)

// message is one to be sent.
type message struct {
	owner                    *owner
	id, agent, context, text string
	to                       *task
	child                    string // of to
	question                 string // that it names
}

// request is the message in a world.
func (s *sequence) request(w *world, m message) *a2av1.SendMessageRequest {
	req := rig.Text(m.agent, m.id, m.text)
	req.Message.ContextId = m.context
	if m.to == nil {
		return req
	}
	req.Message.TaskId = w.id(m.to, m.child)
	if m.question != "" {
		named, err := structpb.NewStruct(map[string]any{a2a.TeamRunURI: map[string]any{"question": s.question(w, m.to, m.question)}})
		if err != nil {
			s.Fatalf("%v", err)
		}
		req.Metadata = named
	}
	return req
}

// question is the id of an open question.
func (s *sequence) question(w *world, t *task, text string) string {
	got, err := w.get(s.ctx, t)
	if err != nil {
		s.Fatalf("%s: %v", w.binding, err)
	}
	for _, q := range a2a.RunOf(got.GetMetadata()).GetQuestions() {
		if agent.Text(q.GetMessage()) == text {
			return q.GetQuestion()
		}
	}
	return "none"
}

// send sends a message in every world, and returns what came of it. next is the
// number of the task that it may begin.
func (s *sequence) send(m message, way string) string {
	s.Helper()
	next := len(s.tasks)
	return s.each(fmt.Sprintf("%s %+v", way, m), func(w *world) string {
		req := s.request(w, m)
		c := w.clients[m.owner.name]
		switch way {
		case streaming, cut:
			return s.read(w, c.Stream(s.ctx, req), way == cut, next)
		case immediate:
			req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
		}
		resp, err := c.Send(s.ctx, req)
		switch {
		case err != nil:
			return w.fault(err)
		case resp.GetMessage() != nil:
			return "message " + agent.Text(resp.GetMessage())
		case way == immediate:
			return w.name(resp.GetTask().GetId(), next)
		}
		return w.name(resp.GetTask().GetId(), next) + fmt.Sprintf(" %+v", pictureOf(resp.GetTask()))
	})
}

// read reads a stream to its end, or leaves it after its first update, and
// compares it with the task.
func (s *sequence) read(w *world, updates iter.Seq2[*a2av1.StreamResponse, error], leave bool, next int) string {
	v := &view{}
	for u, err := range updates {
		if err != nil {
			return w.fault(err)
		}
		if err := v.take(u); err != nil {
			s.Fatalf("%s: %v", w.binding, err)
		}
		if leave {
			break
		}
	}
	switch {
	case v.message != nil:
		return "message " + agent.Text(v.message)
	case v.task == nil:
		return "nothing"
	case leave:
		return w.name(v.task.GetId(), next)
	}
	p := pictureOf(v.task)
	p.History = nil // no part of a stream
	return w.name(v.task.GetId(), next) + fmt.Sprintf(" %+v", p)
}

// wanted is what a message that is taken must lead to.
func wanted(t *task, child, way string) string {
	switch p := t.picture(); {
	case way == immediate, way == cut, child != "":
		return t.String() + child
	case way == streaming:
		p.History = nil
		return t.String() + fmt.Sprintf(" %+v", p)
	default:
		return t.String() + fmt.Sprintf(" %+v", p)
	}
}

// want compares an outcome; of a child's task only the name is known.
func (s *sequence) want(got, want string, child bool) {
	s.Helper()
	if child {
		got, want = got+" ", want+" "
	}
	if got != want && (!child || !strings.HasPrefix(got, want)) {
		s.Fatalf("got\n\t%s\nwant\n\t%s", got, want)
	}
}

// wantFault wants an error of a reason.
func (s *sequence) wantFault(got, code, reason string) {
	s.Helper()
	if !strings.HasPrefix(got, "error "+code+" "+reason+" ") {
		s.Fatalf("got %s, want %s %s", got, code, reason)
	}
}

// way draws how a message is sent.
func (s *sequence) way(waits bool) string {
	ways := []string{blocking, immediate, streaming, cut}
	if waits {
		ways = []string{immediate, cut}
	}
	return rapid.SampledFrom(ways).Draw(s.T, "way")
}

// new begins a task, or is answered with a message.
func (s *sequence) new(o *owner) bool {
	a := rapid.SampledFrom([]string{echoes, gates, asks, pair, twice, streams, fails, refuses, direct, gates, asks}).Draw(s.T, "agent")
	s.texts++
	m := message{
		owner: o, id: fmt.Sprint("m", len(o.sent)), agent: a, text: fmt.Sprint(a, " ", s.texts),
		context: rapid.SampledFrom([]string{"", "c1", "c2"}).Draw(s.T, "context"),
	}
	way := s.way(a == gates)
	got := s.send(m, way)
	record := &sent{id: m.id, text: m.text, agent: a, context: m.context, began: true}
	o.sent = append(o.sent, record)
	if a == direct && way != immediate {
		record.direct = true
		s.want(got, "message direct: "+m.text, false)
		return true
	}
	t := begin(len(s.tasks), o, a, m.context, m.text)
	s.tasks, o.tasks = append(s.tasks, t), append(o.tasks, t)
	record.task = t
	s.want(got, wanted(t, "", way), false)
	s.settled(t)
	return true
}

// toTask leaves a message for a task, whatever it does.
func (s *sequence) toTask(o *owner) bool {
	t := s.some(o, anyTask)
	if t == nil {
		return false
	}
	s.texts++
	m := message{owner: o, id: fmt.Sprint("m", len(o.sent)), agent: rapid.SampledFrom([]string{"", t.agent}).Draw(s.T, "tenant"), text: fmt.Sprint("more ", s.texts), to: t}
	switch {
	case t.agent == pair && t.state == required && rapid.Bool().Draw(s.T, "child"):
		s.toChild(m)
		return true
	case t.state == required && rapid.Bool().Draw(s.T, "named"):
		m.question = rapid.SampledFrom(t.questions).Draw(s.T, "question")
	}
	way := s.way(t.state == working)
	if t.terminal() {
		s.wantFault(s.send(m, way), "FailedPrecondition", "UNSUPPORTED_OPERATION")
		return true
	}
	if len(t.questions) > 1 && m.question == "" {
		s.wantFault(s.send(m, way), "InvalidArgument", "INVALID_REQUEST")
		s.settled(t)
		return true
	}
	got := s.send(m, way)
	if m.question != "" {
		t.answer(m.question, m.text)
	} else {
		t.taken(m.text)
	}
	o.sent = append(o.sent, &sent{id: m.id, text: m.text, agent: m.agent, task: t})
	s.want(got, wanted(t, "", way), false)
	s.settled(t)
	return true
}

// toChild answers the question of a member, by its task's id.
func (s *sequence) toChild(m message) {
	t := m.to
	question := rapid.SampledFrom([]string{"left?", "right?"}).Draw(s.T, "member")
	m.child, m.agent = map[string]string{"left?": "~1", "right?": "~2"}[question], ""
	way := s.way(false)
	got := s.send(m, way)
	if !slices.Contains(t.questions, question) {
		s.wantFault(got, "FailedPrecondition", "UNSUPPORTED_OPERATION")
		return
	}
	t.answer(question, m.text)
	m.owner.sent = append(m.owner.sent, &sent{id: m.id, text: m.text, task: t, child: m.child})
	s.want(got, t.String()+m.child, true)
	s.settled(t)
}

// again is a message that was sent before.
func (s *sequence) again(o *owner) (message, *sent) {
	if len(o.sent) == 0 {
		return message{}, nil
	}
	was := o.sent[rapid.IntRange(0, len(o.sent)-1).Draw(s.T, "sent")]
	m := message{owner: o, id: was.id, agent: was.agent, context: was.context, text: was.text, child: was.child}
	if !was.began {
		m.to = was.task
	}
	return m, was
}

// repeat sends a message once more: nothing changes.
func (s *sequence) repeat(o *owner) bool {
	m, was := s.again(o)
	if was == nil {
		return false
	}
	way := s.way(was.task != nil && was.task.state == working)
	got := s.send(m, way)
	if was.direct {
		s.want(got, "message direct: "+m.text, false)
		return true
	}
	s.want(got, wanted(was.task, was.child, way), was.child != "")
	s.settled(was.task)
	return true
}

// reuse sends another message with an id that was sent before: nothing changes.
func (s *sequence) reuse(o *owner) bool {
	m, was := s.again(o)
	if was == nil {
		return false
	}
	m.text += " or not"
	s.wantFault(s.send(m, s.way(false)), "InvalidArgument", "MESSAGE_ID_REUSED")
	if was.task != nil {
		s.settled(was.task)
	}
	return true
}

// wrongContext names a task and a context that is not its own.
func (s *sequence) wrongContext(o *owner) bool {
	t := s.some(o, anyTask)
	if t == nil {
		return false
	}
	m := message{owner: o, id: "wrong", agent: t.agent, context: "c3", text: "x", to: t}
	s.wantFault(s.send(m, s.way(false)), "InvalidArgument", "INVALID_REQUEST")
	s.settled(t)
	return true
}

// open opens the gate of a task.
func (s *sequence) open(o *owner) bool {
	t := s.some(o, isWorking)
	if t == nil {
		return false
	}
	close(s.gate.of(t.text))
	t.open()
	s.settled(t)
	return true
}

func (s *sequence) cancelSome(o *owner) bool {
	t := s.some(o, anyTask)
	if t == nil {
		return false
	}
	s.cancelTask(t)
	return true
}

// cancelTask cancels a task, whatever it does.
func (s *sequence) cancelTask(t *task) {
	got := s.each(fmt.Sprint("cancel ", t), func(w *world) string {
		got, err := w.clients[t.owner.name].Cancel(s.ctx, &a2av1.CancelTaskRequest{Id: w.ids[t.n]})
		if err != nil {
			return w.fault(err)
		}
		return fmt.Sprintf("%s %+v", w.name(got.GetId(), -1), pictureOf(got))
	})
	switch {
	case t.terminal() && t.state != canceled:
		s.wantFault(got, "FailedPrecondition", "TASK_NOT_CANCELABLE")
	default:
		if !t.terminal() {
			t.end(canceled, t.artifact)
		}
		s.want(got, t.describe(), false)
	}
	s.settled(t)
}

// subscribe shows a task and is left.
func (s *sequence) subscribe(o *owner) bool {
	t := s.some(o, anyTask)
	if t == nil {
		return false
	}
	got := s.each(fmt.Sprint("subscribe to ", t), func(w *world) string {
		for u, err := range w.clients[o.name].Subscribe(s.ctx, &a2av1.SubscribeToTaskRequest{Id: w.ids[t.n]}, 0) {
			if err != nil {
				return w.fault(err)
			}
			return fmt.Sprintf("%s %+v", w.name(u.GetTask().GetId(), -1), pictureOf(u.GetTask()))
		}
		return "nothing"
	})
	if t.terminal() {
		s.wantFault(got, "FailedPrecondition", "UNSUPPORTED_OPERATION")
		return true
	}
	s.want(got, t.describe(), false)
	return true
}

// follow reads a task's stream while its gate is opened, cut somewhere and
// resumed behind what was seen.
func (s *sequence) follow(o *owner) bool {
	t := s.some(o, isWorking)
	if t == nil {
		return false
	}
	keep := rapid.IntRange(1, 6).Draw(s.T, "updates before the cut")
	streams := make([]*tail, len(s.worlds))
	s.fresh()
	for i, w := range s.worlds {
		streams[i] = s.tail(w, t, &view{})
		streams[i].read(1)
	}
	close(s.gate.of(t.text))
	t.open()
	for i, w := range s.worlds {
		streams[i].read(keep - 1)
		if v := streams[i].close(); v.ends == 0 {
			resumed := s.tail(w, t, v)
			resumed.read(100)
			resumed.close()
		}
	}
	s.settled(t)
	for i, w := range s.worlds {
		s.fresh()
		got, err := w.get(s.ctx, t)
		if err != nil {
			s.Fatalf("%s: %v", w.binding, err)
		}
		if diff := sameTask(streams[i].view.task, got); diff != "" {
			s.Fatalf("%s: the stream, cut after %d (-want +got):\n%s", w.binding, keep, diff)
		}
	}
	return true
}

// tail is a stream that is read bit by bit.
type tail struct {
	s     *sequence
	world *world
	view  *view
	pull  func() (*a2av1.StreamResponse, error, bool)
	leave func()
}

// tail subscribes to a task, behind what a view has seen.
func (s *sequence) tail(w *world, t *task, v *view) *tail {
	pull, stop := iter.Pull2(w.clients[t.owner.name].Subscribe(s.ctx, &a2av1.SubscribeToTaskRequest{Id: w.ids[t.n]}, v.seq))
	return &tail{s: s, world: w, view: v, pull: pull, leave: stop}
}

// read takes up to n updates.
func (t *tail) read(n int) {
	for range n {
		u, err, more := t.pull()
		if !more {
			return
		}
		if err == nil {
			err = t.view.take(u)
		}
		if err != nil {
			t.s.Fatalf("%s: behind %d: %v", t.world.binding, t.view.seq, err)
		}
	}
}

func (t *tail) close() *view {
	t.leave()
	return t.view
}

// history gets a task with as much of its history as is asked for.
func (s *sequence) history(o *owner) bool {
	t := s.some(o, anyTask)
	if t == nil {
		return false
	}
	n := rapid.SampledFrom([]int32{0, 1, 2, 3, 100}).Draw(s.T, "length")
	got := s.each(fmt.Sprint("history of ", t), func(w *world) string {
		got, err := w.clients[o.name].Get(s.ctx, &a2av1.GetTaskRequest{Id: w.ids[t.n], HistoryLength: &n})
		if err != nil {
			return w.fault(err)
		}
		return fmt.Sprintf("%q", pictureOf(got).History)
	})
	s.want(got, fmt.Sprintf("%q", lastOf(t.history, int(n))), false)
	return true
}

func lastOf(list []string, n int) []string { return list[max(0, len(list)-n):] }

// foreign asks for a task of the other owner: as for one that is not there.
func (s *sequence) foreign(o *owner) bool {
	other := s.owners[0]
	if o == other {
		other = s.owners[1]
	}
	t := s.some(other, anyTask)
	if t == nil {
		return false
	}
	ways := map[string]func(rig.Client, string) error{
		"get": func(c rig.Client, id string) error {
			_, err := c.Get(s.ctx, &a2av1.GetTaskRequest{Id: id})
			return err
		},
		"cancel": func(c rig.Client, id string) error {
			_, err := c.Cancel(s.ctx, &a2av1.CancelTaskRequest{Id: id})
			return err
		},
		"subscribe": func(c rig.Client, id string) error {
			_, err := rig.Collect(c.Subscribe(s.ctx, &a2av1.SubscribeToTaskRequest{Id: id}, 0))
			return err
		},
		"send": func(c rig.Client, id string) error {
			req := rig.Text("", "foreign", "x")
			req.Message.TaskId = id
			_, err := c.Send(s.ctx, req)
			return err
		},
		"refer": func(c rig.Client, id string) error {
			req := rig.Text(echoes, "foreign", "x")
			req.Message.ReferenceTaskIds = []string{id}
			_, err := c.Send(s.ctx, req)
			return err
		},
	}
	way := rapid.SampledFrom([]string{"get", "cancel", "subscribe", "send", "refer"}).Draw(s.T, "way")
	got := s.each(way+" what is not one's own", func(w *world) string {
		id, none := w.ids[t.n], strings.Repeat("0", 8)+w.ids[t.n][8:]
		foreign, unknown := rig.Fault(ways[way](w.clients[o.name], id)), rig.Fault(ways[way](w.clients[o.name], none))
		if foreign == nil || unknown == nil || strings.ReplaceAll(foreign.Message, id, none) != unknown.Message ||
			w.binding != anyBinding && foreign.HTTP != unknown.HTTP {
			s.Fatalf("%s: of a foreign task: %+v, of none: %+v", w.binding, foreign, unknown)
		}
		return w.fault(foreign)
	})
	s.wantFault(got, "NotFound", "TASK_NOT_FOUND")
	s.settled(t)
	return true
}

// filter selects tasks of an owner.
type filter struct {
	context, agent, state string
	size                  int32
	since                 *task // those whose status is no older
	bare                  bool  // without artifacts and history
}

func (s *sequence) listSome(o *owner) bool {
	f := filter{
		context: rapid.SampledFrom([]string{"", "c1", "c2", "c3"}).Draw(s.T, "context"),
		agent:   rapid.SampledFrom([]string{"", "", echoes, gates, pair}).Draw(s.T, "agent"),
		state:   rapid.SampledFrom([]string{"", completed, failed, canceled, working, required}).Draw(s.T, "state"),
		size:    rapid.SampledFrom([]int32{1, 2, 3, 100}).Draw(s.T, "size"),
		bare:    rapid.Bool().Draw(s.T, "bare"),
	}
	if rapid.Bool().Draw(s.T, "since") {
		f.since = s.some(o, anyTask)
	}
	for _, w := range s.worlds {
		s.list(w, o, f)
	}
	return true
}

// list compares the union of all pages with the model.
func (s *sequence) list(w *world, o *owner, f filter) {
	s.Helper()
	s.fresh()
	var want []int
	for _, t := range o.tasks {
		if f.matches(w, t) {
			want = append(want, t.n)
		}
	}
	got := s.pages(w, o, f, len(want), nil)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Fatalf("%s: %s lists %+v: %v, want %v", w.binding, o.name, f, got, want)
	}
}

func (f filter) matches(w *world, t *task) bool {
	return (f.context == "" || f.context == t.context) && (f.agent == "" || f.agent == t.agent) && (f.state == "" || f.state == t.state) &&
		(f.since == nil || !w.seen[t.n].at.Before(w.seen[f.since.n].at))
}

// pages reads all pages, and checks each; between is called after the first.
func (s *sequence) pages(w *world, o *owner, f filter, total int, between func()) []int {
	size := cmp.Or(f.size, 100)
	req := &a2av1.ListTasksRequest{
		ContextId: f.context, Tenant: f.agent, Status: stateOrAny(f.state), PageSize: &size, IncludeArtifacts: new(!f.bare),
	}
	if f.bare {
		req.HistoryLength = new(int32(0))
	}
	if f.since != nil {
		req.StatusTimestampAfter = timestamppb.New(w.seen[f.since.n].at)
	}
	var all []int
	var last *a2av1.Task
	for {
		page, err := w.clients[o.name].List(s.ctx, req)
		if err != nil {
			s.Fatalf("%s: list %+v: %v", w.binding, f, err)
		}
		if int(page.GetTotalSize()) != total || page.GetPageSize() != size || len(page.GetTasks()) > int(size) {
			s.Fatalf("%s: list %+v: %d tasks of %d on a page of %d, want %d", w.binding, f, len(page.GetTasks()), page.GetTotalSize(), page.GetPageSize(), total)
		}
		for _, t := range page.GetTasks() {
			all = append(all, s.listed(w, o, f, last, t))
			last = t
		}
		if page.GetNextPageToken() == "" {
			return all
		}
		if between != nil {
			between()
			between = nil
		}
		req.PageToken = page.GetNextPageToken()
	}
}

func stateOrAny(short string) a2av1.TaskState {
	if short == "" {
		return a2av1.TaskState_TASK_STATE_UNSPECIFIED
	}
	return stateOf(short)
}

// listed checks one task of a page, and returns its number.
func (s *sequence) listed(w *world, o *owner, f filter, before, t *a2av1.Task) int {
	n := slices.Index(w.ids, t.GetId())
	if n < 0 || s.tasks[n].owner != o {
		s.Fatalf("%s: lists %v", w.binding, t)
	}
	want := s.tasks[n].picture()
	if f.bare {
		want.Artifact, want.History = "", nil
	}
	if got := fmt.Sprintf("%+v", pictureOf(t)); got != fmt.Sprintf("%+v", want) {
		s.Fatalf("%s: lists task %d as\n\t%s\nwant\n\t%+v", w.binding, n, got, want)
	}
	if err := w.look(n, o.name, t); err != nil {
		s.Fatalf("%s: %v", w.binding, err)
	}
	if before != nil {
		a, b := before.GetStatus().GetTimestamp().AsTime(), t.GetStatus().GetTimestamp().AsTime()
		if a.Before(b) || a.Equal(b) && before.GetId() <= t.GetId() {
			s.Fatalf("%s: %v comes before %v", w.binding, before, t)
		}
	}
	return n
}

// restart stops the server, in good order or not, and starts another on the same
// store, also between two pages of a list. A file is another's as soon as it is
// closed; in a database that is shared a server that did not say that it goes is
// waited for, too long for here.
func (s *sequence) restart(o *owner) bool {
	w := s.worlds[rapid.IntRange(0, len(s.worlds)-1).Draw(s.T, "world")]
	hard := s.at.Name == "sqlite" && rapid.Bool().Draw(s.T, "hard")
	again := func() {
		for _, w := range s.worlds {
			w.disconnect()
		}
		if hard {
			s.store.Break(faulty.Always(faulty.Fail))
		}
		s.stop()
		s.close()
		s.start()
		for _, t := range s.tasks {
			if t.state == working {
				// what is said before somebody drives it is in its first turn
				if err := s.gate.await(s.ctx, t.text, len(s.worlds)); err != nil {
					s.Fatalf("task %d is not driven again: %v", t.n, err)
				}
				t.record()
				s.settled(t)
			}
		}
	}
	s.fresh()
	if len(o.tasks) > 1 {
		s.pages(w, o, filter{size: 1, bare: true}, len(o.tasks), again)
	} else {
		again()
	}
	for _, t := range s.tasks {
		s.settled(t)
	}
	return true
}
