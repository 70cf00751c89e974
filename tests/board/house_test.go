// Package board works on the boards of running teams over the wire, on each kind of
// store.
package board

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

// wait is how long a test waits for what must come.
const wait = 30 * time.Second

// base is the file of the servers. "acme" has ann and bob, "other" has eve.
const base = `version: v1
models: {m: {provider: openai, name: m, base_url: "${LLM}", api_key: k}, w: {provider: openai, name: w, base_url: "${LLM}", api_key: k}}
agents:
  writer: {model: w, instructions: Write., description: Writes.}
  parrot: {description: Repeats., scripted: {steps: [{text: "parrot: {{input}}"}]}}
teams:
  desk: {board: true, members: [{agent: writer}, {agent: parrot}], coordinator: {leader: {model: m, instructions: Lead.}}}
  flow: {board: true, workflow: {steps: [{id: one, agent: parrot}, {id: two, agent: parrot, after: [one]}]}}
  press:
    board: true
    workflow:
      steps:
        - {id: draft, agent: parrot}
        - {id: approve, after: [draft], human: {question: "Print {{steps.draft.text}}?", options: ["yes", "no"]}}
        - {id: print, after: [approve], agent: flow}
  plain: {members: [{agent: writer}], coordinator: {leader: {model: m, instructions: Lead.}}}
server:
  default_agent: desk
  auth: {api_keys: [{name: ann, account: acme, sha256: "${ANN}"}, {name: bob, account: acme, sha256: "${BOB}"}, {name: eve, account: other, sha256: "${EVE}"}]}
`

// house is a running server.
type house struct {
	rig.Target // as ann
	llm        *fakellm.Server
	stop       func()
}

// open serves base on a store until the test ends or stop is called.
func open(t testing.TB, at rig.Place, llm *fakellm.Server) *house {
	t.Helper()
	return openFile(t, at, llm, base)
}

func openFile(t testing.TB, at rig.Place, llm *fakellm.Server, file string) *house {
	t.Helper()
	s := whole.Open(t, at, file, llm)
	return &house{s.Target, llm, s.Stop}
}

// each runs a test over each binding on each kind of store, an empty one each time.
func each(t *testing.T, test func(t *testing.T, h *house, binding int)) {
	t.Helper()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		for i, binding := range []string{"grpc", "rest"} {
			t.Run(binding, func(t *testing.T) { test(t, open(t, at.Another(t), fakellm.New(t)), i) })
		}
	})
}

// at is a board, as somebody sees it.
type at struct {
	testing.TB
	teamv1.BoardServiceClient
	team, agent string
}

// board is that of a team, for who calls.
func (h *house) board(t testing.TB, binding int, account, name string) at {
	t.Helper()
	return at{t, teamv1.NewBoardServiceClient(rig.Services(t, h.As(account, name))[binding]), "desk", ""}
}

// as acts for a member.
func (b at) as(member string) at { b.agent = member; return b }

func (b at) add(id string, needs ...string) *teamv1.WorkItem {
	b.Helper()
	resp, err := b.AddWorkItem(b.Context(), &teamv1.AddWorkItemRequest{TeamId: b.team, ItemId: id, Title: "do " + id, DependsOn: needs, Agent: b.agent})
	if err != nil {
		b.Fatal(err)
	}
	return resp.GetItem()
}

func (b at) claim(id string) error {
	_, err := b.ClaimWorkItem(b.Context(), &teamv1.ClaimWorkItemRequest{TeamId: b.team, ItemId: id, Agent: b.agent})
	return err
}

func (b at) complete(id, result string) error {
	_, err := b.CompleteWorkItem(b.Context(), &teamv1.CompleteWorkItemRequest{TeamId: b.team, ItemId: id, Agent: b.agent, Result: result})
	return err
}

func (b at) fail(id string) error {
	_, err := b.FailWorkItem(b.Context(), &teamv1.FailWorkItemRequest{TeamId: b.team, ItemId: id, Agent: b.agent, Error: "broke"})
	return err
}

func (b at) get(id string) *teamv1.WorkItem {
	b.Helper()
	resp, err := b.GetWorkItem(b.Context(), &teamv1.GetWorkItemRequest{TeamId: b.team, ItemId: id})
	if err != nil {
		b.Fatal(err)
	}
	return resp.GetItem()
}

// list is what is listed, by id and state.
func (b at) list(req *teamv1.ListWorkItemsRequest) string {
	b.Helper()
	req.TeamId = b.team
	var words []string
	for {
		page, err := b.ListWorkItems(b.Context(), req)
		if err != nil {
			b.Fatal(err)
		}
		for _, it := range page.GetItems() {
			words = append(words, it.GetId()+":"+strings.TrimPrefix(it.GetState().String(), "STATE_"))
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			return strings.Join(words, " ")
		}
	}
}

func (b at) all() string { b.Helper(); return b.list(&teamv1.ListWorkItemsRequest{PageSize: 2}) }

// is wants all items to stand so.
func (b at) is(want string) {
	b.Helper()
	if got := b.all(); got != want {
		b.Errorf("the board is %s, want %s", got, want)
	}
}

// must wants calls to succeed.
func (b at) must(errs ...error) {
	b.Helper()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// fault checks the code, reason and fields of an error.
func fault(t testing.TB, err error, code, reason string, fields ...string) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil {
		t.Errorf("no error, want %s", reason)
		return
	}
	if f.Code != code || f.Reason != reason || !slices.Equal(f.Fields, fields) {
		t.Errorf("%s %s %v: %s; want %s %s %v", f.Code, f.Reason, f.Fields, f.Message, code, reason, fields)
	}
}

const (
	aborted, conflict = "Aborted", "VERSION_CONFLICT"
	bad, invalid      = "InvalidArgument", "INVALID_REQUEST"
)

// until waits until something is so.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %s: %s", wait, what)
		}
		time.Sleep(5 * time.Millisecond) // it is another process' doing: there is nothing to wait for
	}
}

// says runs a team and returns its answer and the task.
func (h *house) says(t testing.TB, tenant, text string) (string, *a2av1.Task) {
	t.Helper()
	g, err := rig.NewGRPC(h.Target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	resp, err := g.Send(ctx, rig.Text(tenant, uuid.NewString(), text))
	if err != nil {
		t.Fatal(err)
	}
	task := resp.GetTask()
	for _, a := range task.GetArtifacts() {
		if a.GetMetadata() == nil || !strings.Contains(a.GetMetadata().String(), "delegationId") {
			return agent.Text(&a2av1.Message{Parts: a.GetParts()}), task
		}
	}
	return task.GetStatus().GetState().String() + " " + agent.Text(task.GetStatus().GetMessage()), task
}
