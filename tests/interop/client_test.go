package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agentteams/team-server/tests/interoprig"
)

// callTime bounds each scenario.
const callTime = 30 * time.Second

func bindings() []a2a.TransportProtocol {
	return []a2a.TransportProtocol{a2a.TransportProtocolGRPC, a2a.TransportProtocolJSONRPC, a2a.TransportProtocolHTTPJSON}
}

// stage is a scenario's place: an agent behind one binding.
type stage struct {
	*testing.T
	*a2aclient.Client
	ctx   context.Context
	agent string // its id
	at    *a2a.AgentInterface
}

// newStage finds an agent by its card, and leaves the client no other binding.
func newStage(t *testing.T, s interoprig.Server, id string, binding a2a.TransportProtocol) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	t.Cleanup(cancel)
	card, err := agentcard.DefaultResolver.Resolve(ctx, s.URL+"/"+id)
	if err != nil {
		t.Fatal(err)
	}
	at := only(t, card, binding)
	return &stage{T: t, Client: dial(ctx, t, at), ctx: ctx, agent: id, at: at}
}

// other is a client of another agent at the same place, found without a card.
func (s *stage) other(id string) *a2aclient.Client {
	at := *s.at
	at.URL = strings.TrimSuffix(strings.Replace(at.URL+"/", "/"+s.agent+"/", "/"+id+"/", 1), "/")
	if at.Tenant != "" {
		at.Tenant = id
	}
	return dial(s.ctx, s.T, &at)
}

// only returns the interface of a card that speaks binding.
func only(t *testing.T, card *a2a.AgentCard, binding a2a.TransportProtocol) *a2a.AgentInterface {
	t.Helper()
	i := slices.IndexFunc(card.SupportedInterfaces, func(i *a2a.AgentInterface) bool { return i.ProtocolBinding == binding })
	if i < 0 {
		t.Fatalf("the card of %s offers no %s", card.Name, binding)
	}
	return card.SupportedInterfaces[i]
}

func dial(ctx context.Context, t *testing.T, at *a2a.AgentInterface) *a2aclient.Client {
	t.Helper()
	client, err := a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{at},
		a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(insecure.NewCredentials())),
		a2aclient.WithJSONRPCTransport(&http.Client{Transport: refusalReader{}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Destroy(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return client
}

// say is a message of the user.
func say(text string) *a2a.SendMessageRequest {
	return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))}
}

// in makes a request part of a conversation.
func in(contextID string, req *a2a.SendMessageRequest) *a2a.SendMessageRequest {
	req.Message.ContextID = contextID
	return req
}

// to makes a request a follow-up for a task.
func to(task a2a.TaskID, req *a2a.SendMessageRequest) *a2a.SendMessageRequest {
	req.Message.TaskID = task
	return req
}

// atOnce makes a request return as soon as the task is there.
func atOnce(req *a2a.SendMessageRequest) *a2a.SendMessageRequest {
	req.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	return req
}

// task sends a message that has to be answered with a task.
func (s *stage) task(req *a2a.SendMessageRequest) *a2a.Task {
	s.Helper()
	result, err := s.SendMessage(s.ctx, req)
	if err != nil {
		s.Fatal(err)
	}
	task, ok := result.(*a2a.Task)
	if !ok {
		s.Fatalf("answered with a %T, not a task", result)
	}
	return task
}

// is checks the state of a task.
func (s *stage) is(task *a2a.Task, want a2a.TaskState) {
	s.Helper()
	if task.Status.State != want {
		s.Errorf("state %s, want %s", task.Status.State, want)
	}
}

// get reads a task.
func (s *stage) get(id a2a.TaskID) *a2a.Task {
	s.Helper()
	task, err := s.GetTask(s.ctx, &a2a.GetTaskRequest{ID: id})
	if err != nil {
		s.Fatal(err)
	}
	return task
}

// text joins the text of parts.
func text(parts a2a.ContentParts) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text())
	}
	return b.String()
}

// answer is the text of a task's only artifact.
func (s *stage) answer(task *a2a.Task) string {
	s.Helper()
	if len(task.Artifacts) != 1 {
		s.Fatalf("%d artifacts, want 1", len(task.Artifacts))
	}
	return text(task.Artifacts[0].Parts)
}

var (
	ids   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
	seqs  = regexp.MustCompile(`"seq": "\d+"`)
)

// alike is a value as text in which ids, times and the places in the journal
// are the same for every binding: ids are numbered as they appear.
func alike(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	out := ids.ReplaceAllStringFunc(string(b), func(id string) string {
		if names[id] == "" {
			names[id] = fmt.Sprintf("id-%d", len(names)+1)
		}
		return names[id]
	})
	out = times.ReplaceAllString(out, `"time"`)
	return seqs.ReplaceAllString(out, `"seq": "n"`)
}
