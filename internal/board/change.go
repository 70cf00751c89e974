package board

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// draft is a change of a board in progress: it caches the items that were read and records
// which of them have changed. It is not safe for concurrent use.
type draft struct {
	view  View
	actor *teamv1.BoardActor
	now   time.Time
	items map[string]*teamv1.WorkItem // by id; nil marks an id without an item
	dirty []string                    // IDs of changed items, in the order of the changes
	drop  string                      // ID of an ended item to delete; "" for none
}

func newDraft(v View, actor *teamv1.BoardActor) *draft {
	return &draft{view: v, actor: actor, now: v.Now(), items: map[string]*teamv1.WorkItem{}}
}

// find returns an item as it is now, nil if it does not exist.
func (d *draft) find(id string) (*teamv1.WorkItem, error) {
	if it, ok := d.items[id]; ok {
		return it, nil
	}
	it, err := d.view.Item(id)
	if err != nil {
		return nil, err
	}
	if it != nil {
		AsOf(it, d.now)
	}
	d.items[id] = it
	return it, nil
}

// item returns an item. The errors are WORK_ITEM_NOT_FOUND and, if version is neither 0 nor
// the current one, VERSION_CONFLICT.
func (d *draft) item(id string, version int64) (*teamv1.WorkItem, error) {
	it, err := d.find(id)
	switch {
	case err != nil:
		return nil, err
	case it == nil:
		return nil, notFound(id)
	case version != 0 && version != it.GetVersion():
		return nil, conflict(it, "has changed since it was read; its version is now %d", it.GetVersion())
	}
	return it, nil
}

// held returns an item that the actor holds. The error is VERSION_CONFLICT if the actor
// does not.
func (d *draft) held(id string, version int64) (*teamv1.WorkItem, error) {
	it, err := d.item(id, version)
	if err == nil && (it.GetState() != teamv1.WorkItem_STATE_IN_PROGRESS || !proto.Equal(it.GetAssignee(), d.actor)) {
		err = conflict(it, "is not claimed by %s; it is %s; claim it first", Name(d.actor), stateText(it))
	}
	return it, err
}

// touch marks an item as changed.
func (d *draft) touch(it *teamv1.WorkItem) {
	if !slices.Contains(d.dirty, it.GetId()) {
		d.dirty = append(d.dirty, it.GetId())
		it.Version++
	}
	it.Changed = timestamppb.New(d.now)
	d.items[it.GetId()] = it
}

// change returns the finished change. it is the item of the event, nil for a message.
func (d *draft) change(kind teamv1.BoardEvent_Kind, it *teamv1.WorkItem) *Change {
	c := &Change{Event: &teamv1.BoardEvent{Time: timestamppb.New(d.now), Kind: kind, Actor: d.actor, Item: it}, Delete: d.drop}
	for _, id := range d.dirty {
		c.Put = append(c.Put, d.items[id])
		if id != it.GetId() {
			c.Event.Changes = append(c.Event.Changes, &teamv1.BoardEvent_Change{ItemId: id, State: d.items[id].GetState()})
		}
	}
	return c
}

// add adds an item to the board.
func (d *draft) add(it *teamv1.WorkItem) (*Change, error) {
	if err := d.name(it); err != nil {
		return nil, err
	}
	it.State, it.Source = teamv1.WorkItem_STATE_PENDING, teamv1.WorkItem_SOURCE_ADDED
	it.CreatedBy, it.Created, it.Number = d.actor, timestamppb.New(d.now), d.view.Seq()+1
	needs := it.GetDependsOn()
	it.DependsOn = nil
	d.touch(it)
	if err := d.link(it, needs, "dependsOn"); err != nil {
		return nil, err
	}
	if err := d.room(); err != nil { // after link, because room may delete an item that the new one depends on
		return nil, err
	}
	return d.change(teamv1.BoardEvent_KIND_ADDED, it), nil
}

// room deletes the oldest ended item if the board is full. The error is
// INSUFFICIENT_RESOURCES if none has ended.
func (d *draft) room() error {
	n, ended, err := d.view.Count()
	if err != nil || n < MaxItems {
		return err
	}
	if ended == "" {
		return agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources,
			"the board has %d open items, the maximum; complete or cancel some", n)
	}
	d.drop = ended
	return nil
}

// name generates an ID for an item without one. If the item has an ID that is in use, it
// returns an error.
func (d *draft) name(it *teamv1.WorkItem) error {
	given := it.GetId() != ""
	if !given {
		it.Id = fmt.Sprintf("t%d", d.view.Seq()+1)
	}
	for {
		taken, err := d.taken(it.GetId())
		switch {
		case err != nil:
			return err
		case !taken:
			return nil
		case given:
			return invalid("itemId", "is %q, the id of another item; use a new one, or omit it", it.GetId())
		}
		it.Id += "x"
	}
}

// taken reports whether an ID is in use: by an item, or by a deleted item that open items
// still depend on, because a new item with that ID would become their dependency.
func (d *draft) taken(id string) (bool, error) {
	if it, err := d.find(id); it != nil || err != nil {
		return true, err
	}
	ids, err := d.view.Dependents(id)
	for _, id := range ids {
		it, err := d.find(id)
		if err != nil || it != nil && !hasEnded(it.GetState()) {
			return true, err
		}
	}
	return false, err
}

// link adds dependencies to an item that is not claimed.
func (d *draft) link(it *teamv1.WorkItem, needs []string, field string) error {
	for i, need := range needs {
		place := fmt.Sprintf("%s[%d]", field, i)
		if slices.Contains(it.GetDependsOn(), need) {
			continue
		}
		other, err := d.find(need)
		switch {
		case err != nil:
			return err
		case other == nil:
			return invalid(place, "names %q, which is not an item of this board", need)
		case hasEnded(other.GetState()) && other.GetState() != teamv1.WorkItem_STATE_COMPLETED:
			return invalid(place, "names %q, which is %s, so the item would never start", need, stateName(other.GetState()))
		}
		path, err := d.path(other, it.GetId(), map[string]bool{})
		if err != nil {
			return err
		}
		if path != nil {
			return invalid(place, "makes a cycle: %s", strings.Join(append([]string{it.GetId()}, path...), " -> "))
		}
		it.DependsOn = append(it.DependsOn, need)
	}
	if len(it.GetDependsOn()) > maxNeeds {
		return invalid(field, "would have %d items; at most %d are allowed", len(it.GetDependsOn()), maxNeeds)
	}
	blocked, err := d.blocked(it)
	if blocked {
		it.State = teamv1.WorkItem_STATE_BLOCKED
	}
	return err
}

// path returns the IDs of the items on a chain of dependencies from it to the item with ID
// to, or nil if there is no such chain.
func (d *draft) path(it *teamv1.WorkItem, to string, seen map[string]bool) ([]string, error) {
	if it.GetId() == to {
		return []string{to}, nil
	}
	if seen[it.GetId()] {
		return nil, nil
	}
	seen[it.GetId()] = true
	for _, need := range it.GetDependsOn() {
		next, err := d.find(need)
		if err != nil {
			return nil, err
		}
		if next == nil {
			continue
		}
		path, err := d.path(next, to, seen)
		if path != nil || err != nil {
			return append([]string{it.GetId()}, path...), err
		}
	}
	return nil, nil
}

// unmet returns the IDs of the dependencies that are not completed. A dependency that was
// deleted had completed.
func (d *draft) unmet(it *teamv1.WorkItem) (ids []string, err error) {
	for _, need := range it.GetDependsOn() {
		other, err := d.find(need)
		if err != nil {
			return nil, err
		}
		if other != nil && other.GetState() != teamv1.WorkItem_STATE_COMPLETED {
			ids = append(ids, need)
		}
	}
	return ids, nil
}

func (d *draft) blocked(it *teamv1.WorkItem) (bool, error) {
	ids, err := d.unmet(it)
	return len(ids) > 0, err
}

// claim claims an item for the actor.
func (d *draft) claim(id string, version int64, lease time.Duration) (*Change, error) {
	it, err := d.item(id, version)
	if err != nil {
		return nil, err
	}
	switch {
	case it.GetState() == teamv1.WorkItem_STATE_BLOCKED:
		ids, err := d.unmet(it)
		if err != nil {
			return nil, err
		}
		return nil, conflict(it, "waits for %s", strings.Join(ids, ", "))
	case it.GetState() != teamv1.WorkItem_STATE_PENDING:
		return nil, conflict(it, "cannot be claimed: it is %s", stateText(it))
	}
	it.State, it.Assignee, it.Lease = teamv1.WorkItem_STATE_IN_PROGRESS, d.actor, durationpb.New(lease)
	it.Progress, it.Note = 0, ""
	d.renew(it)
	return d.change(teamv1.BoardEvent_KIND_CLAIMED, it), nil
}

// renew extends the lease of an item to its full duration from now.
func (d *draft) renew(it *teamv1.WorkItem) {
	it.LeaseExpires = timestamppb.New(d.now.Add(it.GetLease().AsDuration()))
	d.touch(it)
}

// update records progress and renews the lease, or adds dependencies.
func (d *draft) update(req *teamv1.UpdateWorkItemRequest) (*Change, error) {
	if needs := req.GetAddDependsOn(); len(needs) > 0 {
		it, err := d.item(req.GetItemId(), req.GetVersion())
		if err != nil {
			return nil, err
		}
		if s := it.GetState(); s != teamv1.WorkItem_STATE_PENDING && s != teamv1.WorkItem_STATE_BLOCKED {
			return nil, conflict(it, "cannot get more dependencies: it is %s", stateText(it))
		}
		if err := d.link(it, needs, "addDependsOn"); err != nil {
			return nil, err
		}
		d.touch(it)
		return d.change(teamv1.BoardEvent_KIND_UPDATED, it), nil
	}
	it, err := d.held(req.GetItemId(), req.GetVersion())
	if err != nil {
		return nil, err
	}
	if req.Progress != nil {
		it.Progress = req.GetProgress()
	}
	if req.GetNote() != "" {
		it.Note = req.GetNote()
	}
	d.renew(it)
	return d.change(teamv1.BoardEvent_KIND_UPDATED, it), nil
}

// complete completes an item. Blocked items whose dependencies are now all completed become
// PENDING.
func (d *draft) complete(id string, version int64, result string) (*Change, error) {
	it, err := d.held(id, version)
	if err != nil {
		return nil, err
	}
	d.end(it, teamv1.WorkItem_STATE_COMPLETED)
	it.Progress, it.Result = 100, result
	ids, err := d.view.Dependents(id)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		other, err := d.find(id)
		if err != nil {
			return nil, err
		}
		if other.GetState() != teamv1.WorkItem_STATE_BLOCKED {
			continue
		}
		if blocked, err := d.blocked(other); err != nil || blocked {
			if err != nil {
				return nil, err
			}
			continue
		}
		other.State = teamv1.WorkItem_STATE_PENDING
		d.touch(other)
	}
	return d.change(teamv1.BoardEvent_KIND_COMPLETED, it), nil
}

// end ends an item in the given state. It removes the lease but keeps the assignee.
func (d *draft) end(it *teamv1.WorkItem, s teamv1.WorkItem_State) {
	it.State, it.Lease, it.LeaseExpires = s, nil, nil
	d.touch(it)
}

// fail makes an item PENDING again. If it has now failed max_retries times, it becomes
// FAILED and its dependents are skipped.
func (d *draft) fail(id string, version int64, why string) (*Change, error) {
	it, err := d.held(id, version)
	if err != nil {
		return nil, err
	}
	it.RetryCount++
	it.Error = why
	if it.GetRetryCount() < it.GetMaxRetries() {
		release(it)
		d.touch(it)
		return d.change(teamv1.BoardEvent_KIND_RETURNED, it), nil
	}
	d.end(it, teamv1.WorkItem_STATE_FAILED)
	if err := d.skip(id); err != nil {
		return nil, err
	}
	return d.change(teamv1.BoardEvent_KIND_FAILED, it), nil
}

// cancel cancels an item and skips its dependents.
func (d *draft) cancel(id string, version int64) (*Change, error) {
	it, err := d.item(id, version)
	if err != nil {
		return nil, err
	}
	if hasEnded(it.GetState()) {
		return nil, conflict(it, "has ended: it is %s", stateText(it))
	}
	d.end(it, teamv1.WorkItem_STATE_CANCELED)
	if err := d.skip(id); err != nil {
		return nil, err
	}
	return d.change(teamv1.BoardEvent_KIND_CANCELED, it), nil
}

// skip ends the items that depend on an item, directly or indirectly, as SKIPPED.
func (d *draft) skip(id string) error {
	ids, err := d.view.Dependents(id)
	if err != nil {
		return err
	}
	for _, id := range ids {
		it, err := d.find(id)
		if err != nil {
			return err
		}
		if it == nil || hasEnded(it.GetState()) {
			continue
		}
		d.end(it, teamv1.WorkItem_STATE_SKIPPED)
		if err := d.skip(id); err != nil {
			return err
		}
	}
	return nil
}

// post adds a message. A reply without a recipient goes to the author of the original
// message.
func (d *draft) post(m *teamv1.BoardMessage) (*Change, error) {
	if m.GetReplyTo() != 0 {
		other, err := d.view.Message(m.GetReplyTo())
		switch {
		case err != nil:
			return nil, err
		case other == nil:
			return nil, invalid("replyTo", "is %d, which is not a message of this board or has been deleted", m.GetReplyTo())
		case m.GetTo() == "":
			m.To = Name(other.GetFrom())
		}
	}
	m.Seq, m.Time, m.From = d.view.Seq()+1, timestamppb.New(d.now), d.actor
	c := d.change(teamv1.BoardEvent_KIND_MESSAGE, nil)
	c.Event.Message = m
	return c, nil
}
