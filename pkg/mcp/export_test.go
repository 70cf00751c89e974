package mcp

// Kept returns the number of calls that are kept open for an answer.
func (s *Server) Kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Busy returns the number of sessions that a call has for itself.
func (s *Server) Busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.busy)
}
