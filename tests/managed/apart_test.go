package managed

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// apartFile has callers of two accounts who may do everything but administer the server, and bob, who makes their keys.
const apartFile = `version: v1
agents: {parrot: {api: true, scripted: {steps: [{text: "parrot: {{input}}"}]}}}
server:
  default_agent: parrot
  egress: {allow: [127.0.0.0/8]}
  auth:
    api_keys:
      - {name: ann, account: acme, sha256: "${ANN}", permissions: [READ, CALL, ANSWER, WATCH], manage: true}
      - {name: bob, account: acme, sha256: "${BOB}", permissions: [ADMIN]}
      - {name: eve, account: other, sha256: "${EVE}", permissions: [READ, CALL, ANSWER, WATCH], manage: true}
`

// party is a caller, with the ids that the server has given to what it has made. Those that it chooses are the same for
// all parties.
type party struct {
	rig.Target
	owner string
	ids   *strings.Replacer // of $TASK, $COLLABORATION, $KEY and $MARK
	calls rig.Service
	admin rig.Service // who makes its keys
}

// account is the account of a party.
func (p *party) account() string { return p.owner[:strings.IndexByte(p.owner, '/')] }

// mark is a word in every text of a party.
func (p *party) mark() string { return p.account() + "-pearl" }

// teamOf is a team that asks a person before its member, which has the name of the party, says a text.
func teamOf(p *party) string {
	member := strings.ReplaceAll(p.mark(), "-", "_")
	return fmt.Sprintf("agents:\n  %[1]s: {scripted: {steps: [{text: \"%[2]s: {{input}}\"}]}}\nteams:\n  t: {board: true, members: [{agent: %[1]s}], workflow: {steps: [{id: ask, human: {question: \"%[2]s?\"}}, {id: say, agent: %[1]s}]}}\n", member, p.mark())
}

// method is a method of the services.
type method struct {
	protoreflect.MethodDescriptor
	request string // JSON with placeholders; see party.ids
}

// name is the name of a method in gRPC.
func (m method) name() string { return "/" + string(m.Parent().FullName()) + "/" + string(m.Name()) }

// message is a message of A2A for an agent.
const message = `"message":{"messageId":"m-1","contextId":"c-1","role":"ROLE_USER","parts":[{"text":"$MARK"}]}`

// requests are requests of all methods: to what the caller has made, or another one. Every id in them that a caller may
// choose is the same for all accounts.
var requests = map[string]string{
	"lf.a2a.v1.A2AService.SendMessage":                      `{"tenant":"t",` + message + `,"configuration":{"returnImmediately":true}}`,
	"lf.a2a.v1.A2AService.SendStreamingMessage":             `{"tenant":"t",` + message + `}`,
	"lf.a2a.v1.A2AService.GetTask":                          `{"tenant":"t","id":"$TASK"}`,
	"lf.a2a.v1.A2AService.ListTasks":                        `{"tenant":"t","contextId":"c-1"}`,
	"lf.a2a.v1.A2AService.CancelTask":                       `{"tenant":"t","id":"$TASK"}`,
	"lf.a2a.v1.A2AService.SubscribeToTask":                  `{"tenant":"t","id":"$TASK"}`,
	"lf.a2a.v1.A2AService.CreateTaskPushNotificationConfig": `{"tenant":"t","taskId":"$TASK","id":"p-1","url":"http://127.0.0.1:9/$MARK"}`,
	"lf.a2a.v1.A2AService.GetTaskPushNotificationConfig":    `{"tenant":"t","taskId":"$TASK","id":"p-1"}`,
	"lf.a2a.v1.A2AService.ListTaskPushNotificationConfigs":  `{"tenant":"t","taskId":"$TASK"}`,
	"lf.a2a.v1.A2AService.DeleteTaskPushNotificationConfig": `{"tenant":"t","taskId":"$TASK","id":"p-1"}`,
	"lf.a2a.v1.A2AService.GetExtendedAgentCard":             `{"tenant":"t"}`,
	"team.v1.AccountService.SetAccountLimits":               `{"account":"$VICTIM","limits":{"maxTokensPerDay":"1"}}`,
	"team.v1.AccountService.GetAccount":                     `{"account":"$VICTIM"}`,
	"team.v1.AccountService.ListAccounts":                   `{}`,
	"team.v1.AgentService.Info":                             `{"agentId":"t"}`,
	"team.v1.AgentService.Process":                          `{"agentId":"solo","contextId":"c-1","key":"m-2","message":{"messageId":"m-2","role":"ROLE_USER","parts":[{"text":"$MARK"}]}}`,
	"team.v1.AgentService.ProcessStream":                    `{"request":{"agentId":"solo","contextId":"c-1","key":"m-3","message":{"messageId":"m-3","role":"ROLE_USER","parts":[{"text":"$MARK"}]}}}`,
	"team.v1.AgentService.Cancel":                           `{"agentId":"t","key":"m-1"}`,
	"team.v1.AgentService.HealthCheck":                      `{"agentId":"t"}`,
	"team.v1.AuditService.ListAudit":                        `{"account":"$VICTIM"}`,
	"team.v1.AuditService.VerifyAudit":                      `{"account":"$VICTIM"}`,
	"team.v1.BoardService.AddWorkItem":                      `{"teamId":"t","itemId":"w-1","title":"$MARK"}`,
	"team.v1.BoardService.GetWorkItem":                      `{"teamId":"t","itemId":"w-1"}`,
	"team.v1.BoardService.ListWorkItems":                    `{"teamId":"t"}`,
	"team.v1.BoardService.ClaimWorkItem":                    `{"teamId":"t","itemId":"w-1","op":"o-1"}`,
	"team.v1.BoardService.UpdateWorkItem":                   `{"teamId":"t","itemId":"w-1","note":"$MARK"}`,
	"team.v1.BoardService.CompleteWorkItem":                 `{"teamId":"t","itemId":"w-1","result":"$MARK","op":"o-2"}`,
	"team.v1.BoardService.FailWorkItem":                     `{"teamId":"t","itemId":"w-1","error":"$MARK","op":"o-3"}`,
	"team.v1.BoardService.CancelWorkItem":                   `{"teamId":"t","itemId":"w-1","op":"o-4"}`,
	"team.v1.BoardService.PostMessage":                      `{"teamId":"t","text":"$MARK","op":"o-5"}`,
	"team.v1.BoardService.ListMessages":                     `{"teamId":"t"}`,
	"team.v1.BoardService.AckMessages":                      `{"teamId":"t","upTo":"1"}`,
	"team.v1.CollaborationService.StartCollaboration":       `{"teamId":"t","taskDescription":"$MARK","expectedOutput":"$MARK","requestId":"r-1"}`,
	"team.v1.CollaborationService.GetCollaborationStatus":   `{"collaborationId":"$COLLABORATION"}`,
	"team.v1.CollaborationService.ListCollaborations":       `{"teamId":"t"}`,
	"team.v1.CollaborationService.PauseCollaboration":       `{"collaborationId":"$COLLABORATION"}`,
	"team.v1.CollaborationService.ResumeCollaboration":      `{"collaborationId":"$COLLABORATION"}`,
	"team.v1.CollaborationService.StopCollaboration":        `{"collaborationId":"$COLLABORATION","forceStop":true}`,
	"team.v1.HaltService.Halt":                              `{"kind":"HALT_KIND_TEAM","name":"t","reason":"$MARK"}`,
	"team.v1.HaltService.Resume":                            `{"kind":"HALT_KIND_AGENT","name":"solo"}`,
	"team.v1.HaltService.ListHalts":                         `{}`,
	"team.v1.KeyService.CreateKey":                          `{"name":"k-1"}`,
	"team.v1.KeyService.ListKeys":                           `{}`,
	"team.v1.KeyService.RevokeKey":                          `{"id":"$KEY"}`,
	"team.v1.MonitorService.WatchTeam":                      `{"teamId":"t"}`,
	"team.v1.MonitorService.WatchTask":                      `{"taskId":"$TASK"}`,
	"team.v1.MonitorService.FindTasks":                      `{"agentId":"t","text":"$MARK"}`,
	"team.v1.MonitorService.RetryTask":                      `{"taskId":"$TASK","requestId":"r-1"}`,
	"team.v1.MonitorService.GetTrace":                       `{"taskId":"$TASK"}`,
	"team.v1.MonitorService.ListCosts":                      `{"groupBy":"COST_GROUP_TEAM","account":"$VICTIM"}`,
	"team.v1.MonitorService.ListQuestions":                  `{"agentId":"t"}`,
	"team.v1.MonitorService.AnswerQuestion":                 `{"taskId":"$TASK","text":"$MARK"}`,
	"team.v1.RegistryService.RegisterAgent":                 `{"agentId":"solo","config":{"scripted":{"steps":[{"text":"$MARK"}]}}}`,
	"team.v1.RegistryService.GetAgent":                      `{"agentId":"solo"}`,
	"team.v1.RegistryService.ListAgents":                    `{}`,
	"team.v1.RegistryService.UpdateAgent":                   `{"agentId":"solo","config":{"scripted":{"steps":[{"text":"again $MARK"}]}}}`,
	"team.v1.RegistryService.UnregisterAgent":               `{"agentId":"solo"}`,
	"team.v1.TeamService.CreateTeam":                        `{"yaml":$TEAM}`,
	"team.v1.TeamService.GetTeam":                           `{"teamId":"t"}`,
	"team.v1.TeamService.ListTeams":                         `{}`,
	"team.v1.TeamService.UpdateTeam":                        `{"teamId":"t","yaml":$TEAM}`,
	"team.v1.TeamService.DeleteTeam":                        `{"teamId":"t","force":true}`,
	"team.v1.TeamService.GetTeamStatus":                     `{"teamId":"t"}`,
}

// objects are the methods that make what a party has, in order: one of each kind that a caller can name.
var objects = []string{
	"team.v1.TeamService.CreateTeam", "team.v1.RegistryService.RegisterAgent", "lf.a2a.v1.A2AService.SendMessage", "lf.a2a.v1.A2AService.CreateTaskPushNotificationConfig",
	"team.v1.CollaborationService.StartCollaboration", "team.v1.BoardService.AddWorkItem", "team.v1.BoardService.PostMessage", "team.v1.KeyService.CreateKey",
	"team.v1.AgentService.Process", "haltAgent",
}

// last are the methods after which a party has less; they are called at the end.
var last = []string{
	"lf.a2a.v1.A2AService.DeleteTaskPushNotificationConfig", "team.v1.CollaborationService.StopCollaboration", "team.v1.AgentService.Cancel", "team.v1.MonitorService.AnswerQuestion",
	"lf.a2a.v1.A2AService.CancelTask", "team.v1.MonitorService.RetryTask", "team.v1.HaltService.Halt", "team.v1.KeyService.RevokeKey", "team.v1.RegistryService.UnregisterAgent", "team.v1.TeamService.DeleteTeam",
}

// reads are the methods that show what a party has and that only its own calls change.
var reads = []string{
	"lf.a2a.v1.A2AService.GetTask", "lf.a2a.v1.A2AService.ListTasks", "lf.a2a.v1.A2AService.ListTaskPushNotificationConfigs", "team.v1.CollaborationService.ListCollaborations",
	"team.v1.BoardService.GetWorkItem", "team.v1.BoardService.ListMessages", "team.v1.HaltService.ListHalts", "team.v1.KeyService.ListKeys", "team.v1.MonitorService.ListQuestions",
	"team.v1.TeamService.GetTeam", "team.v1.RegistryService.GetAgent", "team.v1.AuditService.ListAudit",
}

// methods are the methods of all services that are served, in the order in which they are called.
func methods(t *testing.T) (all []method) {
	var end []method
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if f.Package() != "team.v1" && f.Package() != "lf.a2a.v1" {
			return true
		}
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				request, known := requests[string(m.FullName())]
				switch {
				case !known:
					t.Errorf("there is no request of %s: add one to requests", m.FullName())
				case slices.Contains(last, string(m.FullName())):
					end = append(end, method{m, request})
				default:
					all = append(all, method{m, request})
				}
			}
		}
		return true
	})
	for _, name := range last {
		for _, m := range end {
			if string(m.FullName()) == name {
				all = append(all, m)
			}
		}
	}
	return all
}

// call calls a method with the ids of a party, and returns the first response.
func (p *party) call(t *testing.T, m method, ids *strings.Replacer) (proto.Message, error) {
	t.Helper()
	in, out := empty(t, m.Input()), empty(t, m.Output())
	if err := protojson.Unmarshal([]byte(ids.Replace(m.request)), in); err != nil {
		t.Fatalf("%s: %v", m.FullName(), err)
	}
	if !m.IsStreamingServer() {
		return out, p.calls.Invoke(t.Context(), m.name(), in, out)
	}
	s, err := p.calls.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, m.name())
	if err == nil {
		err = s.SendMsg(in)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		err = s.RecvMsg(out)
	}
	return out, rig.FromGRPC(err)
}

func empty(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return typ.New().Interface()
}

// named returns a method.
func named(t *testing.T, all []method, name string) method {
	t.Helper()
	request := ""
	if name == "haltAgent" {
		name, request = "team.v1.HaltService.Halt", `{"kind":"HALT_KIND_AGENT","name":"solo","reason":"$MARK","pause":true}`
	}
	for _, m := range all {
		if string(m.FullName()) == name {
			if request != "" {
				m.request = request
			}
			return m
		}
	}
	t.Fatalf("there is no method %s", name)
	return method{}
}

// make makes one object of each kind.
func (p *party) make(t *testing.T, all []method) {
	t.Helper()
	task, collaboration, key := "", "", ""
	for _, name := range objects {
		p.ids = strings.NewReplacer("$TASK", task, "$COLLABORATION", collaboration, "$KEY", key, "$MARK", p.mark(), "$TEAM", fmt.Sprintf("%q", teamOf(p)))
		as, m := *p, named(t, all, name)
		if name == "team.v1.KeyService.CreateKey" {
			as.calls, m.request = p.admin, `{"name":"k-1","permissions":["READ"],"account":"`+p.account()+`"}`
		}
		resp, err := as.call(t, m, p.ids)
		if err != nil {
			t.Fatalf("%s makes its object with %s: %v", p.owner, name, err)
		}
		switch r := resp.(type) {
		case *a2av1.SendMessageResponse:
			task = r.GetTask().GetId()
			until(t, "the task asks", func() bool {
				now, err := rig.NewREST(p.Target).Get(t.Context(), &a2av1.GetTaskRequest{Id: task})
				return err == nil && now.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
			})
		case *teamv1.StartCollaborationResponse:
			collaboration = r.GetCollaborationId()
			until(t, "the collaboration asks", func() bool {
				now, err := rig.NewREST(p.Target).Get(t.Context(), &a2av1.GetTaskRequest{Id: collaboration})
				return err == nil && now.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_INPUT_REQUIRED
			})
		case *teamv1.CreateKeyResponse:
			key = r.GetKey().GetId()
		}
	}
	p.ids = strings.NewReplacer("$TASK", task, "$COLLABORATION", collaboration, "$KEY", key, "$MARK", p.mark(), "$TEAM", fmt.Sprintf("%q", teamOf(p)))
}

// shows returns what a party sees of what it has.
func (p *party) shows(t *testing.T, all []method) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, name := range reads {
		m := named(t, all, name)
		m.request = p.ids.Replace(m.request)
		resp, err := p.call(t, m, strings.NewReplacer("$VICTIM", p.account()))
		if err != nil {
			seen[name] = "error " + rig.Fault(err).Reason
			continue
		}
		seen[name] = protojson.Format(resp)
	}
	return seen
}

// TestT_13_AccountsApart: two accounts make objects with the same ids, the second one after the first has deleted its
// team and its agent. Every operation of one of them, on what has its own ids and on those that the server has given to
// what the other one has, leaves what the other one has as it is, and shows nothing of it.
func TestT_13_AccountsApart(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, place rig.Place) {
		for _, victim := range []string{"acme/ann", "other/eve"} {
			t.Run("state of "+victim, func(t *testing.T) {
				h, all := open(t, place.Another(t), apartFile, fakellm.New(t)), methods(t)
				bob := rig.Services(t, h.As("acme", "bob"))[0]
				first := &party{Target: h.Target, owner: "acme/ann", calls: rig.Services(t, h.Target)[0], admin: bob}
				second := &party{Target: h.As("other", "eve"), owner: "other/eve", calls: rig.Services(t, h.As("other", "eve"))[0], admin: bob}
				first.make(t, all)
				for _, name := range []string{"team.v1.TeamService.DeleteTeam", "team.v1.RegistryService.UnregisterAgent"} {
					if _, err := first.call(t, named(t, all, name), first.ids); err != nil {
						t.Fatal(err)
					}
				}
				second.make(t, all)
				of, by := first, second
				if victim == second.owner {
					of, by = second, first
				}
				cases, done := 0, 0
				before := of.shows(t, all)
				for _, m := range all {
					for whose, ids := range map[string]*strings.Replacer{"its own": by.ids, "the other's": of.ids} {
						given := m
						given.request = strings.ReplaceAll(strings.ReplaceAll(m.request, "$MARK", by.mark()), "$TEAM", fmt.Sprintf("%q", teamOf(by)))
						given.request = strings.ReplaceAll(given.request, "$VICTIM", of.account())
						resp, err := by.call(t, given, ids)
						cases++
						if err == nil {
							done++
						}
						if text := fmt.Sprint(protojson.Format(resp), err); strings.Contains(text, of.mark()) || strings.Contains(text, of.owner) {
							t.Errorf("%s with %s ids shows what %s has: %s", m.FullName(), whose, of.owner, text)
						}
						for name, now := range of.shows(t, all) {
							if now != before[name] {
								t.Errorf("after %s with %s ids, %s of %s was\n%s\nand is\n%s", m.FullName(), whose, name, of.owner, before[name], now)
								before[name] = now
							}
						}
					}
				}
				t.Logf("%d kinds of objects, %d operations, %d cases, of which %d were carried out", len(objects), len(all), cases, done)
				if by == second && done < len(all)/2 {
					t.Errorf("only %d cases were carried out", done)
				}
				of.goesOn(t, all)
			})
		}
	})
}

// goesOn answers the question of the task of a party, which then ends as its own team says, and ends the halt.
func (p *party) goesOn(t *testing.T, all []method) {
	t.Helper()
	if _, err := p.call(t, named(t, all, "team.v1.MonitorService.AnswerQuestion"), p.ids); err != nil {
		t.Fatal(err)
	}
	var task *a2av1.Task
	until(t, "the task has ended", func() bool {
		var err error
		task, err = rig.NewREST(p.Target).Get(t.Context(), &a2av1.GetTaskRequest{Id: p.ids.Replace("$TASK")})
		return err == nil && task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_INPUT_REQUIRED && task.GetStatus().GetState() != a2av1.TaskState_TASK_STATE_WORKING
	})
	if got := answer(task); !strings.HasPrefix(got, p.mark()+": ") {
		t.Errorf("the task of %s ends with %q: %v", p.owner, got, task)
	}
	resp, err := p.call(t, named(t, all, "team.v1.HaltService.Resume"), p.ids)
	if ended, _ := resp.(*teamv1.ResumeResponse); err != nil || ended.GetHalt().GetReason() != p.mark() {
		t.Errorf("%s ends its halt: %v, %v", p.owner, resp, err)
	}
}
