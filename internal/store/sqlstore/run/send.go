package run

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore/admin"
	"github.com/agentteams/team-server/internal/store/sqlstore/db"
	"github.com/agentteams/team-server/internal/store/sqlstore/push"
	"github.com/agentteams/team-server/internal/store/sqlstore/record"
	"github.com/agentteams/team-server/pkg/agent"
)

// Intake takes in what is sent to agents: new tasks, and inputs of tasks.
type Intake struct {
	DB     *db.DB
	Claims *Runs
	Pushes *push.Pushes
}

// Statements of requests and inputs.
const (
	deleteRequests = `DELETE FROM request WHERE at <= $1`
	selectRequest  = `SELECT id, n, digest FROM request WHERE owner = $1 AND message = $2 AND agent = $3 AND root = $4 AND at > $5`
	selectOpen     = `SELECT inputs, ended, holder FROM run WHERE id = $1`
	insertInput    = `INSERT INTO inbox (id, n, sum, body) VALUES ($1, $2, $3, $4)`
	countInputDue  = `UPDATE run SET inputs = $2, due = CASE WHEN due <= $3 THEN due ELSE $3 END WHERE id = $1`
	countInput     = `UPDATE run SET inputs = $2 WHERE id = $1`
)

// Forget deletes requests whose window has passed.
func (s *Intake) Forget(ctx context.Context, now time.Time) error {
	return s.DB.Run(ctx, deleteRequests, now.Add(-max(store.RequestWindow, s.DB.Deduplicate)).UnixMilli())
}

// insertRequest stores a request. It replaces one that is older than its window.
const insertRequest = `INSERT INTO request (owner, agent, root, message, digest, id, n, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (owner, message, agent, root) DO UPDATE SET digest = excluded.digest, id = excluded.id, n = excluded.n, at = excluded.at
WHERE request.at <= $9`

// insertFirstBlob stores a piece of a blob of the first events of a new task, if these were inserted.
const insertFirstBlob = `INSERT INTO blob (id, hash, piece, body) SELECT $1, $2, $3, $5
WHERE ` + isFirst + ` ON CONFLICT DO NOTHING`

// insertPush stores the configuration with which a task is created.
const insertPush = `INSERT INTO push_config (id, scope, config, owner, body, due, seen, version, epoch) SELECT $1, '', $4, $3, $5, $6, 0, $7, $8
WHERE ` + mine + ` AND EXISTS (SELECT 1 FROM run WHERE run.id = $1 AND run.owner = $3) ON CONFLICT DO NOTHING`

// mine is true if the message has created this task, or if there is no message id.
const mine = `($2 = '' OR EXISTS (SELECT 1 FROM request WHERE request.owner = $3 AND request.root = '' AND message = $2 AND request.id = $1))`

// insertRun stores the run of a new task.
const insertRun = `INSERT INTO run (id, owner, seq, bytes, due, definition, push) SELECT $1, $3, $8, $4, $5, $6, $7 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// insertTask stores the task row of a new task.
const insertTask = `INSERT INTO task (id, owner, agent, context_id, state, status_at, visible, brief, agent_account, account, created, text)
SELECT $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// insertFirst stores the first event of a new task.
const insertFirst = `INSERT INTO event (id, seq, scope, delta, sum, body) SELECT $1, 1, '', 0, $4, $5 WHERE ` + mine + ` ON CONFLICT DO NOTHING`

// isFirst is true if the first event of a new task is the one that its creation has inserted.
const isFirst = `EXISTS (SELECT 1 FROM event WHERE event.id = $1 AND event.seq = 1 AND event.sum = $4)`

// insertKept stores an event that follows the first one of a new task.
const insertKept = `INSERT INTO event (id, seq, scope, delta, sum, body) SELECT $1, $2, $3, 0, $5, $6 WHERE ` + isFirst + ` ON CONFLICT DO NOTHING`

// Create creates a task with its first event, due to run. If the message was received before, it
// returns the root that the message began, and existed is true.
func (s *Intake) Create(ctx context.Context, n runs.New) (root string, existed bool, err error) {
	root = n.Accepted.GetTaskId()
	if root == "" || n.Owner == "" {
		return "", false, errors.New("create a task: it needs an id and an owner")
	}
	if n.Collaborations > 0 && n.Accepted.GetCollaboration() == nil {
		return "", false, errors.New("create a task: a collaboration needs a brief") // by which its end knows that it has a slot
	}
	if err := s.DB.Ready(); err != nil { // fail at once, not after all attempts
		return "", false, err
	}
	o, err := s.creation(n)
	if err != nil {
		return "", false, err
	}
	if n.Push != nil {
		if err := push.Room(ctx, s.DB.Reader(), n.Owner); err != nil {
			if _, known := s.Sent(ctx, n.Owner, store.AgentKey(n.Accepted), n.MessageID); known != nil {
				return "", false, db.Answer(err)
			}
		}
		defer s.Pushes.Wake()
	}
	if n.Collaborations > 0 {
		o.Plan = func(ctx context.Context, q db.Querier) (err error) {
			root, existed, err = s.collaborate(ctx, q, n, o)
			return err
		}
	} else {
		o.Done = func(ctx context.Context, q db.Querier, err error) error {
			if err == nil {
				root, existed, err = s.created(ctx, q, n, o)
			}
			return err
		}
	}
	if err := s.DB.Await(ctx, o); err != nil {
		return "", false, err
	}
	if !existed {
		s.DB.Ring(n.Owner) // who watches the root waits for what its run does
	}
	return root, existed, nil
}

// creation returns the change that creates a task.
func (s *Intake) creation(n runs.New) (*db.Op, error) {
	acc, now := n.Accepted, s.DB.Now()
	id, at, account := acc.GetTaskId(), now.UnixMilli(), identity.AccountOf(n.Owner)
	entries, size, f, err := firstEvents(n, now)
	if err != nil {
		return nil, err
	}
	first, l := entries[0], listingOf(f)
	o := &db.Op{Root: id, Size: int(size), Account: account}
	if n.MessageID != "" {
		o.Stmts = append(o.Stmts, db.With(insertRequest, n.Owner, store.AgentOf(n.MessageID, store.AgentKey(acc)), "", n.MessageID, n.Digest, id, int64(0), at, s.expired(n.MessageID, at)))
	}
	o.Stmts = append(o.Stmts,
		db.With(insertRun, id, n.MessageID, n.Owner, size, at, definitionOf(acc), db.Flag(n.Push != nil), int64(len(entries))),
		db.With(insertTask, id, n.MessageID, n.Owner, acc.GetAgent(), acc.GetMessage().GetContextId(), int64(l.state), l.at, db.Flag(l.visible), db.Flag(acc.GetCollaboration() != nil), acc.GetPins().GetAccounts()[acc.GetAgent()], account, at, store.TextOf(acc.GetMessage())),
		db.With(insertFirst, id, n.MessageID, n.Owner, first.Sum, first.Body),
	)
	for _, e := range entries[1:] {
		o.Stmts = append(o.Stmts, db.With(insertKept, id, e.Event.GetSeq(), e.Event.GetScope(), first.Sum, e.Sum, e.Body))
	}
	for _, e := range entries {
		for _, v := range e.Blobs {
			for n, piece := range v.Pieces() {
				o.Stmts = append(o.Stmts, db.With(insertFirstBlob, id, v.Hash, n, first.Sum, piece))
			}
		}
	}
	if n.Push != nil {
		body, err := s.Pushes.Seal(id, "", n.Push)
		if err != nil {
			return nil, err
		}
		o.Stmts = append(o.Stmts, db.With(insertPush, id, n.MessageID, n.Owner, n.Push.GetId(), body, at, n.PushVersion, push.Epoch()))
	}
	return o, nil
}

// firstEvents returns the events with which the journal of a new task begins, their size in bytes, and the task after
// them.
func firstEvents(n runs.New, now time.Time) (entries []record.Entry, size int64, f *project.Fold, err error) {
	root, agentID, at := n.Accepted.GetTaskId(), n.Accepted.GetAgent(), timestamppb.New(now)
	f = project.New(root, "")
	for i, ev := range append([]*teamv1.Event{{Agent: agentID, Kind: &teamv1.Event_Accepted{Accepted: n.Accepted}}}, n.Kept...) {
		ev.Seq, ev.Time = int64(i+1), at
		e, err := record.Encode(root, ev)
		if err != nil {
			return nil, 0, nil, err
		}
		f.Apply(ev)
		entries, size = append(entries, e), size+int64(e.Size)
	}
	return entries, size, f, nil
}

// definitionOf returns the revision to which a run is pinned, NULL without one.
func definitionOf(acc *teamv1.Accepted) sql.NullString {
	r := acc.GetPins().GetRevisions()[acc.GetAgent()]
	return sql.NullString{String: r, Valid: r != ""}
}

// runAt returns the index of insertRun in the statements of a creation.
func runAt(n runs.New) int { return int(db.Flag(n.MessageID != "")) }

// created returns the result of a creation after its statements were run.
func (s *Intake) created(ctx context.Context, q db.Querier, n runs.New, o *db.Op) (root string, existed bool, err error) {
	root = n.Accepted.GetTaskId()
	if n.MessageID != "" && o.Affected[0] == 0 { // the message is known
		r, err := s.request(ctx, q, n.Owner, store.AgentKey(n.Accepted), "", n.MessageID)
		if err != nil {
			return "", false, err
		}
		if o.Again && r.id == root {
			return root, false, nil // created by an attempt whose reply was lost
		}
		root, _, err = r.repeated("", n.Digest)
		return root, err == nil, err
	}
	if made := o.Affected[runAt(n)] == 1; made || o.Again {
		return root, false, nil
	}
	return "", false, fmt.Errorf("create task %s: the id is taken", root)
}

// expired returns the time before which requests with a key are no longer recognized.
func (s *Intake) expired(key string, now int64) int64 {
	return now - store.Window(key, s.DB.Deduplicate).Milliseconds()
}

// request is the result of a message or a command.
type request struct {
	id     string
	n      int64
	digest []byte
}

// request finds a request within its window. The error is runs.ErrNotFound.
func (s *Intake) request(ctx context.Context, q db.Querier, owner, agent, root, message string) (request, error) {
	var r request
	err := q.Scan(ctx, []any{&r.id, &r.n, &r.digest}, selectRequest,
		owner, message, store.AgentOf(message, agent), root, s.expired(message, s.DB.Millis()))
	return r, db.NotFound(err)
}

// repeated returns the result of a request that is repeated. The error is runs.ErrReused if the
// request differs, or if root is set and the request was for another task.
func (r request) repeated(root string, digest []byte) (string, int64, error) {
	if !bytes.Equal(r.digest, digest) || root != "" && r.id != root {
		return "", 0, runs.ErrReused
	}
	return r.id, r.n, nil
}

// Sent returns the root that a message of the owner began or was put into, within the time for
// which message ids are remembered. The error is runs.ErrNotFound.
func (s *Intake) Sent(ctx context.Context, owner, agent, messageID string) (string, error) {
	r, err := s.request(ctx, s.DB.Reader(), owner, agent, "", messageID)
	return r.id, err
}

// Put puts an input into the inbox of a task and makes its run due. Unless conf is nil, it also
// stores that push configuration in the same transaction.
func (s *Intake) Put(ctx context.Context, k runs.Key, in *teamv1.Inbound, digest []byte, conf *runs.Push) (n int64, existed bool, err error) {
	if in.GetKind() == nil {
		return 0, false, errors.New("put an input: it has no kind")
	}
	if conf != nil {
		defer s.Pushes.Wake()
	}
	if err := s.DB.Ready(); err != nil { // fail at once, not after all attempts
		return 0, false, err
	}
	root, scope, err := s.Claims.Owned(ctx, k)
	if err != nil {
		return 0, false, err
	}
	p := &put{s: s, sender: store.Sender(k.Owner, in), root: root, in: proto.CloneOf(in), digest: digest, push: conf}
	if conf != nil {
		_, of := agent.SplitTask(conf.Task.ID)
		if p.sealed, err = s.Pushes.Seal(root, of, conf.Config); err != nil {
			return 0, false, err
		}
	}
	if scope != "" {
		if p.child, _, err = s.Claims.Fold(ctx, root, scope); err != nil {
			return 0, false, err
		}
	}
	err = admin.ChangeIf(ctx, s.DB, func(ctx context.Context, q db.Querier) (bool, error) {
		err := p.write(ctx, q)
		return !p.existed, err
	})
	if err != nil {
		return 0, false, err
	}
	s.Claims.Deliver(root) // also if the message existed: the attempt that wrote it may have failed before it woke the run
	s.DB.Tell(root, k.Owner)
	return p.n, p.existed, nil
}

// put is an input that is being put into an inbox.
type put struct {
	s            *Intake
	sender, root string
	agent        string // key of the agent of the task, if the key belongs to the sender
	in           *teamv1.Inbound
	digest       []byte
	child        *project.Fold // fold of the child that the input is for; nil for the root
	push         *runs.Push    // the configuration to store with it; nil without one
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
func (p *put) write(ctx context.Context, q db.Querier) error {
	var inputs int64
	var ended, holder any
	err := q.Scan(ctx, []any{&inputs, &ended, &holder}, selectOpen+p.s.DB.Lock, p.root)
	if err != nil {
		return db.RefuseNone(err)
	}
	if p.in.GetKey() != "" {
		if p.space() == "" {
			if err := q.Scan(ctx, []any{&p.agent}, `SELECT `+record.AgentKey+` FROM task WHERE id = $1`, p.root); err != nil {
				return db.RefuseNone(err)
			}
		}
		r, err := p.s.request(ctx, q, p.sender, p.agent, p.space(), p.in.GetKey())
		if err == nil {
			p.existed = true
			if _, p.n, err = r.repeated(p.root, p.digest); err != nil {
				p.existed = false
				return db.Refuse(err)
			}
			return nil
		}
		if !errors.Is(err, runs.ErrNotFound) {
			return err
		}
	}
	if err := p.unanswered(ctx, q); err != nil {
		return err
	}
	if err := p.open(ended != nil); err != nil {
		return db.Refuse(err)
	}
	if p.push != nil { // first, because a refusal must not have written anything
		_, scope := agent.SplitTask(p.push.Task.ID)
		if err := p.s.Pushes.Insert(ctx, q, p.root, scope, *p.push, p.sealed); err != nil {
			return err
		}
	}
	return p.insert(ctx, q, inputs+1, holder == nil)
}

// unanswered rejects a second answer to a question. It reads under the lock of the run, so that it
// sees answers recorded by other processes.
func (p *put) unanswered(ctx context.Context, q db.Querier) error {
	if p.in.GetAnswered() == nil {
		return nil
	}
	inbox, err := record.Inbox(ctx, q, p.root)
	if err != nil {
		return err
	}
	if err := store.Unanswered(p.in, inbox); err != nil {
		return db.Refuse(err)
	}
	ctx = inflight.WithReader(ctx, nil) // it must not wait for memory within a transaction
	answered, err := record.Answered(ctx, q, p.root, p.in.GetScope(), p.in.GetAnswered().GetQuestion())
	if err != nil {
		return err
	}
	if answered != nil {
		return db.Refuse(answered)
	}
	return nil
}

// open returns an error if the run or the child has ended, or if the child does not exist.
func (p *put) open(ended bool) error {
	switch {
	case ended:
		return runs.ErrTerminal
	case p.child == nil:
		return nil
	case !p.child.Visible():
		return runs.ErrNotFound
	case p.child.Terminal():
		return runs.ErrTerminal
	}
	return nil
}

// insert writes the input with number n. If free is true, the run is not claimed, and becomes due.
func (p *put) insert(ctx context.Context, q db.Querier, n int64, free bool) error {
	p.in.N = n
	body, err := proto.Marshal(p.in)
	if err != nil {
		return db.Refuse(fmt.Errorf("encode an input of %s: %w", p.root, err))
	}
	now := p.s.DB.Millis()
	if p.in.GetKey() != "" {
		taken, err := q.Exec(ctx, insertRequest, p.sender, store.AgentOf(p.in.GetKey(), p.agent), p.space(), p.in.GetKey(), p.digest, p.root, n, now, p.s.expired(p.in.GetKey(), now))
		if err != nil {
			return err
		}
		if taken == 0 { // taken at this moment for another task
			return db.Refuse(runs.ErrReused)
		}
	}
	count := db.With(countInput, p.root, n)
	if free {
		count = db.With(countInputDue, p.root, n, now)
	}
	p.n = n
	return db.Exec(ctx, q, db.With(insertInput, p.root, n, db.SumOf(p.root, n, "", body), body), count)
}
