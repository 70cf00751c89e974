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
	"github.com/agentteams/team-server/pkg/a2a"
)

// Place is a board, and who is at it.
type Place struct {
	Key
	// Actor is who acts.
	Actor *teamv1.BoardActor
	// Members are the ids of the team's members.
	Members []string
}

// Board answers the calls on boards. What an item, a message or a page may be is
// checked here, for every caller alike. Safe for concurrent use.
type Board struct{ store Store }

// New returns the boards of a store.
func New(s Store) *Board { return &Board{store: s} }

// do makes a change. A call without an op has one all the same: what was committed
// without our hearing of it is found by it.
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

// digestOf tells one call from another.
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

// item is the item of an event.
func item(ev *teamv1.BoardEvent, err error) (*teamv1.WorkItem, error) { return ev.GetItem(), err }

// AddWorkItem adds an item.
func (b *Board) AddWorkItem(ctx context.Context, p Place, req *teamv1.AddWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkAdd(req); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.add(&teamv1.WorkItem{
			Id: req.GetItemId(), TeamId: p.Team, Title: req.GetTitle(), Description: req.GetDescription(),
			Priority: cmp.Or(req.GetPriority(), defaultPriority), MaxRetries: cmp.Or(req.GetMaxRetries(), defaultRetries), DependsOn: req.GetDependsOn(),
		})
	}))
}

// GetWorkItem returns an item.
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

// ListWorkItems returns a page of items, and the token of the next one.
func (b *Board) ListWorkItems(ctx context.Context, p Place, req *teamv1.ListWorkItemsRequest) ([]*teamv1.WorkItem, string, error) {
	var bad faults
	size, err := a2a.PageSize("pageSize", req.GetPageSize())
	bad.take(err)
	bad.name("assignee", req.GetAssignee())
	f := Filter{State: req.GetState(), Assignee: req.GetAssignee(), Limit: size + 1, ByPriority: req.GetClaimable()}
	if req.GetClaimable() {
		if f.State != 0 && f.State != teamv1.WorkItem_STATE_PENDING {
			bad.Add("state", "has to be STATE_PENDING, or unset, with claimable")
		}
		f.State = teamv1.WorkItem_STATE_PENDING
	}
	f.AfterPriority, f.AfterNumber, err = readToken(req.GetPageToken())
	bad.take(err)
	if err := bad.Err(); err != nil {
		return nil, "", err
	}
	list, err := b.store.WorkItems(ctx, p.Key, f)
	page := Fitting(list, size, a2a.MaxPageBytes)
	if err != nil || len(page) == len(list) {
		return list, "", storeError(err)
	}
	last := page[len(page)-1]
	return page, fmt.Sprintf("%d.%d", last.GetPriority(), last.GetNumber()), nil
}

// Fitting is the beginning of a list, so many at most that have room together, as encoded.
func Fitting[M proto.Message](list []M, most, room int) []M {
	for i, m := range list {
		if room -= proto.Size(m); i == most || room < 0 {
			return list[:i]
		}
	}
	return list
}

// readToken reads the token of a page: behind which priority and number it begins.
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
		return 0, 0, invalid("pageToken", "is not a token of this list; begin again without one")
	}
	return int32(p), number, nil
}

// ClaimWorkItem takes an item.
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

// UpdateWorkItem says what is new about an item.
func (b *Board) UpdateWorkItem(ctx context.Context, p Place, req *teamv1.UpdateWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkUpdate(req); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) { return d.update(req) }))
}

// CompleteWorkItem ends an item with its result.
func (b *Board) CompleteWorkItem(ctx context.Context, p Place, req *teamv1.CompleteWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkCall(req.GetItemId(), req.GetOp(), text{"result", req.GetResult(), maxBody}); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.complete(req.GetItemId(), req.GetVersion(), req.GetResult())
	}))
}

// FailWorkItem gives an item back, or ends it.
func (b *Board) FailWorkItem(ctx context.Context, p Place, req *teamv1.FailWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkCall(req.GetItemId(), req.GetOp(), text{"error", req.GetError(), maxNote}); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.fail(req.GetItemId(), req.GetVersion(), req.GetError())
	}))
}

// CancelWorkItem ends an item.
func (b *Board) CancelWorkItem(ctx context.Context, p Place, req *teamv1.CancelWorkItemRequest) (*teamv1.WorkItem, error) {
	if err := checkCall(req.GetItemId(), req.GetOp()); err != nil {
		return nil, err
	}
	return item(b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) { return d.cancel(req.GetItemId(), req.GetVersion()) }))
}

// PostMessage leaves a message.
func (b *Board) PostMessage(ctx context.Context, p Place, req *teamv1.PostMessageRequest) (*teamv1.BoardMessage, error) {
	if err := checkMessage(p, req); err != nil {
		return nil, err
	}
	ev, err := b.do(ctx, p, req.GetOp(), req, func(d *draft) (*Change, error) {
		return d.post(&teamv1.BoardMessage{To: req.GetTo(), Text: req.GetText(), ReplyTo: req.GetReplyTo()})
	})
	return ev.GetMessage(), err
}

// ListMessages returns a page of messages, and the token of the next one.
func (b *Board) ListMessages(ctx context.Context, p Place, req *teamv1.ListMessagesRequest) ([]*teamv1.BoardMessage, string, error) {
	var bad faults
	size, err := a2a.PageSize("pageSize", req.GetPageSize())
	bad.take(err)
	f := MessageFilter{Reader: req.GetReader(), Unread: req.GetUnread(), Limit: size + 1}
	if f.Unread && f.Reader == "" {
		f.Reader = Name(p.Actor)
	}
	bad.name("reader", f.Reader)
	_, f.After, err = readToken(tokenOf(req.GetPageToken()))
	bad.take(err)
	if err := bad.Err(); err != nil {
		return nil, "", err
	}
	list, err := b.store.BoardMessages(ctx, p.Key, f)
	if err != nil || len(list) <= size {
		return list, "", storeError(err)
	}
	return list[:size], strconv.FormatInt(list[size-1].GetSeq(), 10), nil
}

// tokenOf is the token of a page of messages in the form of one of items.
func tokenOf(token string) string {
	if token == "" {
		return ""
	}
	return "0." + token
}

// AckMessages notes up to where the actor has read, and returns what is noted.
func (b *Board) AckMessages(ctx context.Context, p Place, req *teamv1.AckMessagesRequest) (int64, error) {
	upTo := req.GetUpTo()
	o, err := b.store.BoardOverview(ctx, p.Key)
	if err != nil {
		return 0, storeError(err)
	}
	if upTo < 0 || upTo > o.Seq {
		return 0, invalid("upTo", "is %d, and the last event of the board is %d", upTo, o.Seq)
	}
	n, err := b.store.AckBoard(ctx, p.Key, Name(p.Actor), upTo)
	return n, storeError(err)
}

// Overview returns how a board is.
func (b *Board) Overview(ctx context.Context, k Key) (Overview, error) {
	o, err := b.store.BoardOverview(ctx, k)
	return o, storeError(err)
}

// Events returns events of a board behind a sequence, some hundred.
func (b *Board) Events(ctx context.Context, k Key, after int64) ([]*teamv1.BoardEvent, error) {
	list, err := b.store.BoardEvents(ctx, k, after, pageEvents)
	return list, storeError(err)
}

const (
	// pageEvents is how many events are read at once.
	pageEvents = 256

	defaultPriority = 3
	defaultRetries  = 3
	maxNeeds        = 32
	defaultLease    = 5 * time.Minute
	minLease        = time.Second
	maxLease        = 24 * time.Hour
)

// in reports whether a name is one of the team: a member's, or the team's own for
// its leader.
func (p Place) in(name string) bool { return name == p.Team || slices.Contains(p.Members, name) }
