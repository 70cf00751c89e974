package mcp

// Kept returns the number of calls that are kept open for an answer.
func (s *Server) Kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking == nil || s.asking.keep == nil {
		return 0
	}
	return 1
}

// Busy reports whether the server works on a call that it may ask about.
func (s *Server) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asking != nil
}
