package inflight

import "sync"

// Shared is a hold for data that several readers send at the same time. It is held until the last one
// has sent it. The zero value holds nothing. It is safe for concurrent use.
type Shared struct {
	mu   sync.Mutex
	n    int   // readers; guarded by mu
	hold *Hold // guarded by mu
}

// Acquire adds a reader. Unless there is one, it reserves the memory by calling reserve. The returned function
// removes the reader; further calls do nothing.
func (s *Shared) Acquire(reserve func() (*Hold, error)) (release func(), err error) {
	if s.join(nil) {
		return sync.OnceFunc(s.release), nil
	}
	hold, err := reserve()
	switch joined := s.join(hold); {
	case joined: // another reader was faster
		hold.Release()
	case err != nil:
		return nil, err
	}
	return sync.OnceFunc(s.release), nil
}

// join adds a reader if there is one, or if hold is not nil, which is then that of the data. It reports
// whether there was one.
func (s *Shared) join(hold *Hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	joins := s.n > 0
	if !joins {
		s.hold = hold
	}
	if joins || hold != nil {
		s.n++
	}
	return joins
}

func (s *Shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n--; s.n == 0 {
		s.hold.Release()
		s.hold = nil
	}
}
