package board

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Place identifies the board and the actor of a call, and lists the members of the team.
type Place struct {
	Key
	// Actor is who makes the call.
	Actor *teamv1.BoardActor
	// Members are the IDs of the team's members.
	Members []string
}

// Board implements the operations on boards. It validates requests the same way for all
// callers. It is safe for concurrent use.
type Board struct{ store Store }

// New returns a Board for the boards in a store.
func New(s Store) *Board { return &Board{store: s} }

// do makes a change. A call without an op gets a unique one, so that the store finds the
// change if it was committed but the response was lost.
func (b *Board) do(ctx context.Context, p Place, op string, req proto.Message, f func(d *draft) (*Change, error)) (*teamv1.BoardEvent, error) {
	digest, err := digestOf(p.Actor, req)
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	switch {
	case op != "" && p.Actor.GetTaskId() != "":
		id = "step " + op
	case op != "":
		id = "call " + p.Actor.GetPrincipal() + " " + op
	}
	ev, err := b.store.ChangeBoard(ctx, p.Key, Op{ID: id, Digest: digest}, func(v View) (*Change, error) { return f(newDraft(v, p.Actor)) })
	return ev, storeError(err)
}

// digestOf returns a digest of a request and its actor. Equal calls have equal digests.
func digestOf(actor *teamv1.BoardActor, req proto.Message) ([]byte, error) {
	who, err := proto.MarshalOptions{Deterministic: true}.Marshal(actor)
	if err != nil {
		return nil, err
	}
	what, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %x %x", req.ProtoReflect().Descriptor().Name(), who, what))
	return sum[:], nil
}

// item returns the item of an event.
func item(ev *teamv1.BoardEvent, err error) (*teamv1.WorkItem, error) { return ev.GetItem(), err }

// AddWorkItem adds a work item. If the request does not set priority or max_retries, they are 3.
func (b *Board) AddWorkItem(ctx context.Context, p Place, req *teamv1.AddWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkAdd(req); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.add(&teamv1.WorkItem{
			Id: req.GetItemId(), TeamId: agent.IDOf(p.Team), Title: req.GetTitle(), Description: req.GetDescription(),
			Priority: cmp.Or(req.GetPriority(), defaultPriority), MaxRetries: cmp.Or(req.GetMaxRetries(), defaultRetries), DependsOn: req.GetDependsOn(),
		})
	}))
}

// GetWorkItem returns a work item. The error is WORK_ITEM_NOT_FOUND if it does not exist.
func (b *Board) GetWorkItem(ctx context.Context, p Place, id string) (*teamv1.WorkItem, error) {
	if !validID(id) {
		return nil, notFound(id)
	}
	it, err := b.store.WorkItem(ctx, p.Key, id)
	if isNotFound(err) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, storeError(err)
	}
	return AsOf(it, b.store.Now()), nil
}

// ListWorkItems returns a page of work items, and the token of the next page or "".
func (b *Board) ListWorkItems(ctx context.Context, p Place, req *teamv1.ListWorkItemsRequest) ([]*teamv1.WorkItem, string, error) {
	var bad faults
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	bad.add(err)
	bad.name("assignee", req.GetAssignee())
	f := Filter{State: req.GetState(), Assignee: req.GetAssignee(), Limit: size + 1, ByPriority: req.GetClaimable()}
	if req.GetClaimable() {
		if f.State != 0 && f.State != teamv1.WorkItem_STATE_PENDING {
			bad.Add("state", "must be STATE_PENDING or unset with claimable")
		}
		f.State = teamv1.WorkItem_STATE_PENDING
	}
	f.AfterPriority, f.AfterNumber, err = readToken(req.GetPageToken())
	bad.add(err)
	if err := bad.Err(); err != nil {
		return nil, "", err
	}
	list, err := b.store.WorkItems(ctx, p.Key, f)
	page := Fitting(list, size, runs.MaxPageBytes)
	if err != nil || len(page) == len(list) {
		return list, "", storeError(err)
	}
	last := page[len(page)-1]
	return page, fmt.Sprintf("%d.%d", last.GetPriority(), last.GetNumber()), nil
}

// Fitting returns the longest prefix of a list that has at most most elements whose encoded
// sizes add up to at most room bytes.
func Fitting[M proto.Message](list []M, most, room int) []M {
	for i, m := range list {
		if room -= proto.Size(m); i == most || room < 0 {
			return list[:i]
		}
	}
	return list
}

// readToken parses the token of a page of items: the priority and number of the last item
// before it.
func readToken(token string) (priority int32, number int64, err error) {
	if token == "" {
		return 0, 0, nil
	}
	first, second, _ := strings.Cut(token, ".")
	p, err := strconv.ParseInt(first, 10, 32)
	if err == nil {
		number, err = strconv.ParseInt(second, 10, 64)
	}
	if err != nil || p < 0 || number < 0 {
		return 0, 0, invalid("pageToken", "is not a page token of this list; omit it to start with the first page")
	}
	return int32(p), number, nil
}

// ClaimWorkItem claims a work item for the actor until its lease expires. The error is
// VERSION_CONFLICT if the item cannot be claimed.
func (b *Board) ClaimWorkItem(ctx context.Context, p Place, req *teamv1.ClaimWorkItemRequest) (*teamv1.WorkItem, error) {
	var bad faults
	lease := defaultLease
	if req.GetLease() != nil {
		lease = req.GetLease().AsDuration()
	}
	if !req.GetLease().IsValid() && req.GetLease() != nil || lease < minLease || lease > maxLease {
		bad.Add("lease", "must be %s to %s", minLease, maxLease)
	}
	bad.texts(req.GetOp())
	if err := bad.onItem(req.GetItemId()); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) { return d.claim(req.GetItemId(), req.GetVersion(), lease) }))
}

// UpdateWorkItem records progress on an item that the actor holds and renews its lease, or
// adds dependencies to an item that is not claimed.
func (b *Board) UpdateWorkItem(ctx context.Context, p Place, req *teamv1.UpdateWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkUpdate(req); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) { return d.update(req) }))
}

// CompleteWorkItem completes an item that the actor holds, with its result.
func (b *Board) CompleteWorkItem(ctx context.Context, p Place, req *teamv1.CompleteWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkCall(req.GetItemId(), req.GetOp(), text{"result", req.GetResult(), maxBody}); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.complete(req.GetItemId(), req.GetVersion(), req.GetResult())
	}))
}

// FailWorkItem records that the work of the actor on an item failed. The item can be
// claimed again, unless it has failed max_retries times.
func (b *Board) FailWorkItem(ctx context.Context, p Place, req *teamv1.FailWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkCall(req.GetItemId(), req.GetOp(), text{"error", req.GetError(), maxNote}); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.fail(req.GetItemId(), req.GetVersion(), req.GetError())
	}))
}

// CancelWorkItem cancels a work item and skips those that depend on it.
func (b *Board) CancelWorkItem(ctx context.Context, p Place, req *teamv1.CancelWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkCall(req.GetItemId(), req.GetOp()); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) { return d.cancel(req.GetItemId(), req.GetVersion()) }))
}

// PostMessage adds a message to the board.
func (b *Board) PostMessage(ctx context.Context, p Place, req *teamv1.PostMessageRequest) (*teamv1.BoardMessage, error) {
	if err := checkMessage(p, req); err != nil {
		return nil, err
	}
	ev, err := b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.post(&teamv1.BoardMessage{To: req.GetTo(), Text: req.GetText(), ReplyTo: req.GetReplyTo()})
	})
	return ev.GetMessage(), err
}

// ListMessages returns a page of messages, and the token of the next page or "".
func (b *Board) ListMessages(ctx context.Context, p Place, req *teamv1.ListMessagesRequest) ([]*teamv1.BoardMessage, string, error) {
	var bad faults
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	bad.add(err)
	f := MessageFilter{Reader: req.GetReader(), Unread: req.GetUnread(), Limit: size + 1}
	if f.Unread && f.Reader == "" {
		f.Reader = Name(p.Actor)
	}
	bad.name("reader", f.Reader)
	_, f.After, err = readToken(tokenOf(req.GetPageToken()))
	bad.add(err)
	if err := bad.Err(); err != nil {
		return nil, "", err
	}
	list, err := b.store.BoardMessages(ctx, p.Key, f)
	if err != nil || len(list) <= size {
		return list, "", storeError(err)
	}
	return list[:size], strconv.FormatInt(list[size-1].GetSeq(), 10), nil
}

// tokenOf converts the token of a page of messages to the form that readToken parses.
func tokenOf(token string) string {
	if token == "" {
		return ""
	}
	return "0." + token
}

// AckMessages records that the actor has read the messages up to a sequence number, and
// returns the highest one recorded.
func (b *Board) AckMessages(ctx context.Context, p Place, req *teamv1.AckMessagesRequest) (int64, error) {
	upTo := req.GetUpTo()
	o, err := b.store.BoardOverview(ctx, p.Key)
	if err != nil {
		return 0, storeError(err)
	}
	if upTo < 0 || upTo > o.Seq {
		return 0, invalid("upTo", "is %d, but the last event of the board is %d", upTo, o.Seq)
	}
	n, err := b.store.AckBoard(ctx, p.Key, Name(p.Actor), upTo)
	return n, storeError(err)
}

// Overview returns the overview of a board.
func (b *Board) Overview(ctx context.Context, k Key) (Overview, error) {
	o, err := b.store.BoardOverview(ctx, k)
	return o, storeError(err)
}

// Events returns events of a board after a sequence number, at most pageEvents.
func (b *Board) Events(ctx context.Context, k Key, after int64) ([]*teamv1.BoardEvent, error) {
	list, err := b.store.BoardEvents(ctx, k, after, pageEvents)
	return list, storeError(err)
}

const (
	// pageEvents is the maximum number of events that are read at once.
	pageEvents = 256

	defaultPriority = 3
	defaultRetries  = 3
	maxNeeds        = 32 // dependencies of an item
	defaultLease    = 5 * time.Minute
	minLease        = time.Second
	maxLease        = 24 * time.Hour
)

// in reports whether a name is that of a member, or that of the team, which stands for its
// leader.
func (p Place) in(name string) bool {
	return name == agent.IDOf(p.Team) || slices.Contains(p.Members, name)
}
