package board

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Tools is the set of tools with which a member of a team, or its leader, uses the team's
// board. A call acts for the owner of the task. The key of the call is the op of the
// request, so that a call that is repeated after a crash has no second effect.
type Tools struct {
	board   *Board
	team    string // its key
	self    string // the member, or the ID of the team for its leader
	members []string
}

var _ agent.Mailbox = Tools{}

// NewTools returns the tools of a member of a team, which is named by its key; see agent.KeyOf.
func NewTools(s Store, team string, members []string, self string) Tools {
	return Tools{board: New(s), team: team, members: members, self: self}
}

// Name implements agent.ToolSet.
func (Tools) Name() string { return "board" }

// Tools implements agent.ToolSet.
func (t Tools) Tools(context.Context) ([]agent.Tool, error) {
	list := make([]agent.Tool, len(toolbox))
	for i := range toolbox {
		list[i] = tool{&toolbox[i], t}
	}
	return list, nil
}

// place returns the board and the actor of a run. owned is false if the run has no owner.
func (t Tools) place(ctx context.Context) (p Place, owned bool) {
	run := agent.From(ctx)
	account, _, owned := strings.Cut(run.Owner, "/")
	return Place{
		Key: Key{Account: account, Team: t.team}, Members: t.members,
		Actor: &teamv1.BoardActor{Principal: run.Owner, Agent: t.self, TaskId: run.Root},
	}, owned
}

// Limits of the unread messages that one model turn is shown: their number, and the bytes of their
// texts together.
const (
	maxUnread      = 20
	maxUnreadBytes = 32 << 10
)

// Unread implements agent.Mailbox. The first message is returned whatever its size.
func (t Tools) Unread(ctx context.Context, after int64) (texts []string, upTo int64, err error) {
	p, owned := t.place(ctx)
	if !owned {
		return nil, 0, nil
	}
	list, err := t.board.store.BoardMessages(ctx, p.Key, MessageFilter{Reader: t.self, Unread: true, After: after, Limit: maxUnread})
	if err != nil {
		return nil, 0, storeError(err)
	}
	size := 0
	for i, m := range list {
		if size += len(m.GetText()); i > 0 && size > maxUnreadBytes {
			break
		}
		texts, upTo = append(texts, heading(m)+m.GetText()), m.GetSeq()
	}
	return texts, upTo, nil
}

// heading returns what stands before the text of a message: its number, its author, and to whom and
// to which message it is addressed.
func heading(m *teamv1.BoardMessage) string {
	text := fmt.Sprintf("Message %d, from %s", m.GetSeq(), Name(m.GetFrom()))
	if m.GetTo() == "" {
		text += " to all"
	}
	if m.GetReplyTo() != 0 {
		text += fmt.Sprintf(", in reply to message %d", m.GetReplyTo())
	}
	return text + ":\n"
}

// Acknowledge implements agent.Mailbox.
func (t Tools) Acknowledge(ctx context.Context, upTo int64) error {
	p, owned := t.place(ctx)
	if !owned {
		return nil
	}
	_, err := t.board.AckMessages(ctx, p, &teamv1.AckMessagesRequest{UpTo: upTo})
	return err
}

// tool is a tool of one member.
type tool struct {
	*entry
	by Tools
}

// entry is the definition of a tool. It is the same for all members.
type entry struct {
	spec agent.ToolSpec
	call func(ctx context.Context, t Tools, p Place, arguments json.RawMessage, key string) ([]proto.Message, error)
}

// Spec implements agent.Tool.
func (t tool) Spec() agent.ToolSpec { return t.spec }

// Call implements agent.Tool.
func (t tool) Call(ctx context.Context, arguments json.RawMessage, key string) (*teamv1.ToolResult, error) {
	p, owned := t.by.place(ctx)
	if !owned {
		return nil, agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonTeamError, "this run has no owner, so it has no board")
	}
	answer, err := t.call(ctx, t.by, p, arguments, key)
	if fault := (*a2aerror.Error)(nil); errors.As(err, &fault) {
		err = agent.Errorf(fault.Code, fault.Reason, "%s", fault.Message)
	}
	if err != nil {
		return nil, err
	}
	text, err := textOf(answer)
	return &teamv1.ToolResult{Text: text}, err
}

// textOf encodes messages as JSON, one per line.
func textOf(messages []proto.Message) (string, error) {
	if len(messages) == 0 {
		return "none", nil
	}
	var b bytes.Buffer
	for i, m := range messages {
		data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return "", err
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		if err := json.Compact(&b, data); err != nil { // protojson adds random spaces
			return "", err
		}
	}
	return b.String(), nil
}

// changes returns the implementation of a tool that calls a method of Board with one
// response. complete sets the fields of the request that the model does not provide.
func changes[Req interface {
	*R
	proto.Message
}, R any, T proto.Message](complete func(req Req, op string), do func(*Board) func(context.Context, Place, Req) (T, error),
) func(context.Context, Tools, Place, json.RawMessage, string) ([]proto.Message, error) {
	return func(ctx context.Context, t Tools, p Place, arguments json.RawMessage, key string) ([]proto.Message, error) {
		req := Req(new(R))
		if err := read(arguments, req); err != nil {
			return nil, err
		}
		complete(req, key)
		answer, err := do(t.board)(ctx, p, req)
		if err != nil {
			return nil, err
		}
		return []proto.Message{answer}, nil
	}
}

// read decodes the arguments of a tool call.
func read(arguments json.RawMessage, req proto.Message) error {
	if err := protojson.Unmarshal(arguments, req); err != nil {
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "invalid arguments for this tool: %s", err)
	}
	return nil
}

// listed is the maximum number of results of list_tasks and read_messages.
const listed = 50

func listTasks(ctx context.Context, t Tools, p Place, arguments json.RawMessage, _ string) (list []proto.Message, err error) {
	req := &teamv1.ListWorkItemsRequest{}
	if err := read(arguments, req); err != nil {
		return nil, err
	}
	req.PageSize = listed
	items, next, err := t.board.ListWorkItems(ctx, p, req)
	for _, it := range items {
		list = append(list, it)
	}
	if next != "" {
		list = append(list, &teamv1.ListWorkItemsResponse{NextPageToken: next})
	}
	return list, err
}

// readMessages returns the unread messages. It acknowledges only what the model says it has
// read, because the result of this call may be lost in a crash.
func readMessages(ctx context.Context, t Tools, p Place, arguments json.RawMessage, _ string) (list []proto.Message, err error) {
	seen := &teamv1.AckMessagesRequest{}
	if err := read(arguments, seen); err != nil {
		return nil, err
	}
	if seen.GetUpTo() != 0 {
		if _, err := t.board.AckMessages(ctx, p, seen); err != nil {
			return nil, err
		}
	}
	messages, _, err := t.board.ListMessages(ctx, p, &teamv1.ListMessagesRequest{Unread: true, PageSize: listed})
	for _, m := range messages {
		list = append(list, m)
	}
	return list, err
}

// object returns a JSON Schema of an object with these properties.
func object(required, properties string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`)
}

const (
	itemID  = `"item_id":{"type":"string","description":"The task's id."}`
	idsForm = `{"type":"array","items":{"type":"string"},"description":"Ids of tasks that must be completed first."}`
)

var toolbox = []entry{
	{
		agent.ToolSpec{
			Name: "add_task", Description: "Adds a task to the team's shared list.",
			Parameters: object(`"title"`, `"title":{"type":"string","description":"What to do, in one line."},"description":{"type":"string"},`+
				`"priority":{"type":"integer","minimum":1,"maximum":5,"description":"Tasks with a higher priority are done first; default 3."},"depends_on":`+idsForm),
		},
		changes(func(r *teamv1.AddWorkItemRequest, op string) { r.Op = op }, func(b *Board) func(context.Context, Place, *teamv1.AddWorkItemRequest) (*teamv1.WorkItem, error) {
			return b.AddWorkItem
		}),
	},
	{
		agent.ToolSpec{
			Name: "list_tasks", Description: "Lists tasks of the team's shared list, 50 at a time. If there are more, the result ends with next_page_token.", Effect: agent.EffectSafe,
			Parameters: object(``, `"claimable":{"type":"boolean","description":"Only those that can be claimed now, the most important first."},`+
				`"state":{"type":"string","enum":["STATE_PENDING","STATE_BLOCKED","STATE_IN_PROGRESS","STATE_COMPLETED","STATE_FAILED","STATE_CANCELED","STATE_SKIPPED"]},`+
				`"assignee":{"type":"string"},"page_token":{"type":"string","description":"The next_page_token of the previous page."}`),
		},
		listTasks,
	},
	{
		agent.ToolSpec{
			Name: "claim_task", Description: "Claims a pending task, so that no other member works on it. Update it at least every 5 minutes, or others can claim it again.",
			Parameters: object(`"item_id"`, itemID),
		},
		changes(func(r *teamv1.ClaimWorkItemRequest, op string) { r.Op = op }, func(b *Board) func(context.Context, Place, *teamv1.ClaimWorkItemRequest) (*teamv1.WorkItem, error) {
			return b.ClaimWorkItem
		}),
	},
	{
		agent.ToolSpec{
			Name: "update_task", Description: "Reports progress on a task that you hold, which also renews your claim. Or adds dependencies to a task that is not claimed.",
			Parameters: object(`"item_id"`, itemID+`,"progress":{"type":"integer","minimum":0,"maximum":100},"note":{"type":"string"},"add_depends_on":`+idsForm),
		},
		changes(func(r *teamv1.UpdateWorkItemRequest, op string) { r.Op = op }, func(b *Board) func(context.Context, Place, *teamv1.UpdateWorkItemRequest) (*teamv1.WorkItem, error) {
			return b.UpdateWorkItem
		}),
	},
	{
		agent.ToolSpec{
			Name: "complete_task", Description: "Completes a task that you hold, with its result.",
			Parameters: object(`"item_id","result"`, itemID+`,"result":{"type":"string"}`),
		},
		changes(func(r *teamv1.CompleteWorkItemRequest, op string) { r.Op = op }, func(b *Board) func(context.Context, Place, *teamv1.CompleteWorkItemRequest) (*teamv1.WorkItem, error) {
			return b.CompleteWorkItem
		}),
	},
	{
		agent.ToolSpec{
			Name: "fail_task", Description: "Reports that your work on a task that you hold failed, and why. The task can be claimed again, until it has failed too often.",
			Parameters: object(`"item_id","error"`, itemID+`,"error":{"type":"string"}`),
		},
		changes(func(r *teamv1.FailWorkItemRequest, op string) { r.Op = op }, func(b *Board) func(context.Context, Place, *teamv1.FailWorkItemRequest) (*teamv1.WorkItem, error) {
			return b.FailWorkItem
		}),
	},
	{
		agent.ToolSpec{
			Name: "post_message", Description: "Posts a message to a member of the team, or to all.",
			Parameters: object(`"text"`, `"text":{"type":"string"},"to":{"type":"string","description":"A member's id, or the team's id for its leader. Omit it to address all."},`+
				`"reply_to":{"type":"integer","description":"seq of the message to reply to."}`),
		},
		changes(func(r *teamv1.PostMessageRequest, op string) { r.Op = op }, func(b *Board) func(context.Context, Place, *teamv1.PostMessageRequest) (*teamv1.BoardMessage, error) {
			return b.PostMessage
		}),
	},
	{
		agent.ToolSpec{
			Name: "read_messages", Description: "Returns the first 50 messages to you that you have not acknowledged.",
			Parameters: object(``, `"up_to":{"type":"integer","description":"Acknowledges all messages up to this seq."}`),
		},
		readMessages,
	},
}
