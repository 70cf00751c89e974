package tests

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// never are reasons that calls of the A2A service cannot have, each with why.
var never = map[string][]string{
	"a remote agent breaks the protocol: the run that called it fails, the call does not": {"INVALID_AGENT_RESPONSE"},
	"of Process, which has no task to show; here it is a task that waits":                 {"INPUT_REQUIRED"},
	"of the services that manage teams":                                                   {"TEAM_NOT_FOUND", "AGENT_INITIALIZATION_FAILED", "VERSION_CONFLICT"},
	"of the service that begins collaborations":                                           {"COLLABORATION_IN_PROGRESS", "COLLABORATION_NOT_FOUND", "TEAM_NOT_READY"},
	"of accounts that have used up their day (TestC_07_AnAccountsDay)":                    {"ACCOUNT_LIMIT_REACHED"},
	"of the service of boards":                                                            {"WORK_ITEM_NOT_FOUND"},
	"of the service of the audit log":                                                     {"AUDIT_RECORD_DELETED"},
	"of programs that build teams":                                                        {"INVALID_TEAM_CONFIG"},
	"a stream over gRPC that is not read for 30 s; the other bindings cut it (TestP10)":   {"SLOW_READER"},
	"who has canceled the call is not there to be told":                                   {"CANCELED"},
	"of a run: the call shows a task that failed or was rejected, and is no error itself": {
		"NO_RESPONSE", "SCHEDULER_ERROR", "CONDITION_DATA_MISSING", "ANSWER_TRUNCATED", "REPEATED_CALL", "CONTEXT_TOO_LONG", "ANSWER_FILTERED", "MAX_ITERATIONS_EXCEEDED", "MAX_ROUNDS_EXCEEDED", "QUALITY_THRESHOLD_NOT_MET", "REQUIRED_WORK_FAILED", "BUDGET_EXCEEDED", "APPROVAL_REJECTED", "MAX_DELEGATIONS_EXCEEDED",
		"MAX_HANDOFFS_EXCEEDED", "REPETITIVE_HANDOFF", "GUARDRAIL_BLOCKED", "BREAKER_OPEN", "OUTCOME_UNKNOWN", "MAX_DEPTH_EXCEEDED", "CYCLE_DETECTED",
		"MEMBER_NOT_FOUND", "DELEGATION_FAILED", "TEAM_ERROR", "INTERRUPTED", "JOURNAL_LIMIT", "UNAVAILABLE", "DISABLED", "AGENT_PANIC",
	},
}

// exempt are the operations that cannot have an error that others have, with why.
var exempt = []struct {
	why     string
	rpcs    []string
	reasons []string
}{
	{"it is about no task", []string{"ListTasks", "GetExtendedAgentCard"}, []string{"TASK_NOT_FOUND", "DATA_LOSS"}},
	{"it begins nothing and ends nothing", []string{"GetTask", "ListTasks"}, []string{"UNSUPPORTED_OPERATION"}},
	{"only a cancel is refused so", except("CancelTask"), []string{"TASK_NOT_CANCELABLE"}},
	{"a task that has ended says TASK_NOT_CANCELABLE", []string{"CancelTask"}, []string{"UNSUPPORTED_OPERATION"}},
	{"a task that has ended keeps its configurations, and a new one is told how it is", pushes, []string{"UNSUPPORTED_OPERATION"}},
	{"it has nothing to do with push notifications", except(slices.Concat(sends, pushes)...), []string{"PUSH_NOTIFICATION_NOT_SUPPORTED"}},
	{"it begins no work", except(sends...), []string{"HALTED"}},
	{"it has no parts", except(sends...), []string{"CONTENT_TYPE_NOT_SUPPORTED", "MESSAGE_ID_REUSED"}},
	{"only an answer is refused so; what is not the caller's is not there", except(sends...), []string{"PERMISSION_DENIED", "QUESTION_ANSWERED"}},
	{"it shows no extended card", except("GetExtendedAgentCard"), []string{"EXTENDED_AGENT_CARD_NOT_CONFIGURED"}},
	{"its tenant must be that of the task: else the task is not there", tasks, []string{"AGENT_NOT_FOUND"}},
	{"it holds nothing, and its request is small", []string{"GetTask", "ListTasks", "GetExtendedAgentCard", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"}, []string{"INSUFFICIENT_RESOURCES"}},
	{"it does not ask the store", []string{"GetExtendedAgentCard"}, []string{"STORE_UNAVAILABLE", "TIMEOUT_EXCEEDED", "INTERNAL"}},
	{"it waits for nobody, and a server that stops still answers it", []string{"GetTask", "ListTasks", "GetExtendedAgentCard"}, []string{"WAIT_TIMEOUT", "SHUTTING_DOWN"}},
	{"it waits for nobody, and a server that stops still answers it", pushes, []string{"WAIT_TIMEOUT", "SHUTTING_DOWN"}},
}

// except are all operations but some.
func except(rpcs ...string) []string {
	return slices.DeleteFunc(slices.Clone(every), func(rpc string) bool { return slices.Contains(rpcs, rpc) })
}

// grid counts what was compared, by operation and by reason.
type grid map[string]map[string]int

func (g grid) add(rpc, reason string) {
	if g[rpc] == nil {
		g[rpc] = map[string]int{}
	}
	g[rpc][reason]++
}

// TestA_01_EveryOperationAndEveryError has every operation of the protocol answer,
// and refuse for every reason that it has, alike over the three bindings, and each
// of these with the status and the code that the protocol wants.
func TestA_01_EveryOperationAndEveryError(t *testing.T) {
	t.Parallel() // most of its time it waits for calls to time out
	h := newHouse(t)
	g := grid{}
	t.Run("A-01 answers", func(t *testing.T) { h.answers(t, g) })
	t.Run("A-01 S-61 errors", func(t *testing.T) {
		for _, r := range refusals(h) {
			for _, op := range operations() {
				if slices.Contains(r.rpcs, op.rpc) && op.name != r.but {
					g.add(op.rpc, r.reason)
					t.Run(op.name+" "+r.reason+" "+r.how, func(t *testing.T) { h.refused(t, op, r) })
				}
			}
		}
	})
	t.Run("A-01 A-19 a server that stops", func(t *testing.T) { stopped(t, g) })
	if !t.Failed() {
		g.complete(t)
	}
}

// answers compares what comes of each operation.
func (h *house) answers(t *testing.T, g grid) {
	abouts := map[string]func(t *testing.T, c rig.Client, id string) about{
		"SendMessage":          func(*testing.T, rig.Client, string) about { return about{tenant: "echoes"} },
		"SendStreamingMessage": func(*testing.T, rig.Client, string) about { return about{tenant: "echoes"} },
		"GetTask":              func(*testing.T, rig.Client, string) about { return about{tenant: "echoes", task: h.id("completed")} },
		"ListTasks": func(t *testing.T, c rig.Client, id string) about {
			for _, agent := range []string{"echoes", "asks", "fails"} {
				send(t, c, in(id+"-context", rig.Text(agent, id+"-"+agent, "x")))
			}
			return about{change: func(m proto.Message) {
				req := m.(*a2av1.ListTasksRequest)
				req.ContextId, req.IncludeArtifacts = id+"-context", proto.Bool(true)
			}}
		},
		"CancelTask": func(t *testing.T, c rig.Client, id string) about {
			return about{task: send(t, c, atOnce(rig.Text("works", id+"-begins", "x"))).GetId()}
		},
		"SubscribeToTask": func(t *testing.T, c rig.Client, id string) about {
			return about{task: send(t, c, rig.Text("echoes", id+"-begins", "x")).GetId(), after: 1}
		},
		"GetExtendedAgentCard": func(*testing.T, rig.Client, string) about { return about{tenant: "shows"} },
	}
	for _, rpc := range pushes {
		abouts[rpc] = func(t *testing.T, c rig.Client, id string) about {
			task := send(t, c, rig.Text("asks", id+"-begins", "x")).GetId()
			if _, err := c.(rig.PushClient).CreatePush(t.Context(), hook(task, "hook", "http://127.0.0.1:1/hook")); err != nil {
				t.Fatal(err)
			}
			return about{task: task}
		}
	}
	for _, op := range operations() {
		g.add(op.rpc, "OK")
		t.Run(op.name, func(t *testing.T) {
			equal(t, h.clients["ann"], func(c rig.PushClient, id string) string {
				a := abouts[op.rpc](t, c, id)
				a.id = id
				got := op.do(t.Context(), c, a)
				if got.Fault != nil {
					t.Fatalf("%s: %v", c.Binding(), got.Fault)
				}
				if task, ok := got.Answer.(*a2av1.Task); ok && op.name == "SendMessage at once" { // how far it has come is a matter of time
					got.Answer = &a2av1.Task{Id: task.GetId(), ContextId: task.GetContextId()}
				}
				return alike(t, got)
			})
		})
	}
}

// equal has each client do the same, with an id of its own.
func equal(t *testing.T, clients []rig.Client, do func(c rig.PushClient, id string) string) {
	t.Helper()
	var first string
	name := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:], "-")
	for i, c := range clients {
		got := do(c.(rig.PushClient), fmt.Sprintf("m-%d-%.100s", i, name))
		if i == 0 {
			first = got
		} else if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("(-%s +%s):\n%s", clients[0].Binding(), c.Binding(), diff)
		}
	}
}

// refused compares how an operation is refused, and wants it as the protocol says.
func (h *house) refused(t *testing.T, op operation, r refusal) {
	if r.while != nil {
		defer r.while(h)()
	}
	want := forms[r.reason]
	if r.form != nil {
		want = *r.form
	}
	by := r.by
	if by == "" {
		by = "ann"
	}
	clients := h.clients[by]
	if r.untold {
		a := r.about
		a.id = "untold-" + rand.Text()
		if f := op.do(t.Context(), clients[0].(rig.PushClient), a).Fault; f == nil || f.Code != want.code {
			t.Errorf("grpc: %+v, want %s", f, want.code)
		}
		clients = clients[1:]
	}
	equal(t, clients, func(c rig.PushClient, id string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		a := r.about
		a.id = id
		got := op.do(ctx, c, a)
		if got.Fault == nil {
			t.Fatalf("%s: no error: %v %v", c.Binding(), got.Answer, got.Events)
		}
		fields := slices.Sorted(slices.Values(r.fields))
		if !slices.Equal(got.Fault.Fields, fields) {
			t.Errorf("%s: fields %q, want %q: %v", c.Binding(), got.Fault.Fields, fields, got.Fault)
		}
		want.check(t, c.Binding(), r.reason, got)
		return alike(t, tried{Fault: got.Fault}) // how much was told before is a matter of time
	})
}

// check wants an error in its form.
func (w form) check(t *testing.T, binding, reason string, got tried) {
	t.Helper()
	f := got.Fault
	if f.Code != w.code || f.Reason != reason || f.Domain != w.domain || (f.Retry > 0) != w.retry || f.Message == "" {
		t.Errorf("%s: %+v, want %s %s of %s, with RetryInfo: %v", binding, f, w.code, reason, w.domain, w.retry)
	}
	rest, rpcHTTP := w.rest, w.rpcHTTP
	if len(got.Events) > 0 { // the status was told before
		rest, rpcHTTP = 0, http.StatusOK
	}
	switch binding {
	case "rest":
		if f.HTTP != rest {
			t.Errorf("rest: status %d, want %d", f.HTTP, rest)
		}
	case "jsonrpc":
		if f.RPC != w.rpc || f.HTTP != rpcHTTP {
			t.Errorf("jsonrpc: code %d, status %d, want %d, %d", f.RPC, f.HTTP, w.rpc, rpcHTTP)
		}
	}
	if strings.Contains(f.Message, "the password") || strings.Contains(fmt.Sprint(f.Details), "the password") {
		t.Errorf("A-22 %s: %+v", binding, f)
	}
}

// stopped has a server stop while calls wait, over each binding.
func stopped(t *testing.T, g grid) {
	agents, d := theCast(t)
	defer d.letGo()
	target, stop := rig.Start(t, server.Config{Agents: agents})
	reached := make(chan struct{}, 100)
	var wg sync.WaitGroup
	var mu sync.Mutex
	faults := map[string]map[string]tried{}
	waits := func(rpc string, c rig.Client, do func() tried) {
		wg.Go(func() {
			got := do()
			mu.Lock()
			defer mu.Unlock()
			if faults[rpc] == nil {
				faults[rpc] = map[string]tried{}
			}
			faults[rpc][c.Binding()] = got
		})
	}
	follow := func(updates func(func(*a2av1.StreamResponse, error) bool)) tried {
		var got tried
		for u, err := range updates {
			if err != nil {
				got.Fault = rig.Fault(err)
				break
			}
			if got.Events = append(got.Events, u); len(got.Events) == 1 {
				reached <- struct{}{}
			}
		}
		return got
	}
	clients := rig.Clients(t, target)
	for _, c := range clients {
		asleep := send(t, c, atOnce(rig.Text("deaf", "deaf-"+c.Binding(), "x"))).GetId()
		<-d.begun // else it is canceled before it hears of anything
		works := send(t, c, atOnce(rig.Text("works", "works-"+c.Binding(), "x"))).GetId()
		waits("SendMessage", c, func() tried {
			_, err := c.Send(t.Context(), rig.Text("works", "send-"+c.Binding(), "x"))
			return tried{Fault: rig.Fault(err)}
		})
		waits("CancelTask", c, func() tried {
			_, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Id: asleep})
			return tried{Fault: rig.Fault(err)}
		})
		waits("SendStreamingMessage", c, func() tried { return follow(c.Stream(t.Context(), rig.Text("works", "stream-"+c.Binding(), "x"))) })
		waits("SubscribeToTask", c, func() tried {
			return follow(c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: works}, 0))
		})
	}
	for range clients {
		<-d.told
		<-reached
		<-reached
	}
	for list := (&a2av1.ListTasksResponse{}); list.GetTotalSize() < 12; { // those that are waited for are on record
		var err error
		if list, err = clients[0].List(t.Context(), &a2av1.ListTasksRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		wg.Wait()
		d.letGo()
	}()
	stop()
	wg.Wait()
	for rpc, by := range faults {
		g.add(rpc, "SHUTTING_DOWN")
		t.Run(rpc, func(t *testing.T) {
			equal(t, clients, func(c rig.PushClient, _ string) string {
				got := by[c.Binding()]
				if got.Fault == nil {
					t.Fatalf("%s: no error: %v", c.Binding(), got.Events)
				}
				forms["SHUTTING_DOWN"].check(t, c.Binding(), "SHUTTING_DOWN", got)
				return alike(t, tried{Fault: got.Fault})
			})
		})
	}
}

// reasonsOfTheCode are all that errors can have.
func reasonsOfTheCode(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, file := range []string{"../pkg/agent/errors.go", "../pkg/a2a/errors.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\tReason\w+ += "([A-Z_]+)"`).FindAllSubmatch(b, -1) {
			list = append(list, string(m[1]))
		}
	}
	if len(list) < 30 {
		t.Fatalf("these are not all: %v", list)
	}
	return list
}

// complete wants each operation and each reason to be compared, or to be said why
// not, and says what was compared.
func (g grid) complete(t *testing.T) {
	t.Helper()
	rpcs := describedRPCs()
	if diff := slices.Compare(slices.Sorted(slices.Values(every)), slices.Sorted(slices.Values(rpcs))); diff != 0 {
		t.Errorf("the service has %v, the table %v", rpcs, every)
	}
	why := map[string]string{}
	for text, reasons := range never {
		for _, reason := range reasons {
			why[reason] = text
		}
	}
	text := func(rpc, reason string) string {
		for _, e := range exempt {
			if slices.Contains(e.rpcs, rpc) && slices.Contains(e.reasons, reason) {
				return e.why
			}
		}
		return why[reason]
	}
	cells, ruled := 0, 0
	for _, rpc := range rpcs {
		for _, reason := range append(reasonsOfTheCode(t), "OK") {
			switch n, no := g[rpc][reason], text(rpc, reason); {
			case n == 0 && no == "":
				t.Errorf("%s with %s is not compared, and it is not said why", rpc, reason)
			case n > 0 && no != "":
				t.Errorf("%s has %s, although %s", rpc, reason, no)
			case n > 0:
				cells += n
			default:
				ruled++
			}
		}
	}
	var lines []string
	for _, rpc := range rpcs {
		var parts []string
		for _, reason := range slices.Sorted(maps.Keys(g[rpc])) {
			parts = append(parts, fmt.Sprint(reason, " ", g[rpc][reason]))
		}
		lines = append(lines, fmt.Sprintf("%-33s %s", rpc, strings.Join(parts, ", ")))
	}
	t.Logf("equal over gRPC, REST and JSON-RPC:\n%s\n%d cells of %d operations, %d × 3 calls; %d pairs of operation and reason cannot be",
		strings.Join(lines, "\n"), cells, len(rpcs), cells, ruled)
}

// describedRPCs are the operations that the service's descriptor has.
func describedRPCs() []string {
	var rpcs []string
	for _, m := range a2av1.A2AService_ServiceDesc.Methods {
		rpcs = append(rpcs, m.MethodName)
	}
	for _, s := range a2av1.A2AService_ServiceDesc.Streams {
		rpcs = append(rpcs, s.StreamName)
	}
	return rpcs
}

// TestA_01_UnknownMethods: what is not there is said alike, but for its name.
func TestA_01_UnknownMethods(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, patient())})
	g, err := rig.NewGRPC(target)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	unknown := func(method string) *rig.Error {
		return rig.Fault(rig.FromGRPC(g.Conn.Invoke(g.Context(t.Context()), method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(true))))
	}
	post := func(path, body string) *rig.Answer {
		a, err := target.Do(t.Context(), http.MethodPost, path, []byte(body), map[string]string{"Content-Type": wire.TypeJSON})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	rest := post("/works/message:shout", "{}")
	restFault := rig.Fault(rest.Read(&emptypb.Empty{}))
	rpcFault := rig.Fault(rig.RPCAnswer(post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"Shout","params":{}}`), &emptypb.Empty{}))
	for name, f := range map[string]*rig.Error{
		"a method": unknown("/lf.a2a.v1.A2AService/Shout"), "a service": unknown("/lf.a2a.v1.Shouts/Shout"), "rest": restFault, "jsonrpc": rpcFault,
	} {
		if f == nil || f.Code != "Unimplemented" || f.Domain != ownErrors || f.Reason != "INVALID_REQUEST" || f.Message == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if restFault.HTTP != http.StatusNotFound || rpcFault.RPC != -32601 || rpcFault.HTTP != http.StatusOK {
		t.Errorf("rest %+v, jsonrpc %+v", restFault, rpcFault)
	}
}
