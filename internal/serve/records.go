package serve

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
)

const (
	// maxRecords is how many records wait for a store that takes no writes.
	maxRecords = 64
	// auditFlushTimeout is how long a server that stops may take to write records.
	auditFlushTimeout = 2 * time.Second
	// auditRetry is how long a record waits after an attempt that failed.
	auditRetry = time.Second
)

// records writes records of the configuration file to the audit log, each as soon as the store takes writes: a server
// also starts and reloads on a full disk, to be read. It is safe for concurrent use.
type records struct {
	store server.Store
	log   *zap.Logger
	added chan struct{} // has a value if a record was added since the last one was read

	mu      sync.Mutex
	waiting []*teamv1.AuditRecord // the oldest first; at most maxRecords; guarded by mu
}

func newRecords(kept server.Store, log *zap.Logger) *records {
	return &records{store: kept, log: log, added: make(chan struct{}, 1)}
}

// add appends a record that names the version and the configuration file with which a server works from now on. It
// does not block: if too many wait, the record takes the place of the newest one.
func (q *records) add(ctx context.Context, action string, file *config.Config) {
	r := audit.New(ctx, q.store.Now(), action, Version())
	r.Details = map[string]string{"file_sha256": file.Digest(), "files_sha256": file.FilesDigest()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if last := len(q.waiting) - 1; last+1 == maxRecords {
		q.log.Warn("too many records wait for the audit log; one is left out", zap.String("action", q.waiting[last].GetAction()), zap.String("sha256", q.waiting[last].GetDetails()["file_sha256"]))
		q.waiting = q.waiting[:last]
	}
	q.waiting = append(q.waiting, r)
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// first returns the oldest record, nil if none waits.
func (q *records) first() *teamv1.AuditRecord {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0]
}

// run writes records until ctx ends. What waits then is written if the store takes it soon.
func (q *records) run(ctx context.Context) {
	for ctx.Err() == nil {
		q.write(ctx)
		select {
		case <-q.added:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditFlushTimeout)
	defer cancel()
	q.write(ctx)
}

// write writes all records that wait. It tries again until it succeeds or ctx ends.
func (q *records) write(ctx context.Context) {
	said := false
	for r := q.first(); r != nil && ctx.Err() == nil; r = q.first() {
		err := q.store.AppendAudit(ctx, r)
		if err == nil {
			q.mu.Lock()
			q.waiting = q.waiting[1:]
			q.mu.Unlock()
			continue
		}
		if !said && ctx.Err() == nil {
			said = true
			q.log.Warn("cannot write to the audit log; retrying", zap.String("action", r.GetAction()), zap.Error(err))
		}
		_ = agent.Sleep(ctx, auditRetry) // its error is the end of ctx
	}
}
