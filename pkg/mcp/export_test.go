package mcp

// Kept returns the number of calls that are kept open for an answer.
func (s *Server) Kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}
