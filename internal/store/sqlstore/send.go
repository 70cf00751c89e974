package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
)

// insertRequest stores a request. It replaces one that is older than its window.
const insertRequest = `INSERT INTO request (owner, agent, root, message, digest, id, n, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (owner, message, agent, root) DO UPDATE SET digest = excluded.digest, id = excluded.id, n = excluded.n, at = excluded.at
WHERE request.at <= $9`

// mine is true if the message has created this task, or if there is no message id.
const mine = `($2 = '' OR EXISTS (SELECT 1 FROM request WHERE request.owner = $3 AND request.root = '' AND message = $2 AND request.id = $1))`

// insertRun stores the run of a new task.
const insertRun = `INSERT INTO run (id, owner, seq, bytes, due, definition, push) SELECT $1, $3, 1, $4, $5, $6, $7 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// agentKey is the key of the agent of a row of task; see agent.KeyOf.
const agentKey = `CASE WHEN agent_account = '' THEN agent ELSE agent_account || ':' || agent END`

// insertTask stores the task row of a new task.
const insertTask = `INSERT INTO task (id, owner, agent, context_id, state, status_at, visible, brief, agent_account)
SELECT $1, $3, $4, $5, $6, $7, $8, $9, $10 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// insertFirst stores the first event of a new task.
const insertFirst = `INSERT INTO event (id, seq, scope, delta, sum, body) SELECT $1, 1, '', 0, $4, $5 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// Create creates a task with its first event, due to run. If the message was received before, it
// returns the root that the message began, and existed is true.
func (s *Store) Create(ctx context.Context, n a2a.New) (root string, existed bool, err error) {
	root = n.Accepted.GetTaskId()
	if root == "" || n.Owner == "" {
		return "", false, errors.New("create a task: it needs an id and an owner")
	}
	if n.Collaborations > 0 && n.Accepted.GetCollaboration() == nil {
		return "", false, errors.New("create a task: a collaboration needs a brief") // by which its end knows that it has a slot
	}
	if err := s.Ready(); err != nil { // fail at once, not after all attempts
		return "", false, err
	}
	o, err := s.creation(n)
	if err != nil {
		return "", false, err
	}
	if n.Push != nil {
		if err := s.roomForPush(ctx, s.db.reader(), n.Owner); err != nil {
			if _, known := s.Sent(ctx, n.Owner, store.AgentKey(n.Accepted), n.MessageID); known != nil {
				return "", false, answer(err)
			}
		}
		defer s.wakePush()
	}
	if n.Collaborations > 0 {
		o.plan = func(ctx context.Context, q querier) (err error) {
			root, existed, err = s.collaborate(ctx, q, n, o)
			return err
		}
	} else {
		o.done = func(ctx context.Context, q querier, err error) error {
			if err == nil {
				root, existed, err = s.created(ctx, q, n, o)
			}
			return err
		}
	}
	if err := await(ctx, s.db, o); err != nil {
		return "", false, s.unrecorded(err)
	}
	if !existed {
		s.hub.all.Ring(n.Owner) // who watches the root waits for what its run does
	}
	return root, existed, nil
}

// creation returns the change that creates a task.
func (s *Store) creation(n a2a.New) (*op, error) {
	acc, now := n.Accepted, s.Now()
	ev := &teamv1.Event{Seq: 1, Time: timestamppb.New(now), Agent: acc.GetAgent(), Kind: &teamv1.Event_Accepted{Accepted: acc}}
	e, err := encode(acc.GetTaskId(), ev)
	if err != nil {
		return nil, err
	}
	f := project.New(acc.GetTaskId(), "")
	f.Apply(ev)
	l := listingOf(f)
	id, at := acc.GetTaskId(), now.UnixMilli()
	o := &op{root: id, size: e.size, account: a2a.AccountOf(n.Owner)}
	if n.MessageID != "" {
		o.stmts = append(o.stmts, stmt{insertRequest, []any{
			n.Owner, store.AgentOf(n.MessageID, store.AgentKey(acc)), "", n.MessageID, n.Digest, id, int64(0), at, s.expired(n.MessageID, at),
		}})
	}
	o.stmts = append(o.stmts,
		stmt{insertRun, []any{id, n.MessageID, n.Owner, int64(e.size), at, definitionOf(acc), flag(n.Push != nil)}},
		stmt{insertTask, []any{id, n.MessageID, n.Owner, acc.GetAgent(), acc.GetMessage().GetContextId(), int64(l.state), l.at, flag(l.visible), flag(acc.GetCollaboration() != nil), acc.GetPins().GetAccounts()[acc.GetAgent()]}},
		stmt{insertFirst, []any{id, n.MessageID, n.Owner, e.sum, e.body}},
	)
	for _, v := range e.blobs {
		o.stmts = append(o.stmts, stmt{insertFirstBlob, []any{id, v.hash, v.value, e.sum}})
	}
	if n.Push != nil {
		body, err := s.sealPush(id, "", n.Push)
		if err != nil {
			return nil, err
		}
		o.stmts = append(o.stmts, stmt{insertPush, []any{id, n.MessageID, n.Owner, n.Push.GetId(), body, at, n.PushVersion, pushEpoch()}})
	}
	return o, nil
}

// definitionOf returns the revision to which a run is pinned, NULL without one.
func definitionOf(acc *teamv1.Accepted) sql.NullString {
	r := acc.GetPins().GetRevisions()[acc.GetAgent()]
	return sql.NullString{String: r, Valid: r != ""}
}

// runAt returns the index of insertRun in the statements of a creation.
func runAt(n a2a.New) int { return int(flag(n.MessageID != "")) }

// created returns the result of a creation after its statements were run.
func (s *Store) created(ctx context.Context, q querier, n a2a.New, o *op) (root string, existed bool, err error) {
	root = n.Accepted.GetTaskId()
	if n.MessageID != "" && o.affected[0] == 0 { // the message is known
		r, err := s.request(ctx, q, n.Owner, store.AgentKey(n.Accepted), "", n.MessageID)
		if err != nil {
			return "", false, err
		}
		if o.again && r.id == root {
			return root, false, nil // created by an attempt whose reply was lost
		}
		root, _, err = r.repeated("", n.Digest)
		return root, err == nil, err
	}
	if made := o.affected[runAt(n)] == 1; made || o.again {
		return root, false, nil
	}
	return "", false, fmt.Errorf("create task %s: the id is taken", root)
}

// unrecorded converts an error of the database for callers of the store.
func (s *Store) unrecorded(err error) error {
	err = answer(err)
	for _, known := range []error{a2a.ErrBusy, a2a.ErrAccountBusy, a2a.ErrDeleted, a2a.ErrPushTask, a2a.ErrPushOwner, a2a.ErrPushLost, a2a.ErrReused, a2a.ErrAnswered, a2a.ErrTerminal, a2a.ErrNotFound, a2a.ErrStorage, a2a.ErrDataLoss, agent.ErrFenced, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	if err != nil && s.Err() != nil {
		return fmt.Errorf("%w: %w", a2a.ErrStorage, err)
	}
	return err
}

// expired returns the time before which requests with a key are no longer recognized.
func (s *Store) expired(key string, now int64) int64 {
	return now - store.Window(key, s.cfg.Deduplicate).Milliseconds()
}

// request is the result of a message or a command.
type request struct {
	id     string
	n      int64
	digest []byte
}

// request finds a request within its window. The error is a2a.ErrNotFound.
func (s *Store) request(ctx context.Context, q querier, owner, agent, root, message string) (request, error) {
	var r request
	err := q.scan(ctx, []any{&r.id, &r.n, &r.digest},
		`SELECT id, n, digest FROM request WHERE owner = $1 AND message = $2 AND agent = $3 AND root = $4 AND at > $5`,
		owner, message, store.AgentOf(message, agent), root, s.expired(message, s.now()))
	return r, notFound(err)
}

// repeated returns the result of a request that is repeated. The error is a2a.ErrReused if the
// request differs, or if root is set and the request was for another task.
func (r request) repeated(root string, digest []byte) (string, int64, error) {
	if !bytes.Equal(r.digest, digest) || root != "" && r.id != root {
		return "", 0, a2a.ErrReused
	}
	return r.id, r.n, nil
}

// Sent returns the root that a message of the owner began or was put into, within the time for
// which message ids are remembered. The error is a2a.ErrNotFound.
func (s *Store) Sent(ctx context.Context, owner, agent, messageID string) (string, error) {
	r, err := s.request(ctx, s.db.reader(), owner, agent, "", messageID)
	return r.id, err
}

// Put puts an input into the inbox of a task and makes its run due. Unless conf is nil, it also
// stores that push configuration in the same transaction.
func (s *Store) Put(ctx context.Context, k a2a.Key, in *teamv1.Inbound, digest []byte, conf *a2a.Push) (n int64, existed bool, err error) {
	if in.GetKind() == nil {
		return 0, false, errors.New("put an input: it has no kind")
	}
	if conf != nil {
		defer s.wakePush()
	}
	if err := s.Ready(); err != nil { // fail at once, not after all attempts
		return 0, false, err
	}
	root, scope, err := s.owned(ctx, k)
	if err != nil {
		return 0, false, err
	}
	p := &put{s: s, sender: store.Sender(k.Owner, in), root: root, in: proto.CloneOf(in), digest: digest, push: conf}
	if conf != nil {
		_, of := agent.SplitTask(conf.Task.ID)
		if p.sealed, err = s.sealPush(root, of, conf.Config); err != nil {
			return 0, false, err
		}
	}
	if scope != "" {
		if p.child, _, err = s.foldOf(ctx, root, scope); err != nil {
			return 0, false, err
		}
	}
	err = s.changeIf(ctx, func(ctx context.Context, q querier) (bool, error) {
		err := p.write(ctx, q)
		return !p.existed, err
	})
	if err != nil {
		return 0, false, s.unrecorded(err)
	}
	s.deliver(root) // also if the message existed: the attempt that wrote it may have failed before it woke the run
	s.db.tell(root, k.Owner)
	return p.n, p.existed, nil
}

// put is an input that is being put into an inbox.
type put struct {
	s            *Store
	sender, root string
	agent        string // key of the agent of the task, if the key belongs to the sender
	in           *teamv1.Inbound
	digest       []byte
	child        *project.Fold // fold of the child that the input is for; nil for the root
	push         *a2a.Push     // the configuration to store with it; nil without one
	sealed       []byte        // push in encrypted form

	n       int64
	existed bool
}

// space returns the root in which the request's key is unique. It is empty for an input with a
// digest, whose key is unique for its sender.
func (p *put) space() string {
	if p.digest == nil && p.in.GetKey() != "" {
		return p.root
	}
	return ""
}

// write records the input under the lock of its run.
func (p *put) write(ctx context.Context, q querier) error {
	var inputs int64
	var ended, holder any
	err := q.scan(ctx, []any{&inputs, &ended, &holder}, `SELECT inputs, ended, holder FROM run WHERE id = $1`+p.s.db.lock(), p.root)
	if err != nil {
		return refuseNone(err)
	}
	if p.in.GetKey() != "" {
		if p.space() == "" {
			if err := q.scan(ctx, []any{&p.agent}, `SELECT `+agentKey+` FROM task WHERE id = $1`, p.root); err != nil {
				return refuseNone(err)
			}
		}
		r, err := p.s.request(ctx, q, p.sender, p.agent, p.space(), p.in.GetKey())
		if err == nil {
			p.existed = true
			if _, p.n, err = r.repeated(p.root, p.digest); err != nil {
				p.existed = false
				return refusal{err}
			}
			return nil
		}
		if !errors.Is(err, a2a.ErrNotFound) {
			return err
		}
	}
	if err := p.unanswered(ctx, q); err != nil {
		return err
	}
	if err := p.open(ended != nil); err != nil {
		return refusal{err}
	}
	if p.push != nil { // first, because a refusal must not have written anything
		_, scope := agent.SplitTask(p.push.Task.ID)
		if err := p.s.putPush(ctx, q, p.root, scope, *p.push, p.sealed); err != nil {
			return err
		}
	}
	return p.insert(ctx, q, inputs+1, holder == nil)
}

// unanswered rejects a second answer to a question. It reads under the lock of the run, so that it
// sees answers recorded by other processes.
func (p *put) unanswered(ctx context.Context, q querier) error {
	if p.in.GetAnswered() == nil {
		return nil
	}
	inbox, err := p.s.inbox(ctx, q, p.root)
	if err != nil {
		return err
	}
	if err := store.Unanswered(p.in, inbox); err != nil {
		return refusal{err}
	}
	answered, err := p.s.answered(ctx, q, p.root, p.in.GetScope(), p.in.GetAnswered().GetQuestion())
	if err != nil {
		return err
	}
	if answered != nil {
		return refusal{answered}
	}
	return nil
}

// refuseNone converts sql.ErrNoRows to a refusal with a2a.ErrNotFound.
func refuseNone(err error) error {
	if err = notFound(err); errors.Is(err, a2a.ErrNotFound) {
		return refusal{err}
	}
	return err
}

// open returns an error if the run or the child has ended, or if the child does not exist.
func (p *put) open(ended bool) error {
	switch {
	case ended:
		return a2a.ErrTerminal
	case p.child == nil:
		return nil
	case !p.child.Visible():
		return a2a.ErrNotFound
	case p.child.Terminal():
		return a2a.ErrTerminal
	}
	return nil
}

// insert writes the input with number n. If free is true, the run is not claimed, and becomes due.
func (p *put) insert(ctx context.Context, q querier, n int64, free bool) error {
	p.in.N = n
	body, err := proto.Marshal(p.in)
	if err != nil {
		return refusal{fmt.Errorf("encode an input of %s: %w", p.root, err)}
	}
	now := p.s.now()
	if p.in.GetKey() != "" {
		taken, err := q.exec(ctx, insertRequest, p.sender, store.AgentOf(p.in.GetKey(), p.agent), p.space(), p.in.GetKey(), p.digest, p.root, n, now, p.s.expired(p.in.GetKey(), now))
		if err != nil {
			return err
		}
		if taken == 0 { // taken at this moment for another task
			return refusal{a2a.ErrReused}
		}
	}
	if _, err := q.exec(ctx, `INSERT INTO inbox (id, n, sum, body) VALUES ($1, $2, $3, $4)`, p.root, n, sumOf(p.root, n, "", body), body); err != nil {
		return err
	}
	if free {
		_, err = q.exec(ctx, `UPDATE run SET inputs = $2, due = $3 WHERE id = $1`, p.root, n, now)
	} else {
		_, err = q.exec(ctx, `UPDATE run SET inputs = $2 WHERE id = $1`, p.root, n)
	}
	p.n = n
	return err
}
