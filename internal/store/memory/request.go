package memory

import (
	"bytes"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/pkg/a2a"
)

// requestKey identifies a request that may be repeated: a sender's message to an agent, or an input
// for one root task.
type requestKey struct{ owner, agent, root, id string }

// request is the result of a request.
type request struct {
	root   string
	n      int64 // inbox row; 0 for a task
	digest []byte
	at     time.Time
}

// expiry is when a request may be removed.
type expiry struct {
	key requestKey
	at  time.Time
}

// putKey returns the key of an input. An input with a digest is identified by its sender, like the
// id of a message, and an input without one by its root task.
func putKey(r *run, in *teamv1.Inbound, digest []byte) requestKey {
	if digest == nil && in.GetKey() != "" {
		return requestKey{owner: r.owner, root: r.root, id: in.GetKey()}
	}
	return requestKey{owner: store.Sender(r.owner, in), agent: store.AgentOf(in.GetKey(), r.key()), id: in.GetKey()}
}

// again returns the result of a request that is repeated. The error is a2a.ErrReused if the request
// differs, or if root is set and the request was for another root task.
func (q request) again(root string, digest []byte) (string, int64, error) {
	if !bytes.Equal(q.digest, digest) || root != "" && q.root != root {
		return "", 0, a2a.ErrReused
	}
	return q.root, q.n, nil
}

// known returns the result of an input that was put before.
func (s *Store) known(r *run, key requestKey, digest []byte, now time.Time) (n int64, existed bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	q, known := s.request(key, now)
	if !known {
		return 0, false, nil
	}
	_, n, err = q.again(r.root, digest)
	return n, err == nil, err
}

// request returns a request that was made within its window. The caller must hold mu.
func (s *Store) request(key requestKey, now time.Time) (request, bool) {
	q, ok := s.requests[key]
	return q, ok && key.id != "" && now.Sub(q.at) < store.Window(key.id, s.deduplicate)
}

// remember stores a request for its window, and removes those whose window has passed. The caller
// must hold mu.
func (s *Store) remember(r *run, key requestKey, q request, now time.Time) {
	for len(s.expiries) > 0 && now.Sub(s.expiries[0].at) >= max(store.RequestWindow, s.deduplicate) {
		s.expire(s.expiries[0])
		s.expiries[0] = expiry{}
		s.expiries = s.expiries[1:]
	}
	if key.id == "" || s.runs[r.root] != r { // the run was dropped in the meantime
		return
	}
	q.at = now
	s.requests[key] = q
	r.requests = append(r.requests, key)
	s.expiries = append(s.expiries, expiry{key: key, at: now})
}

// expire removes a request, unless it was made again since then. The caller must hold mu.
func (s *Store) expire(e expiry) {
	if q, ok := s.requests[e.key]; ok && q.at.Equal(e.at) {
		delete(s.requests, e.key)
	}
}

// retire adds a run to the finished ones, encodes the events of an earlier one, and drops the
// oldest runs beyond the limit.
func (s *Store) retire(r *run) {
	if old := s.finish(r); old != nil {
		old.pack()
	}
}

// finish adds a run to the finished ones and drops the oldest beyond the limit. It returns the run
// whose events are to be encoded, nil if there is none.
func (s *Store) finish(r *run) *run {
	s.accounts.endUse(r.root, a2a.AccountOf(r.owner))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, r)
	for len(s.finished) > s.maxFinished {
		s.drop(s.finished[0])
		s.finished[0] = nil
		s.finished = s.finished[1:]
	}
	if n := len(s.finished) - decodedRuns; n > 0 {
		return s.finished[n-1]
	}
	return nil
}

// drop removes a finished run with everything that belongs to it. The caller must hold mu.
func (s *Store) drop(r *run) {
	delete(s.runs, r.root)
	s.accounts.dropShares(r.root)
	s.pushes.drop(r.root)
	if r.tied != nil {
		r.tied.runs--
	}
	o := s.owners[r.owner]
	if r.entry != nil {
		o.listed.remove(r.entry)
		o.briefed.Delete(r)
	}
	for _, key := range r.requests {
		if s.requests[key].root == r.root {
			delete(s.requests, key)
		}
	}
	if o.runs--; o.runs == 0 {
		delete(s.owners, r.owner)
	}
}
